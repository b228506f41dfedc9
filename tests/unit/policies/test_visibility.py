"""What stores are asked for is what is said of one record: expiry, validity, what was
known, and what is asked for besides.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from memory.domain.scope import Scope
from memory.domain.time import micros
from memory.orchestrator.storage.collections import ENTRIES, ENTRY_VERSIONS
from memory.policies.entry_query import EntryQuery
from memory.policies.visibility import PRESENT, is_active, is_current, is_expired, predicate_of, was_stored
from memory.ports.record import FieldValue, Key, Record
from tests.support.depth import FIRST_SEED, drawn

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MOMENTS = [
    NOW + n * step
    for step in (timedelta(microseconds=1), PRESENT, timedelta(hours=1))
    for n in (-2, -1, 0, 1, 2)
]
SCOPES = (Scope.user("ann"), Scope.session("s1"))
TAGS = ("a", "b", "")


def _said(record: Record, asked: EntryQuery) -> bool:
    """One condition after the other, as reads by id have them."""
    tags, at = record.fields.get("tags") or (), asked.as_of or asked.known_at
    return (
        record.scope in [scope.text for scope in asked.scopes]
        and not is_expired(record, asked.known_at or NOW)
        and (is_current(record, NOW) if at is None else is_active(record, at, NOW))
        and (asked.known_at is None or was_stored(record, asked.known_at, NOW))
        and (asked.since is None or record.created_at >= asked.since)
        and (not asked.types or record.fields.get("type") in asked.types)
        and all(tag in tags for tag in asked.tags)  # type: ignore[operator]
    )


def _record(chance: random.Random, *, kept: bool) -> Record:
    stored = micros(chance.choice(MOMENTS))
    fields: dict[str, FieldValue] = {
        "type": chance.choice(("fact", "user")),
        "valid_from": chance.choice(MOMENTS),
    }
    fields |= {"tags": tuple(chance.sample(TAGS, chance.randrange(3)))} if chance.random() < 0.8 else {}
    fields |= {"valid_to": chance.choice(MOMENTS)} if chance.random() < 0.5 else {}
    if kept:
        fields |= {
            "entry_id": "e1",
            "stored_version": stored,
            "replaced_version": max(stored + 1, micros(chance.choice(MOMENTS))),
        }
    made, ends = chance.choice(MOMENTS), chance.choice((None, chance.choice(MOMENTS)))
    return Record(
        Key("acme", "r1"), chance.choice(SCOPES).text, stored, made, made, expires_at=ends, fields=fields
    )


def _asked(chance: random.Random) -> EntryQuery:
    def maybe(share: float) -> datetime | None:
        return chance.choice(MOMENTS) if chance.random() < share else None

    return EntryQuery(
        "acme",
        tuple(chance.sample(SCOPES, chance.choice((1, 2)))),
        tags=tuple(chance.sample(TAGS, chance.choice((0, 0, 1, 2)))),
        types=chance.choice(((), ("fact",), ("fact", "user"))),
        since=maybe(0.2),
        as_of=maybe(0.4),
        known_at=maybe(0.6),
    )


@pytest.mark.parametrize("kept", [False, True], ids=["entries", "kept versions"])
@pytest.mark.drawn
@pytest.mark.thorough
def test_the_filter_of_a_question_lets_through_exactly_what_is_visible_and_asked_for(kept: bool) -> None:
    chance, collection = random.Random(FIRST_SEED), ENTRY_VERSIONS if kept else ENTRIES  # noqa: S311
    shown = 0
    for _ in range(drawn(20_000, quick=4_000)):
        record, asked = _record(chance, kept=kept), _asked(chance)
        said = _said(record, asked)
        assert predicate_of(asked, collection, NOW)(record) == said, (record, asked)
        shown += said
    assert shown > 100
