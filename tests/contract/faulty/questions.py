"""Lying stores: what they make of questions at the door."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from memory.adapters.in_memory import InMemoryStore
from memory.ports.query import And, Condition, Eq, Ge, Has, In, Lt, Not, Or, Page, Query, StartsWith
from tests.contract.faulty.registry import faulty_adapter

PREFIX = "test_texts_are_found_by_how_they_begin_character_by_character"
REFUSED = "test_what_no_store_asks_is_refused_by_name_and_its_neighbours_are_answered"
LIMIT = "test_a_limit_that_is_none_is_refused_and_counting_and_deleting_take_no_notice_of_it"


def rewritten(part: Condition | None, how: Callable[[Condition], Condition]) -> Condition | None:
    """The filter with each of its leaves made another."""
    match part:
        case None:
            return None
        case And(parts) | Or(parts):
            return type(part)(tuple(made for p in parts if (made := rewritten(p, how)) is not None))
        case Not(inner):
            made = rewritten(inner, how)
            return made if made is None else Not(made)
        case _:
            return how(part)


class _Asks(InMemoryStore):
    """Makes something else of a query's filter before it is looked at."""

    def leaf(self, part: Condition) -> Condition:
        return self.prefix(part.field, part.prefix) if isinstance(part, StartsWith) else part

    def prefix(self, field: str, prefix: str) -> Condition:
        return StartsWith(field, prefix)

    async def query(self, query: Query) -> Page:
        if isinstance(query.filter, StartsWith) or (
            isinstance(query.filter, Not) and isinstance(query.filter.part, StartsWith)
        ):
            query = replace(query, filter=rewritten(query.filter, self.leaf))
        return await super().query(query)


@faulty_adapter(PREFIX)
class EndsPrefixesBeforeTheLastPlanes(_Asks):
    def prefix(self, field: str, prefix: str) -> Condition:
        return And((Ge(field, prefix), Lt(field, prefix + "\uffff")))


@faulty_adapter(PREFIX)
class TakesNoPrefixForAnyRecord(_Asks):
    def prefix(self, field: str, prefix: str) -> Condition:
        return StartsWith(field, prefix) if prefix else And(())


@faulty_adapter(PREFIX)
class TakesPrefixesForWholeTexts(_Asks):
    def prefix(self, field: str, prefix: str) -> Condition:
        return Eq(field, prefix)


@faulty_adapter(PREFIX)
class ForgetsWhereAPrefixEnds(_Asks):
    def prefix(self, field: str, prefix: str) -> Condition:
        return Ge(field, prefix)


class _Forgives(InMemoryStore):
    """Asks a filter that is no filter with something left out of it."""

    def forgiven(self, part: object) -> Condition | None:
        raise NotImplementedError

    async def query(self, query: Query) -> Page:
        return await super().query(replace(query, filter=self.forgiven(query.filter)))


def _is_text(value: object) -> bool:
    try:
        return not isinstance(value, str) or bool(value.encode()) or True
    except UnicodeEncodeError:
        return False


@faulty_adapter(REFUSED)
class FindsNothingByHalfACharacter(InMemoryStore):
    async def query(self, query: Query) -> Page:
        values = getattr(query.filter, "values", None) or (getattr(query.filter, "value", None),)
        return await super().query(query) if all(map(_is_text, values)) else Page(())


@faulty_adapter(REFUSED)
class FindsNothingByANumberForAText(InMemoryStore):
    async def query(self, query: Query) -> Page:
        return Page(()) if query.filter == Eq("type", 5) else await super().query(query)


@faulty_adapter(REFUSED)
class LeavesOutBadValues(_Forgives):
    def forgiven(self, part: object) -> Condition | None:
        if isinstance(part, In) and part.field == "type":
            return In(part.field, tuple(v for v in part.values if v is None or isinstance(v, str)))
        return part  # type: ignore[return-value]


@faulty_adapter(REFUSED)
class CutsLongListsOfValues(_Forgives):
    def forgiven(self, part: object) -> Condition | None:
        return (
            In(part.field, part.values[:50_000])  # type: ignore[return-value]
            if isinstance(part, In) and isinstance(part.values, tuple)
            else part
        )


@faulty_adapter(REFUSED)
class AsksHalfOfAWideFilter(_Forgives):
    def forgiven(self, part: object) -> Condition | None:
        return Or(part.parts[:500]) if isinstance(part, Or) else part  # type: ignore[return-value]


@faulty_adapter(REFUSED)
class TakesDeepFiltersForNone(_Forgives):
    def forgiven(self, part: object) -> Condition | None:
        depth, at = 0, part
        while isinstance(at, And | Or | Not):
            at, depth = (at.part if isinstance(at, Not) else at.parts[0]), depth + 1
        return None if depth > 31 else part  # type: ignore[return-value]


@faulty_adapter(REFUSED)
class LooksForTagsInTexts(_Forgives):
    def forgiven(self, part: object) -> Condition | None:
        return Eq(part.field, part.tag) if isinstance(part, Has) and part.field == "type" else part  # type: ignore[return-value]


@faulty_adapter(LIMIT)
class ClampsLargeLimits(InMemoryStore):
    async def query(self, query: Query) -> Page:
        return await super().query(
            replace(query, limit=min(query.limit, 10_000)) if isinstance(query.limit, int) else query
        )


@faulty_adapter(LIMIT)
class TakesNoLimitForTheUsualOne(InMemoryStore):
    async def query(self, query: Query) -> Page:
        return await super().query(query if query.limit is not None else replace(query, limit=100))


@faulty_adapter(LIMIT)
class TakesTruthForOne(InMemoryStore):
    async def query(self, query: Query) -> Page:
        return await super().query(replace(query, limit=int(query.limit)) if query.limit is True else query)


@faulty_adapter("test_more_orders_than_there_may_be_are_refused")
class LeavesOutOrders(InMemoryStore):
    async def query(self, query: Query) -> Page:
        return await super().query(replace(query, order=query.order[:8]))
