"""Looks up the scopes of entries, expired and retired ones included."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from memory.domain.errors import CorruptRecord, NotFound
from memory.domain.ids import is_id
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.storage.placement import Placement
from memory.ports.record import Key


class EntryScopes:
    """Tells in which scope an entry is."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement

    async def of_entry(self, tenant: str, entry_id: str) -> str:
        """Return the scope of an entry.

        Raises:
            NotFound: There is no such entry.
        """
        located = await self._placement.locate(ENTRIES, Key(tenant, entry_id)) if is_id(entry_id) else None
        if located is None or located.record is None:
            raise NotFound(entry_id)
        return located.record.scope

    async def of_entries(self, tenant: str, entry_ids: Collection[str]) -> dict[str, str]:
        """Return the scope of each entry.

        Every store is asked, whether there are such entries or not, so that the time of
        the call does not tell. Entries that cannot be read are left out.
        """
        keys = [Key(tenant, one) for one in entry_ids if is_id(one)]
        nobody = Key(tenant, self._placement.new_id(tenant, "nobody"))
        try:
            located = await self._placement.locate_many(ENTRIES, [*keys, nobody])
        except CorruptRecord:
            located = []
            for key in keys:
                with suppress(CorruptRecord):
                    located += await self._placement.locate_many(ENTRIES, [key, nobody])
        return {at.record.key.id: at.record.scope for at in located if at.record is not None}
