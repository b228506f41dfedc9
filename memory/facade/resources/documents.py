"""`memory.documents`: JSON or bytes under keys of scopes."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from memory.domain import validation
from memory.domain.corrections import explain_guesses
from memory.domain.document import (
    DOCUMENT_ORDERS,
    MAX_GROUP,
    CheckedValue,
    Document,
    DocumentChange,
    DocumentDelete,
    DocumentInfo,
    DocumentOrder,
    DocumentPage,
    DocumentPut,
    IfDocumentExists,
    LongValue,
    Value,
    check_expectation,
    check_key,
    check_value,
)
from memory.domain.errors import Conflict, InvalidInput, PartialWrite, QuotaExceeded
from memory.domain.filter_parsing import parse_filter
from memory.domain.filters import Filter, is_empty
from memory.domain.scope import Scope, Subtree
from memory.domain.time import micros_or_none, moment, moment_or_none
from memory.domain.versions import ExpectedVersion, check_expected
from memory.facade.arguments import Metadata, flag, length, scope_of, scope_or_subtree
from memory.facade.runtime.access import Access
from memory.facade.runtime.cursors import CursorSeal
from memory.facade.runtime.request_ids import (
    check_request_id,
    noted_flag,
    noted_number,
    read_flag,
    read_number,
    request_of,
)
from memory.facade.runtime.view_guard import guard_calls
from memory.facade.search_options import FilterInput
from memory.orchestrator.documents.documents import ChangeRequest, DeleteRequest, KeyRange, PutRequest
from memory.orchestrator.storage.requests import Request, RequestMark, partition_mark

LIST_LIMIT = 100
MAX_KEYS = 1_000
PAGE_GROWTH = 8
"""How many times larger than the page before a page of `iterate` is, up to 1,000."""
CHECKED_AT_ONCE = 64 * 1024
"""Characters of JSON that are checked on the event loop; longer values in a thread."""


@guard_calls
@explain_guesses
class Documents:
    """Stores JSON or bytes under a key of a scope, and lists them by key.

        info = await memory.documents.put("user:ada", "settings", {"theme": "dark"})
        found = await memory.documents.get("user:ada", "settings")
        await memory.documents.put(
            "user:ada", "settings", {"theme": "light"}, expected_version=found.version
        )

    Documents are for state that nobody searches by meaning: checkpoints, settings,
    caches. Searches do not find them. A document has up to 32 MiB. It is in the store
    of tier `mid`, or of tier `short` if the setting `documents.short` names its scope.
    """

    def __init__(self, access: Access) -> None:
        self._access = access

    async def put(
        self,
        scope: Scope | str,
        key: str,
        value: Value,
        *,
        metadata: Metadata | None = None,
        expires_in: timedelta | float | str | None = None,
        refresh_on_read: bool = False,
        expected_version: ExpectedVersion | None = None,
        if_exists: IfDocumentExists = "replace",
        request_id: str | None = None,
    ) -> DocumentInfo:
        """Store a value under a key, in place of the document that is there.

        Metadata and expiry are those of this call; earlier ones are dropped. The
        `created_at` of the document stays. A legal hold does not stop a put.

        If an equal value of up to 256 KiB with equal metadata is there, and neither
        expires, the document and its version stay.

        Args:
            key: 1 to 512 bytes of any text but NUL.
            value: JSON (None, bool, 64-bit int, finite float, str, list, dict with text
                keys, at most 32 levels) or bytes. It is returned equal.
            metadata: Up to 64 KiB beside the value.
            expires_in: A `timedelta`, seconds, or text such as `"2h"`. After that time
                the document is hidden. A sweep deletes it 24 hours later
                (`durations.expired_grace`).
            refresh_on_read: Each `get` and `get_many` begins the time of `expires_in`
                anew. The version stays. Lists do not count as reads.
            expected_version: The `version` that you read last, or `ABSENT`. If another
                one is stored, nothing is changed.
            if_exists: `"error"` refuses to replace any document, even an equal one.
                `"keep"` leaves and returns the document that is there.
            request_id: As in `Memory.write`. A repeat stores nothing, and returns what
                the first call returned.

        Returns:
            The document without its value, with its new `version`.

        Raises:
            Conflict: A document exists, and `if_exists` is `"error"`. Or `request_id`
                was used for another request.
            InvalidInput: An argument is wrong. The error names its path.
            QuotaExceeded: The document would exceed a quota of `document_bytes`.
            Unsupported: The store of tier `mid` cannot store groups of changes.
            VersionConflict: The document has another version than expected. The error
                has the current one (`current_version`).
        """
        asked = self._sign(
            await _put_request(
                DocumentPut(
                    scope,
                    key,
                    value,
                    metadata,  # type: ignore[arg-type]
                    expires_in,
                    refresh_on_read,
                    expected_version,
                    if_exists,
                )
            )
        )
        documents, tenant = self._access.engine.documents, self._access.tenant
        request = await _request_of("put", tenant, request_id, [asked])

        async def put(mark: RequestMark | None) -> list[DocumentInfo | None]:
            return [await documents.put(tenant, asked, mark)]

        (made,) = await self._once(request, [asked], put)
        assert made is not None  # noqa: S101 - a put stores one
        return made

    async def put_many(
        self, puts: Sequence[DocumentPut], *, request_id: str | None = None
    ) -> list[DocumentInfo]:
        """Store up to 1,000 values, of one scope or several, each as `put` does.

        The puts are not one group: see `apply` for that. They take few calls of the
        store, except those of more than 256 KiB.

        Args:
            puts: `DocumentPut`s of different documents. All are checked before any is
                stored.
            request_id: As in `Memory.write`. A repeat changes nothing, and returns what
                the first call returned.

        Returns:
            The documents without their values, in the order of the puts.

        Raises:
            PartialWrite: Some puts conflict; all others are stored. The error names
                them and holds the stored documents.
            QuotaExceeded: The documents would exceed a quota of `document_bytes`. None
                is stored, unless others fill the quota meanwhile; see `written`.
            Unsupported: The store of tier `mid` cannot store groups of changes.
        """
        asked = [
            self._sign(one)
            for one in await _change_requests(puts, "puts", MAX_KEYS, (DocumentPut,))
            if isinstance(one, PutRequest)
        ]
        for one in asked:
            self._access.scope_in_view(one.scope)
        documents, tenant = self._access.engine.documents, self._access.tenant
        request = await _request_of("put_many", tenant, request_id, asked)

        async def put(mark: RequestMark | None) -> list[DocumentInfo | None]:
            marks = [None if mark is None else mark.part(number) for number in range(len(asked))]
            outcomes = await documents.put_many(tenant, asked, marks) if asked else []
            made = {n: one for n, one in enumerate(outcomes) if isinstance(one, DocumentInfo)}
            conflicts = {n: one for n, one in enumerate(outcomes) if isinstance(one, Conflict)}
            if conflicts:
                raise PartialWrite(made, conflicts, "puts")
            return list(made.values())

        return [info for info in await self._once(request, asked, put) if info is not None]

    async def edit(
        self, scope: Scope | str, key: str, change: Callable[[Document | None], Value]
    ) -> DocumentInfo:
        """Store what a function makes of the document under a key.

            def count(found: Document | None) -> int:
                return 1 if found is None else found.value + 1

            await memory.documents.edit("user:ada", "visits", count)

        If another writer stores the document meanwhile, the function is called again
        with the newer one. So no change of either is lost. Metadata and expiry stay;
        `refresh_on_read` counts the call as a read.

        There is no `request_id`. For a call that may be repeated, let the function look
        whether the document has its change already.

        Args:
            change: Gets the document, or None, and returns the new value as in `put`.
                Another effect of it may happen more than once. If it raises an error,
                nothing is stored.

        Returns:
            The document without its value.

        Raises:
            QuotaExceeded: The document would exceed a quota of `document_bytes`.
            TooMuchContention: Other writers were faster until the deadline.
            Unsupported: The store of tier `mid` cannot store groups of changes.
        """
        where, name = scope_of(scope).text, check_key(key)
        if not callable(change):
            raise InvalidInput(
                "change", f"must be a function of the document, not {type(change).__name__}. See `put`"
            )

        async def make(found: Document | None) -> PutRequest:
            asked = await _put_request(DocumentPut(where, name, change(found)))
            if found is not None:
                asked = dataclasses.replace(
                    asked, metadata=found.metadata, lifetime=found.lifetime, expires_at=found.expires_at
                )
            return self._sign(asked)

        return await self._access.engine.documents.edit(self._access.tenant, where, name, make)

    def _sign(self, put: PutRequest) -> PutRequest:
        """Return the put with the origin of this view in its metadata."""
        return dataclasses.replace(put, metadata=self._access.sign_metadata(put.metadata))

    async def _once(
        self,
        request: Request | None,
        asked: Sequence[ChangeRequest],
        change: Callable[[RequestMark | None], Awaitable[list[DocumentInfo | None]]],
    ) -> list[DocumentInfo | None]:
        """Make changes; a repeat of the request returns what the first call stored."""

        async def read(noted: Any) -> list[DocumentInfo | None]:
            return [
                None if said is None else _info_from(one, said)
                for one, said in zip(asked, noted["stored"], strict=True)
            ]

        def note(made: Sequence[DocumentInfo | None]) -> dict[str, Any]:
            return {
                "stored": [
                    None if info is None else _note_of(one, info)
                    for one, info in zip(asked, made, strict=True)
                ]
            }

        return await self._access.once(request, change, note, read)

    async def get(self, scope: Scope | str, key: str) -> Document | None:
        """Return the document under a key; None if there is none.

        Raises:
            CorruptRecord: The stored document cannot be read.
        """
        (found,) = await self._get(scope_of(scope), [check_key(key)])
        return found

    async def get_many(self, scope: Scope | str, keys: Sequence[str]) -> list[Document | None]:
        """Return the documents under up to 1,000 keys, in the order of the keys.

        The result has None in the place of a key without a document.

        Raises:
            CorruptRecord: A stored document cannot be read.
        """
        asked = [
            check_key(key, f"keys[{number}]")
            for number, key in enumerate(validation.sequence("keys", keys, at_most=MAX_KEYS))
        ]
        where = scope_of(scope)
        return await self._get(where, asked) if asked else []

    async def _get(self, scope: Scope, keys: list[str]) -> list[Document | None]:
        return await self._access.engine.documents.get(self._access.tenant, scope.text, keys)

    async def delete(
        self,
        scope: Scope | str,
        key: str,
        *,
        expected_version: ExpectedVersion | None = None,
        request_id: str | None = None,
    ) -> bool:
        """Delete the document under a key.

        Args:
            expected_version: Delete the document only if this is still its `version`.
            request_id: As in `Memory.write`. A repeat spares a document that was put
                since.

        Returns:
            True if this call deleted it; False if there was none.

        Raises:
            LegalHoldActive: The document is under legal hold.
            VersionConflict: It has another version than expected, or does not exist.
        """
        asked = _delete_request(DocumentDelete(scope, key, expected_version))
        documents, tenant = self._access.engine.documents, self._access.tenant
        request = await _request_of("delete", tenant, request_id, [asked])
        return await self._access.once(
            request, lambda mark: documents.delete(tenant, asked, mark), noted_flag, read_flag
        )

    async def delete_many(
        self,
        scope: Scope | str,
        *,
        prefix: str = "",
        start: str | None = None,
        stop: str | None = None,
        filter: FilterInput | None = None,  # noqa: A002 - the usual word for it
        request_id: str | None = None,
    ) -> int:
        """Delete the documents of a scope that exist now.

        Args:
            prefix: Only keys that begin with this text.
            start: Only keys that are not below this one.
            stop: Only keys below this one.
            filter: Only documents that pass this filter when they are deleted; as in
                `list`. It may not be empty.
            request_id: As in `Memory.write`. A repeat spares what was put after the
                request began. If the first call was cut off, it returns the number of
                documents that it deletes itself.

        Returns:
            The number of deleted documents.

        Raises:
            InvalidInput: The filter is empty, or wrong.
            LegalHoldActive: The scope is under legal hold.
        """
        where, keys, passing = scope_of(scope), _key_range(prefix, start, stop), _filter_of(filter)
        if filter is not None and passing is None:
            raise InvalidInput(
                "filter", "is empty, and would delete everything. Name a condition, or leave it out for that"
            )
        documents, tenant = self._access.engine.documents, self._access.tenant
        asked = {
            "scope": where.text,
            "keys": [keys.prefix, keys.start, keys.stop],
            "filter": None if passing is None else str(passing),
        }
        request = request_of("documents.delete_many", request_id, asked, [partition_mark(tenant, where.text)])

        async def delete(mark: RequestMark | None) -> int:
            return await documents.delete_many(tenant, where, keys, passing, mark)

        return await self._access.once(request, delete, noted_number, read_number)

    async def apply(
        self, changes: Sequence[DocumentChange], *, atomic: bool = True, request_id: str | None = None
    ) -> list[DocumentInfo | None]:
        """Make several changes: all of them, or none.

            await memory.documents.apply([
                DocumentPut("user:ada", "step:2", state),
                DocumentPut("user:ada", "latest", "step:2", expected_version=seen),
                DocumentDelete("user:ada", "step:1"),
            ])

        Args:
            changes: Up to 100 changes of documents with different keys in one scope.
            atomic: With False the changes may be of several scopes. They are made one
                after the other. An error ends the call, and the changes before it stay.
            request_id: As in `Memory.write`. A repeat changes nothing, and returns what
                the first call returned.

        Returns:
            For each change the stored document without its value; None for a deletion.

        Raises:
            Conflict: A document exists, and the `if_exists` of its put is `"error"`. Or
                `request_id` was used for another request.
            LegalHoldActive: A document to delete is under legal hold.
            QuotaExceeded: The documents would exceed a quota of `document_bytes`.
            Unsupported: The store of tier `mid` cannot store groups of changes.
            VersionConflict: A document has another version than expected.
        """
        asked = [
            self._sign(one) if isinstance(one, PutRequest) else one for one in await _change_requests(changes)
        ]
        for one in asked:
            self._access.scope_in_view(one.scope)
        documents, tenant = self._access.engine.documents, self._access.tenant
        together = flag("atomic", atomic)
        if together and len({one.scope for one in asked}) > 1:
            raise InvalidInput(
                "changes",
                "are of several scopes, and a group is kept whole in one scope only. Make one call for"
                " each scope, or pass atomic=False",
            )
        request = await _request_of("apply" if together else "apply apart", tenant, request_id, asked)

        async def apply(mark: RequestMark | None) -> list[DocumentInfo | None]:
            if together:
                return await documents.apply(tenant, asked, mark)
            made: list[DocumentInfo | None] = []
            for number, one in enumerate(asked):
                part = None if mark is None else mark.part(number)
                if isinstance(one, PutRequest):
                    try:
                        made.append(await documents.put(tenant, one, part))
                    except QuotaExceeded as full:
                        stored = {n: info for n, info in enumerate(made) if info is not None}
                        raise full.with_written(stored) from None
                else:
                    await documents.delete(tenant, one, part)
                    made.append(None)
            return made

        return await self._once(request, asked, apply)

    async def find(
        self,
        scope: Scope | Subtree | str,
        key: str,
        *,
        values: bool = False,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> DocumentPage:
        """Find the documents with one key in all scopes of a subtree.

        They come in no particular order. Each item is a `DocumentInfo`; with `values`
        it is a `Document`.

        Args:
            scope: A subtree such as `Scope.path("threads").subtree()`, or its text.
            values: Read the values and the metadata too; see `list`.
            limit: At most this many documents: 1 to 1,000, and 100 by default.
            cursor: The `cursor` that the previous page returned.
        """
        return await self._page(scope, KeyRange(only=check_key(key)), limit, cursor, values=values)

    async def list(
        self,
        scope: Scope | Subtree | str,
        *,
        prefix: str = "",
        start: str | None = None,
        stop: str | None = None,
        order: DocumentOrder = "key",
        reverse: bool = False,
        filter: FilterInput | None = None,  # noqa: A002 - the usual word for it
        values: bool = False,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> DocumentPage:
        """List the documents of a scope or a subtree in the order of their keys.

        Keys are compared by code point; with `order="updated"`, the document that was
        put least recently comes first. Each item is a `DocumentInfo`; with `values` it
        is a `Document`.

        Args:
            scope: A scope, a subtree such as `Scope.path("threads").subtree()`, or the
                text of one.
            prefix: Only keys that begin with this text.
            start: Only keys that are not below this one.
            stop: Only keys below this one.
            order: `"updated"` orders by `updated_at`, and equal ones by an inner id. A
                document that is put between two pages is listed once more, or not at
                all.
            reverse: Begin at the highest key, or at the document that was put last.
                `start` and `stop` keep their meaning.
            filter: Only documents that pass this `Filter`, or its dict, such as
                `{"value.step": {"$gt": 3}}`. It compares `metadata`, `value`, `key`,
                `created_at`, `updated_at` and `expires_at`. A page may then end early:
                it has fewer documents, a cursor and a note in `degraded`.
            values: Read the values and the metadata too. A page then ends early once
                its values have 8 MiB.
            limit: At most this many documents: 1 to 1,000, and 100 by default.
            cursor: The `cursor` that the previous page returned.
        """
        keys = _key_range(prefix, start, stop)
        return await self._page(
            scope,
            keys,
            limit,
            cursor,
            values=values,
            order=order,
            reverse=reverse,
            passing=_filter_of(filter),
        )

    async def iterate(
        self,
        scope: Scope | Subtree | str,
        *,
        prefix: str = "",
        start: str | None = None,
        stop: str | None = None,
        order: DocumentOrder = "key",
        reverse: bool = False,
        filter: FilterInput | None = None,  # noqa: A002 - the usual word for it
        values: bool = False,
        at_first: int | None = None,
        skip_damaged: bool = True,
    ) -> AsyncIterator[DocumentInfo]:
        """Iterate over documents of a scope or a subtree, in the order of `list`.

        It reads page after page, as `list` does, and leaves out documents that cannot
        be read. `list` counts those.

        Args:
            scope: As in `list`.
            prefix: Only keys that begin with this text.
            start: Only keys that are not below this one.
            stop: Only keys below this one.
            order: As in `list`.
            reverse: As in `list`.
            filter: Only documents that pass it; as in `list`.
            values: Yield each `Document` with its value and metadata.
            at_first: Read this many at first, 100 by default, then more with each page.
                A small number suits a caller who stops early.
            skip_damaged: With False, a document that cannot be read is an error, which
                comes before the other documents of its page.

        Raises:
            CorruptRecord: A document cannot be read, and `skip_damaged` is False.
        """
        keys, passing, cursor = _key_range(prefix, start, stop), _filter_of(filter), None
        size, skips = LIST_LIMIT, flag("skip_damaged", skip_damaged)
        if at_first is not None and (size := validation.whole("at_first", at_first, least=1)) > MAX_KEYS:
            raise InvalidInput("at_first", f"must be 1..{MAX_KEYS:,}, not {size:,}")
        while True:
            page = await self._page(
                scope,
                keys,
                size,
                cursor,
                values=values,
                order=order,
                reverse=reverse,
                passing=passing,
                strict=not skips,
            )
            for document in page.documents:
                yield document
            if (cursor := page.cursor) is None:
                return
            size = min(MAX_KEYS, PAGE_GROWTH * size)

    async def _page(
        self,
        scope: object,
        keys: KeyRange,
        limit: int | None,
        cursor: str | None,
        *,
        values: bool,
        order: DocumentOrder = "key",
        reverse: bool = False,
        passing: Filter | None = None,
        strict: bool = False,
    ) -> DocumentPage:
        most, listed = validation.whole_limit(limit, default=LIST_LIMIT), scope_or_subtree(scope)
        along, is_reverse = validation.one_of("order", order, DOCUMENT_ORDERS), flag("reverse", reverse)
        # a cursor continues behind a key, so it fits other filters and ranges of keys
        seal = CursorSeal("documents", self._access.tenant, listed.text, keys.only, along, is_reverse)
        place = seal.unseal(cursor)
        page = await self._access.engine.documents.page(
            self._access.tenant,
            listed,
            keys,
            limit=most,
            reverse=is_reverse,
            order=along,
            cursor=place,
            values=flag("values", values),
            passing=passing,
            strict=strict,
        )
        return dataclasses.replace(page, cursor=seal.seal(page.cursor))


async def _request_of(
    operation: str, tenant: str, request_id: object, changes: Sequence[ChangeRequest]
) -> Request | None:
    """Return the request of a call that changes documents.

    The values are part of it. A long one is hashed in a thread.
    """
    if check_request_id(request_id) is None:
        return None
    said: list[dict[str, Any]] = []
    for one in changes:
        if isinstance(one, PutRequest):
            fields = {each.name: getattr(one, each.name) for each in dataclasses.fields(one)}
            is_long = one.value.size > CHECKED_AT_ONCE
            digest = await asyncio.to_thread(_digest, one.value) if is_long else _digest(one.value)
            said.append({**fields, "value": [one.value.form, digest]})
        else:
            said.append({"scope": one.scope, "key": one.key, "expected": one.expected, "delete": True})
    about = {partition_mark(tenant, one.scope) for one in changes}
    return request_of(f"documents.{operation}", request_id, {"changes": said}, about)


def _digest(value: CheckedValue) -> str:
    """Return the SHA-256 of a value. The order of keys in JSON does not matter."""
    data = value.value
    if not isinstance(data, bytes):
        data = json.dumps(data, sort_keys=True).encode()
    return hashlib.sha256(data).hexdigest()


def _note_of(asked: ChangeRequest, info: DocumentInfo) -> dict[str, Any]:
    """Return what is noted about a stored document; the put tells the rest."""
    assert isinstance(asked, PutRequest)  # noqa: S101 - nothing is noted of a deletion
    noted: dict[str, Any] = {
        "version": info.version,
        "moments": [micros_or_none(at) for at in (info.created_at, info.updated_at, info.expires_at)],
    }
    if (info.form, info.size, info.lifetime) != (asked.value.form, asked.value.size, asked.lifetime):
        lifetime = None if info.lifetime is None else info.lifetime // timedelta(microseconds=1)
        noted["kept"] = [info.form, info.size, lifetime]
    return noted


def _info_from(asked: ChangeRequest, noted: Mapping[str, Any]) -> DocumentInfo:
    """Return the document that a put stored or kept; see `_note_of`."""
    assert isinstance(asked, PutRequest)  # noqa: S101 - nothing is noted of a deletion
    created, updated, expires = noted["moments"]
    form, size, lifetime = asked.value.form, asked.value.size, asked.lifetime
    if kept := noted.get("kept"):
        form, size, length_of_life = kept
        lifetime = None if length_of_life is None else timedelta(microseconds=length_of_life)
    return DocumentInfo(
        asked.scope,
        asked.key,
        noted["version"],
        form,
        size,
        moment(created),
        moment(updated),
        moment_or_none(expires),
        lifetime,
    )


async def _change_requests(
    changes: object,
    field: str = "changes",
    at_most: int = MAX_GROUP,
    kinds: tuple[type[DocumentChange], ...] = (DocumentPut, DocumentDelete),
) -> list[ChangeRequest]:
    """Check changes of different documents. `kinds` are those that the call takes."""
    asked: list[ChangeRequest] = []
    for number, change in enumerate(validation.sequence(field, changes, at_most=at_most)):
        with validation.item(field, number):
            if not isinstance(change, kinds):
                wanted = " or ".join(kind.__name__ for kind in kinds)
                raise InvalidInput("", f"must be a {wanted}, not {type(change).__name__}")
            if isinstance(change, DocumentPut):
                asked.append(await _put_request(change))
            else:
                asked.append(_delete_request(change))
    seen: set[tuple[str, str]] = set()
    for one in asked:
        if (one.scope, one.key) in seen:
            raise InvalidInput(field, f"name the key {one.key!r} twice. Name each document once per call")
        seen.add((one.scope, one.key))
    return asked


async def _put_request(put: DocumentPut) -> PutRequest:
    expected = check_expectation(put.expected_version, put.if_exists)
    lifetime = None if put.expires_in is None else length("expires_in", put.expires_in)
    if flag("refresh_on_read", put.refresh_on_read) and lifetime is None:
        raise InvalidInput("refresh_on_read", "needs expires_in, the length of time that reads restart")
    scope, key = scope_of(put.scope).text, check_key(put.key)
    try:
        value = check_value(put.value, at_once=CHECKED_AT_ONCE)
    except LongValue:
        value = await asyncio.to_thread(check_value, put.value)
    return PutRequest(
        scope,
        key,
        value,
        {} if put.metadata is None else _metadata(put.metadata),
        lifetime,
        lifetime if put.refresh_on_read else None,
        expected,
        put.if_exists == "error",
        keeps=put.if_exists == "keep",
    )


def _metadata(given: Mapping[str, Any]) -> dict[str, Any]:
    return validation.json_object("metadata", given)


def _delete_request(change: DocumentDelete) -> DeleteRequest:
    return DeleteRequest(
        scope_of(change.scope).text, check_key(change.key), check_expected(change.expected_version)
    )


def _filter_of(given: FilterInput | None) -> Filter | None:
    """Return a checked filter of documents; None if none is given, or an empty one."""
    parsed = None if given is None else parse_filter(given, kind="document")
    return None if parsed is None or is_empty(parsed) else parsed


def _key_range(prefix: object, start: object, stop: object) -> KeyRange:
    return KeyRange(
        validation.text("prefix", prefix, max_bytes=validation.MAX_ID_BYTES),
        None if start is None else validation.text("start", start, max_bytes=validation.MAX_ID_BYTES),
        None if stop is None else validation.text("stop", stop, max_bytes=validation.MAX_ID_BYTES),
    )
