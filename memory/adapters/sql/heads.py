"""Heads of rows: which columns a selection takes, and what they say. Rows are read without their checksums, which are over whole ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from memory.adapters.sql.columns import field_column, text_column
from memory.adapters.sql.values import Row
from memory.domain.ids import is_id
from memory.ports import lexical
from memory.ports.collections import Collection, FieldType
from memory.ports.comparing import SYSTEM_TYPES
from memory.ports.heads import BESIDE
from memory.ports.query import VECTOR, WORDS, Head, Order
from memory.ports.record import FieldValue, Key, Role

Decoders = Mapping[FieldType, Callable[[Any], Any]]
"""What columns hold as values; of a type that is not among them, the value itself."""

_ALWAYS = ("tenant", "id", "scope", "version", "role", "tier", "generation")
_ROLES = {role.value: role for role in Role}


class Heads:
    """The heads of one collection with one selection; `at` says where each column is in a whole row, `packed` that `words` holds packed words."""

    def __init__(self, collection: Collection, select: frozenset[str], at: Mapping[str, int], decoders: Decoders, packed: bool = False) -> None:
        self._collection, self._at = collection, at
        self._text = decoders.get(FieldType.TEXT, lambda text: text)
        self._fields = [(name, at[_column(name)], decoders.get(_type(collection, name))) for name in sorted(select - BESIDE)]
        self._texts = [(part.name, at[text_column(part.name)]) for part in collection.texts] if WORDS in select else None
        self._packed = at.get("words") if packed and WORDS in select else None
        self._vector = at.get("vector") if VECTOR in select else None
        named = [*_ALWAYS, *[_column(name) for name in sorted(select - BESIDE)]]
        if self._packed is not None:
            named.append("words")
        elif WORDS in select:
            named += [text_column(part.name) for part in collection.texts]
        named += ["vector"] if self._vector is not None else []
        self.columns = tuple(dict.fromkeys(named))

    def with_order(self, order: Sequence[Order]) -> tuple[str, ...]:
        """The columns of a page in this order: its cursor tells the values that it is sorted by."""
        return tuple(dict.fromkeys((*self.columns, *[_column(by.field) for by in order])))

    def widened(self, columns: Sequence[str], row: Sequence[Any]) -> list[Any]:
        """A row of these columns with each in its place, as in a whole row."""
        wide: list[Any] = [None] * len(self._at)
        for name, value in zip(columns, row, strict=False):
            wide[self._at[name]] = value
        return wide

    def read(self, row: Row) -> Head | None:
        """The head of a widened row; None where one of its values is none."""
        at, text = self._at, self._text
        try:
            record_id = text(row[at["id"]])
            if not is_id(record_id):  # nobody could read on under it
                return None
            return Head(
                Key(text(row[at["tenant"]]), record_id),
                text(row[at["scope"]]),
                row[at["version"]],
                _ROLES[text(row[at["role"]])],
                text(row[at["tier"]]),
                row[at["generation"]],
                {name: value for name, i, decode in self._fields if (value := _value(name, row[i], decode)) is not None},
                None if self._texts is None else self._words(row),
                None if self._vector is None else row[self._vector],
            )
        except (TypeError, ValueError, KeyError, OverflowError, AttributeError):
            return None

    def _words(self, row: Row) -> bytes:
        if self._packed is not None and row[self._packed] is not None:
            return bytes(row[self._packed])
        assert self._texts is not None  # noqa: S101 - asked where they are selected
        return lexical.index(self._collection, {name: self._text(row[i]) for name, i in self._texts if row[i] is not None})


def _column(name: str) -> str:
    return "owed" if name == "owing" else name if name in SYSTEM_TYPES else field_column(name)


def _type(collection: Collection, name: str) -> FieldType:
    declared = collection.field(name)
    return SYSTEM_TYPES[name] if name in SYSTEM_TYPES or declared is None else declared.type


def _value(name: str, value: Any, decode: Callable[[Any], Any] | None) -> FieldValue:
    if name == "owing":
        return value is not None
    if value is not None and decode is not None:
        value = decode(value)
    return _ROLES[value] if name == "role" else value
