"""Several writes in one transaction, on PostgreSQL: new rows go in at once; what meets something is locked, decided in order, and written back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from memory.adapters.sql.postgresql.connection import Connection
from memory.adapters.sql.postgresql.rows import ID, KIND, TENANT, Content, key_text, scope_text
from memory.adapters.sql.postgresql.shelf import ABSENT, ALWAYS, NEWER, PgShelf
from memory.adapters.sql.postgresql.values import checked
from memory.adapters.sql.server.batch import Batch, Collided, rows_of
from memory.adapters.sql.server.desk import Desk, Held
from memory.adapters.sql.values import TOMBSTONE
from memory.ports.pace import paced
from memory.ports.record import Key
from memory.ports.writes import Absent, AtVersion, Newer, Outcome, Put, RaiseGeneration, Status, Write

LARGE_ROWS = 2
"""Rows made before others get a turn: the largest take some 9 ms each, most of it for the exponents of their numbers."""


class PgBatch(Batch[Connection, PgShelf]):
    """One call's writes, within one transaction."""

    # -- rows that go in as they are ----------------------------------------------------------------------------------

    async def _do_at_once(self, desk: Desk) -> None:
        """Insert what its condition lets in without a look. What it does not let in stays to be decided."""
        if not _is_blind(self._left.values()):
            return
        groups: dict[tuple[str, str], list[tuple[int, Put]]] = {}
        for i, write in self._left.items():
            assert isinstance(write, Put)  # noqa: S101 - see `_is_blind`
            condition = ABSENT if isinstance(write.when, Absent) else NEWER if isinstance(write.when, Newer) else ALWAYS
            groups.setdefault((write.collection.name, condition), []).append((i, write))
        for (_, condition), group in sorted(groups.items()):
            shelf = self._shelves(group[0][1].collection)
            group.sort(key=lambda pair: pair[1].key)
            sent: dict[tuple[str, str], tuple[int, int]] = {}
            for address in await self._insert(shelf, condition, self._contents(desk, shelf, group, sent), len(group)):
                i, generation = sent[address]
                write = self._left.pop(i)
                assert isinstance(write, Put)  # noqa: S101 - see above
                self._outcomes[i] = Outcome(Status.APPLIED, version=write.record.version, generation=generation)

    @staticmethod
    def _contents(desk: Desk, shelf: PgShelf, group: Sequence[tuple[int, Put]], sent: dict[tuple[str, str], tuple[int, int]]) -> Iterator[Content]:
        """The rows of these writes, made as they are asked for, and noted. Those that will be rejected are left out."""
        for i, _, generation, content in rows_of(desk, shelf.layout, group):
            sent[(content.row[TENANT], content.row[ID])] = (i, generation)
            yield content

    async def _insert(self, shelf: PgShelf, condition: str, contents: Iterator[Content], most: int) -> list[tuple[str, str]]:
        """The keys of the rows that were stored, as columns hold them. The rows come by key, and are at most so many."""
        stored: list[tuple[str, str]] = []
        under_way: asyncio.Task[Sequence[Any]] | None = None
        try:
            for size in _portions(most, shelf.thresholds.rows_at_once, shelf.thresholds.rows_at_ends):
                rows = [shelf.parameters(content) async for content in paced(islice(contents, size), LARGE_ROWS)]
                if not rows:
                    break
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

    async def _lock(self, shelf: PgShelf, keys: set[Key]) -> dict[Key, Held]:
        rows = await shelf.find_all(self._connection, list(keys), lock=True)
        return {key: shelf.held(rows.get(key)) async for key in paced(sorted(keys))}

    async def _write_back(self, shelf: PgShelf, changed: dict[Key, Held]) -> None:
        fresh = [h.content for h in changed.values() if h.content is not None and h.row is None]
        over = [h.content for h in changed.values() if h.content is not None and h.row is not None]
        gone = [key for key, h in changed.items() if h.content is None and h.row is not None]
        if len(await self._insert(shelf, ABSENT, _by_key(fresh), len(fresh))) != len(fresh):
            raise Collided
        await self._insert(shelf, ALWAYS, _by_key(over), len(over))
        if gone:
            await self._by_keys(shelf.delete_many, gone)
        left = gone + [key for key, h in changed.items() if h.content is not None and h.content.row[KIND] == TOMBSTONE and h.row is not None]
        if left:
            await self._by_keys(shelf.forget_aside_sql, left)

    async def _by_keys(self, sql: str, keys: Sequence[Key]) -> None:
        await self._connection.execute(sql, [checked(k.tenant) for k in keys], [checked(k.id) for k in keys])

    def _check_key(self, write: Write) -> None:
        if isinstance(write, RaiseGeneration):
            checked(write.partition.tenant)
            scope_text(write.partition.tenant, write.partition.scope)
            return
        if isinstance(write, Put):
            scope_text(write.record.key.tenant, write.record.scope)
        key_text(write.key)


def _portions(rows: int, most: int, at_ends: int) -> Iterator[int]:
    """How many rows go at a time."""
    between = rows - 2 * at_ends
    if between <= 0 or not at_ends:
        yield rows
        return
    yield at_ends
    pieces = -(-between // most)
    for piece in range(pieces):
        yield between * (piece + 1) // pieces - between * piece // pieces
    yield at_ends


def _by_key(contents: Sequence[Content]) -> Iterator[Content]:
    return iter(sorted(contents, key=lambda content: (content.row[TENANT], content.row[ID])))


def _is_blind(writes: Any) -> bool:
    """Whether every write puts a record of its own under a condition that an insert can decide."""
    seen: set[tuple[str, Key]] = set()
    for write in writes:
        if not isinstance(write, Put) or isinstance(write.when, AtVersion) or (write.collection.name, write.key) in seen:
            return False
        seen.add((write.collection.name, write.key))
    return True
