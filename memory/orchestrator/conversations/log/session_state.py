"""The state of a session: a JSON object that changes with what is appended.

Each change is an event with the whole state, or part of the event of a message. So a
message and a change of the state are one write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from memory.domain import validation
from memory.domain.errors import CorruptRecord, InvalidInput
from memory.domain.session import SessionState
from memory.domain.versions import ABSENT, version_conflict, version_text
from memory.orchestrator.conversations.log.events import STATE, Draft, EventType, LogTotals, place_key
from memory.orchestrator.conversations.log.log import Log

MAX_STATE_BYTES = validation.MAX_METADATA_BYTES


@dataclass(frozen=True, slots=True)
class StateChange:
    """A change of the state, as a caller asks for it.

    Values of `delta` replace those of the same name, and None removes the name.
    `expected` is the version that the state must have: 0 for none, None for any.
    """

    delta: Mapping[str, Any]
    expected: int | None = None

    def apply(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return the state after the change.

        Raises:
            InvalidInput: The state becomes too large.
        """
        merged = {name: value for name, value in {**state, **self.delta}.items() if value is not None}
        return validation.json_object("state", merged, max_bytes=MAX_STATE_BYTES)

    def check_version(self, after: LogTotals, session_id: str) -> None:
        """Raise `VersionConflict` if the state has another version than expected."""
        if self.expected is not None and self.expected != after.state_version:
            stored = after.state_version if after.state_place else None
            raise version_conflict(f"the state of session '{session_id}'", self.expected, stored)


async def read_state(log: Log, after: LogTotals) -> SessionState:
    """Return the state of the session that belongs to these totals."""
    if not after.state_place:
        return SessionState({}, ABSENT)
    seen = None if log.snapshot is None else log.snapshot.events.get(after.state_place)
    event = seen or (await log.at([after.state_place])).get(after.state_place)
    held: Any = None if event is None else event.draft.data.get(STATE)
    if not isinstance(held, dict):
        key = place_key(log.life.tenant, log.life.incarnation, after.state_place)
        raise CorruptRecord(
            log.store.name,
            key.id,
            "the state of the session is damaged or missing. Append with state= and every value of it",
        )
    return SessionState(validation.json_object("state", held), version_text(after.state_version))


def with_state(drafts: Sequence[Draft], state: Mapping[str, Any]) -> list[Draft]:
    """Return the drafts; the last message carries the state, or an event of its own."""
    found = list(drafts)
    for at in range(len(found) - 1, -1, -1):
        if found[at].type is EventType.MESSAGE:
            found[at] = replace(found[at], data={**found[at].data, STATE: dict(state)})
            return found
    return [*found, Draft(EventType.STATE, data={STATE: dict(state)})]


def refuse_if_split(log: Log, events: int) -> None:
    """Raise `InvalidInput` if the store cannot store so many events together."""
    capabilities = log.store.capabilities
    most = (capabilities.max_batch or events) if capabilities.atomic else 1
    if events > most:
        raise InvalidInput(
            "state",
            f"is stored together with its messages, and the store '{log.store.name}' can store {most} at"
            f" once, not {events}. Append fewer messages with state=",
        )
