"""Lying stores: which scopes are in a subtree, and what is done there."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from memory.adapters.in_memory import InMemoryStore
from memory.ports.candidates import CandidateColumns, Candidates
from memory.ports.query import Everywhere, Hit, Page, Query, Search, Tenant, Under, Where, covers, within
from memory.ports.record import Partition, Record
from tests.contract.faulty.registry import faulty_adapter
from tests.contract.harnesses import InMemoryServer

EXACTLY = "test_a_prefix_has_exactly_the_scopes_that_begin_with_it"
OVERLAPPING = "test_overlapping_places_have_each_record_once"
ALIKE = "test_filters_roles_and_expiry_mean_the_same_there"
NOTHING = "test_a_subtree_without_records_answers_nothing"
REFUSED = "test_a_prefix_without_an_end_and_half_a_character_are_refused"
ORDERED = "test_pages_are_in_order_over_all_scopes"
MANY = "test_many_scopes_are_one_place"
MEASURED = "test_candidates_there_are_measured_by_the_whole_subtree"
SCORED = "test_searches_there_find_and_score_as_in_the_same_scopes_by_name"
BESIDE = "test_scopes_beside_a_subtree_change_no_score_in_it"
ERASED = "test_erasing_a_subtree_leaves_all_other_scopes"
CORRUPT = "test_corrupt_records_of_a_subtree_are_named_and_erased_and_no_others"


class _Wrong(Under):
    """A place of other scopes than it names."""

    __slots__ = ()

    def __init__(self, of: Under) -> None:
        super().__init__(of.tenant, of.prefixes, of.scopes)


class _Misplaces(InMemoryStore):
    """Looks for subtrees elsewhere."""

    place: Callable[[Under], Where]

    def _prepare_question(self, asked: Any, *, exactly: bool = False) -> Any:
        asked = super()._prepare_question(asked, exactly=exactly)
        return (
            replace(asked, where=type(self).place(asked.where)) if isinstance(asked.where, Under) else asked
        )


class _PartsOfLabels(_Wrong):
    def contains(self, scope: str) -> bool:
        return scope.startswith(tuple(prefix.rstrip("/") for prefix in self.prefixes))


@faulty_adapter(EXACTLY)
class TakesPartsOfLabels(_Misplaces):
    place = _PartsOfLabels


class _AnyCase(_Wrong):
    def contains(self, scope: str) -> bool:
        return scope.lower().startswith(tuple(map(str.lower, self.prefixes)))


@faulty_adapter(EXACTLY)
class FoldsTheCaseOfSubtrees(_Misplaces):
    place = _AnyCase


class _Patterns(_Wrong):
    def contains(self, scope: str) -> bool:
        patterns = (re.escape(p).replace("%", ".*").replace("_", ".") for p in self.prefixes)
        return any(re.match(pattern, scope, re.DOTALL) for pattern in patterns)


@faulty_adapter(EXACTLY)
class TakesPrefixesForPatterns(_Misplaces):
    """As `LIKE` does."""

    place = _Patterns


class _Globs(_Wrong):
    def contains(self, scope: str) -> bool:
        return any(fnmatchcase(scope, f"{prefix}*") for prefix in self.prefixes)


@faulty_adapter(EXACTLY)
class TakesPrefixesForGlobs(_Misplaces):
    place = _Globs


class _Composed(_Wrong):
    def contains(self, scope: str) -> bool:
        form = unicodedata.normalize("NFC", scope)
        return form.startswith(tuple(unicodedata.normalize("NFC", prefix) for prefix in self.prefixes))


@faulty_adapter(EXACTLY)
class ComposesTheCharactersOfScopes(_Misplaces):
    place = _Composed


class _UpToTheLastPlane(_Wrong):
    def contains(self, scope: str) -> bool:
        return any(prefix <= scope < f"{prefix}\uffff" for prefix in self.prefixes)


@faulty_adapter(EXACTLY)
class EndsSubtreesAtTheLastCharacterOfAPlane(_Misplaces):
    place = _UpToTheLastPlane


class _Below(_Wrong):
    def contains(self, scope: str) -> bool:
        return scope not in self.prefixes and super().contains(scope)


@faulty_adapter(EXACTLY)
class LeavesOutTheRoot(_Misplaces):
    place = _Below


class _Caseless(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and other.lower() == self.lower()

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


@faulty_adapter(EXACTLY)
class LooksInTenantsThatAreAlike(_Misplaces):
    @staticmethod
    def place(where: Under) -> Where:
        return replace(where, tenant=_Caseless(where.tenant))


class _PrefixesAlone(_Wrong):
    def contains(self, scope: str) -> bool:
        return scope.startswith(self.prefixes)


@faulty_adapter(OVERLAPPING)
class ForgetsTheNamedScopes(_Misplaces):
    place = _PrefixesAlone


class _AllArePrefixes(_Wrong):
    def contains(self, scope: str) -> bool:
        return scope.startswith((*self.prefixes, *self.scopes))


@faulty_adapter(OVERLAPPING)
class TakesScopesForPrefixes(_Misplaces):
    place = _AllArePrefixes


@faulty_adapter(OVERLAPPING)
class AsksPrefixByPrefix(InMemoryStore):
    """Once for each of them, whether they overlap or not."""

    async def query(self, query: Query) -> Page:
        where = query.where
        if not isinstance(where, Under):
            return await super().query(query)
        places: list[Where] = [Under(where.tenant, (prefix,)) for prefix in where.prefixes]
        places += [within(Partition(where.tenant, scope)) for scope in where.scopes]
        pages = [await super(AsksPrefixByPrefix, self).query(replace(query, where=place)) for place in places]
        return Page(tuple(record for page in pages for record in page.records))


@faulty_adapter(ALIKE)
class HidesExpiredRecordsOfASubtree(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        page = await super()._query(query)
        if not isinstance(query.where, Under):
            return page
        return replace(
            page, records=tuple(r for r in page.records if isinstance(r, Record) and r.expires_at is None)
        )


@faulty_adapter(NOTHING)
class TakesAnEmptySubtreeForTheTenant(_Misplaces):
    def _prepare_question(self, asked: Any, *, exactly: bool = False) -> Any:
        asked = super()._prepare_question(asked, exactly=exactly)
        is_empty = isinstance(asked.where, Under) and not any(
            covers(asked.where, partition) for partition, _ in self.state.partitions()
        )
        return replace(asked, where=Tenant(asked.where.tenant)) if is_empty else asked

    @staticmethod
    def place(where: Under) -> Where:
        return where


@faulty_adapter(REFUSED)
class TakesAnyPrefix(InMemoryStore):
    def _prepare_question(self, asked: Any, *, exactly: bool = False) -> Any:
        if not isinstance(asked.where, Under):
            return super()._prepare_question(asked, exactly=exactly)
        elsewhere = super()._prepare_question(replace(asked, where=Everywhere()), exactly=exactly)
        return replace(elsewhere, where=asked.where)


@faulty_adapter(ORDERED)
class OrdersASubtreeScopeByScope(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        page = await super()._query(query)
        if not isinstance(query.where, Under):
            return page
        return replace(page, records=tuple(sorted(page.records, key=lambda r: getattr(r, "scope", ""))))


@faulty_adapter(MANY)
class KnowsTheFirstScopesOfASubtree(_Misplaces):
    """No more than one request of its names."""

    def _prepare_question(self, asked: Any, *, exactly: bool = False) -> Any:
        asked = InMemoryStore._prepare_question(self, asked, exactly=exactly)
        if not isinstance(asked.where, Under):
            return asked
        there = sorted(p for p, _ in self.state.partitions() if covers(asked.where, p))
        return replace(asked, where=within(*there[:500])) if there else asked


@faulty_adapter(MEASURED)
class TellsTheStatisticsOfTheTenant(InMemoryStore):
    async def _candidates(self, asked: Candidates) -> CandidateColumns:
        answer = await super()._candidates(asked)
        if not isinstance(asked.where, Under):
            return answer
        whole = await super()._candidates(replace(asked, where=Tenant(asked.where.tenant)))
        return replace(answer, statistics=whole.statistics)


class _RanksAsATenant(InMemoryStore):
    async def _search(self, search: Search) -> list[Hit]:
        where = search.where
        if not isinstance(where, Under):
            return await super()._search(search)
        hits = await super()._search(replace(search, where=Tenant(where.tenant), limit=10_000))
        return [hit for hit in hits if covers(where, hit.head.partition)][: search.limit]


@faulty_adapter(SCORED)
class RanksASubtreeByTheTenantsWords(_RanksAsATenant):
    pass


@faulty_adapter(BESIDE)
class CountsWordsBesideASubtree(_RanksAsATenant):
    pass


@faulty_adapter(ERASED)
class ErasesASubtreeByPartsOfLabels(InMemoryStore):
    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        if isinstance(query.where, Under):
            query = replace(query, where=_PartsOfLabels(query.where))
        return await super()._delete_matching(query, version, discard_at, carry)


@faulty_adapter(CORRUPT, InMemoryServer)
class ErasesCorruptRecordsBesideASubtree(InMemoryStore):
    """As a filter on the scope would, which a corrupt record passes."""

    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        count = await super()._delete_matching(query, version, discard_at, carry)
        if isinstance(query.where, Under):
            whole = replace(query, where=Tenant(query.where.tenant), roles=frozenset())
            count += await super()._delete_matching(whole, version, discard_at, carry)
        return count


@faulty_adapter(CORRUPT, InMemoryServer)
class NamesCorruptRecordsBesideASubtree(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        page = await super()._query(query)
        if not isinstance(query.where, Under):
            return page
        whole = await super()._query(replace(query, where=Tenant(query.where.tenant)))
        return replace(page, corrupt=whole.corrupt)
