"""Searches by words on MySQL.

The server finds and counts, `memory.ports.text` ranks, and rows are read from the best
down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
import sqlalchemy as sa

from memory.adapters.sql.codec import id_bytes
from memory.adapters.sql.conditions import constant
from memory.adapters.sql.mysql.codec import to_text
from memory.adapters.sql.mysql.connection import Connection
from memory.adapters.sql.mysql.partitions import MyDirectory
from memory.adapters.sql.mysql.table import MyTable
from memory.adapters.sql.mysql.words import Postings, length_and_counts
from memory.adapters.sql.questions import Question, question
from memory.adapters.sql.scoring import Candidates
from memory.adapters.sql.selection import Selection
from memory.adapters.sql.several import in_list, pad_to_power_of_two, portions
from memory.adapters.sql.shapes import TRUE, Shape, Values
from memory.adapters.sql.table import Columns
from memory.ports import candidates, lexical
from memory.ports.bm25 import Ints, norms, term_scores
from memory.ports.collections import Collection
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.query import RECORDS, Everywhere, Head, Hit, Search, Words
from memory.ports.record import Role
from memory.ports.text import query_words, rarity

_MOST_WORDS = 128
"""The number of words that are weighed before other tasks get a turn."""


class IndexBacklog(Exception):
    """So many records wait to be indexed that they must be indexed first."""


async def search(
    connection: Connection, table: MyTable, directory: MyDirectory, wanted: Search, most_waiting: int
) -> list[Hit]:
    """Return the best hits, best first.

    Raises:
        IndexBacklog: More than `most_waiting` records are not indexed yet.
    """
    assert isinstance(wanted.by, Words)  # noqa: S101 - it claims no other
    stems = [lexical.token(stem) for stem in query_words(wanted.by.text)]
    partitions = await directory.numbers(connection, wanted.where)
    if not stems or not partitions or not table.collection.texts:
        return []
    found = await find(connection, table, partitions, stems, wanted.roles, most_waiting)
    there, selection = (
        RowReader(connection, table, wanted, frozenset(partitions)),
        table.selection(wanted.select),
    )
    best, _ = await best_of(there, await found.score(table.collection, stems), wanted.limit, selection)
    return [Hit(head, score) for head, score in best]


# -- what is found ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LexicalMatches:
    """The number of records and of their words, and the postings of each word.

    Postings are rows of number, packed counts, and number of words.
    """

    documents: int
    total: int
    held: Mapping[str, Sequence[Postings]]

    def document_frequency(self, stem: str) -> int:
        """Return how many records have the word."""
        return sum(map(len, self.held[stem]))

    async def score(self, collection: Collection, stems: Sequence[str]) -> Candidates:
        """Score every record with one of these words by BM25F.

        The statistics are those of exactly the requested partitions and roles.
        """
        average = self.total / self.documents if self.documents else 0.0
        held = [np.concatenate(self.held[stem]) for stem in stems if self.held[stem]]
        if not held:
            return Candidates(np.empty(0, np.int64), np.empty(0, np.float64))
        ids: Ints = np.unique(np.concatenate([rows[:, 0] for rows in held]))
        scores, matched = np.zeros(len(ids)), np.zeros(len(ids), np.bool_)
        async for rows in iterate_cooperatively(held, _MOST_WORDS):
            frequencies = lexical.weighted_sum(collection, rows[:, 1])
            rows, frequencies = rows[frequencies > 0], frequencies[frequencies > 0]
            at = np.searchsorted(ids, rows[:, 0])
            scores[at] += term_scores(
                rarity(self.documents, len(rows)), frequencies, norms(rows[:, 2].astype(np.float64), average)
            )
            matched[at] = True
        return Candidates(ids[matched], scores[matched])


_WAITING, _COUNTED, _POSTINGS = range(3)
"""The kinds of rows in one answer."""


async def find(
    connection: Connection,
    table: MyTable,
    numbers: Sequence[int],
    stems: Sequence[str],
    roles: frozenset[Role],
    most_waiting: int,
) -> LexicalMatches:
    """Find the words in these partitions' records of these roles.

    There may be no words.
    """
    documents = total = 0
    found: dict[str, list[Postings]] = {stem: [] for stem in stems}
    for some in portions(numbers, table.thresholds.listed):
        sql, values = _find_statement(table, some, stems, roles, most_waiting)
        rows = await connection.fetch(sql, *values)
        waiting = [row[1:] for row in rows if row[0] == _WAITING]
        if len(waiting) > most_waiting:
            raise IndexBacklog
        ((everything, d, t),) = [row[1:4] for row in rows if row[0] == _COUNTED]
        documents, total = documents + d, total + t
        if table.words is None or not stems:
            continue
        seen = _add_waiting(waiting, roles, found)
        if d != everything:
            seen = np.concatenate([seen, await _others(connection, table, some, roles)])
        for word, postings in await table.words.postings_of(
            stems, [(row[1], row[5]) for row in rows if row[0] == _POSTINGS]
        ):
            found[word].append(postings[~np.isin(postings[:, 0], seen)] if len(seen) else postings)
    return LexicalMatches(documents, total, found)


def _find_statement(
    table: MyTable, numbers: Sequence[int], stems: Sequence[str], roles: frozenset[Role], most_waiting: int
) -> tuple[str, Values]:
    """Return one statement, so that all its parts see one moment.

    It counts the records of these roles and their words. It selects the rows whose
    words are not indexed, and the contents of the words' buckets.
    """
    wanted = pad_to_power_of_two(numbers)
    there = f"partition_no IN {in_list(len(wanted))}"
    ours = f"role IN ({', '.join([repr(role.value) for role in sorted(roles)])})"
    sums = ", ".join(
        [
            f"CAST(COALESCE(SUM(CASE WHEN {ours} THEN {what} ELSE 0 END), 0) AS SIGNED)"
            for what in ("1", "length")
        ]
    )
    counted = f"SELECT {_COUNTED}, COUNT(*), {sums}, NULL, NULL FROM {table.quoted} FORCE INDEX (`ix_{table.name}_members`) WHERE {there}"  # noqa: S608
    if table.words is None or not stems:
        return counted, wanted
    postings, values = table.words.find_statement(numbers, stems)
    waiting = (
        f"SELECT {_WAITING}, w.number, 0, 0, w.role, w.words FROM ({table.pending} AND {there} LIMIT ?) AS w"  # noqa: S608
    )
    held = f"SELECT {_POSTINGS}, p.bucket, 0, 0, NULL, p.postings FROM ({postings}) AS p"  # noqa: S608
    return f"{counted} UNION ALL {waiting} UNION ALL {held}", [*wanted, *wanted, most_waiting + 1, *values]


def _add_waiting(
    rows: Sequence[Sequence[Any]], roles: frozenset[Role], found: Mapping[str, list[Postings]]
) -> Ints:
    """Add the words of rows that are not indexed; return all such rows' numbers."""
    asked = {role.value for role in roles}
    for number, _, _, role, words in rows:
        if to_text(role) in asked:
            length, counts = length_and_counts(words)
            for stem, held in found.items():
                if stem in counts:
                    held.append(np.array([(number, counts[stem], length)], np.int64))
    return np.array([row[0] for row in rows], np.int64)


async def _others(
    connection: Connection, table: MyTable, numbers: Sequence[int], roles: frozenset[Role]
) -> Ints:
    """Return the numbers of the records there that have other roles."""
    values: Values = pad_to_power_of_two(numbers)
    asked = question(table, _of_other_roles, (len(values), roles), values)
    return np.array([number for (number,) in await connection.fetch(asked.sql, *asked.arguments)], np.int64)


def _of_other_roles(table: Any, shape: Shape) -> sa.Select[Any]:
    wide, roles = shape
    there = table.conditions().some(table.table.c.partition_no, "i", wide)
    other = table.table.c.role.not_in([constant(role.value) for role in sorted(roles)])
    named = sa.select(table.table.c.number).where(there, other)
    return named.with_hint(table.table, f"FORCE INDEX (`ix_{table.name}_members`)", "mysql")


# -- rows ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowReader:
    """Reads rows of a query in its partitions.

    A record that has moved elsewhere since it was found is not a hit any more.
    """

    connection: Connection
    table: MyTable
    asked: Search | candidates.Candidates
    partitions: frozenset[int]

    @property
    def tenant(self) -> str:
        assert not isinstance(self.asked.where, Everywhere)  # noqa: S101 - only candidates ask for it
        return self.asked.where.tenant

    async def rows(
        self, numbers: Sequence[int], columns: tuple[str, ...], named: Sequence[str] = ()
    ) -> list[Columns]:
        """Return the live rows of these numbers, and of these ids, with the roles.

        They must pass the filter. Each has its number before it.
        """
        rows: dict[int, Columns] = {}
        most = self.table.thresholds.listed
        for some, ids in zip_longest(portions(numbers, most), portions(named, most), fillvalue=()):
            question = self._rows_question(
                pad_to_power_of_two(some) if some else [], columns, pad_to_power_of_two(ids) if ids else []
            )
            found = await self.connection.fetch(question.sql, *question.arguments)
            rows |= {row[1]: row[1:] for row in found if row[0] in self.partitions}
        return list(rows.values())

    def _rows_question(
        self, numbers: Sequence[Any], columns: tuple[str, ...], named: Sequence[Any]
    ) -> Question:
        values: Values = [*numbers]
        chosen = self.table.shaper.filter(self.asked.filter, values) if numbers else TRUE
        if named:
            values += (self.tenant, *map(id_bytes, named))
            chosen = self.table.shaper.filter(self.asked.filter, values)
        return question(
            self.table, _choose, (columns, len(numbers), len(named), self.asked.roles, chosen), values
        )


async def best_of(
    there: RowReader, scored: Candidates, limit: int, selection: Selection, named: Sequence[str] = ()
) -> tuple[list[tuple[Head, float]], list[Head]]:
    """Return the best passing heads with scores, and the passing ones of these ids.

    The best are at most `limit`, best first, and ties go by id.
    """
    best: list[tuple[Head, float]] = []
    those: list[Head] = []
    seen, step, wanted = 0, limit + limit // 4, frozenset(named)
    while named or (seen < len(scored.numbers) and len(best) < limit):
        ranked, scores = scored.best(seen + step)
        these = dict(zip(ranked[seen:], scores[seen:], strict=True))
        heads = await _heads(there, these, limit - len(best), selection, named)
        best += [(head, these[number]) for number, head in heads if number in these]
        those += [head for _, head in heads if head.key.id in wanted]
        named, seen, step = (), len(ranked), min(4 * step, there.table.thresholds.ranked_at_once)
    best.sort(key=lambda one: (-one[1], one[0].key.id))
    return best[:limit], those


async def _heads(
    there: RowReader, scores: Mapping[int, float], wanted: int, selection: Selection, named: Sequence[str]
) -> list[tuple[int, Head]]:
    """Return the best `wanted` passing records of these numbers, in no order.

    The passing ones of these ids are there too.
    """
    numbers = list(scores)
    if len(numbers) > 2 * wanted:  # ids break ties: of many ties, only ids are read first
        told = await there.rows(numbers, ("id",))
        numbers = [number for number, _ in sorted(told, key=lambda row: (-scores[row[0]], row[1]))[:wanted]]
    rows = await there.rows(numbers, selection.columns, named)
    read = [
        (number, selection.read(dict(zip(selection.columns, row, strict=True))))
        async for number, *row in iterate_cooperatively(rows)
    ]
    return [(number, head) for number, head in read if head is not None]


def _choose(table: Any, shape: Shape) -> Any:
    columns, wide, named, roles, chosen = shape
    conditions = table.conditions()
    c = table.table.c

    def live(*these: sa.ColumnElement[bool]) -> sa.Select[Any]:
        before = (c.partition_no.label("row_partition"), c.number.label("row_number"))
        asked = [conditions.roles_and_types(roles, RECORDS), conditions.filter(chosen)]
        return sa.select(*before, *[c[name] for name in columns]).where(*these, *asked)

    parts = [live(conditions.some(c.number, "i", wide))] if wide else []
    parts += [live(c.tenant == conditions.value("s"), conditions.some(c.id, "b", named))] if named else []
    return parts[0] if len(parts) == 1 else sa.union_all(*parts)
