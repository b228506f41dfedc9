"""Reading by key and by query, and deleting all that matches."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

import bson
from pymongo.errors import BulkWriteError

from memory.adapters.mongo.aside import Aside, Spoiled, is_fresh
from memory.adapters.mongo.codec import ASIDE, CORRUPT, MARK, TOMBSTONE, WITHOUT_WORDS, address, key_in
from memory.adapters.mongo.errors import is_only_refusals
from memory.adapters.mongo.filters import both, located
from memory.adapters.mongo.shelf import Shelf
from memory.adapters.mongo.values import Document
from memory.ports.asking import Condition, condition
from memory.ports.deciding import carried
from memory.ports.pace import paced
from memory.ports.query import Count, Everywhere, Head, Page, Query, RowType, decode_cursor, encode_cursor
from memory.ports.record import Corrupt, Key, Owed, Record, Stored, Tombstone
from memory.ports.storable import Unstorable


async def get(shelf: Shelf, keys: Sequence[Key]) -> tuple[list[Stored | None], list[Spoiled]]:
    """What stands under each key, and what was found unreadable just now. A key that no document can have finds nothing."""
    possible = [key for key in dict.fromkeys(keys) if _possible(key)]
    documents: dict[Key, Document] = {}
    if len(possible) == 1:
        one = await shelf.settled.find_one(shelf.at(possible[0]), WITHOUT_WORDS)
        documents = {} if one is None else {possible[0]: one}
    elif possible:
        documents = {key_in(d): d async for d in shelf.settled.find(shelf.among(possible), WITHOUT_WORDS, batch_size=len(possible) + 1)}
    spoiled: list[Spoiled] = []
    return [_sorted_out(shelf, documents.get(key), spoiled) async for key in paced(keys)], spoiled


def _possible(key: Key) -> bool:
    try:
        address(key)
    except Unstorable:
        return False
    return True


def _sorted_out(shelf: Shelf, document: Document | None, spoiled: list[Spoiled]) -> Stored | None:
    stored = shelf.layout.read(document)
    if isinstance(stored, Corrupt) and document is not None and is_fresh(document):
        spoiled.append(Spoiled(shelf, document, stored.problem))
    return stored


# -- queries ----------------------------------------------------------------------------------------------------------


async def query(shelf: Shelf, query: Query) -> tuple[Page, list[Spoiled]]:
    """One page, and what was found unreadable while reading it: then the page is to be read again."""
    wanted = shelf.conditions.query(query)
    if query.cursor is not None:
        wanted = both(wanted, shelf.conditions.after(query.order, decode_cursor(query.cursor, query.order), query.where))
    documents, corrupt, more = await _documents(shelf, query, wanted)
    answers: list[Stored] = []
    spoiled: list[Spoiled] = []
    heads: list[Head] = []
    if query.select is not None:
        heads = [head async for document in paced(documents) if (head := shelf.layout.head(document, query.select)) is not None]
    async for document in paced(documents if query.select is None else ()):
        stored = _sorted_out(shelf, document, spoiled)
        if stored is not None and not isinstance(stored, Corrupt):
            answers.append(stored)
    cursor = encode_cursor(shelf.conditions.position(query.order, documents[-1]), key_in(documents[-1]).id) if more and not spoiled else None
    corrupt += [key_in(one.document) for one in spoiled]
    return Page(tuple(answers), cursor, tuple(corrupt), tuple(heads)), spoiled


async def _documents(shelf: Shelf, query: Query, wanted: Document) -> tuple[list[Document], list[Key], bool]:
    """The documents of a page in order, the keys of those set aside in the place asked about, and whether there are more behind the page."""
    sort = shelf.conditions.ordering(query.order, query.where)
    limit = query.limit
    take = limit + 1
    while True:
        found, corrupt = await _found(shelf, query, wanted, sort, take)
        if len(found) < take:
            return found, corrupt, False
        if not isinstance(query.where, Everywhere):
            return found[:limit], corrupt, True
        # A cursor names no tenant: records of several tenants under one id and one sort value stay on one page, or some would be lost.
        places = [(shelf.conditions.sorted_by(query.order, d), key_in(d).id) for d in found]
        end = limit
        while end < len(places) and places[end] == places[end - 1]:
            end += 1
        if end < len(places):
            return found[:end], corrupt, True
        take *= 2


async def _found(shelf: Shelf, query: Query, wanted: Document, sort: Mapping[str, int], take: int) -> tuple[list[Document], list[Key]]:
    """One question to the server: the page, and behind it what was set aside there."""
    pipeline: list[Document] = [
        {"$match": wanted},
        {"$sort": dict(sort)},
        {"$limit": take},
    ]
    if RowType.RECORD in query.types:
        there = located(query.where) or {"tenant": {"$gte": ""}}  # all of them, said so that the index is read
        pipeline.append({"$unionWith": {"coll": shelf.name, "pipeline": [{"$match": there | {"kind": {"$eq": CORRUPT}}}]}})
    pipeline.append({"$project": dict(WITHOUT_WORDS if query.select is None else shelf.layout.projection(query.select, query.order))})
    batch = shelf.thresholds.answered_at_once
    cursor = await shelf.settled.aggregate(pipeline, batchSize=take + batch, allowDiskUse=True)
    documents = await cursor.to_list()
    corrupt = [key_in(d) for d in documents if d["kind"] == CORRUPT]
    return [d for d in documents if d["kind"] != CORRUPT] if corrupt else documents, corrupt


async def count(shelf: Shelf, query: Query) -> Count:
    """How many match, and their size as documents, the index of their words included."""
    total = {"$group": {"_id": None, "records": {"$sum": 1}, "bytes": {"$sum": {"$bsonSize": "$$ROOT"}}}}
    async for found in await shelf.settled.aggregate([{"$match": shelf.conditions.query(query)}, total]):
        return Count(int(found["records"]), int(found["bytes"]))
    return Count(0, 0)


# -- deleting ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Burial:
    """What `delete_matching` was asked."""

    query: Query
    version: int
    discard_at: datetime | None
    carry: frozenset[str]

    @cached_property
    def lets_through(self) -> Condition:
        return condition(self.query.filter)


async def delete_matching(shelf: Shelf, aside: Aside, burial: Burial) -> int:
    """Tombstones for what matches and for every corrupt record there, whatever the filter.

    All records there are read: only so does one come to light that is damaged where the filter would look. What others change meanwhile is
    read again; what another erasure has taken already counts as gone once a majority has that.
    """
    shelf.conditions.query(burial.query)  # refuses what cannot be asked
    there = located(burial.query.where) | {"kind": {"$nin": [MARK, TOMBSTONE]}}  # also where the kind is what is damaged
    buried = 0
    async for documents in _portions(shelf, there):
        while documents:
            doomed = [(d, tombstone) async for d in paced(documents) if (tombstone := _tombstone(shelf, d, burial)) is not None]
            changed = await _bury(shelf, aside, doomed)
            buried += len(doomed) - len(changed)
            documents = [d async for d in shelf.documents.find({**there, "_id": {"$in": changed}})] if changed else []
    await shelf.all_kept()
    return buried


async def _portions(shelf: Shelf, wanted: Document) -> AsyncIterator[list[Document]]:
    most, most_bytes = shelf.thresholds.deleted_at_once, shelf.thresholds.deleted_bytes_at_once
    portion: list[Document] = []
    size = 0
    async for document in shelf.documents.find(wanted, WITHOUT_WORDS, batch_size=most):
        portion.append(document)
        size += len(bson.encode(document))
        if len(portion) == most or size >= most_bytes:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


async def _bury(shelf: Shelf, aside: Aside, doomed: Sequence[tuple[Document, Tombstone]]) -> list[Any]:
    """Tombstones in the place of exactly what was read; the addresses of what has changed since."""
    if not doomed:
        return []
    changed: set[int] = set()
    try:
        await shelf.documents.bulk_write([shelf.swap(t.key, d, shelf.layout.document(t)) for d, t in doomed], ordered=False)
    except BulkWriteError as exc:
        if not is_only_refusals(exc):
            raise
        changed = {error["index"] for error in exc.details["writeErrors"]}
    await aside.forget(shelf, [t.key for i, (d, t) in enumerate(doomed) if ASIDE in d and i not in changed])
    return [doomed[i][0]["_id"] for i in changed]


def _tombstone(shelf: Shelf, document: Document, burial: Burial) -> Tombstone | None:
    """What is left of a document; None where it stays."""
    stored = shelf.layout.read(document)
    owed: tuple[Owed, ...] = ()
    if isinstance(stored, Record):
        if stored.role not in burial.query.roles or not burial.lets_through(stored):
            return None
        owed = carried(stored.owed, burial.carry)
    elif not isinstance(stored, Corrupt):
        return None
    version = document.get("version")
    sound = isinstance(stored, Record)
    # A corrupt document's version counts only where it can be true.
    known = int(version) if isinstance(version, int) and (sound or 0 < version < 2 * max(burial.version, 1)) else 0
    return Tombstone(key_in(document), max(known + 1, burial.version), owed, discard_at=burial.discard_at)
