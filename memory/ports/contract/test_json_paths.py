"""Filters on values in bodies: each comparison is exact, or left to the caller."""

from __future__ import annotations

from typing import Any

import pytest

from memory.domain.errors import InvalidInput
from memory.ports.contract.capability_tests import needs
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.support import HERE, apply_all, id_of, put, query_ids, record
from memory.ports.query import And, Condition, Eq, JsonPath, Not, Or, Query, within
from memory.ports.store import Store

VALUES: list[Any] = [
    *[0, 1, 1.0, -1, 1.5, 2.5e-9, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 1e300],
    *[
        "",
        "a",
        "A",
        "b",
        "10",
        "9",
        "á",
        "\uffff",
        "\U0001f600",
        'it\'s "quoted"',
        "back\\slash",
        "%",
        "\x01",
    ],
    *[True, False, None],
    *[[], [1], ["a"], {}, {"k": 1}, {"k": {"k": "a"}}],
]
BODIES: list[dict[str, Any]] = [
    {},
    {"other": 1},
    {"m": None},
    {"m": 1},
    {"m": []},
    *({"m": {"v": v}} for v in VALUES),
]
FIRST = len(BODIES) - len(VALUES)
"""The number of the record with the first value."""
NUMBERED = list(range(len(BODIES)))


def having(*wanted: Any) -> list[int]:
    """The records with one of these values, each of its own type."""
    return [
        FIRST + n
        for n, value in enumerate(VALUES)
        if any(type(value) is type(one) and value == one for one in wanted)
    ]


def path(operator: Any, value: Any = None, *parts: str) -> JsonPath:
    return JsonPath(parts or ("m", "v"), operator, value)


ONES = having(1, 1.0)
JSON_CASES: dict[str, tuple[Condition, list[int]]] = {
    "an integer equals the same real number": (path("==", 1), ONES),
    "a real number equals the same integer": (path("==", 1.0), ONES),
    "a real number": (path("==", 1.5), having(1.5)),
    "the largest exact integer": (path("==", 2**53), having(2**53)),
    "an integer beyond": (path("==", 2**53 + 1), having(2**53 + 1)),
    "text": (path("==", "a"), having("a")),
    "empty text": (path("==", ""), having("")),
    "digits are text": (path("==", "10"), having("10")),
    "quotes": (path("==", 'it\'s "quoted"'), having('it\'s "quoted"')),
    "a backslash": (path("==", "back\\slash"), having("back\\slash")),
    "a control character": (path("==", "\x01"), having("\x01")),
    "true is no number": (path("==", True), having(True)),
    "false is no number": (path("==", False), having(False)),
    "null is a value": (path("==", None), having(None)),
    "unequal, missing or of another type": (Not(path("==", 1)), [n for n in NUMBERED if n not in ONES]),
    "unequal to null": (Not(path("==", None)), [n for n in NUMBERED if n not in having(None)]),
    "numbers below": (path("<", 1), having(0, -1, 2.5e-9, -(2**63))),
    "numbers up to": (path("<=", 1), having(0, -1, 1, 1.0, 2.5e-9, -(2**63))),
    "numbers above": (path(">", 1.5), having(2**53, 2**53 + 1, 2**63 - 1, 1e300)),
    "numbers from": (path(">=", 2**53), having(2**53, 2**53 + 1, 2**63 - 1, 1e300)),
    "not below": (Not(path("<", 1)), [n for n in NUMBERED if n not in having(0, -1, 2.5e-9, -(2**63))]),
    "texts below by code point": (path("<", "A"), having("", "10", "9", "%", "\x01")),
    "texts from a character": (path(">=", "\uffff"), having("\uffff", "\U0001f600")),
    "texts above": (path(">", "b"), having("á", "\uffff", "\U0001f600", 'it\'s "quoted"', "back\\slash")),
    "one of several types": (path("in", (1, "a", True, None)), [*ONES, *having("a", True, None)]),
    "one of none": (path("in", ()), []),
    "not one of several": (
        Not(path("in", (1, "a"))),
        [n for n in NUMBERED if n not in (*ONES, *having("a"))],
    ),
    "a value there": (path("exists"), [*range(FIRST, len(BODIES))]),
    "no value there": (Not(path("exists")), [*range(FIRST)]),
    "inside an object": (path("==", 1, "m", "v", "k"), having({"k": 1})),
    "deeper": (path("==", "a", "m", "v", "k", "k"), having({"k": {"k": "a"}})),
    "lists have no keys": (path("exists", None, "m", "v", "0"), []),
    "at the top": (path("==", 1, "m"), [3]),
    "an unusual key": (path("exists", None, "m", 'it\'s a "key" $.[0]\\'), []),
}


async def _numbers_found_by(store: Store, part: Condition) -> list[int]:
    ids = {id_of(n): n for n in NUMBERED}
    return sorted(ids[one] for one in await query_ids(store, part=part))


@clause("filter.json")
@needs("filter")
@pytest.mark.asyncio
async def test_values_in_bodies_compare_exactly_or_not_at_all(store: Store) -> None:
    await apply_all(
        store, *[put(record(n, body=body, fields={"type": "t"})) for n, body in enumerate(BODIES)]
    )
    wrong: dict[str, object] = {}
    for why, (part, expected) in JSON_CASES.items():
        for name, whole, wanted in (
            (why, part, sorted(expected)),
            (f"{why}, and more", And((Eq("type", "t"), Or((part, Eq("type", "none"))))), sorted(expected)),
            (f"{why}, not", Not(part), [n for n in NUMBERED if n not in expected]),
        ):
            found = await _numbers_found_by(store, whole)
            wrong |= {} if found in (wanted, NUMBERED) else {name: (found, wanted)}
    assert not wrong, "filter: (found, expected)"


ODD_KEYS = [
    "-1",
    "-",
    "--x",
    "+1",
    "1",
    "*",
    "a*",
    "**",
    "$",
    "$gt",
    "[0]",
    "a.b",
    "%",
    "_",
    "to",
    "last",
    "@",
    "#",
    "?",
    " ",
    "é",
]


@clause("filter.json")
@needs("filter")
@pytest.mark.asyncio
async def test_keys_of_every_form_are_found_or_left_to_the_caller(store: Store) -> None:
    """Some dialects of paths read signs in a key, even in quotes."""
    await apply_all(store, *[put(record(n, body={"m": {key: "v"}})) for n, key in enumerate(ODD_KEYS)])
    ids, wrong = {id_of(n): n for n, _ in enumerate(ODD_KEYS)}, dict[str, object]()
    for number, key in enumerate(ODD_KEYS):
        others = [n for n in ids.values() if n != number]
        for part, wanted in (
            (path("==", "v", "m", key), [number]),
            (path("exists", None, "m", key), [number]),
            (Not(path("==", "v", "m", key)), others),
        ):
            found = sorted(ids[one] for one in await query_ids(store, part=part))
            wrong |= {} if found in (wanted, list(ids.values())) else {str(part): (found, wanted)}
    assert not wrong, "filter: (found, expected)"


@clause("filter.json")
@needs("filter")
@pytest.mark.asyncio
async def test_paths_are_refused_where_more_records_would_be_wrong(store: Store) -> None:
    asked = Query(SAMPLES, within(HERE), path("==", 1))
    for refused in (store.count(asked), store.delete_matching(asked, 10)):
        with pytest.raises(InvalidInput, match="JsonPath"):
            await refused
    for wrong in (
        JsonPath((), "exists"),
        path("contains", 1),
        path("==", [1]),
        path("==", float("nan")),
        path("in", [1]),
        path("==", "\x00"),
        path("like", "a"),
    ):
        with pytest.raises(InvalidInput):
            await store.query(Query(SAMPLES, within(HERE), wrong))
