"""The MongoDB adapter beside bare pymongo with the same write concern, on the same server: one put, the newest twenty, a bulk write.

Raw is what one writes without a library: a plain collection with the index that browsing needs, for the bulk write also one whose words are found.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy
from pymongo import AsyncMongoClient
from pymongo.asynchronous.database import AsyncDatabase

from bench.measure import Figure, side_by_side
from bench.texts import sentences
from memory.adapters.mongo.store import MongoStore
from memory.domain.ids import new_id
from memory.domain.time import moment
from memory.ports.collections import COLLECTIONS, ENTRIES
from memory.ports.query import Order, Query, within
from memory.ports.record import Key, Partition, Record
from memory.ports.writes import Absent, Put
from tests.support import mongo_servers, servers

DATABASE = "memory_bench"
HERE = Partition("acme", "user:ada")
DIMENSIONS = 256
BULK, AT_ONCE = 10_000, 500

numbers = numpy.random.default_rng(7)


def records(contents: list[str], start: int) -> list[Record]:
    made = []
    for n, content in enumerate(contents, start):
        at = moment(1_800_000_000_000_000 + n * 1_000)
        vector = numbers.standard_normal(DIMENSIONS).astype("<f4").tobytes()
        key = Key(HERE.tenant, new_id(HERE.tenant, HERE.scope, n * 1_000))
        body = {"metadata": {"n": n, "from": "bench"}}
        made.append(Record(key, HERE.scope, n, at, at, fields={"type": "fact"}, body=body, texts={"content": content}, vector=vector))
    return made


def bare(record: Record) -> dict[str, Any]:
    given: Mapping[str, Any] = {"tenant": HERE.tenant, "scope": record.scope, "created_at": record.created_at, "type": "fact"}
    return {"_id": record.key.id, **given, "body": dict(record.body), "content": record.texts["content"], "vector": record.vector}


async def mongo(folder: Path, rounds: int) -> list[Figure]:
    if reason := servers.missing("mongo"):
        return [Figure("MongoDB, put, newest 20 and bulk", None, "ms", note=reason)]
    return [
        *await measured("MongoDB", mongo_servers.alone(), rounds),
        *await measured("MongoDB, replica set of one", mongo_servers.replica_set(), rounds),
    ]


async def measured(name: str, server: mongo_servers.Mongo, rounds: int) -> list[Figure]:
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(server.url("admin"), w="majority", journal=True)
    await client.drop_database(DATABASE)
    raw = client[DATABASE]
    for plain in (raw["raw"], raw["raw_found"]):
        await plain.create_index([("tenant", 1), ("scope", 1), ("created_at", 1), ("_id", 1)])
    await raw["raw_found"].create_index([("content", "text")])
    store = MongoStore(server.url(DATABASE))
    try:
        await store.open(COLLECTIONS)
        return [await puts(name, store, raw, rounds), await newest(name, store, raw, rounds), *await bulk(name, store, raw, rounds)]
    finally:
        await store.close()
        await client.drop_database(DATABASE)
        await client.close()


async def puts(name: str, store: MongoStore, bare_database: AsyncDatabase[dict[str, Any]], rounds: int) -> Figure:
    made = records(sentences(300 * rounds + 50, seed=1), 0)

    async def ours(n: int) -> None:
        (outcome,) = await store.apply([Put(ENTRIES, made[n], Absent())])
        assert outcome.applied

    async def raw(n: int) -> None:
        await bare_database["raw"].insert_one(bare(made[n]))

    await side_by_side(50, ours, raw)
    ours_s, raw_s = await side_by_side(300 * rounds, lambda n: ours(n + 50), lambda n: raw(n + 50))
    return Figure(f"{name}, one put", ours_s * 1000, "ms", raw=raw_s * 1000, ratio_target=2.5)


async def newest(name: str, store: MongoStore, bare_database: AsyncDatabase[dict[str, Any]], rounds: int) -> Figure:
    query = Query(ENTRIES, within(HERE), order=(Order("created_at", True),), limit=20)

    async def ours(_: int) -> None:
        assert len((await store.query(query)).records) == 20

    async def raw(_: int) -> None:
        found = bare_database["raw"].find({"tenant": HERE.tenant, "scope": HERE.scope}).sort({"created_at": -1, "_id": -1}).limit(20)
        assert len(await found.to_list()) == 20

    await side_by_side(20, ours, raw)
    ours_s, raw_s = await side_by_side(300 * rounds, ours, raw)
    return Figure(f"{name}, the 20 newest of a partition", ours_s * 1000, "ms", raw=raw_s * 1000, ratio_target=2)


async def bulk(name: str, store: MongoStore, bare_database: AsyncDatabase[dict[str, Any]], rounds: int) -> list[Figure]:
    """Against a bare collection that is not searched, and against one whose words are found as ours are."""
    ours: list[float] = []
    raw: list[float] = []
    found: list[float] = []
    for round_ in range(rounds):
        made = records(sentences(BULK, seed=10 + round_), 100_000 * (round_ + 1))
        begun = time.perf_counter()
        for start in range(0, BULK, AT_ONCE):
            outcomes = await store.apply([Put(ENTRIES, r, Absent()) for r in made[start : start + AT_ONCE]])
            assert all(o.applied for o in outcomes)
        ours.append(BULK / (time.perf_counter() - begun))
        for plain, rates in (("raw", raw), ("raw_found", found)):
            begun = time.perf_counter()
            for start in range(0, BULK, AT_ONCE):
                await bare_database[plain].insert_many([bare(r) for r in made[start : start + AT_ONCE]], ordered=False)
            rates.append(BULK / (time.perf_counter() - begun))
    rate, title = median(ours), f"{name}, bulk write, {AT_ONCE} at once"
    return [
        Figure(f"{title}, raw with a full-text index", rate, "records/s", median(found) / 2, at_least=True, raw=median(found)),
        Figure(f"{title}, raw without one", rate, "records/s", raw=median(raw)),
    ]
