"""Lying stores: heads that carry more, less or something else than was named."""

from __future__ import annotations

from dataclasses import replace

from memory.adapters.in_memory import InMemoryStore
from memory.ports import lexical
from memory.ports.contract.support import everything_of
from memory.ports.heads import head_of
from memory.ports.query import VECTOR, WORDS, Head, Hit, Page, Query, Search
from memory.ports.query_evaluation import sort_rows
from memory.ports.record import Record
from tests.contract.faulty.registry import faulty_adapter

QUERIES = "test_heads_of_a_query_carry_exactly_what_is_named"
BY_WORDS = "test_a_hit_by_words_is_the_same_copy_with_the_same_score_whatever_is_selected"
BY_MEANING = "test_a_hit_by_meaning_is_the_same_copy_with_the_same_score_whatever_is_selected"
COUNTED = "test_the_words_of_a_head_are_those_of_its_texts"


class _Tells(InMemoryStore):
    """Tells something else of the heads that it has made."""

    def told(self, head: Head, select: frozenset[str]) -> Head:
        raise NotImplementedError

    async def query(self, query: Query) -> Page:
        page = await super().query(query)
        return (
            page
            if query.select is None
            else replace(page, heads=tuple(self.told(h, query.select) for h in page.heads))
        )


class _TellsOfHits(_Tells):
    async def search(self, search: Search) -> list[Hit]:
        return [replace(hit, head=self.told(hit.head, search.select)) for hit in await super().search(search)]


@faulty_adapter(QUERIES)
class GivesWholeHeads(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        page = await super()._query(query)
        every = everything_of(query.collection)
        heads = tuple(head_of(query.collection, r, every) for r in page.records if isinstance(r, Record))
        return page if query.select is None else replace(page, records=(), heads=heads)


@faulty_adapter(QUERIES)
class LeavesOutEmptyValues(_Tells):
    def told(self, head: Head, select: frozenset[str]) -> Head:
        return replace(
            head, fields={name: value for name, value in head.fields.items() if value not in ("", ())}
        )


@faulty_adapter(QUERIES)
class NamesWhatHasNoValue(_Tells):
    def told(self, head: Head, select: frozenset[str]) -> Head:
        return replace(head, fields=dict.fromkeys(select - {WORDS, VECTOR}) | dict(head.fields))


@faulty_adapter(QUERIES)
class KeepsSystemFieldsToItself(_Tells):
    def told(self, head: Head, select: frozenset[str]) -> Head:
        return replace(
            head, fields={name: value for name, value in head.fields.items() if name != "updated_at"}
        )


@faulty_adapter(QUERIES)
class AlwaysBringsTheVector(InMemoryStore):
    async def query(self, query: Query) -> Page:
        return await super().query(
            query if query.select is None else replace(query, select=query.select | {VECTOR})
        )


@faulty_adapter(BY_WORDS)
class AlwaysBringsTheWordsOfHits(InMemoryStore):
    async def search(self, search: Search) -> list[Hit]:
        return await super().search(replace(search, select=search.select | {WORDS}))


@faulty_adapter(BY_MEANING)
class FindsHeadsWithoutTheirFields(_TellsOfHits):
    def told(self, head: Head, select: frozenset[str]) -> Head:
        return replace(head, fields={})


@faulty_adapter(COUNTED)
class CountsTheWordsOfItsCollection(_Tells):
    """Those of the first text part."""

    def told(self, head: Head, select: frozenset[str]) -> Head:
        stored = self.state.fetch_stored("samples", head.key)
        first = {"title": stored.texts.get("title", "")} if isinstance(stored, Record) else {}
        return replace(head, words=lexical.index(self._collections["samples"], first))


@faulty_adapter(COUNTED)
class KnowsNoWordsWhereThereAreNone(_Tells):
    def told(self, head: Head, select: frozenset[str]) -> Head:
        return replace(
            head, words=None if head.words is None or not lexical.length(head.words) else head.words
        )


@faulty_adapter("test_pages_of_heads_are_the_pages_of_the_records")
class SortsByWhatItReads(InMemoryStore):
    """Heads without the field that they are sorted by."""

    async def query(self, query: Query) -> Page:
        page = await super().query(query)
        return replace(page, heads=tuple(sort_rows(page.heads, query.order)))


@faulty_adapter("test_heads_of_every_collection_are_read")
class ReadsHeadsOfEntriesAlone(InMemoryStore):
    async def query(self, query: Query) -> Page:
        page = await super().query(query)
        return page if query.select is None or query.collection.name == "samples" else replace(page, heads=())


@faulty_adapter("test_unknown_names_are_not_selected")
class LeavesOutUnknownNames(InMemoryStore):
    async def query(self, query: Query) -> Page:
        known = everything_of(query.collection)
        return await super().query(
            query if query.select is None else replace(query, select=query.select & known)
        )
