"""Pages in a total order, from an engine that sorts by one number and leaves ties open.

If the first order has a numeric index, the engine walks it. It reads so many points
that the last tie is complete, and ties are sorted here. Points without a value come
before or after and are walked by the next order. Ids are walked by their rank. An order
by text, or by a field without an index, is sorted here over all matches.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from memory.adapters.qdrant.codec import stored_in, to_quarantine
from memory.adapters.qdrant.engine import Engine, FoundPoint, QdrantCondition
from memory.adapters.qdrant.filters import (
    Compiler,
    ConstantCondition,
    Part,
    is_indexed,
    path_of,
    scope_conditions,
    type_of,
)
from memory.adapters.qdrant.keys import rank
from memory.adapters.qdrant.rounding import bound_beyond
from memory.domain.errors import InvalidInput
from memory.domain.time import micros
from memory.ports.collections import FieldType
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.query import RECORDS, Everywhere, Order, Page, Position, Query, decode_cursor
from memory.ports.query_evaluation import condition, is_after, page_and_next, page_of
from memory.ports.record import Corrupt, Key, Standing

_NUMBERS = (FieldType.INTEGER, FieldType.REAL, FieldType.TIME)
_INDEXED = frozenset(("created_at", "updated_at", "expires_at", "discard_at"))
_ALWAYS_THERE = frozenset(("created_at", "updated_at"))
"""Fields that every record has, so none without need be searched."""
BY_ID = Order("id")
_FOREIGN_CURSOR = "this cursor was made for a query with another order"


async def everything(
    engine: Engine, where: QdrantCondition, keys: Sequence[str] | None = None
) -> AsyncIterator[list[FoundPoint]]:
    """Yield all matches in batches; other tasks run in between."""
    after: Any = None
    while True:
        found, after = await engine.scroll(where, engine.thresholds.read_at_once, after, keys)
        yield found
        if after is None:
            return
        await asyncio.sleep(0)


class Pager:
    """Answers one query."""

    def __init__(self, engine: Engine, query: Query) -> None:
        self._engine, self._query, self._thresholds = engine, query, engine.thresholds
        self._first = replace(query, cursor=None)  # the walk skips everything before the cursor
        self._position = None if query.cursor is None else decode_cursor(query.cursor, query.order)
        self._found: dict[Key, Standing] = {}
        self._corrupt: dict[Key, None] = {}
        self.to_quarantine: list[Key] = []

    async def page(self) -> Page:
        query, make = self._query, self._engine.conditions
        compiler = Compiler(query.collection, make)
        compiled = compiler.compile(query.filter)
        self._lets_through = condition(compiled.rest)
        part: Part = compiler.every(
            [*scope_conditions(make, query.collection, query.where, query.roles, query.types), compiled.asked]
        )
        if part is ConstantCondition.NO:
            return Page(())
        await self._walk(part, query.order or (BY_ID,), query.order, self._position)
        records, cursor = page_of(list(self._found.values()), self._first)
        return Page(tuple(records), cursor, tuple(self._corrupt))

    # -- reading -----------------------------------------------------------------------

    async def _all(self, part: QdrantCondition) -> None:
        """Read all matches, and keep only candidates for the page."""
        most = 2 * self._wanted_count + self._thresholds.read_at_once
        async for found in everything(self._engine, part):
            await self._take(found)
            if len(self._found) > most:
                self._found = {s.key: s for s in page_and_next(list(self._found.values()), self._first)}

    async def _walk(
        self, part: QdrantCondition, order: Sequence[Order], rest: Sequence[Order], position: Position | None
    ) -> None:
        """Read points in these orders until the page is full.

        Everything before `position` may be skipped.
        """
        by = order[0]
        path = self._path(by)
        if path is None:
            await self._all(part)
            return
        make = self._engine.conditions
        after = position.values[len(position.values) - len(rest)] if position is not None and rest else None
        at_missing = position is not None and bool(rest) and after is None and by.field != "id"
        start = self._start(by, position.id if by.field == "id" and position is not None else after)
        if by.field == "id" or (by.field in _ALWAYS_THERE and self._query.types == RECORDS):
            await self._numbers(part, path, by, start)
            return
        missing = make.every([part, make.missing(path)])
        further = tuple(order[1:]) or (Order("id", by.descending),)
        if not by.descending and (position is None or at_missing):
            await self._walk(missing, further, rest[1:], position if at_missing else None)
        if not (by.descending and at_missing) and not self._full:
            await self._numbers(part, path, by, start)
        if by.descending and not self._full:
            await self._walk(missing, further, rest[1:], position if at_missing else None)

    async def _numbers(self, part: QdrantCondition, path: str, by: Order, start: float | None) -> None:
        """Read points in the engine's order, complete ties at a time.

        Points that the engine may order differently count as tied.
        """
        limit = self._wanted_count + self._wanted_count // 4 + self._thresholds.beyond_a_page
        while True:
            found = await self._engine.scroll_ordered(part, path, by.descending, start, limit)
            if len(found) < limit:
                await self._take(found)
                return
            start = self._back(by, found[-1].value)
            await self._take([f for f in found if (f.value > start if by.descending else f.value < start)])
            if self._full:
                return
            limit *= 2

    async def _take(self, found: Sequence[FoundPoint]) -> None:
        async for point in iterate_cooperatively(found):
            stored = stored_in(self._query.collection, point.payload)
            if isinstance(stored, Corrupt):
                self._corrupt[stored.key] = None
                self.to_quarantine += [stored.key] if to_quarantine(point.payload) else []
            elif stored.key not in self._found and self._is_wanted(stored):
                self._found[stored.key] = stored

    @property
    def _wanted_count(self) -> int:
        return self._query.limit + 1

    @property
    def _full(self) -> bool:
        """Whether the page and the first point after it are complete.

        Records of several tenants at one position share a page.
        """
        if len(self._found) < self._wanted_count or not isinstance(self._query.where, Everywhere):
            return len(self._found) >= self._wanted_count
        return page_of(list(self._found.values()), self._first)[1] is not None

    def _path(self, by: Order) -> str | None:
        """Return the path of the indexed number to walk; None if there is none."""
        if by.field == "id":
            return "rank"
        declared = self._query.collection.field(by.field)
        indexed = is_indexed(declared) if declared is not None else by.field in _INDEXED
        numeric = type_of(self._query.collection, by.field) in _NUMBERS
        return path_of(self._query.collection, by.field) if indexed and numeric else None

    def _start(self, by: Order, after: Any) -> float | None:
        if after is None:
            return None
        if by.field == "id":
            return rank(after)
        number = micros(after) if isinstance(after, datetime) else after
        if not isinstance(number, int | float) or not abs(number) <= sys.float_info.max:
            raise InvalidInput("cursor", _FOREIGN_CURSOR)
        return self._back(by, number)

    def _back(self, by: Order, number: float) -> float:
        """Return where to start so that all possible ties with the number are found.

        Engines round the start, too.
        """
        kind = FieldType.INTEGER if by.field == "id" else type_of(self._query.collection, by.field)
        edge = bound_beyond(number, kind, by.descending)
        return edge if math.isfinite(edge) else math.copysign(sys.float_info.max, edge)

    def _is_wanted(self, standing: Standing) -> bool:
        """Whether it passes the rest of the filter and is after the last page."""
        after = self._position is None or is_after(standing, self._position, self._query.order)
        return after and self._lets_through(standing)
