"""Reads indexes: selects those for a query, pages through them, and merges them."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from memory.adapters.redis.codec import DamagedRecord, listed_in, row_in, sort_key, tenant_in
from memory.adapters.redis.connection import Connections
from memory.adapters.redis.keys import BUCKETS, NOWHERE, Address, home_bucket, partition_token, tenant_token
from memory.adapters.redis.scripts import Call
from memory.domain.ids import digest_of, partition_digest
from memory.domain.time import micros
from memory.ports.collections import Collection
from memory.ports.query import Everywhere, Partitions, Where
from memory.ports.record import Corrupt, Key, Partition, Stored
from memory.ports.rows import RECORD, Row, stored_of

_YES = ord("1")


@dataclass(slots=True)
class IndexCursor:
    """One index and the position where its last page ended."""

    collection: str
    bucket: str
    index: str
    bound: bytes = b"-"
    partition: str = ""
    """Token of the partition, or a tier."""
    known: Partition | str | None = None
    """Partition or tenant of the whole index; None if it holds several tenants."""
    until: bytes = b"+"
    """End of the index to read; a backward read ends at its beginning."""
    more: bool = True
    found: list[IndexEntry] = field(default_factory=list)
    """Entries that were read but not yet returned, in order."""

    @property
    def name(self) -> str:
        """End of the index's key."""
        return ":".join([self.index, *filter(None, (self.collection, self.partition))])

    def take(self, page: bytes) -> None:
        """Add a page that was read."""
        self.more = page[:1] == b"1"
        self.found += entries(self, page[1:])
        if self.found:
            self.bound = b"(" + self.found[-1].member


@dataclass(slots=True)
class IndexEntry:
    """A member of an index and the value that it refers to."""

    source: IndexCursor
    member: bytes
    value: bytes

    @property
    def address(self) -> Address:
        source, start = self.source, 0 if self.source.index in "ag" else 16
        if source.index == "o":
            start = len(self.member) - 68
        who = self.member[start : start + 68].decode()
        collection = self.member[start + 69 :].decode() if source.index == "d" else source.collection
        return Address(source.bucket, collection, who[36:], who[:36])

    @property
    def index_place(self) -> tuple[str, str]:
        """Partition and creation time under which indexes list the record."""
        match self.source.index:
            case "t":
                return self.source.partition, self.member[:16].decode()
            case "a":
                return self.member[84:].decode(), self.member[68:84].decode()
            case _:
                return NOWHERE, "0" * 16

    def read(self, collection: Collection) -> tuple[Row | None, Stored]:
        """Decode the value.

        The result is `Corrupt` if the value cannot be read, or is of another partition
        or tenant.
        """
        address, known = self.address, self.source.known
        try:
            row = row_in(collection, self.value)
        except DamagedRecord as exc:
            return None, Corrupt(Key(self._tenant(address), address.id), str(exc))
        if row.id == address.id and tenant_token(row.tenant) == address.tenant and _is_of(row, known):
            return row, stored_of(collection, row)
        return None, Corrupt(Key(self._tenant(address), address.id), "another record is in its place")

    def _tenant(self, address: Address) -> str:
        """Return the tenant of an unreadable value."""
        known = self.source.known
        if known is not None:
            return known if isinstance(known, str) else known.tenant
        claimed = tenant_in(self.value)
        return claimed if claimed is not None and tenant_token(claimed) == address.tenant else address.tenant


def _is_of(row: Row, known: Partition | str | None) -> bool:
    """Return whether the row is of that partition or tenant.

    The key does not say, because it has only digests.
    """
    if known is None or isinstance(known, str):
        return known in (None, row.tenant)
    return row.type == RECORD and (row.tenant, row.scope) == (known.tenant, known.scope)


class Reader:
    """Reads indexes for one query."""

    def __init__(self, connections: Connections, backwards: bool = False) -> None:
        self._connections, self._thresholds = connections, connections.config.thresholds
        self._backwards = backwards

    # -- sources -----------------------------------------------------------------------

    async def by_creation(self, collection: str, where: Where, after: bytes | None) -> list[IndexCursor]:
        """Return the indexes of records by creation time and id.

        Args:
            where: Partitions or a tenant.
            after: Index position after which to continue.
        """
        bound = self._start_bound(after)
        if isinstance(where, Partitions):
            return [
                IndexCursor(collection, home_bucket(p), "t", bound, partition_token(p), p)
                for p in dict.fromkeys(where.partitions)
            ]
        assert not isinstance(where, Everywhere)  # noqa: S101  indexes by creation are a partition's
        calls = [
            Call(bucket, ("partitions", bucket, collection, tenant_token(where.tenant))) for bucket in BUCKETS
        ]
        answers = await self._connections.run("read", calls, [self._thresholds.answer_bytes], repeatable=True)
        return [
            IndexCursor(collection, bucket, "t", bound, answer[at : at + 32].decode(), where.tenant)
            for bucket, answer in zip(BUCKETS, answers, strict=True)
            for at in range(0, len(answer), 32)
        ]

    def by_text(
        self, collection: str, where: Partitions, field: str, bounds: TextBounds, after: bytes | None
    ) -> list[IndexCursor]:
        """Return the indexes of records by an ordered text and id.

        Args:
            bounds: The texts to read.
            after: Index position after which to continue.
        """
        low = b"-" if bounds.low is None else b"[" + escape_text(bounds.low)
        high = b"+" if bounds.high is None else b"(" + escape_text(bounds.high)
        first, last = (high, low) if self._backwards else (low, high)
        bound = first if after is None else self._start_bound(after)
        return [
            IndexCursor(collection, home_bucket(p), "o", bound, f"{partition_token(p)}:{field}", p, last)
            for p in dict.fromkeys(where.partitions)
        ]

    def by_id(self, collection: str, indexes: Iterable[str], after: bytes | None) -> list[IndexCursor]:
        """Return these indexes of every bucket, ordered by id.

        `after` is the id after which to continue.
        """
        bound = self._start_bound(after)
        return [IndexCursor(collection, bucket, index, bound) for index in indexes for bucket in BUCKETS]

    def _start_bound(self, after: bytes | None) -> bytes:
        """Return the bound after all members that begin with `after`.

        Letters and digits follow an id in a member.
        """
        if after is None:
            return b"+" if self._backwards else b"-"
        return b"(" + after if self._backwards else b"(" + after + b"~"

    async def by_age(self, collection: str, tier: str, until: datetime) -> list[IndexCursor]:
        """Return cursors of the indexes by age of a tier, which end at a time.

        These indexes list records of the roles home and arriving (see `Role`) by their
        creation or last change, whichever is earlier. Cursors of the indexes of
        unreadable records are returned too.
        """
        old = IndexCursor(
            collection, "", "u", partition=tier, until=b"(" + sort_key(micros(until) + 1).encode()
        )
        return list((await self.find_waiting([old, IndexCursor(collection, "", "u")])).values())

    async def find_waiting(self, indexes: Sequence[IndexCursor]) -> dict[int, IndexCursor]:
        """Return a cursor for each index and bucket with a member before the end.

        The keys of the result number the pairs of index and bucket. The method checks
        every bucket in one round trip with a small answer.
        """
        options = [len(indexes), *[argument for index in indexes for argument in (index.name, index.until)]]
        answers = await self._connections.run(
            "any", [Call(bucket, (bucket,)) for bucket in BUCKETS], options, repeatable=True
        )
        found: dict[int, IndexCursor] = {}
        for number, index in enumerate(indexes):
            for place, (bucket, said) in enumerate(zip(BUCKETS, answers, strict=True)):
                if said[number] == _YES:
                    found[number * len(BUCKETS) + place] = replace(index, bucket=bucket, found=[])
        return found

    async def scan(self, collection: str, where: Where) -> AsyncIterator[list[IndexEntry]]:
        """Yield the entries of all records in the place, in batches, without an index.

        It reads the keys of every record.
        """
        prefix = self._connections.config.prefix
        known = _asked_by_token(where)
        tenants = {token[:32] for token in known}
        for bucket, tenant in _places(where):
            async for keys in self._connections.keys(f"{{{prefix}:{bucket}}}:r:{collection}:{tenant}:*"):
                addresses = [a for key in dict.fromkeys(keys) if (a := _address_in(key)) is not None]
                wanted = [a for a in addresses if not known or a.tenant in tenants]
                for start in range(0, len(wanted), self._thresholds.audited_at_once):
                    some = wanted[start : start + self._thresholds.audited_at_once]
                    values = await self._connections.values(some)
                    yield [
                        e
                        for a, v in zip(some, values, strict=True)
                        if v is not None and (e := _scanned_entry(a, v, known, where))
                    ]

    # -- pages -------------------------------------------------------------------------

    async def in_order(self, sources: list[IndexCursor], expected: int) -> AsyncIterator[list[IndexEntry]]:
        """Yield all entries of the sources in one order, in batches.

        `expected` is the probable number of entries needed.
        """
        most, least = self._thresholds.page, self._thresholds.least_in_order
        size = min(most, expected if len(sources) == 1 else max(least, 2 * expected // max(1, len(sources))))
        waiting = sources
        while waiting:
            await self.fill([s for s in waiting if s.more and not s.found], size)
            if any(s.more and not s.found for s in waiting):
                continue
            yield self._ripe(waiting)
            waiting = [s for s in waiting if s.more or s.found]
            size = min(most, size * 2)

    async def in_portions(self, sources: list[IndexCursor]) -> AsyncIterator[list[IndexEntry]]:
        """Yield all entries of the sources, in any order."""
        at_once, waiting = self._thresholds.indexes_at_once, sources
        while waiting:
            some, waiting = waiting[:at_once], waiting[at_once:]
            await self.fill(some, max(self._thresholds.least_in_portions, self._thresholds.page // len(some)))
            for source in some:
                if source.found:
                    yield source.found
                    source.found = []
            waiting += [s for s in some if s.more]

    def _ripe(self, sources: Sequence[IndexCursor]) -> list[IndexEntry]:
        """Remove and return, in order, the entries that no later page can precede."""
        ends = [s.found[-1].member for s in sources if s.more]
        limit = (max(ends) if self._backwards else min(ends)) if ends else None
        ripe: list[IndexEntry] = []
        for source in sources:
            if limit is None:
                taken = len(source.found)
            elif self._backwards:
                taken = sum(1 for e in source.found if e.member >= limit)
            else:
                taken = sum(1 for e in source.found if e.member <= limit)
            ripe += source.found[:taken]
            del source.found[:taken]
        if len(sources) > 1:
            ripe.sort(key=lambda e: e.member, reverse=self._backwards)
        return ripe

    async def fill(self, sources: Sequence[IndexCursor], size: int) -> None:
        """Read a page into each source."""
        ends = [_backwards_to(s.until) if self._backwards else s.until for s in sources]
        calls = [
            Call(s.bucket, ("page", s.bucket, s.collection, s.index, s.partition, s.bound, end, size))
            for s, end in zip(sources, ends, strict=True)
        ]
        options = [self._thresholds.answer_bytes // max(1, len(calls))]
        for source, answer in zip(
            sources, await self._connections.run("read", calls, options, repeatable=True), strict=True
        ):
            source.take(answer)


def _backwards_to(until: bytes) -> bytes:
    """Return the end of a backward read, in the form of `lua/read.lua`."""
    return b"-" if until in (b"+", b"-") else b"-" + until


@dataclass(frozen=True, slots=True)
class TextBounds:
    """A range of texts, from `low` (included) to `high` (excluded). It may be wider."""

    low: str | None = None
    high: str | None = None


def escape_text(text: str) -> bytes:
    """Return the beginning of the index members of a text.

    Members are in the order of the code points of their texts, although each member has
    more bytes after the text.
    """
    return text.encode("utf-8", "surrogatepass").replace(b"\0", b"\0\xff")


def text_position(text: str, record_id: str) -> bytes:
    """Return the position of a record in an index by text."""
    return escape_text(text) + b"\0\0" + record_id.encode()


def _places(where: Where) -> list[tuple[str, str]]:
    """Return bucket and tenant patterns of the keys that may match."""
    if isinstance(where, Partitions):
        return list(dict.fromkeys((home_bucket(p), tenant_token(p.tenant)) for p in where.partitions))
    return [("*", "*" if isinstance(where, Everywhere) else tenant_token(where.tenant))]


def _asked_by_token(where: Where) -> dict[str, Partition]:
    """Map the tokens of tenant and partition to the queried partitions.

    The result is empty if whole tenants are queried.
    """
    partitions = where.partitions if isinstance(where, Partitions) else ()
    return {tenant_token(p.tenant) + partition_token(p): p for p in partitions}


def _address_in(key: bytes) -> Address | None:
    """Return the address of a record's key; None for other keys."""
    head, _, rest = key.decode("utf-8", "replace").partition("}:r:")
    collection, _, rest = rest.partition(":")
    tenant, _, record_id = rest.partition(":")
    bucket = head[-2:]
    return (
        Address(bucket, collection, tenant, record_id) if bucket in BUCKETS and len(record_id) == 36 else None
    )


def _scanned_entry(
    address: Address, value: bytes, known: Mapping[str, Partition], where: Where
) -> IndexEntry | None:
    """Build the entry that an index over all records would have for the value.

    The result is None if the value is of a partition that is not queried.
    """
    listed = listed_in(value)
    token, created = listed or (NOWHERE, "0" * 16)
    of: Partition | str | None = None if isinstance(where, Everywhere | Partitions) else where.tenant
    if known:
        of = known.get(address.tenant + token)
        if listed is None:  # the header is damaged, but the id tells the partition
            of = next(
                (p for p in known.values() if partition_digest(p.tenant, p.scope) == digest_of(address.id)),
                None,
            )
        if of is None:
            return None
    member = (address.id + address.tenant + created + token).encode()
    return IndexEntry(IndexCursor(address.collection, address.bucket, "a", known=of), member, value)


_SIZES = struct.Struct(">II")


def entries(source: IndexCursor, answer: bytes) -> Iterator[IndexEntry]:
    """Yield the members and values of an answer."""
    at = 0
    while at < len(answer):
        member_size, value_size = _SIZES.unpack_from(answer, at)
        start = at + 8
        middle = start + member_size
        at = middle + value_size
        yield IndexEntry(source, answer[start:middle], answer[middle:at])
