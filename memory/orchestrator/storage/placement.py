"""Finding a record's home, and the versions and writes that every protocol shares."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeVar

from memory.domain import ids
from memory.domain.errors import CorruptRecord, StoreError, StoreTimeout
from memory.domain.time import micros
from memory.orchestrator.storage.kinds import KINDS, Kinds
from memory.orchestrator.storage.settings import EngineSettings
from memory.orchestrator.storage.steps import step
from memory.orchestrator.storage.topology import Topology, not_a_home
from memory.orchestrator.storage.versions import version_at
from memory.ports.clock import Clock
from memory.ports.collections import Collection
from memory.ports.full_scan import follow
from memory.ports.query import Everywhere, Page, Query, Tenant
from memory.ports.record import Corrupt, Key, Mark, Partition, Record, Role, Stored, Tombstone
from memory.ports.store import Store
from memory.ports.writes import Outcome, Put, Status, Write

T = TypeVar("T")


@dataclass(slots=True)
class LocatedRecord:
    """Where a record is: its home copy and store, or the tombstone that took its place,
    or neither.
    """

    key: Key
    record: Record | None = None
    tombstone: Tombstone | None = None
    store: Store | None = None
    mark: Mark | None = None
    """The last mark that pointed here."""
    marked_in: Store | None = None
    corrupt: CorruptRecord | None = None
    """Its home copy is there and cannot be read."""
    unknown: StoreError | None = None
    """A store that may hold it did not answer, and no other showed what became of it."""

    def home(self) -> tuple[Record, Store] | None:
        return None if self.record is None or self.store is None else (self.record, self.store)


class Watcher(Protocol):
    """Hears of what this process changes in the stores, once that has ended."""

    def on_write(self, writes: Sequence[Write]) -> None:
        """The writes were answered."""
        ...

    def on_write_failure(self, writes: Sequence[Write]) -> None:
        """They were cut off or failed: each may have landed, or land yet."""
        ...

    def on_delete(self, query: Query) -> None:
        """What matches was deleted, or some of it, however that ended."""
        ...


class Placement:
    """The stores by tier and the kinds of record in them, with one clock."""

    def __init__(
        self,
        topology: Topology,
        *,
        clock: Clock,
        settings: EngineSettings,
        random_bits: ids.Randomness = secrets.randbits,
        kinds: Kinds = KINDS,
    ) -> None:
        self.topology = topology
        self.kinds = kinds
        self.clock = clock
        self.settings = settings
        self.random_bits = random_bits
        self.watchers: list[Watcher] = []
        self._sequence = 0

    # -- versions and ids --------------------------------------------------------------

    def now(self) -> datetime:
        return self.clock()

    def next_version(self, stored: int = 0) -> int:
        """See `version_at`. Who also writes down when it was reads the clock once and
        asks that instead.
        """
        return version_at(self.clock(), stored)

    def next_sequence(self) -> int:
        """A number that orders what this process writes: the microsecond, or one more
        than the number before where that is greater.
        """
        self._sequence = max(self._sequence + 1, micros(self.clock()))
        return self._sequence

    def tombstone_until(self) -> datetime:
        """How long a tombstone left now is kept."""
        return self.clock() + self.settings.tombstone_life

    def nonce(self) -> str:
        """What tells one attempt from every other."""
        return f"{self.random_bits(64):016x}"

    def new_id(self, tenant: str, scope: str) -> str:
        return ids.new_id(tenant, scope, micros(self.clock()), self.random_bits)

    # -- finding -----------------------------------------------------------------------

    async def locate(
        self, collection: Collection, key: Key, *, born_in: Store | None = None
    ) -> LocatedRecord:
        """Where the record is. Raises `CorruptRecord` where its home copy cannot be
        read. See `locate_many`.
        """
        located = (await self.locate_many(collection, [key], born_in=born_in))[0]
        if located.corrupt is not None:
            raise located.corrupt
        return located

    async def locate_many(
        self,
        collection: Collection,
        keys: Sequence[Key],
        *,
        born_in: Store | None = None,
        partial: bool = False,
    ) -> list[LocatedRecord]:
        """Where each record is.

        Stores are asked in the direction records move, each only for what the earlier
        ones did not hold: a record that moves meanwhile is met at its source or, once
        that is a mark, at its target. An arriving copy counts only when the source
        showed a mark to it, and nothing counts that is not newer than a tombstone met
        on the way.

        A store that fails stops only what needs it: a home in another store tells all
        there is to tell, and so does a tombstone in an earlier one, since a later life
        begins where the tombstone is. Without either the record is `unknown`; that is
        raised, unless `partial`: then a store that does not answer within the deadline
        has failed, too. Where the store is known that such records are born in, the
        stores before it are not asked: moves go onward.
        """
        found = {key: LocatedRecord(key) for key in keys}
        searching = list(found)
        for store in self.topology.homes if born_in is None else self.topology.since(born_in):
            if not searching:
                break
            with step("read.home"):
                rows = await self._read(store, collection, searching, in_time=partial)
            if isinstance(rows, StoreError):
                for located in (found[key] for key in searching if found[key].tombstone is None):
                    located.unknown = located.unknown or rows
                continue
            searching = [
                key
                for key, row in zip(searching, rows, strict=True)
                if not self._meet(found[key], store, row)
            ]
        for located in found.values():
            if located.record is not None or located.corrupt is not None:
                located.unknown = None
            if located.unknown is not None and not partial:
                raise located.unknown
        return [found[key] for key in keys]

    async def _read(
        self, store: Store, collection: Collection, keys: Sequence[Key], *, in_time: bool
    ) -> Sequence[Stored | None] | StoreError:
        if in_time:
            return await self.answer(store, store.get(collection, keys))
        try:
            return await store.get(collection, keys)
        except StoreError as error:
            return error

    def _meet(self, located: LocatedRecord, store: Store, row: Stored | None) -> bool:
        """Take in what stands under the key in this store; whether the search is over."""
        if isinstance(row, Corrupt):
            located.corrupt = CorruptRecord(store.name, row.key.id, row.problem)
            return True
        if isinstance(row, Mark):
            located.mark, located.marked_in = row, store
            return False
        if isinstance(row, Tombstone):
            if located.tombstone is None:
                located.tombstone, located.store = row, store
            return False  # of an earlier life, perhaps: a newer record further on outlives it
        if isinstance(row, Record) and self._is_home(located, store, row):
            located.record, located.store, located.tombstone = row, store, None
            return True
        return False

    def _is_home(self, located: LocatedRecord, store: Store, row: Record) -> bool:
        if located.tombstone is not None and located.tombstone.version >= row.version:
            return False
        if row.role is Role.HOME:
            return True
        marked = located.mark is not None and self.topology.home(located.mark.to) is store
        return row.role is Role.ARRIVING and marked

    async def pages(self, name: str, store: Store, query: Query) -> AsyncIterator[Page]:
        """Every page of a query under a step's name. Each is read only once the one
        before it has been dealt with.
        """

        async for page in follow(lambda query: self.page(name, store, query), query):
            yield page

    async def page(self, name: str, store: Store, query: Query) -> Page:
        """One page, under a step's name."""
        with step(name):
            return await store.query(query)

    async def partitions(
        self, name: str, store: Store, where: Tenant | Everywhere, prefix: str = ""
    ) -> AsyncIterator[tuple[Partition, int]]:
        """The partitions of a store and the generation of each, page by page under a
        step's name. See `Store.partitions`.
        """
        cursor = None
        while True:
            with step(name):
                page = await store.partitions(where, prefix=prefix, cursor=cursor)
            for found in page.partitions:
                yield found
            if (cursor := page.cursor) is None:
                return

    async def answer(self, store: Store, call: Coroutine[Any, Any, T]) -> T | StoreError:
        """The call's answer within the deadline, or how the store failed."""
        try:
            async with asyncio.timeout(self.settings.deadline.total_seconds()):
                return await call
        except TimeoutError:
            return StoreTimeout(store.name, f"no answer within {self.settings.deadline}")
        except StoreError as error:
            return error

    # -- writing -----------------------------------------------------------------------

    async def write(self, name: str, store: Store, *writes: Write, together: bool = False) -> list[Outcome]:
        """Writes under a step's name: one `apply`, or as many as the store's
        `max_batch` asks for.
        """
        if store is self.topology.cache and any(
            isinstance(w, Put) and w.record.role is not Role.CACHED for w in writes
        ):
            raise not_a_home(store)
        portion = store.capabilities.max_batch or len(writes)
        try:
            with step(name):
                if together or len(writes) <= portion:
                    outcomes = await store.apply(writes, together=together)
                else:
                    outcomes = [
                        o
                        for start in range(0, len(writes), portion)
                        for o in await store.apply(writes[start : start + portion])
                    ]
        except BaseException:
            for watcher in self.watchers:
                watcher.on_write_failure(writes)
            raise
        for watcher in self.watchers:
            watcher.on_write(writes)
        return outcomes

    async def delete_matching(
        self, name: str, store: Store, query: Query, version: int, carry: frozenset[str]
    ) -> int:
        """Leave tombstones, kept for as long as such are, for all that matches, under a
        step's name; how many there were.
        """
        try:
            with step(name):
                return await store.delete_matching(query, version, self.tombstone_until(), carry)
        finally:
            for watcher in self.watchers:
                watcher.on_delete(query)

    async def write_one(self, name: str, store: Store, write: Write) -> Outcome:
        return (await self.write(name, store, write))[0]


def rejection_error(store: Store, outcome: Outcome) -> StoreError | None:
    """The error for a rejected write; None for a rejection that only says the scope was
    erased, and for every other status.
    """
    if outcome.status is Status.REJECTED and outcome.reason != "generation":
        return StoreError(store.name, outcome.reason)
    return None
