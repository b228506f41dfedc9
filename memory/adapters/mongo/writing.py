"""One write: one conditional change of one document, that of a put conditional on its partition's generation too (see `partitions`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from memory.adapters.mongo.aside import Aside
from memory.adapters.mongo.codec import ASIDE, RECORD, TOMBSTONE, sealed
from memory.adapters.mongo.errors import is_refused
from memory.adapters.mongo.partitions import Registry, only_under
from memory.adapters.mongo.shelf import Shelf, replacement, unchanged
from memory.adapters.mongo.turns import Turns
from memory.adapters.mongo.values import Document, text_of
from memory.ports.collections import Collection
from memory.ports.deciding import Slot, decide
from memory.ports.record import Tombstone
from memory.ports.storable import Unstorable, encode_integer
from memory.ports.writes import Absent, Always, AtVersion, Delete, Outcome, Put, RaiseGeneration, Status, When

OWING_NOTHING: Document = {"$ne": ["$owing", True]}
ROUNDS = 100
"""How often a write is begun again because others changed what it is about in between."""


class Busy(Exception):
    """Others kept changing what a write is about."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What writes work with."""

    shelf: Callable[[Collection], Shelf]
    registry: Registry
    aside: Aside
    turns: Turns
    patience: float
    """Seconds that one call may take which others get in the way of."""


async def raise_generation(desk: Desk, write: RaiseGeneration) -> Outcome:
    try:
        return Outcome(Status.APPLIED, number=await desk.registry.raise_to(write.partition, write.to))
    except Unstorable as exc:
        return Outcome(Status.REJECTED, reason=str(exc))


async def put_one(desk: Desk, write: Put) -> Outcome:
    """Store the record where the condition holds; where it does not, look, and say what stands there."""
    shelf, partition = desk.shelf(write.collection), write.record.partition
    try:
        document = shelf.layout.document(write.record, desk.registry.likely(partition))
    except Unstorable as exc:
        return Outcome(Status.REJECTED, reason=str(exc))
    place = _blindly(write)
    for _ in range(ROUNDS):
        if await _placed(desk.registry, shelf, write, document, place):
            return Outcome(Status.APPLIED, version=write.record.version, generation=int(document["generation"]))
        found, generations = await asyncio.gather(shelf.documents.find_one(shelf.at(write.key)), desk.registry.generations([partition]))
        decision = decide(write, slot_of(shelf, found), generations[partition])
        if not decision.changes:
            return decision.outcome
        if write.record.generation is None and document["generation"] != generations[partition]:
            document = sealed(document | {"generation": generations[partition]})
        place = _INSERTED if found is None else _replacing(unchanged(found))
    raise Busy


_INSERTED: Mapping[str, Any] = {"whenMatched": "fail", "whenNotMatched": "insert"}
"""A `$merge` puts a document where nothing stands."""


def _replacing(where: Document | bool, otherwise: str = "fail") -> Mapping[str, Any]:
    """A `$merge` puts a document in the place of what stands there and is as the expression says."""
    return {"whenMatched": replacement("$$new", where), "whenNotMatched": otherwise}


def _blindly(write: Put) -> Mapping[str, Any]:
    """Without having looked."""
    where = standing(write.when, write.record.version)
    match write.when:
        case Absent():
            return _INSERTED
        case AtVersion():
            return _replacing(where)
        case _:
            return _replacing(where, "insert")


async def _placed(registry: Registry, shelf: Shelf, write: Put, document: Document, place: Mapping[str, Any]) -> bool:
    """Store the document in its place under its generation, in one step; whether both were still so.

    The driver repeats no `$merge`: a server that steps down meanwhile is `StoreUnavailable`.
    """
    under = only_under(write.record.partition, document, exactly=write.record.generation is None)
    try:
        await registry.partitions.aggregate([*under, {"$merge": {"into": shelf.name, **place}}])
    except Exception as exc:
        if is_refused(exc):
            return False
        raise
    return True


async def delete_one(desk: Desk, write: Delete) -> Outcome:
    """A tombstone needs no generation: one change of one document."""
    shelf = desk.shelf(write.collection)
    try:
        document = shelf.layout.document(Tombstone(write.key, write.version, write.owed, write.note, write.discard_at))
    except Unstorable as exc:
        return Outcome(Status.REJECTED, reason=str(exc))
    upsert = not isinstance(write.when, AtVersion)
    where = standing(write.when, write.version)
    for _ in range(ROUNDS):
        try:
            before = await shelf.documents.find_one_and_update(shelf.at(write.key), replacement(document, where), {ASIDE: 1}, upsert=upsert)
        except Exception as exc:
            if not is_refused(exc):
                raise
        else:
            if before is not None and ASIDE in before:
                await desk.aside.forget(shelf, [write.key])
            if before is not None or upsert:
                return Outcome(Status.APPLIED, version=write.version)
        found = await shelf.documents.find_one(shelf.at(write.key))
        decision = decide(write, slot_of(shelf, found), 0)
        if not decision.changes:
            return decision.outcome
        where = standing(write.when, write.version) if found is None else unchanged(found)
    raise Busy


def standing(when: When, version: int) -> Document | bool:
    """The condition on what stands there, as an expression: what owes is to be looked at. Nothing has no version, a corrupt document perhaps none."""
    match when:
        case Absent():
            return {"$lte": ["$kind", None]}
        case AtVersion(n, _, tier) if not _possible(n, tier):
            return False
        case AtVersion(n, None, None):
            return {"$and": [{"$eq": ["$version", n]}, {"$in": ["$kind", [RECORD, TOMBSTONE]]}, OWING_NOTHING]}
        case AtVersion(n, role, tier):
            asked: Mapping[str, Any] = {"version": n, "kind": RECORD, "role": role and role.value, "tier": tier}
            return {"$and": [*[{"$eq": [f"${name}", {"$literal": value}]} for name, value in asked.items() if value is not None], OWING_NOTHING]}
        case Always():
            return True
        case _:
            return {"$and": [{"$lt": ["$version", version]}, OWING_NOTHING]}  # also of what has none


def _possible(version: int, tier: str | None) -> bool:
    """Whether a document can have these."""
    try:
        encode_integer("version", version), text_of(tier or "")
    except Unstorable:
        return False
    return True


def slot_of(shelf: Shelf, found: Mapping[str, Any] | None) -> Slot:
    """What stands there, for deciding. A corrupt document has the version that can still be read."""
    stored = shelf.layout.read(found)
    version = found.get("version") if found is not None and stored is not None else None
    return Slot(stored, int(version) if isinstance(version, int) else None)
