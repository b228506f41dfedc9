"""Several writes in one transaction: new rows go in at once; what meets something is locked, decided in order, and written back at once.

Partitions are locked first, by number, then rows, by key: transactions that meet wait for each other and seldom deadlock. Where they do, or
where a row appears under a key that was free, everything is undone and done again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from memory.adapters.sql.postgresql.deciding import Desk, Standing, addresses
from memory.adapters.sql.postgresql.places import Places
from memory.adapters.sql.postgresql.pool import Connection
from memory.adapters.sql.postgresql.rows import ID, KIND, TENANT, Content, key_text, scope_text
from memory.adapters.sql.postgresql.shelf import ABSENT, ALWAYS, NEWER, Shelf
from memory.adapters.sql.postgresql.values import checked, unescape
from memory.adapters.sql.postgresql.writing import Shelves, parameters, standing_of
from memory.adapters.sql.rows import TOMBSTONE, Unstorable
from memory.ports.record import Key, Partition
from memory.ports.writes import Absent, Append, AtVersion, Newer, Outcome, Put, RaiseGeneration, Status, Write

MOST_ROWS = 125
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
        self._partitions: set[Partition] = set()

    async def prepare(self) -> None:
        """What is done before the transaction: refuse what no row can hold, and give every partition its number."""
        for i, write in list(self._left.items()):
            try:
                _check_key(write)
            except Unstorable as exc:
                self._outcomes[i] = Outcome(Status.REJECTED, reason=str(exc))
                del self._left[i]
        writes = self._left.values()
        self._partitions = {w.partition if isinstance(w, RaiseGeneration) else w.record.partition for w in writes if _is_placed(w)}  # type: ignore[union-attr]
        await self._places.ensure(self._connection, self._partitions)

    async def carry_out(self, together: bool) -> list[Outcome]:
        """Do the writes. Raises `NotTogether` where nothing may be kept, and `Collided`."""
        known = await self._places.ensure(self._connection, self._partitions)
        raising = any(isinstance(w, RaiseGeneration) for w in self._left.values())
        places = await self._places.locked(self._connection, known, exclusively=raising)
        if len(places) != len(known):
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
        groups: dict[tuple[str, type], list[tuple[int, Put, Content]]] = {}
        for i, write in list(self._left.items()):
            assert isinstance(write, Put)  # noqa: S101 - see `_is_blind`
            record, place = write.record, desk.places[write.record.partition]
            if record.generation is not None and record.generation < place.generation:
                continue
            generation = place.generation if record.generation is None else record.generation
            try:
                content = self._shelves(write.collection).layout.record(record, place.number, generation)
            except Unstorable:
                continue
            groups.setdefault((write.collection.name, type(write.when)), []).append((i, write, content))
        for (_, kind), group in sorted(groups.items(), key=lambda item: item[0][0]):
            shelf = self._shelves(group[0][1].collection)
            condition = ABSENT if kind is Absent else NEWER if kind is Newer else ALWAYS
            stored = set(await self._insert(shelf, condition, [content for _, _, content in group]))
            for i, write, content in group:
                if (content.row[TENANT], content.row[ID]) in stored:
                    generation = content.row[shelf.layout.at["generation"]]
                    self._outcomes[i] = Outcome(Status.APPLIED, version=write.record.version, generation=generation)
                    del self._left[i]

    async def _insert(self, shelf: Shelf, condition: str, contents: list[Content]) -> list[tuple[str, str]]:
        """The keys of the rows that were stored."""
        contents.sort(key=lambda content: (content.row[TENANT], content.row[ID]))
        stored: list[tuple[str, str]] = []
        under_way: asyncio.Task[Sequence[Any]] | None = None
        try:
            for start in range(0, len(contents), MOST_ROWS):
                rows = [parameters(shelf, content) for content in contents[start : start + MOST_ROWS]]
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
        for name, keys in sorted(addresses(self._left).items()):
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
            desk.standings[(shelf.name, key)] = Standing(shelf.collection)
            by_tenant.setdefault(key.tenant, []).append(key)
        for tenant, wanted in sorted(by_tenant.items()):
            ids = sorted([checked(key.id) for key in wanted])
            for row in await self._connection.fetch(shelf.find_locked, checked(tenant), ids):
                key = Key(tenant, unescape(row[ID]))
                desk.standings[(shelf.name, key)] = standing_of(shelf, key, row)

    async def _count(self, shelves: dict[str, Shelf], partition: int, counter: str) -> int:
        shelf = next(iter(shelves.values()))
        return int(await self._connection.fetchval(shelf.lock_counter, partition, checked(counter)))

    async def _write_back(self, desk: Desk, shelves: dict[str, Shelf]) -> None:
        for name, shelf in sorted(shelves.items()):
            changed = [(key, s) for (of, key), s in desk.standings.items() if of == name and s.changed]
            fresh = [s.content for _, s in changed if s.content is not None and not s.existed]
            over = [s.content for _, s in changed if s.content is not None and s.existed]
            gone = [key for key, s in changed if s.content is None and s.existed]
            if fresh and len(await self._insert(shelf, ABSENT, fresh)) != len(fresh):
                raise Collided
            if over:
                await self._insert(shelf, ALWAYS, over)
            if gone:
                await self._by_keys(shelf.delete_many, gone)
            left = gone + [key for key, s in changed if s.content is not None and s.content.row[KIND] == TOMBSTONE and s.existed]
            if left:
                await self._by_keys(shelf.forget_aside, left)

    async def _by_keys(self, sql: str, keys: Sequence[Key]) -> None:
        await self._connection.execute(sql, [checked(k.tenant) for k in keys], [checked(k.id) for k in keys])


def _is_placed(write: Write) -> bool:
    """Whether the write asks for a partition's generation."""
    return isinstance(write, Put | Append | RaiseGeneration)


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
