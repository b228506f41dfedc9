"""The collections of the contract's tests.

Callers of the port declare their own, and an adapter serves these like any others.
"""

from __future__ import annotations

from memory.ports.collections import Collection, Field, FieldType, TextPart

_FIELDS = (
    Field("type", FieldType.TEXT, indexed=True),
    Field("tags", FieldType.TAGS, indexed=True),
    Field("source", FieldType.TEXT),
    Field("confidence", FieldType.REAL),
    Field("share", FieldType.REAL, indexed=True),
    Field("number", FieldType.INTEGER, indexed=True),
    Field("pinned", FieldType.BOOLEAN, indexed=True),
    Field("seal", FieldType.BYTES),
    Field("conversation_id", FieldType.TEXT, indexed=True),
    Field("valid_from", FieldType.TIME),
    Field("valid_to", FieldType.TIME, indexed=True),
    Field("request_digest", FieldType.TEXT),
)
_TEXTS = (TextPart("title", 10.0), TextPart("content", 4.0), TextPart("tags", 8.0), TextPart("source", 2.0))

SAMPLES = Collection("samples", _FIELDS, _TEXTS, vector=True, orders=("updated_at",))
"""Everything a collection can have: texts, a vector, and a field of every type."""

MORE_SAMPLES = Collection(
    "more_samples",
    (
        *_FIELDS,
        Field("entry_id", FieldType.TEXT, indexed=True),
        Field("stored_version", FieldType.INTEGER),
        Field("replaced_version", FieldType.INTEGER),
    ),
    _TEXTS,
    vector=True,
)
"""The same again, so that a store shows whether it keeps collections apart."""

PLAIN = Collection("plain")
"""Only the fields that every record has."""

DECLARED = (SAMPLES, MORE_SAMPLES, PLAIN)
