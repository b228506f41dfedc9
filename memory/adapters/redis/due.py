"""Reads due records from sets that the script maintains, bucket by bucket.

It takes one round trip if nothing is due, and two if little is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from memory.adapters.redis.codec import sort_key
from memory.adapters.redis.connection import Connections
from memory.adapters.redis.indexes import IndexCursor, IndexEntry, Reader
from memory.adapters.redis.keys import BUCKETS
from memory.domain.errors import InvalidInput
from memory.domain.ids import is_id
from memory.domain.time import micros
from memory.ports.collections import Collection
from memory.ports.due import DuePage, DueReason, DueRow, cursor_at, place_of
from memory.ports.record import Corrupt, Record

_MOMENT = re.compile("[0-9a-f]{16}")
_WHY = {b"o": DueReason.OWES, b"a": DueReason.ARRIVING, b"d": DueReason.DISCARD}


async def due_page(
    connections: Connections,
    collections: Sequence[Collection],
    now: datetime,
    limit: int,
    cursor: str | None,
    expired: Mapping[Collection, datetime],
) -> DuePage:
    """Return one page. A cursor is the number of a set and its last returned member."""
    known = {collection.name: collection for collection in collections}
    indexes = [IndexCursor("", "", "d", until=_before(now))]
    indexes += [
        IndexCursor(collection.name, "", "x", until=_before(at))
        for collection, at in sorted(expired.items(), key=lambda one: one[0].name)
    ]
    sets = len(indexes) * len(BUCKETS)
    begin, told = place_of(cursor, sets)
    if told is not None and not (_MOMENT.fullmatch(told[:16]) and is_id(told[16:52])):
        raise InvalidInput("cursor", "this is not a cursor that `due` returned")
    reader = Reader(connections)
    waiting = {
        number: source for number, source in (await reader.find_waiting(indexes)).items() if number >= begin
    }
    if told is not None and begin in waiting:
        waiting[begin].bound = f"({told}".encode()
    if waiting:
        await reader.fill(list(waiting.values()), max(1, 2 * limit // len(waiting)))
    rows: list[DueRow] = []
    for number, source in waiting.items():
        while source.found or source.more:
            for entry in source.found:
                rows += _row_of(entry, known)
                if len(rows) == limit:
                    return DuePage(tuple(rows), cursor_at(number, entry.member.decode(), sets))
            source.found = []
            if source.more:
                await reader.fill([source], limit)
    return DuePage(tuple(rows))


def _before(at: datetime) -> bytes:
    """Return the bound that excludes this time and later; members begin with theirs."""
    return b"(" + sort_key(micros(at)).encode()


def _row_of(entry: IndexEntry, known: Mapping[str, Collection]) -> Iterator[DueRow]:
    """Yield the due row; nothing for unreadable rows and unknown collections."""
    collection = known.get(entry.address.collection)
    if collection is None:
        return
    _, found = entry.read(collection)
    if not isinstance(found, Corrupt):
        why = _WHY[entry.member[84:85]] if entry.source.index == "d" else DueReason.EXPIRED
        yield DueRow(
            collection, found.key, found.version, why, found.tier if isinstance(found, Record) else ""
        )
