"""Reading by the indexes: which of them a question needs, their pages, and several of them as one in order."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from memory.adapters.redis.link import Link
from memory.adapters.redis.names import BUCKETS, NOWHERE, Place, home_bucket, id_of, partition_token, tenant_token
from memory.adapters.redis.scripts import Call
from memory.adapters.redis.unpacking import Damaged, read, tenant_in
from memory.ports.collections import Collection
from memory.ports.query import Everywhere, Partitions, Where
from memory.ports.record import Corrupt, Key, Partition, Record, Stored


@dataclass(frozen=True, slots=True)
class Spot:
    """A place and where the indexes list what stands there."""

    place: Place
    partition: str = NOWHERE
    created: str = "0" * 16


@dataclass(slots=True)
class Source:
    """One index being read, from where the last page ended."""

    collection: str
    bucket: str
    index: str
    tenant: str
    partition: str
    bound: bytes
    known: Partition | str | None
    """The partition or the tenant that everything in the index belongs to, None where it holds several tenants."""
    more: bool = True
    found: list[Entry] = field(default_factory=list)
    """Read and not handed out yet, in order."""
    elsewhere: str = ""


@dataclass(slots=True)
class Entry:
    """A member of an index and the value it leads to."""

    source: Source
    member: bytes
    value: bytes

    @property
    def id(self) -> bytes:
        """The id, sortable."""
        index = self.source.index
        return self.member[16:] if index == "t" else self.member[:-80] if index == "a" else self.member[:-32]

    @property
    def spot(self) -> Spot:
        source, member = self.source, self.member
        if source.index == "t":
            return Spot(Place(source.bucket, source.collection, source.tenant, self.id), source.partition, member[:16].decode())
        if source.index == "a":
            tail = member[-80:].decode()
            return Spot(Place(source.bucket, source.collection, tail[:32], self.id), tail[48:], tail[32:48])
        return Spot(Place(source.bucket, source.collection, member[-32:].decode(), self.id))


class Reader:
    """Reads one collection for one question."""

    def __init__(self, link: Link, collection: Collection, backwards: bool = False) -> None:
        self._link, self._thresholds = link, link.config.thresholds
        self._collection = collection
        self._backwards = backwards

    # -- sources ------------------------------------------------------------------------------------------------------

    async def by_creation(self, where: Where, after: bytes | None) -> list[Source]:
        """The records of these partitions or this tenant, by creation and id; `after` is the index position to continue behind."""
        bound = self._bound(after)
        if isinstance(where, Partitions):
            return [
                Source(self._collection.name, home_bucket(p), "t", tenant_token(p.tenant), partition_token(p), bound, known=p)
                for p in dict.fromkeys(where.partitions)
            ]
        assert not isinstance(where, Everywhere)  # noqa: S101  indexes by creation are a partition's
        token = tenant_token(where.tenant)
        calls = [Call(bucket, ("partitions", bucket, self._collection.name, token)) for bucket in BUCKETS]
        answers = await self._link.run("read", calls, [self._thresholds.answer_bytes], repeatable=True)
        return [
            Source(self._collection.name, bucket, "t", token, answer[at : at + 32].decode(), bound, known=where.tenant)
            for bucket, answer in zip(BUCKETS, answers, strict=True)
            for at in range(0, len(answer), 32)
        ]

    def by_id(self, indexes: Iterable[str], after: bytes | None) -> list[Source]:
        """Everything in these indexes of every bucket, by id; `after` is what members of the id to continue behind begin with."""
        bound = self._bound(after)
        return [Source(self._collection.name, bucket, index, "", "", bound, known=None) for index in indexes for bucket in BUCKETS]

    def _bound(self, after: bytes | None) -> bytes:
        """Where an index is to be read from: behind everything that begins with `after`. Behind an id stand letters and digits."""
        if after is None:
            return b"+" if self._backwards else b"-"
        return b"(" + after if self._backwards else b"(" + after + b"~"

    # -- pages --------------------------------------------------------------------------------------------------------

    async def in_order(self, sources: list[Source], expected: int) -> AsyncIterator[list[Entry]]:
        """All entries of the sources in one order, in portions. `expected` is how many will do, as far as the caller knows."""
        most, least = self._thresholds.page, self._thresholds.least_in_order
        size = min(most, expected if len(sources) == 1 else max(least, 2 * expected // max(1, len(sources))))
        waiting = sources
        while waiting:
            waiting += await self._fill([s for s in waiting if s.more and not s.found], size)
            if any(s.more and not s.found for s in waiting):
                continue
            yield self._ripe(waiting)
            waiting = [s for s in waiting if s.more or s.found]
            size = min(most, size * 2)

    async def in_portions(self, sources: list[Source]) -> AsyncIterator[list[Entry]]:
        """All entries of the sources in whatever order."""
        at_once, waiting = self._thresholds.indexes_at_once, sources
        while waiting:
            some, waiting = waiting[:at_once], waiting[at_once:]
            waiting += await self._fill(some, max(self._thresholds.least_in_portions, self._thresholds.page // len(some)))
            for source in some:
                if source.found:
                    yield source.found
                    source.found = []
            waiting += [s for s in some if s.more]

    def _ripe(self, sources: Sequence[Source]) -> list[Entry]:
        """Take out what no page still to come can precede, in order."""
        ends = [s.found[-1].member for s in sources if s.more]
        limit = (max(ends) if self._backwards else min(ends)) if ends else None
        ripe: list[Entry] = []
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

    async def _fill(self, sources: Sequence[Source], size: int) -> list[Source]:
        """Read a page into each source. Returns sources that came to light: buckets where more of a partition is."""
        name, backwards = self._collection.name, int(self._backwards)
        calls = [
            Call(s.bucket, ("page", s.bucket, name, s.index, s.tenant, s.partition, backwards, s.bound, size)) for s in sources
        ]  # fmt: skip
        added: list[Source] = []
        options = [self._thresholds.answer_bytes // max(1, len(calls))]
        for source, answer in zip(sources, await self._link.run("read", calls, options, repeatable=True), strict=True):
            source.more = answer[:1] == b"1"
            end = 5 + int.from_bytes(answer[1:5], "big")
            elsewhere = answer[5:end].decode()
            if elsewhere and isinstance(source.known, Partition) and source.bucket == home_bucket(source.known):
                added += self._beside(source, elsewhere)
            source.found += _entries(source, answer, end)
            if source.found:
                source.bound = b"(" + source.found[-1].member
        return added

    def _beside(self, source: Source, elsewhere: str) -> list[Source]:
        buckets = [elsewhere[i : i + 2] for i in range(0, len(elsewhere), 2)]
        new = [b for b in buckets if b not in source.elsewhere]
        source.elsewhere = elsewhere
        return [replace(source, bucket=bucket, found=[], more=True, elsewhere="") for bucket in new]

    # -- records ------------------------------------------------------------------------------------------------------

    def stored(self, entry: Entry) -> Stored:
        """What an entry says; `Corrupt` where it cannot be read, or is not of the partition or tenant that was asked."""
        record_id = id_of(entry.id)
        try:
            found = read(self._collection, entry.value)
        except Damaged as exc:
            return Corrupt(Key(self._tenant(entry), record_id), str(exc))
        if found.key.id == record_id and _is_of(found, entry.source.known):
            return found
        return Corrupt(Key(self._tenant(entry), record_id), "another record stands in its place")

    @staticmethod
    def _tenant(entry: Entry) -> str:
        """The tenant of an entry that cannot be read."""
        known = entry.source.known
        if known is not None:
            return known if isinstance(known, str) else known.tenant
        claimed, token = tenant_in(entry.value), entry.spot.place.tenant
        return claimed if claimed is not None and tenant_token(claimed) == token else token


_SIZES = struct.Struct(">II")


def _entries(source: Source, answer: bytes, at: int) -> Iterator[Entry]:
    """The members and values that an answer holds from there on."""
    while at < len(answer):
        member_size, value_size = _SIZES.unpack_from(answer, at)
        start = at + 8
        middle = start + member_size
        at = middle + value_size
        yield Entry(source, answer[start:middle], answer[middle:at])


def _is_of(found: Stored, known: Partition | str | None) -> bool:
    """Digests lead to a record; only tenant and scope themselves say whose it is."""
    if known is None:
        return True
    if isinstance(known, str):
        return found.key.tenant == known
    return isinstance(found, Corrupt) or (isinstance(found, Record) and found.key.tenant == known.tenant and found.scope == known.scope)
