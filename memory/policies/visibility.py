"""What is visible at which moment: expiry, the window of validity, and which version
was stored by then; and what is asked for besides.

Records carry the moments of their writers' clocks. One that lies ahead of the reader's
clock was written by a clock that is ahead: it has come to pass, and nobody can say
when. So it counts as passed for who asks about the present, which is the last second
before the reader's now and all after it; and for who asks about an earlier moment it
has not come yet. Otherwise an entry that a plain read shows would not be known now, for
as long as that clock was ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from memory.domain.time import micros
from memory.policies.entry_query import EntryQuery, Scalar
from memory.ports import query_evaluation
from memory.ports.collections import Collection
from memory.ports.query import And, Condition, Eq, Ge, Gt, Has, In, IsNull, Le, Lt, Or, all_of
from memory.ports.record import FieldValue, Record

PRESENT = timedelta(seconds=1)
"""How long ago a moment may be that is asked about as now: the time from a caller's
look at its clock to ours.
"""


FILTERED = frozenset(
    {
        "created_at",
        "expires_at",
        "valid_from",
        "valid_to",
        "type",
        "tags",
        "source",
        "agent",
        "run",
        "origins",
    }
)
"""The fields that `filter_of` names where nothing is asked of what was known at a
moment.
"""


def is_expired(record: Record, now: datetime) -> bool:
    """Strictly past its expiry: at that very moment it is still visible."""
    return record.expires_at is not None and record.expires_at < now


def is_current(record: Record, now: datetime) -> bool:
    """Whether the window contains now, for reads that name no moment.

    No window begins in the future (writing refuses it), so only the end counts: a
    reader whose clock is a little behind the writer's sees what was acknowledged.
    """
    end = record.fields.get("valid_to")
    return end is None or now < end  # type: ignore[operator]


def is_active(record: Record, at: datetime, now: datetime) -> bool:
    """Whether the validity window contains the moment."""
    start: Any = record.fields["valid_from"]
    end: Any = record.fields.get("valid_to")
    return is_past(micros(start), at, now) and (end is None or at < end)


def is_past(moment: int, at: datetime, now: datetime) -> bool:
    """Whether a moment, in microseconds, had come to pass at the one asked about."""
    return moment <= micros(at) or (_asks_for_the_present(at, now) and moment > micros(now))


def past_filter(
    field: str, at: datetime, now: datetime, value: Callable[[datetime], FieldValue] = lambda moment: moment
) -> Condition:
    """`passed` as stores are asked it, of a field that holds moments or, given how to
    write one, something else that grows with them.
    """
    come = Le(field, value(at))
    return Or((come, Gt(field, value(now)))) if _asks_for_the_present(at, now) else come


def was_stored(record: Record, known_at: datetime, now: datetime) -> bool:
    """Whether the record's version was stored at that moment, and for a kept one had
    not been replaced: versions are moments.
    """
    replaced: Any = record.fields.get("replaced_version")
    if record.version == micros(known_at):
        return True  # asked about at its own moment
    return is_past(record.version, known_at, now) and (
        replaced is None or not is_past(replaced, known_at, now)
    )


def stored_filter(collection: Collection, known_at: datetime, now: datetime) -> Condition:
    """`was_stored` as stores are asked it: of kept versions, and of records as they
    are.
    """
    if collection.field("replaced_version") is None:
        return past_filter("version", known_at, now, micros)
    moment = micros(known_at)
    stood = And((Le("stored_version", moment), Gt("replaced_version", moment)))
    if not _asks_for_the_present(known_at, now):
        return stood
    return Or((Eq("stored_version", moment), And((stood, Le("replaced_version", micros(now))))))


def _asks_for_the_present(at: datetime, now: datetime) -> bool:
    return at >= now - PRESENT


def filter_of(asked: EntryQuery, collection: Collection, now: datetime) -> Condition | None:
    """What a store is asked for: what is visible of it, by the moment asked about."""
    at = asked.as_of or asked.known_at
    return all_of(
        Or((IsNull("expires_at"), Ge("expires_at", asked.known_at or now))),
        past_filter("valid_from", at, now) if at is not None else None,
        Or((IsNull("valid_to"), Gt("valid_to", at or now))) if not asked.include_retired else None,
        Ge("created_at", asked.since) if asked.since else None,
        Lt("created_at", asked.before) if asked.before else None,
        Lt("updated_at", asked.updated_before) if asked.updated_before else None,
        Or((Eq("conversation_id", asked.conversation), IsNull("conversation_id")))
        if asked.conversation is not None
        else None,
        Eq("conversation_id", asked.pinned_to) if asked.pinned_to is not None else None,
        In("scope", tuple(scope.text for scope in asked.scopes))
        if asked.pinned_to is not None and asked.scopes
        else None,
        In("type", asked.types) if asked.types else None,
        *(Has("tags", tag) for tag in asked.tags),
        Or(tuple(Has("tags", tag) for tag in asked.any_tags)) if asked.any_tags else None,
        stored_filter(collection, asked.known_at, now) if asked.known_at is not None else None,
        asked.trusted,
    )


def predicate_of(asked: EntryQuery, collection: Collection, now: datetime) -> Callable[[Record], bool]:
    """Return the same test for records read by id; it checks metadata too."""
    lets_through, partitions = query_evaluation.condition(filter_of(asked, collection, now)), asked.partitions
    return lambda record: (
        (not partitions or record.partition in partitions)
        and lets_through(record)
        and notes(record, asked.metadata)
    )


def notes(record: Record, wanted: Sequence[tuple[str, Scalar]]) -> bool:
    """Whether the entry's metadata hold each of these keys with exactly its value: 1 is
    1.0, and neither is true.
    """
    if not wanted:
        return True
    metadata: Any = record.body.get("metadata") or {}
    return all(name in metadata and _same(metadata[name], value) for name, value in wanted)


def _same(one: Any, other: Scalar) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
