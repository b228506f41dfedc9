"""Filters: every operator on every type, missing values, and nesting.

Random filters are compared with a small separate evaluator.
"""

from __future__ import annotations

from datetime import timedelta, timezone
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from memory.ports.contract.capability_tests import needs
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import MORE_SAMPLES, SAMPLES
from memory.ports.contract.harness import Harness
from memory.ports.contract.support import HERE, T0, apply_all, id_of, put, query_ids, record, ways
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
    Query,
    Search,
    StartsWith,
    within,
)
from memory.ports.record import FieldValue, PendingStep, Record, Role, pack_vector
from memory.ports.store import Store

TEXTS = ["", "a", "A", "á", "a ", "ab", "b", "%", "a_b", "axb", "É", "10", "9", "\U0001f600", "\uffff"]
RECORDS = [
    record(0),
    *[
        record(n, fields={"type": text, "tags": (text,), "confidence": n / 10}, body={})
        for n, text in enumerate(TEXTS, start=1)
    ],
    record(20, fields={"tags": ()}, expires_at=T0, owed=(PendingStep("x", "x"),), tier="short"),
    record(
        21,
        fields={"tags": ("red", "a_b", "Blue"), "valid_from": T0, "valid_to": T0 + timedelta(microseconds=1)},
        accessed_at=T0,
        accesses=3,
    ),
    record(
        22,
        fields={"type": "a", "valid_from": T0 + timedelta(microseconds=1), "confidence": -1e308},
        version=2**53 + 1,
        tier="mid",
    ),
    record(
        23,
        fields={"type": "b", "valid_from": T0 - timedelta(microseconds=1), "confidence": 0.1 + 0.2},
        version=2**53 + 2,
    ),
    record(24, fields={"confidence": 0.3, "source": 'it\'s "quoted"'}, generation=4),
    record(25, fields={"confidence": 1, "source": ""}),
    record(26, fields={"pinned": True, "number": -(2**63), "seal": b""}),
    record(27, fields={"pinned": False, "number": 2**53 + 1, "seal": b"\x00"}),
    record(28, fields={"pinned": True, "number": 2**53, "seal": b"\x00\x00"}),
    record(29, fields={"number": 2**63 - 1, "seal": b"\xff"}),
]


async def _fill(store: Store) -> None:
    await apply_all(store, *[put(r) for r in RECORDS])


async def _numbers(store: Store, part: Condition) -> list[int]:
    by_id = {r.key.id: n for n, r in ((int(r.created_at.timestamp() - T0.timestamp()), r) for r in RECORDS)}
    return sorted(by_id[i] for i in await query_ids(store, part=part))


def _texts(*wanted: str) -> list[int]:
    return sorted(
        [n for n, t in enumerate(TEXTS, start=1) if t in wanted]
        + [n for n, t in ((22, "a"), (23, "b")) if t in wanted]
    )


M = timedelta(microseconds=1)
EVERY = (*range(16), *range(20, 30))
CASES: dict[str, tuple[Condition, list[int]]] = {
    "text is case and accent sensitive": (Eq("type", "a"), _texts("a")),
    "text wildcards are characters": (Eq("type", "%"), _texts("%")),
    "empty text is a value": (Eq("type", ""), _texts("")),
    "text of digits is no number": (Eq("type", "10"), _texts("10")),
    "one of several": (In("type", ("a", "b", "nothing")), _texts("a", "b")),
    "one of none": (In("type", ()), []),
    "not one of none": (Not(In("type", ())), [*EVERY]),
    "text below by code point": (Lt("type", "A"), _texts("", "%", "10", "9")),
    "text above by code point": (Gt("type", "axb"), _texts("b", "á", "É", "\U0001f600", "\uffff")),
    "text at least, beyond the basic plane": (Ge("type", "\uffff"), _texts("\U0001f600", "\uffff")),
    "reals exactly": (Eq("confidence", 0.3), [3, 24]),
    "reals between": (And((Ge("confidence", 0.3), Lt("confidence", 0.5))), [3, 4, 23, 24]),
    "an integer asked of a real": (Eq("confidence", 1), [10, 25]),
    "moments below": (Lt("valid_from", T0), [23]),
    "moments up to": (Le("valid_from", T0), [21, 23]),
    "moments above": (Gt("valid_from", T0), [22]),
    "moments to the microsecond": (Eq("valid_from", T0 + M), [22]),
    "integers exactly": (Eq("number", 2**53 + 1), [27]),
    "integers below": (Lt("number", 2**53), [26]),
    "integers between": (And((Ge("number", 2**53), Lt("number", 2**63 - 1))), [27, 28]),
    "one of several integers": (In("number", (-(2**63), 2**63 - 1, 0)), [26, 29]),
    "a missing integer": (IsNull("number"), [*range(16), *range(20, 26)]),
    "true": (Eq("pinned", True), [26, 28]),
    "false is a value": (Eq("pinned", False), [27]),
    "neither true nor false": (IsNull("pinned"), [*range(16), *range(20, 26), 29]),
    "not true holds for missing values": (Not(Eq("pinned", True)), [*range(16), *range(20, 26), 27, 29]),
    "true or false": (In("pinned", (True, False)), [26, 27, 28]),
    "bytes exactly": (Eq("seal", b"\x00"), [27]),
    "no bytes are a value": (Eq("seal", b""), [26]),
    "one of several bytes": (In("seal", (b"\xff", b"\x00\x00", b"x")), [28, 29]),
    "missing bytes": (IsNull("seal"), [*range(16), *range(20, 26)]),
    "a whole tag": (Has("tags", "a_b"), sorted([*_texts("a_b"), 21])),
    "a tag is case-sensitive": (Has("tags", "blue"), []),
    "part of a tag is no tag": (Has("tags", "re"), []),
    "a wildcard is no tag": (Has("tags", "_"), []),
    "the empty tag": (Has("tags", ""), _texts("")),
    "all tags in their order": (Eq("tags", ("red", "a_b", "Blue")), [21]),
    "all tags in another order": (
        In("tags", (("Blue", "a_b", "red"), ("red", "Blue", "a_b"), ("red", "a_b"))),
        [],
    ),
    "tags in another order": (Eq("tags", ("a_b", "red", "Blue")), []),
    "no tags asked for": (Not(Has("tags", "red")), [n for n in EVERY if n != 21]),
    "missing tags": (IsNull("tags"), [0, *range(22, 30)]),
    "missing text": (IsNull("source"), [n for n in EVERY if n not in (24, 25)]),
    "a value there": (Not(IsNull("source")), [24, 25]),
    "quotes are characters": (Eq("source", 'it\'s "quoted"'), [24]),
    "not equal holds for missing values": (Not(Eq("source", "")), [n for n in EVERY if n != 25]),
    "not below holds for missing values": (Not(Lt("valid_from", T0)), [n for n in EVERY if n != 23]),
    "equal to nothing is never true": (Eq("source", None), []),
    "one of nothing is never true": (In("source", (None, "")), [25]),
    "not one of nothing": (Not(In("source", (None, ""))), [n for n in EVERY if n != 25]),
    "below nothing is never true": (Lt("confidence", None), []),
    "all of nothing": (And(()), [*EVERY]),
    "any of nothing": (Or(()), []),
    "nested": (
        Or(
            (
                And((Eq("type", "a"), Not(IsNull("valid_from")))),
                Not(Or((Lt("version", 2**53 + 2), IsNull("type")))),
            )
        ),
        [22, 23],
    ),
    "by id": (In("id", (id_of(3), id_of(20))), [3, 20]),
    "by version": (Gt("version", 2**53), [22, 23]),
    "by exact version": (Eq("version", 2**53 + 1), [22]),
    "by scope": (Eq("scope", HERE.scope), [*EVERY]),
    "by another scope": (Eq("scope", "user:bob"), []),
    "by creation": (Le("created_at", T0 + timedelta(seconds=2)), [0, 1, 2]),
    "by change": (Gt("updated_at", T0 + timedelta(seconds=23)), [*range(24, 30)]),
    "by end": (Le("expires_at", T0), [20]),
    "without end": (IsNull("expires_at"), [n for n in EVERY if n != 20]),
    "by generation": (Ge("generation", 1), [24]),
    "by role": (Eq("role", Role.HOME), [*EVERY]),
    "by tier": (In("tier", ("short", "mid")), [20, 22]),
    "an empty tier is a value": (IsNull("tier"), []),
    "owing": (Eq("owing", True), [20]),
    "not owing": (Eq("owing", False), [n for n in EVERY if n != 20]),
    "by accesses": (Gt("accesses", 0), [21]),
    "by last access": (Eq("accessed_at", T0), [21]),
    "records have no end to discard at": (IsNull("discard_at"), [*EVERY]),
}


@clause("filter.holds")
@needs("filter")
@pytest.mark.asyncio
async def test_every_operator_holds_for_exactly_what_it_says(store: Store) -> None:
    await _fill(store)
    wrong = {
        why: (await _numbers(store, part), expected)
        for why, (part, expected) in CASES.items()
        if await _numbers(store, part) != expected
    }
    assert not wrong, "filter: (found, expected)"


@clause("filter.holds", "count.exact")
@needs("filter")
@pytest.mark.asyncio
async def test_counts_agree_with_what_filters_find(store: Store) -> None:
    await _fill(store)
    counted = {
        why: (await store.count(Query(SAMPLES, within(HERE), part))).records
        for why, (part, _) in CASES.items()
    }
    assert counted == {why: len(expected) for why, (_, expected) in CASES.items()}


@clause("filter.holds", "numbers.exact")
@needs("filter")
@pytest.mark.asyncio
async def test_integers_compare_as_numbers_over_all_64_bits(store: Store) -> None:
    values = [-(2**63), -10, -9, 0, 9, 10, 2**53, 2**53 + 1, 2**63 - 1]
    await apply_all(
        store,
        *[
            put(record(n, fields={"stored_version": v}), collection=MORE_SAMPLES)
            for n, v in enumerate(values)
        ],
    )
    for n, value in enumerate(values):
        below = await query_ids(store, part=Lt("stored_version", value), collection=MORE_SAMPLES)
        equal = await query_ids(store, part=Eq("stored_version", value), collection=MORE_SAMPLES)
        assert (set(below), equal) == ({id_of(i) for i in range(n)}, [id_of(n)])


@clause("filter.holds")
@needs("filter")
@pytest.mark.asyncio
async def test_a_large_choice_of_values_is_no_problem(store: Store) -> None:
    await _fill(store)
    many = tuple(f"none-{n}" for n in range(3000))
    assert await _numbers(store, In("type", (*many, "ab"))) == _texts("ab")


PREFIXED = [
    *[
        "",
        "a",
        "A",
        "ab",
        "aá",
        "a\u0301",
        "a%",
        "a_",
        "a\x00",
        "b",
        "ß",
        "ss",
        "\x00",
        "\x00\x00",
        "\x01",
        "\x01\x01",
        "10",
        "1",
    ],
    *[
        "\ud7ff",
        "\ud7ffx",
        "\ue000",
        "\uffff",
        "\uffff\uffff",
        "\U00010000",
        "\U0001f600",
        "\U0001f600!",
        "\U0010ffff",
        "\U0010ffff\U0010ffffz",
    ],
]
"""Texts that are easily taken for the beginning of each other."""


@clause("filter.prefix")
@needs("filter")
@pytest.mark.asyncio
async def test_texts_are_found_by_how_they_begin_character_by_character(store: Store) -> None:
    texts = dict(enumerate(PREFIXED, start=1))
    await apply_all(
        store,
        put(record(0)),
        *[put(record(n, fields={"type": text}, tier=text)) for n, text in texts.items()],
    )
    prefixes = [*PREFIXED, "a\U0010ffff", "\ud7ff\U0010ffff", "\U0010ffff" * 2, "nothing"]
    for field in ("type", "tier"):
        wrong: dict[str, object] = {}
        for prefix in prefixes:
            begin = [id_of(n) for n, text in texts.items() if text.startswith(prefix)]
            others = [id_of(n) for n in range(len(texts) + 1) if id_of(n) not in begin]
            if field == "tier" and prefix == "":
                begin, others = [id_of(n) for n in range(len(texts) + 1)], []  # every record has a tier
            found = (
                await query_ids(store, part=StartsWith(field, prefix)),
                await query_ids(store, part=Not(StartsWith(field, prefix))),
            )
            wrong |= {} if found == (begin, others) else {prefix: found}
        assert not wrong, field


# -- random filters against an evaluator -----------------------------------------------

_VALUES: dict[str, list[FieldValue]] = {
    "type": [*TEXTS, "zz"],
    "source": ["", 'it\'s "quoted"', "x"],
    "confidence": [0.3, 0.1 + 0.2, 0.5, 1.0, -1e308, 0.0],
    "valid_from": [T0, T0 + M, T0 - M],
    "number": [2**53, 2**53 + 1, -(2**63), 2**63 - 1, 0],
    "pinned": [True, False],
    "seal": [b"", b"\x00", b"\xff"],
    "version": [1, 2**53 + 1, 2**53 + 2],
    "accesses": [0, 3],
    "expires_at": [T0, T0 - M],
    "owing": [True, False],
    "tier": ["", "short", "mid"],
}


def _value(r: Record, field: str) -> Any:
    if field == "owing":
        return len(r.owed) > 0
    return r.fields.get(field) if SAMPLES.field(field) else getattr(r, field)


def _holds(part: Condition, r: Record) -> bool:
    if isinstance(part, And):
        return all(_holds(p, r) for p in part.parts)
    if isinstance(part, Or):
        return any(_holds(p, r) for p in part.parts)
    if isinstance(part, Not):
        return not _holds(part.part, r)
    assert not isinstance(part, JsonPath), "no such filter is drawn here"
    have = _value(r, part.field)
    if isinstance(part, IsNull):
        return have is None
    if have is None:
        return False
    if isinstance(part, Has):
        return part.tag in have
    if isinstance(part, In):
        return have in part.values
    if isinstance(part, StartsWith):
        return str(have).startswith(part.prefix)
    compared: dict[type[Condition], Any] = {Eq: have == part.value}
    if not isinstance(part, Eq):
        compared = {
            Lt: have < part.value,
            Le: have <= part.value,
            Gt: have > part.value,
            Ge: have >= part.value,
        }
    return bool(compared[type(part)])


def _comparison(field: str) -> st.SearchStrategy[Condition]:
    value = st.sampled_from(_VALUES[field])
    equal: list[st.SearchStrategy[Condition]] = [
        st.builds(Eq, st.just(field), value),
        st.builds(In, st.just(field), st.lists(value, max_size=3).map(tuple)),
    ]
    if field not in ("owing", "pinned", "seal"):
        equal += [st.builds(kind, st.just(field), value) for kind in (Lt, Le, Gt, Ge)]
    if field in ("type", "source", "tier"):
        equal.append(st.builds(StartsWith, st.just(field), value.map(lambda text: str(text)[:1])))
    return st.one_of(*equal, st.builds(IsNull, st.just(field)))


_LEAVES = st.one_of(
    st.sampled_from(sorted(_VALUES)).flatmap(_comparison),
    st.builds(Has, st.just("tags"), st.sampled_from([*TEXTS, "red"])),
)
_FILTERS = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.builds(And, st.lists(inner, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, max_size=3).map(tuple)),
        st.builds(Not, inner),
    ),
    max_leaves=8,
)


@cache
def _random_filters(examples: int) -> tuple[Condition, ...]:
    """Return the same filters each time, drawn once for all stores.

    The smallest come first, so that the first failure is small.
    """
    drawn: list[Condition] = []

    @settings(
        max_examples=examples,
        phases=(Phase.generate,),
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(part=_FILTERS)
    def draw(part: Condition) -> None:
        drawn.append(part)

    draw()
    return tuple(sorted(dict.fromkeys(drawn), key=lambda part: len(repr(part))))


@clause("filter.holds")
@needs("filter")
@pytest.mark.asyncio
async def test_any_filter_finds_what_an_independent_evaluator_finds(harness: Harness, store: Store) -> None:
    await _fill(store)
    parted = [
        p
        for p in _random_filters(harness.depth.examples)
        if set(await query_ids(store, part=p)) != {r.key.id for r in RECORDS if _holds(p, r)}
    ]
    assert parted == []


@clause("filter.zones")
@needs("filter")
@pytest.mark.asyncio
async def test_a_moment_of_another_zone_asks_for_the_same_moment(store: Store) -> None:
    """Every kind of question agrees, on declared and on system fields."""
    minutes = [T0 + timedelta(minutes=n) for n in range(5)]
    await apply_all(
        store,
        *[
            put(
                record(
                    n,
                    fields={"valid_from": at},
                    created_at=at,
                    expires_at=at,
                    texts={"content": "lantern"},
                    vector=pack_vector([1.0]),
                )
            )
            for n, at in enumerate(minutes)
        ],
    )
    for hours in (2, -3.5, 14):
        at = minutes[2].astimezone(timezone(timedelta(hours=hours)))
        for field in ("valid_from", "created_at", "expires_at"):
            cases: dict[Condition, list[int]] = {
                Eq(field, at): [2],
                In(field, (at, minutes[4])): [2, 4],
                Lt(field, at): [0, 1],
                Le(field, at): [0, 1, 2],
                Gt(field, at): [3, 4],
                And((Ge(field, at), Not(Eq(field, at)))): [3, 4],
            }
            for part, expected in cases.items():
                wanted = [id_of(n) for n in expected]
                assert await query_ids(store, part=part) == wanted, part
                assert (await store.count(Query(SAMPLES, within(HERE), part))).records == len(wanted), part
                for by in ways(store, "lantern", 1.0):
                    assert [
                        h.head.key.id for h in await store.search(Search(SAMPLES, within(HERE), by, 9, part))
                    ] == wanted, part
    there = minutes[2].astimezone(timezone(timedelta(hours=2)))
    assert await store.delete_matching(Query(SAMPLES, within(HERE), Le("valid_from", there)), 50) == 3
    assert await query_ids(store) == [id_of(n) for n in (3, 4)]
