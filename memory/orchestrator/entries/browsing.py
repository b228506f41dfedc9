"""Browsing: many entries in order, over every tier, each once.

Stores are asked in the direction in which records move. An arriving copy counts only if
its source has a mark to it. A store that fails is left out and named.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

from memory.domain.entry import Entry
from memory.domain.error_table import store_note
from memory.domain.errors import StoreError, StoreTimeout
from memory.domain.filters import Filter
from memory.domain.scope import Scope, Subtree
from memory.domain.search_results import EntryPage
from memory.domain.time import micros_or_none
from memory.orchestrator.storage.collections import ENTRIES, ENTRY_VERSIONS, SEQUENCE
from memory.orchestrator.storage.entry_records import entry_of
from memory.orchestrator.storage.partial_answers import BROWSED, AnswerGaps
from memory.orchestrator.storage.past_versions import entry_id, on_their_way, still_living
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.steps import step
from memory.orchestrator.trust.blocked_sources import visible
from memory.orchestrator.trust.trust import Trust
from memory.policies.browse_cursor import cursor_behind
from memory.policies.entry_filters import condition_of, satisfies
from memory.policies.entry_query import EntryQuery, where_of
from memory.policies.routing import TIERS
from memory.policies.visibility import filter_of, is_current, is_expired, predicate_of, was_stored
from memory.ports.collections import Collection
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.query import Condition, Eq, Head, Order, Query, Where, all_of, encode_cursor
from memory.ports.record import FieldValue, Key, Mark, Record, Role
from memory.ports.store import Store

log = logging.getLogger(__name__)
T = TypeVar("T")

_FIRST_ID, _LAST_ID = "00000000-0000-8000-8000-000000000000", "ffffffff-ffff-8fff-bfff-ffffffffffff"
"""Ids before and after all others."""
_LAST_SEQUENCE = 2**62
Place: TypeAlias = tuple[datetime, int, str]
"""The moment of an entry, its sequence and its id, by which listings are ordered."""


class EntryBrowser:
    """Browses entries, and serves all other reads of many entries.

    It decides which stores are asked, within which time, and which rows count.
    """

    def __init__(self, placement: Placement, trust: Trust) -> None:
        self._placement = placement
        self.trust = trust

    async def browse(self, asked: EntryQuery) -> EntryPage:
        """Return the newest (or oldest) entries after `asked.after`.

        Entries of the same moment are in the order in which they were written, in the
        same direction. Older entries have no sequence and come first, by id.
        """
        lacking, found, ends = AnswerGaps(), dict[str, Record](), list[Place]()
        asked = await self.exclude_blocked_sources(asked, lacking)
        for store, collection in self.sources(asked):
            gathered = await self.try_call(store, lacking, self._gather(store, collection, asked, lacking))
            if gathered is not None:
                rows, checked_to = gathered
                _add(found, rows, asked)
                if checked_to is not None:
                    ends.append(checked_to)
        newest = asked.order == "newest"
        ordered = sorted(found.values(), key=lambda record: _place(record, asked), reverse=newest)
        if ends:  # behind the first of these a store may have rows that nobody has checked
            end = max(ends) if newest else min(ends)
            ordered = [row for row in ordered if not _is_behind(_place(row, asked), end, asked)]
        shown = ordered[: asked.limit]
        if not shown:
            lacking.require_answer()
        cursor = None
        if len(ordered) > len(shown):
            cursor = cursor_behind(asked, *_place(shown[-1], asked))
        elif ends:
            cursor = cursor_behind(asked, *end)
            if len(shown) < asked.limit:
                most = self._placement.settings.filter_rows
                lacking.say(
                    f"the filter was checked on {most:,} entries; the page ends early, its cursor continues"
                )
        return EntryPage(
            [entry_of(r) async for r in iterate_cooperatively(shown)],
            lacking.notes,
            cursor,
            len(lacking.withheld),
        )

    async def _gather(
        self, store: Store, collection: Collection, asked: EntryQuery, lacking: AnswerGaps
    ) -> tuple[list[Record], Place | None]:
        """Return enough records of one store, and one more if others follow.

        A store sorts records by their moment. If a page begins or ends among records of
        one moment, those are read by their sequence. The second result is the place up
        to which the store was read, if it was read only in part.
        """
        kept = dict[str, Record]()
        owed = await self.owed_past(store, collection, asked, lacking)
        if asked.after is not None:
            of_moment = self._of_one_moment(collection, asked, asked.after[0])
            _, unread = await self._read(store, of_moment, asked, lacking, kept)
            if unread is not None:
                return [*owed, *kept.values()], unread
        if len(kept) > asked.limit:
            return [*owed, *kept.values()], None
        follow, unread = await self._read(store, self._query(collection, asked), asked, lacking, kept)
        if not follow:
            return [*owed, *kept.values()], None
        moments = [_place(row, asked)[0] for row in kept.values()]
        if unread is None:
            last = max(moments) if asked.order == "oldest" else min(moments)
            if sum(moment != last for moment in moments) >= asked.limit:
                return [*owed, *kept.values()], None
        else:
            last = unread[0]
        kept = {name: row for name, row in kept.items() if _place(row, asked)[0] != last}
        of_moment = self._of_one_moment(collection, asked, last)
        _, unread_there = await self._read(store, of_moment, asked, lacking, kept)
        if unread is not None and unread_there is None and len(kept) <= asked.limit:
            unread_there = _behind_all(last, asked)
        return [*owed, *kept.values()], unread_there

    async def _read(
        self, store: Store, query: Query, asked: EntryQuery, lacking: AnswerGaps, kept: dict[str, Record]
    ) -> tuple[bool, Place | None]:
        """Read until there are more records than requested.

        Returns whether others follow. Arriving copies and past versions that do not
        count are skipped, and so are entries that do not pass the filter. If that takes
        too many rows, the place of the last row is returned too.
        """
        collection, passes = query.collection, satisfies(asked.filter)
        room = self._placement.settings.filter_rows if asked.filter is not None else sys.maxsize
        while True:
            with step("browse"):
                page = await store.query(query)
            self._say_corrupt(store, page.corrupt)
            read = [r for r in page.records if isinstance(r, Record)]
            rows = await self.authoritative_rows(
                store, collection, [row async for row in iterate_cooperatively(read) if passes(row)], lacking
            )
            known = await self.filter_known_at(rows, asked, lacking)
            _add(kept, await self.let_out(known, lacking), asked)
            if page.cursor is None or len(kept) > asked.limit:
                return page.cursor is not None, None
            room -= len(page.records) + len(page.corrupt)
            if room <= 0 and read:
                return True, _place(read[-1], asked)
            if asked.filter is not None:  # the store does not apply all of it
                query = replace(query, limit=max(query.limit, self._placement.settings.page))
            query = replace(query, cursor=page.cursor)

    def _query(self, collection: Collection, asked: EntryQuery) -> Query:
        """Return the query for one store after the moment where the last page ended."""
        end = _FIRST_ID if asked.order == "newest" else _LAST_ID
        return self._ordered_query(
            collection, asked, asked.along, None, None if asked.after is None else (asked.after[0], end)
        )

    def _of_one_moment(self, collection: Collection, asked: EntryQuery, moment: datetime) -> Query:
        """Return the query for one store's entries of one moment."""
        behind = None
        if asked.after is not None and asked.after[0] == moment:
            behind = (None if asked.after[1] < 0 else asked.after[1], asked.after[2])
        return self._ordered_query(collection, asked, SEQUENCE, Eq(asked.along, moment), behind)

    def _ordered_query(
        self,
        collection: Collection,
        asked: EntryQuery,
        by: str,
        which: Condition | None,
        behind: tuple[FieldValue, str] | None,
    ) -> Query:
        """Return a query in the order of the request.

        Kept versions come in the order of their entries.
        """
        fields = (by, "entry_id") if collection.field("entry_id") else (by,)
        order = tuple(Order(field, descending=asked.order == "newest") for field in fields)
        cursor = None if behind is None else encode_cursor(behind[: len(fields)], behind[1])
        filters = all_of(filter_of(asked, collection, self._placement.now()), which)
        return Query(collection, asked.where, filters, order, asked.limit + 1, cursor, roles=BROWSED)

    async def owed_past(
        self, store: Store, collection: Collection, asked: EntryQuery, lacking: AnswerGaps
    ) -> list[Record]:
        """Return the past versions at that moment that are not in the archive yet."""
        if asked.known_at is None or collection is not ENTRIES:
            return []
        versions = await on_their_way(self._placement, store, asked.where, asked.known_at)
        asked_for = predicate_of(asked, ENTRY_VERSIONS, self._placement.now())
        known = await self.filter_known_at([v for v in versions if asked_for(v)], asked, lacking)
        return await self.let_out(known, lacking)

    async def exclude_blocked_sources(self, asked: EntryQuery, lacking: AnswerGaps) -> EntryQuery:
        """Return the query without the entries of blocked sources.

        If the blocked sources are unknown, all entries with an origin are left out, and
        `lacking` says so.
        """
        blocked, archive = self.trust.blocked_sources, self._placement.topology.archive
        known = blocked.cached(asked.tenant)
        try:
            known = known or await blocked.load(asked.tenant)
        except StoreError as error:
            lacking.say(
                store_note(error, "entries with an origin were left out, because their source may be blocked")
            )
            if isinstance(error, StoreTimeout):
                lacking.silent.add(archive)
        return replace(asked, trusted=visible(known))

    async def let_out(self, rows: Sequence[Record], lacking: AnswerGaps) -> list[Record]:
        """Return the rows that the recall gate lets through.

        `lacking` has the ids of the others.
        """
        shown = await self.trust.readable_flags(rows)
        lacking.withheld.update(
            entry_id(row) for row, is_shown in zip(rows, shown, strict=True) if not is_shown
        )
        return [row for row, is_shown in zip(rows, shown, strict=True) if is_shown]

    async def filter_known_at(
        self, rows: Sequence[Record], asked: EntryQuery, lacking: AnswerGaps
    ) -> list[Record]:
        """Return the rows that were stored at the requested moment.

        Only versions of entries that still exist count. Rows that cannot be checked are
        left out, and `lacking` says so.
        """
        if asked.known_at is None:
            return list(rows)
        now = (
            self._placement.now()
        )  # read again: rows written since the query are not from a clock that is ahead
        stored = [row for row in rows if was_stored(row, asked.known_at, now)]
        living, errors = await still_living(self._placement, asked.tenant, stored)
        for error in errors:
            lacking.say(store_note(error, "past versions whose entry could not be found were left out"))
        return living

    async def authoritative_rows(
        self, store: Store, collection: Collection, rows: Sequence[Record], lacking: AnswerGaps | None = None
    ) -> list[Record]:
        """Return the rows that count.

        They are homes, and arriving copies to which an earlier store has a mark. If an
        earlier store fails, its marks are unknown and those copies do not count. Then
        `lacking` names the store; without `lacking` the failure is raised.
        """
        arriving = [r.key for r in rows if r.role is Role.ARRIVING]
        if not arriving:
            return list(rows)
        marked: set[Key] = set()
        for source in self._placement.topology.homes:
            if source is store:
                break
            asking = self._marked_keys(source, collection, arriving, store)
            marked |= (
                await asking if lacking is None else await self.try_call(source, lacking, asking)
            ) or set()
        return [r for r in rows if r.role is not Role.ARRIVING or r.key in marked]

    async def _marked_keys(
        self, source: Store, collection: Collection, keys: Sequence[Key], target: Store
    ) -> set[Key]:
        """Return the keys under which a store has a mark to another store."""
        stands = await self._placement.read("browse.marks", source, collection, keys)
        return {
            s.key for s in stands if isinstance(s, Mark) and self._placement.topology.home(s.to) is target
        }

    async def everything(
        self,
        tenant: str,
        scopes: Sequence[Scope | Subtree] = (),
        *,
        retired: bool = False,
        passing: Filter | None = None,
    ) -> AsyncIterator[Entry]:
        """Yield every live entry of a tenant, or of scopes and subtrees, each once.

        Stores are read in the direction in which records move, and each store's entries
        oldest first. With `retired`, entries outside their validity window are
        included. With `passing`, only entries that pass this filter are yielded.
        """
        now = self._placement.now()
        async for row in self.every_record(ENTRIES, where_of(tenant, scopes), passing=passing):
            if retired or is_current(row, now):
                yield entry_of(row)

    async def every_record(
        self, collection: Collection, where: Where, *, passing: Filter | None = None
    ) -> AsyncIterator[Record]:
        """Yield every unexpired record in a place, in the order of `everything`.

        Records of one moment are sorted by their sequence. A filter is for entries.
        """
        now, seen, passes = self._placement.now(), set[str](), satisfies(passing)
        for store in self._placement.topology.homes:
            query = Query(
                collection,
                where,
                condition_of(passing, collection),
                order=(Order("created_at"),),
                limit=self._placement.settings.page,
                roles=BROWSED,
            )
            of_one_moment: list[Record] = []
            async for page in self._placement.pages("browse.everything", store, query):
                self._say_corrupt(store, page.corrupt)
                async for row in iterate_cooperatively(
                    await self.authoritative_rows(
                        store, collection, [r for r in page.records if isinstance(r, Record)]
                    )
                ):
                    if row.key.id in seen or is_expired(row, now) or not passes(row):
                        continue
                    seen.add(row.key.id)
                    if collection is not ENTRIES:
                        yield row
                        continue
                    if of_one_moment and of_one_moment[0].created_at != row.created_at:
                        for earlier in sorted(of_one_moment, key=_sequence):
                            yield earlier
                        of_one_moment = []
                    of_one_moment.append(row)
            for earlier in sorted(of_one_moment, key=_sequence):
                yield earlier

    # -- shared ------------------------------------------------------------------------

    def sources(self, asked: EntryQuery) -> list[tuple[Store, Collection]]:
        """Return the stores and collections to read, in the order of moves.

        They begin with the store where entries of the requested scopes are born.
        """
        kind, topology = self._placement.kinds.of(ENTRIES), self._placement.topology
        born = min((kind.route(scope.kind).tier for scope in asked.scopes), key=TIERS.index, default=TIERS[0])
        sources = [(store, ENTRIES) for store in topology.since(topology.home(born))]
        return (
            sources
            if asked.known_at is None
            else [*sources, (self._placement.topology.archive, ENTRY_VERSIONS)]
        )

    async def try_call(
        self, store: Store, lacking: AnswerGaps, call: Coroutine[Any, Any, T], *, shows: bool = True
    ) -> T | None:
        """See `AnswerGaps.try_call`."""
        return await lacking.try_call(self._placement, store, call, shows=shows)

    @staticmethod
    def _say_corrupt(store: Store, corrupt: Sequence[Key]) -> None:
        for key in corrupt:
            log.warning("store '%s': record %s is corrupt and was passed over", store.name, key.id)


def _place(record: Record, asked: EntryQuery) -> Place:
    """Return an entry's position in the requested order."""
    moment = record.updated_at if asked.along == "updated_at" else record.created_at
    return moment, _sequence(record), entry_id(record)


def _behind_all(moment: datetime, asked: EntryQuery) -> Place:
    """Return the place behind all entries of a moment, in the requested order."""
    return (moment, -1, _FIRST_ID) if asked.order == "newest" else (moment, _LAST_SEQUENCE, _LAST_ID)


def _is_behind(place: Place, other: Place, asked: EntryQuery) -> bool:
    """Return whether a place comes after another one, in the requested order."""
    return place < other if asked.order == "newest" else place > other


def _sequence(record: Record) -> int:
    """Return the sequence among entries of one moment; -1 if there is none."""
    sequence = record.fields.get(SEQUENCE)
    return sequence if isinstance(sequence, int) else -1


def _add(found: dict[str, Record], rows: Iterable[Record], asked: EntryQuery) -> None:
    """Add the rows after `asked.after`; of each entry, keep the authoritative copy."""
    for row in rows:
        *_, name = place = _place(row, asked)
        if asked.after is not None and not _is_behind(place, asked.after, asked):
            continue
        there = found.get(name)
        if there is None or outranks(row, there, asked.known_at):
            found[name] = row


def outranks(row: Record | Head, other: Record | Head, known_at: datetime | None = None) -> bool:
    """Return whether a copy of an entry is more authoritative than another copy.

    A copy of exactly the requested moment wins, then the newer one, then a home.
    """
    asked = micros_or_none(known_at)

    def rank(one: Record | Head) -> tuple[bool, int, bool]:
        return (one.version == asked, one.version, one.role is Role.HOME)

    return rank(row) > rank(other)
