"""Decide which records are visible at which time.

It checks expiry, validity, the version stored at the time, and the filters of a query.

Records have times of their writers' clocks. A time later than the reader's clock comes
from a clock that is ahead: it has passed, but nobody can say when. So it counts as
passed in queries about the present, which is the last second before the reader's now
and any later time. In queries about an earlier time, it has not passed yet. Otherwise
an entry that a plain read shows would not be known now, as long as that clock is ahead.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from memory.domain.time import micros
from memory.policies.dates import DAY, Period
from memory.policies.entry_filters import condition_of, satisfies
from memory.policies.entry_query import EntryQuery, scope_condition
from memory.ports import query_evaluation
from memory.ports.collections import Collection
from memory.ports.query import And, Condition, Eq, Ge, Gt, Has, In, IsNull, Le, Lt, Or, all_of, covers
from memory.ports.record import FieldValue, Record

PRESENT = timedelta(seconds=1)
"""How old a time may be that is queried as now.

It covers the time from reading the caller's clock to reading ours.
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
"""The fields that `filter_of` uses in queries without `known_at`."""


def is_expired(record: Record, now: datetime) -> bool:
    """Return whether the expiry has passed; at its exact time it has not."""
    return record.expires_at is not None and record.expires_at < now


def expiry_after_read(
    expires_at: datetime | None, lifetime: timedelta | None, now: datetime
) -> datetime | None:
    """Return the expiry after a read at `now` that renews the `lifetime`.

    None if the expiry stays: reads do not move it, or it would move by less than a
    hundredth of the lifetime.
    """
    if expires_at is None or lifetime is None:
        return None
    return now + lifetime if now + lifetime - expires_at > lifetime / 100 else None


def is_current(record: Record, now: datetime) -> bool:
    """Return whether the validity includes now, for reads without a time.

    No validity begins in the future, because writes refuse it. So only the end counts.
    A reader whose clock is slightly behind the writer's sees acknowledged entries.
    """
    end = record.fields.get("valid_to")
    return end is None or now < end  # type: ignore[operator]


def window_end(start: datetime, at: datetime, now: datetime) -> datetime:
    """Return when a validity that began at `start` ends, if a caller ends it at `at`.

    It ends no earlier than it starts. A start in the future comes from a clock that is
    ahead. Then it ends at `at`, before its start, so that reads hide it at once.
    """
    return at if start > now else max(start, at)


def is_active(record: Record, at: datetime, now: datetime) -> bool:
    """Return whether the validity includes the time `at`."""
    start: Any = record.fields["valid_from"]
    end: Any = record.fields.get("valid_to")
    return is_past(micros(start), at, now) and (end is None or at < end)


def is_past(moment: int, at: datetime, now: datetime) -> bool:
    """Return whether a time, in microseconds, has passed at the time `at`."""
    return moment <= micros(at) or (_asks_for_the_present(at, now) and moment > micros(now))


def past_filter(
    field: str, at: datetime, now: datetime, value: Callable[[datetime], FieldValue] = lambda moment: moment
) -> Condition:
    """Return `is_past` as a filter for a field of times.

    `value` converts a time for fields with other values that grow with time.
    """
    come = Le(field, value(at))
    return Or((come, Gt(field, value(now)))) if _asks_for_the_present(at, now) else come


def was_stored(record: Record, known_at: datetime, now: datetime) -> bool:
    """Return whether this version was stored at `known_at` and not yet replaced.

    Versions are times.
    """
    replaced: Any = record.fields.get("replaced_version")
    if record.version == micros(known_at):
        return True  # queried at its own time
    return is_past(record.version, known_at, now) and (
        replaced is None or not is_past(replaced, known_at, now)
    )


def stored_filter(collection: Collection, known_at: datetime, now: datetime) -> Condition:
    """Return `was_stored` as a filter, for kept versions and for current records."""
    if collection.field("replaced_version") is None:
        return past_filter("version", known_at, now, micros)
    moment = micros(known_at)
    stood = And((Le("stored_version", moment), Gt("replaced_version", moment)))
    if not _asks_for_the_present(known_at, now):
        return stood
    return Or((Eq("stored_version", moment), And((stood, Le("replaced_version", micros(now))))))


def _asks_for_the_present(at: datetime, now: datetime) -> bool:
    return at >= now - PRESENT


def unexpired_filter(at: datetime) -> Condition:
    """Return the filter for records that have not expired at a moment."""
    return Or((IsNull("expires_at"), Ge("expires_at", at)))


def filter_of(asked: EntryQuery, collection: Collection, now: datetime) -> Condition | None:
    """Return the filter for visible records at the queried time."""
    at = asked.as_of or asked.known_at
    return all_of(
        unexpired_filter(asked.known_at or now),
        past_filter("valid_from", at, now) if at is not None else None,
        Or((IsNull("valid_to"), Gt("valid_to", at or now))) if not asked.include_retired else None,
        Ge("created_at", asked.since) if asked.since else None,
        Lt("created_at", asked.before) if asked.before else None,
        Lt("updated_at", asked.updated_before) if asked.updated_before else None,
        Or((Eq("conversation_id", asked.conversation), IsNull("conversation_id")))
        if asked.conversation is not None
        else None,
        Eq("conversation_id", asked.pinned_to) if asked.pinned_to is not None else None,
        scope_condition(asked.scopes) if asked.pinned_to is not None and asked.scopes else None,
        In("type", asked.types) if asked.types else None,
        *(Has("tags", tag) for tag in asked.tags),
        Or(tuple(Has("tags", tag) for tag in asked.any_tags)) if asked.any_tags else None,
        stored_filter(collection, asked.known_at, now) if asked.known_at is not None else None,
        asked.trusted,
        condition_of(asked.filter, collection),
    )


def period_bounds(period: Period, today: date) -> tuple[datetime, datetime]:
    """Return where the period begins, and where it is over.

    It has a day more at each end, since the caller's day is not that of UTC. Of a
    period of any year, the last one counts.
    """
    last = period.latest(today)
    return (
        datetime.combine(last.first - DAY, time.min, UTC),
        datetime.combine(last.last + 2 * DAY, time.min, UTC),
    )


def predicate_of(asked: EntryQuery, collection: Collection, now: datetime) -> Callable[[Record], bool]:
    """Return the same test for records read by id; it checks the whole filter."""
    lets_through, place = query_evaluation.condition(filter_of(asked, collection, now)), asked.place
    passes = satisfies(asked.filter)
    return lambda record: covers(place, record.partition) and lets_through(record) and passes(record)
