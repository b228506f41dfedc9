"""What a field may be compared with, whatever the engine beneath would make of it: the
types of system fields, and which values are of a type.
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
    """Whether the value is of the field's type, numbers aside: these compare with each
    other, whatever type the field has.
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
    """A number to compare with. One that 64 bits cannot hold compares like the nearest
    real number does.
    """
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return float("inf") if value > 0 else float("-inf")
    return int(value) if isinstance(value, bool) else value
