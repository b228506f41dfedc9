"""Calls with several writes, as a backend of the port's `carry_out`.

If the server has transactions, a call runs in one and is atomic.

Without transactions, a cancelled call may be applied in part. Records that are probably
new are inserted without a read, while later ones are still encoded. If a document
exists already, its write is decided again. Generations are read before the writes and
checked again afterwards (`partitions`).

Calls of this process that collided wait for one another before they try again. Without
a collision nobody waits, because MongoDB writes different documents concurrently. Calls
of different processes only retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from pymongo.errors import BulkWriteError, PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from memory.adapters.mongo.codec import QUARANTINED, Document, held_in, key_in
from memory.adapters.mongo.errors import is_collision, is_only_refusals, is_refused
from memory.adapters.mongo.quarantine import Quarantine
from memory.adapters.mongo.single import WriteContext
from memory.adapters.mongo.table import Table
from memory.domain.ids import digest_of
from memory.ports.batch import Address, ReadSet, ResolvedWrite, StoredRow, WriteCollision
from memory.ports.collections import Collection
from memory.ports.concurrency import both_at_once, outcomes_at_once
from memory.ports.record import Key, Partition
from memory.ports.rows import RECORD, Row
from memory.ports.writes import AtVersion, Put, RaiseGeneration, Write

_COMMITS = 5


class KeyLocks:
    """Locks of partitions; several partitions share one.

    A call stops waiting for a lock after its deadline, or when the store closes.
    """

    def __init__(self, count: int) -> None:
        self.locks = [asyncio.Lock() for _ in range(count)]
        self.closing = False

    def of(self, writes: Iterable[Write]) -> list[asyncio.Lock]:
        """Return the locks in one fixed order, to avoid deadlocks."""
        wanted = {digest_of(w.key.id) % len(self.locks) for w in writes if not isinstance(w, RaiseGeneration)}
        return [self.locks[n] for n in sorted(wanted)]


class WriteBatch:
    """The writes of one call: a `memory.ports.batch.Backend`.

    It waits for its locks until `late` on the loop's clock.
    """

    fenced = False

    def __init__(
        self,
        backing: WriteContext,
        turns: KeyLocks,
        writes: Sequence[Write],
        *,
        atomic: bool,
        together: bool,
        late: float,
    ) -> None:
        self.atomic = atomic
        self._backing, self._turns, self._late, self._together = backing, turns, late, together
        self._locks = turns.of(writes)
        self._puts = [w for w in writes if isinstance(w, Put)]
        fresh = {(w.collection.name, w.key) for w in self._puts if not isinstance(w.when, AtVersion)}
        self._fresh = len(fresh) == len(writes)
        self._rounds = 0
        self._session: Any = None
        self._ahead: InsertPipeline | None = None
        self._known: dict[Partition, int] = {}

    # -- turns -------------------------------------------------------------------------

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        self._rounds += 1
        self._fresh = self._fresh and self._rounds == 1
        async with AsyncExitStack() as stack:
            if self._rounds > 1 or any(lock.locked() for lock in self._locks):
                await self._wait(stack)
            async with self._transaction():
                self._ahead = InsertPipeline(self._session) if self._fresh and not self._together else None
                try:
                    yield
                finally:
                    if self._ahead is not None:
                        await self._ahead.wait()

    async def _wait(self, stack: AsyncExitStack) -> None:
        """Wait for the locks that other calls hold after a collision."""
        try:
            async with asyncio.timeout_at(self._late):
                for lock in self._locks:
                    await stack.enter_async_context(lock)
        except TimeoutError:
            raise self._backing.busy() from None
        if self._turns.closing:
            raise self._backing.busy()

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[None]:
        """Run in a transaction if the call is atomic; an exception rolls it back."""
        if not self.atomic:
            yield
            return
        try:
            async with self._backing.client.start_session() as session:
                await session.start_transaction(ReadConcern("snapshot"), WriteConcern("majority", j=True))
                self._session = session
                yield
                await _commit(session)
        except PyMongoError as exc:
            if is_collision(exc) or is_refused(exc):
                raise WriteCollision from exc
            raise
        finally:
            self._session = None

    # -- reading -----------------------------------------------------------------------

    async def read(self, reads: ReadSet) -> tuple[Mapping[Address, StoredRow], Mapping[Partition, int]]:
        if not self._fresh:
            found, self._known = await both_at_once(
                self._look(reads), self._backing.directory.generations(reads.partitions)
            )
            return found, self._known
        self._known = await self._backing.directory.generations(reads.partitions)
        if all(
            w.record.generation is None or w.record.generation >= self._known[w.record.partition]
            for w in self._puts
        ):
            return {}, self._known
        self._fresh, self._ahead = False, None  # an outcome of refused writes must include the stored data
        return await self._look(reads), self._known

    async def _look(self, reads: ReadSet) -> dict[Address, StoredRow]:
        found: dict[Address, StoredRow] = {}
        for collection, keys in reads.keys.items():
            table = self._backing.table(collection)
            async for document in table.documents.find(table.among(keys), session=self._session):
                found[collection.name, key_in(document)] = held_in(document)
        return found

    async def generations(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        return await self._backing.directory.generations_now({p: self._known.get(p, 0) for p in partitions})

    # -- writing -----------------------------------------------------------------------

    def lay_out(self, collection: Collection, row: Row) -> Document:
        document = self._backing.table(collection).encode(row)
        if self._ahead is not None:
            self._ahead.add(self._backing.table(collection), document)
        return document

    async def raise_generations(self, raised: Mapping[Partition, int]) -> set[Partition]:
        lost = await self._backing.directory.replace(self._known, raised, self._session)
        self._known |= raised
        return lost

    async def store(self, changes: Sequence[ResolvedWrite]) -> set[Address]:
        if self._ahead is not None:
            return await self._ahead.end()
        lost: set[Address] = set()
        by_table: dict[str, list[ResolvedWrite]] = {}
        for change in changes:
            by_table.setdefault(change.collection.name, []).append(change)
        for name, some in by_table.items():
            lost |= {
                (name, key)
                for key in await swap(
                    self._backing.tables[name], self._backing.quarantine, some, self._session
                )
            }
        return lost

    async def take_back(self, changes: Sequence[ResolvedWrite]) -> set[Address]:
        """Undo the changes. Documents changed by others since then stay."""
        taken: set[Address] = set()
        for change in changes:
            table, before = self._backing.table(change.collection), change.held.token
            try:
                done = await table.documents.bulk_write(
                    [table.swap(change.key, change.content, before)], session=self._session
                )
            except BulkWriteError as exc:
                if self._session is not None or not is_only_refusals(exc):
                    raise
                continue
            if before is not None or done.deleted_count:
                taken.add(change.address)
        return taken


async def swap(
    table: Table, quarantine: Quarantine, changes: Sequence[ResolvedWrite], session: Any = None
) -> set[Key]:
    """Replace exactly the data that was read.

    Returns:
        The keys whose data has changed since. In a transaction, such a change ends it.
    """
    lost: set[Key] = set()
    try:
        await table.documents.bulk_write(
            [table.swap(c.key, c.held.token, c.content) for c in changes], ordered=False, session=session
        )
    except BulkWriteError as exc:
        if session is not None or not is_only_refusals(exc):
            raise
        lost = {changes[error["index"]].key for error in exc.details["writeErrors"]}
    gone = [
        c.key
        for c in changes
        if QUARANTINED in (c.held.token or {})
        and c.key not in lost
        and (c.row is None or c.row.type != RECORD)
    ]
    await quarantine.forget(table, gone, session)
    return lost


class InsertPipeline:
    """Inserts new documents while later ones are still encoded."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._waiting: dict[Table, list[Document]] = {}
        self._met: set[Address] = set()
        self._under_way: asyncio.Task[None] | None = None

    def add(self, table: Table, document: Document) -> None:
        some = self._waiting.setdefault(table, [])
        if len(some) == table.thresholds.inserted_at_once:
            self._send(table, some, waits=False)
            some = self._waiting[table] = []
        some.append(document)

    async def end(self) -> set[Address]:
        """Send the last documents, and return the addresses that were occupied.

        The last documents wait for the journal, which then includes the earlier ones.
        """
        for table, some in self._waiting.items():
            self._send(table, some, waits=True)
        if self._under_way is not None:
            await self._under_way
        return self._met

    async def wait(self) -> None:
        """Wait until no insert is running. Errors are ignored."""
        if self._under_way is not None:
            await outcomes_at_once([self._under_way])

    def _send(self, table: Table, documents: Sequence[Document], *, waits: bool) -> None:
        self._under_way = asyncio.ensure_future(self._insert(self._under_way, table, documents, waits))

    async def _insert(
        self, before: asyncio.Task[None] | None, table: Table, documents: Sequence[Document], waits: bool
    ) -> None:
        if before is not None:
            await before
        try:
            await (table.documents if waits else table.unwaited).insert_many(
                documents, ordered=False, session=self._session
            )
        except BulkWriteError as exc:
            if self._session is not None or not is_only_refusals(exc):
                raise
            self._met |= {
                (table.collection.name, key_in(documents[error["index"]]))
                for error in exc.details["writeErrors"]
            }


async def _commit(session: Any) -> None:
    """Commit; repeat if the answer was lost and the result is unknown."""
    for attempt in range(_COMMITS):
        try:
            await session.commit_transaction()
            return
        except PyMongoError as exc:
            if (
                not exc.has_error_label("UnknownTransactionCommitResult")
                or exc.timeout
                or attempt == _COMMITS - 1
            ):
                raise
