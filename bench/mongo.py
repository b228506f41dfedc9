"""The MongoDB adapter beside bare pymongo with the same write concern, on the same
server; see `bench.beside`.

Raw's searched collection has a text index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pymongo import AsyncMongoClient
from pymongo.asynchronous.database import AsyncDatabase

from bench.beside import HERE, NEWEST, bulk, newest, puts
from bench.measure import Figure
from memory.adapters.mongo.store import MongoStore
from memory.orchestrator.storage.kinds import KINDS
from memory.ports.record import Record
from tests.support import mongo_servers, servers

DATABASE = "memory_bench"


class BarePymongo:
    def __init__(self, database: AsyncDatabase[dict[str, Any]]) -> None:
        self.plain, self.found = database["raw"], database["raw_found"]

    async def make_ready(self) -> None:
        for collection in (self.plain, self.found):
            await collection.create_index([("tenant", 1), ("scope", 1), ("created_at", 1), ("_id", 1)])
        await self.found.create_index([("content", "text")])

    async def put(self, record: Record) -> None:
        await self.plain.insert_one(_document(record))

    async def newest(self) -> Sequence[object]:
        newest = {"created_at": -1, "_id": -1}
        return (
            await self.plain.find({"tenant": HERE.tenant, "scope": HERE.scope})
            .sort(newest)
            .limit(NEWEST)
            .to_list()
        )

    async def fill(self, records: Sequence[Record], *, found: bool) -> None:
        await (self.found if found else self.plain).insert_many(
            [_document(r) for r in records], ordered=False
        )


def _document(record: Record) -> dict[str, Any]:
    given: Mapping[str, Any] = {
        "tenant": HERE.tenant,
        "scope": record.scope,
        "created_at": record.created_at,
        "type": "fact",
    }
    return {
        "_id": record.key.id,
        **given,
        "body": dict(record.body),
        "content": record.texts["content"],
        "vector": record.vector,
    }


async def mongo(folder: Path, rounds: int) -> list[Figure]:
    if reason := servers.missing("mongo"):
        return [Figure("MongoDB, put, newest 20 and bulk", None, "ms", note=reason)]
    return [
        *await measured("MongoDB", mongo_servers.alone(), rounds),
        *await measured("MongoDB, replica set of one", mongo_servers.replica_set(), rounds),
    ]


async def measured(name: str, server: mongo_servers.Mongo, rounds: int) -> list[Figure]:
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
        server.url("admin"), w="majority", journal=True
    )
    await client.drop_database(DATABASE)
    bare = BarePymongo(client[DATABASE])
    await bare.make_ready()
    store = MongoStore(server.url(DATABASE))
    try:
        await store.open(KINDS.collections)
        return [
            await puts(name, store, bare, rounds),
            await newest(name, store, bare, rounds),
            *await bulk(name, store, bare, rounds),
        ]
    finally:
        await store.close()
        await client.drop_database(DATABASE)
        await client.close()
