"""Partitions: their generations, and how a write that is under way when one is raised is kept out.

MongoDB changes one document in one step, and a generation and a record are two. So a put first announces in its partition's document which
keys it is about to write, and gets the generation by the same step. Who raises a generation finds the announcements and puts up a fence at each
key: from then on the announced write fails where it has not happened yet, and begins again under the new generation. A write that happened before
the fence stands, as one that was done before the generation was raised: whoever deletes afterwards finds it. This holds when any process dies at any
point, and when a frozen one wakes up: an announcement that nobody takes back only makes the next raise put up a fence too many.

A fence is the announcement's token in the document's `fenced`, which every replacement keeps; where there is no document one is made that
reads as nothing. MongoDB's expiry takes those away after a day. One put at a time need not announce its key: see `passes`. Where collections may be
sharded it does, since no index is unique over all shards.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pymongo import ReturnDocument, UpdateOne
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import BulkWriteError

from memory.adapters.mongo.documents import FENCE, address
from memory.adapters.mongo.errors import is_duplicate, is_only_duplicates
from memory.adapters.mongo.passes import PASS, Pass, Passes, pass_of
from memory.adapters.mongo.schema import Names
from memory.adapters.mongo.shelf import unfenced
from memory.adapters.mongo.thresholds import Thresholds
from memory.adapters.mongo.values import Document, text_of
from memory.ports.record import Key, Partition
from memory.ports.storable import encode_integer

_FENCES_A_DOCUMENT = 1_000
"""Tokens of batches that were kept out; of more, the oldest go. Together they are far smaller than what `LARGEST` leaves free."""
_REST = 5.0
"""Seconds from one clearing of what is crowded to the next by one process, or many under way would keep each other out again and again."""
_CROWD: Mapping[str, Any] = {"generation": 1, "size": {"$bsonSize": "$writers"}, "count": {"$size": {"$objectToArray": "$writers"}}}

LAST = "last"
"""In a partition's document: the token of who announced himself last. Who wants to forget the partition can tell by it that nobody has."""

Announced = Mapping[Partition, Sequence[tuple[str, str]]]
"""What is about to be written: the collection's name and the id of the document, by partition."""


class Permit:
    """To write one document under this generation, unless a raised one keeps it out: by its pass, or by the token of its announcement."""

    def __init__(self, partition: Partition, generation: int, *, token: str = "", used: Pass | None = None) -> None:
        self.partition, self.generation, self.token, self.used = partition, generation, token, used

    @property
    def condition(self) -> Document:
        """Goes into the write's filter."""
        return unfenced(self.token or None)

    def on(self, document: Document) -> Document:
        """The document as it is to be written."""
        return document if self.used is None else document | {PASS: self.used.text}


class Announcement:
    """One call's: its token, and the generations its partitions had."""

    def __init__(self, generations: Mapping[Partition, int]) -> None:
        self.token = secrets.token_hex(8)
        self.generations = dict(generations)
        self.keys = 0


class Registry:
    """The documents of partitions. What this process announced and finished is taken back when it next announces something there."""

    def __init__(self, database: AsyncDatabase[Document], names: Names, thresholds: Thresholds, *, passes: bool = False) -> None:
        self._database, self._thresholds = database, thresholds
        self._partitions = database[names.partitions]
        self._passes = Passes(thresholds) if passes else None
        self._finished: dict[Partition, list[str]] = {}
        self._seen: dict[Partition, int] = {}
        self._cleared = -math.inf

    # -- several keys -------------------------------------------------------------------------------------------------

    async def announce(self, announced: Announced) -> Announcement:
        """From here on these keys may be written under the generations the answer tells."""
        made = Announcement({})
        made.keys = sum(map(len, announced.values()))
        generations = await asyncio.gather(
            *[self._announce(partition, made.token, [list(key) for key in keys]) for partition, keys in announced.items()]
        )
        made.generations = dict(zip(announced, generations, strict=True))
        return made

    async def finish(self, made: Announcement) -> None:
        """What was announced has happened or has failed, for certain. After anything else the announcement must stay."""
        for partition in made.generations:
            if made.keys > self._thresholds.kept_to_take_back:
                await self._partitions.update_one({"_id": partition_id(partition)}, {"$unset": {f"writers.{made.token}": ""}})
            else:
                self._take_back_later(partition, made.token)

    # -- one key ------------------------------------------------------------------------------------------------------

    def ready(self, partition: Partition, collection: str) -> Permit | None:
        """A permit that is at hand."""
        found = None if self._passes is None else self._passes.take((partition, collection))
        return None if found is None else Permit(partition, found.generation, used=found)

    async def permit(self, partition: Partition, collection: str, record_id: str) -> Permit:
        """A new permit to write the document of this id in the collection of that name."""
        if self._passes is None:
            made = await self.announce({partition: [(collection, record_id)]})
            return Permit(partition, made.generations[partition], token=made.token)
        block = self._passes.block((partition, collection))
        block.generation = await self._announce(partition, block.token, {"in": collection, "passes": block.size})
        for old in self._passes.announced(block):
            self._take_back_later(old.place[0], old.token)
        return Permit(partition, block.generation, used=block.take())

    def give_back(self, permit: Permit) -> None:
        """The write has happened or has failed, for certain. After anything else the permit must stay."""
        if permit.used is None:
            self._take_back_later(permit.partition, permit.token)
            return
        block = permit.used.block
        block.open -= 1
        if block.over:
            self._take_back_later(permit.partition, block.token)

    # -- announcing ---------------------------------------------------------------------------------------------------

    async def _announce(self, partition: Partition, token: str, what: Any) -> int:
        finished = self._finished.pop(partition, ())
        update: Document = {"$set": {f"writers.{token}": what, LAST: token}, "$setOnInsert": {"generation": 0}}
        if finished:
            update["$unset"] = dict.fromkeys([f"writers.{old}" for old in finished], "")
        while True:
            try:
                found = await self._partitions.find_one_and_update(
                    {"_id": partition_id(partition)}, update, _CROWD, upsert=True, return_document=ReturnDocument.AFTER
                )
            except Exception as exc:
                if not is_duplicate(exc):
                    raise
                continue  # another one made the partition's document meanwhile
            generation = int(found["generation"]) if found else 0
            self._remember(partition, generation)
            # An answer that the server gives again, because the driver asked twice, tells neither.
            if found and self._is_crowded(found):
                self._cleared = time.monotonic()
                await self.fence(partition, oldest=True)
            return generation

    def _is_crowded(self, found: Document) -> bool:
        if found.get("size", 0) > self._thresholds.crowded_bytes:
            return True
        return found.get("count", 0) > self._thresholds.crowded and time.monotonic() - self._cleared >= _REST

    def _take_back_later(self, partition: Partition, token: str) -> None:
        if len(self._finished) > self._thresholds.partitions_known:
            self._finished.clear()
        self._finished.setdefault(partition, []).append(token)

    def likely(self, partition: Partition) -> int:
        """The generation as last seen. It may have gone on since: nothing is decided by it."""
        return self._seen.get(partition, 0)

    def _remember(self, partition: Partition, generation: int) -> None:
        if len(self._seen) > self._thresholds.partitions_known:
            self._seen.clear()
        self._seen[partition] = generation

    # -- generations --------------------------------------------------------------------------------------------------

    async def generations(self, partitions: Sequence[Partition], session: Any = None) -> dict[Partition, int]:
        """Where there is no document the generation is 0."""
        found = dict.fromkeys(partitions, 0)
        async for document in self._partitions.find({"_id": {"$in": [partition_id(p) for p in partitions]}}, {"generation": 1}, session=session):
            found[Partition(document["_id"]["tenant"], document["_id"]["scope"])] = int(document["generation"])
        return found

    async def raise_to(self, partition: Partition, to: int | None, session: Any = None) -> int:
        """The generation after raising it to at least `to`, or by one. Only when `fence` has been called too, the raise is in force."""
        if to is not None:
            encode_integer("generation", to)
        if to == 0:
            return (await self.generations([partition], session))[partition]
        change: Document = {"$inc": {"generation": 1}} if to is None else {"$max": {"generation": to}}
        while True:
            try:
                found = await self._partitions.find_one_and_update(
                    {"_id": partition_id(partition)}, change, {"generation": 1}, upsert=True, return_document=ReturnDocument.AFTER, session=session
                )
            except Exception as exc:
                if session is not None or not is_duplicate(exc):
                    raise
                continue
            assert found is not None  # noqa: S101 - of an upsert the document after it
            return int(found["generation"])

    async def fence(self, partition: Partition, *, oldest: bool = False) -> None:
        """Keep out what was announced under lower generations; with `oldest` only some of the older half of it.

        What was announced since begins again as well, which does no harm.
        """
        over: set[str] = set()
        if not oldest:  # what this process announced and has finished, or never begun, is in nobody's way
            over.update(self._finished.pop(partition, ()))
            over.update([block.token for block in self._passes.forget(partition)] if self._passes is not None else ())
        found = await self._partitions.find_one({"_id": partition_id(partition)}, {"writers": 1})
        writers: list[tuple[str, Any]] = list((found or {}).get("writers", {}).items())  # MongoDB keeps fields in the order they came in
        if here := [token for token, _ in writers if token in over]:
            await self._partitions.update_one({"_id": partition_id(partition)}, {"$unset": {f"writers.{token}": "" for token in here}})
            writers = [(token, what) for token, what in writers if token not in over]
        most = self._thresholds.fenced_at_once
        for portion in list(_portions(writers[: len(writers) // 2], most))[:1] if oldest else _portions(writers, most):
            by_collection: dict[str, list[UpdateOne]] = {}
            passes: dict[str, list[UpdateOne]] = {}
            for token, what in portion:
                if isinstance(what, dict):
                    passes.setdefault(what["in"], []).extend(_fences(partition, token, what["passes"]))
                    continue
                for name, record_id in what:
                    by_collection.setdefault(name, []).append(self._fence(token, Key(partition.tenant, record_id)))
            for name, fences in by_collection.items():
                await self._put_up(name, fences)
            for name, fences in passes.items():
                await self._put_up(name, fences, again=False)
            await self._partitions.update_one({"_id": partition_id(partition)}, {"$unset": {f"writers.{token}": "" for token, _ in portion}})

    def forget(self, partition: Partition) -> None:
        """The partition is no more."""
        self._seen.pop(partition, None)

    def _fence(self, token: str, key: Key) -> UpdateOne:
        stands = address(key)
        tenant = {"tenant": stands["tenant"]}
        update = {
            "$push": {"fenced": {"$each": [token], "$slice": -_FENCES_A_DOCUMENT}},
            "$setOnInsert": {**tenant, "id": stands["id"], "kind": FENCE},
            "$currentDate": {"fenced_at": True},  # a fence that stood already stands anew
        }
        return UpdateOne({"_id": stands} | (tenant if self._passes is None else {}), update, upsert=True)

    async def _put_up(self, name: str, fences: Sequence[UpdateOne], *, again: bool = True) -> None:
        """Put up fences, `again` where a document appeared there meanwhile; one that has the very pass was there before, and no fence is needed."""
        left = list(fences)
        while left:
            try:
                await self._database[name].bulk_write(left, ordered=False)
                return
            except BulkWriteError as exc:
                if not is_only_duplicates(exc):
                    raise
                left = [left[error["index"]] for error in exc.details["writeErrors"]] if again else []


def partition_id(partition: Partition) -> Document:
    """The `_id` of the partition's document."""
    return {"tenant": text_of(partition.tenant), "scope": text_of(partition.scope)}


def _portions(writers: Sequence[tuple[str, Any]], most: int) -> Iterator[list[tuple[str, Any]]]:
    """So many announcements at a time as make about so many keys."""
    portion: list[tuple[str, Any]] = []
    keys = 0
    for token, announced in writers:
        portion.append((token, announced))
        keys += announced["passes"] if isinstance(announced, dict) else len(announced)
        if keys >= most:
            yield portion
            portion, keys = [], 0
    if portion:
        yield portion


def _fences(partition: Partition, token: str, passes: int) -> list[UpdateOne]:
    """One for each pass. It is refused as a duplicate where the pass was used: then that write has happened."""
    tenant = text_of(partition.tenant)
    update: Document = {"$setOnInsert": {"kind": FENCE}, "$currentDate": {"fenced_at": True}}
    texts = [pass_of(token, number) for number in range(passes)]
    # The tenant for a cluster's shard key: passes may have been announced before it was one.
    return [UpdateOne({"_id": {"tenant": tenant, PASS: text}, "tenant": tenant, PASS: text}, update, upsert=True) for text in texts]
