"""Locates a record's home, and makes the versions and writes of all protocols."""

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
    """The location of a record: its home copy and store, or the tombstone in its place.

    Both are None if there is neither.
    """

    key: Key
    record: Record | None = None
    tombstone: Tombstone | None = None
    store: Store | None = None
    mark: Mark | None = None
    """The last mark that pointed here."""
    marked_in: Store | None = None
    corrupt: CorruptRecord | None = None
    """The error of a home copy that exists and cannot be read."""
    unknown: StoreError | None = None
    """The error of a store that may hold the record and did not answer. No other store
    showed the record's state.
    """

    def home(self) -> tuple[Record, Store] | None:
        return None if self.record is None or self.store is None else (self.record, self.store)


class Watcher(Protocol):
    """Receives the changes that this process made in the stores, after they ended."""

    def on_write(self, writes: Sequence[Write]) -> None:
        """Called after the writes were answered."""
        ...

    def on_write_failure(self, writes: Sequence[Write]) -> None:
        """Called after the writes failed or were cut off.

        Each of them may be stored nevertheless, now or later.
        """
        ...

    def on_delete(self, query: Query) -> None:
        """Called after a deletion of all matching records, successful or not."""
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
        """Return the next version after `stored`. See `version_at`.

        A caller that also stores the time reads the clock once and calls `version_at`
        itself.
        """
        return version_at(self.clock(), stored)

    def next_sequence(self) -> int:
        """Return a number that orders the writes of this process.

        It is the current microsecond, or the last number plus one if that is greater.
        """
        self._sequence = max(self._sequence + 1, micros(self.clock()))
        return self._sequence

    def tombstone_until(self) -> datetime:
        """Return until when a tombstone that is left now is kept."""
        return self.clock() + self.settings.tombstone_life

    def nonce(self) -> str:
        """Return a random string that identifies one attempt."""
        return f"{self.random_bits(64):016x}"

    def new_id(self, tenant: str, scope: str) -> str:
        return ids.new_id(tenant, scope, micros(self.clock()), self.random_bits)

    def holds_window_copies(self, store: Store) -> bool:
        """Return whether readers leave copies of windows in this store."""
        topology = self.topology
        return (
            self.settings.copied_window > 0
            and store is topology.serving["short"]
            and store is not topology.archive
        )

    # -- finding -----------------------------------------------------------------------

    async def locate(
        self, collection: Collection, key: Key, *, born_in: Store | None = None
    ) -> LocatedRecord:
        """Return where the record is. See `locate_many`.

        Raises:
            CorruptRecord: The home copy cannot be read.
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
        """Return where each record is.

        Stores are asked in the direction in which records move, each only for the
        records that the earlier ones did not hold. So a record that moves meanwhile is
        found at its source or, once a mark is there, at its target. An arriving copy
        counts only if the source showed a mark to it. A record counts only if it is
        newer than every tombstone found on the way.

        The failure of a store affects only the records that may be in it. A home in
        another store is a full answer. A tombstone in an earlier store is one too,
        since a later life begins where the tombstone is. Without either, the record is
        `unknown`.

        Args:
            born_in: The store where such records are born, if it is known. The stores
                before it are not asked, because records move only to later ones.
            partial: Return unknown records instead of raising. A store that does not
                answer within the deadline then counts as failed.

        Raises:
            StoreError: A record is unknown, and `partial` is false.
        """
        found = {key: LocatedRecord(key) for key in keys}
        entry_search = list(found)
        for store in self.topology.homes if born_in is None else self.topology.since(born_in):
            if not entry_search:
                break
            with step("read.home"):
                rows = await self._read(store, collection, entry_search, in_time=partial)
            if isinstance(rows, StoreError):
                for located in (found[key] for key in entry_search if found[key].tombstone is None):
                    located.unknown = located.unknown or rows
                continue
            entry_search = [
                key
                for key, row in zip(entry_search, rows, strict=True)
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
        """Take in the row of this store. Returns whether the search is over."""
        if isinstance(row, Corrupt):
            located.corrupt = CorruptRecord(store.name, row.key.id, row.problem)
            return True
        if isinstance(row, Mark):
            located.mark, located.marked_in = row, store
            return False
        if isinstance(row, Tombstone):
            if located.tombstone is None:
                located.tombstone, located.store = row, store
            return False  # perhaps of an earlier life: a newer record in a later store is valid
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

    async def read(
        self, name: str, store: Store, collection: Collection, keys: Sequence[Key]
    ) -> Sequence[Stored | None]:
        """Return what one store holds under each key, as a named step."""
        with step(name):
            return await store.get(collection, keys)

    async def read_one(self, name: str, store: Store, collection: Collection, key: Key) -> Stored | None:
        return (await self.read(name, store, collection, [key]))[0]

    async def read_by_key(
        self, name: str, store: Store, collection: Collection, keys: Sequence[Key]
    ) -> dict[Key, Stored | None]:
        rows = await self.read(name, store, collection, keys) if keys else []
        return dict(zip(keys, rows, strict=True))

    async def pages(self, name: str, store: Store, query: Query) -> AsyncIterator[Page]:
        """Yield every page of a query, as a named step.

        Each page is read only once the caller has dealt with the one before it.
        """

        async for page in follow(lambda query: self.page(name, store, query), query):
            yield page

    async def page(self, name: str, store: Store, query: Query) -> Page:
        """Return one page, as a named step."""
        with step(name):
            return await store.query(query)

    async def partitions(
        self, name: str, store: Store, where: Tenant | Everywhere, prefix: str = ""
    ) -> AsyncIterator[tuple[Partition, int]]:
        """Yield the partitions of a store with their generations, as a named step.

        They are read page by page. See `Store.partitions`.
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
        """Return the call's answer within the deadline, or the error of the store."""
        try:
            async with asyncio.timeout(self.settings.deadline.total_seconds()):
                return await call
        except TimeoutError:
            return StoreTimeout(store.name, f"no answer within {self.settings.deadline}")
        except StoreError as error:
            return error

    # -- writing -----------------------------------------------------------------------

    async def write(self, name: str, store: Store, *writes: Write, together: bool = False) -> list[Outcome]:
        """Write to a store, as a named step.

        The writes are one `apply` call, or several if the store has a `max_batch`.
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
        """Leave tombstones for all matching records, as a named step.

        They are kept for the usual life of tombstones. Returns the number of records.
        """
        try:
            with step(name):
                return await store.delete_matching(query, version, self.tombstone_until(), carry)
        finally:
            for watcher in self.watchers:
                watcher.on_delete(query)

    async def write_one(self, name: str, store: Store, write: Write) -> Outcome:
        return (await self.write(name, store, write))[0]


def raise_if_corrupt(store: Store, *rows: Stored | None) -> None:
    """Raise the error of the first row that cannot be read."""
    for row in rows:
        if isinstance(row, Corrupt):
            raise CorruptRecord(store.name, row.key.id, row.problem)


def raise_if_rejected(store: Store, *outcomes: Outcome) -> None:
    """Raise the error of the first rejected write. See `rejection_error`."""
    for outcome in outcomes:
        if (error := rejection_error(store, outcome)) is not None:
            raise error


def rejection_error(store: Store, outcome: Outcome) -> StoreError | None:
    """Return the error of a rejected write.

    None for every other status, and for a rejection that only says that the scope was
    erased.
    """
    if outcome.status is Status.REJECTED and outcome.reason != "generation":
        return StoreError(store.name, outcome.reason)
    return None
