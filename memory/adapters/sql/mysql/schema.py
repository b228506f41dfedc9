"""The tables on MySQL and MariaDB: those of the adapter itself, one for each collection, and one for its words.

What names a record or a partition is VARBINARY, UTF-8 as it is: bytes compare exactly and without padding on every server, and an index key
counts them one by one (3,072 at most, so a tenant has up to 1,000 and an id or a scope up to 2,000). Other text is LONGTEXT under the
server's collation that goes by code point and does not pad, readable in every client. Moments are microseconds since 1970 in a BIGINT:
DATETIME(6) is documented from the year 1000 on only, and a session's time zone cannot shift an integer.

`number` is a record's own for good and given by the adapter (`numbers`): new rows go to the end of the table, other indexes refer to it in
eight bytes. Some columns are NULL in nearly every row: the servers have no partial indexes, and an index over such a column is nearly as good.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.mysql import BIGINT, DOUBLE, INTEGER, LONGBLOB, LONGTEXT, SMALLINT, TINYINT, VARBINARY

from memory.adapters.sql.columns import REQUIRED, SYSTEM_PREFIX, checksum_column, field_column, indexes, text_column
from memory.adapters.sql.migrate import REGISTRY, VERSION_TABLE
from memory.domain.errors import ConfigError
from memory.ports.collections import Collection, FieldType

TENANT_BYTES, NAME_BYTES = 1_000, 2_000
INDEXED_CHARACTERS = 100
"""So many characters of a text field are in its index: 400 bytes at most."""
_LONG_KINDS = (FieldType.TEXT, FieldType.TAGS, FieldType.BYTES)
LONGEST_NAME = 40
"""Of a collection, so that the names of its tables and indexes fit into 64 characters."""

TENANT, NAME = VARBINARY(TENANT_BYTES), VARBINARY(NAME_BYTES)
LONG, FLAG = BIGINT(), TINYINT()
OPTIONS: dict[str, Any] = {"mysql_engine": "InnoDB", "mysql_row_format": "DYNAMIC", "mysql_charset": "utf8mb4"}

# What every collection's table begins with. The order is that of a row, and rows.py counts on it: add at the end only.
SYSTEM_COLUMNS: tuple[tuple[str, str, bool], ...] = (
    ("number", "long", False),
    ("tenant", "tenant", False),
    ("id", "name", False),
    ("record_kind", "word", False),  # record, mark, tombstone, corrupt
    ("partition_no", "long", True),  # live records only: nothing else is found by scope
    ("scope", "name", True),
    ("version", "long", False),
    ("generation", "long", True),
    ("role", "word", True),
    ("tier", "text", True),
    ("created_at", "long", True),
    ("updated_at", "long", True),
    ("expires_at", "long", True),
    ("accesses", "long", False),
    ("accessed_at", "long", True),
    ("previous", "long", True),
    ("moved_to", "text", True),
    ("cached_at", "long", True),
    ("epoch", "text", True),
    ("discard_at", "long", True),
    ("owed", "text", True),  # JSON, NULL where nothing is owed
    ("note", "text", True),  # JSON
)
DERIVED = ("words", "bytes", "owing", "lexemes")
"""Behind the content and its checksum: what is made from it for searching and counting.

`owing` is 1 where something is owed; `lexemes` is the segment of the table of words that the record's are in, 0 while they are still to come.
"""


def types(collation: str) -> dict[str, sa.types.TypeEngine[Any]]:
    """The columns' types under the server's collation."""
    text = LONGTEXT(charset="utf8mb4", collation=collation)
    return {
        "long": LONG,
        "tenant": TENANT,
        "name": NAME,
        "text": text,
        "word": sa.dialects.mysql.VARCHAR(16, charset="ascii", collation="ascii_bin"),
        FieldType.TEXT: text,
        FieldType.INTEGER: LONG,
        FieldType.REAL: DOUBLE(asdecimal=False),
        FieldType.BOOLEAN: FLAG,
        FieldType.TIME: LONG,
        FieldType.TAGS: text,
        FieldType.BYTES: LONGBLOB(),
    }


def words_table(collection: Collection) -> str:
    """Where the words of a collection are: under a name that no collection can have."""
    return f"{SYSTEM_PREFIX}words_{collection.name}"


def system_tables(metadata: sa.MetaData, collation: str) -> None:
    """The adapter's own tables."""
    text = types(collation)["text"]
    sa.Table(
        "memory_partitions",
        metadata,
        sa.Column("number", LONG, primary_key=True, autoincrement=True),
        sa.Column("tenant", TENANT, nullable=False),
        sa.Column("scope", NAME, nullable=False),
        sa.Column("generation", LONG, nullable=False),
        sa.UniqueConstraint("tenant", "scope", name="uq_memory_partitions"),
        **OPTIONS,
    )
    sa.Table(  # up to where the numbers of records are given out
        "memory_numbers",
        metadata,
        sa.Column("name", VARBINARY(64), primary_key=True),
        sa.Column("given", LONG, nullable=False),
        **OPTIONS,
    )
    sa.Table(  # rows that could not be read, as they were found
        "memory_quarantine",
        metadata,
        sa.Column("collection", VARBINARY(64), primary_key=True),
        sa.Column("number", LONG, primary_key=True, autoincrement=False),
        sa.Column("tenant", TENANT, nullable=False),
        sa.Column("id", NAME, nullable=False),
        sa.Column("partition_no", LONG, nullable=True),
        sa.Column("problem", text, nullable=False),
        sa.Column("found_at", LONG, nullable=False),
        sa.Column("content", text, nullable=False),
        **OPTIONS,
    )
    sa.Table(VERSION_TABLE, metadata, sa.Column("version_num", VARBINARY(32), primary_key=True), **OPTIONS)
    sa.Table(  # what each collection's table was made for
        REGISTRY,
        metadata,
        sa.Column("name", VARBINARY(64), primary_key=True),
        sa.Column("declaration", text, nullable=False),
        **OPTIONS,
    )


def collection_table(metadata: sa.MetaData, collection: Collection, collation: str) -> sa.Table:
    """The table of a collection with its indexes."""
    name, kinds = collection.name, types(collation)
    columns: list[sa.Column[Any]] = [
        sa.Column(c, kinds[kind], nullable=nullable, primary_key=c == "number", autoincrement=False) for c, kind, nullable in SYSTEM_COLUMNS
    ]
    columns += [sa.Column(field_column(f.name), kinds[f.type], nullable=True) for f in collection.fields]
    columns += [sa.Column(text_column(p.name), kinds["text"], nullable=True) for p in collection.texts]
    columns.append(sa.Column("body", kinds["text"], nullable=True))
    if collection.vector:
        columns.append(sa.Column("vector", LONGBLOB(), nullable=True))
    columns += [sa.Column(c, LONG, nullable=False) for c in (checksum_column(collection), "words", "bytes")]
    columns += [sa.Column("owing", FLAG, nullable=True), sa.Column("lexemes", LONG, nullable=True)]
    table = sa.Table(
        name, metadata, *columns, sa.UniqueConstraint("tenant", "id", name=f"uq_{name}"), info={REQUIRED: collection.required}, **OPTIONS
    )

    def index(label: str, *over: str, **options: Any) -> None:
        sa.Index(f"ix_{name}_{label}", *(table.c[c] for c in over), **options)

    index("created_at", "partition_no", "created_at", "id")  # the way through a partition in order
    index("members", "partition_no", "number", "role", "words")  # all that the statistics of a search read
    index("expires_at", "expires_at")
    index("discard_at", "discard_at")
    index("owing", "owing")
    if collection.texts:
        index("lexemes", "lexemes", "partition_no")
    index("role", "role", "tier", "created_at", mysql_length={"tier": INDEXED_CHARACTERS})  # the few that pass; and of the homes those that are old
    fields = {field_column(f.name): f.type for f in collection.fields}
    for label, over, _ in indexes(collection):
        over = over[:-1] if over[0] == "tenant" and over[-1] == "id" else over  # both names are too long for one key
        lengths = {column: INDEXED_CHARACTERS for column in over if fields.get(column) in _LONG_KINDS}
        index(label, *over, **({"mysql_length": lengths} if lengths else {}))
    return table


def collection_words(metadata: sa.MetaData, collection: Collection) -> sa.Table:
    """The words of a collection, see `memory.adapters.sql.mysql.words`."""
    return sa.Table(
        words_table(collection),
        metadata,
        sa.Column("partition_no", LONG, primary_key=True, autoincrement=False),
        sa.Column("drawer", SMALLINT(), primary_key=True, autoincrement=False),
        sa.Column("segment", LONG, primary_key=True, autoincrement=False),
        sa.Column("part", INTEGER(), primary_key=True, autoincrement=False),
        sa.Column("postings", LONGBLOB(), nullable=False),
        **OPTIONS,
    )


@lru_cache(maxsize=256)
def table_of(collection: Collection, collation: str) -> sa.Table:
    """A collection's table, declared once a process; its words are in the same metadata. A name that no table can have is refused."""
    name = collection.name
    if not name.isidentifier() or not name.isascii() or name.startswith(SYSTEM_PREFIX) or len(name) > LONGEST_NAME:
        raise ConfigError(
            f"collection '{name}': the name must be a plain ASCII identifier of at most {LONGEST_NAME} characters that does not begin "
            f"with '{SYSTEM_PREFIX}'"
        )
    metadata = sa.MetaData()
    table = collection_table(metadata, collection, collation)
    if collection.texts:
        collection_words(metadata, collection)
    return table
