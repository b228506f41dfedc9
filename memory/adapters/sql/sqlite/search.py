"""From candidates to hits: rows are read from the best down, those the filter lets through, until there are enough.

Nearly every candidate passes the filters of everyday searches, so little more than `limit` rows are read, the filter in the same statement.
Where many candidates tie, only their ids are read first: the id decides between equals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from memory.adapters.sql.partitions import Directory
from memory.adapters.sql.questions import question
from memory.adapters.sql.several import padded, portions
from memory.adapters.sql.shapes import Shape, Values
from memory.adapters.sql.sqlite.members import MemberCache
from memory.adapters.sql.sqlite.ranking import Population, by_meaning, by_words
from memory.adapters.sql.sqlite.session import Session
from memory.adapters.sql.sqlite.table import SqliteTable, table_of
from memory.ports.nearness import exact_cosines
from memory.ports.query import Hit, Near, RowType, Search

_RECORDS = frozenset({RowType.RECORD})


async def search(session: Session, directory: Directory[Session], search: Search, cache: MemberCache) -> list[Hit]:
    """The best hits, best first."""
    table = table_of(session, search.collection)
    vectors = isinstance(search.by, Near) and search.collection.vector
    population = Population(session, table, cache.members(session, table, await directory.numbers(session, search.where), vectors), search.roles)
    ranked = by_meaning(search.by.vector, population) if isinstance(search.by, Near) else by_words(table, search.by.text, population)
    hits: list[Hit] = []
    seen, step = 0, search.limit + search.limit // 4
    while seen < len(ranked.numbers) and len(hits) < search.limit:
        numbers, scores = ranked.best(seen + step)
        hits += _Reader(session, table, search, dict(zip(numbers[seen:], scores[seen:], strict=True)), search.limit - len(hits)).hits()
        seen, step = len(numbers), min(4 * step, session.thresholds.rows_at_once)
    hits.sort(key=lambda hit: (-hit.score, hit.head.key.id))
    return hits[: search.limit]


class _Reader:
    """Reads the next few candidates, all better than what comes after them."""

    def __init__(self, session: Session, table: SqliteTable, search: Search, scores: dict[int, float], wanted: int) -> None:
        self._session, self._table, self._search = session, table, search
        self._scores, self._wanted = scores, wanted
        self._near = search.by.vector if isinstance(search.by, Near) else None

    def hits(self) -> list[Hit]:
        """Those among the best `wanted` that can be read, in no order."""
        numbers = list(self._scores)
        if len(numbers) > 2 * self._wanted:
            numbers = self._narrowed(numbers)
        selection = self._table.selection(self._search.select)
        columns = selection.columns if self._near is None or "vector" in selection.columns else (*selection.columns, "vector")
        rows = {r[0]: dict(zip(columns, r[1:], strict=True)) for r in self._among(numbers, columns)}
        best = self._best([(number, row["id"], row["vector"] if self._near is not None else b"") for number, row in rows.items()])
        found = [(selection.read(rows[number]), score) for number, score in best]
        return [Hit(head, score) for head, score in found if head is not None]

    def _narrowed(self, numbers: list[int]) -> list[int]:
        """The best `wanted` of them, from no more of each row than that takes."""
        columns = ("id",) if self._near is None else ("id", "vector")
        rows = [(r[0], r[1], r[-1]) for r in self._among(numbers, columns)]
        return [number for number, _ in self._best(rows)]

    def _among(self, numbers: Sequence[int], columns: tuple[str, ...]) -> list[Any]:
        """The live rows of these numbers, in the asked roles, that the filter lets through, each with its number before these columns."""
        rows: list[Any] = []
        for some in portions(numbers, self._table.thresholds.rows_at_once):
            values: Values = padded(some)
            shape = (len(values), self._search.roles, self._table.shaper.filter(self._search.filter, values), columns)
            asked = question(self._table, _among, shape, values)
            rows += self._session.rows(asked.sql, asked.arguments)
        return rows

    def _best(self, rows: Sequence[tuple[int, bytes, bytes]]) -> list[tuple[int, float]]:
        """The best `wanted` of rows (number, id, vector): by score, then by id."""
        scores = [self._scores[r[0]] for r in rows] if self._near is None else exact_cosines(self._near, [r[2] for r in rows])
        order = sorted(range(len(rows)), key=lambda i: (-scores[i], _bytes(rows[i][1])))
        return [(rows[i][0], scores[i]) for i in order[: self._wanted]]


def _among(table: Any, shape: Shape) -> sa.Select[Any]:
    wide, roles, chosen, columns = shape
    conditions = table.conditions()
    c = table.table.c
    these = c.number.in_(conditions.values("i" * wide))
    return sa.select(c.number, *[c[name] for name in columns]).where(these, conditions.standing(roles, _RECORDS), conditions.filter(chosen))


def _bytes(value: object) -> bytes:
    """An id to sort by, also where the row is damaged."""
    return value if isinstance(value, bytes) else b""
