"""Compares indexes with the records; see `lua/audit.lua`.

It scans all keys of the prefix once, in batches. A record that changes meanwhile is
compared as it is when its batch is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from memory.adapters.redis.connection import Connections
from memory.adapters.redis.keys import hash_tag
from memory.adapters.redis.scripts import Call, frames

_INDEXES = {
    "t": "a partition's records by creation",
    "o": "a partition's records by a text",
    "a": "all records by id",
    "g": "marks and tombstones",
    "x": "what expires",
    "u": "a tier's records by age",
    "d": "what is due",
    "s": "a partition's collections",
    "m": "a partition's marks",
    "e": "partitions that have records",
}


class Audit:
    """One scan over all data."""

    def __init__(self, connections: Connections, *, repair: bool) -> None:
        self._connections, self._options, self._thresholds = (
            connections,
            [int(repair)],
            connections.config.thresholds,
        )
        self._missing: Counter[tuple[str, str]] = Counter()
        self._wrong: Counter[tuple[str, str]] = Counter()
        self.checked = 0

    async def look(self) -> list[str]:
        at_once = self._thresholds.audited_at_once
        async for keys in self._connections.keys(f"{{{self._connections.config.prefix}:*"):
            named = [(bucket, kind, rest) for key in keys for bucket, kind, rest in self._parts(key)]
            records = [(bucket, *rest.rsplit(":", 2)) for bucket, kind, rest in named if kind == "r"]
            for start in range(0, len(records), at_once):
                await self._records(records[start : start + at_once])
            for bucket, kind, rest in named:
                if kind in "toagxdu":
                    await self._members(bucket, kind, rest)
        problems = [
            f"{of}: {n} records are missing from the index of {_INDEXES[i]}, or are wrongly in it"
            for (of, i), n in sorted(self._missing.items())
        ]
        return problems + [
            f"{of}: the index of {_INDEXES[i]} names {n} records that do not exist"
            for (of, i), n in sorted(self._wrong.items())
        ]

    def _parts(self, key: bytes) -> Iterable[tuple[str, str, str]]:
        """Yield the bucket, letter and rest of a key; nothing for foreign keys."""
        head, _, rest = key.decode("utf-8", "replace").partition("}:")
        kind, _, rest = rest.partition(":")
        if head == hash_tag(self._connections.config.prefix, head[-2:])[:-1] and len(kind) == 1:
            yield head[-2:], kind, rest

    async def _records(self, addresses: Sequence[tuple[str, ...]]) -> None:
        calls = [Call(address[0], ("record", *address)) for address in addresses]
        for address, answer in zip(
            addresses,
            await self._connections.run("audit", calls, self._options, repeatable=True),
            strict=True,
        ):
            self.checked += 1
            self._missing.update([(address[1], letter) for letter in set(answer.decode())])

    async def _members(self, bucket: str, index: str, of: str) -> None:
        bound: bytes = b"-"
        while bound:
            call = Call(bucket, ("members", bucket, index, of, bound, self._thresholds.members_at_once))
            (answer,) = await self._connections.run("audit", [call], self._options, repeatable=True)
            bound, wrong = frames(answer)
            if int(wrong):
                self._wrong[of.partition(":")[0] or "all", index] += int(wrong)
