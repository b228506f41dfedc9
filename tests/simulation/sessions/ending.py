"""After the last fault: what is owed is carried out, and then everything that was
promised holds at once.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from memory.domain.errors import NotFound
from memory.domain.ids import beside
from memory.domain.message import Message
from memory.domain.message import Role as Speaker
from memory.orchestrator.conversations.log.events import place_key
from memory.orchestrator.conversations.sessions import SessionDraft
from memory.orchestrator.storage.collections import ARTIFACTS, ENTRIES, MESSAGES, SESSIONS
from memory.orchestrator.storage.kinds import KINDS
from memory.orchestrator.storage.session_keys import scope_of, session_key
from memory.orchestrator.storage.split import CONVERSATION
from memory.ports.record import Key, Record, Role
from tests.simulation.loop import OWNER
from tests.simulation.sessions.acts import SESSION, SYSTEM, TENANT, Worker, everything, texts_in
from tests.simulation.sessions.logs import LogCheck, data_of

if TYPE_CHECKING:
    from tests.simulation.sessions.run import Run

ROUNDS = 12
_ANSWER = re.compile(r"answer (\d+), (\d+) of (\d+): ")


async def in_the_end(world: Run) -> None:
    process = world.process("auditor")
    OWNER.set(process)
    auditor = Worker(world, process)
    await auditor.engine.open()
    with suppress(NotFound):  # a deletion that is owed may have come half-way
        session, since = await auditor.handle(), world.told.now()
        world.told.read(session.log.life.incarnation, since, await everything(session), "in the end")
    await settle(world, auditor)
    auditor.forget()
    session, since = await auditor.handle(), world.told.now()
    life = session.log.life.incarnation
    shown, items = await session.context(), await everything(session)
    world.told.read(life, since, items, "when all is settled")
    world.told.window(life, since, shown, "when all is settled")
    world.told.same(shown, items, "when all is settled")
    log = _log(world, life)
    _, events = await session.log.window()
    window = {str(event.message.id) for event in events.values() if event.message is not None}
    if window != {log.name(place) for place in log.window}:
        world.told.broken.append(
            f"the window shows {sorted(window)}, and is {sorted(log.name(place) for place in log.window)}"
        )
    _record_follows(world, log)
    _entries(world, life, log)
    for label in world.told.forks:
        await _forked(world, auditor, label)
    _nothing_is_left(world, log)
    _copies_are_of_the_living(world, life)
    await _lists(world, auditor, log)


async def settle(world: Run, worker: Worker) -> None:
    """Sweeps until nothing is owed any more."""
    for _ in range(ROUNDS):
        await asyncio.sleep(100)  # longer than any lease
        report = await worker.engine.maintenance.sweep()
        await worker.engine.conversations.window_exit.drain()
        stays = len(report.stays) > len(
            worker.engine.rollback_detector.known
        )  # that a store was set back stays so until it is healed
        if report.ran and not (
            report.finished or report.pending_steps or report.moved or report.waiting or stays
        ):
            return
    world.told.broken.append(f"after {ROUNDS} sweeps without a fault there is still work to do: {report}")


def _log(world: Run, life: str) -> LogCheck:
    """The log of the session that lives. Of its former lives nothing is left in any
    store.
    """
    rows = [row for row in world.standing(MESSAGES) if row.scope == scope_of(SESSION)]
    mine = {place_key(TENANT, life, int(str(row.fields["place"]))): row for row in rows}
    for row in rows:
        if mine.get(row.key) is not row:
            world.told.broken.append(f"of a session that was deleted {row} is left")
    log = LogCheck(world.told, life, has_system=True)
    log.go_through(
        sorted(
            (row for row in rows if mine.get(row.key) is row), key=lambda row: int(str(row.fields["place"]))
        )
    )
    return log


def _record_follows(world: Run, log: LogCheck) -> None:
    """Nothing is owed: the session's own record has the status that its log has come
    to. What else lists show may be behind where a process died.
    """
    (record,) = (row for row in world.standing(SESSIONS) if row.key == session_key(TENANT, SESSION))
    body: Any = record.body
    status: Any = record.fields["status"]
    if status != log.status:
        world.told.broken.append(f"lists say that the session is {status}, and it is {log.status}")
    place, counted = body.get("place", 0), body.get("messages", 1)
    if place > max(log.rows, default=1) or counted > log.number:
        world.told.broken.append(
            f"lists tell of {counted} messages up to {place}, and there are {log.number} up to"
            f" {max(log.rows, default=1)}"
        )


async def _lists(world: Run, auditor: Worker, log: LogCheck) -> None:
    """Once something has been said again, lists are exact."""
    session, since = await auditor.handle(), auditor.engine.placement.now()
    await session.resume()
    await session.append([Message(role=Speaker.USER, content="At last.")])
    (info,) = (
        await auditor.engine.conversations.sessions.list(TENANT, asked={"session_id": SESSION}, limit=5)
    ).sessions
    first = next(
        (
            row
            for _, row in sorted(log.rows.items())
            if row.fields.get("message_role") == "user" and row.fields["event"] == "message"
        ),
        None,
    )
    body: Any = {"message": {"content": "At last."}} if first is None else first.body
    told, true = (
        [info.status, info.message_count, info.compaction_count, info.preview],
        ["active", log.number + 1, log.compactions, body["message"].get("content")],
    )
    if told != true or info.updated_at < since:
        world.told.broken.append(f"lists tell {told} as of {info.updated_at}, and it is {true} at {since}")


# -- onward ----------------------------------------------------------------------------


def _entries(world: Run, life: str, log: LogCheck) -> None:
    """Of each event by which messages leave there are the entries of one answer, each
    once; of sessions that are gone there are none.
    """
    living = {life, *(fork.life for fork in world.told.forks.values())}
    made: dict[int, list[str]] = {place: [] for place in log.leaving}
    for row in world.standing(ENTRIES):
        body: Any = row.body
        if body["said_in"]["incarnation"] not in living:
            world.told.broken.append(f"of a session that was deleted there is '{_text(row)}' still")
        elif body["said_in"]["incarnation"] == life:
            of = {each for first, last in body["said_in"]["places"] for each in range(first, last + 1)}
            events = [place for place, left in log.leaving.items() if of <= {place, *left}]
            if not events:
                world.told.broken.append(f"'{_text(row)}' is of nothing that left")
            for place in events[:1]:
                made[place].append(_text(row))
    for place, left in log.leaving.items():
        _of_one_answer(world, log, place, left, made[place])


def _of_one_answer(world: Run, log: LogCheck, place: int, left: list[int], told: list[str]) -> None:
    answers = Counter((match[1], match[3]) for match in map(_ANSWER.match, told) if match is not None)
    if len(answers) > 1:
        world.told.broken.append(f"what left by {place} was made entries of by {sorted(answers)}")
    spoken = [
        each
        for each in left
        if log.rows[each].fields["event"] == "message"
        and data_of(log.rows[each]).get("in_history") is not False
    ]
    if all(log.was_taken_out(each) for each in spoken) or world.told.users:
        return  # nothing to be made of it; or the entries of its user were erased
    if any(log.is_redacted(each) for each in (place, *spoken)):
        return  # entries that were made of it went with it
    wanted = max((int(many) for _, many in answers), default=1)
    if len(told) != wanted:
        world.told.broken.append(f"of what left by {place} there are {len(told)} entries of {wanted}")


def _text(entry: Record) -> str:
    return str(entry.texts["content"])


# -- what is erased --------------------------------------------------------------------


def _nothing_is_left(world: Run, log: LogCheck) -> None:
    """What was erased is in no record of any store, but for copies that another session
    was given of it before; nor in the window.
    """
    erased = world.told.erased()
    if left := [
        place for place in log.window if log.is_redacted(place) and not log.may_be_in_a_summary(place)
    ]:
        world.told.broken.append(f"{left} were erased, and are in the window")
    for row in _everything_standing(world):
        for text in sorted(texts_in(row) & erased.keys()):
            if row.scope.startswith(f"{CONVERSATION}:") and row.scope != scope_of(SESSION):
                continue
            if (place := row.fields.get("place")) in log.rows and _is_limit(log, int(str(place))):
                pass  # counted with the log
            else:
                world.told.broken.append(f"'{text}' was erased, and is in {row}")


def _is_limit(log: LogCheck, place: int) -> bool:
    left = [
        each for first, last in data_of(log.rows[place]).get("left", ()) for each in range(first, last + 1)
    ]
    return any(log.is_redacted(each) and log.may_be_in_a_summary(each) for each in left)


def _everything_standing(world: Run) -> Iterator[Record]:
    for collection in KINDS.collections:
        yield from (row for row in world.standing(collection) if not _is_lost(world, row))


def _is_lost(world: Run, row: Record) -> bool:
    """Whether it is a copy that came back with the disk of a volatile store: nobody
    reads it, and it expires.
    """
    return row.role is Role.CACHED and row.epoch != world.servers[0].store.epoch


def _copies_are_of_the_living(world: Run, life: str) -> None:
    if world.backups is not None:
        return  # a life that its store has lost was not deleted: its copy expires
    living = {life, *(fork.life for fork in world.told.forks.values())}
    keys = {Key(TENANT, beside(each, "window")) for each in living if each}
    for row in world.standing(ARTIFACTS):
        if row.role is Role.CACHED and row.key not in keys and not _is_lost(world, row):
            world.told.broken.append(f"of a session that was deleted there is a copy: {row.key}")


async def _forked(world: Run, auditor: Worker, label: str) -> None:
    """A fork has what it was made of, or the beginning of it; it is gone where its user
    was erased.
    """
    fork = world.told.forks[label]
    try:
        session = await auditor.engine.conversations.open(TENANT, SessionDraft(label, SYSTEM), create=False)
    except NotFound:
        if fork.done and not world.told.may_be_erased(fork.begun):
            world.told.broken.append(f"{label}: the fork is lost")
        return
    if fork.life in world.told.ended:
        world.told.broken.append(f"{label}: the fork of a user who was erased is there")
    said = [item.message.text for item in await everything(session) if item.message.id != "system"]
    if said != list(fork.texts[: len(said)]) or (fork.done and len(said) < len(fork.texts)):
        world.told.broken.append(f"{label}: the fork has {said}, and was given {fork.texts}")
