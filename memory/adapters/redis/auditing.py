"""What is derived from records, compared with them: see `lua/audit.lua`.

All keys of the prefix are gone through once, some at a time: what is changed meanwhile is judged as it stands when its turn comes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from memory.adapters.redis.link import Link
from memory.adapters.redis.names import tagged
from memory.adapters.redis.scripts import Argument, Call, frames

_INDEXES = {
    "t": "a partition's records by creation",
    "a": "all records by id",
    "n": "the partitions of a tenant",
    "g": "marks and tombstones",
    "o": "what owes a step",
    "m": "a partition's marks",
}


class Audit:
    """One look at everything."""

    def __init__(self, link: Link, *, repair: bool) -> None:
        self._link, self._options, self._thresholds = link, [int(repair)], link.config.thresholds
        self._missing: Counter[tuple[str, str]] = Counter()
        self._wrong: Counter[tuple[str, str]] = Counter()
        self.checked = 0

    async def look(self) -> list[str]:
        at_once = self._thresholds.audited_at_once
        async for keys in self._link.keys(f"{{{self._link.config.prefix}:*"):
            named = [(bucket, kind, rest) for key in keys for bucket, kind, rest in self._parts(key)]
            records = [_place(bucket, rest) for bucket, kind, rest in named if kind == "r"]
            for start in range(0, len(records), at_once):
                await self._records(records[start : start + at_once])
            for bucket, kind, rest in named:
                if kind in "ago" and kind:
                    await self._members(bucket, kind, rest)
                elif kind == "t":
                    await self._partition(bucket, rest)
        problems = [f"{of}: {n} records are missing in the index of {_INDEXES[i]}, or wrongly in it" for (of, i), n in sorted(self._missing.items())]
        return problems + [f"{of}: the index of {_INDEXES[i]} names {n} that do not stand there" for (of, i), n in sorted(self._wrong.items())]

    def _parts(self, key: bytes) -> Iterable[tuple[str, str, bytes]]:
        """The bucket of a key, its letter and what follows; nothing for keys of another form."""
        head, _, rest = key.partition(b"}:")
        kind, _, rest = rest.partition(b":")
        bucket = head[-2:].decode("latin-1")
        if head == tagged(self._link.config.prefix, bucket)[:-1].encode() and len(kind) == 1:
            yield bucket, kind.decode("latin-1"), rest

    async def _records(self, places: Sequence[tuple[str, ...] | tuple[Argument, ...]]) -> None:
        calls = [Call(str(place[0]), ("record", *place)) for place in places]
        for place, answer in zip(places, await self._link.run("audit", calls, self._options, repeatable=True), strict=True):
            self.checked += 1
            self._missing.update([(str(place[1]), letter) for letter in set(answer.decode())])

    async def _members(self, bucket: str, index: str, rest: bytes) -> None:
        bound: bytes = b"-"
        collection = rest.decode()
        while bound:
            call = Call(bucket, ("members", bucket, collection, index, bound, self._thresholds.members_at_once))
            bound = await self._judged(call, (collection, index))

    async def _partition(self, bucket: str, rest: bytes) -> None:
        bound: bytes = b"-"
        collection, _, of = rest.decode().rpartition(":")
        while bound:
            call = Call(bucket, ("partition", bucket, collection, of, bound, self._thresholds.members_at_once))
            bound = await self._judged(call, (collection, "t"))

    async def _judged(self, call: Call, index: tuple[str, str]) -> bytes:
        """Where the next portion begins, nothing where there is none."""
        (answer,) = await self._link.run("audit", [call], self._options, repeatable=True)
        bound, wrong = frames(answer)
        if int(wrong):
            self._wrong[index] += int(wrong)
        return bound


def _place(bucket: str, rest: bytes) -> tuple[Argument, ...]:
    """The place of a record that stands under such a key: bucket, collection, tenant and the id as indexes have it."""
    before, _, token = rest.rpartition(b":")
    collection, _, tenant = before.decode().rpartition(":")
    plain = bytes.fromhex(token[1:].decode()) + b"\x00h" if token[:1] == b"~" else token + b"\x00p"
    return bucket, collection, tenant, plain
