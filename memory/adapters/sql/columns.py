"""The names of columns, the same on every dialect.

They cover a collection's fields and text parts, and the adapter's own columns.
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
"""The names of the adapter's own columns in any of the dialects."""
_CHECKSUM = "checksum_"
REQUIRED = "required"
"""A key in the `info` of a table: the fields that every record has."""
PARTITIONS = "partitions"
"""A key in the `info` of a table: the name of the table of partitions."""


def field_column(name: str) -> str:
    """Return the column of a declared field.

    It has the field's name, unless the adapter has a column of that name.
    """
    return f"field_{name}" if name in RESERVED or name.startswith(_CHECKSUM) else name


def column_of(name: str) -> str:
    """Return the column of a system field or a declared one."""
    return "owed" if name == "owing" else name if name in SYSTEM_TYPES else field_column(name)


def checksum_column(collection: Collection) -> str:
    """Return the checksum's column; its name contains the number of covered fields.

    A table that gets more fields has its checksum column renamed. Every statement that
    reads or writes a whole row names this column. So such a statement fails in a store
    that was opened before the change, and the store looks at the table again
    (`declared`). Otherwise the store would take a row with an unknown field for
    damaged, or leave that field unchanged beside new content.
    """
    return f"{_CHECKSUM}{len(collection.fields)}"


def indexes(collection: Collection) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Yield the label, columns and marker column of each declared index.

    Rows in the index have a value in the marker column, where a dialect has partial
    indexes. Where a dialect's keys are short, an index has only the beginning of a
    text.

    The tenant leads each index. Ends of relations are searched in a whole tenant.
    Sessions, each in its own partition, are listed in the order of a required field.
    Only the index of an ordered text lists single partitions.
    """
    in_order = ordering(collection)
    for field in collection.fields:
        column = field_column(field.name)
        if field.name in collection.ordered_texts:
            yield f"order_{field.name}", ("partition_no", column, "id"), column
        elif field.name in in_order:
            yield f"order_{field.name}", ("tenant", column, "id"), column
        elif field.indexed and field.type is not FieldType.TAGS:
            yield f"field_{field.name}", ("tenant", column, "partition_no"), column
    for name in collection.orders:
        if name not in collection.ordered_texts:
            yield f"order_{name}", ("tenant", name, "id"), name
    for number, names in enumerate(collection.indexes):
        columns = tuple(map(field_column, names))
        yield f"several_{number}", ("tenant", *columns, "partition_no", "id"), columns[0]


def ordering(collection: Collection) -> frozenset[str]:
    """Return the fields in whose order an index returns all records of a tenant."""
    numbers = (FieldType.INTEGER, FieldType.REAL, FieldType.TIME)
    moments = [name for name in collection.orders if name not in collection.ordered_texts]
    return frozenset([*moments, *[f.name for f in collection.fields if f.required and f.type in numbers]])


def keyed_fields(collection: Collection) -> frozenset[str]:
    """Return the fields with an index that finds rows in a query with a tenant."""
    single = [f.name for f in collection.fields if f.indexed and f.type is not FieldType.TAGS]
    return collection.leading.union(single)


def text_column(part: str) -> str:
    return f"text_{part}"
