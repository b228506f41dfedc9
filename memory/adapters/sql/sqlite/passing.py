"""Rows of a ranking: read from the best down, until enough pass the filter.

Nearly every row passes the filters of everyday queries. So little more than `limit`
rows are read, with the filter in the same statement. Where many tie, only their ids are
read first: the id decides between equals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import sqlalchemy as sa

from memory.adapters.sql.questions import question
from memory.adapters.sql.scoring import Candidates as Ranked
from memory.adapters.sql.several import pad_to_power_of_two, portions
from memory.adapters.sql.shapes import Shape, Values
from memory.adapters.sql.sqlite.session import Session
from memory.adapters.sql.sqlite.table import SqliteTable
from memory.ports.query import RECORDS, Condition
from memory.ports.record import Role
from memory.ports.vector_scan import exact_cosines

T = TypeVar("T")
Told: TypeAlias = tuple[int, Any, Any]
"""The number of a row, its id to sort by, and its vector where meaning ranks."""


class FilteredRows:
    """The live rows in some roles that a filter lets through."""

    def __init__(
        self, session: Session, table: SqliteTable, part: Condition | None, roles: frozenset[Role]
    ) -> None:
        self._session, self._table, self._filter, self._roles = session, table, part, roles

    def among(self, numbers: Sequence[int], columns: tuple[str, ...]) -> list[Any]:
        """Return the rows of these numbers, in no order.

        Each has its number before these columns.
        """
        rows: list[Any] = []
        for some in portions(numbers, self._table.thresholds.rows_at_once):
            values: Values = pad_to_power_of_two(some)
            shape = (len(values), self._roles, self._table.shaper.filter(self._filter, values), columns)
            asked = question(self._table, _among, shape, values)
            rows += self._session.rows(asked.sql, asked.arguments)
        return rows

    def best(
        self,
        ranked: Ranked,
        near: bytes | None,
        limit: int,
        read: Callable[[Sequence[int]], Sequence[Told]],
        made: Callable[[int], T | None],
    ) -> list[tuple[T, float]]:
        """Return the best `limit` with their scores, in no order.

        `near` is a vector where meaning ranks. `read` returns the passing rows of some
        numbers. `made` turns one into a result; a row for which it returns None is left
        out.
        """
        found: list[tuple[T, float]] = []
        seen, step = 0, limit + limit // 4
        while seen < len(ranked.numbers) and len(found) < limit:
            numbers, scores = ranked.best(seen + step)
            next_ones = dict(
                zip(numbers[seen:], scores[seen:], strict=True)
            )  # all better than the later ones
            best = self._best(next_ones, near, limit - len(found), read)
            found += [(one, score) for number, score in best if (one := made(number)) is not None]
            seen, step = len(numbers), min(4 * step, self._table.thresholds.rows_at_once)
        return found

    def _best(
        self,
        scores: Mapping[int, float],
        near: bytes | None,
        wanted: int,
        read: Callable[[Sequence[int]], Sequence[Told]],
    ) -> list[tuple[int, float]]:
        numbers = list(scores)
        if len(numbers) > 2 * wanted:
            columns = ("id",) if near is None else ("id", "vector")
            told = [(row[0], sortable(row[1]), row[-1]) for row in self.among(numbers, columns)]
            numbers = [number for number, _ in _first(told, scores, near, wanted)]
        return _first(read(numbers), scores, near, wanted)


def _first(
    told: Sequence[Told], scores: Mapping[int, float], near: bytes | None, wanted: int
) -> list[tuple[int, float]]:
    """Return the first `wanted` of these rows: by score, then by id."""
    exact = (
        [scores[number] for number, _, _ in told]
        if near is None
        else exact_cosines(near, [vector for _, _, vector in told])
    )
    order = sorted(range(len(told)), key=lambda i: (-exact[i], told[i][1]))
    return [(told[i][0], exact[i]) for i in order[:wanted]]


def _among(table: Any, shape: Shape) -> sa.Select[Any]:
    wide, roles, chosen, columns = shape
    conditions = table.conditions()
    c = table.table.c
    these = c.number.in_(conditions.values("i" * wide))
    return sa.select(c.number, *[c[name] for name in columns]).where(
        these, conditions.roles_and_types(roles, RECORDS), conditions.filter(chosen)
    )


def sortable(value: object) -> bytes:
    """Return an id to sort by, even where the row is damaged."""
    return value if isinstance(value, bytes) else b""
