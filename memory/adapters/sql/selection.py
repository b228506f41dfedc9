"""Heads of rows: the columns of a selection, and how to read them.

Rows are read without their checksums, which cover whole rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from memory.adapters.sql.codec import ID, Codec
from memory.adapters.sql.columns import column_of
from memory.domain.ids import is_id
from memory.ports import lexical
from memory.ports.collections import FieldType, field_types
from memory.ports.comparisons import SYSTEM_TYPES
from memory.ports.heads import BESIDE
from memory.ports.query import VECTOR, WORDS, Head, Order
from memory.ports.record import FieldValue, Key, Role
from memory.ports.record_validation import text_problem

_ALWAYS = ("tenant", "id", "scope", "version", "role", "tier", "generation")
_ROLES = {role.value: role for role in Role}


class Selection:
    """The heads of one collection with the parts in `select`.

    They are read from rows of the requested columns.
    """

    def __init__(self, codec: Codec, select: frozenset[str]) -> None:
        collection = codec.collection
        types = {**field_types(collection), **SYSTEM_TYPES}
        wanted = sorted(select - BESIDE)
        self._fields = [
            (name, column_of(name), codec.decoder(ID if name == "id" else types[name]))
            for name in wanted
            if name not in ("owing", "role")
        ]
        self._owing, self._role = "owing" in select, "role" in select
        self._words, self._vector = WORDS in select, VECTOR in select and collection.vector
        named = [
            *_ALWAYS,
            *map(column_of, wanted),
            *(["words"] if self._words else []),
            *(["vector"] if self._vector else []),
        ]
        self.columns = tuple(dict.fromkeys(named))
        text = codec.decoder(FieldType.TEXT) or str
        self._text, self._id = text, codec.decoder(ID) or text

    def with_order(self, order: Sequence[Order]) -> tuple[str, ...]:
        """Return the columns of a page in this order.

        They include the sort values, which the page's cursor contains.
        """
        return tuple(dict.fromkeys((*self.columns, *[column_of(by.field) for by in order])))

    def read(self, row: Mapping[str, Any]) -> Head | None:
        """Return the head of a row given by column names; None for an invalid value."""
        try:
            role = _ROLES[str(self._text(row["role"]))]
            fields = {
                name: value
                for name, column, decode in self._fields
                if (value := _value(row[column], decode)) is not None
            }
            fields |= {"owing": row["owed"] is not None} if self._owing else {}
            fields |= {"role": role} if self._role else {}
            key = Key(str(self._text(row["tenant"])), str(self._id(row["id"])))
            if not is_id(key.id) or text_problem("tenant", key.tenant):  # a cursor with it could not continue
                return None
            return Head(
                key,
                str(self._text(row["scope"])),
                row["version"],
                role,
                str(self._text(row["tier"])),
                row["generation"],
                fields,
                (row["words"] or lexical.NO_WORDS) if self._words else None,
                row["vector"] if self._vector else None,
            )
        except (TypeError, ValueError, KeyError, OverflowError, AttributeError):
            return None


def _value(value: Any, decode: Callable[[Any], FieldValue] | None) -> FieldValue:
    made: FieldValue = decode(value) if value is not None and decode is not None else value
    return made
