"""Finds the conflicts of an entry before it is written, and lets a caller resolve them.

Conflicts are older active entries of the same scope and type with nearly the same
content. Only entries that the resolver was shown are retired, at the version it was
shown. If the resolver fails, the entry is written all the same, every other entry stays
active, and `ConflictReport.note` says why.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from memory.domain import validation
from memory.domain.conflicts import Action, ConflictReport, Resolution
from memory.domain.entry import Entry, EntryDraft, with_changes
from memory.domain.errors import InvalidInput, error_text
from memory.domain.provenance import all_in
from memory.domain.versions import stored_version
from memory.orchestrator.embeddings.embeddings import Embeddings
from memory.orchestrator.enrichment.superseding import SupersedeRequest, SupersedeWriter
from memory.orchestrator.entries.entries import Entries
from memory.orchestrator.entries.writing import was_expired
from memory.orchestrator.retrieval.search import EntrySearch
from memory.orchestrator.storage.collections import ENTRIES, MODEL
from memory.orchestrator.storage.deliveries import Consistency
from memory.orchestrator.storage.entry_records import entry_of, said_by
from memory.orchestrator.storage.placement import LocatedRecord, Placement
from memory.orchestrator.storage.requests import RequestMark
from memory.policies.entry_query import EntryQuery, where_of
from memory.policies.near_duplicates import LOOKED_AT, SHOWN, content_words, in_common, near
from memory.ports.record import Key, PendingStep, Record
from memory.ports.vector_scan import exact_cosines

log = logging.getLogger(__name__)

Resolver: TypeAlias = Callable[
    [EntryDraft, list[Entry]], Resolution | Action | Awaitable[Resolution | Action]
]
"""The function that callers pass as `resolve`. It gets the draft and copies of the
conflicting entries, the nearest first. It may be async; otherwise it runs in a thread.
"""

AsyncResolver: TypeAlias = Callable[[EntryDraft, list[Entry]], Awaitable[object]]
"""A resolver as the detector calls it; its answer is checked afterwards."""

UNRESOLVED = "no `resolve` was given, so all of them stay active"


@dataclass(frozen=True, slots=True)
class _CheckedResolution:
    """The resolution of the conflicts, checked."""

    draft: EntryDraft
    resolution: Resolution
    ids: Sequence[str] = ()
    note: str | None = None


class ConflictDetector:
    """Writes entries after a search for conflicts with them."""

    def __init__(
        self,
        placement: Placement,
        *,
        entries: Entries,
        supersede_writer: SupersedeWriter,
        entry_search: EntrySearch,
        embeddings: Embeddings,
    ) -> None:
        self._placement = placement
        self._entries = entries
        self._supersede_writer = supersede_writer
        self._entry_search = entry_search
        self._embeddings = embeddings

    async def write(
        self,
        tenant: str,
        draft: EntryDraft,
        resolve: AsyncResolver | None,
        *,
        revive: bool = False,
        consistency: Consistency | None = None,
        steps: Sequence[PendingStep] = (),
        replays: set[str] | None = None,
        request: RequestMark | None = None,
    ) -> tuple[Entry, ConflictReport]:
        """Write an entry, and carry out the resolution of its conflicts.

        A repeated write under a key, or of a request, returns the first result without
        looking for conflicts.
        """
        self._entries.writer.refuse_future([draft])
        one = self._entries.writer.pending(tenant, draft, request=request)
        new, is_new = one.record, not one.is_repeatable
        there = LocatedRecord(new.key) if is_new else await self._placement.locate(ENTRIES, new.key)
        there = await self._entries.writer.delete_expired(one, there)
        is_free = there.tombstone is None or revive or was_expired(there)
        if there.record is not None or not is_free:
            entry = await self._entries.write(
                tenant, draft, consistency=consistency, replays=replays, request=request
            )
            return entry, ConflictReport()
        [draft] = await self._entries.trust.let_in(tenant, [draft], changing=resolve is not None)
        shown, lacking = await self._near(tenant, draft, self._entries.writer.pending(tenant, draft).record)
        decided = await self._resolve(draft, shown, resolve)
        superseded = SupersedeRequest(
            decided.ids,
            where_of(tenant, [draft.scope]),
            {one.id: stored_version(one.version) for one in shown},
        )
        entry, gave_way = await self._supersede_writer.write(
            tenant,
            decided.draft,
            superseded,
            asked=draft,
            revive=revive,
            consistency=consistency,
            steps=steps,
            replays=replays,
            request=request,
        )
        stands = [one for one in decided.ids if one not in gave_way]
        note = (
            f"changed since it was shown, so it stays active: {', '.join(stands)}"
            if stands
            else decided.note or lacking
        )
        action = (
            "keep" if decided.resolution.action == "supersede" and not gave_way else decided.resolution.action
        )
        return entry, ConflictReport(tuple(shown), action, tuple(gave_way), note)

    async def _near(self, tenant: str, draft: EntryDraft, new: Record) -> tuple[list[Entry], str | None]:
        """Return the entries with nearly the same content, the nearest first.

        The second result says why there may be more.
        """
        text = "\n".join(said_by(new))
        said = content_words(text)
        found = await self._entry_search.search(
            EntryQuery(tenant, (draft.scope,), types=(draft.type.value,), limit=LOOKED_AT), text
        )
        common = {hit.entry.id: in_common(said, content_words(_text_of(hit.entry))) for hit in found}
        keys = [Key(tenant, entry_id) for entry_id, part in common.items() if near(part, None)]
        lacking = (
            f"there may be more similar entries: {'; '.join(found.degraded)}" if found.degraded else None
        )
        if not keys:
            return [], lacking
        homes = [
            at.record
            for at in await self._placement.locate_many(ENTRIES, keys, partial=True)
            if at.record is not None
        ]
        vector = (await self._embeddings.of_texts([text]))[0]
        own = [one.vector if self._embeddings.is_own(one.fields.get(MODEL)) else None for one in homes]
        cosines = [
            None if vector is None or one is None else cosine
            for one, cosine in zip(own, _cosines(vector, own), strict=True)
        ]
        ranked = [
            (common[one.key.id] + (cosine or 0.0), one)
            for one, cosine in zip(homes, cosines, strict=True)
            if near(common[one.key.id], cosine) and one.created_at < new.created_at
        ]
        ranked.sort(key=lambda pair: (-pair[0], pair[1].key.id))
        return [entry_of(one) for _, one in ranked[:SHOWN]], lacking

    async def _resolve(
        self, draft: EntryDraft, shown: Sequence[Entry], resolve: AsyncResolver | None
    ) -> _CheckedResolution:
        if not shown:
            return _CheckedResolution(draft, Resolution())
        if resolve is None:
            return _CheckedResolution(draft, Resolution(), note=UNRESOLVED)
        try:
            async with asyncio.timeout(self._placement.settings.advice.total_seconds()):
                said = await resolve(draft, [one.model_copy(deep=True) for one in shown])
        except Exception as error:  # noqa: BLE001 - the code is foreign, and no write fails for it
            why = "it took too long" if isinstance(error, TimeoutError) else error_text(error)
            log.warning("the resolve function of a write failed: %s", why)
            return _CheckedResolution(
                draft, Resolution(), note=f"`resolve` failed ({why}): all of them stay active"
            )
        try:
            return _check_resolution(draft, {one.id: one for one in shown}, said)
        except (InvalidInput, TypeError) as error:
            log.warning("the answer of the resolve function of a write was refused: %s", error)
            return _CheckedResolution(
                draft,
                Resolution(),
                note=f"the answer of `resolve` was refused ({error}): all of them stay active",
            )


def _check_resolution(draft: EntryDraft, shown: Mapping[str, Entry], said: object) -> _CheckedResolution:
    """Check the answer of a resolver.

    Raises:
        InvalidInput: The answer cannot be used.
    """
    resolution: Any = Resolution(said) if isinstance(said, str) else said  # type: ignore[arg-type]
    if not isinstance(resolution, Resolution) or resolution.action not in ("keep", "supersede", "merge"):
        raise InvalidInput("resolve", "must return a Resolution, 'keep' or 'supersede'")
    if resolution.action == "keep":
        return _CheckedResolution(draft, resolution)
    ids = (
        list(shown)
        if resolution.ids is None
        else list(dict.fromkeys(validation.sequence("ids", resolution.ids)))
    )
    if not ids or not set(ids) <= shown.keys():
        raise InvalidInput("resolve", "named entries that were not shown" if ids else "named no entry")
    if resolution.action == "supersede":
        return _CheckedResolution(draft, resolution, ids)
    if resolution.content is None:
        raise InvalidInput("resolve", "merged them without a text. Return Resolution('merge', content=…)")
    merged = [origin for one in ids for origin in all_in(vars(shown[one]))]
    return _CheckedResolution(
        with_changes(draft, {"content": resolution.content, "origins": [*draft.origins, *merged]}),
        resolution,
        ids,
    )


def _text_of(entry: Entry) -> str:
    return "\n".join(part for part in (entry.title, entry.content) if part)


def _cosines(vector: bytes | None, others: Sequence[bytes | None]) -> list[float]:
    return [0.0] * len(others) if vector is None else exact_cosines(vector, others)
