"""What may be written and what may be shown: by the gates of a memory, and by which
sources are blocked.
"""

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
"""Drafts that are looked at before others have a turn: what they come of, and nothing
of their texts.
"""


class Trust:
    """Asked by whoever writes entries, and by whoever shows them."""

    def __init__(self, placement: Placement, gates: Gates) -> None:
        self._placement = placement
        self.gates = gates
        self.blocked_sources = BlockedSources(placement)

    # -- written -----------------------------------------------------------------------

    async def let_in(
        self, tenant: str, drafts: Sequence[Draft], *, derived: bool = False, changing: bool = False
    ) -> list[Draft]:
        """The drafts as they are to be written. Raises `RejectedByGate` for the first that is
        not: by the gate, or because it comes from a blocked source.

        What is imported, and what is `derived` of entries, is not refused for that: it
        is kept back. `changing`: they end or change other entries, which nothing does
        from a blocked source does, kept back or not, for others would be hidden with it.
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
        """Whether anybody is to be asked of such changes."""
        return self.gates.write is not None or bool(_writer(changes))

    async def let_change(self, tenant: str, record: Record, changes: dict[str, Any]) -> dict[str, Any]:
        """The changes of an entry as they are to be made; see `let_in`. The gate sees
        the entry as it would be, and who changes it.
        """
        await self._refuse(tenant, {0: _writer(changes)}, changing=True)
        if self.gates.write is None:
            return changes
        entry = entry_of(apply_changes(record, changes, version=self._placement.next_version(record.version)))
        said = {
            name: getattr(entry, name)
            for name in EntryDraft.model_fields
            if name not in ("key", "confidence")
        }  # the metadata has it
        named = {name: changes.get(name) for name in ("source", "agent", "run")} | {
            "origins": tuple(changes.get("origins", ()))
        }
        [more] = await self.gates.changes([EntryDraft.model_construct(**{**said, **named})])
        return {**changes, **more}

    async def may_end_others(self, tenant: str, record: Record) -> bool:
        """Whether an entry may supersede others: no entry from a blocked source may
        (see `let_in`).
        """
        try:
            await self._refuse(tenant, {0: all_in(record.fields)}, changing=True)
        except RejectedByGate:
            return False
        return True

    async def _refuse(self, tenant: str, named: Mapping[int, Sequence[str]], *, changing: bool) -> None:
        """Raise `RejectedByGate` for the first position that has a blocked source."""
        if not any(named.values()):
            return
        try:
            known = await self.blocked_sources.load(tenant)
        except StoreError:
            return  # unknown: reads hide the entries of blocked sources, whoever wrote them
        now = self._placement.now()
        since = [one for one in known.blocked if one.since is None or one.since <= now]
        refusing = {one.origin for one in since if changing or one.later_writes == "refused"}
        for position, origins in named.items() if refusing else ():
            if said := [one for one in origins if one in refusing]:
                raise RejectedByGate(f"'{said[0]}' is a blocked source", position)

    # -- shown -------------------------------------------------------------------------

    async def visible(self, tenant: str, records: Sequence[Record]) -> list[Record]:
        """Those that may be shown of records that were read by their ids. What says
        nothing of where it comes from is asked of the gate alone.
        """
        if any(all_in(record.fields) for record in records):
            trusted = condition(visible(await self.blocked_sources.load(tenant)))
            records = [record for record in records if trusted(record)]
        return [
            record
            for record, is_shown in zip(records, await self.readable_flags(records), strict=True)
            if is_shown
        ]

    async def readable_flags(self, records: Sequence[Record]) -> list[bool]:
        """Which of the records the recall gate lets out."""
        if self.gates.recall is None:
            return [True] * len(records)
        return await self.gates.lets_out([entry_of(record) for record in records])


def _writer(changes: Mapping[str, Any]) -> list[str]:
    """The origins of who makes these changes."""
    return [*named_in(changes), *changes.get("origins", ())]


def _origins_of(draft: EntryDraft) -> list[str]:
    """What a draft comes of."""
    return all_in({"source": draft.source, "agent": draft.agent, "run": draft.run, "origins": draft.origins})
