"""Partitions: their generations, and how nothing of a lower one comes to stand.

MongoDB changes one document in one step, and a generation and a record are two. So a put that is alone in its call is one command: the server looks
at the partition's document and stores the record only where its generation is still the one the record was made under (`only_under`). Whoever
sent it may be dead or frozen by then. Several writes look before, and again when they stand; what was raised over meanwhile they take back and
decide anew (`batches`).

What is left open is why `fenced` is not claimed: a client that dies between its writes and its second look, and the microseconds that the server
takes from looking to storing. A record that comes to stand so is of a lower generation than its partition, and the next repeat of the erasure
takes it.

A partition has a document from its first raise on, until it is forgotten. Whoever forgets it marks it first; a writer that meets the mark takes it
away, and the partition stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pymongo import ReturnDocument
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase

from memory.adapters.mongo.errors import is_refused
from memory.adapters.mongo.schema import Names
from memory.adapters.mongo.thresholds import Thresholds
from memory.adapters.mongo.values import Document, text_of
from memory.ports.record import Partition
from memory.ports.storable import encode_integer

LEAVING = "leaving"
"""In a partition's document: by whom it is about to be forgotten."""


class Registry:
    """The documents of partitions."""

    def __init__(self, database: AsyncDatabase[Document], names: Names, thresholds: Thresholds) -> None:
        self.partitions: AsyncCollection[Document] = database[names.partitions]
        self._most = thresholds.partitions_known
        self._seen: dict[Partition, int] = {}

    def likely(self, partition: Partition) -> int:
        """The generation as last seen. It may have gone on since: nothing is decided by it."""
        return self._seen.get(partition, 0)

    async def generations(self, partitions: Sequence[Partition], session: Any = None) -> dict[Partition, int]:
        """Where there is no document the generation is 0."""
        found = dict.fromkeys(partitions, 0)
        if found:
            async for document in self.partitions.find({"_id": {"$in": [partition_id(p) for p in found]}}, session=session):
                partition = Partition(document["_id"]["tenant"], document["_id"]["scope"])
                found[partition] = int(document["generation"])
                if LEAVING in document:
                    await self.raise_to(partition, found[partition], session)
        self._remember(found)
        return found

    async def raised_since(self, before: Mapping[Partition, int]) -> dict[Partition, int]:
        """Those whose generation is higher now, and how high. One that was forgotten meanwhile gets back what it had."""
        now = await self.generations(list(before))
        for partition, generation in before.items():
            if now[partition] < generation:
                await self.raise_to(partition, generation)
        return {partition: number for partition, number in now.items() if number > before[partition]}

    async def raise_to(self, partition: Partition, to: int | None, session: Any = None) -> int:
        """The generation after raising it to at least `to`, or by one."""
        if to is not None:
            encode_integer("generation", to)
        if to == 0:
            return (await self.generations([partition], session))[partition]
        change: Document = {"$inc": {"generation": 1}} if to is None else {"$max": {"generation": to}}
        while True:
            try:
                found = await self.partitions.find_one_and_update(
                    {"_id": partition_id(partition)},
                    change | {"$unset": {LEAVING: ""}},
                    {"generation": 1},
                    upsert=True,
                    return_document=ReturnDocument.AFTER,
                    session=session,
                )
            except Exception as exc:
                if session is not None or not is_refused(exc):
                    raise
                continue  # another one made the partition's document meanwhile
            assert found is not None  # noqa: S101 - of an upsert the document after it
            self._remember({partition: int(found["generation"])})
            return int(found["generation"])

    def forget(self, partition: Partition) -> None:
        """The partition is no more."""
        self._seen.pop(partition, None)

    def _remember(self, generations: Mapping[Partition, int]) -> None:
        if len(self._seen) > self._most:
            self._seen.clear()
        self._seen |= generations


def partition_id(partition: Partition) -> Document:
    """The `_id` of the partition's document."""
    return {"tenant": text_of(partition.tenant), "scope": text_of(partition.scope)}


def only_under(partition: Partition, document: Document, *, exactly: bool) -> list[Document]:
    """Stages, asked of the partitions' collection, that give the document where its generation is not lower than the partition's, or `exactly` that.

    Elsewhere, and where the partition is about to be forgotten, the server answers with an error. `$facet` gives one document also where the
    partition has none.
    """
    current = {"$ifNull": [{"$max": "$found.generation"}, 0]}
    holds = {"$and": [{"$eq" if exactly else "$lte": [current, document["generation"]]}, {"$eq": [f"$found.{LEAVING}", []]}]}
    refused = {"$toInt": "$found"}  # no array is a number
    return [
        {"$match": {"_id": partition_id(partition)}},
        {"$facet": {"found": [{"$limit": 1}]}},
        {"$replaceWith": {"$cond": [holds, {"$literal": document}, refused]}},
    ]
