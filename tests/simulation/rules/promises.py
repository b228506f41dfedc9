"""What is promised of rules, quotas and holds over a whole run: judged from what was
asked for, what was told, and what was seen of the stores.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from math import inf

from memory.orchestrator.storage.sources import EntrySource, sources_of
from memory.ports.record import Key, Record
from tests.simulation.faults import CLOCK_ERROR
from tests.simulation.loop import START
from tests.simulation.rules.given import (
    CROWD,
    FACT,
    MOST_OF_A_TICKET,
    MOST_OF_A_USER,
    NEWEST,
    PAST,
    QUIET,
    TICKET,
    USER,
    WORKSPACE,
    copies_of,
    deletes,
    expires,
    is_pinned,
    settles,
    tags_of,
)
from tests.simulation.rules.told import Call, Came, Hold, Kind, Seen, Told

_MAY_DELETE = frozenset({Kind.DELETE, Kind.ERASE, Kind.SWEEP, Kind.WRITE, Kind.END})
"""What may have begun to delete something: writes and the copies of an end, where
others are evicted for them.
"""
_MAY_COME = (Came.OPEN, Came.DONE)


def broken(told: Told, *, crowded: bool) -> list[str]:
    """Every promise that was broken, a sentence each."""
    return [
        *nothing_goes_that_nothing_covers(told, crowded=crowded),
        *no_version_goes_that_nothing_covers(told),
        *what_is_held_stays(told),
        *relations_go_with_an_end(told),
        *whats_acknowledged_is_there(told),
        *deletions_tell_of_holds(told),
        *copies_are_made_once(told),
        *an_end_copies_what_its_rules_say(told),
        *moves_follow_rules(told),
        *a_quota_refuses_in_time(told),
        *a_quota_refuses_what_is_too_much_alone(told),
    ]


def at(moment: float) -> datetime:
    return START + timedelta(seconds=moment)


def latest(moment: float) -> datetime:
    """What a clock shows then at most."""
    return at(moment + CLOCK_ERROR)


# -- what goes -------------------------------------------------------------------------


def nothing_goes_that_nothing_covers(told: Told, *, crowded: bool) -> Iterator[str]:
    for key, seen in told.entries.items():
        if (
            seen.gone < inf
            and not _by_call(told, seen)
            and not _by_rule(told, seen, crowded=crowded)
            and not _evicted(told, seen)
            and not _with_a_source(told, seen)
        ):
            yield (
                f"{key.id} went between {seen.last:.3f} and {seen.gone:.3f}, and nothing covers that:"
                f" {seen.record}"
            )


def _met(told: Told, seen: Seen, *kinds: Kind) -> list[Call]:
    return [call for call in told.calls if call.kind in kinds and call.meets(seen.last, seen.gone)]


def _by_call(told: Told, seen: Seen) -> bool:
    """Whether somebody asked for its deletion, or for that of its scope."""
    asked = [
        call
        for call in _met(told, seen, Kind.DELETE, Kind.ERASE)
        if call.came in _MAY_COME and call.tenant == seen.record.key.tenant
    ]
    return any(call.about in (seen.record.key.id, seen.record.scope) for call in asked)


def _by_rule(told: Told, seen: Seen, *, crowded: bool) -> bool:
    """Whether a sweep may have found it covered by a rule of retention, or by its
    expiry.
    """
    sweeps, now = _met(told, seen, Kind.SWEEP), latest(seen.gone)
    if not sweeps:
        return False
    if deletes(seen.record, now) or expires(seen.record, now):
        return True
    if not crowded or seen.record.scope != WORKSPACE.text or is_pinned(seen.record):
        return False
    return len(list(_beside(told, seen, min(call.begun for call in sweeps)))) >= CROWD


def _with_a_source(told: Told, seen: Seen) -> bool:
    """Whether an entry that it was made of went no later: a copy goes with its source
    by a rule, or while it is not confirmed.
    """
    keys = [
        Key(seen.record.key.tenant, one.entry_id)
        for one in sources_of(seen.record)
        if isinstance(one, EntrySource)
    ]
    return any(key in told.entries and told.entries[key].gone <= seen.gone for key in keys)


def _evicted(told: Told, seen: Seen) -> bool:
    """Whether a write may have found it to be the first of its scope that may go, with
    so many others behind it or under hold.
    """
    writes = _met(told, seen, Kind.WRITE, Kind.END, Kind.SWEEP)
    if seen.record.scope != USER.text or not writes:
        return False
    return (
        not is_pinned(seen.record)
        and len(list(_beside(told, seen, min(call.begun for call in writes)))) >= MOST_OF_A_USER
    )


def _beside(told: Told, seen: Seen, since: float) -> Iterator[Seen]:
    """What may have stood beside it in its scope at some time since, and does not go
    before it: what is newer, was written meanwhile, or is kept.
    """
    for other in told.entries.values():
        if (
            other is not seen
            and other.record.partition == seen.record.partition
            and other.stood(since, seen.gone)
        ):
            held = any(hold.possible(since, seen.gone) and hold.holds(other.record) for hold in told.holds)
            if (
                other.record.created_at >= seen.record.created_at
                or other.first >= since
                or is_pinned(other.record)
                or held
            ):
                yield other


def no_version_goes_that_nothing_covers(told: Told) -> Iterator[str]:
    """A kept version goes with its entry, or by a rule on versions."""
    for key, seen in told.versions.items():
        entry = told.entries.get(Key(key.tenant, str(seen.record.fields["entry_id"])))
        if seen.gone == inf or entry is None or entry.gone <= seen.gone or _by_call(told, seen):
            continue
        swept, newer = (
            _met(told, seen, Kind.SWEEP),
            sum(_is_newer(other, seen) for other in told.versions.values()),
        )
        lets_go = (
            newer >= NEWEST if key.tenant == "acme" else latest(seen.gone) - PAST >= replaced_at(seen.record)
        )
        if not swept or not lets_go:
            yield (
                f"a version of {entry.record.key.id} went between {seen.last:.3f} and {seen.gone:.3f}, and"
                f" nothing covers that: {seen.record}"
            )


def replaced_at(version: Record) -> datetime:
    return datetime.fromtimestamp(int(str(version.fields["replaced_version"])) / 1e6, START.tzinfo)


def _is_newer(other: Seen, seen: Seen) -> bool:
    same = other.record.fields["entry_id"] == seen.record.fields["entry_id"]
    return same and other.record.version > seen.record.version and other.first <= seen.gone


def relations_go_with_an_end(told: Told) -> Iterator[str]:
    for key, seen in told.relations.items():
        ends = [
            told.entries.get(Key(key.tenant, str(seen.record.fields[name])))
            for name in ("source_id", "target_id")
        ]
        stand = [
            end
            for end in ends
            if end is not None and end.gone > seen.gone and not expired(end.record, seen.gone)
        ]
        if seen.gone < inf and len(stand) == 2 and not _by_call(told, seen):
            yield (
                f"the relation {key.id} went between {seen.last:.3f} and {seen.gone:.3f}, and both its ends"
                " stand"
            )


def expired(record: Record, moment: float) -> bool:
    return record.expires_at is not None and record.expires_at <= latest(moment)


def whats_acknowledged_is_there(told: Told) -> Iterator[str]:
    """Whoever looked behind a write saw what it wrote, unless it may have gone by then."""
    for key, (scope, written) in told.acknowledged.items():
        erased = any(
            call.kind is Kind.ERASE
            and call.about == scope
            and call.tenant == key.tenant
            and call.over >= written
            for call in told.calls
        )
        if key not in told.entries and scope != USER.text and not erased:
            yield f"{key.id} of {scope} was acknowledged at {written:.3f}, and nobody has seen it"


# -- what is held ----------------------------------------------------------------------


def what_is_held_stays(told: Told) -> Iterator[str]:
    """But what somebody had begun to delete when it was placed."""
    for seen in (*told.entries.values(), *told.versions.values()):
        entry = told.entries.get(
            Key(seen.record.key.tenant, str(seen.record.fields.get("entry_id") or seen.record.key.id))
        )
        if seen.gone == inf or (entry is not None and entry is not seen and entry.gone <= seen.gone):
            continue
        for hold in told.holds:
            if (
                hold.holds(seen.record)
                and hold.certain(seen.last, seen.gone)
                and not _had_begun(told, hold, seen)
            ):
                yield (
                    f"{seen.record.key.id} is held by {hold.name}, and went between {seen.last:.3f} and"
                    f" {seen.gone:.3f}: {seen.record}"
                )


def _had_begun(told: Told, hold: Hold, seen: Seen) -> bool:
    return any(
        call.kind in _MAY_DELETE and call.begun < hold.placed.ended and call.over >= seen.last
        for call in told.calls
    )


def deletions_tell_of_holds(told: Told) -> Iterator[str]:
    """Who deletes what is held is refused, and nobody else is."""
    for call in told.calls:
        if call.kind in (Kind.DELETE, Kind.ERASE):
            held = [hold for hold in told.holds if _concerns(told, hold, call)]
            if call.came is Came.DONE and any(hold.certain(call.begun, call.ended) for hold in held):
                yield f"{call} was carried out, and is held by {held}"
            if call.came is Came.HELD and not any(hold.possible(call.begun, call.ended) for hold in held):
                yield f"{call} was refused, and nothing holds it"


def _concerns(told: Told, hold: Hold, call: Call) -> bool:
    """Whether the hold is over what the call would delete; of a scope, over any of it."""
    of = told.entries.get(Key(call.tenant, hold.of if call.kind is Kind.ERASE else call.about))
    if call.kind is Kind.DELETE:
        return of is not None and hold.holds(of.record)
    entry_in_it = hold.over == "entry" and of is not None and of.record.scope == call.about
    return hold.tenant == call.tenant and (hold.takes_in(call.about) or entry_in_it)


# -- copies and moves ------------------------------------------------------------------


def copies_are_made_once(told: Told) -> Iterator[str]:
    """And of what a rule copies alone."""
    copies: dict[tuple[Key, str], list[Key]] = defaultdict(list)
    for key, seen in told.entries.items():
        if (origin := seen.record.fields.get("promoted_from_id")) is not None:
            copies[Key(key.tenant, str(origin)), seen.record.scope].append(key)
    for (source, scope), made in copies.items():
        if len(made) > 1:
            yield f"{source.id} is copied to {scope} as {[key.id for key in made]}"
        if source in told.entries and scope not in copies_of(told.entries[source].record):
            yield f"{source.id} is copied to {scope}, which no rule says: {told.entries[source].record}"


def an_end_copies_what_its_rules_say(told: Told) -> Iterator[str]:
    for end in told.ends:
        made = {
            (seen.record.fields.get("promoted_from_id"), seen.record.scope)
            for seen in told.entries.values()
            if seen.first <= end.call.ended
        }
        for record in end.stood:
            stays = told.entries[record.key].gone > end.call.ended and not expired(record, end.call.ended)
            for scope in copies_of(record) if stays and record.key.id not in end.kept else ():
                if (record.key.id, scope) not in made | end.copied:
                    yield (
                        f"{end.call} was acknowledged, and {record.key.id} is not copied to {scope}: {record}"
                    )


def moves_follow_rules(told: Told) -> Iterator[str]:
    for moved in told.moved:
        record, may = moved.before, set[str]()
        ends = any(
            call.kind is Kind.END and call.about == record.scope and call.tenant == record.key.tenant
            for call in _begun(told, moved.by)
        )
        quiet = moved.by >= QUIET.total_seconds() - 2 * CLOCK_ERROR and any(
            call.kind is Kind.SWEEP for call in _begun(told, moved.by)
        )
        if record.tier == "short" and (ends or quiet):
            may.add("long" if FACT in tags_of(record) else "mid")
        if settles(record, latest(moved.by)):
            may.add("long")
        if moved.tier not in may:
            yield (
                f"{record.key.id} moved from '{record.tier}' to '{moved.tier}' between {moved.since:.3f} and"
                f" {moved.by:.3f}: {record}"
            )


def _begun(told: Told, before: float) -> list[Call]:
    return [call for call in told.calls if call.begun <= before]


# -- quotas ----------------------------------------------------------------------------


def a_quota_refuses_in_time(told: Told) -> Iterator[str]:
    """A scope is fuller than its quota by what was under way at most, beside the write
    that came last; of the same process, what had failed.
    """
    for partition, counts in told.counts.items():
        if partition.scope == TICKET.text:
            writes = [
                call for call in _writes(told, partition.tenant, partition.scope) if call.came in _MAY_COME
            ]
            for moment, count in counts:
                beside = (
                    sum(other.many for other in writes if _unmet(one, other))
                    for one in writes
                    if one.begun <= moment
                )
                if count > MOST_OF_A_TICKET + max(beside, default=0):
                    yield f"{partition} holds {count} at {moment:.3f}"
                    break


def _unmet(one: Call, other: Call) -> bool:
    """Whether another write may have come to stand once this one had counted: of
    another process, or one that its own had given up.
    """
    return other is not one and (other.by != one.by or other.came is Came.OPEN) and _overlap(one, other)


def a_quota_refuses_what_is_too_much_alone(told: Told) -> Iterator[str]:
    for call in told.calls:
        if call.kind is Kind.WRITE and call.came is Came.FULL:
            others = [
                other
                for other in _writes(told, call.tenant, call.about)
                if other is not call and _overlap(call, other)
            ]
            stood = sum(
                (seen.record.key.tenant, seen.record.scope) == (call.tenant, call.about)
                and seen.stood(call.begun, call.ended)
                for seen in told.entries.values()
            )
            if (
                call.about != TICKET.text
                or stood + sum(other.many for other in others) + call.many <= MOST_OF_A_TICKET
            ):
                yield f"{call} was refused, and there is room"


def _writes(told: Told, tenant: str, scope: str) -> list[Call]:
    return [
        call
        for call in told.calls
        if call.kind is Kind.WRITE and (call.tenant, call.about) == (tenant, scope)
    ]


def _overlap(one: Call, other: Call) -> bool:
    return other.begun <= one.over and other.over >= one.begun
