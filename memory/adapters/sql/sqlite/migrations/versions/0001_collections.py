"""The first schema: the adapter's tables, and one table a collection.

A migration is history: it repeats what the declarations were then and never looks at what they are now.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

LONG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TYPES: dict[str, sa.types.TypeEngine[Any]] = {
    "text": sa.Text(),
    "integer": sa.BigInteger(),
    "real": sa.Double(),
    "time": sa.BigInteger(),
    "tags": sa.Text(),
}

ENTRY_FIELDS = (
    "scope_kind text, type text, tags tags, source text, confidence real, conversation_id text, valid_from time, valid_to time, "
    "promoted_from_id text, request_digest text"
)
ENTRY_TEXTS = "title content tags source"
ENTRY_INDEXES = "type tags conversation_id"


def upgrade() -> None:
    system_tables()
    collection("entries", ENTRY_FIELDS, ENTRY_TEXTS, ENTRY_INDEXES, vector=True)
    collection(
        "entry_versions",
        f"{ENTRY_FIELDS}, entry_id text, stored_version integer, replaced_version integer",
        ENTRY_TEXTS,
        f"{ENTRY_INDEXES} entry_id",
        vector=True,
    )
    collection("relations", "source_id text, target_id text, relation text", indexed="source_id target_id")
    collection("operations", "kind text")
    collection("leases", "holder text, until time")
    collection("settings")


def system_tables() -> None:
    op.create_table(
        "memory_partitions",
        sa.Column("number", LONG, primary_key=True),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.UniqueConstraint("tenant", "scope", name="uq_memory_partitions"),
    )
    op.create_table(
        "memory_revisions",
        sa.Column("partition_no", LONG, primary_key=True),
        sa.Column("collection", sa.Text(), primary_key=True),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("removals", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "memory_counters",
        sa.Column("partition_no", LONG, primary_key=True),
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("value", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "memory_pending",
        sa.Column("collection", sa.Text(), primary_key=True),
        sa.Column("number", LONG, primary_key=True),
        sa.Column("partition_no", LONG, nullable=False),
    )
    op.create_table(
        "memory_quarantine",
        sa.Column("collection", sa.Text(), primary_key=True),
        sa.Column("tenant", sa.Text(), primary_key=True),
        sa.Column("id", sa.Text(), primary_key=True),
        sa.Column("partition_no", LONG, nullable=True),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.Column("found_at", sa.BigInteger(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
    )
    op.create_table(
        "memory_collections",
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("declaration", sa.Text(), nullable=False),
        sa.Column("indexed_to", sa.BigInteger(), nullable=False),
    )


def collection(name: str, fields: str = "", texts: str = "", indexed: str = "", *, vector: bool = False) -> None:
    declared: list[tuple[str, str]] = [(f.split()[0], f.split()[1]) for f in fields.split(", ") if f]
    parts = texts.split()
    op.create_table(
        name,
        sa.Column("number", LONG, primary_key=True),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.BigInteger(), nullable=False),
        sa.Column("record_kind", sa.Text(), nullable=False),
        sa.Column("partition_no", LONG, nullable=True),
        sa.Column("scope", sa.Text(), nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=True),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("role", sa.Text(), nullable=True),
        sa.Column("tier", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=True),
        sa.Column("updated_at", sa.BigInteger(), nullable=True),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("accesses", sa.BigInteger(), nullable=False),
        sa.Column("accessed_at", sa.BigInteger(), nullable=True),
        sa.Column("words", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("previous", sa.BigInteger(), nullable=True),
        sa.Column("moved_to", sa.Text(), nullable=True),
        sa.Column("cached_at", sa.BigInteger(), nullable=True),
        sa.Column("epoch", sa.Text(), nullable=True),
        sa.Column("discard_at", sa.BigInteger(), nullable=True),
        sa.Column("owed", sa.Text(), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        *(sa.Column(field, TYPES[kind], nullable=True) for field, kind in declared),
        *(sa.Column(f"text_{part}", sa.Text(), nullable=True) for part in parts),
        sa.Column("body", sa.Text(), nullable=True),
        *((sa.Column("vector", sa.LargeBinary(), nullable=True),) if vector else ()),
        sa.Column("checksum", sa.BigInteger(), nullable=False),
        sa.UniqueConstraint("tenant", "id", name=f"uq_{name}"),
    )
    index(name, "fingerprint", ["fingerprint"], unique=True)
    index(name, "members", ["partition_no", "revision", "role", "words"])
    index(name, "created_at", ["partition_no", "created_at", "id", *(field for field, _ in declared if field in indexed.split())])
    index(name, "passing", ["id", "tenant"], "role = 'arriving' OR role = 'cached'")
    index(name, "expires_at", ["expires_at"], "expires_at IS NOT NULL")
    index(name, "discard_at", ["discard_at"], "discard_at IS NOT NULL")
    index(name, "owing", ["tenant", "id"], "owed IS NOT NULL")
    for field in indexed.split():
        if dict(declared)[field] != "tags":
            index(name, f"field_{field}", ["tenant", field, "partition_no"], f"{field} IS NOT NULL")
    if parts:
        words_index(name, [f"text_{part}" for part in parts])
    kinds = ",".join(f'["{field}","{kind}",{"true" if field in indexed.split() else "false"}]' for field, kind in declared)
    names = ",".join(f'"{part}"' for part in parts)
    made_for = f'{{"fields":[{kinds}],"texts":[{names}],"vector":{"true" if vector else "false"}}}'
    registry = sa.table("memory_collections", sa.column("name"), sa.column("declaration"), sa.column("indexed_to"))
    op.execute(registry.insert().values(name=name, declaration=made_for, indexed_to=0))


def index(table: str, label: str, over: list[str], only: str | None = None, *, unique: bool = False) -> None:
    condition = sa.text(only) if only else None
    op.create_index(f"ix_{table}_{label}", table, over, sqlite_where=condition, postgresql_where=condition, unique=unique)


def words_index(table: str, parts: list[str]) -> None:
    if op.get_bind().dialect.name == "sqlite":
        op.execute(f"CREATE VIRTUAL TABLE {table}_words USING fts5({', '.join(parts)}, tokenize = 'ascii', columnsize = 0)")
        op.execute(f"CREATE VIRTUAL TABLE {table}_words_instances USING fts5vocab({table}_words, 'instance')")
        op.execute(f"INSERT INTO {table}_words({table}_words, rank) VALUES ('automerge', 8)")  # noqa: S608
        op.execute(f"INSERT INTO {table}_words({table}_words, rank) VALUES ('crisismerge', 32)")  # noqa: S608
