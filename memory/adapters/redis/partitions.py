"""Lists partitions, and forgets those that are empty but have a generation."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence

from memory.adapters.redis.connection import Connections
from memory.adapters.redis.keys import BUCKETS, home_bucket, partition_token, tenant_token
from memory.adapters.redis.scripts import Call, frames
from memory.ports.query import Everywhere, Tenant
from memory.ports.record import Partition

Found = tuple[Partition, int]
"""A partition and its generation."""


async def partitions(connections: Connections, where: Tenant | Everywhere) -> list[Found]:
    """Return partitions with a generation or a record, unordered."""
    start, end = (
        ("-", "+")
        if isinstance(where, Everywhere)
        else (f"[{tenant_token(where.tenant)}", f"({tenant_token(where.tenant)}~")
    )
    return [
        one
        for registry in "ie"
        async for some in _portions(connections, "standing", registry, start, end)
        for one in some
    ]


async def idle_partitions(connections: Connections, limit: int) -> list[Found]:
    found: list[Found] = []
    async for some in _portions(connections, "idle", "i", "-", "+"):
        found += some
        if len(found) >= limit:
            break
    return found[:limit]


async def forget_partitions(connections: Connections, idle: Mapping[Partition, int]) -> int:
    forgotten, wanted = 0, list(idle.items())
    at_once = connections.config.thresholds.forgotten_at_once
    for start in range(0, len(wanted), at_once):
        calls = [
            _forget_call(partition, generation) for partition, generation in wanted[start : start + at_once]
        ]
        forgotten += sum(
            [int(answer) for answer in await connections.run("partitions", calls, (), repeatable=False)]
        )
    return forgotten


def _forget_call(partition: Partition, generation: int) -> Call:
    bucket = home_bucket(partition)
    return Call(
        bucket, ("forget", bucket, tenant_token(partition.tenant), partition_token(partition), generation)
    )


async def _portions(
    connections: Connections, operation: str, registry: str, start: str, end: str
) -> AsyncIterator[Sequence[Found]]:
    """Yield the script's answers for a registry of partitions, all buckets at once."""
    bounds: dict[str, bytes] = dict.fromkeys(BUCKETS, start.encode())
    at_once = connections.config.thresholds.partitions_at_once
    while bounds:
        calls = [
            Call(bucket, (operation, bucket, registry, bound, end, at_once))
            for bucket, bound in bounds.items()
        ]
        for call, answer in zip(
            calls, await connections.run("partitions", calls, (), repeatable=True), strict=True
        ):
            bounds[call.bucket], *told = frames(answer)
            yield [(Partition(*json.loads(one[80:])), int(one[:16])) for one in told]
        bounds = {bucket: bound for bucket, bound in bounds.items() if bound}
