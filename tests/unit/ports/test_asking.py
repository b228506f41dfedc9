"""Filters over what is in hand: what they mean, and that a large one is not slow."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.domain.errors import InvalidInput
from memory.ports.contract.cells import cells
from memory.ports.query import (
    And,
    Condition,
    Eq,
    Ge,
    Gt,
    Has,
    In,
    IsNull,
    JsonPath,
    Le,
    Lt,
    Not,
    Or,
    StartsWith,
)
from memory.ports.query_evaluation import condition, lets_through
from memory.ports.record import Key, Mark, PendingStep, Record, Role, Standing, Tombstone
from tests.support.depth import drawn

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NAN = float("nan")


class Letter(StrEnum):
    A = "a"


class Shouted(str):
    """A text that equals itself in any case, and hashes as it likes."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and str.lower(self) == str.lower(other)

    def __hash__(self) -> int:
        return 7


TAGS = ("a", "b")
VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    1.0,
    0.0,
    -0.0,
    2**53,
    float(2**53),
    2**53 + 1,
    NAN,
    float("nan"),
    float("inf"),
    "a",
    "A",
    "",
    "1",
    b"a",
    b"",
    bytearray(b"a"),
    Letter.A,
    Shouted("A"),
    Role.HOME,
    "home",
    NOON,
    NOON.astimezone(timezone(timedelta(hours=5))),
    NOON.replace(tzinfo=None),
    NOON + timedelta(microseconds=1),
    TAGS,
    ("a",),
    (),
    ["a"],
    {"a"},
]
FIELDS = [
    "x",
    "y",
    "id",
    "scope",
    "role",
    "owing",
    "version",
    "created_at",
    "expires_at",
    "tier",
    "discard_at",
]
field = st.sampled_from(FIELDS)
value = st.sampled_from(VALUES)
leaf = st.one_of(
    st.builds(In, field, st.lists(value, max_size=6).map(tuple)),
    st.builds(Has, field, st.sampled_from(["a", "A", "b", Letter.A])),
    st.builds(IsNull, field),
    *(st.builds(kind, field, value) for kind in (Eq, Lt, Le, Gt, Ge)),
)
filters = st.recursive(
    leaf,
    lambda inner: st.one_of(
        st.builds(And, st.lists(inner, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, max_size=3).map(tuple)),
        st.builds(Not, inner),
    ),
    max_leaves=6,
)
records = st.builds(
    lambda x, y, role, owed, expires: Record(
        Key("acme", "a"),
        "home",
        1,
        NOON,
        NOON,
        expires,
        fields={"x": x, "y": y},
        role=role,
        owed=(PendingStep("copy", "copy"),) if owed else (),
        tier="a",
    ),
    value,
    value,
    st.sampled_from(Role),
    st.booleans(),
    st.sampled_from([None, NOON]),
)
standings = st.one_of(
    records, st.just(Tombstone(Key("acme", "a"), 1)), st.just(Mark(Key("acme", "a"), "home", 1, to="mid"))
)

_COMPARISONS: dict[Any, Any] = {
    Eq: operator.eq,
    Lt: operator.lt,
    Le: operator.le,
    Gt: operator.gt,
    Ge: operator.ge,
}


def _value_of(standing: Any, name: str) -> Any:
    if name == "id":
        return standing.key.id
    if name == "owing":
        return bool(standing.owed)
    if name in FIELDS[2:]:
        return getattr(standing, name, None)
    return standing.fields.get(name) if isinstance(standing, Record) else None


def _read_word_by_word(part: Condition, standing: Standing) -> bool:
    """The meaning of a filter, spelled out: what a compiled one is held against."""
    match part:
        case And(parts):
            return all(_read_word_by_word(p, standing) for p in parts)
        case Or(parts):
            return any(_read_word_by_word(p, standing) for p in parts)
        case Not(inner):
            return not _read_word_by_word(inner, standing)
        case IsNull(name):
            return _value_of(standing, name) is None
        case Has(name, tag):
            tags = _value_of(standing, name)
            return isinstance(tags, tuple) and tag in tags
        case In(name, values):
            there = _value_of(standing, name)
            return there is not None and there in values
        case StartsWith(name, prefix):
            return str(_value_of(standing, name) or "").startswith(prefix)
    assert not isinstance(part, JsonPath), "no such condition is drawn here"
    there = _value_of(standing, part.field)
    return False if there is None or part.value is None else bool(_COMPARISONS[type(part)](there, part.value))


def _outcome(ask: Any) -> Any:
    try:
        return ask()
    except (TypeError, InvalidInput):
        return "cannot be compared"


@settings(deadline=None, max_examples=drawn(400))
@given(filters, st.lists(standings, min_size=1, max_size=4))
def test_a_filter_made_once_means_what_it_says_word_by_word(part: Condition, several: list[Standing]) -> None:
    holds = condition(part)
    for standing in several:
        meant = _outcome(lambda standing=standing: _read_word_by_word(part, standing))
        assert _outcome(lambda standing=standing: holds(standing)) == meant
        assert _outcome(lambda standing=standing: lets_through(part, standing)) == meant


@cells("one", VALUES, ids=repr, shared=True)
def test_a_value_is_one_of_several_where_it_equals_one(one: Any) -> None:
    for other in VALUES:
        record = Record(Key("acme", "a"), "home", 1, NOON, NOON, fields={"x": one})
        assert condition(In("x", (other, "z")))(record) is (one is not None and one in (other, "z"))


class Watched(tuple[str, ...]):
    """Values that tell how often they are gone through."""

    __slots__ = ()
    times = 0

    def __iter__(self) -> Iterator[str]:
        Watched.times += 1
        return super().__iter__()

    def __contains__(self, one: object) -> bool:
        Watched.times += 1
        return super().__contains__(one)


def test_a_thousand_records_do_not_go_through_the_values_of_a_large_filter() -> None:
    values = Watched(f"v{n}" for n in range(40_000))
    holds = condition(And((In("x", values), Eq("tier", "mid"))))
    Watched.times = 0
    records = [
        Record(Key("acme", str(n)), "s", 1, NOON, NOON, fields={"x": f"v{n * 79}"}, tier="mid")
        for n in range(1_000)
    ]
    assert sum(holds(record) for record in records) == 507  # v0 .. v39974, each 79 on
    assert Watched.times == 0


def test_without_a_filter_everything_passes_also_a_tombstone() -> None:
    assert condition(None)(Tombstone(Key("acme", "a"), 1))


def test_what_cannot_be_compared_is_refused_by_the_field_when_it_is_met() -> None:
    record = Record(Key("acme", "a"), "s", 1, NOON, NOON, fields={"x": "text"})
    holds = condition(Lt("x", 5))
    assert not holds(Tombstone(Key("acme", "a"), 1))
    with pytest.raises(InvalidInput, match="x: cannot be compared with int"):
        holds(record)
