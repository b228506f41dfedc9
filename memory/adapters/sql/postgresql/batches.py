"""Several writes in one transaction: new rows go in at once; what meets something is locked, decided in order, and written back at once.

Partitions are locked first, by number, then rows, by key: transactions that meet wait for each other and seldom deadlock. Where they do, or
where a row appears under a key that was free, everything is undone and done again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from memory.adapters.sql.postgresql.desk import Desk, Held, addresses
from memory.adapters.sql.postgresql.places import Place, Places
from memory.adapters.sql.postgresql.pool import Connection
from memory.adapters.sql.postgresql.rows import ID, KIND, TENANT, Content, key_text, scope_text
from memory.adapters.sql.postgresql.shelf import ABSENT, ALWAYS, NEWER, Shelf
from memory.adapters.sql.postgresql.values import checked, unescape
from memory.adapters.sql.postgresql.writing import Shelves, held_in, parameters
from memory.adapters.sql.values import TOMBSTONE, Unstorable
from memory.ports.record import Key, Partition
from memory.ports.writes import Absent, Append, AtVersion, Newer, Outcome, Put, RaiseGeneration, Status, Write

MOST_ROWS = 84
"""Rows sent by one statement. The next ones are made ready while the server works on these."""


class NotTogether(Exception):
    """Undoes a batch that was to be kept whole."""

    def __init__(self, outcomes: list[Outcome]) -> None:
        super().__init__()
        self.outcomes = outcomes


class Collided(Exception):
    """Undoes a batch that another transaction got in the way of; to be done again."""


class Batch:
    """One call's writes, within one transaction."""

    def __init__(self, connection: Connection, shelves: Shelves, places: Places, writes: Sequence[Write]) -> None:
        self._connection = connection
        self._shelves = shelves
        self._places = places
        self._left: dict[int, Write] = dict(enumerate(writes))
        self._outcomes: dict[int, Outcome] = {}
        self._known: dict[Partition, Place] = {}

    async def prepare(self) -> None:
        """What is done before the transaction: refuse what no row can hold, and give every partition its number."""
        for i, write in list(self._left.items()):
            try:
                _check_key(write)
            except Unstorable as exc:
                self._outcomes[i] = Outcome(Status.REJECTED, reason=str(exc))
                del self._left[i]
        writes = self._left.values()
        self._known = await self._places.ensure(self._connection, {p for w in writes if (p := _partition_of(w)) is not None})

    async def carry_out(self, together: bool) -> list[Outcome]:
        """Do the writes. Raises `NotTogether` where nothing may be kept, and `Collided`."""
        raising = any(isinstance(w, RaiseGeneration) for w in self._left.values())
        places = await self._places.locked(self._connection, self._known, exclusively=raising)
        if len(places) != len(self._known):
            raise Collided
        desk = Desk({}, places)
        if _is_blind(self._left.values()):
            await self._insert_at_once(desk)
        if self._left:
            await self._decide(desk)
        outcomes = [self._outcomes[i] for i in sorted(self._outcomes)]
        if together and not all(o.applied for o in outcomes):
            raise NotTogether([Outcome(Status.SKIPPED) if o.applied else o for o in outcomes])
        return outcomes

    # -- rows that go in as they are ----------------------------------------------------------------------------------

    async def _insert_at_once(self, desk: Desk) -> None:
        """Insert what its condition lets in without a look. What it does not let in stays to be decided."""
        groups: dict[tuple[str, str], list[tuple[int, Put]]] = {}
        for i, write in self._left.items():
            assert isinstance(write, Put)  # noqa: S101 - see `_is_blind`
            condition = ABSENT if isinstance(write.when, Absent) else NEWER if isinstance(write.when, Newer) else ALWAYS
            groups.setdefault((write.collection.name, condition), []).append((i, write))
        for (_, condition), group in sorted(groups.items()):
            shelf = self._shelves(group[0][1].collection)
            group.sort(key=lambda pair: pair[1].key)
            sent: dict[tuple[str, str], tuple[int, int]] = {}
            for address in await self._insert(shelf, condition, self._contents(desk, shelf, group, sent)):
                i, generation = sent[address]
                write = self._left.pop(i)
                assert isinstance(write, Put)  # noqa: S101 - see above
                self._outcomes[i] = Outcome(Status.APPLIED, version=write.record.version, generation=generation)

    @staticmethod
    def _contents(desk: Desk, shelf: Shelf, group: Sequence[tuple[int, Put]], sent: dict[tuple[str, str], tuple[int, int]]) -> Iterator[Content]:
        """The rows of these writes, made as they are asked for, and noted. Those that will be rejected are left out."""
        for i, write in group:
            record, place = write.record, desk.places[write.record.partition]
            generation = place.generation if record.generation is None else record.generation
            if generation < place.generation:
                continue
            try:
                content = shelf.layout.record(record, place.number, generation)
            except Unstorable:
                continue
            sent[(content.row[TENANT], content.row[ID])] = (i, generation)
            yield content

    async def _insert(self, shelf: Shelf, condition: str, contents: Iterator[Content]) -> list[tuple[str, str]]:
        """The keys of the rows that were stored, as columns hold them. The rows come by key."""
        stored: list[tuple[str, str]] = []
        under_way: asyncio.Task[Sequence[Any]] | None = None
        try:
            while rows := [parameters(shelf, content) for content in islice(contents, MOST_ROWS)]:
                if under_way is not None:
                    stored += [(r[0], r[1]) for r in await under_way]
                sql, columns = shelf.insert_many(condition, rows)
                under_way = asyncio.ensure_future(self._connection.fetch(sql, *columns))
                await asyncio.sleep(0)  # lets it be sent
            if under_way is not None:
                stored += [(r[0], r[1]) for r in await under_way]
        except BaseException:
            if under_way is not None:
                under_way.cancel()
            raise
        return stored

    # -- decisions ----------------------------------------------------------------------------------------------------

    async def _decide(self, desk: Desk) -> None:
        shelves = {w.collection.name: self._shelves(w.collection) for w in self._left.values() if not isinstance(w, RaiseGeneration)}
        for name, keys in sorted(addresses(self._left.values()).items()):
            await self._lock(desk, shelves[name], keys)
        for counter in sorted({(w.record.partition, w.counter) for w in self._left.values() if isinstance(w, Append)}):
            desk.counters[counter] = await self._count(shelves, desk.places[counter[0]].number, counter[1])
        before = dict(desk.counters)
        for i in sorted(self._left):
            self._outcomes[i] = desk.do(self._left[i])
        await self._write_back(desk, shelves)
        for (partition, name), value in desk.counters.items():
            if value != before[(partition, name)]:
                shelf = next(iter(shelves.values()))
                await self._connection.execute(shelf.set_counter, desk.places[partition].number, checked(name), value)
        if desk.raised:
            await self._places.store(self._connection, desk.raised)

    async def _lock(self, desk: Desk, shelf: Shelf, keys: set[Key]) -> None:
        """What stands under the keys, which nobody else changes until the transaction ends."""
        by_tenant: dict[str, list[Key]] = {}
        for key in keys:
            desk.held[(shelf.name, key)] = Held(shelf.collection)
            by_tenant.setdefault(key.tenant, []).append(key)
        for tenant, wanted in sorted(by_tenant.items()):
            ids = sorted([checked(key.id) for key in wanted])
            for row in await self._connection.fetch(shelf.find_locked, checked(tenant), ids):
                key = Key(tenant, unescape(row[ID]))
                desk.held[(shelf.name, key)] = held_in(shelf, key, row)

    async def _count(self, shelves: dict[str, Shelf], partition: int, counter: str) -> int:
        shelf = next(iter(shelves.values()))
        return int(await self._connection.fetchval(shelf.lock_counter, partition, checked(counter)))

    async def _write_back(self, desk: Desk, shelves: dict[str, Shelf]) -> None:
        for name, shelf in sorted(shelves.items()):
            changed = [(key, s) for (of, key), s in desk.held.items() if of == name and s.changed]
            fresh = [s.content for _, s in changed if s.content is not None and s.checksum is None]
            over = [s.content for _, s in changed if s.content is not None and s.checksum is not None]
            gone = [key for key, s in changed if s.content is None and s.checksum is not None]
            if len(await self._insert(shelf, ABSENT, _by_key(fresh))) != len(fresh):
                raise Collided
            await self._insert(shelf, ALWAYS, _by_key(over))
            if gone:
                await self._by_keys(shelf.delete_many, gone)
            left = gone + [key for key, s in changed if s.content is not None and s.content.row[KIND] == TOMBSTONE and s.checksum is not None]
            if left:
                await self._by_keys(shelf.forget_aside, left)

    async def _by_keys(self, sql: str, keys: Sequence[Key]) -> None:
        await self._connection.execute(sql, [checked(k.tenant) for k in keys], [checked(k.id) for k in keys])


def _by_key(contents: Sequence[Content]) -> Iterator[Content]:
    return iter(sorted(contents, key=lambda content: (content.row[TENANT], content.row[ID])))


def _partition_of(write: Write) -> Partition | None:
    """The partition whose generation the write asks for or raises."""
    if isinstance(write, RaiseGeneration):
        return write.partition
    return write.record.partition if isinstance(write, Put | Append) else None


def _is_blind(writes: Any) -> bool:
    """Whether every write puts a record of its own under a condition that an insert can decide."""
    seen: set[tuple[str, Key]] = set()
    for write in writes:
        if not isinstance(write, Put) or isinstance(write.when, AtVersion) or (write.collection.name, write.key) in seen:
            return False
        seen.add((write.collection.name, write.key))
    return True


def _check_key(write: Write) -> None:
    """Refuse a key or partition that no column can hold. Raises `Unstorable`."""
    if isinstance(write, RaiseGeneration):
        checked(write.partition.tenant)
        scope_text(write.partition.tenant, write.partition.scope)
        return
    if isinstance(write, Put | Append):
        scope_text(write.record.key.tenant, write.record.scope)
    if isinstance(write, Append):
        scope_text(write.record.key.tenant, write.counter)
    key_text(write.key)
