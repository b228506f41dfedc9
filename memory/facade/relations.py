"""`memory.relations`: links between entries."""

from __future__ import annotations

from collections.abc import AsyncIterator

from memory.facade.access import Access
from memory.facade.arguments import id_of
from memory.orchestrator.relations import Relation


class Relations:
    """Labelled links between a tenant's entries. They go with the entries they link.

    await memory.relations.relate(newer.id, "supersedes", older.id)
    replaced = await memory.relations.related(source_id=newer.id, label="supersedes")
    """

    def __init__(self, access: Access) -> None:
        self._access = access

    async def relate(self, source_id: str, label: str, target_id: str) -> Relation:
        """Link two active entries: relates_to, refines, contradicts, supersedes or supports. The same link again is a `Conflict`."""
        return await self._access.engine.relations.relate(self._access.tenant, id_of(source_id), label, id_of(target_id))

    async def related(
        self, *, source_id: str | None = None, target_id: str | None = None, label: str | None = None, limit: int | None = None
    ) -> list[Relation]:
        """The relations that match, newest first; 200 unless told."""
        source = None if source_id is None else id_of(source_id)
        target = None if target_id is None else id_of(target_id)
        return await self._access.engine.relations.related(self._access.tenant, source_id=source, target_id=target, label=label, limit=limit)

    async def all(self) -> AsyncIterator[Relation]:
        """Every relation of the tenant, in no order."""
        async for relation in self._access.engine.relations.everything(self._access.tenant):
            yield relation

    async def unrelate(self, relation_id: str) -> bool:
        """Delete a relation: true once, then false."""
        return await self._access.engine.relations.unrelate(self._access.tenant, id_of(relation_id))
