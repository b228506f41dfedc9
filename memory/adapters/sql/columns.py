"""The names of columns: a collection's fields and text parts beside the adapter's own, the same on every dialect."""

from __future__ import annotations

from collections.abc import Iterable

from memory.ports.collections import Collection

SYSTEM_PREFIX = "memory_"
"""The adapter's own tables begin with it, and no collection does."""
RESERVED = frozenset(
    {
        *("number", "tenant", "id", "fingerprint", "record_kind", "partition_no", "scope", "version", "generation", "revision", "role", "tier"),
        *("created_at", "updated_at", "expires_at", "accesses", "accessed_at", "words", "bytes", "previous", "moved_to", "cached_at", "epoch"),
        *("discard_at", "owed", "note", "body", "vector", "checksum", "counts", "lexemes", "embedding", "owing", "unindexed"),
    }
)
"""What the adapter's own columns are called on one dialect or another."""


def field_column(name: str) -> str:
    """The column of a declared field: its name, unless the adapter has a column of that name."""
    return f"field_{name}" if name in RESERVED else name


def content_columns(system: Iterable[str], collection: Collection) -> tuple[str, ...]:
    """The columns of a row in order: the adapter's own, the fields, the texts, the body, the vector where there is one, and the checksum."""
    fields = [field_column(f.name) for f in collection.fields]
    texts = [text_column(p.name) for p in collection.texts]
    return (*system, *fields, *texts, "body", *(["vector"] if collection.vector else []), "checksum")


def text_column(part: str) -> str:
    return f"text_{part}"
