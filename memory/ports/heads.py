"""Heads of records in hand: what `select` names, and nothing else. For adapters that
read whole records, and for cutting what others selected.
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
"""What is named as fields are and is none."""


def head_of(collection: Collection, record: Record, select: Set[str], words: bytes | None = None) -> Head:
    """The record's head with exactly what is named. `words` are its packed words, where
    they are known: else its texts are cut.
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
    """The head with no more than what is named."""
    fields = {name: value for name, value in head.fields.items() if name in select}
    return replace(
        head,
        fields=fields,
        words=head.words if WORDS in select else None,
        vector=head.vector if VECTOR in select else None,
    )
