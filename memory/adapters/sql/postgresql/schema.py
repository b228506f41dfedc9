"""The tables on PostgreSQL: those of the adapter itself, and one for each collection, made from its declaration.

The key of a table is (id, tenant): an id alone says almost everything, also before the server has counted what a tenant has.
Text compares by code point everywhere: COLLATE "C". Long values are indexed by their first characters only, because an index key holds at
most 2,704 bytes. The schema (namespace) is the user's choice and in every statement, never in a session's search_path.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, TSVECTOR

from memory.adapters.sql.columns import REQUIRED, SYSTEM_PREFIX, checksum_column, field_column, indexes, text_column
from memory.adapters.sql.migrate import REGISTRY, VERSION_TABLE
from memory.domain.errors import ConfigError
from memory.ports.collections import Collection, FieldType
from memory.ports.record import Role

TEXT = sa.Text(collation="C")
TIME = sa.DateTime(timezone=True)

COLUMN_TYPES: dict[FieldType, sa.types.TypeEngine[Any]] = {
    FieldType.TEXT: TEXT,
    FieldType.INTEGER: sa.BigInteger(),
    FieldType.REAL: sa.Double(),
    FieldType.BOOLEAN: sa.Boolean(create_constraint=False),
    FieldType.TIME: TIME,
    FieldType.TAGS: ARRAY(TEXT),
    FieldType.BYTES: sa.LargeBinary(),
}

# What every collection's table begins with. The order is that of a row, and rows.py counts on it: add at the end only.
SYSTEM_COLUMNS: tuple[tuple[str, sa.types.TypeEngine[Any], bool], ...] = (
    ("tenant", TEXT, False),
    ("id", TEXT, False),
    ("record_kind", TEXT, False),  # record, mark, tombstone, corrupt
    ("partition_no", sa.BigInteger(), True),  # live records only: nothing else is found by scope
    ("scope", TEXT, True),
    ("version", sa.BigInteger(), False),
    ("generation", sa.BigInteger(), True),
    ("role", TEXT, True),
    ("tier", TEXT, True),
    ("created_at", TIME, True),
    ("updated_at", TIME, True),
    ("expires_at", TIME, True),
    ("accesses", sa.BigInteger(), False),
    ("accessed_at", TIME, True),
    ("previous", sa.BigInteger(), True),
    ("moved_to", TEXT, True),
    ("cached_at", TIME, True),
    ("epoch", TEXT, True),
    ("discard_at", TIME, True),
    ("owed", JSONB(), True),  # NULL where nothing is owed
    ("note", JSONB(), True),
)
# Behind the content and its checksum: what is made from it for searching and counting.
DERIVED = ("words", "bytes", "counts", "lexemes", "embedding")

INDEXED_CHARACTERS = 100
"""So many characters of a text field are in its index: 400 bytes at most."""


def system_tables(metadata: sa.MetaData) -> None:
    """The adapter's own tables."""
    sa.Table(
        "memory_partitions",
        metadata,
        sa.Column("number", sa.BigInteger(), sa.Identity(always=True), primary_key=True),
        sa.Column("tenant", TEXT, nullable=False),
        sa.Column("scope", TEXT, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.UniqueConstraint("tenant", "scope", name="uq_memory_partitions"),
    )
    sa.Table(  # rows that could not be read, as they were found
        "memory_quarantine",
        metadata,
        sa.Column("collection", TEXT, primary_key=True),
        sa.Column("tenant", TEXT, primary_key=True),
        sa.Column("id", TEXT, primary_key=True),
        sa.Column("partition_no", sa.BigInteger(), nullable=True),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.Column("found_at", TIME, nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
    )
    sa.Table(VERSION_TABLE, metadata, sa.Column("version_num", TEXT, primary_key=True))
    sa.Table(  # what each collection's table was made for
        REGISTRY,
        metadata,
        sa.Column("name", TEXT, primary_key=True),
        sa.Column("declaration", sa.Text(), nullable=False),
    )


def collection_table(metadata: sa.MetaData, collection: Collection) -> sa.Table:
    """The table of a collection with its indexes. The column `embedding` comes with the extension pgvector, see `extension`."""
    name = collection.name
    columns: list[sa.Column[Any]] = [sa.Column(c, kind, nullable=nullable) for c, kind, nullable in SYSTEM_COLUMNS]
    columns += [sa.Column(field_column(f.name), COLUMN_TYPES[f.type], nullable=True) for f in collection.fields]
    columns += [sa.Column(text_column(p.name), TEXT, nullable=True) for p in collection.texts]
    columns.append(sa.Column("body", JSONB(), nullable=True))
    if collection.vector:
        columns.append(sa.Column("vector", sa.LargeBinary(), nullable=True))
    columns.append(sa.Column(checksum_column(collection), sa.BigInteger(), nullable=False))
    columns += [sa.Column("words", sa.BigInteger(), nullable=False), sa.Column("bytes", sa.BigInteger(), nullable=False)]
    if collection.texts:
        columns += [sa.Column("counts", JSONB(), nullable=True), sa.Column("lexemes", TSVECTOR(), nullable=True)]
    table = sa.Table(name, metadata, *columns, sa.PrimaryKeyConstraint("id", "tenant", name=f"pk_{name}"), info={REQUIRED: collection.required})
    c = table.c

    def index(label: str, *over: Any, only: sa.ColumnElement[bool] | None = None, **options: Any) -> None:
        sa.Index(f"ix_{name}_{label}", *over, postgresql_where=only, **options)

    # The way through a partition in order; also all that the statistics of a search read.
    counted = ["record_kind", "role", "words"]
    index("created_at", c.partition_no, c.created_at, c.id, only=c.partition_no.is_not(None), postgresql_include=counted)
    index("passing", c.id, c.tenant, only=c.role.in_([_constant(Role.ARRIVING.value), _constant(Role.CACHED.value)]))
    index("expires_at", c.expires_at, only=c.expires_at.is_not(None))
    index("discard_at", c.discard_at, only=c.discard_at.is_not(None))
    index("owing", c.id, c.tenant, only=c.owed.is_not(None))
    index("age", c.tier, c.created_at, only=c.role == _constant(Role.HOME.value))
    fields = {field_column(f.name): f.type for f in collection.fields}
    for label, over, there in indexes(collection):
        keys = [indexed_part(c[key]) if fields.get(key) is FieldType.TEXT else c[key] for key in over]
        index(label, *keys, only=c[there].is_not(None))
    if collection.texts:  # single writes go to a short list first, which searches read: it is kept short
        index("lexemes", c.lexemes, postgresql_using="gin", postgresql_with={"fastupdate": "on", "gin_pending_list_limit": 1024})
    return table


def indexed_part(text: Any) -> sa.ColumnElement[str]:
    """What of a text field, or of a value to compare it with, is in the field's index."""
    return sa.func.left(text, sa.literal_column(str(INDEXED_CHARACTERS)), type_=sa.Text())


def _constant(text: str) -> sa.ColumnElement[str]:
    return sa.literal_column(f"'{text}'", sa.Text())


@lru_cache(maxsize=256)
def table_of(collection: Collection, schema: str) -> sa.Table:
    """A collection's table, declared once a process. A name that no table can have is refused."""
    name = collection.name
    if not name.isidentifier() or name.startswith((SYSTEM_PREFIX, "pg_")) or len(name.encode()) > 40:
        raise ConfigError(
            f"collection '{name}': the name must be a plain SQL identifier of at most 40 bytes that begins with neither '{SYSTEM_PREFIX}' nor 'pg_'"
        )
    return collection_table(sa.MetaData(schema=schema), collection)
