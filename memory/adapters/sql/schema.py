"""The tables of every dialect, over the dialect's own types.

These are the adapter's own tables, and the first columns of each collection's table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles

from memory.adapters.sql.codec import SYSTEM
from memory.adapters.sql.columns import checksum_column, field_column, text_column
from memory.adapters.sql.declared import Growth
from memory.adapters.sql.naming import TableNames
from memory.ports.collections import Collection, FieldType

ColumnTypes: TypeAlias = Mapping[str, sa.types.TypeEngine[Any]]
"""The types of a dialect's columns, by `FieldType`.

It also has the names in `memory.adapters.sql.codec.SYSTEM`, "name" for short names, and
`ORDERED`.
"""

ORDERED = "ordered"
"""The type of text fields that an index holds whole, in their order."""

INDEXED_CHARACTERS = 100
"""The number of characters of a text field in its index: 400 bytes at most."""


class AbsentColumn(sa.Column[Any]):
    """A column that a table lacks, and that may not be added: NULL in every row."""

    inherit_cache = True


@compiles(AbsentColumn)
def _null(column: AbsentColumn, compiler: Any, **_: Any) -> str:
    return (
        "NULL"
        if compiler.dialect.name == "mysql"
        else f"(NULL::{compiler.dialect.type_compiler_instance.process(column.type)})"
    )


def with_absent(table: sa.Table, growth: Growth, types: ColumnTypes) -> sa.Table:
    """Add absent columns to the table for a store that must not change its schema."""
    for field in growth.fields:
        table.append_column(AbsentColumn(field_column(field.name), types[field.type], nullable=True))
    return table


def system_tables(metadata: sa.MetaData, types: ColumnTypes, names: TableNames, **options: Any) -> None:
    """Declare the adapter's own tables."""
    integer, text = types[FieldType.INTEGER], types[FieldType.TEXT]
    sa.Table(
        names.partitions,
        metadata,
        sa.Column("number", integer, primary_key=True, autoincrement=False),
        sa.Column("tenant", types["tenant"], nullable=False),
        sa.Column("scope", types["scope"], nullable=False),
        sa.Column("generation", integer, nullable=False),
        sa.UniqueConstraint("tenant", "scope", name=f"uq_{names.partitions}"),
        **options,
    )
    sa.Table(  # unreadable rows in their original form
        names.quarantine,
        metadata,
        sa.Column("collection", types["name"], primary_key=True),
        sa.Column("tenant", types["tenant"], primary_key=True),
        sa.Column("id", types["id"], primary_key=True),
        sa.Column("partition_no", integer, nullable=True),
        sa.Column("problem", text, nullable=False),
        sa.Column("found_at", integer, nullable=False),
        sa.Column("content", text, nullable=False),
        **options,
    )
    sa.Table(names.version, metadata, sa.Column("version_num", types["name"], primary_key=True), **options)
    sa.Table(  # the declaration of each collection's table
        names.registry,
        metadata,
        sa.Column("name", types["name"], primary_key=True),
        sa.Column("declaration", text, nullable=False),
        **options,
    )


def row_columns(collection: Collection, types: ColumnTypes) -> list[sa.Column[Any]]:
    """Return the columns of `Codec`'s layout and the number of the row's partition."""
    columns: list[sa.Column[Any]] = [
        sa.Column(name, types[kind], nullable=nullable) for name, kind, nullable in SYSTEM
    ]
    columns += [
        sa.Column(text_column(part.name), types[FieldType.TEXT], nullable=True) for part in collection.texts
    ]
    columns += [sa.Column("vector", types[FieldType.BYTES], nullable=True)] if collection.vector else []
    columns += [
        sa.Column(
            field_column(field.name),
            types[ORDERED if field.name in collection.ordered_texts else field.type],
            nullable=True,
        )
        for field in collection.fields
    ]
    columns.append(sa.Column(checksum_column(collection), types[FieldType.INTEGER], nullable=False))
    columns += [
        sa.Column("words", types[FieldType.BYTES], nullable=True),
        sa.Column("bytes", types[FieldType.INTEGER], nullable=False),
    ]
    columns.append(
        sa.Column("partition_no", types[FieldType.INTEGER], nullable=True)
    )  # live records only: no other row is found by scope
    return columns
