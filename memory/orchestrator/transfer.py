"""Records out of the stores and in again, of every kind that is exported and has no form of its own for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from memory.domain import ids
from memory.domain.scope import Scope
from memory.orchestrator.browsing import Browsing
from memory.orchestrator.collections import ENTRIES, RELATIONS
from memory.orchestrator.kinds import Kind, Kinds
from memory.orchestrator.meaning import Meaning
from memory.orchestrator.outbox import Outbox, Pending, replicas
from memory.orchestrator.placement import Placement, refused
from memory.orchestrator.versions import version_at
from memory.ports.record import Key, Record
from memory.ports.writes import Absent, Put

WITH_A_FORM_OF_THEIR_OWN = frozenset({ENTRIES, RELATIONS})
"""Their modules export and restore them."""


def carried(kinds: Kinds) -> tuple[Kind, ...]:
    """The kinds that are carried as records."""
    return tuple(kind for kind in kinds.scoped if kind.exported and kind.collection not in WITH_A_FORM_OF_THEIR_OWN)


def id_here(tenant: str, kind: Kind, scope: str, record_id: str) -> str:
    """The id that a record which was exported elsewhere has here: the same however often it is imported."""
    return ids.derived_id(tenant, scope, "import", kind.collection.name, record_id)


class Transfer:
    """Reads and restores them."""

    def __init__(self, placement: Placement, *, browsing: Browsing, meaning: Meaning, outbox: Outbox) -> None:
        self._placement = placement
        self._browsing = browsing
        self._meaning = meaning
        self._outbox = outbox

    async def records(self, tenant: str, scope: Scope | None) -> AsyncIterator[tuple[Kind, Record]]:
        """Every record of these kinds, of a tenant or of one scope, kind by kind."""
        for kind in carried(self._placement.kinds):
            async for record in self._browsing.every_record(kind.collection, tenant, scope):
                yield kind, record

    async def restore(self, tenant: str, kind: Kind, record: Record) -> bool:
        """Store a record under its id here; false where it is already, or was deleted since an earlier import."""
        tier, key = kind.route(Scope.parse(record.scope).kind).tier, Key(tenant, record.key.id)
        store, now = self._placement.topology.home(tier), self._placement.now()
        there = await self._placement.locate(kind.collection, key, born_in=store)
        if there.record is not None or there.tombstone is not None:
            return False
        owed = replicas(self._placement, kind.collection, store, tier)
        fresh = Record(
            key,
            record.scope,
            version_at(now),
            record.created_at,
            now,
            expires_at=record.expires_at,
            fields=record.fields,
            body=record.body,
            texts=record.texts,
            tier=tier,
            owed=owed,
        )
        if kind.collection.vector:
            fresh = (await self._meaning.embedded([fresh]))[0]
        outcome = await self._placement.write_one("write.home", store, Put(kind.collection, fresh, Absent()))
        if (error := refused(store, outcome)) is not None:
            raise error
        if outcome.applied:
            await self._outbox.finish(Pending(kind.collection, store, replace(fresh, generation=outcome.generation)))
        return outcome.applied
