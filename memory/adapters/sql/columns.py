"""The names of columns: a collection's fields and text parts beside the adapter's own, the same on every dialect."""

from __future__ import annotations

SYSTEM_PREFIX = "memory_"
"""The adapter's own tables begin with it, and no collection does."""
RESERVED = frozenset(
    {
        *("number", "tenant", "id", "fingerprint", "record_kind", "partition_no", "scope", "version", "generation", "revision", "role", "tier"),
        *("created_at", "updated_at", "expires_at", "accesses", "accessed_at", "words", "bytes", "previous", "moved_to", "cached_at", "epoch"),
        *("discard_at", "owed", "note", "body", "vector", "checksum", "counts", "lexemes", "embedding"),
    }
)
"""What the adapter's own columns are called on one dialect or another."""


def field_column(name: str) -> str:
    """The column of a declared field: its name, unless the adapter has a column of that name."""
    return f"field_{name}" if name in RESERVED else name


def text_column(part: str) -> str:
    return f"text_{part}"
