"""The entries that point to an artifact: they let go of it when it is deleted (D19)."""

from __future__ import annotations

from dataclasses import replace

from memory.orchestrator.cache import Cache
from memory.orchestrator.collections import ENTRIES
from memory.orchestrator.deliveries import Deliveries
from memory.orchestrator.placement import Placement, refused
from memory.orchestrator.turns import Patience
from memory.ports.query import Eq, Query, Tenant
from memory.ports.record import Record, Role
from memory.ports.store import Store
from memory.ports.writes import AtVersion, Put

COPIES = frozenset({Role.HOME, Role.ARRIVING, Role.REPLICA})


class Referrers:
    """Clears `artifact_id`, of retired entries too."""

    def __init__(self, placement: Placement, *, cache: Cache, deliveries: Deliveries) -> None:
        self._placement = placement
        self._cache = cache
        self._deliveries = deliveries

    async def clear(self, tenant: str, artifact_id: str) -> None:
        """Have no entry of the tenant point to the artifact, in whatever copy. No version is made of that: `updated_at` stays, and nothing is kept.

        What an edit that is under way, or a move, brings back points to nothing: a read shows no artifact then.
        """
        await self._deliveries.flush()  # what is queued here would bring it to copies
        for store in self._placement.topology.homes:
            await self._clear_in(store, tenant, artifact_id)

    async def _clear_in(self, store: Store, tenant: str, artifact_id: str) -> None:
        patience = Patience(self._placement, artifact_id)
        pointing = Query(ENTRIES, Tenant(tenant), Eq("artifact_id", artifact_id), limit=self._placement.settings.page, roles=COPIES)
        while True:
            page = await self._placement.page("referrers.find", store, pointing)
            rows = [row for row in page.records if isinstance(row, Record)]
            if not rows:
                return
            await self._cache.invalidate(ENTRIES, *[row.key for row in rows])
            puts = [Put(ENTRIES, _without(row), AtVersion(row.version, row.role, row.tier)) for row in rows]
            outcomes = await self._placement.write("referrers.clear", store, *puts)
            for outcome in outcomes:
                if (error := refused(store, outcome)) is not None:
                    raise error
            await self._cache.invalidate(ENTRIES, *[row.key for row in rows])
            if not any(outcome.applied for outcome in outcomes):
                await patience.wait()


def _without(row: Record) -> Record:
    return replace(row, fields={name: value for name, value in row.fields.items() if name != "artifact_id"})
