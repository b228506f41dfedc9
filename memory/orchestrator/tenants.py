"""A tenant's end: every scope of it, and every conversation, erased."""

from __future__ import annotations

from memory.domain.errors import MemoryTiersError, StoreUnavailable
from memory.orchestrator.conversations.sessions import SessionRecords
from memory.orchestrator.erasure import Erasure
from memory.orchestrator.placement import Placement
from memory.orchestrator.split import CONVERSATION
from memory.ports.query import Query, Tenant
from memory.ports.record import Partition, Role

ROUNDS = 3
"""How often it is looked again for what others wrote meanwhile."""


class Tenants:
    """Finds what a tenant has, and erases it."""

    def __init__(self, placement: Placement, erasure: Erasure, sessions: SessionRecords) -> None:
        self._placement = placement
        self._erasure = erasure
        self._sessions = sessions

    async def erase(self, tenant: str) -> int:
        """Erase all scopes of a tenant and all its sessions; how many there were. Where a store does not answer the call fails, and can be repeated;
        what is refused of one scope is raised once the others are erased."""
        erased, refused = set[str](), dict[str, MemoryTiersError]()
        for _ in range(ROUNDS):
            found = sorted(await self._scopes(tenant) - refused.keys())
            for scope in found:
                try:
                    await self._erase(tenant, scope)
                except StoreUnavailable:
                    raise
                except MemoryTiersError as error:
                    refused[scope] = error
            erased |= set(found) - refused.keys()
            if not found:
                break
        if refused:
            raise next(iter(refused.values()))
        return len(erased)

    async def _erase(self, tenant: str, scope: str) -> None:
        kind, _, name = scope.partition(":")
        if kind == CONVERSATION:
            await self._sessions.delete(tenant, name)
        else:
            await self._erasure.erase(Partition(tenant, scope))

    async def _scopes(self, tenant: str) -> set[str]:
        """Where anything of the tenant's lies, in whatever role, expired or not."""
        found = set[str]()
        for kind in self._placement.kinds.scoped:
            for store in self._placement.topology.homes:
                query = Query(kind.collection, Tenant(tenant), roles=frozenset(Role), select=frozenset(), limit=self._placement.settings.page)
                async for page in self._placement.pages("tenant.scopes", store, query):
                    found |= {head.scope for head in page.heads}
        return found
