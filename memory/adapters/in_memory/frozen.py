"""Immutable copies of records and JSON values.

The store copies its input once. Callers cannot change the results that it returns, so
it never copies them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NoReturn

from memory.ports.record import FieldValue, JsonValue, PendingStep, Record


def _refuse(self: object, *args: object, **kwargs: object) -> NoReturn:
    raise TypeError("this value belongs to a store; change a copy.deepcopy of it instead")


class FrozenDict(dict[str, Any]):
    """Dict that rejects changes. It equals a plain dict and has the same JSON form."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __copy__(self) -> FrozenDict:
        return self

    def __deepcopy__(self, memo: object) -> dict[str, Any]:
        return {k: thaw(v) for k, v in self.items()}

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return (dict, ({k: thaw(v) for k, v in self.items()},))


class FrozenList(list[Any]):
    """List that rejects changes. It equals a plain list and has the same JSON form."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __copy__(self) -> FrozenList:
        return self

    def __deepcopy__(self, memo: object) -> list[Any]:
        return [thaw(v) for v in self]

    def __reduce__(self) -> tuple[type[list[Any]], tuple[list[Any]]]:
        return (list, ([thaw(v) for v in self],))


NOTHING = FrozenDict()


def thaw(value: JsonValue) -> Any:
    """Return a plain, mutable copy."""
    if isinstance(value, dict):
        return {k: thaw(v) for k, v in value.items()}
    return [thaw(v) for v in value] if isinstance(value, list) else value


def frozen_json(value: JsonValue) -> JsonValue:
    """Return an immutable deep copy of a JSON value; reuse parts that are immutable."""
    kind = type(value)
    if kind is str or kind is int or value is None or kind is FrozenDict or kind is FrozenList:
        return value
    if isinstance(value, Mapping):
        return FrozenDict({k: frozen_json(v) for k, v in value.items()})
    if isinstance(value, list | tuple):
        return FrozenList([frozen_json(v) for v in value])
    return value


def frozen_mapping(value: Mapping[str, JsonValue]) -> FrozenDict:
    if type(value) is FrozenDict:
        return value
    return FrozenDict({k: frozen_json(v) for k, v in value.items()}) if value else NOTHING


def frozen_owed(owed: tuple[PendingStep, ...]) -> tuple[PendingStep, ...]:
    return tuple([PendingStep(o.id, o.step, frozen_mapping(o.data)) for o in owed]) if owed else ()


def in_utc(at: datetime) -> datetime:
    return at if at.tzinfo is UTC else at.astimezone(UTC)


def maybe_in_utc(at: datetime | None) -> datetime | None:
    return None if at is None else in_utc(at)


def _frozen_field(value: FieldValue) -> FieldValue:
    return in_utc(value) if isinstance(value, datetime) else value


def frozen_record(record: Record) -> Record:
    """Return the record as the store keeps it: detached from the caller, times in UTC.

    A field with the value None is stored as a missing field.
    """
    fields = {k: _frozen_field(v) for k, v in record.fields.items() if v is not None}
    return Record(
        record.key,
        record.scope,
        record.version,
        in_utc(record.created_at),
        in_utc(record.updated_at),
        maybe_in_utc(record.expires_at),
        FrozenDict(fields) if fields else NOTHING,
        frozen_mapping(record.body),
        FrozenDict(record.texts) if record.texts else NOTHING,
        None if record.vector is None else bytes(record.vector),
        record.generation,
        record.role,
        record.tier,
        frozen_owed(record.owed),
        record.previous,
        record.accesses,
        maybe_in_utc(record.accessed_at),
        maybe_in_utc(record.cached_at),
        record.epoch,
    )
