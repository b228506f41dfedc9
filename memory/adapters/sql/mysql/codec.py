"""Encodes values for MySQL and MariaDB: ids as sixteen bytes, tags as text.

The driver returns every text as bytes.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from memory.adapters.sql.codec import ID, TAG, TAGS_AS_TEXT, TypeCodec, TypeTable, id_bytes, tags_of
from memory.ports.collections import FieldType


def to_text(value: Any) -> str:
    """Return the driver's text as a string, even if it is damaged."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


TYPES: TypeTable = {
    FieldType.TEXT: TypeCodec(str, bytes.decode),
    ID: TypeCodec(id_bytes, lambda sixteen: str(UUID(bytes=sixteen))),
    FieldType.TAGS: TypeCodec(TAGS_AS_TEXT[FieldType.TAGS].bind, lambda text: tags_of(text.decode())),
    TAG: TAGS_AS_TEXT[TAG],
}
