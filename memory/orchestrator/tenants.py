"""A tenant's end: every scope of it, and every conversation, erased."""

from __future__ import annotations

from collections import Counter

from memory.domain.errors import MemoryTiersError, StoreUnavailable
from memory.domain.session import ErasedTenant
from memory.orchestrator.conversations.sessions import SessionRecords
from memory.orchestrator.erasure import Erased, Erasure
from memory.orchestrator.placement import Placement
from memory.orchestrator.split import CONVERSATION
from memory.ports.query import Lt, Query, Tenant
from memory.ports.record import Partition, Role

QUIET, MOST_ROUNDS = 2, 10
"""So many times one after the other nothing is found any more; and how often it is looked at most."""


class Tenants:
    """Finds what a tenant has, and erases it."""

    def __init__(self, placement: Placement, erasure: Erasure, sessions: SessionRecords) -> None:
        self._placement = placement
        self._erasure = erasure
        self._sessions = sessions

    async def erase(self, tenant: str) -> ErasedTenant:
        """Erase all scopes of a tenant and all its sessions, until it was looked twice and nothing of before was there. Where a store does not answer
        the call fails, and can be repeated; what is refused of one scope is raised once the others are erased.

        What is written meanwhile goes where its scope has not been erased yet, and stands else.
        """
        erased, refused, counts = set[str](), dict[str, MemoryTiersError](), Counter[tuple[str, str]]()
        begun, quiet, older = self._placement.next_version(), 0, None
        for _ in range(MOST_ROUNDS):
            found = sorted(await self._scopes(tenant, older) - refused.keys())
            for scope in found:
                try:
                    counts += await self._erase(tenant, scope)
                except StoreUnavailable:
                    raise
                except MemoryTiersError as error:
                    refused[scope] = error
            erased |= set(found) - refused.keys()
            older, quiet = Lt("version", begun), 0 if found else quiet + 1
            if quiet == QUIET:
                break
        if refused:
            raise next(iter(refused.values()))
        return ErasedTenant(len(erased), _by_kind(counts))

    async def _erase(self, tenant: str, scope: str) -> Erased:
        kind, _, name = scope.partition(":")
        if kind == CONVERSATION:
            _, said, of_scope = await self._sessions.erase(tenant, name)
            return said + of_scope
        return await self._erasure.erase(Partition(tenant, scope))

    async def _scopes(self, tenant: str, older: Lt | None) -> set[str]:
        """Where anything of the tenant's lies, in whatever role, expired or not; with `older`, anything of before."""
        found = set[str]()
        for kind in self._placement.kinds.scoped:
            for store in self._placement.topology.homes:
                query = Query(kind.collection, Tenant(tenant), older, roles=frozenset(Role), select=frozenset(), limit=self._placement.settings.page)
                async for page in self._placement.pages("tenant.scopes", store, query):
                    found |= {head.scope for head in page.heads}
        return found


def _by_kind(counts: Erased) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (collection, store), count in sorted(counts.items()):
        found.setdefault(collection, {})[store] = count
    return found
