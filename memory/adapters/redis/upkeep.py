"""Upkeep: partitions of which something is kept though nothing stands in them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from memory.adapters.redis.link import Link
from memory.adapters.redis.names import BUCKETS, home_bucket, partition_token
from memory.adapters.redis.scripts import Argument, Call, frames
from memory.ports.collections import Collection
from memory.ports.record import Partition


def _collections_key(link: Link) -> str:
    return f"{{{link.config.prefix}}}:collections"


async def note_collections(link: Link, collections: Sequence[Collection]) -> None:
    """Remember which collections there are: a partition is empty where none of them has anything, opened with or not."""
    await link.command("SADD", _collections_key(link), *[c.name for c in collections])


async def _options(link: Link) -> list[Argument]:
    names = sorted(await link.command("SMEMBERS", _collections_key(link)))
    return [int(link.one_server), len(names), *names]


async def idle_partitions(link: Link, limit: int) -> list[tuple[Partition, int]]:
    options, page, found = await _options(link), link.config.thresholds.idle_at_once, list[tuple[Partition, int]]()
    cursors: dict[str, bytes] = dict.fromkeys(BUCKETS, b"0")
    while cursors and len(found) < limit:
        calls = [Call(bucket, ("idle", bucket, cursor, page)) for bucket, cursor in cursors.items()]
        for call, answer in zip(calls, await link.run("upkeep", calls, options, repeatable=True), strict=True):
            cursor, *kept = frames(answer)
            cursors[call.bucket] = cursor
            found += [(_named(one[16:]), int(one[:16])) for one in kept]
        cursors = {bucket: cursor for bucket, cursor in cursors.items() if cursor != b"0"}
    return list(dict(found).items())[:limit]


async def forget_partitions(link: Link, idle: Mapping[Partition, int]) -> int:
    options, forgotten, wanted = await _options(link), 0, list(idle.items())
    at_once = link.config.thresholds.forgotten_at_once
    for start in range(0, len(wanted), at_once):
        calls = [Call(home_bucket(p), ("forget", home_bucket(p), partition_token(p), g)) for p, g in wanted[start : start + at_once]]
        forgotten += sum([int(answer) for answer in await link.run("upkeep", calls, options, repeatable=False)])
    return forgotten


def _named(identity: bytes) -> Partition:
    """The partition that a record's identity, or the partition's own, names: tenant first, scope last."""
    named = json.loads(identity.decode("utf-8", "surrogatepass"))
    return Partition(named[0], named[-1])
