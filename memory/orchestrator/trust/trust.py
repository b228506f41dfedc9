"""Decides which entries may be written and shown, by gates and blocked sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memory.domain.entry import EntryDraft, ImportedDraft
from memory.domain.errors import RejectedByGate, StoreError
from memory.domain.provenance import all_in, named_in
from memory.orchestrator.storage.entry_records import apply_changes, entry_of
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.trust.blocked_sources import BlockedSources, visible
from memory.orchestrator.trust.gates import Draft, Gates
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.query_evaluation import condition
from memory.ports.record import Record

AT_A_TIME = 500
"""Drafts whose origins are collected before other tasks have a turn. Their texts are
not read.
"""


class Trust:
    """Checks entries before they are written and before they are shown."""

    def __init__(self, placement: Placement, gates: Gates) -> None:
        self._placement = placement
        self.gates = gates
        self.blocked_sources = BlockedSources(placement)

    # -- written -----------------------------------------------------------------------

    async def let_in(
        self, tenant: str, drafts: Sequence[Draft], *, derived: bool = False, changing: bool = False
    ) -> list[Draft]:
        """Return the drafts as they are to be written.

        Imported drafts, and drafts `derived` from entries, are not refused for a
        blocked source: they are written and hidden. `changing` means that the drafts
        end or change other entries. No draft from a blocked source may do that, even if
        it is hidden, because the other entries would be hidden too.

        Raises:
            RejectedByGate: For the first draft that the gate refuses, or that comes
                from a blocked source.
        """
        if not derived:
            written = [
                (position, draft)
                for position, draft in enumerate(drafts)
                if not isinstance(draft, ImportedDraft)
            ]
            named = {
                position: origins
                async for position, draft in iterate_cooperatively(written, AT_A_TIME)
                if (origins := _origins_of(draft))
            }
            await self._refuse(tenant, named, changing=changing)
        return await self.gates.let_in(drafts)

    def asks_of(self, changes: Mapping[str, Any]) -> bool:
        """Return whether changes of an entry must be checked by `let_change`.

        The changes must be checked if a write gate is configured, or if they name a
        source, an agent, a run or origins.
        """
        return self.gates.write is not None or bool(_writer(changes))

    async def let_change(self, tenant: str, record: Record, changes: dict[str, Any]) -> dict[str, Any]:
        """Return the changes of an entry as they are to be made. See `let_in`.

        The gate receives the changed entry, with the origin of the change.
        """
        await self._refuse(tenant, {0: _writer(changes)}, changing=True)
        if self.gates.write is None:
            return changes
        entry = entry_of(apply_changes(record, changes, version=self._placement.next_version(record.version)))
        said = {
            name: getattr(entry, name)
            for name in EntryDraft.model_fields
            if name not in ("key", "confidence", "vector")
        }  # the metadata has the confidence
        named = {name: changes.get(name) for name in ("source", "agent", "run")} | {
            "origins": tuple(changes.get("origins", ()))
        }
        named["vector"] = changes.get("vector")
        [more] = await self.gates.changes([EntryDraft.model_construct(**{**said, **named})])
        if more.keys() & {"title", "content"}:  # the vector belongs to another text
            changes = {name: value for name, value in changes.items() if name != "vector"}
        return {**changes, **more}

    async def may_end_others(self, tenant: str, record: Record) -> bool:
        """Return whether an entry may supersede others.

        An entry from a blocked source may not supersede others (see `let_in`).
        """
        return not await self.is_blocked(tenant, all_in(record.fields))

    async def is_blocked(self, tenant: str, origins: Sequence[str]) -> bool:
        """Return whether one of the origins of a writer is blocked."""
        try:
            await self.refuse_blocked(tenant, origins)
        except RejectedByGate:
            return True
        return False

    async def refuse_blocked(self, tenant: str, origins: Sequence[str]) -> None:
        """Raise `RejectedByGate` if one of the origins of a writer is blocked."""
        await self._refuse(tenant, {0: origins}, changing=True)

    async def _refuse(self, tenant: str, named: Mapping[int, Sequence[str]], *, changing: bool) -> None:
        """Raise `RejectedByGate` for the first position that has a blocked source."""
        if not any(named.values()):
            return
        try:
            known = await self.blocked_sources.load(tenant)
        except StoreError:
            return  # unknown: reads hide the entries of blocked sources from every writer
        now = self._placement.now()
        since = [one for one in known.blocked if one.since is None or one.since <= now]
        refusing = {one.origin for one in since if changing or one.later_writes == "refused"}
        for position, origins in named.items() if refusing else ():
            if said := [one for one in origins if one in refusing]:
                raise RejectedByGate(f"'{said[0]}' is a blocked source", position)

    # -- shown -------------------------------------------------------------------------

    async def visible(self, tenant: str, records: Sequence[Record]) -> list[Record]:
        """Return the records that may be shown; the caller read them by id.

        A record without origins is only checked by the recall gate.
        """
        records = await self.without_blocked(tenant, records)
        return [
            record
            for record, is_shown in zip(records, await self.readable_flags(records), strict=True)
            if is_shown
        ]

    async def without_blocked(self, tenant: str, records: Sequence[Record]) -> Sequence[Record]:
        """Return the records that no blocked source hides."""
        if any(all_in(record.fields) for record in records):
            trusted = condition(visible(await self.blocked_sources.load(tenant)))
            return [record for record in records if trusted(record)]
        return records

    async def readable_flags(self, records: Sequence[Record]) -> list[bool]:
        """Return which of the records the recall gate lets through."""
        if self.gates.recall is None:
            return [True] * len(records)
        return await self.gates.lets_out([entry_of(record) for record in records])


def _writer(changes: Mapping[str, Any]) -> list[str]:
    """Return the origins of the writer of these changes."""
    return [*named_in(changes), *changes.get("origins", ())]


def _origins_of(draft: EntryDraft) -> list[str]:
    """Return the origins of a draft."""
    return all_in({"source": draft.source, "agent": draft.agent, "run": draft.run, "origins": draft.origins})
