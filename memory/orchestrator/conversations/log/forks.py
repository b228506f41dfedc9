"""The origins of a fork's messages, so that an erasure of a message finds its copies.

A fork's own record has the origins in its body. The field `forked_from` has the ids of
the sessions, by which an erasure finds the fork. A fork of a fork names the first
session too, because the one in between may be deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memory.domain import validation
from memory.domain.errors import InvalidInput
from memory.orchestrator.conversations.log.events import FIRST_PLACE
from memory.ports.record import JsonValue, Record

COPIED_FROM = "copied_from"
"""In the body of a fork: its origins, first that of its direct source."""


@dataclass(frozen=True, slots=True)
class CopiedMessages:
    """Messages of one life of a session that were copied into a fork.

    Each run is (first place in the fork, first place in the source, number of
    messages).
    """

    session_id: str
    incarnation: str
    runs: tuple[tuple[int, int, int], ...]

    @classmethod
    def of(cls, session_id: str, incarnation: str, places: Sequence[tuple[int, int]]) -> CopiedMessages:
        """Return the runs of these pairs of places, in the fork and the source."""
        runs: list[tuple[int, int, int]] = []
        for here, there in places:
            if runs and (here, there) == (runs[-1][0] + runs[-1][2], runs[-1][1] + runs[-1][2]):
                runs[-1] = (*runs[-1][:2], runs[-1][2] + 1)
            else:
                runs.append((here, there, 1))
        return cls(session_id, incarnation, tuple(runs))

    def copies_of(self, place: int) -> Iterator[int]:
        """Return the fork's places of copies of the message at this place."""
        return (here + place - there for here, there, count in self.runs if there <= place < there + count)

    def source_of(self, place: int) -> Iterator[int]:
        """Return the source's place of the message at this place of the fork."""
        return (there + place - here for here, there, count in self.runs if here <= place < here + count)

    def to_json(self) -> list[JsonValue]:
        return [self.session_id, self.incarnation, [list(run) for run in self.runs]]


def copied_by(record: Record) -> list[CopiedMessages]:
    """Return the origins of a session's first messages, from its record."""
    told: Any = record.body.get(COPIED_FROM) or ()
    return [
        CopiedMessages(session_id, incarnation, tuple((here, there, count) for here, there, count in runs))
        for session_id, incarnation, runs in told
    ]


def copied_on(
    record: Record, session_id: str, incarnation: str, places: Sequence[int]
) -> list[CopiedMessages]:
    """Return the origins in a fork that copies messages of this record's session.

    `places` are those of the messages, in the fork's order.
    """
    at = [(FIRST_PLACE + number, place) for number, place in enumerate(places)]
    found = [CopiedMessages.of(session_id, incarnation, at)]
    for one in copied_by(record):
        earlier = [(here, there) for here, place in at for there in one.source_of(place)]
        found += [CopiedMessages.of(one.session_id, one.incarnation, earlier)] if earlier else []
    return found


def check_copied(body: Mapping[str, Any]) -> None:
    """Raise `InvalidInput` if an exported session's origins have another form."""
    for one in validation.sequence(COPIED_FROM, body.get(COPIED_FROM, ())):
        if not isinstance(one, list | tuple) or len(one) != 3 or not isinstance(one[1], str):
            raise InvalidInput(COPIED_FROM, "is not in the form that an export writes")
        validation.identifier(COPIED_FROM, one[0])
        if not all(len(run) == 3 and all(type(number) is int for number in run) for run in one[2]):
            raise InvalidInput(COPIED_FROM, "is not in the form that an export writes")


def carried_elsewhere(body: Mapping[str, JsonValue], incarnation_of: Any) -> dict[str, JsonValue]:
    """Return the body of a fork for another tenant.

    `incarnation_of` returns the incarnation that a session has there.
    """
    told: Any = body.get(COPIED_FROM) or ()
    moved: list[JsonValue] = [
        [session_id, incarnation_of(session_id, incarnation), runs] for session_id, incarnation, runs in told
    ]
    return {**body, COPIED_FROM: moved} if moved else dict(body)
