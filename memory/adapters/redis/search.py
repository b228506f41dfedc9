"""Queries: reads matches in the order of an index, or reads all and sorts them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from memory.adapters.redis.codec import changed_in, sort_key
from memory.adapters.redis.connection import Connections
from memory.adapters.redis.indexes import IndexCursor, IndexEntry, Reader, TextBounds, text_position
from memory.domain.errors import InvalidInput
from memory.domain.time import micros
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.due import LEFT
from memory.ports.query import (
    And,
    Condition,
    Eq,
    Everywhere,
    Ge,
    Gt,
    Le,
    Lt,
    Or,
    Page,
    Partitions,
    Query,
    RowType,
    decode_cursor,
)
from memory.ports.query_evaluation import condition, page_and_next, page_of
from memory.ports.record import Corrupt, Key, Mark, Record, Role, Standing, Stored, Tombstone
from memory.ports.rows import Row

_TYPES: dict[type[Standing], RowType] = {Mark: RowType.MARK, Tombstone: RowType.TOMBSTONE}
_LISTED_BY_AGE = frozenset({Role.HOME, Role.ARRIVING})


@dataclass(slots=True)
class Match:
    """A matching or unreadable value."""

    entry: IndexEntry
    row: Row | None
    found: Stored


class Question:
    """One query over the indexes of a collection, or over all keys if it `scans`."""

    def __init__(self, connections: Connections, query: Query, *, scans: bool = False) -> None:
        self._query, self._beyond = query, connections.config.thresholds.beyond
        self._position = None if query.cursor is None else decode_cursor(query.cursor, query.order)
        self._wants_records = RowType.RECORD in query.types
        self._roles = tuple(
            query.roles
        )  # a tuple, because hashing an enum takes longer than comparing all four
        self._lets_through = condition(query.filter)
        self._scans = scans
        self._text = self._ordered_text()
        self._in_order = not scans and self._has_index()
        self._by_change = (
            not isinstance(query.where, Everywhere)
            and bool(query.order)
            and query.order[0].field == "updated_at"
        )
        backwards = (self._in_order or self._by_change) and bool(query.order) and query.order[0].descending
        self._reader = Reader(connections, backwards)
        self._end: bytes | None = None
        """Time of the last change of the record after a full page, if that is the
        order.
        """
        self.rows: dict[Key, Row] = {}
        """Rows of the records on the page."""

    async def page(self) -> tuple[Page, list[Match]]:
        """Return the page and the unreadable values found on the way."""
        found, corrupt = await (self._first_in_order() if self._in_order else self._first_of_all())
        records, cursor = page_of(found, self._query)
        return Page(
            tuple(records), cursor, tuple(dict.fromkeys(match.found.key for match in corrupt))
        ), corrupt

    async def find_matches(self, *, all_there_is: bool = False) -> AsyncIterator[list[Match]]:
        """Yield all matches and unreadable values in batches, unordered.

        The query's `limit`, `order` and `cursor` are ignored. Without `all_there_is`,
        damage that nobody has found yet may be missed.
        """
        async for entries in self._portions(all_there_is=all_there_is):
            yield await self.matches(entries)

    async def _portions(self, *, all_there_is: bool = False) -> AsyncIterator[list[IndexEntry]]:
        if self._scans:
            portions = self._reader.scan(self._query.collection.name, self._query.where)
        else:
            portions = self._reader.in_portions(await self._sources(None, all_there_is=all_there_is))
        async for entries in portions:
            yield entries

    # -- how ---------------------------------------------------------------------------

    def _has_index(self) -> bool:
        """Return whether an index has the order of the query.

        Within partitions or a tenant, records are indexed by creation time, then by id
        in the same direction. Over all tenants, they are indexed by id.
        """
        query = self._query
        fields = [by.field for by in query.order]
        one_way = len({by.descending for by in query.order}) <= 1
        if isinstance(query.where, Everywhere):
            return fields in ([], ["id"])
        return one_way and (self._text is not None or fields in (["created_at"], ["created_at", "id"]))

    def _ordered_text(self) -> str | None:
        """Return the text in whose order an index has the partitions' records."""
        query = self._query
        fields = [by.field for by in query.order]
        if not isinstance(query.where, Partitions) or query.types != {RowType.RECORD}:
            return None
        indexed = fields[:1] if fields[1:] in ([], ["id"]) else []
        return next((name for name in indexed if name in query.collection.ordered_texts), None)

    async def _sources(self, after: bytes | None, *, all_there_is: bool = False) -> list[IndexCursor]:
        query, name = self._query, self._query.collection.name
        if not isinstance(query.where, Everywhere):
            return await self._reader.by_creation(name, query.where, after)
        if (aged := None if self._in_order or all_there_is else aged_up_to(query)) is not None:
            return await self._reader.by_age(name, *aged)
        return self._reader.by_id(
            name, ("a" if self._wants_records else "") + ("g" if query.types & LEFT else ""), after
        )

    def _behind(self) -> bytes | None:
        """Return the index position of the cursor."""
        position = self._position
        if position is None:
            return None
        if isinstance(self._query.where, Everywhere):
            return position.id.encode()
        created = position.values[0]
        if not isinstance(created, datetime):
            raise InvalidInput("cursor", "this cursor was made for a query with another order")
        return (sort_key(micros(created)) + position.id).encode()

    async def _first_in_order(self) -> tuple[list[Standing], list[Match]]:
        found: list[Standing] = []
        corrupt: list[Match] = []
        sources = self._sources_by_text() if self._text else await self._sources(self._behind())
        async for entries in self._reader.in_order(sources, self._query.limit + 1):
            found += self._collect_readable(await self.matches(entries), corrupt)
            if self._is_enough(found):
                break
        return found, corrupt

    def _sources_by_text(self) -> list[IndexCursor]:
        where, field, position = self._query.where, self._text, self._position
        assert isinstance(where, Partitions)  # noqa: S101 - `_ordered_text` checked both
        assert field is not None  # noqa: S101
        after = None
        if position is not None:
            text = position.values[0]
            if not isinstance(text, str):
                raise InvalidInput("cursor", "this cursor was made for a query with another order")
            after = text_position(text, position.id)
        bounds = text_bounds(self._query.filter, field)
        return self._reader.by_text(self._query.collection.name, where, field, bounds, after)

    def _is_enough(self, found: Sequence[Standing]) -> bool:
        """Return whether the records cover a page and the first record after it.

        See `page_of` for records of several tenants at one position.
        """
        limit = self._query.limit
        if len(found) <= limit:
            return False
        return found[-1].key.id != found[limit - 1].key.id

    async def _first_of_all(self) -> tuple[list[Standing], list[Match]]:
        """Read everything and keep only candidates for the page.

        The limit bounds memory, but not time. In the order of the last change, the
        header shows whether a record is beyond a full page. Such a record is verified,
        but not decoded.
        """
        limit = self._query.limit
        beyond = max(limit, self._beyond)
        found: dict[Key, Standing] = {}
        corrupt: list[Match] = []
        async for portion in self._portions():
            for start in range(0, len(portion), beyond):
                matches = await self.matches(portion[start : start + beyond])
                found |= {standing.key: standing for standing in self._collect_readable(matches, corrupt)}
                if len(found) > limit + beyond:
                    found = self._page_and_next(found)
        return list(found.values()), corrupt

    def _page_and_next(self, found: Mapping[Key, Standing]) -> dict[Key, Standing]:
        """Return the records that the page may need; forget the rows of the others."""
        first = page_and_next(list(found.values()), self._query)
        if self._by_change and len(first) > self._query.limit and isinstance(last := first[-1], Record):
            self._end = sort_key(micros(last.updated_at)).encode()
        self.rows = {standing.key: self.rows[standing.key] for standing in first}
        return {standing.key: standing for standing in first}

    def _is_behind(self, value: bytes) -> bool:
        """Return whether the value is of a record beyond a full page."""
        if self._end is None or (changed := changed_in(value)) is None:
            return False
        return changed < self._end if self._query.order[0].descending else changed > self._end

    def _collect_readable(self, matches: Sequence[Match], corrupt: list[Match]) -> list[Standing]:
        """Return the readable matches, and append the others to `corrupt`."""
        found: list[Standing] = []
        for match in matches:
            if isinstance(match.found, Corrupt):
                corrupt.append(match)
            else:
                found.append(match.found)
                self.rows[match.found.key] = match.row  # type: ignore[assignment]
        return found

    async def matches(self, entries: Iterable[IndexEntry]) -> list[Match]:
        """Return the entries that match or cannot be read."""
        found = []
        async for entry in iterate_cooperatively(entries):
            if self._is_behind(entry.value):
                continue
            row, stands = entry.read(self._query.collection)
            if isinstance(stands, Corrupt) or (self._is_asked(stands) and self._lets_through(stands)):
                found.append(Match(entry, row, stands))
        return found

    def _is_asked(self, standing: Standing) -> bool:
        """Return whether the query includes this type and, for records, this role."""
        if isinstance(standing, Record):
            return self._wants_records and standing.role in self._roles
        return _TYPES[type(standing)] in self._query.types


def text_bounds(part: Condition | None, field: str) -> TextBounds:
    """Return bounds of a text field within which all matches of a filter are."""
    parts = part.parts if isinstance(part, And) else (part,)
    low: str | None = None
    high: str | None = None
    for one in parts:
        inner = text_bounds(one, field) if isinstance(one, And) else TextBounds()
        if isinstance(one, Ge | Gt) and one.field == field and isinstance(one.value, str):
            inner = TextBounds(low=one.value)
        elif isinstance(one, Lt) and one.field == field and isinstance(one.value, str):
            inner = TextBounds(high=one.value)
        low = inner.low if low is None else max(low, inner.low or "")
        high = inner.high if high is None else high if inner.high is None else min(high, inner.high)
    return TextBounds(low, high)


def aged_up_to(query: Query) -> tuple[str, datetime] | None:
    """Return the tier and the latest time that the filter of a query requires.

    Every match is of that tier, and was created or last changed by that time. The
    result is None if the filter does not require both. It is also None if the query
    asks for rows that the indexes by age do not list.
    """
    if query.types != {RowType.RECORD} or not query.roles <= _LISTED_BY_AGE or query.filter is None:
        return None
    tier, until = _tier_in(query.filter), _latest(query.filter)
    return None if not tier or until is None else (tier, until)


def _tier_in(part: Condition) -> str | None:
    if isinstance(part, And):
        return next((tier for inner in part.parts if (tier := _tier_in(inner)) is not None), None)
    return (
        part.value if isinstance(part, Eq) and part.field == "tier" and isinstance(part.value, str) else None
    )


def _latest(part: Condition) -> datetime | None:
    """Return the time after which no match was both created and last changed.

    The result is None if there is no such limit.
    """
    if (
        isinstance(part, Le | Lt)
        and part.field in ("created_at", "updated_at")
        and isinstance(part.value, datetime)
    ):
        return part.value
    if isinstance(part, And):
        return min([at for inner in part.parts if (at := _latest(inner)) is not None], default=None)
    if isinstance(part, Or):
        each = [_latest(inner) for inner in part.parts]
        return max([at for at in each if at is not None], default=None) if None not in each else None
    return None
