"""Parse JSON of callers, and compare JSON values."""

from __future__ import annotations

import json
from typing import Any

from memory.domain.errors import PicklableException


class RepeatedKey(PicklableException, ValueError):
    """Raised if an object of a JSON text has a key more than once."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the key {key[:80]!r} occurs more than once in one object")
        self.key = key


def distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these pairs: the `object_pairs_hook` of a parser.

    Python itself keeps the last value of a repeated key and drops the others.

    Raises:
        RepeatedKey: A key occurs more than once.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise RepeatedKey(next(name for name in found if names.count(name) > 1))
    return found


def is_same_json(one: Any, other: Any) -> bool:
    """Return whether a reader could not tell two JSON values apart.

    The order of keys does not matter. The type does: 1, 1.0 and True are three values,
    although filters find 1.0 where 1 is asked for.
    """
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
