"""Searches by words: the server finds and counts, the arithmetic of `memory.ports.text` ranks, and rows are read from the best down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa

from memory.adapters.sql.conditions import constant
from memory.adapters.sql.mysql.codec import shown
from memory.adapters.sql.mysql.connection import Connection
from memory.adapters.sql.mysql.partitions import MyDirectory
from memory.adapters.sql.mysql.table import MyTable
from memory.adapters.sql.mysql.words import Postings, counted
from memory.adapters.sql.questions import question, summed
from memory.adapters.sql.scoring import Candidates, Ints, gained, norms
from memory.adapters.sql.several import in_list, padded, portions
from memory.adapters.sql.shapes import Shape, Values
from memory.adapters.sql.table import Columns
from memory.ports import lexical
from memory.ports.pace import paced
from memory.ports.query import Hit, RowType, Search, Words
from memory.ports.record import Role
from memory.ports.text import query_words, rarity

_RECORDS = frozenset({RowType.RECORD})
_MOST_WORDS = 128
"""Words weighed before others get a turn."""


class TooManyPending(Exception):
    """So many records wait to be indexed that this is to be done first."""


async def search(connection: Connection, table: MyTable, directory: MyDirectory, wanted: Search, most_waiting: int) -> list[Hit]:
    """The best hits, best first.

    Raises `TooManyPending` where more than `most_waiting` records are not indexed yet.
    """
    assert isinstance(wanted.by, Words)  # noqa: S101 - it claims no other
    stems = [lexical.token(stem) for stem in query_words(wanted.by.text)]
    partitions = await directory.numbers(connection, wanted.where)
    if not stems or not partitions or not table.collection.texts:
        return []
    candidates = await _candidates(connection, table, partitions, stems, wanted.roles, most_waiting)
    there = _There(connection, table, wanted, frozenset(partitions))
    hits: list[Hit] = []
    seen, step = 0, wanted.limit + wanted.limit // 4
    while seen < len(candidates.numbers) and len(hits) < wanted.limit:
        ranked, scores = candidates.best(seen + step)
        hits += await _hits(there, dict(zip(ranked[seen:], scores[seen:], strict=True)), wanted.limit - len(hits))
        seen, step = len(ranked), min(4 * step, table.thresholds.ranked_at_once)
    hits.sort(key=lambda hit: (-hit.score, hit.head.key.id))
    return hits[: wanted.limit]


# -- candidates -------------------------------------------------------------------------------------------------------


async def _candidates(
    connection: Connection, table: MyTable, numbers: Sequence[int], stems: Sequence[str], roles: frozenset[Role], most_waiting: int
) -> Candidates:
    """Every record of these roles that holds one of the words, scored by BM25F with the statistics of exactly these partitions and roles."""
    assert table.words is not None  # noqa: S101 - its collection has texts
    documents = total = 0
    found: dict[str, list[Postings]] = {stem: [] for stem in stems}
    for some in portions(numbers, table.thresholds.listed):
        # Before the index is asked: what moves there meanwhile is then seen twice, not missed.
        seen = await _waiting(connection, table, some, roles, found, most_waiting)
        d, t, others = await _counted(connection, table, some, roles)
        documents, total = documents + d, total + t
        if others:
            seen = np.concatenate([seen, await _others(connection, table, some, roles)])
        for word, rows in await table.words.find(connection, some, stems):
            found[word].append(rows[~np.isin(rows[:, 0], seen)] if len(seen) else rows)
    average = total / documents if documents else 0.0
    held = {stem: np.concatenate(arrays) for stem, arrays in found.items() if arrays}
    if not held:
        return Candidates(np.empty(0, np.int64), np.empty(0, np.float64))
    ids: Ints = np.unique(np.concatenate([rows[:, 0] for rows in held.values()]))
    scores, matched = np.zeros(len(ids)), np.zeros(len(ids), np.bool_)
    async for rows in paced(held.values(), _MOST_WORDS):
        frequencies = lexical.weighed(table.collection, rows[:, 1])
        rows, frequencies = rows[frequencies > 0], frequencies[frequencies > 0]
        at = np.searchsorted(ids, rows[:, 0])
        scores[at] += gained(rarity(documents, len(rows)), frequencies, norms(rows[:, 2].astype(np.float64), average))
        matched[at] = True
    return Candidates(ids[matched], scores[matched])


async def _waiting(
    connection: Connection, table: MyTable, numbers: Sequence[int], roles: frozenset[Role], found: dict[str, list[Postings]], most: int
) -> Ints:
    """Add what rows hold whose words are not indexed; the numbers of all such rows."""
    asked, wanted = {role.value for role in roles}, padded(numbers)
    rows = await connection.fetch(f"{table.pending} AND partition_no IN {in_list(len(wanted))} LIMIT ?", *wanted, most + 1)
    if len(rows) > most:
        raise TooManyPending
    for number, _, role, words in rows:
        if shown(role) in asked:
            length, counts = counted(words)
            for stem, held in found.items():
                if stem in counts:
                    held.append(np.array([(number, counts[stem], length)], np.int64))
    return np.array([row[0] for row in rows], np.int64)


async def _counted(connection: Connection, table: MyTable, numbers: Sequence[int], roles: frozenset[Role]) -> tuple[int, int, bool]:
    """How many records of these roles there are, how many words in them, and whether there are records of other roles."""
    values: Values = padded(numbers)
    asked = question(table, _count, (len(values), roles), values)
    ((everything, documents, total),) = await connection.fetch(asked.sql, *asked.arguments)
    return int(documents), int(total), documents != everything


def _count(table: Any, shape: Shape) -> sa.Select[Any]:
    wide, roles = shape
    c = table.table.c
    there = table.conditions().some(c.partition_no, "i", wide)
    wanted = c.role.in_([constant(role.value) for role in sorted(roles)])
    none: sa.ColumnElement[int] = sa.literal_column("0")
    one: sa.ColumnElement[int] = sa.literal_column("1")
    columns: list[sa.ColumnElement[Any]] = [sa.func.count(), *[summed(sa.case((wanted, what), else_=none)) for what in (one, c.length)]]
    counted = sa.select(*columns).select_from(table.table).where(there)
    return counted.with_hint(table.table, f"FORCE INDEX (`ix_{table.name}_members`)", "mysql")


async def _others(connection: Connection, table: MyTable, numbers: Sequence[int], roles: frozenset[Role]) -> Ints:
    """The numbers of the records there that have other roles."""
    values: Values = padded(numbers)
    asked = question(table, _of_other_roles, (len(values), roles), values)
    return np.array([number for (number,) in await connection.fetch(asked.sql, *asked.arguments)], np.int64)


def _of_other_roles(table: Any, shape: Shape) -> sa.Select[Any]:
    wide, roles = shape
    there = table.conditions().some(table.table.c.partition_no, "i", wide)
    other = table.table.c.role.not_in([constant(role.value) for role in sorted(roles)])
    named = sa.select(table.table.c.number).where(there, other)
    return named.with_hint(table.table, f"FORCE INDEX (`ix_{table.name}_members`)", "mysql")


# -- hits -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _There:
    """Where hits are read: what was asked, and the partitions. A record that has moved elsewhere since it was found is no hit any more."""

    connection: Connection
    table: MyTable
    search: Search
    partitions: frozenset[int]

    async def rows(self, numbers: Sequence[int], columns: tuple[str, ...]) -> list[Columns]:
        """The live rows of these numbers, in the asked roles, that the filter lets through, each with its number before it."""
        rows: list[Columns] = []
        for some in portions(numbers, self.table.thresholds.listed):
            values: Values = padded(some)
            wide = len(values)
            chosen = self.table.shaper.filter(self.search.filter, values)
            asked = question(self.table, _choose, (columns, wide, self.search.roles, chosen), values)
            found = await self.connection.fetch(asked.sql, *asked.arguments)
            rows += [row[1:] for row in found if row[0] in self.partitions]
        return rows


async def _hits(there: _There, scores: Mapping[int, float], wanted: int) -> list[Hit]:
    """The best `wanted` among the records of these numbers that the filter lets through, in no order."""
    numbers = list(scores)
    if len(numbers) > 2 * wanted:  # where many tie the id decides: only ids are read first
        named = [(row[0], row[1]) for row in await there.rows(numbers, ("id",))]
        numbers = [number for number, _ in sorted(named, key=lambda row: (-scores[row[0]], row[1]))[:wanted]]
    selection = there.table.selection(there.search.select)
    hits: list[Hit] = []
    async for number, *row in paced(await there.rows(numbers, selection.columns)):
        head = selection.read(dict(zip(selection.columns, row, strict=True)))
        hits += [] if head is None else [Hit(head, scores[number])]
    return hits


def _choose(table: Any, shape: Shape) -> sa.Select[Any]:
    columns, wide, roles, chosen = shape
    conditions = table.conditions()
    c = table.table.c
    these = conditions.some(c.number, "i", wide)
    before = (c.partition_no.label("row_partition"), c.number.label("row_number"))
    return sa.select(*before, *[c[name] for name in columns]).where(these, conditions.standing(roles, _RECORDS), conditions.filter(chosen))
