"""Writes on PostgreSQL.

A single write is one statement where one can express it. Otherwise it is a look and a
swap that works only if nothing has changed since. A row with a pending step always
takes a look, as this code decides whether it may be replaced.

Several writes are one transaction. New rows go in at once. The others are locked,
decided in order, and written back.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from memory.adapters.sql.postgresql.codec import escape
from memory.adapters.sql.postgresql.connection import Connection
from memory.adapters.sql.postgresql.partitions import PgDirectory
from memory.adapters.sql.postgresql.table import ABSENT, ALWAYS, NEWER, PgTable
from memory.adapters.sql.server.batch import Batch, check_names, put_row
from memory.adapters.sql.server.store import WriteContention
from memory.ports.batch import ResolvedWrite, WriteCollision, slot_of
from memory.ports.collections import Collection
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.record import Key, Tombstone
from memory.ports.rows import TOMBSTONE, Row, row_of
from memory.ports.storable import Unstorable
from memory.ports.write_decision import Decision, decide
from memory.ports.writes import (
    Absent,
    Annotate,
    AtVersion,
    Delete,
    Newer,
    Outcome,
    Purge,
    Put,
    RaiseGeneration,
    Release,
    Status,
    When,
    Write,
)

ROUNDS = 100
"""The number of attempts of a write whose row others keep changing."""

AT = "at its version"
_PARAMETER = re.compile(r"\$(\d+)")

Tables = Callable[[Collection], PgTable]


# -- one write -------------------------------------------------------------------------


async def write_one(connection: Connection, tables: Tables, directory: PgDirectory, write: Write) -> Outcome:
    """Carry out one write in a transaction of its own."""
    try:
        check_names(write)
    except Unstorable as exc:
        return Outcome(Status.REJECTED, reason=str(exc))
    if isinstance(write, RaiseGeneration):
        return Outcome(
            Status.APPLIED, number=await directory.raise_generation(connection, write.partition, write.to)
        )
    table = tables(write.collection)
    for _ in range(ROUNDS):
        if isinstance(write, Put):
            outcome = await _put(connection, table, directory, write)
        elif isinstance(write, Delete):
            outcome = await _delete(connection, table, write)
        else:
            outcome = await _swap(connection, table, write)
        if outcome is not None:
            return outcome
    raise WriteContention


async def _put(connection: Connection, table: PgTable, directory: PgDirectory, write: Put) -> Outcome | None:
    """Put a record; None where the write must begin again."""
    partition, given = write.record.partition, write.record.generation is not None
    known = (
        directory.cached_partition(partition) or (await directory.ensure(connection, [partition]))[partition]
    )
    row = put_row(write, known)
    values = table.parameters(row, known.number)
    applied = Outcome(Status.APPLIED, version=row.version, generation=row.generation)
    if await _blindly(connection, table, write.when, [*values, given], put=True):
        return applied
    now = await directory.look(connection, partition)
    held = table.held_in(await table.find(connection, write.key), write.key)
    if now is None or now.number != known.number:
        return None
    decision = decide(write, slot_of(table.collection, write.key, held), now.generation)
    if (
        decision.changes
        and held.token is not None
        and await connection.fetchval(table.put_over, *values, given, table.checksum_of(held.token))
    ):
        return applied
    return _unless_it_would_do(decision)


async def _delete(connection: Connection, table: PgTable, write: Delete) -> Outcome | None:
    tombstone = Tombstone(write.key, write.version, write.owed, write.note, write.discard_at)
    values = table.parameters(row_of(table.collection, tombstone), None)
    if await _blindly(connection, table, write.when, values, put=False):
        return Outcome(Status.APPLIED, version=write.version)
    held = table.held_in(await table.find(connection, write.key), write.key)
    decision = decide(write, slot_of(table.collection, write.key, held), 0)
    if (
        decision.changes
        and held.token is not None
        and await connection.fetchval(table.delete_exactly, *values, table.checksum_of(held.token))
    ):
        return decision.outcome
    return _unless_it_would_do(decision)


def _unless_it_would_do(decision: Decision) -> Outcome | None:
    """Return why the write failed, by the current row; None if it would work now."""
    return None if decision.changes else decision.outcome


async def _blindly(
    connection: Connection, table: PgTable, when: When, values: list[Any], *, put: bool
) -> bool:
    """Store the row if the condition holds, without a look; return whether it did."""
    if isinstance(when, AtVersion):
        role, tier = when.role and when.role.value, None if when.tier is None else escape(when.tier)
        return bool(
            await connection.fetchval(
                table.put_at if put else table.delete_at, *values, when.version, role, tier
            )
        )
    if not put:
        return bool(await connection.fetchval(table.delete_newer, *values))
    sql = (
        table.put_absent
        if isinstance(when, Absent)
        else table.put_newer
        if isinstance(when, Newer)
        else table.put_always
    )
    return bool(await connection.fetchval(sql, *values))


async def _swap(connection: Connection, table: PgTable, write: Release | Annotate | Purge) -> Outcome | None:
    """Decide on the current row, and replace exactly that one."""
    held = table.held_in(await table.find(connection, write.key), write.key)
    decision = decide(write, slot_of(table.collection, write.key, held), 0)
    if not decision.changes:
        return decision.outcome
    stood = table.checksum_of(held.token)
    if decision.leaves is None:
        swapped = await connection.fetchval(table.remove, escape(write.key.tenant), write.key.id, stood)
    elif decision.found_by:
        swapped = await connection.fetchval(
            table.swap, *table.parameters(row_of(table.collection, decision.leaves), None), stood
        )
    else:
        row = row_of(table.collection, decision.leaves, b"")
        swapped = await connection.fetchval(table.restate, *table.restate_parameters(row, held.token))
    return decision.outcome if swapped else None


# -- several ---------------------------------------------------------------------------


class PgBatch(Batch[Connection, PgTable]):
    """One call's writes, within one transaction."""

    def __init__(
        self,
        connection: Connection,
        tables: Tables,
        directory: PgDirectory,
        writes: Sequence[Write],
        rows_in_one: int,
    ) -> None:
        super().__init__(connection, tables, directory, writes)
        self._rows_in_one = rows_in_one

    # -- rows that go in as they are ---------------------------------------------------

    async def _put_at_once(self) -> None:
        """Store rows that their conditions let in without a look.

        A few rows go in one statement. The others stay to be decided.
        """
        few = len(self._left) <= self._rows_in_one
        if not _is_blind(self._left.values(), at_versions=few):
            return
        groups: dict[tuple[str, str], list[tuple[int, Put]]] = {}
        for i, write in self._left.items():
            assert isinstance(write, Put)  # noqa: S101 - see `_is_blind`
            groups.setdefault((write.collection.name, _condition(write.when)), []).append((i, write))
        for group in groups.values():
            group.sort(key=lambda pair: pair[1].key)
        if few and (len(groups) > 1 or any(condition == AT for _, condition in groups)):
            await self._put_in_one(sorted(groups.items()))
            return
        for (_, condition), group in sorted(groups.items()):
            table = self._tables(group[0][1].collection)
            sent: dict[tuple[str, str], tuple[int, Row]] = {}
            for tenant, record_id in await self._insert(
                table, condition, self._note_sent(group, sent), len(group)
            ):
                self._note_stored(*sent[(tenant, str(record_id))])

    async def _put_in_one(self, groups: Iterable[tuple[tuple[str, str], Sequence[tuple[int, Put]]]]) -> None:
        """Run one statement with a part for each collection and condition."""
        parts: list[str] = []
        values: list[Any] = []
        sent: list[dict[tuple[str, str], tuple[int, Row]]] = []
        for (_, condition), group in groups:
            table, noted = self._tables(group[0][1].collection), dict[tuple[str, str], tuple[int, Row]]()
            rows = [
                table.parameters(row, partition)
                async for row, partition in iterate_cooperatively(self._note_sent(group, noted))
            ]
            if not rows:
                continue
            if condition == AT:
                there = {i: put.when for i, put in group if isinstance(put.when, AtVersion)}
                sql, columns = table.update_many(rows, [there[i] for i, _ in noted.values()])
            else:
                sql, columns = table.insert_many(condition, rows)
            parts.append(_numbered_from(len(values), sql))
            values += columns
            sent.append(noted)
        if not parts:
            return
        done = ", ".join([f"done_{n} AS ({part})" for n, part in enumerate(parts)])
        which = " UNION ALL ".join([f"SELECT {n}, tenant, id FROM done_{n}" for n in range(len(parts))])  # noqa: S608
        for n, tenant, record_id in await self._connection.fetch(f"WITH {done} {which}", *values):
            self._note_stored(*sent[n][(tenant, str(record_id))])

    def _note_stored(self, i: int, row: Row) -> None:
        del self._left[i]
        self._outcomes[i] = Outcome(Status.APPLIED, version=row.version, generation=row.generation)

    def _note_sent(
        self, puts: Sequence[tuple[int, Put]], sent: dict[tuple[str, str], tuple[int, Row]]
    ) -> Iterator[tuple[Row, int | None]]:
        for i, row, partition in self.rows_of(puts):
            sent[(escape(row.tenant), row.id)] = (i, row)
            yield row, partition

    async def _insert(
        self, table: PgTable, condition: str, rows: Iterable[tuple[Row, int | None]], most: int
    ) -> list[tuple[str, Any]]:
        """Return the keys of the stored rows, as columns hold them.

        The rows come by key, and are at most `most`.
        """
        stored: list[tuple[str, Any]] = []
        under_way: asyncio.Task[Sequence[Any]] | None = None
        try:
            async for some in _by_statement(table, iter(rows), most):
                if under_way is not None:
                    stored += [(r[0], r[1]) for r in await under_way]
                sql, columns = table.insert_many(condition, some)
                under_way = asyncio.ensure_future(self._connection.fetch(sql, *columns))
                await asyncio.sleep(0)  # lets it be sent
            if under_way is not None:
                stored += [(r[0], r[1]) for r in await under_way]
        except BaseException:
            if under_way is not None:
                under_way.cancel()
            raise
        return stored

    # -- decisions ---------------------------------------------------------------------

    async def _write_back(self, table: PgTable, changes: Sequence[ResolvedWrite]) -> None:
        fresh = [(c.row, self.partition_no(c)) for c in changes if c.row is not None and c.held.token is None]
        over = [
            (c.row, self.partition_no(c))
            for c in changes
            if c.row is not None and c.held.token is not None and c.found_anew
        ]
        same = [
            table.restate_parameters(c.row, c.held.token)
            for c in changes
            if c.row is not None and not c.found_anew
        ]
        gone = [c.key for c in changes if c.row is None]
        if len(await self._insert(table, ABSENT, fresh, len(fresh))) != len(fresh):
            raise WriteCollision
        await self._insert(table, ALWAYS, over, len(over))
        if same:
            await self._connection.executemany(table.restate, same)
        if gone:
            await self._by_keys(table.remove_many, gone)
        left = gone + [
            c.key
            for c in changes
            if c.row is not None and c.row.type == TOMBSTONE and c.held.token is not None
        ]
        if left:
            await self._by_keys(table.forget_sql, left)

    async def _by_keys(self, sql: str, keys: Sequence[Key]) -> None:
        await self._connection.execute(sql, [escape(k.tenant) for k in keys], [k.id for k in keys])


def _numbered_from(first: int, sql: str) -> str:
    """Return a statement whose parameters follow `first` others."""
    return _PARAMETER.sub(lambda found: f"${int(found[1]) + first}", sql)


async def _by_statement(
    table: PgTable, rows: Iterator[tuple[Row, int | None]], most: int
) -> AsyncIterator[list[list[Any]]]:
    """Yield the parameters of the rows, at most `most` at a time.

    Of large rows few go at a time, as arrays of them are copied several times.
    """
    for size in _portions(most, table.thresholds.rows_at_once, table.thresholds.rows_at_ends):
        some: list[list[Any]] = []
        room = table.thresholds.bytes_at_once
        async for row, partition in iterate_cooperatively(islice(rows, size)):
            some.append(table.parameters(row, partition))
            room -= table.size_of(some[-1])
            if room <= 0:
                yield some
                some, room = [], table.thresholds.bytes_at_once
        if some:
            yield some


def _portions(rows: int, most: int, at_ends: int) -> Iterator[int]:
    """Yield the number of rows of each portion."""
    between = rows - 2 * at_ends
    if between <= 0 or not at_ends:
        yield rows
        return
    yield at_ends
    pieces = -(-between // most)
    for piece in range(pieces):
        yield between * (piece + 1) // pieces - between * piece // pieces
    yield at_ends


def _condition(when: When) -> str:
    """Return the condition of a put as SQL."""
    return (
        ABSENT
        if isinstance(when, Absent)
        else NEWER
        if isinstance(when, Newer)
        else AT
        if isinstance(when, AtVersion)
        else ALWAYS
    )


def _is_blind(writes: Iterable[Write], *, at_versions: bool) -> bool:
    """Whether each write puts its own record on a condition that SQL can decide."""
    seen: set[tuple[str, Key]] = set()
    for write in writes:
        if (
            not isinstance(write, Put)
            or (isinstance(write.when, AtVersion) and not at_versions)
            or (write.collection.name, write.key) in seen
        ):
            return False
        seen.add((write.collection.name, write.key))
    return True
