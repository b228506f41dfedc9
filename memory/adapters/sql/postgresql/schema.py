"""The tables on PostgreSQL: the adapter's own, and one for each declared collection.

The key of a table is (id, tenant): an id alone is selective, even before the server has
statistics on tenants. All text compares by code point (COLLATE "C"). Indexes hold only
the first characters of long values, because an index key holds at most 2,704 bytes. The
user chooses the schema (namespace). It is in every statement, never in a session's
search_path.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, TSVECTOR

from memory.adapters.sql.codec import ID
from memory.adapters.sql.columns import PARTITIONS, REQUIRED, field_column, indexes
from memory.adapters.sql.conditions import constant
from memory.adapters.sql.declared import Growth
from memory.adapters.sql.naming import DEFAULT_PREFIX, LONGEST_COLLECTION, TableNames
from memory.adapters.sql.schema import INDEXED_CHARACTERS, ORDERED, ColumnTypes, row_columns, with_absent
from memory.domain.errors import ConfigError
from memory.ports.collections import Collection, FieldType
from memory.ports.record import Role
from memory.ports.rows import MARK

TEXT = sa.Text(collation="C")

TYPES: ColumnTypes = {
    **dict.fromkeys(("tenant", "scope", "word", "name", ORDERED, FieldType.TEXT), TEXT),
    ID: sa.Uuid(),
    FieldType.INTEGER: sa.BigInteger(),
    FieldType.REAL: sa.Double(),
    FieldType.BOOLEAN: sa.SmallInteger(),
    FieldType.TIME: sa.BigInteger(),
    FieldType.TAGS: ARRAY(TEXT),
    FieldType.BYTES: sa.LargeBinary(),
}
_PARAMETERS: dict[type, tuple[str, str]] = {
    sa.Uuid: ("uuid", ""),
    sa.BigInteger: ("bigint", ""),
    sa.SmallInteger: ("smallint", ""),
    sa.Double: ("float8", ""),
    sa.LargeBinary: ("bytea", ""),
    ARRAY: ("text", "text[]"),
    JSONB: ("text", "jsonb"),
    TSVECTOR: ("text", "tsvector"),
}


COUNTED = ("partition_no", "length", "row_type", "role")
"""The columns that searches read of every row of a partition.

They come first: to read a column, the server goes through all columns before it.
"""


def parameter_of(kind: sa.types.TypeEngine[Any]) -> tuple[str, str]:
    """Return a parameter's type for a column, and its cast, '' for none."""
    return _PARAMETERS.get(type(kind), ("text", ""))


def collection_table(metadata: sa.MetaData, collection: Collection, names: TableNames) -> sa.Table:
    """Declare the table of a collection with its indexes.

    The column `embedding` comes with the extension pgvector, see `extension`.
    """
    name = collection.name
    columns = row_columns(collection, TYPES)
    if collection.texts:
        columns += [
            sa.Column("length", sa.BigInteger(), nullable=False),
            sa.Column("counts", JSONB(), nullable=True),
        ]
        columns.append(sa.Column("lexemes", TSVECTOR(), nullable=True))
    columns.sort(key=lambda column: column.name not in COUNTED)
    info = {REQUIRED: collection.required, PARTITIONS: names.partitions}
    key = sa.PrimaryKeyConstraint("id", "tenant", name=names.index("pk", name))
    table = sa.Table(names.table(name), metadata, *columns, key, info=info)
    c = table.c

    def index(label: str, *over: Any, only: sa.ColumnElement[bool] | None = None, **options: Any) -> None:
        sa.Index(names.index("ix", name, label), *over, postgresql_where=only, **options)

    # Reads a partition in order. The statistics of a search need only these columns
    # read.
    counted = ["row_type", "role", *(["length"] if collection.texts else [])]
    index(
        "created_at",
        c.partition_no,
        c.created_at,
        c.id,
        only=c.partition_no.is_not(None),
        postgresql_include=counted,
    )
    index(
        "passing",
        c.id,
        c.tenant,
        only=c.role.in_([constant(Role.ARRIVING.value), constant(Role.CACHED.value)]),
    )
    index("expires_at", c.expires_at, only=c.expires_at.is_not(None))
    index("discard_at", c.discard_at, only=c.discard_at.is_not(None))
    index("owing", c.id, c.tenant, only=c.owed.is_not(None))
    index("marks", c.tenant, c.scope, only=c.row_type == constant(MARK))
    index(
        "age",
        c.tier,
        c.created_at,
        only=c.role.in_([constant(Role.ARRIVING.value), constant(Role.HOME.value)]),
    )
    fields = {
        field_column(f.name): f.type for f in collection.fields if f.name not in collection.ordered_texts
    }
    for label, over, there in indexes(collection):
        keys = [indexed_part(c[key]) if fields.get(key) is FieldType.TEXT else c[key] for key in over]
        index(label, *keys, only=c[there].is_not(None))
    if collection.texts:  # single writes go to a short list first, which searches read: it is kept short
        index(
            "lexemes",
            c.lexemes,
            postgresql_using="gin",
            postgresql_with={"fastupdate": "on", "gin_pending_list_limit": 1024},
        )
    return table


def indexed_part(text: Any) -> sa.ColumnElement[str]:
    """Return the indexed part of a text field, or of a value to compare it with."""
    return sa.func.left(text, sa.literal_column(str(INDEXED_CHARACTERS)), type_=sa.Text())


@lru_cache(maxsize=256)
def table_of(
    collection: Collection, schema: str, names: TableNames, stored: Collection | None = None
) -> sa.Table:
    """Return a collection's table, declared once per process, or as it is `stored`.

    A name that no table can have is refused.
    """
    if stored is not None:
        return with_absent(table_of.__wrapped__(stored, schema, names), Growth(stored, collection), TYPES)
    name = collection.name
    if (
        not name.isidentifier()
        or name.startswith("pg_")
        or names.is_taken(name)
        or len(name.encode()) > LONGEST_COLLECTION
    ):
        raise ConfigError(
            f"collection '{name}': the name must be a plain SQL identifier of at most {LONGEST_COLLECTION}"
            f" bytes. It must not begin with '{DEFAULT_PREFIX}' or 'pg_', or be one of the adapter's own tables"
        )
    return collection_table(sa.MetaData(schema=schema), collection, names)
