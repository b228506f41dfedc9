"""Partitions: their generations, and how nothing of a lower one comes to stand.

MongoDB changes one document in one step, and a generation and a record are two. So a
put that is alone in its call is one command: the server looks at the partition's
document and stores the record only where its generation is still the one the record was
made under (`only_under`). Whoever sent it may be dead or frozen by then. Several writes
look before, and again when they stand; what was raised over meanwhile they take back
and decide anew (`batch`).

What is left open is why `fenced` is not claimed: a client that dies between its writes
and its second look, and the microseconds that the server takes from looking to storing.
A record that comes to stand so is of a lower generation than its partition, and the
next repeat of the erasure takes it.

A partition has a document from its first raise on, until nothing is left of it and it
is forgotten (`IdlePartitions`). Whoever forgets one marks its document, looks again, and deletes
it while the mark stands there: a writer who meets the mark takes it away, and the
partition stays. Then he looks once more, for the put that the server had looked at
before the mark came and stored when the document was gone.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from pymongo import ReturnDocument, UpdateOne
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import BulkWriteError
from pymongo.read_concern import ReadConcern

from memory.adapters.mongo.codec import Document
from memory.adapters.mongo.errors import is_only_refusals, is_refused
from memory.adapters.mongo.schema import CollectionNames
from memory.adapters.mongo.thresholds import Thresholds
from memory.ports.query import Everywhere, Tenant
from memory.ports.query_validation import behind_prefix
from memory.ports.record import Partition
from memory.ports.rows import CORRUPT, MARK, RECORD, TOMBSTONE

LEAVING = "leaving"
"""In a partition's document: by whom it is about to be forgotten."""


class Directory:
    """The documents of partitions."""

    def __init__(
        self,
        database: AsyncDatabase[Document],
        names: CollectionNames,
        thresholds: Thresholds,
        *,
        majority: bool,
    ) -> None:
        self.partitions: AsyncCollection[Document] = database[names.partitions]
        self._settled = (
            self.partitions.with_options(read_concern=ReadConcern("majority"))
            if majority
            else self.partitions
        )
        self._most = thresholds.partitions_known
        self._seen: dict[Partition, int] = {}

    def likely(self, partition: Partition) -> int:
        """The generation as last seen. It may have gone on since: nothing is decided by
        it.
        """
        return self._seen.get(partition, 0)

    async def generations(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """Where there is no document the generation is 0."""
        found = dict.fromkeys(partitions, 0)
        if found:
            async for document in self.partitions.find({"_id": {"$in": [partition_id(p) for p in found]}}):
                partition = _partition(document)
                found[partition] = int(document["generation"])
                if LEAVING in document:
                    await self.raise_to(partition, found[partition])
        self._remember(found)
        return found

    async def generations_now(self, before: Mapping[Partition, int]) -> dict[Partition, int]:
        """The generations of partitions that had these. One that was forgotten
        meanwhile gets back what it had.
        """
        now = await self.generations(list(before))
        for partition, generation in before.items():
            if now[partition] < generation:
                now[partition] = await self.raise_to(partition, generation)
        return now

    async def raise_to(self, partition: Partition, to: int | None) -> int:
        """The generation after raising it to at least `to`, or by one."""
        if to == 0:
            return (await self.generations([partition]))[partition]
        change: Document = {"$inc": {"generation": 1}} if to is None else {"$max": {"generation": to}}
        while True:
            try:
                found = await self.partitions.find_one_and_update(
                    {"_id": partition_id(partition)},
                    change | {"$unset": {LEAVING: ""}},
                    {"generation": 1},
                    upsert=True,
                    return_document=ReturnDocument.AFTER,
                )
            except Exception as exc:
                if not is_refused(exc):
                    raise
                continue  # another one made the partition's document meanwhile
            assert found is not None  # noqa: S101 - of an upsert the document after it
            self._remember({partition: int(found["generation"])})
            return int(found["generation"])

    async def replace(
        self, before: Mapping[Partition, int], after: Mapping[Partition, int], session: Any = None
    ) -> set[Partition]:
        """Set these generations where they are as before: the partitions where they are
        not. In a transaction such a one ends it.
        """
        partitions = list(after)
        changes = [
            UpdateOne(
                {"_id": partition_id(p), "generation": {"$eq": before.get(p, 0)}},
                {"$set": {"generation": after[p]}, "$unset": {LEAVING: ""}},
                upsert=True,  # no document is generation 0, and one of another generation is in the way
            )
            for p in partitions
        ]
        try:
            await self.partitions.bulk_write(changes, ordered=False, session=session)
        except BulkWriteError as exc:
            if session is not None or not is_only_refusals(exc):
                raise
            return {partitions[error["index"]] for error in exc.details["writeErrors"]}
        return set()

    async def list_partitions(
        self,
        tables: Iterable[str],
        where: Tenant | Everywhere,
        prefix: str,
        after: Partition | None,
        limit: int,
    ) -> list[tuple[Partition, int]]:
        """The first of those behind `after` that have records in these collections or a
        generation, in order. Indexes answer: they are grouped.
        """
        pipeline: list[Document] = [
            {"$match": _behind("_id.", where, prefix, after)},
            {"$project": {"generation": 1}},
        ]
        for name in tables:
            live = _behind("", where, prefix, after) | {"type": {"$nin": [MARK, TOMBSTONE]}}
            grouped = [{"$match": live}, {"$group": {"_id": {"tenant": "$tenant", "scope": "$scope"}}}]
            pipeline.append({"$unionWith": {"coll": name, "pipeline": grouped}})
        pipeline += [
            {"$group": {"_id": "$_id", "generation": {"$max": {"$ifNull": ["$generation", 0]}}}},
            {"$sort": {"_id.tenant": 1, "_id.scope": 1}},
            {"$limit": limit},
        ]
        found = await self._settled.aggregate(pipeline, allowDiskUse=True)
        return [
            (_partition(d), int(d["generation"]))
            async for d in found
            if all(isinstance(d["_id"].get(n), str) for n in ("tenant", "scope"))
        ]

    def forget(self, partition: Partition) -> None:
        """The partition is no more."""
        self._seen.pop(partition, None)

    def _remember(self, generations: Mapping[Partition, int]) -> None:
        if len(self._seen) > self._most:
            self._seen.clear()
        self._seen |= generations


def partition_id(partition: Partition) -> Document:
    """The `_id` of the partition's document."""
    return {"tenant": partition.tenant, "scope": partition.scope}


def _behind(path: str, where: Tenant | Everywhere, prefix: str, after: Partition | None) -> Document:
    """Where tenant and scope stand below this path: those there whose scope begins so,
    and that come after the partition.
    """
    tenant, scope = f"{path}tenant", f"{path}scope"
    end = behind_prefix(prefix)
    behind: Document = {scope: {"$gte": prefix, **({} if end is None else {"$lt": end})}}
    if isinstance(where, Tenant):
        behind[tenant] = {"$eq": where.tenant}
    if after is not None:
        behind["$or"] = [
            {tenant: {"$gt": after.tenant}},
            {tenant: {"$eq": after.tenant}, scope: {"$gt": after.scope}},
        ]
    return behind


def only_under(partition: Partition, document: Document, *, exactly: bool) -> list[Document]:
    """Stages, asked of the partitions' collection, that give the document where its
    generation is not lower than the partition's, or `exactly` that.

    Elsewhere, and where the partition is about to be forgotten, the server answers with
    an error. `$facet` gives one document also where the partition has none.
    """
    current = {"$ifNull": [{"$max": "$found.generation"}, 0]}
    holds = {
        "$and": [
            {"$eq" if exactly else "$lte": [current, document["generation"]]},
            {"$eq": [f"$found.{LEAVING}", []]},
        ]
    }
    refused = {"$toInt": "$found"}  # no array is a number
    return [
        {"$match": {"_id": partition_id(partition)}},
        {"$facet": {"found": [{"$limit": 1}]}},
        {"$replaceWith": {"$cond": [holds, {"$literal": document}, refused]}},
    ]


# -- forgetting ------------------------------------------------------------------------


_STANDING = [RECORD, MARK, CORRUPT]


class IdlePartitions:
    """Looks at every collection of records that the database has, opened with or not."""

    def __init__(self, directory: Directory, names: CollectionNames, page: int) -> None:
        self._directory, self._names, self._page = directory, names, page
        self._partitions, self._database = directory.partitions, directory.partitions.database

    async def find(self, limit: int) -> list[tuple[Partition, int]]:
        collections = await self._collections()
        found: list[tuple[Partition, int]] = []
        after: Mapping[str, Any] = {}
        while len(found) < limit:
            page = await self._partitions.find(
                after, {"_id": 1}, sort=[("_id", 1)], limit=self._page
            ).to_list()
            if not page:
                break
            found += [
                (_partition(d), int(d["generation"]))
                async for d in self._empty([d["_id"] for d in page], collections)
            ]
            after = {"_id": {"$gt": page[-1]["_id"]}}
        return found[:limit]

    async def forget(self, idle: Mapping[Partition, int]) -> int:
        """Forget those that are still as said: how many.

        A put that had looked before the mark came may be stored once its partition is
        gone: the second look gives such a one its generation back.
        """
        collections, mark = await self._collections(), {LEAVING: secrets.token_hex(8)}
        marks = [
            UpdateOne({"_id": partition_id(p), "generation": {"$eq": generation}}, {"$set": mark})
            for p, generation in idle.items()
        ]
        if not marks or not (await self._partitions.bulk_write(marks, ordered=False)).matched_count:
            return 0
        empty = [d["_id"] async for d in self._empty([partition_id(p) for p in idle], collections)]
        forgotten = (await self._partitions.delete_many({"_id": {"$in": empty}} | mark)).deleted_count
        for partition in map(_partition_at, empty):
            self._directory.forget(partition)
        await self._partitions.update_many(
            {"_id": {"$in": [partition_id(p) for p in idle]}} | mark, {"$unset": {LEAVING: ""}}
        )
        begun = await self._partitions_without_document(empty, collections)
        late = [
            partition for partition, generation in begun.items() if generation >= idle[partition]
        ]  # what begins anew is of generation 0
        for partition in late:
            await self._directory.raise_to(partition, idle[partition])
        return forgotten - len(late)

    async def _collections(self) -> list[str]:
        prefix = self._names.prefix
        there = await self._database.list_collection_names(filter={"name": {"$regex": f"^{prefix}"}})
        return [name for name in there if not name.startswith(f"{prefix}store.")]

    async def _empty(self, places: Sequence[Document], collections: Sequence[str]) -> AsyncIterator[Document]:
        """The documents of those of these partitions in which nothing stands. One index
        look for each collection.
        """
        pipeline: list[Document] = [{"$match": {"_id": {"$in": list(places)}}}]
        for name in collections:
            pipeline += [_looked_up(name, {"type": {"$in": _STANDING}}), {"$match": {"there": []}}]
        pipeline += [
            _looked_up(self._names.quarantine, {}),
            {"$match": {"there": []}},
            {"$project": {"generation": 1}},
        ]
        async for document in await self._partitions.aggregate(pipeline):
            yield document

    async def _partitions_without_document(
        self, places: Sequence[Document], collections: Sequence[str]
    ) -> dict[Partition, int]:
        """Those of these partitions that have no document and in which something
        stands, each with the highest generation of that.
        """
        if not places:
            return {}
        scopes: dict[str, list[str]] = {}
        for place in places:
            scopes.setdefault(place["tenant"], []).append(place["scope"])
        where = {
            "$or": [{"tenant": {"$eq": tenant}, "scope": {"$in": some}} for tenant, some in scopes.items()],
            "type": {"$in": _STANDING},
        }
        highest = {"_id": {"tenant": "$tenant", "scope": "$scope"}, "generation": {"$max": "$generation"}}
        there = [{"$match": where}, {"$group": highest}]
        pipeline: list[Document] = [
            {"$match": {"_id": {"$in": list(places)}}},
            {"$project": {"there": {"$literal": True}}},
        ]
        pipeline += [{"$unionWith": {"coll": name, "pipeline": there}} for name in collections]
        found, kept = dict[Partition, int](), set[Partition]()
        async for document in await self._partitions.aggregate(pipeline):
            partition = _partition(document)
            if "there" in document:
                kept.add(partition)
            else:
                found[partition] = max(found.get(partition, 0), int(document["generation"] or 0))
        return {partition: generation for partition, generation in found.items() if partition not in kept}


def _looked_up(name: str, asked: Document) -> Document:
    there = {"$expr": {"$and": [{"$eq": ["$tenant", "$$tenant"]}, {"$eq": ["$scope", "$$scope"]}]}}
    one = [{"$match": {**asked, **there}}, {"$limit": 1}, {"$project": {"_id": 1}}]
    return {
        "$lookup": {
            "from": name,
            "let": {"tenant": "$_id.tenant", "scope": "$_id.scope"},
            "pipeline": one,
            "as": "there",
        }
    }


def _partition(document: Mapping[str, Any]) -> Partition:
    return _partition_at(document["_id"])


def _partition_at(place: Mapping[str, Any]) -> Partition:
    return Partition(place["tenant"], place["scope"])
