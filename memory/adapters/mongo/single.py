"""A write that is alone in its call: one command that stores it where its condition
holds, and a put only under its generation (see `partitions`).

Where it does not hold, what stands there is looked at and decided on, and written over
on condition that it still stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pymongo.asynchronous.mongo_client import AsyncMongoClient

from memory.adapters.mongo.codec import QUARANTINED, Document, document_of, held_in, is_text
from memory.adapters.mongo.errors import is_refused
from memory.adapters.mongo.partitions import Directory, only_under
from memory.adapters.mongo.quarantine import Quarantine
from memory.adapters.mongo.table import Table, replacement, unchanged_expression
from memory.domain.errors import StoreUnavailable
from memory.ports.batch import slot_of
from memory.ports.collections import Collection
from memory.ports.record import Tombstone
from memory.ports.rows import RECORD, TOMBSTONE, row_of
from memory.ports.write_decision import decide
from memory.ports.writes import Absent, Always, AtVersion, Delete, Newer, Outcome, Put, Status, When

OWING_NOTHING: Document = {"$ne": ["$owing", True]}
ROUNDS = 100
"""How often a write is begun again because others changed what it is about in between."""


@dataclass(frozen=True, slots=True)
class WriteContext:
    """What writes are carried out with."""

    store: str
    client: AsyncMongoClient[Document]
    tables: Mapping[str, Table]
    directory: Directory
    quarantine: Quarantine

    def table(self, collection: Collection) -> Table:
        return self.tables[collection.name]

    def busy(self) -> StoreUnavailable:
        return StoreUnavailable(self.store, "others kept changing what the call is about; try again")


async def put_one(backing: WriteContext, write: Put) -> Outcome:
    """Store the record where the condition holds; where it does not, look, and say what
    stands there. Raises `Unstorable`.
    """
    table, partition = backing.table(write.collection), write.record.partition
    row = row_of(write.collection, write.record)
    if write.record.generation is None:
        row = row._replace(generation=backing.directory.likely(partition))
    document = document_of(row)
    place = _blindly(write)
    for _ in range(ROUNDS):
        if await _try_store(backing.directory, table, write, document, place):
            return Outcome(Status.APPLIED, version=row.version, generation=row.generation)
        found, generations = await asyncio.gather(
            table.documents.find_one(table.at(write.key)), backing.directory.generations([partition])
        )
        decision = decide(write, slot_of(write.collection, write.key, held_in(found)), generations[partition])
        if not decision.changes:
            return decision.outcome
        if write.record.generation is None and row.generation != generations[partition]:
            row = row._replace(generation=generations[partition])
            document = document_of(row)
        place = _INSERTED if found is None else _merge_options(unchanged_expression(found))
    raise backing.busy()


_INSERTED: Mapping[str, Any] = {"whenMatched": "fail", "whenNotMatched": "insert"}
"""A `$merge` puts a document where nothing stands."""


def _merge_options(where: Document | bool, otherwise: str = "fail") -> Mapping[str, Any]:
    """A `$merge` puts a document in the place of what stands there and is as the
    expression says.
    """
    return {"whenMatched": replacement("$$new", where), "whenNotMatched": otherwise}


def _blindly(write: Put) -> Mapping[str, Any]:
    """Without having looked."""
    if isinstance(write.when, Absent):
        return _INSERTED
    return _merge_options(
        stored_condition(write.when, write.record.version),
        "fail" if isinstance(write.when, AtVersion) else "insert",
    )


async def _try_store(
    directory: Directory, table: Table, write: Put, document: Document, place: Mapping[str, Any]
) -> bool:
    """Store the document in its place under its generation, in one step; whether both
    were still so.

    The driver repeats no `$merge`: a server that steps down meanwhile is
    `StoreUnavailable`.
    """
    under = only_under(write.record.partition, document, exactly=write.record.generation is None)
    try:
        await directory.partitions.aggregate([*under, {"$merge": {"into": table.name, **place}}])
    except Exception as exc:
        if is_refused(exc):
            return False
        raise
    return True


async def delete_one(backing: WriteContext, write: Delete) -> Outcome:
    """A tombstone needs no generation: one change of one document. Raises `Unstorable`."""
    table = backing.table(write.collection)
    document = document_of(
        row_of(
            write.collection, Tombstone(write.key, write.version, write.owed, write.note, write.discard_at)
        )
    )
    upsert = not isinstance(write.when, AtVersion)
    where = stored_condition(write.when, write.version)
    for _ in range(ROUNDS):
        try:
            before = await table.documents.find_one_and_update(
                table.at(write.key), replacement(document, where), {QUARANTINED: 1}, upsert=upsert
            )
        except Exception as exc:
            if not is_refused(exc):
                raise
        else:
            if before is not None and QUARANTINED in before:
                await backing.quarantine.forget(table, [write.key])
            if before is not None or upsert:
                return Outcome(Status.APPLIED, version=write.version)
        found = await table.documents.find_one(table.at(write.key))
        decision = decide(write, slot_of(write.collection, write.key, held_in(found)), 0)
        if not decision.changes:
            return decision.outcome
        where = stored_condition(write.when, write.version) if found is None else unchanged_expression(found)
    raise backing.busy()


def stored_condition(when: When, version: int) -> Document | bool:
    """The condition on what stands there, as an expression: what owes is to be looked
    at. Nothing has no version, a corrupt document perhaps none.
    """
    match when:
        case Absent():
            return {"$lte": ["$type", None]}
        case AtVersion(n, _, tier) if not 0 < n < 2**63 or not is_text(tier or ""):
            return False  # no document has these
        case AtVersion(n, None, None):
            return {
                "$and": [{"$eq": ["$version", n]}, {"$in": ["$type", [RECORD, TOMBSTONE]]}, OWING_NOTHING]
            }
        case AtVersion(n, role, tier):
            asked: Mapping[str, Any] = {
                "version": n,
                "type": RECORD,
                "role": role and role.value,
                "tier": tier,
            }
            return {
                "$and": [
                    *[
                        {"$eq": [f"${name}", {"$literal": value}]}
                        for name, value in asked.items()
                        if value is not None
                    ],
                    OWING_NOTHING,
                ]
            }
        case Always():
            return True
        case Newer():
            return {"$and": [{"$lt": ["$version", version]}, OWING_NOTHING]}  # also of what has none
