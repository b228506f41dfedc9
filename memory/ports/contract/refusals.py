"""What every store refuses alike: one table. Each row is a record, or a write, that no store keeps, and the name its refusal must tell.

`memory.ports.checking` says the same in code, for adapters that stand on `BaseStore`; a store of other make is held to the table all the same.
`LAWFUL` is the other half: what lies just inside and is kept exactly.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone
from typing import Any

from memory.ports.contract.support import T0
from memory.ports.record import MAX_DEPTH, MAX_GENERATION, Owed, pack_vector

NAIVE = datetime(2024, 1, 1)
EARLY = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))
LATE = datetime(9999, 12, 31, 23, 59, tzinfo=timezone(timedelta(hours=-14)))
"""Within the years 1 to 9999 where they are told, outside in UTC."""
HALF = "half \ud83d of a character"
SECRET = "cormorant"  # noqa: S105
"""Stands beside what is wrong; no refusal may tell it."""


def deep(levels: int) -> Any:
    """A value nested so deep."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def _everywhere(value: Any) -> dict[str, tuple[dict[str, Any], str]]:
    """The same value in every place for JSON, at different depths."""
    return {
        "a body": ({"body": {"said": SECRET, "x": value}}, "body"),
        "a list of a body": ({"body": {"said": SECRET, "x": [1, value]}}, "body"),
        "the depth of a body": ({"body": {"said": SECRET, "x": {"y": [{"z": value}]}}}, "body"),
        "a step": ({"owed": (Owed("fine"), Owed("k", {"x": value}))}, "owed"),
        "the depth of a step": ({"owed": (Owed("k", {"x": [{"y": value}]}),)}, "owed"),
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
    **{f"{what} in {place}": row for what, value in _NO_JSON.items() for place, row in _everywhere(value).items()},
    "a body too deep": ({"body": {"x": deep(MAX_DEPTH)}}, "body"),
    "a step too deep": ({"owed": (Owed("k", {"x": deep(MAX_DEPTH)}),)}, "owed"),
    "a body of great depth": ({"body": {"x": deep(5_000)}}, "body"),
    "a body that is a list": ({"body": [1]}, "body"),
    "a body with a key of bytes": ({"body": {b"k": 1}}, "body"),
    "a step that is none": ({"owed": ("deliver",)}, "owed"),
    "steps in a list": ({"owed": [Owed("k")]}, "owed"),
    "a step with half a character for its kind": ({"owed": (Owed(HALF),)}, "owed"),
    "a step without text for its kind": ({"owed": (Owed(5),)}, "owed"),  # type: ignore[arg-type]
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
    **{f"a naive moment for {name}": ({name: NAIVE}, name) for name in ("created_at", "updated_at", "expires_at", "accessed_at", "cached_at")},
    **{f"a moment before the years for {name}": ({name: EARLY}, name) for name in ("created_at", "updated_at", "expires_at", "accessed_at")},
    **{f"a moment after the years for {name}": ({name: LATE}, name) for name in ("created_at", "updated_at", "expires_at", "cached_at")},
    **{f"a number for {name}": ({name: 5}, name) for name in ("created_at", "updated_at", "expires_at", "accessed_at", "cached_at")},
    **{f"2**63 for {name}": ({name: 2**63}, name) for name in ("version", "accesses", "previous", "generation")},
    **{f"a text for {name}": ({name: "1"}, name) for name in ("version", "accesses", "previous", "generation")},
    **{f"a real number for {name}": ({name: 1.0}, name) for name in ("version", "accesses", "previous", "generation")},
    **{f"a boolean for {name}": ({name: True}, name) for name in ("version", "accesses", "previous", "generation")},
    **{f"less than nothing for {name}": ({name: -1}, name) for name in ("version", "accesses", "previous", "generation")},
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
"""Of records, in every write that brings one: what its parts are, and the name that the refusal must tell."""

GIVEN: dict[str, tuple[dict[str, Any], str]] = {
    **{f"{what} in a step": ({"owed": (Owed("k", {"x": value}),)}, "owed") for what, value in _NO_JSON.items()},
    "a naive end": ({"discard_at": NAIVE}, "discard_at"),
    "an end before the years": ({"discard_at": EARLY}, "discard_at"),
    "an end after the years": ({"discard_at": LATE}, "discard_at"),
    "an end that is a number": ({"discard_at": 5}, "discard_at"),
}
"""Of deletions and releases."""

NOTED: dict[str, tuple[dict[str, Any], str]] = {
    **{f"{what} in a note": ({"note": {"x": [value]}}, "note") for what, value in _NO_JSON.items()},
    "a note too deep": ({"note": {"x": deep(MAX_DEPTH)}}, "note"),
    "a note that is a list": ({"note": [1]}, "note"),
    "2**63 for version": ({"version": 2**63}, "version"),
    "nought for version": ({"version": 0}, "version"),
}
"""Of deletions alone."""

EAST, WEST = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))
NUL = "be\x00fore \x00"
LAWFUL: dict[str, dict[str, Any]] = {
    "NUL in a body": {"body": {NUL: NUL, "deep": [{NUL: [NUL]}]}},
    "NUL in texts": {"texts": {"content": NUL, "title": "\x00"}},
    "NUL in a field": {"fields": {"type": NUL, "source": "\x00"}},
    "NUL in tags": {"fields": {"tags": (NUL, "\x00", "be")}},
    "NUL in bookkeeping": {"tier": NUL, "epoch": NUL, "owed": (Owed(NUL, {NUL: NUL}),)},
    "escapes of NUL": {"body": {"x": "\x01\x01 \\u0000 \\x00 \x01\x02"}, "fields": {"type": "\x01\x01", "tags": ("\x01\x02",)}},
    "the deepest body": {"body": {"x": deep(MAX_DEPTH - 1)}},
    "the deepest step": {"owed": (Owed("k", {"x": deep(MAX_DEPTH - 1)}),)},
    "the ends of 64 bits": {"body": {"x": [2**63 - 1, -(2**63)]}, "owed": (Owed("k", {"x": -(2**63)}),), "version": 2**62, "accesses": 2**62},
    "the largest generation": {"generation": MAX_GENERATION},
    "integers that are doubles": {"fields": {"confidence": 2**53 + 2}},
    "moments of other zones at the ends of the years": {
        "created_at": datetime(1, 1, 1, 14, tzinfo=EAST),
        "expires_at": datetime(9999, 12, 31, 11, 59, 59, 999_999, tzinfo=WEST),
        "fields": {"valid_from": datetime(1, 1, 1, 14, tzinfo=EAST), "valid_to": datetime(9999, 12, 31, 11, 59, 59, 999_999, tzinfo=WEST)},
    },
    "numbers that print alike": {"body": {"x": [1, 1.0, True, "1", 1e16, 10**16, -0.0, 0, 0.0, False, None, "null"]}},
    "the ends of a vector's numbers": {"vector": pack_vector([-0.0, 1e-45, -3.4e38, 3.4e38])},
    "characters beyond the basic plane": {"body": {"\U0001f600": "\U0010ffff"}, "fields": {"type": "\U0010ffff", "tags": ("\U0001f600",)}},
}
"""Parts of records that every store keeps exactly."""
