"""Quotas, checked before entries are written. The stores' indexes count the usage.

Near a quota each write counts the usage, and the writes of one process take turns. Far
from it, a process uses a sixteenth of the room that it found before it counts again. So
a quota is exact for one writer. Several writers may exceed it by their concurrent
writes, and by the room that each found free within the last minute.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from memory.domain.errors import QuotaExceeded, StoreError
from memory.orchestrator.entries.admission import NewEntry
from memory.orchestrator.erasure.erasure import Came, Erasure
from memory.orchestrator.storage.collections import DOCUMENT_CHUNKS, DOCUMENTS, ENTRIES
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.steps import step
from memory.orchestrator.tiering.rules import LOOKED_AT, facts_of, fields_of
from memory.policies.quotas import Oldest, Quota
from memory.policies.retention import RetentionRule, decide_retention
from memory.ports.query import Condition, Eq, Head, In, Order, Query, Tenant, Under, Where, within
from memory.ports.record import Key, Partition
from memory.ports.store import Store

log = logging.getLogger(__name__)

SHARE = 16
SPARE = 20
REMEMBERED_FOR = timedelta(minutes=1)
MOST_REMEMBERED = 10_000
_ORDERS: dict[Oldest, tuple[Order, ...]] = {
    "oldest": (Order("created_at"),),
    "least_read": (Order("accesses"), Order("created_at")),
    "least_confident": (Order("confidence"), Order("created_at")),
}


@dataclass(frozen=True, slots=True)
class QuotaScope:
    """A unit of one quota: a tenant's entries, or those of a scope or a path of it.

    `scope` is the text of the scope; empty for the tenant.
    """

    quota: Quota
    tenant: str
    scope: str

    @property
    def where(self) -> Where:
        if self.quota.under is not None:
            return Under(self.tenant, (self.quota.under,))
        return within(Partition(self.tenant, self.scope)) if self.scope else Tenant(self.tenant)

    @property
    def scope_filter(self) -> Condition | None:
        return (
            In("scope_kind", tuple(str(kind) for kind in self.quota.scope_kinds))
            if self.quota.scope_kinds and not self.scope
            else None
        )

    def says(self) -> str:
        kind = "scope" if self.quota.under is None else "path"
        return f"{kind} '{self.scope}'" if self.scope else f"tenant '{self.tenant}'"


@dataclass(slots=True)
class _Headroom:
    """The room that is left before the next count, and until when it is valid."""

    left: int
    until: datetime


class Quotas:
    """Checks quotas, and evicts entries."""

    def __init__(
        self,
        placement: Placement,
        erasure: Erasure,
        quotas: Sequence[Quota],
        rules: Sequence[RetentionRule],
        *,
        of_documents: bool = False,
    ) -> None:
        """Take the quotas of entries, or those `of_documents`."""
        self._placement = placement
        self._erasure = erasure
        self._counted = (DOCUMENTS, DOCUMENT_CHUNKS) if of_documents else (ENTRIES,)
        self.quotas = tuple(
            quota
            for quota in quotas
            if quota.artifact_bytes is None and (quota.document_bytes is not None) is of_documents
        )
        self.of_artifacts = tuple(quota for quota in quotas if quota.artifact_bytes is not None)
        """Quotas that `conversations.reservations` checks."""
        self._rules = tuple(rules)
        self._rooms: dict[QuotaScope, _Headroom] = {}
        self._locks: dict[QuotaScope, asyncio.Lock] = {}
        self.evicted = Counter[tuple[str, str]]()
        """The number of evictions by this process, by tenant and quota."""

    @asynccontextmanager
    async def admit(
        self, tenant: str, new_entries: Sequence[NewEntry], less: int = 0
    ) -> AsyncIterator[set[Key]]:
        """Check the quotas, let the caller write, then evict other entries if needed.

        The caller adds the keys of the entries that it wrote to the yielded set. These
        are not evicted.

        Args:
            less: How many entries the write removes.

        Raises:
            QuotaExceeded: there is no room. Nothing has been written.
        """
        written = set[Key]()
        if not self.quotas or len(new_entries) <= less:
            yield written
            return
        async with AsyncExitStack() as turns:
            near: list[QuotaScope] = []
            for place, some in self._places(tenant, new_entries):
                if not self._fits(place, some):
                    await turns.enter_async_context(self._locks.setdefault(place, asyncio.Lock()))
                    await self._count(place, some)
                    near.append(place)
            yield written
            for place in near:
                if place.quota.then == "evict":
                    await self._evict_behind(place, written)
            self._forget()

    def demand(self, tenant: str, new_entries: Sequence[NewEntry]) -> Counter[QuotaScope]:
        """Return how much these entries take of each quota that refuses."""
        if not self.quotas:
            return Counter()
        return Counter(
            {
                place: _sum_of(place.quota, some)
                for place, some in self._places(tenant, new_entries)
                if place.quota.then == "refuse"
            }
        )

    async def check(self, demand: Mapping[QuotaScope, int]) -> None:
        """Raise `QuotaExceeded` if there is no room for this now."""
        for place, more in demand.items():
            there = await self._usage(place)
            if there + more > place.quota.most:
                raise QuotaExceeded(
                    place.quota.name, place.says(), place.quota.measure, place.quota.most, there, more
                )

    def _places(
        self, tenant: str, new_entries: Sequence[NewEntry]
    ) -> Iterable[tuple[QuotaScope, list[NewEntry]]]:
        """Return the quotas that count these entries.

        The order is always the same, so that no two calls wait for each other.
        """
        found: dict[QuotaScope, list[NewEntry]] = {}
        for quota in self.quotas:
            for one in new_entries:
                if quota.is_for(tenant, one.scope) and (one.is_new or quota.measure != "entries"):
                    counted = quota.under or (one.scope if quota.per == "scope" else "")
                    found.setdefault(QuotaScope(quota, tenant, counted), []).append(one)
        return sorted(found.items(), key=lambda item: (item[0].quota.name, item[0].scope))

    def _fits(self, place: QuotaScope, some: Sequence[NewEntry]) -> bool:
        """Take room that was counted recently; false if there is not enough."""
        room, more = self._rooms.get(place), _sum_of(place.quota, some)
        if room is None or room.left < more or self._placement.now() >= room.until:
            return False
        room.left -= more
        return True

    async def _count(self, place: QuotaScope, some: Sequence[NewEntry]) -> None:
        quota, there = place.quota, await self._usage(place)
        more = _sum_of(quota, some)
        if there + more > quota.most and any(one.derived for one in some):
            before = await self._written_before([one.key for one in some if one.derived])
            more = _sum_of(quota, [one for one in some if one.key not in before])
        if more > quota.most or (quota.then == "refuse" and more and there + more > quota.most):
            raise QuotaExceeded(quota.name, place.says(), quota.measure, quota.most, there, more)
        self._rooms[place] = _Headroom(
            max(quota.most - there - more, 0) // SHARE, self._placement.now() + REMEMBERED_FOR
        )

    async def _written_before(self, keys: Sequence[Key]) -> set[Key]:
        return {at.key for at in await self._placement.locate_many(ENTRIES, keys) if at.record is not None}

    async def _usage(self, place: QuotaScope) -> int:
        """Return the usage in all stores.

        Raises if a store does not answer, because its entries count too.
        """
        held = 0
        for store in self._placement.topology.homes:
            for collection in self._counted:
                with step("quota.count"):
                    counted = await store.count(Query(collection, place.where, place.scope_filter))
                held += counted.records if place.quota.measure == "entries" else counted.bytes
        return held

    # -- evicting ----------------------------------------------------------------------

    async def _evict_behind(self, place: QuotaScope, written: set[Key]) -> None:
        """Evict after a write. If a store fails, the next write evicts the rest."""
        try:
            await self._evict(place, written)
        except StoreError as error:
            log.warning("quota '%s' of %s is exceeded for now: %s", place.quota.name, place.says(), error)

    async def _evict(self, place: QuotaScope, written: set[Key]) -> None:
        """Delete the first entries in order until the quota holds.

        The candidates are read before the count, so that concurrent evictions count
        once.
        """
        candidates = await self._candidates(place, written)
        over, away = await self._usage(place) - place.quota.most, set[str]()
        for store, head in candidates:
            if over <= 0:
                return
            size = 1 if place.quota.measure == "entries" else await self._size(store, head)
            came = await self._let_go(place, store, head, away)
            if isinstance(came, bool):  # if it is gone or changed, another process is at work
                over -= size
                self.evicted[place.tenant, place.quota.name] += came

    async def _let_go(self, place: QuotaScope, store: Store, head: Head, away: set[str]) -> Came:
        return (await self._erasure.delete_at(ENTRIES, {head.key: head.version}, store, away))[head.key]

    async def _candidates(self, place: QuotaScope, written: set[Key]) -> list[tuple[Store, Head]]:
        """Return the first entries in order that may be evicted.

        Each store gives as many as were written, and `SPARE` more. Entries that were
        just written, that a rule keeps, or that are under legal hold are left out.
        """
        order, enough = _ORDERS[place.quota.evict], len(written) + SPARE
        select = frozenset(name for name in LOOKED_AT if name in fields_of(ENTRIES))
        found: list[tuple[Store, Head]] = []
        for store in self._placement.topology.homes:
            query = Query(
                ENTRIES,
                place.where,
                order=order,
                limit=min(enough, self._placement.settings.page),
                select=select,
            )
            of_store: list[tuple[Store, Head]] = []
            async for heads in self._in_order(store, query):
                held = await self._erasure.holds.over(heads)
                of_store += [
                    (store, head)
                    for head in heads
                    if head.key not in written and head.key not in held and not self._keeps(head)
                ]
                if len(of_store) >= enough:
                    break
            found += of_store
        return sorted(found, key=lambda one: _sort_key(one[1], order))

    async def _in_order(self, store: Store, query: Query) -> AsyncIterator[Sequence[Head]]:
        async for page in self._placement.pages("quota.first", store, query):
            yield page.heads

    def _keeps(self, head: Head) -> bool:
        decision = decide_retention(self._rules, "entries", facts_of(head), self._placement.now())
        return decision.then == "keep" and bool(decision.rule)

    async def _size(self, store: Store, head: Head) -> int:
        with step("quota.count"):
            return (await store.count(Query(ENTRIES, within(head.partition), Eq("id", head.key.id)))).bytes

    def _forget(self) -> None:
        if len(self._rooms) > MOST_REMEMBERED:
            self._rooms.clear()
        self._locks = (
            {place: lock for place, lock in self._locks.items() if lock.locked()}
            if len(self._locks) > MOST_REMEMBERED
            else self._locks
        )


def _sum_of(quota: Quota, some: Sequence[NewEntry]) -> int:
    return len(some) if quota.measure == "entries" else sum(one.size for one in some)


def _sort_key(head: Head, order: Sequence[Order]) -> tuple[Any, ...]:
    """Return the order of stores: missing values first, the id last."""
    values = [head.fields.get(one.field) for one in order]
    return (*((value is not None, value if value is not None else 0) for value in values), head.key.id)
