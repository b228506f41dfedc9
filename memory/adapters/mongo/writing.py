"""One write: one announcement where it asks for a generation, and one conditional change of one document."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from memory.adapters.mongo.aside import Aside
from memory.adapters.mongo.counters import Counters
from memory.adapters.mongo.documents import ASIDE, FENCE, RECORD, TOMBSTONE, address, sealed
from memory.adapters.mongo.errors import is_duplicate
from memory.adapters.mongo.partitions import Registry
from memory.adapters.mongo.shelf import Shelf, as_it_was, at, replacement, unfenced
from memory.adapters.mongo.values import Document, Unstorable
from memory.ports.collections import Collection
from memory.ports.deciding import Slot, decide
from memory.ports.record import Record, Tombstone
from memory.ports.writes import Absent, Always, AtVersion, Delete, Outcome, Put, RaiseGeneration, Status, When

ROUNDS = 100
"""How often a write is begun again because others changed what it is about in between."""


class Busy(Exception):
    """Others kept changing what a write is about."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What writes work with."""

    shelf: Callable[[Collection], Shelf]
    registry: Registry
    counters: Counters
    aside: Aside


async def raise_generation(desk: Desk, write: RaiseGeneration) -> Outcome:
    try:
        number = await desk.registry.raise_to(write.partition, write.to)
    except Unstorable as exc:
        return Outcome(Status.REJECTED, reason=str(exc))
    if write.to != 0:
        await desk.registry.fence(write.partition)
    return Outcome(Status.APPLIED, number=number)


async def put_one(desk: Desk, write: Put) -> Outcome:
    """Announce the key, store the record where the condition holds; where it does not, look, and say what stands there."""
    shelf, partition = desk.shelf(write.collection), write.record.partition
    draft: Document | None = None
    for _ in range(ROUNDS):
        try:
            keys = [(shelf.name, address(write.key))]
            announcing = asyncio.ensure_future(desk.registry.announce({partition: keys}))
            await asyncio.sleep(0)  # it is sent, and the document made meanwhile
            try:
                draft = draft or shelf.layout.document(born(write.record, desk.registry.likely(partition)))
            finally:
                announcement = await announcing
        except Unstorable as exc:
            return Outcome(Status.REJECTED, reason=str(exc))
        generation = announcement.generations[partition]
        document = draft if write.record.generation is not None or generation == draft["generation"] else sealed(draft | {"generation": generation})
        born_at = int(document["generation"])
        applied = born_at >= generation and await _blindly(shelf, write, document, announcement.token)
        outcome = Outcome(Status.APPLIED, version=write.record.version, generation=born_at)
        if not applied:
            found, current = await asyncio.gather(shelf.documents.find_one(at(write.key)), desk.registry.generations([partition]))
            decision = decide(write, slot_of(shelf, found), current[partition], no_number)
            outcome = decision.outcome
            applied = decision.changes and current[partition] == generation and await _exactly(shelf, write, found, document, announcement.token)
        await desk.registry.finish(announcement)
        if applied or outcome.status is not Status.APPLIED:
            return outcome
    raise Busy


async def delete_one(desk: Desk, write: Delete) -> Outcome:
    """A tombstone needs no generation: one change of one document."""
    shelf = desk.shelf(write.collection)
    try:
        document = shelf.layout.document(Tombstone(write.key, write.version, write.owed, write.note, write.discard_at))
    except Unstorable as exc:
        return Outcome(Status.REJECTED, reason=str(exc))
    upsert = not isinstance(write.when, AtVersion)
    for _ in range(ROUNDS):
        try:
            before = await shelf.documents.find_one_and_update(
                at(write.key) | standing(write.when, write.version), replacement(document), {ASIDE: 1}, upsert=upsert
            )
        except Exception as exc:
            if not is_duplicate(exc):
                raise
        else:
            if before is not None and ASIDE in before:
                await desk.aside.forget(shelf, [write.key])
            if before is not None or upsert:
                return Outcome(Status.APPLIED, version=write.version)
        found = await shelf.documents.find_one(at(write.key))
        decision = decide(write, slot_of(shelf, found), 0, no_number)
        if not decision.changes:
            return decision.outcome
    raise Busy


async def _blindly(shelf: Shelf, write: Put, document: Document, token: str) -> bool:
    """Store the document where the condition holds, without looking first; whether it did."""
    try:
        if isinstance(write.when, Absent):
            await shelf.documents.insert_one(document)
            return True
        condition = at(write.key) | standing(write.when, write.record.version) | unfenced(token)
        done = await shelf.documents.update_one(condition, replacement(document), upsert=not isinstance(write.when, AtVersion))
    except Exception as exc:
        if is_duplicate(exc):
            return False
        raise
    return bool(done.matched_count or done.upserted_id is not None)


async def _exactly(shelf: Shelf, write: Put, found: Document | None, document: Document, token: str) -> bool:
    """Store the document in the place of exactly what was found; whether that still stood there."""
    try:
        await shelf.documents.update_one(at(write.key) | as_it_was(found) | unfenced(token), replacement(document), upsert=True)
    except Exception as exc:
        if is_duplicate(exc):
            return False
        raise
    return True


def standing(when: When, version: int) -> Document:
    """The condition on what stands there. Nothing at all is an upsert's business; a fence has no version, and a corrupt document may have none."""
    match when:
        case Absent():
            return {"kind": {"$eq": FENCE}}
        case AtVersion(n, None, None):
            return {"version": {"$eq": n}, "kind": {"$in": [RECORD, TOMBSTONE]}}
        case AtVersion(n, role, tier):
            asked: Mapping[str, Any] = {"role": role and role.value, "tier": tier}
            return {"version": {"$eq": n}, "kind": {"$eq": RECORD}, **{name: {"$eq": value} for name, value in asked.items() if value is not None}}
        case Always():
            return {}
        case _:
            return {"$or": [{"version": {"$lt": version}}, {"version": {"$eq": None}}]}


def slot_of(shelf: Shelf, found: Mapping[str, Any] | None) -> Slot:
    """What stands there, for deciding. A corrupt document has the version that can still be read."""
    stored = shelf.layout.read(found)
    version = found.get("version") if found is not None and stored is not None else None
    return Slot(stored, int(version) if isinstance(version, int) else None)


def born(record: Record, generation: int) -> Record:
    """The record with its own generation, or else with this one."""
    return record if record.generation is not None else replace(record, generation=generation)


def no_number() -> int:
    raise AssertionError("only an append takes a number")
