"""What a fork begins with: of which sessions its messages are copies, so that an
erasure of one of them finds its copies.

A fork's own record names them, in full in the body, and by the sessions' ids in the
field `forked_from`, by which an erasure finds the fork. A fork of a fork names the
first session too: the one in between may be deleted.
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
"""In the body of a fork: its `CopiedMessages`, the session that it forked off from first."""


@dataclass(frozen=True, slots=True)
class CopiedMessages:
    """Messages of one life of a session, copied into a fork: runs of (first place in
    the fork, first place there, how many).
    """

    session_id: str
    incarnation: str
    runs: tuple[tuple[int, int, int], ...]

    @classmethod
    def of(cls, session_id: str, incarnation: str, places: Sequence[tuple[int, int]]) -> CopiedMessages:
        """Of these places, each in the fork and there."""
        runs: list[tuple[int, int, int]] = []
        for here, there in places:
            if runs and (here, there) == (runs[-1][0] + runs[-1][2], runs[-1][1] + runs[-1][2]):
                runs[-1] = (*runs[-1][:2], runs[-1][2] + 1)
            else:
                runs.append((here, there, 1))
        return cls(session_id, incarnation, tuple(runs))

    def copies_of(self, place: int) -> Iterator[int]:
        """The places in the fork of copies of the message at this place."""
        return (here + place - there for here, there, count in self.runs if there <= place < there + count)

    def source_of(self, place: int) -> Iterator[int]:
        """The place there of which the message at this place of the fork is a copy."""
        return (there + place - here for here, there, count in self.runs if here <= place < here + count)

    def to_json(self) -> list[JsonValue]:
        return [self.session_id, self.incarnation, [list(run) for run in self.runs]]


def copied_by(record: Record) -> list[CopiedMessages]:
    """What a session's record says of which messages it began with copies."""
    told: Any = record.body.get(COPIED_FROM) or ()
    return [
        CopiedMessages(session_id, incarnation, tuple((here, there, count) for here, there, count in runs))
        for session_id, incarnation, runs in told
    ]


def copied_on(
    record: Record, session_id: str, incarnation: str, places: Sequence[int]
) -> list[CopiedMessages]:
    """What a fork says that copies the messages at these places of the session of this
    record, in order.
    """
    at = [(FIRST_PLACE + number, place) for number, place in enumerate(places)]
    found = [CopiedMessages.of(session_id, incarnation, at)]
    for one in copied_by(record):
        earlier = [(here, there) for here, place in at for there in one.source_of(place)]
        found += [CopiedMessages.of(one.session_id, one.incarnation, earlier)] if earlier else []
    return found


def check_copied(body: Mapping[str, Any]) -> None:
    """Raise where the body of a session that was exported says it otherwise than an
    export does.
    """
    for one in validation.sequence(COPIED_FROM, body.get(COPIED_FROM, ())):
        if not isinstance(one, list | tuple) or len(one) != 3 or not isinstance(one[1], str):
            raise InvalidInput(COPIED_FROM, "is not in the form that an export writes")
        validation.identifier(COPIED_FROM, one[0])
        if not all(len(run) == 3 and all(type(number) is int for number in run) for run in one[2]):
            raise InvalidInput(COPIED_FROM, "is not in the form that an export writes")


def carried_elsewhere(body: Mapping[str, JsonValue], incarnation_of: Any) -> dict[str, JsonValue]:
    """The body of a fork in another tenant, where `incarnation_of` says which
    incarnation a session has there.
    """
    told: Any = body.get(COPIED_FROM) or ()
    moved: list[JsonValue] = [
        [session_id, incarnation_of(session_id, incarnation), runs] for session_id, incarnation, runs in told
    ]
    return {**body, COPIED_FROM: moved} if moved else dict(body)
