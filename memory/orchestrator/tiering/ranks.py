"""The ranks of records in their scopes, for rules on the size of a scope in a tier."""

from __future__ import annotations

from dataclasses import replace

from memory.orchestrator.storage.entry_records import said_by
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.tiering.dry_run import DryRunState, Walk
from memory.policies.record_facts import Measure, Rank
from memory.ports.collections import Collection
from memory.ports.query import And, Condition, Eq, Head, Order, Query, within
from memory.ports.record import Partition, Record, Role
from memory.ports.store import Store
from memory.ports.tokens import TokenCounter

STANDING = frozenset({Role.HOME, Role.ARRIVING})
OLDEST_FIRST = (Order("created_at"),)


class Ranks:
    """Returns the rank of each record during a walk over a tier in a store.

    The walk must be oldest first, and complete. A scope is counted when its first
    record is met, so that records that leave it meanwhile change no rank. With `ahead`,
    the planned state is counted.
    """

    def __init__(
        self,
        placement: Placement,
        counter: TokenCounter,
        collection: Collection,
        store: Store,
        measures: frozenset[Measure],
        ahead: DryRunState | None = None,
    ) -> None:
        self._placement = placement
        self._counter = counter
        self._collection = collection
        self._store = store
        self._ahead = ahead
        self.reads_texts = bool(measures - {"count"})
        self._left: dict[tuple[Partition, str], Rank] = {}

    async def of(self, row: Head | Record) -> Rank:
        """Return the rank of the next record of the walk."""
        at = (row.partition, row.tier)
        left = self._left[at] if at in self._left else await self.scope_total(*at)
        own = self._own(row)
        self._left[at] = Rank(left.count - own.count, left.bytes - own.bytes, left.tokens - own.tokens)
        return left

    async def scope_total(self, partition: Partition, tier: str) -> Rank:
        """Return a scope's total in a tier: the rank of its oldest record."""
        asked = Query(
            self._collection,
            within(partition),
            And((Eq("tier", tier),)),
            OLDEST_FIRST,
            self._placement.settings.page,
            roles=STANDING,
        )
        ahead = (
            self._ahead
            if self._ahead is not None and self._ahead.touches(self._collection, partition)
            else None
        )
        if not self.reads_texts and ahead is None:
            return Rank((await self._store.count(asked)).records)
        held, walk = (
            Rank(0),
            None if ahead is None else Walk(ahead, self._collection, within(partition), self._store, tier),
        )
        async for page in self._placement.pages("promotion.rank", self._store, asked):
            rows = [row for row in page.records if isinstance(row, Record)]
            for row in rows if walk is None else walk.page(rows, is_last=page.cursor is None):
                held = _sum(held, self._own(row))
        return held

    async def of_one(self, record: Record) -> Rank:
        """Return the rank of a single record, without a walk."""
        newer: Condition = And((Eq("tier", record.tier),))
        select = None if self.reads_texts else frozenset({"created_at"})
        newest_first = (Order("created_at", descending=True),)
        asked = Query(
            self._collection,
            within(record.partition),
            newer,
            newest_first,
            self._placement.settings.page,
            roles=STANDING,
            select=select,
        )
        rank = Rank(0)
        async for page in self._placement.pages("promotion.rank", self._store, asked):
            for row in (*page.heads, *page.records):
                if isinstance(row, Head | Record):
                    rank = _sum(rank, self._own(row))
                    if row.key == record.key:
                        return rank
        return _sum(rank, self._own(record))

    def _own(self, row: Head | Record) -> Rank:
        if not self.reads_texts or not isinstance(row, Record):
            return Rank(1)
        said = said_by(row)
        return Rank(1, sum(len(text.encode()) for text in said), sum(map(self._counter.count, said)))


def _sum(one: Rank, other: Rank) -> Rank:
    return replace(
        one, count=one.count + other.count, bytes=one.bytes + other.bytes, tokens=one.tokens + other.tokens
    )
