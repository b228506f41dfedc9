"""The adapter's own tables, and one table for each declared collection.

`number` is a surrogate key: the word index and the search cache need a small integer
that outlives VACUUM. (id, tenant) is the key that callers know. In the other order,
SQLite would go through all rows of a tenant to answer in the order of ids. Times are
microseconds since 1970, exact in a 64-bit integer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import sqlalchemy as sa

from memory.adapters.sql.columns import PARTITIONS, REQUIRED, field_column, indexes, text_column
from memory.adapters.sql.naming import DEFAULT_PREFIX, IN_A_FILE
from memory.adapters.sql.schema import ORDERED, ColumnTypes, row_columns
from memory.domain.errors import ConfigError
from memory.ports.collections import Collection, FieldType
from memory.ports.record import Role

Long = sa.BigInteger().with_variant(
    sa.Integer(), "sqlite"
)  # SQLite assigns row numbers only with the type INTEGER

COLUMN_TYPES: ColumnTypes = {
    **dict.fromkeys(("tenant", "scope", "word", ORDERED, FieldType.TEXT, FieldType.TAGS), sa.Text()),
    **dict.fromkeys((FieldType.INTEGER, FieldType.TIME), sa.BigInteger()),
    **dict.fromkeys(("id", FieldType.BYTES), sa.LargeBinary()),
    FieldType.REAL: sa.Double(),
    FieldType.BOOLEAN: sa.Boolean(create_constraint=False),
}


def words_table(collection: Collection) -> str:
    """Return the name of a collection's word index."""
    return f"{collection.name}_words"


def system_tables(metadata: sa.MetaData) -> None:
    """Declare the adapter's own tables."""
    sa.Table(
        "memory_partitions",
        metadata,
        sa.Column("number", Long, primary_key=True),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.UniqueConstraint("tenant", "scope", name="uq_memory_partitions"),
        # the number of a forgotten partition is never reused, so that data stored
        # about it stays its own
        sqlite_autoincrement=True,
    )
    # of the records that searches of the collection see there: the revision when one
    # last left, and how often one did
    sa.Table(
        "memory_revisions",
        metadata,
        sa.Column("partition_no", Long, primary_key=True),
        sa.Column("collection", sa.Text(), primary_key=True),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("removals", sa.BigInteger(), nullable=False),
    )
    sa.Table(  # unreadable rows in their original form
        "memory_quarantine",
        metadata,
        sa.Column("collection", sa.Text(), primary_key=True),
        sa.Column("tenant", sa.Text(), primary_key=True),
        sa.Column("id", sa.LargeBinary(), primary_key=True),
        sa.Column("partition_no", Long, nullable=True),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.Column("found_at", sa.BigInteger(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
    )
    sa.Table(IN_A_FILE.version, metadata, sa.Column("version_num", sa.Text(), primary_key=True))
    # the declaration of each collection's table, and the row up to which its words are
    # surely in the word index: NULL for all
    sa.Table(
        IN_A_FILE.registry,
        metadata,
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("declaration", sa.Text(), nullable=False),
        sa.Column("indexed_to", sa.BigInteger(), nullable=True),
    )


def collection_table(metadata: sa.MetaData, collection: Collection) -> sa.Table:
    """Declare the table of a collection with its indexes."""
    name = collection.name
    long = {
        "body",
        "vector",
        "words",
        *[text_column(part.name) for part in collection.texts],
    }  # last in a row: short columns are read without them
    columns = sorted(row_columns(collection, COLUMN_TYPES), key=lambda column: column.name in long)
    derived = [
        sa.Column(derived, sa.BigInteger(), nullable=False)
        for derived in ("revision", "length", "fingerprint")
    ]
    columns = [sa.Column("number", Long, primary_key=True), *derived, *columns]
    info = {REQUIRED: collection.required, PARTITIONS: IN_A_FILE.partitions}
    table = sa.Table(
        name, metadata, *columns, sa.UniqueConstraint("id", "tenant", name=f"uq_{name}"), info=info
    )

    def index(
        label: str, *over: str, only: sa.ColumnElement[bool] | None = None, unique: bool = False
    ) -> None:
        sa.Index(
            f"ix_{name}_{label}",
            *(table.c[c] for c in over),
            sqlite_where=only,
            unique=unique,
        )

    index("fingerprint", "fingerprint", unique=True)
    index("members", "partition_no", "revision", "role", "length")
    # Read in order until a page is full. Its indexed fields exclude most rows that
    # do not match, without reading them.
    index(
        "created_at",
        "partition_no",
        "created_at",
        "id",
        *(field_column(f.name) for f in collection.fields if f.indexed),
    )
    index(
        "passing",
        "id",
        "tenant",
        only=sa.or_(table.c.role == Role.ARRIVING.value, table.c.role == Role.CACHED.value),
    )
    index("expires_at", "expires_at", only=table.c.expires_at.is_not(None))
    index("discard_at", "discard_at", only=table.c.discard_at.is_not(None))
    index("owing", "id", "tenant", only=table.c.owed.is_not(None))
    index(
        "age", "tier", "created_at"
    )  # over all rows: SQLite would use an index of one home for every query about homes
    for label, over, there in indexes(collection):
        index(label, *over, only=table.c[there].is_not(None))
    return table


def word_table(metadata: sa.MetaData, collection: Collection) -> sa.Table | None:
    """Declare the word index of a collection that has texts; see `words`."""
    if not collection.texts:
        return None
    table = sa.Table(
        words_table(collection),
        metadata,
        sa.Column("partition_no", Long, primary_key=True),
        sa.Column("word", sa.Text(), primary_key=True),
        sa.Column("number", Long, primary_key=True),
        sa.Column("counts", sa.BigInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
    sa.event.listen(table, "after_create", sa.DDL(as_vocabulary(table.name)))  # type: ignore[no-untyped-call]
    return table


def as_vocabulary(words: str) -> str:
    """Return a view of the word index in the form of FTS5's vocabulary tables.

    It is for people who look into a file with another program.
    """
    return f"CREATE VIEW {words}_instances AS SELECT word AS term, number AS doc, partition_no, counts FROM {words}"  # noqa: S608


@dataclass(frozen=True, slots=True)
class Tables:
    """One collection's tables and the adapter's own."""

    table: sa.Table
    words: sa.Table | None
    metadata: sa.MetaData


@lru_cache(maxsize=256)
def tables_of(collection: Collection) -> Tables:
    """Return the tables of a collection, declared once per process."""
    if not collection.name.isidentifier() or collection.name.startswith((DEFAULT_PREFIX, "sqlite_")):
        raise ConfigError(
            f"collection '{collection.name}': the name must be a plain SQL identifier that does not begin"
            f" with '{DEFAULT_PREFIX}'"
        )
    metadata = sa.MetaData()
    system_tables(metadata)
    return Tables(collection_table(metadata, collection), word_table(metadata, collection), metadata)
