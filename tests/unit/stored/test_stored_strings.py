"""Stored strings are frozen: a store of an earlier version has them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tools import stored_strings

CHANGED = """these are stored, and stores of earlier versions have them. Change them only together with memory.ports.formats.FORMAT and an
Upgrade that renames them there. Where something new is stored beside them, write the file anew: python -m tools.stored_strings"""


def _differences(frozen: Any, now: Any, path: str = "") -> Iterator[str]:
    if isinstance(frozen, dict) and isinstance(now, dict):
        for name in sorted({*frozen, *now}):
            yield from _differences(frozen.get(name), now.get(name), f"{path}/{name}")
    elif isinstance(frozen, list) and isinstance(now, list):
        gone, new = [one for one in frozen if one not in now], [one for one in now if one not in frozen]
        if gone or new or frozen != now:
            yield f"{path}: gone {gone}, new {new}" if gone or new else f"{path}: another order"
    elif frozen != now:
        yield f"{path}: {frozen!r} is now {now!r}"


def test_stored_strings_are_as_they_were() -> None:
    differences = list(_differences(json.loads(stored_strings.GOLDEN.read_text()), stored_strings.strings()))
    assert not differences, f"{CHANGED}\n" + "\n".join(differences)
