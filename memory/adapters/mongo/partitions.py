"""Partitions and their generations.

MongoDB changes one document atomically, but a generation and a record are in two
documents. A single put is therefore one command (`only_under`). The server reads the
partition's document, and stores the record only if the generation is still the expected
one. This holds even if the sender has died or is frozen by then. Calls with several
writes read the generations before and after the writes. If a generation was raised
meanwhile, these calls undo their records and decide again (`batch`).

`fenced` is not claimed, because gaps remain. A client may die between its writes and
its second read. The server also needs microseconds from reading to storing. A record
stored in such a gap has a lower generation than its partition, and the next repetition
of the erasure deletes it.

A partition has a document from its first raise until it is empty and forgotten
(`IdlePartitions`). To forget it, a process marks the document, checks the partition
again, and deletes the document while the mark is there. A writer that meets the mark
removes it, and the partition stays. After the deletion, the process checks once more
for a put that the server validated before the mark and stored after the deletion.
"""

from __future__ import annotations

import secrets
from collections import Counter
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

_FIRST_ENTRIES = 1_000
"""So many index entries of a collection are grouped first, besides the limit."""
LEAVING = "leaving"
"""Field of a partition's document: the process that is about to forget it."""


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
        """Return the generation that this process read last.

        Another process may have raised it meanwhile. Do not base decisions on it.
        """
        return self._seen.get(partition, 0)

    async def generations(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """Read the generations. A partition without a document has generation 0."""
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
        """Read the current generations of the partitions in `before`.

        `before` has the generations that were read earlier. A partition that was
        forgotten meanwhile gets its generation back.
        """
        now = await self.generations(list(before))
        for partition, generation in before.items():
            if now[partition] < generation:
                now[partition] = await self.raise_to(partition, generation)
        return now

    async def raise_to(self, partition: Partition, to: int | None) -> int:
        """Raise the generation to at least `to`, or by one, and return it."""
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
                continue  # another call created the partition's document meanwhile
            assert found is not None  # noqa: S101 - an upsert returns the document after it
            self._remember({partition: int(found["generation"])})
            return int(found["generation"])

    async def replace(
        self, before: Mapping[Partition, int], after: Mapping[Partition, int], session: Any = None
    ) -> set[Partition]:
        """Set the generations in `after` where the stored ones equal those in `before`.

        Returns:
            The partitions whose generation has changed meanwhile. In a transaction,
            such a change raises an error instead and ends the transaction.
        """
        partitions = list(after)
        changes = [
            UpdateOne(
                {"_id": partition_id(p), "generation": {"$eq": before.get(p, 0)}},
                {"$set": {"generation": after[p]}, "$unset": {LEAVING: ""}},
                upsert=True,  # no document means generation 0; any other generation fails it
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
        """Return the first partitions after `after` that have records or a generation.

        The partitions are in the order of tenant and scope. The server groups index
        entries for this. The first entries of each collection are enough if partitions
        have few records. Otherwise all entries are grouped.
        """
        names, most = list(tables), _FIRST_ENTRIES + limit
        found, is_complete = await self._group(names, where, prefix, after, limit, most)
        if len(found) < limit and not is_complete:
            found, _ = await self._group(names, where, prefix, after, limit, None)
        return found[:limit]

    async def _group(
        self,
        tables: Sequence[str],
        where: Tenant | Everywhere,
        prefix: str,
        after: Partition | None,
        limit: int,
        most: int | None,
    ) -> tuple[list[tuple[Partition, int]], bool]:
        """Return partitions in order, and whether none of the first `limit` is missing.

        Each collection answers with its first `limit` partitions. With `most`, so many
        index entries of each are grouped. The result then ends where the first
        collection had more.
        """
        first: list[Document] = [{"$sort": {"_id": 1}}, {"$limit": limit}]
        pipeline: list[Document] = [
            {"$match": _behind("_id.", where, prefix, after)},
            *first,
            {"$project": {"generation": 1}},
        ]
        for name in tables:
            live = _behind("", where, prefix, after) | {"type": {"$nin": [MARK, TOMBSTONE]}}
            grouped: list[Document] = [{"$match": live}]
            if most is not None:
                grouped += [{"$sort": {"tenant": 1, "scope": 1}}, {"$limit": most}]
            place = {"tenant": "$tenant", "scope": "$scope"}
            grouped += [{"$group": {"_id": place, "entries": {"$sum": 1}}}, *first, {"$set": {"of": name}}]
            pipeline.append({"$unionWith": {"coll": name, "pipeline": grouped}})
        generations, read, last = dict[Partition, int](), Counter[str](), dict[str, Partition]()
        async for d in await self._settled.aggregate(pipeline, allowDiskUse=True):
            partition = _partition(d)
            generations[partition] = max(generations.get(partition, 0), int(d.get("generation", 0)))
            if "of" in d:
                read[d["of"]] += d["entries"]
                last[d["of"]] = max(last.get(d["of"], partition), partition)
        ends = [last[name] for name, count in read.items() if count == most]
        found = sorted(generations.items())
        return [one for one in found if not ends or one[0] <= min(ends)], not ends

    def forget(self, partition: Partition) -> None:
        """Remove a partition from the cache."""
        self._seen.pop(partition, None)

    def _remember(self, generations: Mapping[Partition, int]) -> None:
        if len(self._seen) > self._most:
            self._seen.clear()
        self._seen |= generations


def partition_id(partition: Partition) -> Document:
    """Return the `_id` of the partition's document."""
    return {"tenant": partition.tenant, "scope": partition.scope}


def _behind(path: str, where: Tenant | Everywhere, prefix: str, after: Partition | None) -> Document:
    """Match partitions whose scope has this prefix and that come after `after`.

    `path` leads to the tenant and the scope. Documents of others, in which these are no
    texts, do not match.
    """
    tenant, scope = f"{path}tenant", f"{path}scope"
    end = behind_prefix(prefix)
    behind: Document = {scope: {"$gte": prefix, **({} if end is None else {"$lt": end})}}
    behind[tenant] = {"$eq": where.tenant} if isinstance(where, Tenant) else {"$type": "string"}
    if after is not None and isinstance(where, Tenant) and after.tenant == where.tenant:
        if after.scope >= prefix:
            behind[scope] |= {"$gt": after.scope}
    elif after is not None:
        behind["$or"] = [
            {tenant: {"$gt": after.tenant}},
            {tenant: {"$eq": after.tenant}, scope: {"$gt": after.scope}},
        ]
    return behind


def only_under(partition: Partition, document: Document, *, exactly: bool) -> list[Document]:
    """Build pipeline stages that return `document` if its generation is valid.

    The generation of `document` is valid if it is at least the partition's generation.
    With `exactly`, the two must be equal. If the generation is not valid, or if the
    partition is about to be forgotten, the server answers with an error. The stages run
    on the partitions' collection. `$facet` returns one result even if the partition has
    no document there.
    """
    current = {"$ifNull": [{"$max": "$found.generation"}, 0]}
    holds = {
        "$and": [
            {"$eq" if exactly else "$lte": [current, document["generation"]]},
            {"$eq": [f"$found.{LEAVING}", []]},
        ]
    }
    refused = {"$toInt": "$found"}  # an array is never a number
    return [
        {"$match": {"_id": partition_id(partition)}},
        {"$facet": {"found": [{"$limit": 1}]}},
        {"$replaceWith": {"$cond": [holds, {"$literal": document}, refused]}},
    ]


# -- forgetting ------------------------------------------------------------------------


_STANDING = [RECORD, MARK, CORRUPT]


class IdlePartitions:
    """Examines every collection of records, including those not opened here."""

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
        """Forget the partitions that are still empty and unchanged; return how many.

        A put that was validated before the mark may be stored after the deletion. In
        that case the second check gives the partition its generation back.
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
        ]  # a new partition starts at generation 0
        for partition in late:
            await self._directory.raise_to(partition, idle[partition])
        return forgotten - len(late)

    async def _collections(self) -> list[str]:
        prefix = self._names.prefix
        there = await self._database.list_collection_names(filter={"name": {"$regex": f"^{prefix}"}})
        return [name for name in there if not name.startswith(f"{prefix}store.")]

    async def _empty(self, places: Sequence[Document], collections: Sequence[str]) -> AsyncIterator[Document]:
        """Yield the documents of the partitions without records.

        For each partition, this needs one index lookup per collection.
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
        """Return the partitions that have records but no document.

        Each partition maps to the highest generation of its records.
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
