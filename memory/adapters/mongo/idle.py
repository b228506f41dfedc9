"""Partitions that nothing is left of: which there are, and forgetting their documents.

A writer who is just beginning there announces himself in the partition's document. So it is deleted only if nobody has since it was looked at: every
announcement leaves its token in `last`. Who was announced before is kept out by a fence first, or has written, and then something stands there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from memory.adapters.mongo.documents import CORRUPT, MARK, RECORD
from memory.adapters.mongo.partitions import LAST, Registry, partition_id
from memory.adapters.mongo.schema import Names
from memory.adapters.mongo.values import Document
from memory.ports.record import Partition


class Idle:
    """Looks at every collection of records that the database has, opened with or not."""

    def __init__(self, database: AsyncDatabase[Document], names: Names, registry: Registry, page: int) -> None:
        self._database, self._names, self._registry, self._page = database, names, registry, page
        self._partitions = database[names.partitions]

    async def find(self, limit: int) -> list[tuple[Partition, int]]:
        collections = await self._collections()
        found: list[tuple[Partition, int]] = []
        after: Mapping[str, Any] = {}
        while len(found) < limit:
            page = await self._partitions.find(after, {"_id": 1}, sort=[("_id", 1)], limit=self._page).to_list()
            if not page:
                break
            found += [(_partition(d), int(d["generation"])) async for d in self._empty([d["_id"] for d in page], collections)]
            after = {"_id": {"$gt": page[-1]["_id"]}}
        return found[:limit]

    async def forget(self, idle: Mapping[Partition, int]) -> int:
        """Forget those that are still as said."""
        collections = await self._collections()
        forgotten = 0
        for partition, generation in idle.items():
            place = partition_id(partition)
            seen = await self._partitions.find_one({"_id": place}, {"generation": 1, LAST: 1})
            if seen is None or int(seen["generation"]) != generation:
                continue
            await self._registry.fence(partition)
            if [d async for d in self._empty([place], collections)]:
                as_seen = {"generation": {"$eq": generation}, LAST: {"$eq": seen.get(LAST)}}
                gone = await self._partitions.delete_one({"_id": place} | as_seen)
                self._registry.forget(partition)
                forgotten += gone.deleted_count
        return forgotten

    async def _collections(self) -> list[str]:
        prefix = self._names.prefix
        there = await self._database.list_collection_names(filter={"name": {"$regex": f"^{prefix}"}})
        return [name for name in there if not name.startswith(f"{prefix}store.")]

    async def _empty(self, places: Sequence[Document], collections: Sequence[str]) -> AsyncIterator[Document]:
        """The documents of those of these partitions in which nothing stands. One index look for each collection."""
        pipeline: list[Document] = [{"$match": {"_id": {"$in": list(places)}}}]
        for name in collections:
            pipeline += [_looked_up(name, {"kind": {"$in": [RECORD, MARK, CORRUPT]}}), {"$match": {"there": []}}]
        pipeline += [_looked_up(self._names.aside, {}), {"$match": {"there": []}}, {"$project": {"generation": 1}}]
        async for document in await self._partitions.aggregate(pipeline):
            yield document


def _looked_up(name: str, asked: Document) -> Document:
    there = {"$expr": {"$and": [{"$eq": ["$tenant", "$$tenant"]}, {"$eq": ["$scope", "$$scope"]}]}}
    one = [{"$match": {**asked, **there}}, {"$limit": 1}, {"$project": {"_id": 1}}]
    return {"$lookup": {"from": name, "let": {"tenant": "$_id.tenant", "scope": "$_id.scope"}, "pipeline": one, "as": "there"}}


def _partition(document: Mapping[str, Any]) -> Partition:
    return Partition(document["_id"]["tenant"], document["_id"]["scope"])
