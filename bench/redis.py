"""The Redis adapter beside redis-py on the same server: one awaited put, and the newest
twenty of a partition.

Raw is what one writes without a library: `RPUSH` of a JSON text, and `LRANGE` of the
last twenty, decoded.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

from redis.asyncio import Redis

from bench.measure import Figure, side_by_side
from bench.texts import sentences
from memory.adapters.redis.store import RedisStore
from memory.domain.ids import new_id
from memory.domain.time import micros
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.storage.kinds import KINDS
from memory.ports.clock import system_clock
from memory.ports.query import Order, Query, within
from memory.ports.record import FieldValue, Key, Partition, Record
from memory.ports.writes import Absent, Put
from tests.support import redis_servers, servers

HERE = Partition("bench", "session:one")
ROUNDS = 500
RECENT = Query(ENTRIES, within(HERE), order=(Order("created_at", descending=True),), limit=20)


def _record(content: str) -> Record:
    now = system_clock()
    key = Key(HERE.tenant, new_id(HERE.tenant, HERE.scope, micros(now)))
    fields: dict[str, FieldValue] = {"type": "message", "tags": ("bench",), "scope_kind": "session"}
    return Record(
        key,
        HERE.scope,
        micros(now),
        now,
        now,
        fields=fields,
        body={"content": content},
        texts={"content": content},
        tier="short",
    )


@contextlib.asynccontextmanager
async def _opened(port: int) -> AsyncIterator[tuple[RedisStore, Redis]]:
    store = RedisStore(f"redis://127.0.0.1:{port}", prefix="bench")
    await store.open(KINDS.collections)
    raw = Redis(port=port)
    try:
        yield store, raw
    finally:
        await store.close()
        await raw.aclose()
        redis_servers.emptied(port)


async def redis(folder: Path, rounds: int) -> list[Figure]:
    figures: list[Figure] = []
    if reason := servers.missing("redis"):
        return [Figure("Redis, put and newest 20", None, "ms", note=reason)]
    for how, server in (
        ("default settings", redis_servers.default()),
        ("every write on disk", redis_servers.durable()),
    ):
        figures += await _measured(server.port, how, rounds)
    return figures


async def _measured(port: int, how: str, rounds: int) -> list[Figure]:
    contents = sentences(ROUNDS * rounds + 50, seed=7)
    async with _opened(port) as (store, raw):

        async def put(number: int) -> None:
            (outcome,) = await store.apply([Put(ENTRIES, _record(contents[number]), Absent())])
            assert outcome.applied

        async def append(number: int) -> None:
            record = {
                "content": contents[number],
                "type": "message",
                "tags": ["bench"],
                "at": micros(system_clock()),
            }
            await raw.rpush("bench-raw", json.dumps(record))

        async def recent(_: int) -> None:
            assert len((await store.query(RECENT)).records) == 20

        async def last(_: int) -> None:
            assert len([json.loads(text) for text in await raw.lrange("bench-raw", -20, -1)]) == 20

        await side_by_side(50, put, append)  # warm
        put_s, append_s = await side_by_side(ROUNDS * rounds, put, append)
        recent_s, last_s = await side_by_side(ROUNDS * rounds, recent, last)
    return [
        Figure(f"Redis, {how}: one awaited put", put_s * 1000, "ms", raw=append_s * 1000, ratio_target=2),
        Figure(
            f"Redis, {how}: the newest twenty of a partition",
            recent_s * 1000,
            "ms",
            raw=last_s * 1000,
            ratio_target=2,
        ),
    ]
