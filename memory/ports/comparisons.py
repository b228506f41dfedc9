"""The values that a field may be compared with, on every engine.

This module has the types of system fields, and checks whether a value has a type.
"""

from __future__ import annotations

from datetime import datetime

from memory.ports.collections import FieldType
from memory.ports.record import FieldValue

SYSTEM_TYPES: dict[str, FieldType] = {
    **dict.fromkeys(("id", "scope", "role", "tier"), FieldType.TEXT),
    **dict.fromkeys(("version", "generation", "accesses"), FieldType.INTEGER),
    **dict.fromkeys(("created_at", "updated_at", "expires_at", "discard_at", "accessed_at"), FieldType.TIME),
    "owing": FieldType.BOOLEAN,
}


def suits(kind: FieldType, value: FieldValue) -> bool:
    """Return whether the value has the field's type.

    Any number suits any numeric field, because numbers compare with each other.
    """
    match kind:
        case FieldType.TEXT:
            return isinstance(value, str)
        case FieldType.TIME:
            return isinstance(value, datetime) and value.utcoffset() is not None
        case FieldType.TAGS:
            return isinstance(value, tuple) and all(isinstance(tag, str) for tag in value)
        case FieldType.BYTES:
            return isinstance(value, bytes)
        case _:
            return False


def comparable(value: float) -> float:
    """Return the number to compare with.

    A number that does not fit into 64 bits compares like the nearest real number.
    """
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return float("inf") if value > 0 else float("-inf")
    return int(value) if isinstance(value, bool) else value
