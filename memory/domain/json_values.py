"""When two JSON values are the same: it decides whether an edit changes anything."""

from __future__ import annotations

import json
from typing import Any


def is_same_json(one: Any, other: Any) -> bool:
    """Return whether a reader could not tell two JSON values apart.

    The order of keys does not matter. The type does: 1, 1.0 and True are three values,
    although filters find 1.0 where 1 is asked for.
    """
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
