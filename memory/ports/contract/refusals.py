"""The table of refusals that are the same for every store.

Each row is a record or write that no store accepts, and the name that its refusal must
contain. `memory.ports.record_validation` implements the table for adapters that
subclass `BaseStore`. Other stores must follow it too. `LAWFUL` has the values just
inside the limits, which are kept exactly. `QUESTIONS` are filters that no store
accepts, each with three neighbours that every store answers.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone
from typing import Any

from memory.ports.contract.support import ELSEWHERE, FOREIGN, HERE, T0, id_of
from memory.ports.query import (
    MAX_FILTER_DEPTH,
    MAX_FILTER_PARTS,
    MAX_FILTER_VALUES,
    And,
    Condition,
    Eq,
    Ge,
    Gt,
    Has,
    In,
    IsNull,
    Le,
    Lt,
    Not,
    Or,
    StartsWith,
)
from memory.ports.record import MAX_DEPTH, MAX_GENERATION, Partition, PendingStep, pack_vector

NAIVE = datetime(2024, 1, 1)
EARLY = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))
LATE = datetime(9999, 12, 31, 23, 59, tzinfo=timezone(timedelta(hours=-14)))
"""Within the years 1 to 9999 in their own zone, outside in UTC."""
HALF = "half \ud83d of a character"
SECRET = "cormorant"  # noqa: S105
"""Text beside the invalid value; no refusal may show it."""


def deep(levels: int) -> Any:
    """Return a value nested this deep."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def _everywhere(value: Any) -> dict[str, tuple[dict[str, Any], str]]:
    """Return the same value in every place for JSON, at different depths."""
    return {
        "a body": ({"body": {"said": SECRET, "x": value}}, "body"),
        "a list of a body": ({"body": {"said": SECRET, "x": [1, value]}}, "body"),
        "the depth of a body": ({"body": {"said": SECRET, "x": {"y": [{"z": value}]}}}, "body"),
        "a step": ({"owed": (PendingStep("fine", "fine"), PendingStep("k", "k", {"x": value}))}, "owed"),
        "the depth of a step": ({"owed": (PendingStep("k", "k", {"x": [{"y": value}]}),)}, "owed"),
    }


_NO_JSON: dict[str, Any] = {
    "half a character": HALF,
    "2**63": 2**63,
    "-2**63 - 1": -(2**63) - 1,
    "NaN": math.nan,
    "infinity": math.inf,
    "bytes": b"x",
    "a moment": T0,
    "a tuple": (1, 2),
    "a set": {1},
    "an object": object(),
    "a key that is a number": {1: 2},
    "a key that is nothing": {None: 2},
    "a key with half a character": {HALF: 1},
}

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    **{
        f"{what} in {place}": row
        for what, value in _NO_JSON.items()
        for place, row in _everywhere(value).items()
    },
    "a body too deep": ({"body": {"x": deep(MAX_DEPTH)}}, "body"),
    "a step too deep": ({"owed": (PendingStep("k", "k", {"x": deep(MAX_DEPTH)}),)}, "owed"),
    "a body of great depth": ({"body": {"x": deep(5_000)}}, "body"),
    "a body that is a list": ({"body": [1]}, "body"),
    "a body with a key of bytes": ({"body": {b"k": 1}}, "body"),
    "a step that is none": ({"owed": ("deliver",)}, "owed"),
    "steps in a list": ({"owed": [PendingStep("k", "k")]}, "owed"),
    "a step with half a character for its id": ({"owed": (PendingStep(HALF, "k"),)}, "owed"),
    "a step with half a character for its name": ({"owed": (PendingStep("k", HALF),)}, "owed"),
    "a step without text for its id": ({"owed": (PendingStep(5, "k"),)}, "owed"),  # type: ignore[arg-type]
    "two steps of one id": (
        {"owed": (PendingStep("k", "a"), PendingStep("l", "a"), PendingStep("k", "b"))},
        "owed",
    ),
    "a step without text for its name": ({"owed": (PendingStep("k", 5),)}, "owed"),  # type: ignore[arg-type]
    # fields
    "an undeclared field": ({"fields": {"colour": "red"}}, "colour"),
    "an undeclared field without a value": ({"fields": {"colour": None}}, "colour"),
    "a number for a text": ({"fields": {"type": 5}}, "type"),
    "bytes for a text": ({"fields": {"type": b"fact"}}, "type"),
    "a boolean for a number": ({"fields": {"confidence": True}}, "confidence"),
    "a text for a number": ({"fields": {"confidence": "0.5"}}, "confidence"),
    "a text for a moment": ({"fields": {"valid_from": "2024-01-01"}}, "valid_from"),
    "a number for a moment": ({"fields": {"valid_from": 5}}, "valid_from"),
    "tags that are no tuple": ({"fields": {"tags": ["a"]}}, "tags"),
    "tags that are one text": ({"fields": {"tags": "a"}}, "tags"),
    "a tag that is no text": ({"fields": {"tags": ("a", 1)}}, "tags"),
    "a field with half a character": ({"fields": {"type": HALF}}, "type"),
    "a tag with half a character": ({"fields": {"tags": ("a", HALF)}}, "tags"),
    "NaN in a field": ({"fields": {"confidence": math.nan}}, "confidence"),
    "infinity in a field": ({"fields": {"confidence": -math.inf}}, "confidence"),
    "an integer that is no double": ({"fields": {"confidence": 2**53 + 1}}, "confidence"),
    "an integer beyond all doubles": ({"fields": {"confidence": 10**400}}, "confidence"),
    "a naive moment in a field": ({"fields": {"valid_from": NAIVE}}, "valid_from"),
    "a moment before the years": ({"fields": {"valid_from": EARLY}}, "valid_from"),
    "a moment after the years": ({"fields": {"valid_to": LATE}}, "valid_to"),
    # texts and vectors
    "an undeclared text part": ({"texts": {"footnote": "x"}}, "footnote"),
    "a text part that is no text": ({"texts": {"content": 5}}, "content"),
    "a text part of bytes": ({"texts": {"content": b"x"}}, "content"),
    "a text part with half a character": ({"texts": {"title": "fine", "content": HALF}}, "content"),
    "a vector of no numbers": ({"vector": b""}, "vector"),
    "a vector of torn numbers": ({"vector": b"\x00\x00\x80"}, "vector"),
    "a vector with NaN": ({"vector": pack_vector([1.0, math.nan])}, "vector"),
    "a vector with infinity": ({"vector": pack_vector([-math.inf, 1.0])}, "vector"),
    "a vector of zeros": ({"vector": pack_vector([0.0, -0.0])}, "vector"),
    "a vector that is a list": ({"vector": [1.0]}, "vector"),
    "a vector that may change": ({"vector": bytearray(pack_vector([1.0]))}, "vector"),
    # what every record has
    **{
        f"a naive moment for {name}": ({name: NAIVE}, name)
        for name in ("created_at", "updated_at", "expires_at", "accessed_at", "cached_at")
    },
    **{
        f"a moment before the years for {name}": ({name: EARLY}, name)
        for name in ("created_at", "updated_at", "expires_at", "accessed_at")
    },
    **{
        f"a moment after the years for {name}": ({name: LATE}, name)
        for name in ("created_at", "updated_at", "expires_at", "cached_at")
    },
    **{
        f"a number for {name}": ({name: 5}, name)
        for name in ("created_at", "updated_at", "expires_at", "accessed_at", "cached_at")
    },
    **{
        f"2**63 for {name}": ({name: 2**63}, name)
        for name in ("version", "accesses", "previous", "generation")
    },
    **{
        f"a text for {name}": ({name: "1"}, name)
        for name in ("version", "accesses", "previous", "generation")
    },
    **{
        f"a real number for {name}": ({name: 1.0}, name)
        for name in ("version", "accesses", "previous", "generation")
    },
    **{
        f"a boolean for {name}": ({name: True}, name)
        for name in ("version", "accesses", "previous", "generation")
    },
    **{
        f"less than nothing for {name}": ({name: -1}, name)
        for name in ("version", "accesses", "previous", "generation")
    },
    "nothing for version": ({"version": None}, "version"),
    "nought for version": ({"version": 0}, "version"),
    "nothing for created_at": ({"created_at": None}, "created_at"),
    "a generation beyond counting": ({"generation": MAX_GENERATION + 1}, "generation"),
    "nothing for tier": ({"tier": None}, "tier"),
    "half a character in tier": ({"tier": HALF}, "tier"),
    "half a character in epoch": ({"epoch": HALF}, "epoch"),
    "a number for epoch": ({"epoch": 5}, "epoch"),
    "a text for role": ({"role": "home"}, "role"),
}
"""Invalid parts of records, in every write with a record.

Each has the parts and the name that the refusal must contain.
"""

_MINE = id_of(1)
IDS: dict[str, Any] = {
    "no id": "",
    "a name for an id": "meeting notes",
    "half a character for an id": HALF,
    "a number for an id": 1,
    "nothing for an id": None,
    "an id in capitals": _MINE.upper(),
    "an id without dashes": _MINE.replace("-", ""),
    "an id in braces": f"{{{_MINE}}}",
    "an id with a space behind it": f"{_MINE} ",
    "an id with a line's end behind it": f"{_MINE}\n",
    "an id with NUL behind it": f"{_MINE}\x00",
    "an id cut short": _MINE[:-1],
    "an id with digits of another script": _MINE.replace("0", "\u0660"),
    "an id of another version": f"{_MINE[:14]}4{_MINE[15:]}",
    "an id of another variant": f"{_MINE[:19]}c{_MINE[20:]}",
    "the id of nothing": "00000000-0000-0000-0000-000000000000",
}
"""Ids that this library makes for no partition, in every write and question."""

FOREIGN_IDS: dict[str, str] = {
    "an id of another scope": id_of(1, ELSEWHERE),
    "an id of another tenant": id_of(1, FOREIGN),
    "an id of a scope within": id_of(1, Partition(HERE.tenant, f"{HERE.scope}/more")),
    "an id of tenant and scope cut elsewhere": id_of(
        1, Partition(HERE.tenant + HERE.scope[:1], HERE.scope[1:])
    ),
    "an id with a bit of its partition turned": f"{_MINE[:24]}{int(_MINE[24:], 16) ^ 1 << 30:012x}",
}
"""Invalid ids for records of `HERE`.

In other writes they are valid ids: a key does not show its scope.
"""

GIVEN: dict[str, tuple[dict[str, Any], str]] = {
    **{
        f"{what} in a step": ({"owed": (PendingStep("k", "k", {"x": value}),)}, "owed")
        for what, value in _NO_JSON.items()
    },
    "a naive end": ({"discard_at": NAIVE}, "discard_at"),
    "an end before the years": ({"discard_at": EARLY}, "discard_at"),
    "an end after the years": ({"discard_at": LATE}, "discard_at"),
    "an end that is a number": ({"discard_at": 5}, "discard_at"),
}
"""Invalid parts of deletions and releases."""

NOTED: dict[str, tuple[dict[str, Any], str]] = {
    **{f"{what} in a note": ({"note": {"x": [value]}}, "note") for what, value in _NO_JSON.items()},
    "a note too deep": ({"note": {"x": deep(MAX_DEPTH)}}, "note"),
    "a note that is a list": ({"note": [1]}, "note"),
    "2**63 for version": ({"version": 2**63}, "version"),
    "nought for version": ({"version": 0}, "version"),
}
"""Invalid parts of deletions alone."""

EAST, WEST = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))
NUL = "be\x00fore \x00"
LAWFUL: dict[str, dict[str, Any]] = {
    "NUL in a body": {"body": {NUL: NUL, "deep": [{NUL: [NUL]}]}},
    "NUL in texts": {"texts": {"content": NUL, "title": "\x00"}},
    "NUL in a field": {"fields": {"type": NUL, "source": "\x00"}},
    "NUL in tags": {"fields": {"tags": (NUL, "\x00", "be")}},
    "NUL in bookkeeping": {"tier": NUL, "epoch": NUL, "owed": (PendingStep(NUL, NUL, {NUL: NUL}),)},
    "escapes of NUL": {
        "body": {"x": "\x01\x01 \\u0000 \\x00 \x01\x02"},
        "fields": {"type": "\x01\x01", "tags": ("\x01\x02",)},
    },
    "the deepest body": {"body": {"x": deep(MAX_DEPTH - 1)}},
    "the deepest step": {"owed": (PendingStep("k", "k", {"x": deep(MAX_DEPTH - 1)}),)},
    "the ends of 64 bits": {
        "body": {"x": [2**63 - 1, -(2**63)]},
        "owed": (PendingStep("k", "k", {"x": -(2**63)}),),
        "version": 2**62,
        "accesses": 2**62,
    },
    "the largest generation": {"generation": MAX_GENERATION},
    "integers that are doubles": {"fields": {"confidence": 2**53 + 2}},
    "moments of other zones at the ends of the years": {
        "created_at": datetime(1, 1, 1, 14, tzinfo=EAST),
        "expires_at": datetime(9999, 12, 31, 11, 59, 59, 999_999, tzinfo=WEST),
        "fields": {
            "valid_from": datetime(1, 1, 1, 14, tzinfo=EAST),
            "valid_to": datetime(9999, 12, 31, 11, 59, 59, 999_999, tzinfo=WEST),
        },
    },
    "numbers that print alike": {
        "body": {"x": [1, 1.0, True, "1", 1e16, 10**16, -0.0, 0, 0.0, False, None, "null"]}
    },
    "the ends of a vector's numbers": {"vector": pack_vector([-0.0, 1e-45, -3.4e38, 3.4e38])},
    "characters beyond the basic plane": {
        "body": {"\U0001f600": "\U0010ffff"},
        "fields": {"type": "\U0010ffff", "tags": ("\U0001f600",)},
    },
}
"""Parts of records that every store keeps exactly."""


# -- questions -------------------------------------------------------------------------


def nested_filter(levels: int, *, by_not: bool = False) -> Condition:
    """Return a filter with these levels, of `Not` or of `And` and `Or` in turn."""
    part: Condition = Eq("type", "a")
    for level in range(levels - 1):
        part = Not(part) if by_not else (Or, And)[level % 2]((part,))
    return part


def _wide(parts: int) -> tuple[Condition, ...]:
    return tuple(Eq("type", f"none {n}") for n in range(parts))


_NAMES = tuple(f"none {n}" for n in range(MAX_FILTER_VALUES))
_DEEPEST = (
    nested_filter(MAX_FILTER_DEPTH),
    nested_filter(MAX_FILTER_DEPTH, by_not=True),
    nested_filter(MAX_FILTER_DEPTH - 1, by_not=True),
)
_WIDEST = (
    Or((*_wide(MAX_FILTER_PARTS - 2), Eq("type", "a"))),
    And(tuple(Not(part) for part in _wide(MAX_FILTER_PARTS // 2 - 1))),
    Not(Or((*_wide(MAX_FILTER_PARTS - 3), StartsWith("type", "a")))),
)
LONGEST = (
    In("type", (*_NAMES[:-1], "a")),
    Not(
        In("version", tuple(range(2, 40_002)))
    ),  # more than an engine takes parameters, and not as many as the others: it takes long
    Or(
        (
            In("type", (*_NAMES[: MAX_FILTER_VALUES // 2], None)),
            In("tier", _NAMES[MAX_FILTER_VALUES // 2 + 1 :]),
        )
    ),
)
"""Filters of as many values as there may be. A store takes a second for one."""
_TEXT = (Eq("type", NUL), In("type", ("a", None)), Ge("type", "\U0010ffff"))
_REAL = (Eq("confidence", 1), Gt("confidence", -1.7e308), In("confidence", (2**53, -0.0, None)))
_INTEGER = (Lt("version", 2**63 - 1), Eq("accesses", 0), In("generation", (-(2**63), 1)))
_MOMENT = (
    Gt("valid_from", datetime(1, 1, 1, 14, tzinfo=EAST)),
    Le("created_at", datetime(9999, 12, 31, 11, 59, 59, 999_999, tzinfo=WEST)),
    Lt("expires_at", None),
)
_TAGS = (Has("tags", ""), Eq("tags", ("a", NUL)), In("tags", ((), None)))
_PREFIX = (StartsWith("type", ""), StartsWith("type", "\ud7ff\ue000"), StartsWith("tier", "\U0010ffff"))
_IDS = (Eq("id", _MINE), In("id", (id_of(1, FOREIGN), _MINE, None)), Not(In("id", (id_of(2), id_of(99)))))
_ORDERS: tuple[type, ...] = (Lt, Le, Gt, Ge)
_COMPARED: tuple[type, ...] = (Eq, *_ORDERS)

Neighbours = tuple[Condition, Condition, Condition]
QUESTIONS: dict[str, tuple[Any, str, Neighbours]] = {
    # bounds
    "a level too many": (nested_filter(MAX_FILTER_DEPTH + 1), "filter", _DEEPEST),
    "a negation too many": (nested_filter(MAX_FILTER_DEPTH + 1, by_not=True), "filter", _DEEPEST),
    "great depth": (nested_filter(100_000), "filter", _DEEPEST),
    "great depth of negations": (nested_filter(100_000, by_not=True), "filter", _DEEPEST),
    "a part too many": (Or(_wide(MAX_FILTER_PARTS)), "filter", _WIDEST),
    "a part too many in portions": (
        And((Or(_wide(MAX_FILTER_PARTS // 2)), Not(Or(_wide(MAX_FILTER_PARTS // 2))))),
        "filter",
        _WIDEST,
    ),
    "a value too many": (In("type", (*_NAMES, "a")), "filter", LONGEST),
    "a value too many in portions": (Or((In("type", _NAMES), Eq("type", "a"))), "filter", LONGEST),
    # fields
    "an unknown field": (Eq("colour", 1), "colour", _TEXT),
    "an unknown field deep inside": (And((Not(Or((IsNull("colour"),))),)), "colour", _DEEPEST),
    "a field that is SQL": (Eq("type; --", "x"), "type; --", _TEXT),
    "a prefix of an unknown field": (StartsWith("colour", "r"), "colour", _PREFIX),
    "a tag of a text": (Has("type", "a"), "type", _TAGS),
    "no filter": ("type", "filter", _TEXT),
    "no part of a filter": (And(("type",)), "filter", _TEXT),  # type: ignore[arg-type]
    # values
    **{f"{kind.__name__} of a number and a text": (kind("type", 5), "type", _TEXT) for kind in _COMPARED},
    **{f"{kind.__name__} of bytes and a text": (kind("type", b"a"), "type", _TEXT) for kind in _COMPARED},
    **{f"{kind.__name__} of half a character": (kind("type", HALF), "type", _TEXT) for kind in _COMPARED},
    **{
        f"{kind.__name__} of a boolean and a real": (kind("confidence", True), "confidence", _REAL)
        for kind in _COMPARED
    },
    **{f"{kind.__name__} of NaN": (kind("confidence", math.nan), "confidence", _REAL) for kind in _COMPARED},
    **{
        f"{kind.__name__} of infinity": (kind("confidence", -math.inf), "confidence", _REAL)
        for kind in _COMPARED
    },
    **{
        f"{kind.__name__} of an integer that is no double": (
            kind("confidence", 2**53 + 1),
            "confidence",
            _REAL,
        )
        for kind in _COMPARED
    },
    **{
        f"{kind.__name__} of an integer beyond all doubles": (
            kind("confidence", 10**400),
            "confidence",
            _REAL,
        )
        for kind in _COMPARED
    },
    **{f"{kind.__name__} of 2**63": (kind("version", 2**63), "version", _INTEGER) for kind in _COMPARED},
    **{
        f"{kind.__name__} of less than 64 bits": (kind("accesses", -(2**63) - 1), "accesses", _INTEGER)
        for kind in _COMPARED
    },
    **{
        f"{kind.__name__} of a real and an integer": (kind("generation", 1.0), "generation", _INTEGER)
        for kind in _COMPARED
    },
    **{
        f"{kind.__name__} of a naive moment": (kind("valid_from", NAIVE), "valid_from", _MOMENT)
        for kind in _COMPARED
    },
    **{
        f"{kind.__name__} of a moment before the years": (kind("created_at", EARLY), "created_at", _MOMENT)
        for kind in _COMPARED
    },
    **{
        f"{kind.__name__} of a moment after the years": (kind("expires_at", LATE), "expires_at", _MOMENT)
        for kind in _COMPARED
    },
    **{
        f"{kind.__name__} of a text and a moment": (kind("updated_at", "2024-01-01"), "updated_at", _MOMENT)
        for kind in _COMPARED
    },
    **{f"{kind.__name__} of tags": (kind("tags", ("a",)), "tags", _TAGS) for kind in _ORDERS},
    "tags in a list": (Eq("tags", ["a"]), "tags", _TAGS),  # type: ignore[arg-type]
    "a tag that is no text": (Has("tags", 5), "tags", _TAGS),  # type: ignore[arg-type]
    "half a character in a tag": (Has("tags", HALF), "tags", _TAGS),
    "half a character in tags": (Eq("tags", ("a", HALF)), "tags", _TAGS),
    "a number for a truth": (
        Eq("owing", 1),
        "owing",
        (Eq("owing", True), In("owing", (False, None)), IsNull("owing")),
    ),
    "one bad value of many": (In("type", ("a", "b", 5)), "type", _TEXT),
    "half a character among many": (In("type", ("a", HALF)), "type", _TEXT),
    "one naive moment of many": (In("valid_from", (T0, NAIVE)), "valid_from", _MOMENT),
    "values in a list": (In("type", ["a"]), "type", _TEXT),  # type: ignore[arg-type]
    "a text for values": (In("type", "a"), "type", _TEXT),  # type: ignore[arg-type]
    # ids
    **{f"Eq of {what}": (Eq("id", value), "id", _IDS) for what, value in IDS.items() if value is not None},
    **{
        f"{what} among many": (Not(In("id", (_MINE, value))), "id", _IDS)
        for what, value in IDS.items()
        if value is not None
    },
    **{f"{kind.__name__} of an id": (kind("id", _MINE), "id", _IDS) for kind in _ORDERS},
    # prefixes
    "a prefix of an id": (StartsWith("id", _MINE[:8]), "id", _PREFIX),
    "a prefix of tags": (StartsWith("tags", "a"), "tags", _PREFIX),
    "a prefix of a number": (StartsWith("version", "1"), "version", _PREFIX),
    "a prefix of a moment": (StartsWith("created_at", "2024"), "created_at", _PREFIX),
    "a prefix that is a number": (StartsWith("type", 5), "type", _PREFIX),  # type: ignore[arg-type]
    "a prefix that is nothing": (StartsWith("type", None), "type", _PREFIX),  # type: ignore[arg-type]
    "half a character for a prefix": (StartsWith("type", HALF), "type", _PREFIX),
}
"""Filters that no store accepts, each with its name and three neighbours.

The refusal must contain the name. Every store answers the neighbours.
"""
