"""Heads of records: the values that `select` names, and nothing else.

For adapters that read whole records, and for reducing larger heads.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from memory.ports import lexical
from memory.ports.collections import Collection
from memory.ports.query import VECTOR, WORDS, Head
from memory.ports.query_evaluation import value_of
from memory.ports.record import Record

BESIDE = frozenset({WORDS, VECTOR})
"""Names that `select` accepts beside fields."""


def head_of(collection: Collection, record: Record, select: Set[str], words: bytes | None = None) -> Head:
    """Return the record's head with exactly the selected values.

    `words` are its packed words if known. Otherwise its texts are split into words.
    """
    fields = {name: value for name in select - BESIDE if (value := value_of(record, name)) is not None}
    return Head(
        record.key,
        record.scope,
        record.version,
        record.role,
        record.tier,
        record.generation or 0,
        fields,
        (words or lexical.index(collection, record.texts)) if WORDS in select else None,
        record.vector if VECTOR in select else None,
    )


def cut(head: Head, select: Set[str]) -> Head:
    """Return the head reduced to the selected values."""
    fields = {name: value for name, value in head.fields.items() if name in select}
    return replace(
        head,
        fields=fields,
        words=head.words if WORDS in select else None,
        vector=head.vector if VECTOR in select else None,
    )
