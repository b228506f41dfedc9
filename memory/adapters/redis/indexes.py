"""Reading by the indexes: which of them a question needs, their pages, and several of
them as one in order.
"""

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
    """One index being read, from where the last page ended."""

    collection: str
    bucket: str
    index: str
    bound: bytes = b"-"
    partition: str = ""
    """Whose it is: a partition's token, or a tier."""
    known: Partition | str | None = None
    """The partition or the tenant that everything in the index belongs to, None where
    it holds several tenants.
    """
    until: bytes = b"+"
    """Where it ends; backwards it ends where the index begins."""
    more: bool = True
    found: list[IndexEntry] = field(default_factory=list)
    """Read and not handed out yet, in order."""

    @property
    def name(self) -> str:
        """What its key ends with."""
        return ":".join([self.index, *filter(None, (self.collection, self.partition))])

    def take(self, page: bytes) -> None:
        """A page that was read of it."""
        self.more = page[:1] == b"1"
        self.found += entries(self, page[1:])
        if self.found:
            self.bound = b"(" + self.found[-1].member


@dataclass(slots=True)
class IndexEntry:
    """A member of an index and the value it leads to."""

    source: IndexCursor
    member: bytes
    value: bytes

    @property
    def address(self) -> Address:
        source, start = self.source, 0 if self.source.index in "ag" else 16
        who = self.member[start : start + 68].decode()
        collection = self.member[start + 69 :].decode() if source.index == "d" else source.collection
        return Address(source.bucket, collection, who[36:], who[:36])

    @property
    def index_place(self) -> tuple[str, str]:
        """The partition and creation by which indexes list a record."""
        match self.source.index:
            case "t":
                return self.source.partition, self.member[:16].decode()
            case "a":
                return self.member[84:].decode(), self.member[68:84].decode()
            case _:
                return NOWHERE, "0" * 16

    def read(self, collection: Collection) -> tuple[Row | None, Stored]:
        """What it says; `Corrupt` where it cannot be read, or is not of the partition
        or tenant that was asked.
        """
        address, known = self.address, self.source.known
        try:
            row = row_in(collection, self.value)
        except DamagedRecord as exc:
            return None, Corrupt(Key(self._tenant(address), address.id), str(exc))
        if row.id == address.id and tenant_token(row.tenant) == address.tenant and _is_of(row, known):
            return row, stored_of(collection, row)
        return None, Corrupt(Key(self._tenant(address), address.id), "another record stands in its place")

    def _tenant(self, address: Address) -> str:
        """The tenant of what cannot be read."""
        known = self.source.known
        if known is not None:
            return known if isinstance(known, str) else known.tenant
        claimed = tenant_in(self.value)
        return claimed if claimed is not None and tenant_token(claimed) == address.tenant else address.tenant


def _is_of(row: Row, known: Partition | str | None) -> bool:
    """Digests lead to a record; only tenant and scope themselves say whose it is."""
    if known is None or isinstance(known, str):
        return known in (None, row.tenant)
    return row.type == RECORD and (row.tenant, row.scope) == (known.tenant, known.scope)


class Reader:
    """Reads indexes for one question."""

    def __init__(self, connections: Connections, backwards: bool = False) -> None:
        self._connections, self._thresholds = connections, connections.config.thresholds
        self._backwards = backwards

    # -- sources -----------------------------------------------------------------------

    async def by_creation(self, collection: str, where: Where, after: bytes | None) -> list[IndexCursor]:
        """The records of these partitions or this tenant, by creation and id; `after`
        is the index position to continue behind.
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

    def by_id(self, collection: str, indexes: Iterable[str], after: bytes | None) -> list[IndexCursor]:
        """Everything in these indexes of every bucket, by id; `after` is the id to
        continue behind.
        """
        bound = self._start_bound(after)
        return [IndexCursor(collection, bucket, index, bound) for index in indexes for bucket in BUCKETS]

    def _start_bound(self, after: bytes | None) -> bytes:
        """Where an index is to be read from: behind everything that begins with
        `after`. Behind an id stand letters and digits.
        """
        if after is None:
            return b"+" if self._backwards else b"-"
        return b"(" + after if self._backwards else b"(" + after + b"~"

    async def by_age(self, collection: str, tier: str, until: datetime) -> list[IndexCursor]:
        """The records at home or arriving in a tier that were made or changed last up
        to a moment, and what cannot be read.
        """
        old = IndexCursor(
            collection, "", "u", partition=tier, until=b"(" + sort_key(micros(until) + 1).encode()
        )
        return list((await self.find_waiting([old, IndexCursor(collection, "", "u")])).values())

    async def find_waiting(self, indexes: Sequence[IndexCursor]) -> dict[int, IndexCursor]:
        """Of these indexes in every bucket those with a member up to where they end, by
        their number: one trip that tells little.
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
        """Every record there is, found by the names of all keys: for servers that may
        have evicted the indexes.
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
        """All entries of the sources in one order, in portions. `expected` is how many
        will do, as far as the caller knows.
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
        """All entries of the sources in whatever order."""
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
        """Take out what no page still to come can precede, in order."""
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
        ends = [b"-" if self._backwards else s.until for s in sources]
        calls = [
            Call(s.bucket, ("page", s.bucket, s.collection, s.index, s.partition, s.bound, end, size))
            for s, end in zip(sources, ends, strict=True)
        ]
        options = [self._thresholds.answer_bytes // max(1, len(calls))]
        for source, answer in zip(
            sources, await self._connections.run("read", calls, options, repeatable=True), strict=True
        ):
            source.take(answer)


def _places(where: Where) -> list[tuple[str, str]]:
    """The buckets and tenants, as patterns, whose keys may hold what is asked for."""
    if isinstance(where, Partitions):
        return list(dict.fromkeys((home_bucket(p), tenant_token(p.tenant)) for p in where.partitions))
    return [("*", "*" if isinstance(where, Everywhere) else tenant_token(where.tenant))]


def _asked_by_token(where: Where) -> dict[str, Partition]:
    """The asked partitions by the tokens of tenant and partition; nothing if whole
    tenants are asked for.
    """
    partitions = where.partitions if isinstance(where, Partitions) else ()
    return {tenant_token(p.tenant) + partition_token(p): p for p in partitions}


def _address_in(key: bytes) -> Address | None:
    """Where the record of this key is; None for keys of another form."""
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
    """The value as an index over all records leads to it; None if it is of a partition
    that is not asked for.
    """
    listed = listed_in(value)
    token, created = listed or (NOWHERE, "0" * 16)
    of: Partition | str | None = None if isinstance(where, Everywhere | Partitions) else where.tenant
    if known:
        of = known.get(address.tenant + token)
        if listed is None:  # a damaged header: its id tells the partition
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
    """The members and values that an answer holds."""
    at = 0
    while at < len(answer):
        member_size, value_size = _SIZES.unpack_from(answer, at)
        start = at + 8
        middle = start + member_size
        at = middle + value_size
        yield IndexEntry(source, answer[start:middle], answer[middle:at])
