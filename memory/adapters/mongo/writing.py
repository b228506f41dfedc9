"""One write: one announcement where it asks for a generation, and one conditional change of one document."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from memory.adapters.mongo.aside import Aside
from memory.adapters.mongo.documents import ASIDE, FENCE, RECORD, TOMBSTONE, address, sealed
from memory.adapters.mongo.errors import is_duplicate
from memory.adapters.mongo.filters import NEVER
from memory.adapters.mongo.partitions import Permit, Registry
from memory.adapters.mongo.shelf import Shelf, as_it_was, replacement
from memory.adapters.mongo.turns import Turns
from memory.adapters.mongo.values import Document, text_of
from memory.ports.collections import Collection
from memory.ports.deciding import Slot, decide
from memory.ports.record import Tombstone
from memory.ports.storable import Unstorable, encode_integer
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
    aside: Aside
    turns: Turns
    patience: float
    """Seconds that one call may take which others get in the way of."""


async def raise_generation(desk: Desk, write: RaiseGeneration) -> Outcome:
    try:
        number = await desk.registry.raise_to(write.partition, write.to)
    except Unstorable as exc:
        return Outcome(Status.REJECTED, reason=str(exc))
    if write.to != 0:
        await desk.registry.fence(write.partition)
    return Outcome(Status.APPLIED, number=number)


async def put_one(desk: Desk, write: Put) -> Outcome:
    """Store the record where the condition holds; where it does not, look, and say what stands there."""
    shelf, partition = desk.shelf(write.collection), write.record.partition
    draft: Document | None = None
    for round_ in range(ROUNDS):
        try:
            permit = None if round_ else desk.registry.ready(partition, shelf.name)
            if permit is None:
                permit, draft = await _permitted(desk, shelf, write, draft)
            else:
                draft = _drafted(desk, shelf, write, permit)
        except Unstorable as exc:
            return Outcome(Status.REJECTED, reason=str(exc))
        if write.record.generation is None and draft["generation"] != permit.generation:
            draft = sealed(draft | {"generation": permit.generation})
        document, born_at = permit.on(draft), int(draft["generation"])
        applied = born_at >= permit.generation and await _blindly(shelf, write, document, permit)
        outcome = Outcome(Status.APPLIED, version=write.record.version, generation=born_at)
        if not applied:
            found, current = await asyncio.gather(shelf.documents.find_one(shelf.at(write.key)), desk.registry.generations([partition]))
            decision = decide(write, slot_of(shelf, found), current[partition])
            outcome = decision.outcome
            applied = decision.changes and current[partition] == permit.generation and await _exactly(shelf, write, found, document, permit)
        desk.registry.give_back(permit)
        if applied or outcome.status is not Status.APPLIED:
            return outcome
    raise Busy


def _drafted(desk: Desk, shelf: Shelf, write: Put, permit: Permit) -> Document:
    try:
        return shelf.layout.document(write.record, permit.generation)
    except Unstorable:
        desk.registry.give_back(permit)
        raise


async def _permitted(desk: Desk, shelf: Shelf, write: Put, draft: Document | None) -> tuple[Permit, Document]:
    """A new permit; the document is made while it is asked for, under the generation that was last seen."""
    partition = write.record.partition
    asking = asyncio.ensure_future(desk.registry.permit(partition, shelf.name, address(write.key)["id"]))
    await asyncio.sleep(0)  # it is sent
    try:
        draft = draft or shelf.layout.document(write.record, desk.registry.likely(partition))
    except Unstorable:
        desk.registry.give_back(await asking)
        raise
    return await asking, draft


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
                shelf.at(write.key) | standing(write.when, write.version), replacement(document), {ASIDE: 1}, upsert=upsert
            )
        except Exception as exc:
            if not is_duplicate(exc):
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
    raise Busy


async def _blindly(shelf: Shelf, write: Put, document: Document, permit: Permit) -> bool:
    """Store the document where the condition holds, without looking first; whether it did."""
    try:
        if isinstance(write.when, Absent):
            await shelf.documents.insert_one(document)
            return True
        condition = shelf.at(write.key) | standing(write.when, write.record.version) | permit.condition
        done = await shelf.documents.update_one(condition, replacement(document), upsert=not isinstance(write.when, AtVersion))
    except Exception as exc:
        if is_duplicate(exc):
            return False
        raise
    return bool(done.matched_count or done.upserted_id is not None)


async def _exactly(shelf: Shelf, write: Put, found: Document | None, document: Document, permit: Permit) -> bool:
    """Store the document in the place of exactly what was found; whether that still stood there."""
    try:
        await shelf.documents.update_one(shelf.at(write.key) | as_it_was(found) | permit.condition, replacement(document), upsert=True)
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
        case AtVersion(n, _, tier) if not _possible(n, tier):
            return NEVER
        case AtVersion(n, None, None):
            return {"version": {"$eq": n}, "kind": {"$in": [RECORD, TOMBSTONE]}}
        case AtVersion(n, role, tier):
            asked: Mapping[str, Any] = {"role": role and role.value, "tier": tier}
            return {"version": {"$eq": n}, "kind": {"$eq": RECORD}, **{name: {"$eq": value} for name, value in asked.items() if value is not None}}
        case Always():
            return {}
        case _:
            return {"$or": [{"version": {"$lt": version}}, {"version": {"$eq": None}}]}


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
