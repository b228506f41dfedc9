"""Entries: `/v1/memory/entries`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from memory.domain import validation
from memory.domain.enrichment import PASSES
from memory.domain.errors import InvalidInput
from memory.server.bodies import Ending, EntryBatch, EntryChanges, EntryDeletion, NewEntry, Reference
from memory.server.callers import Caller, Reader, Writer
from memory.server.paths import prefix_of
from memory.server.problems import Problem, bad_request
from memory.server.rendering import (
    Deleted,
    DeletedMany,
    EnrichmentView,
    EntryView,
    Invalidated,
    VersionList,
    WrittenEntry,
    entry_json,
    json_response,
    report_json,
)
from memory.server.requests import (
    AsOf,
    IdempotencyKey,
    IfMatch,
    IfNoneMatch,
    Include,
    KnownAt,
    Prefer,
    etag_of,
    expected_version,
    expects_absence,
    full_id,
    is_unchanged,
    named_here,
    not_found,
    parts_of,
    request_id_of,
    switch,
    targets_of,
    wait_of,
    with_expiry,
)
from memory.server.routing import ApiRoute

router = APIRouter(prefix="/v1/memory/entries", tags=["entries"], route_class=ApiRoute)
OF_LIBRARY = {"supersedes": "supersedes_ids"}
_OF_DRAFTS = re.compile(r"^drafts(\[|$)")
"""Where the library names the entries of a batch, which are its drafts."""


@router.post("", status_code=201, response_model=WrittenEntry)
async def create_entry(
    request: Request,
    caller: Writer,
    body: NewEntry,
    idempotency_key: IdempotencyKey = None,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
    prefer: Prefer = None,
) -> Response:
    """Store one entry.

    A `key` makes the entry addressable and the write repeatable. The answer has a block
    for all else that was done: `supersedes_manual`, `supersede` and `auto_tag`.
    """
    request_id = request_id_of(caller, idempotency_key)
    options = await _options(caller, body, request_id)
    expected = expects_absence(if_none_match) or await expected_version(
        if_match, lambda: _version_at(caller, options), request_id, creates=True
    )
    wait, waited = wait_of(prefer), dict[str, str]()
    if wait is not None:
        options["consistency"], waited = "replicated", {"Preference-Applied": f"wait={wait:g}"}
    options |= {"request_id": request_id, "expected_version": expected}
    enriched = any(options.get(name, getattr(caller.memory.config.enrichment, name)) for name in PASSES)
    with named_here(**OF_LIBRARY):
        if enriched or options.get("supersedes"):
            report = await caller.memory.write_with_report(wait=wait or None, **options)
            written, shown = report.entry, report_json(report)
        else:
            written = await caller.memory.write(**options)
            shown = entry_json(written)
            if written.conflict_report is not None:
                shown["conflict_report"] = written.conflict_report.to_dict()
    place = {
        "Location": f"{prefix_of(request.scope)}{router.prefix}/{written.id}",
        "ETag": etag_of(written.version),
    }
    return json_response(shown, 201, headers={**place, **waited})


@router.post("/batch", status_code=201, response_model=VersionList)
async def create_entries(
    caller: Writer, body: EntryBatch, idempotency_key: IdempotencyKey = None
) -> Response:
    """Store several entries, in order. All of them are checked before any is stored."""
    request_id = request_id_of(caller, idempotency_key)
    drafts = list[dict[str, Any]]()
    for at, one in enumerate(body.entries):
        with validation.item("entries", at):
            drafts.append(await _options(caller, one, request_id))
    try:
        written = await caller.memory.write_many(drafts, request_id=request_id)
    except InvalidInput as error:
        field = _OF_DRAFTS.sub(r"entries\1", error.field)
        raise InvalidInput(field.replace("].supersedes", "].supersedes_ids"), error.problem) from None
    return json_response({"versions": [entry_json(one) for one in written]}, 201)


@router.post("/delete", response_model=DeletedMany)
async def delete_entries(
    request: Request, caller: Writer, body: EntryDeletion, idempotency_key: IdempotencyKey = None
) -> Response:
    """Delete the entries that pass a filter."""
    request.scope["audit_targets"] = targets_of(body.sent_fields())
    gone = await caller.memory.entries.delete_many(
        **body.sent_fields(), request_id=request_id_of(caller, idempotency_key)
    )
    return json_response(gone.to_dict())


@router.get("/{entry_id}", response_model=EntryView, responses={304: {"description": "Not modified"}})
async def get_entry(
    entry_id: str,
    caller: Reader,
    as_of: AsOf = None,
    known_at: KnownAt = None,
    short_id: Annotated[str | None, Query(description="on: show the number for people.")] = None,
    include: Include = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Return one entry, with the description of its file."""
    wanted = await full_id(caller, entry_id)
    found = await caller.memory.get(wanted, as_of=as_of, known_at=known_at, include=parts_of(include))
    if found is None:
        raise not_found("entry", entry_id)
    headers = {"ETag": etag_of(found.version)}
    if is_unchanged(if_none_match, found.version):
        return Response(status_code=304, headers=headers)
    numbers = None
    if switch("short_id", short_id, default=False):
        numbers = await caller.memory.short_ids.of([found.id])
    return json_response(entry_json(found, numbers), headers=headers)


@router.patch("/{entry_id}", response_model=EntryView)
async def change_entry(
    entry_id: str,
    caller: Writer,
    body: EntryChanges,
    idempotency_key: IdempotencyKey = None,
    if_match: IfMatch = None,
) -> Response:
    """Change the given fields of an active entry. The version before is kept."""
    request_id, changes = request_id_of(caller, idempotency_key), with_expiry(body.sent_fields())
    wanted = await full_id(caller, entry_id, request_id=request_id)
    expected = await expected_version(if_match, lambda: _version_of(caller, wanted), request_id)
    if "artifact_id" in changes:
        changes["artifact_id"] = await _artifact_of(caller, changes["artifact_id"], request_id)
    if "tags" in changes and changes["tags"] is None:
        raise bad_request("tags", "must be a list. Send [] to remove all")
    if not changes and expected is None:
        found = await caller.memory.get(wanted)
        if found is None or found.valid_to is not None:
            raise not_found("entry", entry_id)
    else:
        found = await caller.memory.update(
            wanted,
            **changes,
            expected_version=expected,
            request_id=request_id,
        )
    return json_response(entry_json(found), headers={"ETag": etag_of(found.version)})


@router.delete("/{entry_id}", response_model=Deleted)
async def delete_entry(
    entry_id: str, caller: Writer, idempotency_key: IdempotencyKey = None, if_match: IfMatch = None
) -> Response:
    """Delete an entry with its versions and relations. A second deletion finds none."""
    request_id = request_id_of(caller, idempotency_key)
    wanted = await full_id(caller, entry_id, request_id=request_id)
    expected = await expected_version(if_match, lambda: _version_of(caller, wanted), request_id)
    gone = await caller.memory.delete(wanted, expected_version=expected, request_id=request_id)
    if not gone:
        raise not_found("entry", entry_id)
    return json_response({"deleted": True, "id": wanted, "kept": list(gone.kept)})


@router.post("/{entry_id}/invalidate", response_model=Invalidated)
async def invalidate_entry(
    entry_id: str,
    caller: Writer,
    body: Ending | None = None,
    idempotency_key: IdempotencyKey = None,
    if_match: IfMatch = None,
) -> Response:
    """End the validity of an entry. It stays readable with `as_of`."""
    not_active = "entry not found or already invalidated"
    request_id = request_id_of(caller, idempotency_key)
    wanted = await full_id(caller, entry_id, missing=not_active, request_id=request_id)
    ended = await caller.memory.entries.invalidate(
        wanted,
        None if body is None else body.when,
        expected_version=await expected_version(if_match, lambda: _version_of(caller, wanted), request_id),
        request_id=request_id,
    )
    if not ended:
        raise Problem(404, "not_found", not_active)
    return json_response({"invalidated": True, "id": wanted})


@router.get("/{entry_id}/history", response_model=VersionList)
async def get_history(
    entry_id: str,
    caller: Reader,
    superseded: Annotated[str | None, Query(description="on: also what it superseded.")] = None,
    include: Include = None,
) -> Response:
    """List every version of an entry, oldest first."""
    versions = await caller.memory.entries.history(
        await full_id(caller, entry_id),
        superseded=switch("superseded", superseded, default=False),
        include=parts_of(include),
    )
    return json_response({"versions": [entry_json(one) for one in versions]})


@router.get("/{entry_id}/enrichment", response_model=EnrichmentView)
async def get_enrichment(entry_id: str, caller: Reader) -> Response:
    """Return what an advisor did for an entry."""
    return json_response((await caller.memory.enrichment(await full_id(caller, entry_id))).to_dict())


@router.get("/{entry_id}/messages")
async def get_source_messages(entry_id: str, caller: Reader) -> Response:
    """List the messages that an entry was made of."""
    found = await caller.memory.entries.source_messages(await full_id(caller, entry_id))
    return json_response({"messages": [one.to_dict() for one in found]})


async def _options(caller: Caller, body: NewEntry, request_id: str | None) -> dict[str, Any]:
    """Return the arguments of a write."""
    given = with_expiry(body.sent_fields(without=("supersedes_ids",)))
    given["scope"] = caller.write_scope if given.get("scope") is None else given["scope"]
    for name in [*PASSES, "tags", "origins"]:
        if given.get(name, "") is None:
            del given[name]
    if given.get("conversation_id") in (0, "0"):
        given["conversation_id"] = None
    elif isinstance(given.get("conversation_id"), int):
        raise InvalidInput("conversation_id", "must be the id of a session, or 0 for none")
    if "artifact_id" in given:
        given["artifact_id"] = await _artifact_of(caller, given["artifact_id"], request_id)
    if body.supersedes_ids:
        given["supersedes"] = [await _superseded_id(caller, one, request_id) for one in body.supersedes_ids]
    return given


async def _version_of(caller: Caller, entry_id: str) -> str | None:
    found = await caller.memory.get(entry_id)
    return None if found is None else found.version


async def _version_at(caller: Caller, options: Mapping[str, Any]) -> str | None:
    """Return the version of the entry that a write with a `key` would change.

    Raises:
        Problem: The write has no key, and changes no entry.
    """
    if options.get("key") is None:
        raise bad_request("If-Match", "applies only to a write with `key`. Pass the key of the entry")
    found = await caller.memory.get(scope=options["scope"], key=options["key"])
    return None if found is None else found.version


async def _superseded_id(caller: Caller, reference: Reference, request_id: str | None) -> str:
    """Return the full id of an entry to supersede; the write refuses unknown ones."""
    try:
        return await full_id(caller, str(reference), request_id=request_id)
    except Problem:
        shown = str(reference)[:64]
        raise bad_request(
            "supersedes_ids", f"there is no active entry {shown}: nothing was written"
        ) from None


async def _artifact_of(caller: Caller, reference: Reference | None, request_id: str | None) -> str | None:
    """Return the full id of a file; 0 and null mean none."""
    if reference in (None, 0, "0"):
        return None
    if isinstance(reference, int) and reference < 0:
        raise InvalidInput("artifact_id", f"must not be negative, as {reference} is")
    try:
        return await full_id(caller, str(reference), "artifact", request_id=request_id)
    except Problem:
        raise bad_request("artifact_id", f"there is no artifact {str(reference)[:64]!r}") from None
