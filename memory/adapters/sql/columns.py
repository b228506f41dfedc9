"""The names of columns: a collection's fields and text parts beside the adapter's own,
the same on every dialect.
"""

from __future__ import annotations

from collections.abc import Iterator

from memory.ports.collections import Collection, FieldType
from memory.ports.comparisons import SYSTEM_TYPES

RESERVED = frozenset(
    {
        *(
            "number",
            "tenant",
            "id",
            "fingerprint",
            "partition_no",
            "scope",
            "version",
            "generation",
            "revision",
            "role",
            "tier",
        ),
        *(
            "created_at",
            "updated_at",
            "expires_at",
            "accesses",
            "accessed_at",
            "words",
            "bytes",
            "previous",
            "cached_at",
            "epoch",
        ),
        *(
            "discard_at",
            "owed",
            "note",
            "body",
            "vector",
            "counts",
            "lexemes",
            "embedding",
            "owing",
            "unindexed",
            "row_type",
            "length",
        ),
    }
)
"""What the adapter's own columns are called on one dialect or another."""
_CHECKSUM = "checksum_"
REQUIRED = "required"
"""In the `info` of a table: the fields that every record has."""
PARTITIONS = "partitions"
"""In the `info` of a table: the name of the table of partitions."""


def field_column(name: str) -> str:
    """The column of a declared field: its name, unless the adapter has a column of that
    name.
    """
    return f"field_{name}" if name in RESERVED or name.startswith(_CHECKSUM) else name


def column_of(name: str) -> str:
    """The column of a system field or a declared one."""
    return "owed" if name == "owing" else name if name in SYSTEM_TYPES else field_column(name)


def checksum_column(collection: Collection) -> str:
    """The checksum's column says over how many fields it is: where a table is given
    more it is renamed.

    Every statement that reads or writes a whole row names it. So one of a store that
    was opened before fails, instead of taking a row with a field it does not know for
    damaged, or leaving that field as it was beside new content; the store then looks
    again at what the table is (`declared`).
    """
    return f"{_CHECKSUM}{len(collection.fields)}"


def indexes(collection: Collection) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """The indexes that a collection declares: for each its label, its columns, and the
    column that those rows have which are in it, where a dialect has indexes of some
    rows. Text is in them by its beginning only, where a dialect's keys are short.

    They are led by the tenant: ends of relations are looked for in a whole tenant, and
    sessions, each in a partition of its own, are listed in the order of a required
    field.
    """
    in_order = ordering(collection)
    for field in collection.fields:
        column = field_column(field.name)
        if field.name in in_order:
            yield f"order_{field.name}", ("tenant", column, "id"), column
        elif field.indexed and field.type is not FieldType.TAGS:
            yield f"field_{field.name}", ("tenant", column, "partition_no"), column
    for name in collection.orders:
        yield f"order_{name}", ("tenant", name, "id"), name
    for number, names in enumerate(collection.indexes):
        columns = tuple(map(field_column, names))
        yield f"several_{number}", ("tenant", *columns, "partition_no", "id"), columns[0]


def ordering(collection: Collection) -> frozenset[str]:
    """The fields in whose order an index brings all records of a tenant."""
    numbers = (FieldType.INTEGER, FieldType.REAL, FieldType.TIME)
    return frozenset(
        [*collection.orders, *[f.name for f in collection.fields if f.required and f.type in numbers]]
    )


def keyed_fields(collection: Collection) -> frozenset[str]:
    """The fields by which an index finds what is asked for, where the tenant is asked
    for too.
    """
    single = [f.name for f in collection.fields if f.indexed and f.type is not FieldType.TAGS]
    return collection.leading.union(single)


def text_column(part: str) -> str:
    return f"text_{part}"
