"""Lying stores: single questions, what they compare and in which order they answer."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

from memory.adapters.in_memory import InMemoryStore
from memory.ports.query import (
    VECTOR,
    And,
    Condition,
    Count,
    Eq,
    Hit,
    In,
    Near,
    Not,
    Or,
    Page,
    Query,
    RowType,
    Search,
)
from memory.ports.record import Key, Record, Standing, unpack_vector
from tests.contract.faulty.registry import faulty_adapter


class _Filters(InMemoryStore):
    """Lies about what filters mean."""

    def instead(self, part: Condition) -> Condition:
        if isinstance(part, And | Or):
            return type(part)(tuple(self.instead(inner) for inner in part.parts))
        return Not(self.instead(part.part)) if isinstance(part, Not) else part

    def _find_matches(self, query: Query) -> tuple[list[Standing], list[Key]]:
        return super()._find_matches(
            replace(query, filter=None if query.filter is None else self.instead(query.filter))
        )


@faulty_adapter("test_every_operator_holds_for_exactly_what_it_says")
class KnowsNothingBesideNothing(_Filters):
    """As NOT IN does where NULL is among the values."""

    def instead(self, part: Condition) -> Condition:
        if isinstance(part, Not) and isinstance(part.part, In) and None in part.part.values:
            return Or(())
        return super().instead(part)


@faulty_adapter("test_every_operator_holds_for_exactly_what_it_says")
class TakesTagsForASet(_Filters):
    def instead(self, part: Condition) -> Condition:
        if isinstance(part, Eq) and isinstance(part.value, tuple) and 1 < len(part.value) < 5:
            return In(part.field, tuple(permutations(part.value)))
        return super().instead(part)


@faulty_adapter("test_marks_and_tombstones_are_counted_as_they_are_listed")
class CountsRecordsWhateverIsAsked(InMemoryStore):
    async def _count(self, query: Query) -> Count:
        return await super()._count(replace(query, types=frozenset({RowType.RECORD})))


@faulty_adapter("test_pages_follow_the_order_and_lose_and_repeat_nothing")
class SortsTextsByTheirHalves(InMemoryStore):
    """As UTF-16 does: what is beyond the basic plane comes before its end."""

    async def _query(self, query: Query) -> Page:
        page = await super()._query(query)
        if [by.field for by in query.order] != ["type"] or query.cursor:
            return page
        texts = {r.key: r.fields.get("type") for r in page.records if isinstance(r, Record)}
        order = {key: (text is not None, str(text).encode("utf-16-be")) for key, text in texts.items()}
        return replace(
            page,
            records=tuple(
                sorted(page.records, key=lambda r: order[r.key], reverse=query.order[0].descending)
            ),
        )


@faulty_adapter("test_vectors_whose_squares_are_no_float_have_a_direction_too")
class TakesLengthsInSinglePrecision(InMemoryStore):
    async def _search(self, search: Search) -> list[Hit]:
        hits = await super()._search(search)
        if not isinstance(search.by, Near):
            return hits
        vectors = await super()._search(replace(search, select=frozenset({VECTOR})))
        squares = {hit.head.key: [v * v for v in unpack_vector(hit.head.vector or b"")] for hit in vectors}
        return [
            hit
            for hit in hits
            if max(squares[hit.head.key]) < 3.4e38 and any(v > 1e-45 for v in squares[hit.head.key])
        ]
