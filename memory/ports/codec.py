"""Stored items as JSON and back.

Adapters that store text use this, and so do steps that carry a record.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime

from memory.domain.time import micros, micros_or_none, moment, moment_or_none
from memory.ports.collections import Collection, FieldType, field_types
from memory.ports.query import RowType
from memory.ports.record import (
    FieldValue,
    JsonValue,
    Key,
    Mark,
    PendingStep,
    Record,
    Role,
    Standing,
    Tombstone,
)


def to_json(standing: Standing) -> dict[str, JsonValue]:
    """Return the whole item as JSON, including bookkeeping.

    Moments are microseconds since 1970, and bytes are base64.
    """
    base = {"tenant": standing.key.tenant, "id": standing.key.id, "version": standing.version}
    owed = [[step.id, step.step, dict(step.data)] for step in standing.owed]
    if isinstance(standing, Mark):
        left = {
            "scope": standing.scope,
            "to": standing.to,
            "owed": owed,
            "discard_at": micros_or_none(standing.discard_at),
        }
        return {"kind": RowType.MARK.value, **base, **left}
    if isinstance(standing, Tombstone):
        return {
            "kind": RowType.TOMBSTONE.value,
            **base,
            "owed": owed,
            "note": dict(standing.note),
            "discard_at": micros_or_none(standing.discard_at),
        }
    return {
        "kind": RowType.RECORD.value,
        **base,
        "scope": standing.scope,
        "created_at": micros(standing.created_at),
        "updated_at": micros(standing.updated_at),
        "expires_at": micros_or_none(standing.expires_at),
        "fields": {name: _plain(value) for name, value in standing.fields.items() if value is not None},
        "body": dict(standing.body),
        "texts": dict(standing.texts),
        "vector": None if standing.vector is None else base64.b64encode(standing.vector).decode(),
        "generation": standing.generation,
        "role": standing.role.value,
        "tier": standing.tier,
        "owed": owed,
        "previous": standing.previous,
        "accesses": standing.accesses,
        "accessed_at": micros_or_none(standing.accessed_at),
        "cached_at": micros_or_none(standing.cached_at),
        "epoch": standing.epoch,
    }


def from_json(collection: Collection, data: Mapping[str, JsonValue]) -> Standing:
    """Return the item that `to_json` encoded.

    Raises:
        KeyError, TypeError, ValueError: The data are not an encoded item.
    """
    key, owed = Key(data["tenant"], data["id"]), tuple(PendingStep(*step) for step in data["owed"])
    if data["kind"] == RowType.MARK:
        return Mark(key, data["scope"], data["version"], data["to"], owed, moment_or_none(data["discard_at"]))
    if data["kind"] == RowType.TOMBSTONE:
        return Tombstone(key, data["version"], owed, data["note"], moment_or_none(data["discard_at"]))
    return record_from_json(collection, data)


def record_from_json(collection: Collection, data: Mapping[str, JsonValue]) -> Record:
    """Return the record that `to_json` encoded."""
    types = field_types(collection)
    return Record(
        key=Key(data["tenant"], data["id"]),
        scope=data["scope"],
        version=data["version"],
        created_at=moment(data["created_at"]),
        updated_at=moment(data["updated_at"]),
        expires_at=moment_or_none(data["expires_at"]),
        fields={name: _field_value(types.get(name), value) for name, value in data["fields"].items()},
        body=data["body"],
        texts=data["texts"],
        vector=None if data["vector"] is None else base64.b64decode(data["vector"]),
        generation=data["generation"],
        role=Role(data["role"]),
        tier=data["tier"],
        owed=tuple(PendingStep(*step) for step in data["owed"]),
        previous=data["previous"],
        accesses=data["accesses"],
        accessed_at=moment_or_none(data["accessed_at"]),
        cached_at=moment_or_none(data["cached_at"]),
        epoch=data["epoch"],
    )


def _plain(value: FieldValue) -> JsonValue:
    if isinstance(value, datetime):
        return micros(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return list(value) if isinstance(value, tuple) else value


def _field_value(kind: FieldType | None, value: JsonValue) -> FieldValue:
    """Decode the value of a field. Undeclared fields keep their JSON value."""
    if value is None:
        return None
    if kind is FieldType.TIME:
        return moment(value)
    if kind is FieldType.BYTES:
        return base64.b64decode(value)
    if kind is FieldType.TAGS:
        return tuple(value)
    return value  # type: ignore[no-any-return]
