"""Checks for values that no store accepts, independent of its engine.

These are wrong types, numbers and moments out of range, halves of surrogate pairs, and
values that are not JSON.

Each check returns a problem that names the field and the limit, never the value. An
empty string means that there is none. `BaseStore` checks before it calls an adapter, so
every store refuses the same. `memory.ports.contract.refusals` lists all cases, and the
contract holds every store to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from memory.domain.ids import digest_of, is_id, partition_digest
from memory.ports.collections import ORDERED_BYTES, Collection, FieldType
from memory.ports.record import MAX_DEPTH, MAX_GENERATION, Key, PendingStep, Record, Role
from memory.ports.writes import Annotate, Delete, Put, RaiseGeneration, Release, Write

_TYPES: dict[FieldType, Any] = {
    FieldType.TEXT: (str,),
    FieldType.INTEGER: (int,),
    FieldType.REAL: (float, int),
    FieldType.BOOLEAN: (bool,),
    FieldType.TIME: (datetime,),
    FieldType.TAGS: (tuple,),
    FieldType.BYTES: (bytes,),
}
_MOST = 2**63 - 1
_HALF = "holds half of a surrogate pair, which is no character"


def write_problem(write: Write) -> str:
    """Return why no store accepts this write, apart from capabilities and limits."""
    match write:
        case Put():
            return record_problem(write.collection, write.record)
        case Delete():
            return (
                _key(write.key)
                or _version(write.version)
                or _owed_problem(write.owed)
                or _json("note", write.note)
                or _moment("discard_at", write.discard_at)
            )
        case Release():
            return (
                _key(write.key)
                or text_problem("to", write.to)
                or _owed_problem(write.owed)
                or _moment("discard_at", write.discard_at)
            )
        case Annotate():
            moments = (
                _moment("discard_at", write.discard_at)
                or _moment("accessed_at", write.accessed_at)
                or _moment("expires_at", write.expires_at)
            )
            return (
                _key(write.key)
                or moments
                or ("" if write.tier is None else text_problem("tier", write.tier))
                or _role(write.role)
            )
        case RaiseGeneration():
            names = text_problem("tenant", write.partition.tenant) or text_problem(
                "scope", write.partition.scope
            )
            return names or ("" if write.to is None else _integer("to", write.to, 0, MAX_GENERATION))
        case _:
            return _key(write.key)


def record_problem(collection: Collection, record: Record) -> str:
    """Return why no store accepts this record."""
    for name, value in record.fields.items():
        if value is not None and (problem := _field(collection, name, value)):
            return problem
        if value is None and collection.field(name) is None:
            return _undeclared_field_problem(collection, name)
    for name in collection.required:
        if record.fields.get(name) is None:
            return f"field '{name}' is required by collection '{collection.name}'"
    if collection.ordered_texts and (problem := _ordered_texts(collection, record)):
        return problem
    if record.texts and (problem := _texts(collection, record)):
        return problem
    if record.vector is not None:
        if not collection.vector:
            return f"collection '{collection.name}' takes no vectors"
        if problem := vector_problem(record.vector):
            return f"vector: {problem}"
    return (
        _place(record.key, record.scope)
        or _system(record)
        or (_json("body", record.body) if record.body else "")
    )


def vector_problem(packed: object) -> str:
    """Return why this vector cannot be stored or searched by.

    NaN and infinity would break rankings; a zero vector has no direction.
    """
    import numpy

    if not isinstance(packed, bytes):
        return f"takes packed float32 numbers as bytes, not {type(packed).__name__}"
    if not packed or len(packed) % 4:
        return "must be one or more packed float32 numbers"
    values = numpy.frombuffer(packed, dtype="<f4")
    if not numpy.isfinite(values).all():
        return "holds a number that is not finite"
    return "" if values.any() else "is all zero"


# -- parts of a record -----------------------------------------------------------------


def _field(collection: Collection, name: str, value: Any) -> str:
    declared = collection.field(name)
    if declared is None:
        return _undeclared_field_problem(collection, name)
    return value_problem(declared.type, name, value)


def value_problem(kind: FieldType, name: str, value: Any) -> str:
    """Return why a field of this type cannot have, or be compared with, the value."""
    if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind is not FieldType.BOOLEAN):
        return f"field '{name}' takes {kind}, not {type(value).__name__}"
    if kind is FieldType.TEXT:
        return "" if value.isascii() else text_problem(f"field '{name}'", value)
    if kind is FieldType.REAL:
        return _real(name, value)
    if kind is FieldType.INTEGER:
        return _integer(f"field '{name}'", value, -_MOST - 1)
    if kind is FieldType.TIME:
        return _moment(f"field '{name}'", value)
    if kind is FieldType.TAGS:
        for tag in value:
            if problem := text_problem(f"field '{name}'", tag):
                return problem
    return ""


def _texts(collection: Collection, record: Record) -> str:
    weights = collection.weights
    for name, text in record.texts.items():
        if name not in weights:
            return f"text part '{name}' is not declared by collection '{collection.name}'"
        if (type(text) is not str or not text.isascii()) and (
            problem := text_problem(f"text part '{name}'", text)
        ):
            return problem
    return ""


def _ordered_texts(collection: Collection, record: Record) -> str:
    for name in collection.ordered_texts:
        if (size := len(str(record.fields[name]).encode())) > ORDERED_BYTES:
            return f"field '{name}': an ordered text has at most {ORDERED_BYTES} bytes, not {size}"
    return ""


def _undeclared_field_problem(collection: Collection, name: str) -> str:
    return f"field '{name}' is not declared by collection '{collection.name}'"


def _real(name: str, value: float) -> str:
    if type(value) is float:
        return "" if value - value == 0 else f"field '{name}': a real number must be finite"
    try:
        real = float(value)
    except OverflowError:
        return f"field '{name}': a real number must be finite"
    return "" if real == value else f"field '{name}': this integer is no real number of 64 bits"


def _system(record: Record) -> str:
    """Check the parts that every record has."""
    moments = (
        _moment("created_at", record.created_at, needed=True)
        or _moment("updated_at", record.updated_at, needed=True)
        or _moment("expires_at", record.expires_at)
        or _moment("accessed_at", record.accessed_at)
        or _moment("cached_at", record.cached_at)
    )
    if moments:
        return moments
    numbers = (
        _version(record.version)
        or ("" if record.generation is None else _integer("generation", record.generation, 0, MAX_GENERATION))
        or _integer("accesses", record.accesses, 0)
        or ("" if record.previous is None else _integer("previous", record.previous, 0))
    )
    texts = text_problem("tier", record.tier) or (
        "" if record.epoch is None else text_problem("epoch", record.epoch)
    )
    return (
        numbers
        or texts
        or _role(record.role, needed=True)
        or (_owed_problem(record.owed) if record.owed != () else "")
    )


def _owed_problem(owed: object) -> str:
    if not isinstance(owed, tuple):
        return f"owed: takes a tuple of steps, not {type(owed).__name__}"
    for step in owed:
        if not isinstance(step, PendingStep):
            return f"owed: takes steps, not {type(step).__name__}"
        if (
            problem := text_problem("owed: id", step.id)
            or text_problem("owed: step", step.step)
            or _json("owed", step.data)
        ):
            return problem
    return "owed: two steps have the same id" if len({step.id for step in owed}) < len(owed) else ""


def _place(key: Key, scope: str) -> str:
    """Check that the id was made for this partition.

    An id carries its partition, so no key belongs to two partitions.
    """
    if names := text_problem("tenant", key.tenant) or text_problem("scope", scope):
        return names
    made_here = is_id(key.id) and digest_of(key.id) == partition_digest(key.tenant, scope)
    return "" if made_here else "id: not made for this partition"


def _key(key: Key) -> str:
    return text_problem("tenant", key.tenant) or id_problem(key.id)


def id_problem(value: object) -> str:
    """Return why this cannot be an id."""
    return "" if is_id(value) else "id: takes a UUID made for a partition"


# -- values ----------------------------------------------------------------------------


def text_problem(name: str, value: object) -> str:
    """Return why this is not a valid text.

    NUL is a normal character; half of a surrogate pair is not allowed.
    """
    if isinstance(value, str):
        return "" if value.isascii() or _is_whole(value) else f"{name}: {_HALF}"
    return f"{name}: takes text, not {type(value).__name__}"


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _integer(name: str, value: object, least: int, most: int = _MOST) -> str:
    if not isinstance(value, int) or isinstance(value, bool):
        return f"{name}: takes an integer, not {type(value).__name__}"
    if least <= value <= most:
        return ""
    return (
        f"{name}: an integer has at most 64 bits"
        if most == _MOST and value > most
        else f"{name}: must be from {least} to {most}"
    )


def _version(value: object) -> str:
    return _integer("version", value, 1)


def _role(value: object, *, needed: bool = False) -> str:
    return (
        ""
        if isinstance(value, Role) or (value is None and not needed)
        else f"role: takes a role, not {type(value).__name__}"
    )


def _moment(name: str, at: object, *, needed: bool = False) -> str:
    """Check that the time lies within the years 1 to 9999 of UTC, in any time zone."""
    if at is None and not needed:
        return ""
    if not isinstance(at, datetime):
        return f"{name}: takes a moment, not {type(at).__name__}"
    if at.tzinfo is UTC:
        return ""
    if at.utcoffset() is None:
        return f"{name} is a naive datetime; give it a time zone"
    try:
        at.astimezone(UTC)
    except OverflowError:
        return f"{name}: lies outside the years 1 to 9999 in UTC"
    return ""


def _json(name: str, value: object) -> str:
    """Check a string-keyed mapping of JSON values."""
    if not isinstance(value, Mapping):
        return f"{name}: takes a mapping, not {type(value).__name__}"
    return _json_mapping(name, value, MAX_DEPTH - 1) if value else ""


def _json_mapping(name: str, value: Mapping[Any, Any], room: int) -> str:
    for key, inner in value.items():
        if type(key) is not str and not isinstance(key, str):
            return f"{name}: a key is text, not {type(key).__name__}"
        if not key.isascii() and not _is_whole(key):
            return f"{name}: {_HALF}"
        # The most common values are checked inline: a call for each would cost more
        # than the rest of the check.
        if type(inner) is str and inner.isascii():
            continue
        if problem := _json_value(name, inner, room):
            return problem
    return ""


def _json_value(name: str, value: Any, room: int) -> str:
    kind = type(value)
    if kind is str:
        return "" if value.isascii() or _is_whole(value) else f"{name}: {_HALF}"
    if value is None or kind is bool:
        return ""
    if kind is int:
        return "" if -_MOST - 1 <= value <= _MOST else f"{name}: an integer has at most 64 bits"
    if kind is float:
        return "" if value - value == 0 else f"{name}: a number must be finite"
    if isinstance(value, Mapping | list):
        if not room:
            return f"{name}: nests deeper than {MAX_DEPTH} levels"
        if isinstance(value, Mapping):
            return _json_mapping(name, value, room - 1)
        for inner in value:
            if problem := _json_value(name, inner, room - 1):
                return problem
        return ""
    plain = next((base for base in (str, int, float) if isinstance(value, base)), None)
    return (
        f"{name}: holds a {kind.__name__}, which is not JSON"
        if plain is None
        else _json_value(name, plain(value), room)
    )
