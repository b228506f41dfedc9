"""`memory.admin`: what an operator asks for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from memory.domain import door
from memory.domain.entry import EntryType
from memory.domain.scope import Scope
from memory.facade import reports
from memory.facade.access import Access
from memory.facade.arguments import id_of, ids_of, scope_of
from memory.facade.explain import RouteReport, explain_route
from memory.facade.reports import Copy, Stats, StoreAudit, StoreReport, Vacuumed
from memory.facade.transfer import exported, exported_relation
from memory.orchestrator.maintenance import SweepReport
from memory.orchestrator.promotion import PromotionReport
from memory.policies.routing import TIERS


class Admin:
    """Erasing and exporting, where things stand and why, and the upkeep of the stores.

    `erase`, `export`, `where`, `move`, `route` and `stats` concern one tenant; `sweep`, `check`, `audit` and `vacuum` the stores, and so all of them.

        await memory.admin.erase("user:ada")
        print(await memory.admin.stats())
    """

    def __init__(self, access: Access) -> None:
        self._access = access

    # -- one tenant ---------------------------------------------------------------------------------------------------

    async def erase(self, scope: Scope | str) -> int:
        """Erase every entry of exactly this scope, expired ones too; how many there were. Other scopes of the same user stay (A58)."""
        return await self._access.engine.erasure.erase_scope(self._access.tenant, scope_of(scope))

    async def export(self, scope: Scope | str | None = None) -> AsyncIterator[dict[str, Any]]:
        """The lines of an export of the tenant, or of one scope, as JSON objects, which `memory import` reads.

        First every live entry, oldest first, retired ones too; then the relations between them.
        """
        engine, tenant, there = self._access.engine, self._access.tenant, set[str]()
        async for entry in engine.browsing.everything(tenant, None if scope is None else scope_of(scope), retired=True):
            there.add(entry.id)
            yield exported(entry)
        async for relation in engine.relations.everything(tenant):
            if relation.source_id in there and relation.target_id in there:
                yield exported_relation(relation)

    async def move(self, entry_ids: Sequence[str], to: str) -> PromotionReport:
        """Move entries onward to a tier by hand. Moves go onward only."""
        door.one_of("tier", to, TIERS)
        return await self._access.engine.promotion.by_hand(self._access.tenant, ids_of(entry_ids), to)

    async def where(self, entry_id: str) -> list[Copy]:
        """Where an entry's copies, marks and tombstones stand."""
        return await reports.where(self._access.engine, self._access.tenant, id_of(entry_id))

    def route(self, scope: Scope | str, collection: str = "entries") -> RouteReport:
        """Where a new record of this scope and collection would be born and copied to, on which store, and why."""
        return explain_route(self._access.engine_anywhere, self._access.config.promotion, self._access.tenant, scope_of(scope), collection)

    async def stats(self) -> Stats:
        """Counts and sizes of the tenant's entries, tier by tier."""
        return await reports.stats(self._access.engine, self._access.tenant, [t.value for t in EntryType])

    # -- the stores ---------------------------------------------------------------------------------------------------

    async def sweep(self) -> SweepReport:
        """One round of maintenance: finish what crashes left, forget what has served, apply the sweep rules. For all tenants of the stores."""
        return await self._access.engine.maintenance.sweep()

    async def check(self) -> list[StoreReport]:
        """How each store is."""
        return await reports.check(self._access.engine)

    async def audit(self, *, repair: bool = False) -> list[StoreAudit]:
        """Compare what each store derives from its records (word indexes, statistics, registries) with the records; `repair` makes it anew.

        It reads everything, of every tenant, and may take long. A store that does not answer is reported, not raised.
        """
        return await reports.audit(self._access.engine, repair=repair)

    async def vacuum(self) -> list[Vacuumed]:
        """Have each store give back the room that deleted content takes. A store that does not answer is reported, not raised."""
        return await reports.vacuum(self._access.engine)
