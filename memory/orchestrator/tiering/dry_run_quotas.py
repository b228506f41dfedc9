"""Quotas of a plan: predicts rejections and evictions.

They are applied like those of `Quotas`, to the planned state of the records.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from memory.orchestrator.erasure.erasure import Came
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.tiering.dry_run import CountedEntry, DryRunState
from memory.orchestrator.tiering.quotas import Quotas, QuotaScope, _sort_key
from memory.policies.quotas import Quota
from memory.ports.heads import head_of
from memory.ports.query import Head, Order, Query, Where
from memory.ports.record import Key, Record, Role
from memory.ports.store import Store


@dataclass(slots=True)
class _EvictionOrder:
    """The records of a store in the order in which a quota evicts them.

    Pages are read as far as needed, and only once per plan.
    """

    pages: AsyncIterator[Sequence[Head]]
    heads: list[Head] = field(default_factory=list)
    is_whole: bool = False

    async def goes_on(self) -> None:
        """Read one more page."""
        try:
            self.heads += await anext(self.pages)
        except StopAsyncIteration:
            self.is_whole = True


class DryRunQuotas(Quotas):
    """Admits new entries as a sweep now would.

    Nothing is evicted; evictions are noted in `ahead`.
    """

    def __init__(self, quotas: Quotas, ahead: DryRunState) -> None:
        super().__init__(quotas._placement, quotas._erasure, quotas.quotas, quotas._rules)
        self._ahead = ahead
        self._rooms = {
            place: replace(room) for place, room in quotas._rooms.items()
        }  # the sweep uses the free room that this process has found
        self._gone: list[tuple[Quota, Head]] = []
        self._more: dict[QuotaScope, tuple[int, int]] = {}
        self._listed: dict[tuple[Store, Where, tuple[Order, ...]], _EvictionOrder] = {}

    def pop_evictions(self) -> list[tuple[Quota, Head]]:
        """Return the evictions since the last call, each with its quota."""
        gone, self._gone = self._gone, []
        return gone

    async def _written_before(self, keys: Sequence[Key]) -> set[Key]:
        known = {key for key in keys if self._ahead.knows(ENTRIES, key)}
        before = await super()._written_before([key for key in keys if key not in known])
        return before | {key for key in known if not self._ahead.is_gone(ENTRIES, key)}

    async def _usage(self, place: QuotaScope) -> int:
        return await super()._usage(place) + await self._usage_change(place)

    async def _usage_change(self, place: QuotaScope) -> int:
        """Return how much the plan adds to the usage."""
        more, seen = self._more.get(place, (0, 0))
        changes = self._ahead.changes(place.tenant, place.scope)
        for before, after in changes[seen:]:
            for one, sign in ((before, -1), (after, 1)):
                if one is not None and one.role is Role.HOME and place.quota.is_for(place.tenant, one.scope):
                    more += sign * (1 if place.quota.measure == "entries" else await self._bytes(one))
        self._more[place] = more, len(changes)
        return more

    async def _size(self, store: Store, head: Head) -> int:
        will_be = self._ahead.counted_entry(head.key)
        return await super()._size(store, head) if will_be is None else await self._bytes(will_be)

    async def _in_order(self, store: Store, query: Query) -> AsyncIterator[Sequence[Head]]:
        """Yield the planned records in order.

        Stored records are read only as far as needed. Later new entries reuse the pages
        that were read already.
        """
        about = store, query.where, tuple(query.order)
        if about not in self._listed:
            self._listed[about] = _EvictionOrder(Quotas._in_order(self, store, query))
        listed = self._listed[about]
        listed.heads = self._that_stay(listed.heads)
        to_come, given = self._to_come(store, query), 0
        while True:
            while len(listed.heads) < given + query.limit and not listed.is_whole:
                before = len(listed.heads)
                await listed.goes_on()
                listed.heads[before:] = self._that_stay(listed.heads[before:])
            some, given = listed.heads[given : given + query.limit], given + query.limit
            if not some:
                break
            last, come = _sort_key(some[-1], query.order), list[tuple[tuple[Any, ...], Head]]()
            while to_come and to_come[-1][0] <= last:
                come.append(to_come.pop())
            yield sorted([*some, *(head for _, head in come)], key=lambda head: _sort_key(head, query.order))
        while to_come:
            yield [head for _, head in reversed(to_come[-query.limit :])]
            del to_come[-query.limit :]

    def _to_come(self, store: Store, query: Query) -> list[tuple[tuple[Any, ...], Head]]:
        """Return the planned records that differ from stored ones, in reverse order."""
        rows = self._ahead.there(ENTRIES, query.where, store, "")
        heads = [
            head_of(ENTRIES, row, query.select or frozenset()) if isinstance(row, Record) else row
            for row in rows
        ]
        return sorted(
            ((_sort_key(head, query.order), head) for head in heads), key=lambda one: one[0], reverse=True
        )

    def _that_stay(self, heads: Sequence[Head]) -> list[Head]:
        return [head for head in heads if not self._ahead.knows(ENTRIES, head.key)]

    async def _bytes(self, one: CountedEntry) -> int:
        """Return the bytes that its future store will count."""
        if one.size is None:
            record = (await self._placement.locate(ENTRIES, one.key)).record
            one.size = (
                0
                if record is None
                else self._placement.topology.home(one.tier).counted_bytes(
                    ENTRIES, replace(record, tier=one.tier, owed=())
                )
            )
        return one.size

    async def _let_go(self, place: QuotaScope, store: Store, head: Head, away: set[str]) -> Came:
        self._ahead.goes(ENTRIES, head)
        self._gone.append((place.quota, head))
        return True
