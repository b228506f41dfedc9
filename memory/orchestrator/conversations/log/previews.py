"""The preview of a session in lists: the beginning of its user's first message.

The session's own record has it, with the place of that message.
"""

from __future__ import annotations

from typing import Any

from memory.domain.message import Role
from memory.orchestrator.conversations.log.events import Event, EventType
from memory.orchestrator.conversations.log.folding import State
from memory.orchestrator.conversations.log.log import Log
from memory.ports.query import And, Eq
from memory.ports.record import JsonValue, Record

CHARACTERS = 120
_OF_USERS = And((Eq("event", EventType.MESSAGE.value), Eq("message_role", Role.USER.value)))


async def preview_of(record: Record, state: State, log: Log) -> dict[str, JsonValue]:
    """Return the change of the session's record for its preview.

    Empty if the preview is current, or if no user has written.
    """
    known: Any = record.body.get("preview")
    event = await _first(state, log) if known is None else (await log.at([known[0]])).get(known[0])
    text = "" if event is None or event.draft.message is None else excerpt(event.draft.message.text)
    preview: JsonValue = [event.place, text] if event is not None and text else None
    return {} if preview == known else {"preview": preview}


async def _first(state: State, log: Log) -> Event | None:
    return await log.first(_OF_USERS) if state.after.turn else None


def excerpt(text: str) -> str:
    """Return the beginning of a text as one line."""
    line = " ".join(text[: 4 * CHARACTERS].split())
    return line if len(line) <= CHARACTERS else line[: CHARACTERS - 1].rstrip() + "…"
