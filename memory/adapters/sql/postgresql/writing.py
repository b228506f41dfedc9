"""One write: one statement where what it asks can be said in one, else a look and a swap that holds only if nothing changed since."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memory.adapters.sql.postgresql.connection import Connection
from memory.adapters.sql.postgresql.places import PgPlaces
from memory.adapters.sql.postgresql.shelf import PgShelf
from memory.adapters.sql.postgresql.values import checked
from memory.adapters.sql.server.store import Busy
from memory.ports.collections import Collection
from memory.ports.deciding import Decision, decide
from memory.ports.record import Tombstone
from memory.ports.storable import Unstorable
from memory.ports.writes import Absent, Annotate, AtVersion, Delete, Newer, Outcome, Purge, Put, RaiseGeneration, Release, Status, When

ROUNDS = 100
"""How often a write is begun again because others changed what it is about in between."""

Single = Put | Delete | Release | Annotate | Purge | RaiseGeneration
Shelves = Callable[[Collection], PgShelf]


async def write_one(connection: Connection, shelves: Shelves, places: PgPlaces, write: Single) -> Outcome:
    """Carry out one write in a transaction of its own."""
    try:
        if isinstance(write, RaiseGeneration):
            return Outcome(Status.APPLIED, number=await places.raise_generation(connection, write.partition, write.to))
        shelf = shelves(write.collection)
        for _ in range(ROUNDS):
            if isinstance(write, Put):
                outcome = await _put(connection, shelf, places, write)
            elif isinstance(write, Delete):
                outcome = await _delete(connection, shelf, write)
            else:
                outcome = await _swap(connection, shelf, write)
            if outcome is not None:
                return outcome
    except Unstorable as exc:
        return Outcome(Status.REJECTED, reason=str(exc))
    raise Busy


async def _put(connection: Connection, shelf: PgShelf, places: PgPlaces, write: Put) -> Outcome | None:
    """None where it is to be begun again."""
    record, when = write.record, write.when
    place = places.known(record.partition) or (await places.ensure(connection, [record.partition]))[record.partition]
    given = record.generation is not None
    generation = place.generation if record.generation is None else record.generation
    values = shelf.parameters(shelf.layout.record(record, place.number, generation))
    if await _blindly(connection, shelf, when, [*values, given], put=True):
        return Outcome(Status.APPLIED, version=record.version, generation=generation)
    now = await places.look(connection, record.partition)
    held = shelf.held(await shelf.find(connection, write.key))
    if now is None or now.number != place.number:
        return None
    return _unless_it_would_do(decide(write, held.slot, now.generation))


async def _delete(connection: Connection, shelf: PgShelf, write: Delete) -> Outcome | None:
    tombstone = Tombstone(write.key, write.version, write.owed, write.note, write.discard_at)
    values = shelf.parameters(shelf.layout.tombstone(tombstone))
    if await _blindly(connection, shelf, write.when, values, put=False):
        return Outcome(Status.APPLIED, version=write.version)
    held = shelf.held(await shelf.find(connection, write.key))
    return _unless_it_would_do(decide(write, held.slot, 0))


def _unless_it_would_do(decision: Decision) -> Outcome | None:
    """Why a write was not carried out, by what stands there now; None where it would be now."""
    return None if decision.changes else decision.outcome


async def _blindly(connection: Connection, shelf: PgShelf, when: When, values: list[Any], *, put: bool) -> bool:
    """Store the row where the condition holds, without looking first; whether it did."""
    if isinstance(when, AtVersion):
        role, tier = when.role and when.role.value, None if when.tier is None else checked(when.tier)
        return bool(await connection.fetchval(shelf.put_at if put else shelf.bury_at, *values, when.version, role, tier))
    if not put:
        return bool(await connection.fetchval(shelf.bury_newer, *values))
    sql = shelf.put_absent if isinstance(when, Absent) else shelf.put_newer if isinstance(when, Newer) else shelf.put_always
    return bool(await connection.fetchval(sql, *values))


async def _swap(connection: Connection, shelf: PgShelf, write: Release | Annotate | Purge) -> Outcome | None:
    """Decide on what stands there, and replace exactly that."""
    held = shelf.held(await shelf.find(connection, write.key))
    decision = decide(write, held.slot, 0)
    held.become(decision, None)
    if not held.changed:
        return decision.outcome
    assert held.row is not None  # noqa: S101 - what changes stands somewhere
    if held.content is None:
        swapped = await connection.fetchval(shelf.delete, checked(write.key.tenant), checked(write.key.id), held.row[-1])
    else:
        swapped = await connection.fetchval(shelf.swap, *shelf.parameters(held.content), held.row[-1])
    return decision.outcome if swapped else None
