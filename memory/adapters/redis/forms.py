"""Caches searchable data of recently searched partitions in the process.

Each search first brings the cache up to date with the server, in one round trip.

Each cached partition has a stamp (`lua/common.lua`) that the server never reuses. The
partition is read again if the server does not know its stamp. That happens after the
server was emptied or reset, or after too many changes.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias
from weakref import WeakValueDictionary

from memory.adapters.redis.connection import Connections
from memory.adapters.redis.indexes import IndexCursor, IndexEntry, Reader, entries
from memory.adapters.redis.keys import home_bucket, partition_token, tenant_token
from memory.adapters.redis.scripts import Call
from memory.ports import lexical
from memory.ports.collections import Collection
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.partition_index import PartitionIndex
from memory.ports.record import Corrupt, Partition, Record, Role
from memory.ports.rows import Row

STAMP = 12
_NO_STAMP = b"0" * STAMP
_Name: TypeAlias = tuple[str, str, str]
"""Collection, tenant and scope."""
_Change: TypeAlias = tuple[str, Record | None, bytes | None]
"""Id, and the record now stored under it, with its words."""


@dataclass(frozen=True, slots=True)
class _CachedIndex:
    form: PartitionIndex
    stamp: bytes
    bytes: int


class PartitionIndexes:
    """Cached partitions of one store, at most `most` bytes.

    Records that cannot be read are passed to `quarantine`. Cached copies are excluded:
    the server drops them without reporting it.
    """

    def __init__(
        self,
        connections: Connections,
        most: int,
        quarantine: Callable[[IndexEntry, Corrupt], Awaitable[None]],
    ) -> None:
        self._connections, self._most, self._quarantine = connections, most, quarantine
        self._kept: OrderedDict[_Name, _CachedIndex] = OrderedDict()
        self._turns: WeakValueDictionary[_Name, asyncio.Lock] = WeakValueDictionary()
        self._declared: dict[str, Collection] = {}
        self.bytes = 0

    @asynccontextmanager
    async def current(
        self, collection: Collection, partitions: Sequence[Partition]
    ) -> AsyncIterator[list[PartitionIndex]]:
        """Yield the data of these partitions, including every acknowledged write.

        The data does not change inside the block.
        """
        named = {_name(collection, partition): partition for partition in partitions}
        async with AsyncExitStack() as turns:
            for name in sorted(named):
                await turns.enter_async_context(self._turns.setdefault(name, asyncio.Lock()))
            yield await self._brought_up(collection, named)

    async def differences(self, drop: bool) -> list[str]:
        """Compare the cache with the server and return a sentence per difference.

        With `drop`, partitions that differ leave the cache.
        """
        problems = []
        for name in list(self._kept):
            collection, partition = self._declared[name[0]], Partition(*name[1:])
            async with self.current(collection, [partition]) as (form,):
                before = self._kept.get(name)
                (fresh,) = [one.form async for one in self._read(collection, [(partition, b"", None)])]
                await self._brought_up(collection, {name: partition})
                if before is None or self._kept.get(name) != before or fresh.content() == form.content():
                    continue  # equal, or changed meanwhile
                problems.append(
                    f"{name[0]}: the process's data of a partition differs from the server's data"
                )
                if drop:
                    self._drop(name)
        return problems

    async def _brought_up(
        self, collection: Collection, named: dict[_Name, Partition]
    ) -> list[PartitionIndex]:
        self._declared[collection.name] = collection
        kept = {
            name: one for name in named if (one := self._kept.get(name)) is not None and not one.form.is_worn
        }
        asked = [
            (partition, kept[name].stamp, kept[name].form) if name in kept else (partition, b"", None)
            for name, partition in named.items()
        ]
        found, names = list[PartitionIndex](), iter(named)
        async for one in self._read(collection, asked):
            self._keep(next(names), one)
            found.append(one.form)
        while self.bytes > self._most:
            self._drop(next(iter(self._kept)))
        return found

    def _keep(self, name: _Name, one: _CachedIndex) -> None:
        self._drop(name)
        if one.stamp != _NO_STAMP:
            self._kept[name] = one
            self.bytes += one.bytes

    def _drop(self, name: _Name) -> None:
        dropped = self._kept.pop(name, None)
        self.bytes -= dropped.bytes if dropped is not None else 0

    async def _read(
        self, collection: Collection, asked: Sequence[tuple[Partition, bytes, PartitionIndex | None]]
    ) -> AsyncIterator[_CachedIndex]:
        """Yield the current data of the partitions, from their cached data and stamps.

        It takes one round trip, unless a long partition must be read again.
        """
        config = self._connections.config
        sources = [
            IndexCursor(collection.name, home_bucket(p), "t", partition=partition_token(p), known=p)
            for p, _, _ in asked
        ]
        size = config.thresholds.page
        calls = [
            Call(
                s.bucket, ("since", s.bucket, s.collection, tenant_token(p.tenant), s.partition, stamp, size)
            )
            for s, (p, stamp, _) in zip(sources, asked, strict=True)
        ]
        answers = await self._connections.run(
            "read", calls, [config.thresholds.answer_bytes // len(calls)], repeatable=True
        )
        for source, answer, (_, _, form) in zip(sources, answers, asked, strict=True):
            if form is None or answer[:1] == b"*":
                source.take(answer[1 + STAMP :])
                form = await self._anew(collection, source)
            else:  # apply all changes and the stamp together, so that a cancelled call leaves no mixture
                for change in [
                    change async for change in self._changes(collection, entries(source, answer[1 + STAMP :]))
                ]:
                    _put(form, change)
            yield _CachedIndex(form, answer[1 : 1 + STAMP], form.bytes)

    async def _anew(self, collection: Collection, source: IndexCursor) -> PartitionIndex:
        """Read a partition as a whole.

        Changes made meanwhile are reported later, because they follow the earlier
        stamp.
        """
        form = PartitionIndex(collection)
        portion, source.found = source.found, []
        async for change in self._changes(collection, portion):
            _put(form, change)
        async for portion in Reader(self._connections).in_portions([source] if source.more else []):
            async for change in self._changes(collection, portion):
                _put(form, change)
        return form

    async def _changes(self, collection: Collection, found: Iterable[IndexEntry]) -> AsyncIterator[_Change]:
        async for entry in iterate_cooperatively(found):
            row, stands = entry.read(collection) if entry.value else (None, None)
            if isinstance(stands, Corrupt):
                await self._quarantine(entry, stands)
            kept = stands if isinstance(stands, Record) and stands.role is not Role.CACHED else None
            yield entry.address.id, kept, _words_of(collection, row)


def _name(collection: Collection, partition: Partition) -> _Name:
    return (collection.name, partition.tenant, partition.scope)


def _words_of(collection: Collection, row: Row | None) -> bytes | None:
    return (
        (row.words or lexical.index(collection, row.texts)) if row is not None and collection.texts else None
    )


def _put(form: PartitionIndex, change: _Change) -> None:
    record_id, record, words = change
    if record is None:
        form.drop(record_id)
    else:
        form.put(record, words)
