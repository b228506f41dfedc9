"""How a session begins, for lists: what its user said first, kept in the session's own record with the place it stands at."""

from __future__ import annotations

from typing import Any

from memory.domain.message import Role
from memory.orchestrator.conversations.events import Event, EventType
from memory.orchestrator.conversations.log import Log
from memory.ports.query import And, Eq
from memory.ports.record import JsonValue, Record

CHARACTERS = 120


async def preview_of(record: Record, log: Log) -> dict[str, JsonValue]:
    """What of the session's record is to be changed for it: nothing where it says so already, or nobody has spoken."""
    known: Any = record.body.get("preview")
    event = await _first(log) if known is None else await _at(log, known[0])
    text = "" if event is None or event.message is None else beginning(event.message.text)
    preview: JsonValue = [event.place, text] if event is not None and text else None
    return {} if preview == known else {"preview": preview}


async def _at(log: Log, place: int) -> Event | None:
    """What stands there now, where this handle has not read it before."""
    seen = log.seen.events.get(place) if log.seen is not None else None
    return seen or (await log.at([place])).get(place)


async def _first(log: Log) -> Event | None:
    """The user's first message, where there is one."""
    seen = log.seen or await log.load()
    if not seen.state.after.turn:
        return None
    asked = And((Eq("conversation_id", log.life.session_id), Eq("event", EventType.MESSAGE.value), Eq("message_role", Role.USER.value)))
    return await log.first(asked)


def beginning(text: str) -> str:
    """The beginning of a text as one line."""
    line = " ".join(text[: 4 * CHARACTERS].split())
    return line if len(line) <= CHARACTERS else line[: CHARACTERS - 1].rstrip() + "…"
