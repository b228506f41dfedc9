"""Before an entry is written: what is near it, and what somebody decides about that.

It is looked for among active entries of its scope and type that are older than it. Only
what was shown gives way, and only at the version that was shown. Nobody's failure keeps
the entry from being written: then all of them stand, and `Checked.note` says why.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from memory.domain import door
from memory.domain.checked import Action, Checked, Resolution
from memory.domain.entry import Entry, EntryDraft
from memory.domain.errors import InvalidInput
from memory.domain.provenance import all_in
from memory.orchestrator.collections import ENTRIES, MODEL
from memory.orchestrator.deliveries import Consistency
from memory.orchestrator.entries import Entries
from memory.orchestrator.entry_records import entry_of, meaning_of
from memory.orchestrator.meaning import Embeddings
from memory.orchestrator.placement import Located, Placement
from memory.orchestrator.retrieval.searching import Searching
from memory.orchestrator.superseding import Superseded, Superseding
from memory.policies.asked import EntryQuery
from memory.policies.nearness import LOOKED_AT, SHOWN, content_words, in_common, near
from memory.ports.nearness import exact_cosines
from memory.ports.record import Key, Owed, Record

log = logging.getLogger(__name__)

Decide: TypeAlias = Callable[[EntryDraft, list[Entry]], Resolution | Action | Awaitable[Resolution | Action]]
"""As a caller gives it: gets what is to be written and copies of what is near it, the
nearest first; may be async, else it runs in a thread.
"""

Decider: TypeAlias = Callable[[EntryDraft, list[Entry]], Awaitable[object]]
"""Somebody who decides; what comes back may be anything."""

NOBODY = "nobody decided: all of them stand"


@dataclass(frozen=True, slots=True)
class _Decided:
    """What is to be done about what was shown."""

    draft: EntryDraft
    verdict: Resolution
    ids: Sequence[str] = ()
    note: str | None = None


class Checking:
    """Writes entries behind a look at what is near them."""

    def __init__(
        self,
        placement: Placement,
        *,
        entries: Entries,
        superseding: Superseding,
        searching: Searching,
        meaning: Embeddings,
    ) -> None:
        self._placement = placement
        self._entries = entries
        self._superseding = superseding
        self._searching = searching
        self._meaning = meaning

    async def write(
        self,
        tenant: str,
        draft: EntryDraft,
        decide: Decider | None,
        *,
        revive: bool = False,
        consistency: Consistency | None = None,
        steps: Sequence[Owed] = (),
    ) -> tuple[Entry, Checked]:
        """Write an entry as is decided about what is near it. A repeat under a key is
        answered the first result, and nothing is looked for.
        """
        self._entries.births.refuse_future([draft])
        new = self._entries.births.newborn(tenant, draft).record
        there = Located(new.key) if draft.key is None else await self._placement.locate(ENTRIES, new.key)
        if there.record is not None or (there.tombstone is not None and not revive):
            return await self._entries.write(tenant, draft, consistency=consistency), Checked()
        [draft] = await self._entries.trust.let_in(tenant, [draft], changing=decide is not None)
        shown, lacking = await self._near(tenant, draft, self._entries.births.newborn(tenant, draft).record)
        decided = await self._decided(draft, shown, decide)
        superseded = Superseded(decided.ids, draft.scope, {one.id: one.version for one in shown})
        entry, gave_way = await self._superseding.write(
            tenant,
            decided.draft,
            superseded,
            asked=draft,
            revive=revive,
            consistency=consistency,
            steps=steps,
        )
        stands = [one for one in decided.ids if one not in gave_way]
        note = (
            f"changed since it was shown, and stands: {', '.join(stands)}"
            if stands
            else decided.note or lacking
        )
        action = "keep" if decided.verdict.action == "supersede" and not gave_way else decided.verdict.action
        return entry, Checked(tuple(shown), action, tuple(gave_way), note)

    async def _near(self, tenant: str, draft: EntryDraft, new: Record) -> tuple[list[Entry], str | None]:
        """What may say the same as the new entry or contradict it, the nearest first,
        and why there may be more.
        """
        text = meaning_of(new)
        said = content_words(text)
        found = await self._searching.search(
            EntryQuery(tenant, (draft.scope,), types=(draft.type.value,), limit=LOOKED_AT), text
        )
        common = {hit.entry.id: in_common(said, content_words(_said(hit.entry))) for hit in found}
        keys = [Key(tenant, entry_id) for entry_id, part in common.items() if near(part, None)]
        lacking = f"there may be more near it: {'; '.join(found.degraded)}" if found.degraded else None
        if not keys:
            return [], lacking
        homes = [
            at.record
            for at in await self._placement.locate_many(ENTRIES, keys, partial=True)
            if at.record is not None
        ]
        vector = (await self._meaning.of_texts([text]))[0]
        own = [one.vector if self._meaning.is_own(one.fields.get(MODEL)) else None for one in homes]
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

    async def _decided(self, draft: EntryDraft, shown: Sequence[Entry], decide: Decider | None) -> _Decided:
        if not shown:
            return _Decided(draft, Resolution())
        if decide is None:
            return _Decided(draft, Resolution(), note=NOBODY)
        try:
            async with asyncio.timeout(self._placement.settings.advice.total_seconds()):
                said = await decide(draft, [one.model_copy(deep=True) for one in shown])
        except Exception as error:  # noqa: BLE001 - it is somebody else's, and no write fails for it
            why = "it was late" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
            log.warning("nobody decided about what is near an entry: %s", why)
            return _Decided(draft, Resolution(), note=f"the decision failed ({why}): all of them stand")
        try:
            return _understood(draft, {one.id: one for one in shown}, said)
        except (InvalidInput, TypeError) as error:
            log.warning("what was decided about what is near an entry cannot be done: %s", error)
            return _Decided(
                draft, Resolution(), note=f"the decision cannot be done ({error}): all of them stand"
            )


def _understood(draft: EntryDraft, shown: Mapping[str, Entry], said: object) -> _Decided:
    """What was decided. Raises `InvalidInput` for what cannot be done."""
    verdict: Any = Resolution(said) if isinstance(said, str) else said  # type: ignore[arg-type]
    if not isinstance(verdict, Resolution) or verdict.action not in ("keep", "supersede", "merge"):
        raise InvalidInput("decide", "must answer a Resolution, 'keep' or 'supersede'")
    if verdict.action == "keep":
        return _Decided(draft, verdict)
    ids = list(shown) if verdict.ids is None else list(dict.fromkeys(door.sequence("ids", verdict.ids)))
    if not ids or not set(ids) <= shown.keys():
        raise InvalidInput("decide", "named entries that were not shown" if ids else "named no entry")
    if verdict.action == "supersede":
        return _Decided(draft, verdict, ids)
    if verdict.content is None:
        raise InvalidInput("decide", "merged them into nothing: say the content")
    merged = [origin for one in ids for origin in all_in(vars(shown[one]))]
    return _Decided(
        type(draft)(**{**dict(draft), "content": verdict.content, "origins": [*draft.origins, *merged]}),
        verdict,
        ids,
    )


def _said(entry: Entry) -> str:
    return "\n".join(part for part in (entry.title, entry.content) if part)


def _cosines(vector: bytes | None, others: Sequence[bytes | None]) -> list[float]:
    return [0.0] * len(others) if vector is None else exact_cosines(vector, others)
