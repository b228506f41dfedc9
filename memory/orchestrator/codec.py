"""Records as JSON, for steps that carry a record with them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime

from memory.domain.time import micros, moment
from memory.ports.collections import Collection, FieldType
from memory.ports.record import FieldValue, JsonValue, Key, Record


def to_json(record: Record) -> dict[str, JsonValue]:
    """The record's content and its `previous`."""
    return {
        "tenant": record.key.tenant,
        "id": record.key.id,
        "scope": record.scope,
        "version": record.version,
        "created_at": micros(record.created_at),
        "updated_at": micros(record.updated_at),
        "expires_at": None if record.expires_at is None else micros(record.expires_at),
        "fields": {name: _plain(value) for name, value in record.fields.items()},
        "body": dict(record.body),
        "texts": dict(record.texts),
        "vector": None if record.vector is None else base64.b64encode(record.vector).decode(),
        "generation": record.generation,
        "previous": record.previous,
    }


def from_json(collection: Collection, data: Mapping[str, JsonValue]) -> Record:
    """The record that `to_json` was given; it has no home and owes nothing."""
    types = {f.name: f.type for f in collection.fields}
    return Record(
        key=Key(data["tenant"], data["id"]),
        scope=data["scope"],
        version=data["version"],
        created_at=moment(data["created_at"]),
        updated_at=moment(data["updated_at"]),
        expires_at=None if data["expires_at"] is None else moment(data["expires_at"]),
        fields={name: _typed(types[name], value) for name, value in data["fields"].items()},
        body=data["body"],
        texts=data["texts"],
        vector=None if data["vector"] is None else base64.b64decode(data["vector"]),
        generation=data["generation"],
        previous=data["previous"],
    )


def _plain(value: FieldValue) -> JsonValue:
    if isinstance(value, datetime):
        return micros(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return list(value) if isinstance(value, tuple) else value


def _typed(kind: FieldType, value: JsonValue) -> FieldValue:
    if value is None:
        return None
    if kind is FieldType.TIME:
        return moment(value)
    if kind is FieldType.BYTES:
        return base64.b64decode(value)
    if kind is FieldType.TAGS:
        return tuple(value)
    return value  # type: ignore[no-any-return]
