"""Calls with a single write: one command that checks its condition.

A put also checks its generation (see `partitions`). If the condition fails, the stored
data is read and the write is decided on it. The result is stored only if that data is
unchanged.
"""

from __future__ import annotations

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
from memory.ports.concurrency import both_at_once
from memory.ports.record import Tombstone
from memory.ports.rows import RECORD, TOMBSTONE, row_of
from memory.ports.write_decision import decide
from memory.ports.writes import Absent, Always, AtVersion, Delete, Newer, Outcome, Put, Status, When

OWING_NOTHING: Document = {"$ne": ["$owing", True]}
ROUNDS = 100
"""Most attempts of a write if others keep changing its document."""


@dataclass(frozen=True, slots=True)
class WriteContext:
    """Resources that writes need."""

    store: str
    client: AsyncMongoClient[Document]
    tables: Mapping[str, Table]
    directory: Directory
    quarantine: Quarantine

    def table(self, collection: Collection) -> Table:
        return self.tables[collection.name]

    def busy(self) -> StoreUnavailable:
        return StoreUnavailable(self.store, "others kept changing the same data; try again")


async def put_one(backing: WriteContext, write: Put) -> Outcome:
    """Store a record if its condition holds; else return the stored data.

    Raises:
        Unstorable: MongoDB cannot store the record.
    """
    table, partition = backing.table(write.collection), write.record.partition
    row = row_of(write.collection, write.record)
    if write.record.generation is None:
        row = row._replace(generation=backing.directory.likely(partition))
    document = table.encode(row)
    place = _blindly(write)
    for _ in range(ROUNDS):
        if await _try_store(backing.directory, table, write, document, place):
            return Outcome(Status.APPLIED, version=row.version, generation=row.generation)
        found, generations = await both_at_once(
            table.documents.find_one(table.at(write.key)), backing.directory.generations([partition])
        )
        decision = decide(write, slot_of(write.collection, write.key, held_in(found)), generations[partition])
        if not decision.changes:
            return decision.outcome
        if write.record.generation is None and row.generation != generations[partition]:
            row = row._replace(generation=generations[partition])
            document = table.encode(row)
        place = _INSERTED if found is None else _merge_options(unchanged_expression(found))
    raise backing.busy()


_INSERTED: Mapping[str, Any] = {"whenMatched": "fail", "whenNotMatched": "insert"}
"""`$merge` options that insert a document if there is none."""


def _merge_options(where: Document | bool, otherwise: str = "fail") -> Mapping[str, Any]:
    """Return `$merge` options that replace a document matching the expression."""
    return {"whenMatched": replacement("$$new", where), "whenNotMatched": otherwise}


def _blindly(write: Put) -> Mapping[str, Any]:
    """Return `$merge` options without having read the document."""
    if isinstance(write.when, Absent):
        return _INSERTED
    return _merge_options(
        stored_condition(write.when, write.record.version),
        "fail" if isinstance(write.when, AtVersion) else "insert",
    )


async def _try_store(
    directory: Directory, table: Table, write: Put, document: Document, place: Mapping[str, Any]
) -> bool:
    """Store the document with its conditions, in one step; return whether they held.

    The conditions are those of the place and the generation. The driver never retries a
    `$merge`; if the server steps down meanwhile, `StoreUnavailable` is raised.
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
    """Store a tombstone, which needs no generation. Raises `Unstorable`."""
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
    """Return the write's condition as an expression.

    Documents with pending steps fail it, because they must be read first. A missing
    document has no version, and a corrupt one may have none.
    """
    match when:
        case Absent():
            return {"$lte": ["$type", None]}
        case AtVersion(n, _, tier) if not 0 < n < 2**63 or not is_text(tier or ""):
            return False  # no document has such values
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
            return {"$and": [{"$lt": ["$version", version]}, OWING_NOTHING]}  # also true without a version
