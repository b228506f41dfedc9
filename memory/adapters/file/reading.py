"""Queries, counts and searches: selects in memory and returns records from disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from memory.adapters.file.library import Library
from memory.adapters.file.names import Table, encode_name
from memory.adapters.file.tables import Entry
from memory.domain.errors import StoreUnavailable
from memory.ports import lexical
from memory.ports.collections import Collection
from memory.ports.heads import head_of
from memory.ports.query import (
    And,
    Condition,
    Count,
    Hit,
    JsonPath,
    Near,
    Not,
    Or,
    Page,
    Partitions,
    Query,
    RowType,
    Search,
    Tenant,
    Under,
    Where,
)
from memory.ports.query_evaluation import condition, page_of
from memory.ports.record import Mark, Record, Standing, Tombstone
from memory.ports.text import bm25_scores, query_words
from memory.ports.vector_scan import best, by_nearness

_KINDS: dict[type[Standing], RowType] = {
    Record: RowType.RECORD,
    Mark: RowType.MARK,
    Tombstone: RowType.TOMBSTONE,
}
_TRIES = 8
"""Most attempts of a query."""


class Reader:
    """One call that reads."""

    def __init__(self, store: str, library: Library, deadline: float) -> None:
        self._store, self._library, self._deadline = store, library, deadline

    def query(self, query: Query) -> Page:
        """Select matches and read them from disk.

        If one has changed or cannot be read, the query runs again.
        """
        for attempt in range(_TRIES):
            with self._steadily(attempt):
                matching = self._find_matches(query)
                found, cursor = page_of(matching.standings, query)
                whole = self._whole(query.collection, matching, found)
            if whole is not None:
                break
        else:
            raise StoreUnavailable(self._store, "records changed faster than they could be read; try again")
        return Page(tuple(whole), cursor, tuple(e.key for e in matching.corrupt))

    def count(self, query: Query) -> Count:
        self._library.steady(self._deadline)
        entries = self._find_matches(query).entries
        return Count(len(entries), sum(e.bytes for e in entries))

    def search(self, search: Search) -> list[Hit]:
        for attempt in range(_TRIES):
            with self._steadily(attempt):
                hits, matching = self._hits(search)
                whole = self._whole(search.collection, matching, [record for record, _ in hits])
            if whole is not None:
                break
        else:
            raise StoreUnavailable(self._store, "records changed faster than they could be read; try again")
        found = [
            (record, score)
            for record, (_, score) in zip(whole, hits, strict=True)
            if isinstance(record, Record)
        ]
        return [Hit(head_of(search.collection, record, search.select), score) for record, score in found]

    def to_delete(self, query: Query) -> list[Entry]:
        """Return matches and unreadable records of the partitions. Needs the lock."""
        matching = self._find_matches(query)
        return [*matching.entries, *matching.corrupt]

    @contextmanager
    def _steadily(self, attempt: int) -> Iterator[None]:
        """Bring the cache up to date; after several attempts, also hold the lock.

        Other writers then wait.
        """
        if attempt < self._library.thresholds.questions:
            self._library.steady(self._deadline)
            yield
        else:
            with self._library.hold_lock(self._deadline):
                yield

    # -- choosing ----------------------------------------------------------------------

    def _find_matches(self, query: Query) -> Matches:
        matching, lets_through = Matches([], []), self._condition(query)
        for entry in self._entries(query):
            standing = entry.standing
            if standing is None:
                if RowType.RECORD in query.types:
                    matching.corrupt.append(entry)
            elif _KINDS[type(standing)] not in query.types or (
                isinstance(standing, Record) and standing.role not in query.roles
            ):
                continue
            elif lets_through(entry):
                matching.entries.append(entry)
        return matching

    def _condition(self, asked: Query | Search) -> Callable[[Entry], bool]:
        """Return a predicate for the filter.

        It reads separate bytes if the filter needs them. Unreadable records pass,
        because they are handled when they are returned.
        """
        holds, named = condition(asked.filter), frozenset(_filter_fields(asked.filter))

        def passes(entry: Entry) -> bool:
            apart = not named.isdisjoint(entry.apart)
            standing = self._library.fresh(entry, asked.collection) if apart else entry.standing
            return apart if standing is None else holds(standing)

        return passes

    def _entries(self, asked: Query | Search) -> Iterator[Entry]:
        """Yield all entries of the queried tables."""
        for table in self._tables(asked.collection.name, asked.where):
            yield from list(self._library.table(table, asked.collection, self._deadline).entries.values())

    def _tables(self, collection: str, where: Where) -> list[Table]:
        if isinstance(where, Partitions):
            return [
                Table(encode_name(where.tenant), encode_name(scope), collection)
                for scope in dict.fromkeys(p.scope for p in where.partitions)
            ]
        if isinstance(where, Under):
            tenant = encode_name(where.tenant)
            tables = [Table(tenant, scope, collection) for scope in self._library.partitions.scopes(tenant)]
            return [table for table in tables if self._is_under(table, where)]
        tenants = (
            [encode_name(where.tenant)] if isinstance(where, Tenant) else self._library.partitions.tenants()
        )
        return [
            Table(tenant, scope, collection)
            for tenant in tenants
            for scope in self._library.partitions.scopes(tenant)
        ]

    def _is_under(self, table: Table, where: Under) -> bool:
        scope = self._library.partitions.scope_named(table.tenant, table.scope)
        return scope is not None and where.contains(scope)

    # -- ranking -----------------------------------------------------------------------

    def _hits(self, search: Search) -> tuple[list[tuple[Record, float]], Matches]:
        entries = [
            e
            for e in self._entries(search)
            if isinstance(e.standing, Record) and e.standing.role in search.roles
        ]
        matching, lets_through = Matches(entries, []), self._condition(search)
        if isinstance(search.by, Near):
            records = [e.standing for e in entries if isinstance(e.standing, Record) and lets_through(e)]
            hits = by_nearness(search.by.vector, records)
        else:  # Filtered-out records still count for how rare a word is.
            found = {id(e.standing): e for e in entries}
            hits = [
                (record, score)
                for record, score in _by_words(search.by.text, search.collection, entries)
                if lets_through(found[id(record)])
            ]
        return best(hits, search.limit), matching

    # -- handing out -------------------------------------------------------------------

    def _whole(
        self, collection: Collection, matching: Matches, found: Sequence[Standing]
    ) -> list[Standing] | None:
        """Read the found records from disk; None if one has changed.

        The cache then knows the change, and the query runs again.
        """
        entries = {id(e.standing): e for e in matching.entries}
        fresh = [self._library.fresh(entries[id(standing)], collection) for standing in found]
        whole = [standing for standing in fresh if standing is not None]
        return whole if len(whole) == len(fresh) else None


@dataclass(slots=True)
class Matches:
    """Selected entries, and unreadable ones among those examined."""

    entries: list[Entry]
    corrupt: list[Entry]

    @property
    def standings(self) -> list[Standing]:
        return [e.standing for e in self.entries if e.standing is not None]


def _filter_fields(part: Condition | None) -> Iterator[str]:
    """Yield the fields that a filter uses."""
    match part:
        case None:
            return
        case And(parts) | Or(parts):
            for one in parts:
                yield from _filter_fields(one)
        case Not(inner):
            yield from _filter_fields(inner)
        case JsonPath():
            raise AssertionError(part)
        case _:
            yield part.field


def _by_words(text: str, collection: Collection, entries: Sequence[Entry]) -> list[tuple[Record, float]]:
    """Score the records that contain a content word of the text.

    The statistics come from exactly these records. The result is unsorted.
    """
    wanted = [lexical.token(stem) for stem in query_words(text)]
    if not wanted:
        return []
    counted = [(entry.standing, *entry.words(collection)) for entry in entries]
    asked = [
        (r, {w: counts[w] for w in wanted if w in counts}, length)
        for r, counts, length in counted
        if isinstance(r, Record)
    ]
    return bm25_scores(asked, len(asked), sum(length for _, _, length in asked))
