"""Reads by key and by query, and deletes matches."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

import bson

from memory.adapters.mongo.batch import swap
from memory.adapters.mongo.codec import (
    WITHOUT_WORDS,
    Document,
    document_of,
    head_in,
    held_in,
    is_text,
    key_in,
    projection,
)
from memory.adapters.mongo.filters import OURS, both, scope_conditions
from memory.adapters.mongo.quarantine import DamagedDocument, Quarantine
from memory.adapters.mongo.table import Table
from memory.ports.batch import ResolvedWrite, slot_of
from memory.ports.collections import Collection
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.query import (
    Condition,
    Count,
    Eq,
    Everywhere,
    Head,
    Lt,
    Or,
    Page,
    Query,
    RowType,
    decode_cursor,
    encode_cursor,
)
from memory.ports.query_evaluation import Predicate, condition
from memory.ports.record import Corrupt, Key, Record, Role, Stored
from memory.ports.rows import CORRUPT, MARK, TOMBSTONE, row_of
from memory.ports.write_decision import Slot, tombstone_over


async def get(table: Table, keys: Sequence[Key]) -> tuple[list[Stored | None], list[DamagedDocument]]:
    """Return the value of each key, and the documents found damaged now.

    A key that no document can have finds nothing.
    """
    possible = [key for key in dict.fromkeys(keys) if is_text(key.tenant)]
    documents: dict[Key, Document] = {}
    if len(possible) == 1:
        one = await table.settled.find_one(table.at(possible[0]), WITHOUT_WORDS)
        documents = {} if one is None else {possible[0]: one}
    elif possible:
        documents = {
            key_in(d): d
            async for d in table.settled.find(
                table.among(possible), WITHOUT_WORDS, batch_size=len(possible) + 1
            )
        }
    damaged: list[DamagedDocument] = []
    return [
        _decode_stored(table, documents.get(key), damaged) async for key in iterate_cooperatively(keys)
    ], damaged


def _decode_stored(table: Table, document: Document | None, damaged: list[DamagedDocument]) -> Stored | None:
    stored = None if document is None else _slot(table, document).stored_value
    if isinstance(stored, Corrupt) and document is not None and document.get("type") != CORRUPT:
        damaged.append(DamagedDocument(table, document, stored.problem))
    return stored


def _slot(table: Table, document: Document) -> Slot:
    return slot_of(table.collection, key_in(document), held_in(document))


# -- queries ---------------------------------------------------------------------------


async def query(table: Table, query: Query) -> tuple[Page, list[DamagedDocument]]:
    """Read one page, and report documents found damaged.

    If there are any, the caller reads the page again.
    """
    wanted = table.conditions.query(query)
    if query.cursor is not None:
        wanted = both(
            wanted, table.conditions.after(query.order, decode_cursor(query.cursor, query.order), query.where)
        )
    documents, corrupt, more = await _documents(table, query, wanted)
    answers: list[Stored] = []
    damaged: list[DamagedDocument] = []
    heads: list[Head] = []
    if query.select is not None:
        heads = [
            head
            async for document in iterate_cooperatively(documents)
            if (head := head_in(table.collection, document, query.select)) is not None
        ]
    async for document in iterate_cooperatively(documents if query.select is None else ()):
        stored = _decode_stored(table, document, damaged)
        if stored is not None and not isinstance(stored, Corrupt):
            answers.append(stored)
    cursor = (
        encode_cursor(table.conditions.position(query.order, documents[-1]), key_in(documents[-1]).id)
        if more and not damaged
        else None
    )
    corrupt += [key_in(one.document) for one in damaged]
    return Page(tuple(answers), cursor, tuple(corrupt), tuple(heads)), damaged


async def _documents(table: Table, query: Query, wanted: Document) -> tuple[list[Document], list[Key], bool]:
    """Return a page's documents in order.

    Returns:
        The documents, the keys of the corrupt ones in the queried place, and whether
        more follow.
    """
    sort = table.conditions.ordering(query.order, query.where)
    limit = query.limit
    take = limit + 1
    while True:
        found, corrupt = await _find_page(table, query, wanted, sort, take)
        if len(found) < take:
            return found, corrupt, False
        if not isinstance(query.where, Everywhere):
            return found[:limit], corrupt, True
        # A cursor has no tenant. Records of several tenants with one id and one sort
        # value stay on one page; otherwise some would be lost.
        places = [(table.conditions.sorted_by(query.order, d), key_in(d).id) for d in found]
        end = limit
        while end < len(places) and places[end] == places[end - 1]:
            end += 1
        if end < len(places):
            return found[:end], corrupt, True
        take *= 2


async def _find_page(
    table: Table, query: Query, wanted: Document, sort: Mapping[str, int], take: int
) -> tuple[list[Document], list[Key]]:
    """Read a page and the corrupt documents of the place in one query."""
    pipeline: list[Document] = [
        {"$match": wanted},
        {"$sort": dict(sort)},
        {"$limit": take},
    ]
    if RowType.RECORD in query.types:
        there = scope_conditions(query.where) or {
            "tenant": {"$gte": ""}
        }  # matches all of them, so that the server uses the index
        pipeline.append(
            {
                "$unionWith": {
                    "coll": table.name,
                    "pipeline": [{"$match": there | {"type": {"$eq": CORRUPT}} | OURS}],
                }
            }
        )
    pipeline.append(
        {"$project": dict(WITHOUT_WORDS if query.select is None else projection(query.select, query.order))}
    )
    batch = table.thresholds.answered_at_once
    cursor = await table.settled.aggregate(pipeline, batchSize=take + batch, allowDiskUse=True)
    documents = await cursor.to_list()
    corrupt = [key_in(d) for d in documents if d["type"] == CORRUPT]
    return [d for d in documents if d["type"] != CORRUPT] if corrupt else documents, corrupt


async def count(table: Table, query: Query) -> Count:
    """Count the matches and their size as documents, with the index of their words."""
    total = {"$group": {"_id": None, "records": {"$sum": 1}, "bytes": {"$sum": {"$bsonSize": "$$ROOT"}}}}
    async for found in await table.settled.aggregate([{"$match": table.conditions.query(query)}, total]):
        return Count(int(found["records"]), int(found["bytes"]))
    return Count(0, 0)


async def may_be_due(tables: Sequence[Table], now: datetime, expired: Mapping[Collection, datetime]) -> bool:
    """Whether something may be due in one of these collections; see `Store.due`.

    It is one query, and indexes answer each part of it.
    """
    pipeline: list[Document] = []
    for table in tables:
        over: list[Condition] = [Eq("owing", True), Eq("role", Role.ARRIVING.value), Lt("discard_at", now)]
        over += [Lt("expires_at", expired[table.collection])] if table.collection in expired else []
        some: list[Document] = [
            {"$match": table.conditions.filter(Or(tuple(over)))},
            {"$limit": 1},
            {"$project": {"_id": 1}},
        ]
        pipeline.extend([{"$unionWith": {"coll": table.name, "pipeline": some}}] if pipeline else some)
    found = await tables[0].settled.aggregate([*pipeline, {"$limit": 1}]) if tables else None
    return found is not None and bool(await found.to_list())


# -- deleting --------------------------------------------------------------------------


@dataclass(frozen=True)
class Deletion:
    """Arguments of `delete_matching`."""

    query: Query
    version: int
    discard_at: datetime | None
    carry: frozenset[str]

    @cached_property
    def _lets_through(self) -> Predicate:
        return condition(self.query.filter)

    def of(self, table: Table, document: Document) -> ResolvedWrite | None:
        """Return the tombstone for a match, or for any corrupt record."""
        key = key_in(document)
        held = held_in(document)
        slot = slot_of(table.collection, key, held)
        stored = slot.stored_value
        if isinstance(stored, Record):
            if stored.role not in self.query.roles or not self._lets_through(stored):
                return None
        elif not isinstance(stored, Corrupt):
            return None
        row = row_of(table.collection, tombstone_over(key, slot, self.version, self.discard_at, self.carry))
        return ResolvedWrite(table.collection, key, held, row, True, document_of(row))


async def delete_matching(table: Table, quarantine: Quarantine, deletion: Deletion) -> int:
    """Replace all matches and every corrupt record there by tombstones.

    It reads all records of the place, because a damaged field could hide a match from
    the filter. Records that others change meanwhile are read again. Records that
    another erasure has deleted count as gone once a majority has the deletion.
    """
    there = (
        scope_conditions(deletion.query.where) | OURS | {"type": {"$nin": [MARK, TOMBSTONE]}}
    )  # even if the type is damaged
    deleted = 0
    async for documents in _portions(table, there):
        while documents:
            changes = [
                change
                async for d in iterate_cooperatively(documents)
                if (change := deletion.of(table, d)) is not None
            ]
            changed = await swap(table, quarantine, changes) if changes else set()
            deleted += len(changes) - len(changed)
            documents = (
                [d async for d in table.documents.find(there | table.among(changed))] if changed else []
            )
    await table.all_kept()
    return deleted


async def _portions(table: Table, wanted: Document) -> AsyncIterator[list[Document]]:
    most, most_bytes = table.thresholds.deleted_at_once, table.thresholds.deleted_bytes_at_once
    portion: list[Document] = []
    size = 0
    async for document in table.documents.find(wanted, WITHOUT_WORDS, batch_size=most):
        portion.append(document)
        size += len(bson.encode(document))
        if len(portion) == most or size >= most_bytes:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion
