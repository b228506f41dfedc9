"""The judge of a session's log, on rows written out by hand."""

from __future__ import annotations

from typing import Any

from memory.ports.record import Key, Record
from tests.simulation.loop import START
from tests.simulation.sessions.logs import LogCheck
from tests.simulation.sessions.told import Said, Told

LIFE = "life"


def _row(
    place: int,
    event: str,
    after: tuple[int, int, int, int, str],
    *,
    text: str = "",
    name: str = "",
    **data: Any,
) -> Record:
    """`after`: the number, version, turn and compactions of the log, and its status."""
    number, version, turn, compactions, status = after
    fields: dict[str, Any] = {
        "place": place,
        "event": event,
        "message_id": name or None,
        "message_role": "assistant" if text else None,
    }
    body = {
        "message": {"content": text},
        "data": data,
        "after": [number, version, turn, compactions, status, 0, 0, 0, 0],
    }
    moment = START.replace(second=place)
    return Record(
        Key("acme", f"row {place}"), "conversation:s", place, moment, moment, fields=fields, body=body
    )


def _archived_between(said: Said) -> list[str]:
    """Of a replacement, one message is put, the session is archived, and then comes the
    other: what is found wrong.
    """
    told = Told(lambda: 0.0, said=[said])
    told.done[LIFE, "new"] = True
    rows = [
        _row(2, "message", (1, 2, 0, 0, "active"), text="edited since", name="m2"),
        _row(3, "closed", (1, 2, 0, 0, "archived"), status="archived"),
        _row(4, "message", (2, 3, 0, 0, "archived"), text="new"),
    ]
    LogCheck(told, LIFE, has_system=False).go_through(rows)
    return [one for one in told.broken if "said while" in one]


def test_a_replacement_that_was_begun_before_the_session_was_archived_is_ended() -> None:
    assert _archived_between(Said(0, life=LIFE, texts=("new",), beside=frozenset({"m2"}), knew=1)) == []


def test_what_a_replacement_found_standing_was_not_put_by_it() -> None:
    assert _archived_between(Said(0, life=LIFE, texts=("new",), beside=frozenset({"m2"}), knew=2)) != []
    assert _archived_between(Said(0, life=LIFE, texts=("new",))) != []
