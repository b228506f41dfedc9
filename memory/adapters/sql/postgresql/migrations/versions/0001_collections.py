"""The first schema: the adapter's tables, and one table a collection.

A migration is history: it repeats what the declarations were then and never looks at what they are now.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, TSVECTOR

revision = "0001"
down_revision = None

TEXT = sa.Text(collation="C")
LONG = sa.BigInteger()
TIME = sa.DateTime(timezone=True)
TYPES: dict[str, sa.types.TypeEngine[Any]] = {"text": TEXT, "integer": LONG, "real": sa.Double(), "time": TIME, "tags": ARRAY(TEXT)}

ENTRY_FIELDS = (
    "scope_kind text, type text, tags tags, source text, confidence real, conversation_id text, valid_from time, valid_to time, "
    "promoted_from_id text, request_digest text"
)
ENTRY_TEXTS = "title content tags source"
ENTRY_INDEXES = "type conversation_id"


def upgrade() -> None:
    schema: str = context.config.attributes["schema"]
    system_tables(schema)
    collection(schema, "entries", ENTRY_FIELDS, ENTRY_TEXTS, ENTRY_INDEXES, vector=True)
    version_fields = f"{ENTRY_FIELDS}, entry_id text, stored_version integer, replaced_version integer"
    collection(schema, "entry_versions", version_fields, ENTRY_TEXTS, f"{ENTRY_INDEXES} entry_id", vector=True)
    collection(schema, "relations", "source_id text, target_id text, relation text", indexed="source_id target_id")
    collection(schema, "operations", "kind text")
    collection(schema, "leases", "holder text, until time")
    collection(schema, "settings")
    register(schema)


def system_tables(schema: str) -> None:
    op.create_table(
        "memory_partitions",
        sa.Column("number", LONG, sa.Identity(always=True), primary_key=True),
        sa.Column("tenant", TEXT, nullable=False),
        sa.Column("scope", TEXT, nullable=False),
        sa.Column("generation", LONG, nullable=False),
        sa.UniqueConstraint("tenant", "scope", name="uq_memory_partitions"),
        schema=schema,
    )
    op.create_table(
        "memory_counters",
        sa.Column("partition_no", LONG, primary_key=True),
        sa.Column("name", TEXT, primary_key=True),
        sa.Column("value", LONG, nullable=False),
        schema=schema,
    )
    op.create_table(
        "memory_quarantine",
        sa.Column("collection", TEXT, primary_key=True),
        sa.Column("tenant", TEXT, primary_key=True),
        sa.Column("id", TEXT, primary_key=True),
        sa.Column("partition_no", LONG, nullable=True),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.Column("found_at", TIME, nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        schema=schema,
    )
    op.create_table(
        "memory_collections",
        sa.Column("name", TEXT, primary_key=True),
        sa.Column("declaration", sa.Text(), nullable=False),
        schema=schema,
    )


def collection(schema: str, name: str, fields: str = "", texts: str = "", indexed: str = "", vector: bool = False) -> None:
    pairs = [(field.split()[0], field.split()[1]) for field in fields.split(",") if field]
    columns: list[sa.Column[Any]] = [
        sa.Column("tenant", TEXT, nullable=False),
        sa.Column("id", TEXT, nullable=False),
        sa.Column("record_kind", TEXT, nullable=False),
        sa.Column("partition_no", LONG, nullable=True),
        sa.Column("scope", TEXT, nullable=True),
        sa.Column("version", LONG, nullable=False),
        sa.Column("generation", LONG, nullable=True),
        sa.Column("role", TEXT, nullable=True),
        sa.Column("tier", TEXT, nullable=True),
        sa.Column("created_at", TIME, nullable=True),
        sa.Column("updated_at", TIME, nullable=True),
        sa.Column("expires_at", TIME, nullable=True),
        sa.Column("accesses", LONG, nullable=False),
        sa.Column("accessed_at", TIME, nullable=True),
        sa.Column("previous", LONG, nullable=True),
        sa.Column("moved_to", TEXT, nullable=True),
        sa.Column("cached_at", TIME, nullable=True),
        sa.Column("epoch", TEXT, nullable=True),
        sa.Column("discard_at", TIME, nullable=True),
        sa.Column("owed", JSONB(), nullable=True),
        sa.Column("note", JSONB(), nullable=True),
        *[sa.Column(field, TYPES[kind], nullable=True) for field, kind in pairs],
        *[sa.Column(f"text_{part}", TEXT, nullable=True) for part in texts.split()],
        sa.Column("body", JSONB(), nullable=True),
        *([sa.Column("vector", sa.LargeBinary(), nullable=True)] if vector else []),
        sa.Column("checksum", LONG, nullable=False),
        sa.Column("words", LONG, nullable=False),
        sa.Column("bytes", LONG, nullable=False),
    ]
    if texts:
        columns += [sa.Column("counts", JSONB(), nullable=True), sa.Column("lexemes", TSVECTOR(), nullable=True)]
    table = op.create_table(name, *columns, sa.PrimaryKeyConstraint("tenant", "id", name=f"pk_{name}"), schema=schema)

    def index(label: str, *over: Any, only: str | None = None, **options: Any) -> None:
        condition = None if only is None else sa.text(only)
        op.create_index(f"ix_{name}_{label}", name, list(over), schema=schema, postgresql_where=condition, **options)

    assert table is not None  # noqa: S101 - made just now
    counted = ["record_kind", "role", "words"]
    index("created_at", "partition_no", "created_at", "id", only="partition_no IS NOT NULL", postgresql_include=counted)
    index("passing", "id", "tenant", only="role IN ('arriving', 'cached')")
    index("expires_at", "expires_at", only="expires_at IS NOT NULL")
    index("discard_at", "discard_at", only="discard_at IS NOT NULL")
    index("owing", "id", "tenant", only="owed IS NOT NULL")
    for field in indexed.split():
        key = sa.text(f'"left"({field}, 100)') if dict(pairs)[field] == "text" else field
        index(f"field_{field}", "tenant", key, "partition_no", only=f"{field} IS NOT NULL")
    if texts:
        index("lexemes", "lexemes", postgresql_using="gin", postgresql_with={"fastupdate": "on", "gin_pending_list_limit": 1024})


def register(schema: str) -> None:
    """What the tables were made for."""
    entry = (
        '["scope_kind","text",false],["type","text",true],["tags","tags",true],["source","text",false],["confidence","real",false],'
        '["conversation_id","text",true],["valid_from","time",false],["valid_to","time",false],["promoted_from_id","text",false],'
        '["request_digest","text",false]'
    )
    version = '["entry_id","text",true],["stored_version","integer",false],["replaced_version","integer",false]'
    parts = '["title","content","tags","source"]'
    relations = '["source_id","text",true],["target_id","text",true],["relation","text",false]'
    for name, declaration in (
        ("entries", f'{{"fields":[{entry}],"texts":{parts},"vector":true}}'),
        ("entry_versions", f'{{"fields":[{entry},{version}],"texts":{parts},"vector":true}}'),
        ("relations", f'{{"fields":[{relations}],"texts":[],"vector":false}}'),
        ("operations", '{"fields":[["kind","text",false]],"texts":[],"vector":false}'),
        ("leases", '{"fields":[["holder","text",false],["until","time",false]],"texts":[],"vector":false}'),
        ("settings", '{"fields":[],"texts":[],"vector":false}'),
    ):
        table = sa.table("memory_collections", sa.column("name"), sa.column("declaration"), schema=schema)
        op.execute(table.insert().values(name=name, declaration=declaration))
