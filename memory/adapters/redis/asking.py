"""Questions: what of the indexed matches, in order where an index has it, else sorted from all there is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from memory.adapters.redis.link import Link
from memory.adapters.redis.names import start_of
from memory.adapters.redis.packing import sort_key
from memory.adapters.redis.reading import Entry, Reader, Source
from memory.domain.errors import InvalidInput
from memory.ports.asking import condition, leading, page_of
from memory.ports.pace import paced
from memory.ports.query import And, Eq, Everywhere, Filter, Page, Query, RowType, decode_cursor
from memory.ports.record import Corrupt, Key, Mark, Record, Standing, Tombstone

_KINDS: dict[type[Standing], RowType] = {Mark: RowType.MARK, Tombstone: RowType.TOMBSTONE}
_GRAVES = frozenset({RowType.MARK, RowType.TOMBSTONE})


@dataclass(slots=True)
class Match:
    """What stands somewhere and is asked for, or cannot be read."""

    entry: Entry
    found: Standing | Corrupt


class Question:
    """One query over the indexes of one collection."""

    def __init__(self, link: Link, query: Query) -> None:
        self._query, self._beyond = query, link.config.thresholds.page
        self._position = None if query.cursor is None else decode_cursor(query.cursor, query.order)
        self._wants_records = RowType.RECORD in query.types
        self._roles = tuple(query.roles)  # found by identity: an enum's hash takes longer than comparing all four
        self._lets_through = condition(query.filter)
        self._in_order = self._has_index()
        backwards = self._in_order and bool(query.order) and query.order[0].descending
        self._reader = Reader(link, query.collection, backwards)

    async def page(self) -> tuple[Page, list[Match]]:
        """The asked page, and what could not be read on the way."""
        found, spoiled = await (self._first_in_order() if self._in_order else self._first_of_all())
        records, cursor = page_of(found, self._query)
        return Page(tuple(records), cursor, tuple(dict.fromkeys(match.found.key for match in spoiled))), spoiled

    async def matching(self) -> AsyncIterator[list[Match]]:
        """Everything that matches or cannot be read, in portions, in no order; `limit`, `order` and `cursor` aside."""
        async for entries in self._reader.in_portions(await self._sources(None)):
            yield await self.matches(entries)

    # -- how ----------------------------------------------------------------------------------------------------------

    def _has_index(self) -> bool:
        """Whether an index has the asked order: creation within partitions, the id everywhere; the id last, in the same direction."""
        query = self._query
        fields = [by.field for by in query.order]
        one_way = len({by.descending for by in query.order}) <= 1
        if isinstance(query.where, Everywhere):
            return fields in ([], ["id"])
        return one_way and fields in (["created_at"], ["created_at", "id"])

    async def _sources(self, after: bytes | None) -> list[Source]:
        query = self._query
        if not isinstance(query.where, Everywhere):
            return await self._reader.by_creation(query.where, after)
        if _needs_owing(query.filter):
            return self._reader.by_id("o", after)
        return self._reader.by_id(("a" if RowType.RECORD in query.types else "") + ("g" if query.types & _GRAVES else ""), after)

    def _behind(self) -> bytes | None:
        """Where the cursor points in the index."""
        position = self._position
        if position is None:
            return None
        if isinstance(self._query.where, Everywhere):
            return start_of(position.id)
        created = position.values[0]
        if not isinstance(created, datetime):
            raise InvalidInput("cursor", "this cursor was made for a query with another order")
        return sort_key(created).encode() + start_of(position.id)

    async def _first_in_order(self) -> tuple[list[Standing], list[Match]]:
        found: list[Standing] = []
        spoiled: list[Match] = []
        sources = await self._sources(self._behind())
        async for entries in self._reader.in_order(sources, self._query.limit + 1):
            for match in await self.matches(entries):
                if isinstance(match.found, Corrupt):
                    spoiled.append(match)
                else:
                    found.append(match.found)
            if self._is_enough(found):
                break
        return found, spoiled

    def _is_enough(self, found: Sequence[Standing]) -> bool:
        """Whether these, in order, are a page and what tells that another follows; see `page_of` for records of several tenants at one position."""
        limit = self._query.limit
        if len(found) <= limit:
            return False
        return found[-1].key.id != found[limit - 1].key.id

    async def _first_of_all(self) -> tuple[list[Standing], list[Match]]:
        """Reads everything and keeps what the page may need: memory is bounded by the limit, time is not."""
        limit = self._query.limit
        found: dict[Key, Standing] = {}
        spoiled: list[Match] = []
        async for matches in self.matching():
            for match in matches:
                if isinstance(match.found, Corrupt):
                    spoiled.append(match)
                else:
                    found[match.found.key] = match.found
            if len(found) > limit + self._beyond:
                found = {standing.key: standing for standing in leading(list(found.values()), self._query)}
        return list(found.values()), spoiled

    async def matches(self, entries: Iterable[Entry]) -> list[Match]:
        """Those of the entries that match or cannot be read."""
        found = []
        async for entry in paced(entries):
            stands = self._reader.stored(entry)
            if isinstance(stands, Corrupt) or (self._is_asked(stands) and self._lets_through(stands)):
                found.append(Match(entry, stands))
        return found

    def _is_asked(self, standing: Standing) -> bool:
        """Whether the query wants this kind, and of records this role."""
        if isinstance(standing, Record):
            return self._wants_records and standing.role in self._roles
        return _KINDS[type(standing)] in self._query.types


def _needs_owing(part: Filter | None) -> bool:
    """Whether the filter lets through nothing but what owes a step."""
    match part:
        case Eq("owing", wanted):
            return wanted is True
        case And(parts):
            return any(_needs_owing(p) for p in parts)
        case _:
            return False
