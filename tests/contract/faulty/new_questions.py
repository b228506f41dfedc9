"""Faulty adapters, written without a look at the suite: pages, cursors, counts, words,
partitions and what is due.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from memory.adapters.in_memory import InMemoryStore
from memory.adapters.in_memory.ranking import by_words
from memory.domain.errors import InvalidInput
from memory.ports.candidates import CandidateColumns, Candidates
from memory.ports.collections import Collection
from memory.ports.due import DuePage, DueReason, DueRow
from memory.ports.heads import head_of
from memory.ports.query import (
    Count,
    Everywhere,
    Hit,
    Page,
    Partitions,
    Query,
    Search,
    Tenant,
    Words,
    decode_cursor,
    encode_cursor,
)
from memory.ports.query_evaluation import condition, first_partitions, position_of, sort_rows
from memory.ports.record import Corrupt, Key, Mark, Partition, Record, Tombstone
from memory.ports.vector_scan import best
from memory.ports.writes import Annotate, Outcome, Write
from tests.contract.faulty.registry import PerWrite, faulty_adapter

# -- what is due -----------------------------------------------------------------------


@faulty_adapter("test_one_thing_alone_is_told_whatever_it_is_due_for")
class DueMissesTheAnnotated(PerWrite):
    """Its index of dates is written with the row, and not by an annotation."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._annotated: set[tuple[str, Key]] = set()

    def lie(self, write: Write) -> Outcome:
        outcome = super().lie(write)
        if isinstance(write, Annotate) and write.discard_at is not None and outcome.applied:
            self._annotated.add((write.collection.name, write.key))
        return outcome

    async def _due(
        self, now: datetime, limit: int, cursor: str | None, expired: Mapping[Collection, datetime]
    ) -> DuePage:
        due = await super()._due(now, limit, cursor, expired)
        return replace(
            due,
            rows=tuple(
                r
                for r in due.rows
                if r.why is not DueReason.DISCARD or (r.collection.name, r.key) not in self._annotated
            ),
        )


@faulty_adapter("test_everything_due_is_told_with_why_and_nothing_else")
class DueTellsOneReason(InMemoryStore):
    async def _due(
        self, now: datetime, limit: int, cursor: str | None, expired: Mapping[Collection, datetime]
    ) -> DuePage:
        due = await super()._due(now, limit, cursor, expired)
        return replace(due, rows=tuple({(r.collection.name, r.key): r for r in due.rows}.values()))


@faulty_adapter("test_pages_of_what_is_due_are_together_what_is_told_at_once[DueTakesOneIdForOneRow-7]")
class DueTakesOneIdForOneRow(InMemoryStore):
    """It forgets that two collections may hold something under one key."""

    async def _due(
        self, now: datetime, limit: int, cursor: str | None, expired: Mapping[Collection, datetime]
    ) -> DuePage:
        due = await super()._due(now, limit, cursor, expired)
        return replace(due, rows=tuple({(r.key, r.why): r for r in due.rows}.values()))


@faulty_adapter("test_everything_due_is_told_with_why_and_nothing_else")
class DueIncludesNow(InMemoryStore):
    async def _due(
        self, now: datetime, limit: int, cursor: str | None, expired: Mapping[Collection, datetime]
    ) -> DuePage:
        due = await super()._due(now, limit, cursor, expired)
        if cursor is not None:
            return due
        at_once = [
            DueRow(collection, s.key, s.version, DueReason.DISCARD)
            for collection in self._collections.values()
            for s in self.state.everything(collection.name)
            if isinstance(s, Mark | Tombstone) and s.discard_at == now and not s.owed
        ]
        return replace(due, rows=(*due.rows, *at_once))


@faulty_adapter("test_what_is_seen_to_between_two_pages_hides_nothing_behind_it")
class DuePagesByOffset(InMemoryStore):
    """What was done between two pages makes it skip as much."""

    async def _due(
        self, now: datetime, limit: int, cursor: str | None, expired: Mapping[Collection, datetime]
    ) -> DuePage:
        if cursor is not None and not cursor.isdecimal():
            raise InvalidInput("cursor", "this is not a cursor that `due` returned")
        rows: list[DueRow] = []
        inner: str | None = None
        while True:
            due = await super()._due(now, 10_000, inner, expired)
            rows += due.rows
            if (inner := due.cursor) is None:
                break
        start = int(cursor or 0)
        return DuePage(
            tuple(rows[start : start + limit]), str(start + limit) if len(rows) > start + limit else None
        )


@faulty_adapter("test_everything_due_is_told_with_why_and_nothing_else")
class DueUsesOneMomentForAllCollections(InMemoryStore):
    async def _due(
        self, now: datetime, limit: int, cursor: str | None, expired: Mapping[Collection, datetime]
    ) -> DuePage:
        return await super()._due(
            now, limit, cursor, dict.fromkeys(expired, max(expired.values())) if expired else {}
        )


# -- pages -----------------------------------------------------------------------------


@faulty_adapter("test_inserts_between_pages_shift_nothing")
class PagesByOffset(InMemoryStore):
    """What comes or goes before the page repeats or skips as much."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._offsets: dict[str, int] = {}

    async def _query(self, query: Query) -> Page:
        asked = repr(replace(query, cursor=None, limit=1))
        start = self._offsets.get(f"{query.cursor} {asked}")
        if start is None:
            page = await super()._query(query)
            start = 0
        else:
            matching, corrupt = self._find_matches(query)
            rest = sort_rows(matching, query.order)[start:]
            shown = rest[: query.limit]
            last = position_of(shown[-1], query.order) if len(rest) > query.limit else None
            page = Page(
                tuple(shown), None if last is None else encode_cursor(last.values, last.id), tuple(corrupt)
            )
        if page.cursor is not None:
            self._offsets[f"{page.cursor} {asked}"] = start + len(page.records)
        return page


@faulty_adapter("test_a_cursor_still_works_when_its_record_is_gone")
class EndsWhereTheCursorsRecordIsGone(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        if query.cursor is not None:
            position = decode_cursor(query.cursor, query.order)
            if not any(s.key.id == position.id for s in self._find_matches(query)[0]):
                return Page()
        return await super()._query(query)


@faulty_adapter("test_a_cursor_goes_on_from_where_its_record_stood_when_that_has_moved")
class ReadsTheCursorsRecordAnew(InMemoryStore):
    """The cursor is the id, and goes on from where its record stands by now."""

    async def _query(self, query: Query) -> Page:
        if query.cursor is not None:
            position = decode_cursor(query.cursor, query.order)
            for standing in self._find_matches(query)[0]:
                if standing.key.id == position.id:
                    query = replace(
                        query, cursor=encode_cursor(position_of(standing, query.order).values, position.id)
                    )
                    break
        return await super()._query(query)


@faulty_adapter("test_pages_run_through_several_partitions_and_a_whole_tenant")
class LosesTiesOfOtherScopes(InMemoryStore):
    """It merges the pages of each scope, and takes a tie in another scope than that of
    the cursor's record for told.
    """

    async def _query(self, query: Query) -> Page:
        page = await super()._query(query)
        if (
            query.cursor is None
            or not query.order
            or not isinstance(query.where, Partitions)
            or len(query.where.partitions) < 2
        ):
            return page
        position = decode_cursor(query.cursor, query.order)
        scope = next(
            (
                s.scope
                for s in self._find_matches(query)[0]
                if isinstance(s, Record) and s.key.id == position.id
            ),
            None,
        )

        def is_told(standing: Any) -> bool:
            tied = position_of(standing, query.order).values == position.values
            return tied and scope is not None and standing.scope != scope

        return replace(page, records=tuple(r for r in page.records if not is_told(r)))


@faulty_adapter("test_pages_follow_the_order_and_lose_and_repeat_nothing")
class SkipsTiesWithoutValues(InMemoryStore):
    """In its language nothing is equal to a missing value, itself included."""

    async def _query(self, query: Query) -> Page:
        page = await super()._query(query)
        if query.cursor is None:
            return page
        position = decode_cursor(query.cursor, query.order)
        if None not in position.values:
            return page
        return replace(
            page,
            records=tuple(
                r
                for r in page.records
                if isinstance(r, Corrupt) or position_of(r, query.order).values != position.values
            ),
        )


# -- partitions ------------------------------------------------------------------------


@faulty_adapter("test_pages_lose_and_repeat_nothing_while_partitions_come_and_go")
class PartitionsEndWhereTheCursorsIsGone(InMemoryStore):
    async def _partitions(
        self, where: Tenant | Everywhere, prefix: str, after: Partition | None, limit: int
    ) -> list[tuple[Partition, int]]:
        if after is not None and after not in dict(self.state.partitions()):
            return []
        return await super()._partitions(where, prefix, after, limit)


@faulty_adapter("test_partitions_that_are_alike_are_each_named_once")
class SkipsTheRestOfATenant(InMemoryStore):
    """Over all tenants, each page begins with the next tenant."""

    async def _partitions(
        self, where: Tenant | Everywhere, prefix: str, after: Partition | None, limit: int
    ) -> list[tuple[Partition, int]]:
        found = await super()._partitions(where, prefix, after, limit)
        return [f for f in found if after is None or isinstance(where, Tenant) or f[0].tenant != after.tenant]


@faulty_adapter("test_a_partition_is_there_while_a_record_or_a_generation_is")
class EverywhereForgetsEmptyPartitions(InMemoryStore):
    """Over all tenants, it looks at records alone: a partition that has but a
    generation is not told.
    """

    async def _partitions(
        self, where: Tenant | Everywhere, prefix: str, after: Partition | None, limit: int
    ) -> list[tuple[Partition, int]]:
        found = list(self.state.partitions())
        if isinstance(where, Everywhere):
            held = {r.partition for name in self._collections for r in self.state.live(name, where)}
            found = [f for f in found if f[0] in held]
        return first_partitions(found, where, prefix, after, limit)


@faulty_adapter("test_a_prefix_is_of_scopes_character_by_character")
class TakesAPrefixForAPattern(InMemoryStore):
    async def _partitions(
        self, where: Tenant | Everywhere, prefix: str, after: Partition | None, limit: int
    ) -> list[tuple[Partition, int]]:
        found = [f for f in self.state.partitions() if fnmatchcase(f[0].scope, f"{prefix}*")]
        return first_partitions(found, where, "", after, limit)


# -- counts and words ------------------------------------------------------------------


@faulty_adapter("test_candidates_follow_every_write_at_once")
class CountsWordsTo255(InMemoryStore):
    """The count of a word has one byte."""

    async def _candidates(self, asked: Candidates) -> CandidateColumns:
        import numpy as np

        found = await super()._candidates(asked)
        most = 255 * asked.collection.weights.get("content", 1.0)
        return replace(found, counts=np.minimum(found.counts, most))


@faulty_adapter("test_the_last_of_many_words_finds")
class IndexesTheFirst16383Words(InMemoryStore):
    """Its engine has fourteen bits for the position of a word."""

    async def _search(self, search: Search) -> list[Hit]:
        if not isinstance(search.by, Words):
            return await super()._search(search)
        name, lets_through = search.collection.name, condition(search.filter)
        records = [
            r
            for r in self.state.live(name, search.where)
            if r.role in search.roles and not self.state.is_damaged(name, r.key)
        ]
        indexed = [
            replace(r, texts={part: " ".join(text.split(" ")[:16_383]) for part, text in r.texts.items()})
            for r in records
        ]
        found = [
            (r, score) for r, score in by_words(search.by.text, search.collection, indexed) if lets_through(r)
        ]
        return [
            Hit(head_of(search.collection, r, search.select), score) for r, score in best(found, search.limit)
        ]


@faulty_adapter("test_counts_tell_records_and_roughly_their_size")
class TellsTheBytesOfAllThatIsCounted(InMemoryStore):
    """It filters the records, and sums up the sizes of the scope."""

    async def _count(self, query: Query) -> Count:
        counted, everything = await super()._count(query), await super()._count(replace(query, filter=None))
        return Count(counted.records, everything.bytes if counted.records else 0)
