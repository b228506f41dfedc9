"""Faulty adapters of a fourth round: with an index, or a portion, that one kind of
question has for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from memory.adapters.in_memory import InMemoryStore
from memory.adapters.in_memory.state import State
from memory.ports.candidates import CandidateColumns, Candidates
from memory.ports.query import (
    And,
    Condition,
    Count,
    Eq,
    Ge,
    Gt,
    Hit,
    In,
    IsNull,
    Le,
    Lt,
    Near,
    Not,
    Or,
    Order,
    Page,
    Partitions,
    Query,
    Search,
)
from memory.ports.record import Key, Partition, Record
from memory.ports.writes import Outcome, Put, Write
from tests.contract.faulty.registry import PerWrite, faulty_adapter

ANNOTATED = "test_every_kind_of_question_sees_what_an_annotation_left"
ALIKE = "test_no_field_is_taken_for_another_in_any_kind_of_question"
LONG_LISTS = "test_every_kind_of_question_takes_long_lists_whole"
LONG_VALUES = "test_heads_and_candidates_carry_long_values_whole"

# -- an index for one kind of question -------------------------------------------------


def _mapped(part: Condition | None, change: Callable[[Any], Condition]) -> Condition | None:
    """The same filter with other comparisons."""
    match part:
        case None:
            return None
        case And(parts) | Or(parts):
            return type(part)(tuple([p for one in parts if (p := _mapped(one, change)) is not None]))
        case Not(inner):
            return Not(_mapped(inner, change) or inner)
        case _:
            return change(part)


class _SearchesCopies(PerWrite):
    """Searches copies of the records, which annotations do not reach."""

    names: ClassVar[tuple[str, ...]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._copies: dict[tuple[str, Key], Record] = {}

    def lie(self, write: Write) -> Outcome:
        outcome = super().lie(write)
        if isinstance(write, Put) and outcome.applied:
            stored = self.state.fetch_stored(write.collection.name, write.key)
            assert isinstance(stored, Record)
            self._copies[write.collection.name, write.key] = stored
        return outcome

    def _copied(self) -> State:
        """The state as the copies have it, in these values."""
        copy = State()
        copy.restore(self.state.snapshot())
        for (name, key), put in self._copies.items():
            stored = self.state.fetch_stored(name, key)
            if isinstance(stored, Record) and stored.version == put.version:
                values: dict[str, Any] = {part: getattr(put, part) for part in self.names}
                copy.place(name, key, replace(stored, **values))
        return copy

    async def _search(self, search: Search) -> list[Hit]:
        state, self.state = self.state, self._copied()
        try:
            return await super()._search(search)
        finally:
            self.state = state


@faulty_adapter(ANNOTATED)
class SearchesTheOldExpiry(_SearchesCopies):
    names = ("expires_at",)


@faulty_adapter(ANNOTATED)
class SearchesOldAccesses(_SearchesCopies):
    names = ("accesses", "accessed_at")


@faulty_adapter(ANNOTATED)
class SearchesSettledSteps(_SearchesCopies):
    names = ("owed",)


@faulty_adapter(ANNOTATED)
class BringsCandidatesOfTheOldTier(_SearchesCopies):
    names = ("tier",)

    async def _search(self, search: Search) -> list[Hit]:
        return await InMemoryStore._search(self, search)

    async def _candidates(self, asked: Candidates) -> CandidateColumns:
        state, self.state = self.state, self._copied()
        try:
            return await super()._candidates(asked)
        finally:
            self.state = state


def _cut(value: Any) -> Any:
    return value[:1_000] if isinstance(value, str | bytes | tuple) else value


@faulty_adapter(LONG_VALUES)
class CutsLongValuesOfHeads(InMemoryStore):
    """Reads heads from an index whose values are short."""

    async def _query(self, query: Query) -> Page:
        page = await super()._query(query)
        if query.select is None:
            return page
        rows = [r for r in page.records if isinstance(r, Record)]
        short = [replace(r, fields={name: _cut(v) for name, v in r.fields.items()}) for r in rows]
        return replace(page, records=tuple(short))


@faulty_adapter(LONG_VALUES)
class CutsLongValuesOfHits(InMemoryStore):
    async def _search(self, search: Search) -> list[Hit]:
        hits = await super()._search(search)
        cut = [{name: _cut(value) for name, value in hit.head.fields.items()} for hit in hits]
        return [replace(h, head=replace(h.head, fields=f)) for h, f in zip(hits, cut, strict=True)]


@faulty_adapter(LONG_VALUES)
class CutsLongValuesOfCandidates(InMemoryStore):
    async def _candidates(self, asked: Candidates) -> CandidateColumns:
        answer = await super()._candidates(asked)
        fields = {name: [_cut(value) for value in values] for name, values in answer.fields.items()}
        return replace(answer, fields=fields)


class _TakesForAnother(InMemoryStore):
    """Takes one field for another in some kind of question."""

    instead: ClassVar[dict[str, str]]

    def taken(self, part: Condition | None) -> Condition | None:
        def change(one: Any) -> Condition:
            if isinstance(one, Eq | In | Lt | Le | Gt | Ge | IsNull):
                return replace(one, field=self.instead.get(one.field, one.field))
            return one  # type: ignore[no-any-return]

        return _mapped(part, change)


@faulty_adapter(ALIKE)
class TakesACreationForAChange(_TakesForAnother):
    instead: ClassVar[dict[str, str]] = {"updated_at": "created_at"}

    async def _query(self, query: Query) -> Page:
        return await super()._query(replace(query, filter=self.taken(query.filter)))


@faulty_adapter(ALIKE)
class CountsByAnotherMoment(_TakesForAnother):
    instead: ClassVar[dict[str, str]] = {"accessed_at": "updated_at"}

    async def _count(self, query: Query) -> Count:
        return await super()._count(replace(query, filter=self.taken(query.filter)))


@faulty_adapter(ALIKE)
class SearchesByTheVersionForTheGeneration(_TakesForAnother):
    instead: ClassVar[dict[str, str]] = {"generation": "version"}

    async def _search(self, search: Search) -> list[Hit]:
        return await super()._search(replace(search, filter=self.taken(search.filter)))


@faulty_adapter(ALIKE)
class OrdersByAnotherNumber(_TakesForAnother):
    instead: ClassVar[dict[str, str]] = {"accesses": "version"}

    async def _query(self, query: Query) -> Page:
        order = tuple(Order(self.instead.get(by.field, by.field), by.descending) for by in query.order)
        return await super()._query(replace(query, order=order))


# -- long lists ------------------------------------------------------------------------

PORTION = 999


def _shortened(part: Condition | None, fields: frozenset[str]) -> Condition | None:
    return _mapped(
        part, lambda p: In(p.field, p.values[:PORTION]) if isinstance(p, In) and p.field in fields else p
    )


class _TakesShortLists(InMemoryStore):
    """Asks for the first of a long list in searches alone."""

    def short(self, search: Search) -> Search:
        raise NotImplementedError

    async def _search(self, search: Search) -> list[Hit]:
        return await super()._search(self.short(search))


@faulty_adapter(LONG_LISTS)
class SearchesByMeaningInTheFirstScopes(_TakesShortLists):
    def short(self, search: Search) -> Search:
        if isinstance(search.where, Partitions) and isinstance(search.by, Near):
            return replace(search, where=Partitions(search.where.partitions[:PORTION]))
        return search


@faulty_adapter(LONG_LISTS)
class SearchesForTheFirstIds(_TakesShortLists):
    def short(self, search: Search) -> Search:
        return replace(search, filter=_shortened(search.filter, frozenset({"id"})))


@faulty_adapter(LONG_LISTS)
class CountsTheFirstOfManyNumbers(InMemoryStore):
    async def _count(self, query: Query) -> Count:
        short = _shortened(query.filter, frozenset({"number", "share", "valid_to"}))
        return await super()._count(replace(query, filter=short))


@faulty_adapter(LONG_LISTS)
class NamesTheFirstOfManyCandidates(InMemoryStore):
    async def _candidates(self, asked: Candidates) -> CandidateColumns:
        return await super()._candidates(replace(asked, among=asked.among[:PORTION]))


@faulty_adapter(LONG_LISTS)
class ForgetsTheFirstOfManyPartitions(InMemoryStore):
    async def _forget_partitions(self, idle: Sequence[tuple[Partition, int]]) -> int:
        return await super()._forget_partitions(idle[:PORTION])
