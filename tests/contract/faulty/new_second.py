"""Faulty adapters of a second round, of twenty, that the contract let pass: in
quantities and in what is derived.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from memory.adapters.in_memory import InMemoryStore
from memory.ports.collections import Collection
from memory.ports.due import DuePage
from memory.ports.heads import head_of
from memory.ports.query import (
    Hit,
    Page,
    Query,
    Search,
    Tenant,
    Words,
)
from memory.ports.query_evaluation import page_of
from memory.ports.record import Key, Record, Tombstone
from memory.ports.text import query_words, words
from memory.ports.writes import Outcome, Put, Write
from tests.contract.faulty.registry import PerWrite, faulty_adapter


@faulty_adapter("test_answers_over_ten_thousand_records_are_whole")
class ErasesLaterPortionsAtTheAskedVersion(InMemoryStore):
    """Only in the first hundred does a tombstone stand above what it replaced."""

    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        matching = [s for s in self._find_matches(query)[0] if isinstance(s, Record)]
        count = await super()._delete_matching(query, version, discard_at, carry)
        for record in matching[100:]:
            stored = self.state.fetch_stored(query.collection.name, record.key)
            assert isinstance(stored, Tombstone)
            self.state.place(query.collection.name, record.key, replace(stored, version=version))
        return count


class _Words(PerWrite):
    """Finds some records by words that they no longer have."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.left: dict[tuple[str, Key], frozenset[str]] = {}

    def leave(self, name: str, record: Record) -> None:
        self.left[name, record.key] = frozenset(w for text in record.texts.values() for w in words(text))

    async def _search(self, search: Search) -> list[Hit]:
        hits = await super()._search(search)
        if not isinstance(search.by, Words):
            return hits
        wanted = set(query_words(search.by.text))
        for record in self.state.live(search.collection.name, search.where):
            left = self.left.get((search.collection.name, record.key), frozenset())
            if wanted & left and record.role in search.roles and record.key not in {h.head.key for h in hits}:
                hits.append(Hit(head_of(search.collection, record, search.select), 0.001))
        return hits[: search.limit]


@faulty_adapter("test_the_index_follows_every_write_at_once")
class IndexesNoTagsAnew(_Words):
    """A record of which only the text part `tags` changed keeps the words of before."""

    def lie(self, write: Write) -> Outcome:
        before = self.state.fetch_stored(write.collection.name, write.key) if isinstance(write, Put) else None
        outcome = super().lie(write)
        if isinstance(write, Put) and outcome.applied and isinstance(before, Record):
            old, new = dict(before.texts), dict(write.record.texts)
            if old.pop("tags", "") != new.pop("tags", "") and old == new:
                self.leave(write.collection.name, before)
        return outcome


@faulty_adapter("test_pages_of_what_is_due_are_together_what_is_told_at_once[DueEndsWhereAPageIsFull-7]")
class DueEndsWhereAPageIsFull(InMemoryStore):
    """Within the last of its questions, it takes a full page for the last."""

    async def _due(
        self, now: datetime, limit: int, cursor: str | None, expired: Mapping[Collection, datetime]
    ) -> DuePage:
        due = await super()._due(now, limit, cursor, expired)
        if len(due.rows) == limit and due.cursor is not None and due.cursor.startswith("14:"):
            return replace(due, cursor=None)
        return due


@faulty_adapter("test_pages_follow_the_order_and_lose_and_repeat_nothing")
class SortsByThreeFields(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        if len(query.order) <= 3:
            return await super()._query(query)
        matching, corrupt = self._find_matches(query)
        found, _ = page_of(matching, replace(query, order=query.order[:3], cursor=None))
        _, cursor = page_of(matching, query)
        return Page(tuple(found), cursor, tuple(corrupt))


@faulty_adapter("test_a_whole_tenant_is_deleted_and_no_other")
class ErasesATenantButItsWords(_Words):
    """Erasing a whole tenant leaves the words: who writes a record of the same id again
    is found by them.
    """

    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        if isinstance(query.where, Tenant):
            for standing in self._find_matches(query)[0]:
                if isinstance(standing, Record):
                    self.leave(query.collection.name, standing)
        return await super()._delete_matching(query, version, discard_at, carry)
