"""One write that needs no transaction: one statement that decides by itself, or a look and a swap that holds only if nothing changed since."""

from __future__ import annotations

from memory.adapters.sql.mysql.connection import Connection
from memory.adapters.sql.mysql.errors import DUPLICATE, NO_VALUE, number_of
from memory.adapters.sql.mysql.numbers import Numbers
from memory.adapters.sql.mysql.places import MyPlaces
from memory.adapters.sql.mysql.shelf import MyShelf
from memory.ports.deciding import decide
from memory.ports.writes import Annotate, Outcome, Put, Status


async def put_absent(connection: Connection, shelf: MyShelf, places: MyPlaces, numbers: Numbers, write: Put) -> Outcome | None:
    """Store a record where nothing stands under its key. None, and nothing was stored, where it might be stored now. Raises `Unstorable`.

    The statement reads its partition under a shared lock and has a number for the row only where the generation is still the one expected: a raise
    waits for the puts under way, and every later put sees it.
    """
    record = write.record
    place = places.known(record.partition)
    if place is None:
        shelf.layout.record(record, 0, 0)  # what no row can hold leaves no partition behind
        place = (await places.ensure(connection, [record.partition]))[record.partition]
    given = record.generation is not None
    generation = place.generation if record.generation is None else record.generation
    content = shelf.layout.record(record, place.number, generation)
    (number,) = await numbers.take(connection)
    values = shelf.layout.sealed(content, number, 0)
    where = (place.number, record.key.tenant, record.scope, generation, given, generation)
    try:
        await connection.change(shelf.put_absent, number, *where, *values[1:])
        return Outcome(Status.APPLIED, version=record.version, generation=generation)
    except Exception as exc:
        if number_of(exc) not in (DUPLICATE, NO_VALUE):
            raise
    now = await places.look(connection, record.partition)
    held = shelf.held(await shelf.find(connection, write.key))
    decision = decide(write, held.slot, now.generation if now else 0)
    return None if decision.changes else decision.outcome


async def annotate(connection: Connection, shelf: MyShelf, write: Annotate) -> Outcome | None:
    """Decide on what stands there, and replace exactly that. None where it changed in between. Raises `Unstorable`."""
    held = shelf.held(await shelf.find(connection, write.key))
    decision = decide(write, held.slot, 0)
    held.become(decision, None)
    if not held.changed:
        return decision.outcome
    assert held.row is not None  # noqa: S101 - what is annotated stands somewhere
    return decision.outcome if await shelf.swap(connection, held.content, held.row) else None
