"""Children whose parent is gone.

A deletion deletes the children of a record. A child in another scope outlives an
erasure until a sweep reaches it.
"""

from __future__ import annotations

from collections.abc import Sequence

from memory.orchestrator.erasure.erasure import Erasure
from memory.orchestrator.storage.kinds import Kind
from memory.orchestrator.storage.lease import LeaseCheck
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.rounds import Round
from memory.ports.collections import Collection
from memory.ports.query import Everywhere, Head, Query
from memory.ports.record import Key, Record


class OrphanCollector:
    """Finds and deletes orphans."""

    def __init__(self, placement: Placement, erasure: Erasure) -> None:
        self._placement = placement
        self._erasure = erasure
        self._rounds = {child: Round(placement) for kind in placement.kinds for child in kind.named_by}

    async def drop(self, hold: LeaseCheck) -> int:
        """Delete the orphans in a slice of the children of every tenant.

        Continue with further slices while orphans are found. A child whose parent may
        be in a store that does not answer is kept.

        Returns:
            The number of deleted children.
        """
        dropped = 0
        for kind in self._placement.kinds:
            for child, fields in kind.named_by.items():
                while found := await self._drop(kind, child, fields, hold):
                    dropped += found
        return dropped

    async def _drop(self, kind: Kind, child: Collection, fields: Sequence[str], hold: LeaseCheck) -> int:
        archive, dropped = self._placement.topology.archive, 0
        query = Query(child, Everywhere(), limit=self._placement.settings.page, select=frozenset(fields))
        async for page in self._rounds[child].slice("relation.sweep", archive, query):
            named = {head.key: parents_of(head, fields) for head in page.heads}
            there = await existing_keys(
                self._placement, kind.collection, set[Key]().union(*named.values()), partial=True
            )
            for head in page.heads:
                if not named[head.key] <= there:
                    await hold()
                    dropped += await self._erasure.delete(child, head.key, at=head.version, held="deleted")
        return dropped


def parents_of(child: Record | Head, fields: Sequence[str]) -> set[Key]:
    """Return the keys of the records to which a child refers."""
    return {
        Key(child.key.tenant, str(child.fields[field]))
        for field in fields
        if child.fields.get(field) is not None
    }


async def existing_keys(
    placement: Placement, collection: Collection, keys: set[Key], *, partial: bool = False
) -> set[Key]:
    """Return the keys that still exist, also those of unreadable records.

    With `partial`, keys that no store can decide now are included.
    """
    located = await placement.locate_many(collection, sorted(keys), partial=partial)
    return {
        at.key for at in located if at.record is not None or at.corrupt is not None or at.unknown is not None
    }
