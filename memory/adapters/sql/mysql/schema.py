"""The tables on MySQL and MariaDB: the adapter's own, and two for each collection.

The second one has the collection's words.

- *Names* of records and partitions are bytes: UTF-8, or the sixteen of a UUID. Every
  server compares them exactly and without padding. An index key counts their bytes, and
  holds at most 3,072.
- *Other text* is LONGTEXT, readable in every client. Its collation compares by code
  point and does not pad.
- *Moments* are microseconds since 1970 in a BIGINT. DATETIME(6) is documented only from
  the year 1000 on, and a session's time zone cannot shift an integer.
- *`number`* belongs to a record permanently. The adapter assigns it, see
  `batch.NumberAllocator`. New rows go to the end of the table, and other indexes refer
  to the number in eight bytes.
- *Some columns* are NULL in nearly every row. The servers have no partial indexes, and
  an index over such a column is nearly as good.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.mysql import (
    BIGINT,
    DOUBLE,
    INTEGER,
    LONGBLOB,
    LONGTEXT,
    SMALLINT,
    TINYINT,
    VARBINARY,
    VARCHAR,
)

from memory.adapters.sql import schema
from memory.adapters.sql.codec import ID
from memory.adapters.sql.columns import PARTITIONS, REQUIRED, field_column, indexes
from memory.adapters.sql.declared import Growth
from memory.adapters.sql.naming import DEFAULT_PREFIX, LONGEST_COLLECTION, TableNames
from memory.adapters.sql.schema import INDEXED_CHARACTERS, ORDERED, ColumnTypes, row_columns, with_absent
from memory.adapters.sql.server.partitions import SCOPE_BYTES, TENANT_BYTES
from memory.domain.errors import ConfigError
from memory.ports.collections import ORDERED_BYTES, Collection, FieldType

_LONG_KINDS = (FieldType.TEXT, FieldType.TAGS, FieldType.BYTES)

LONG, FLAG = BIGINT(), TINYINT()
OPTIONS: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_row_format": "DYNAMIC",
    "mysql_charset": "utf8mb4",
}


def types(collation: str) -> ColumnTypes:
    """Return the columns' types under the server's collation."""
    text = LONGTEXT(charset="utf8mb4", collation=collation)
    return {
        "tenant": VARBINARY(TENANT_BYTES),
        "scope": VARBINARY(SCOPE_BYTES),
        "name": VARBINARY(64),
        "word": VARCHAR(16, charset="ascii", collation="ascii_bin"),
        ID: sa.BINARY(16),
        ORDERED: VARCHAR(ORDERED_BYTES, charset="utf8mb4", collation=collation),
        FieldType.TEXT: text,
        FieldType.INTEGER: LONG,
        FieldType.REAL: DOUBLE(asdecimal=False),
        FieldType.BOOLEAN: FLAG,
        FieldType.TIME: LONG,
        FieldType.TAGS: text,
        FieldType.BYTES: LONGBLOB(),
    }


def system_tables(metadata: sa.MetaData, collation: str, names: TableNames) -> None:
    """Declare the adapter's own tables."""
    schema.system_tables(metadata, types(collation), names, **OPTIONS)
    sa.Table(  # the last record number given out
        names.numbers,
        metadata,
        sa.Column("name", VARBINARY(64), primary_key=True),
        sa.Column("given", LONG, nullable=False),
        **OPTIONS,
    )


def collection_table(
    metadata: sa.MetaData, collection: Collection, collation: str, names: TableNames
) -> sa.Table:
    """Declare the table of a collection with its indexes.

    `length` is the number of words. `owing` is 1 where a step is pending. `lexemes` is
    the record's segment in the table of words, 0 while the record waits to be indexed.
    """
    name = collection.name
    columns = [
        sa.Column("number", LONG, primary_key=True, autoincrement=False),
        *row_columns(collection, types(collation)),
    ]
    columns += [
        sa.Column("length", LONG, nullable=False),
        sa.Column("owing", FLAG, nullable=True),
        sa.Column("lexemes", LONG, nullable=True),
    ]
    info = {REQUIRED: collection.required, PARTITIONS: names.partitions}
    key = sa.UniqueConstraint("tenant", "id", name=f"uq_{name}")
    table = sa.Table(names.table(name), metadata, *columns, key, info=info, **OPTIONS)

    def index(label: str, *over: str, **options: Any) -> None:
        sa.Index(f"ix_{name}_{label}", *(table.c[c] for c in over), **options)

    index("created_at", "partition_no", "created_at", "id")  # the way through a partition in order
    index("members", "partition_no", "number", "role", "length")  # the statistics of a search read only these
    index("expires_at", "expires_at")
    index("discard_at", "discard_at")
    index("owing", "owing")
    if collection.texts:
        index("lexemes", "lexemes", "partition_no")
    index(
        "role", "role", "tier", "created_at", mysql_length={"tier": INDEXED_CHARACTERS}
    )  # the few that pass; and of the homes those that are old
    fields = {
        field_column(f.name): f.type for f in collection.fields if f.name not in collection.ordered_texts
    }
    for label, over, _ in indexes(collection):
        lengths = {column: INDEXED_CHARACTERS for column in over if fields.get(column) in _LONG_KINDS}
        index(label, *over, **({"mysql_length": lengths} if lengths else {}))
    return table


def collection_words(metadata: sa.MetaData, collection: Collection, names: TableNames) -> sa.Table:
    """Declare the words of a collection, see `memory.adapters.sql.mysql.words`."""
    return sa.Table(
        names.words(collection.name),
        metadata,
        sa.Column("partition_no", LONG, primary_key=True, autoincrement=False),
        sa.Column("bucket", SMALLINT(), primary_key=True, autoincrement=False),
        sa.Column("segment", LONG, primary_key=True, autoincrement=False),
        sa.Column("part", INTEGER(), primary_key=True, autoincrement=False),
        sa.Column("postings", LONGBLOB(), nullable=False),
        **OPTIONS,
    )


@lru_cache(maxsize=256)
def table_of(
    collection: Collection, collation: str, names: TableNames, stored: Collection | None = None
) -> sa.Table:
    """Return a collection's table, declared once per process, or as it is `stored`.

    Its words are in the same metadata. A name that no table can have is refused.
    """
    if stored is not None:
        return with_absent(
            table_of.__wrapped__(stored, collation, names), Growth(stored, collection), types(collation)
        )
    name = collection.name
    if (
        not name.isidentifier()
        or not name.isascii()
        or names.is_taken(name)
        or len(name) > LONGEST_COLLECTION
    ):
        raise ConfigError(
            f"collection '{name}': the name must be a plain ASCII identifier of at most {LONGEST_COLLECTION}"
            f" characters. It must not begin with '{DEFAULT_PREFIX}' or be one of the adapter's own tables"
        )
    metadata = sa.MetaData()
    table = collection_table(metadata, collection, collation, names)
    if collection.texts:
        collection_words(metadata, collection, names)
    return table
