"""The first schema: the adapter's tables, and two tables a collection.

A migration is history: it repeats what the declarations were then and never looks at what they are now. Every step can be repeated.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.dialects.mysql import BIGINT, DOUBLE, INTEGER, LONGBLOB, LONGTEXT, SMALLINT, TINYINT, VARBINARY, VARCHAR

from memory.adapters.sql.mysql.steps import made

revision = "0001"
down_revision = None

LONG, FLAG, TENANT, NAME, SHORT = BIGINT(), TINYINT(), VARBINARY(1000), VARBINARY(2000), VARBINARY(64)
WORD = VARCHAR(16, charset="ascii", collation="ascii_bin")
OPTIONS: dict[str, Any] = {"mysql_engine": "InnoDB", "mysql_row_format": "DYNAMIC", "mysql_charset": "utf8mb4"}

ENTRY_FIELDS = (
    "scope_kind text, type text, tags tags, source text, confidence real, conversation_id text, valid_from time, valid_to time, "
    "promoted_from_id text, request_digest text"
)
ENTRY_TEXTS = "title content tags source"
ENTRY_INDEXES = "type conversation_id"


def upgrade() -> None:
    text = LONGTEXT(charset="utf8mb4", collation=context.config.attributes["collation"])
    system_tables(text)
    collection(text, "entries", ENTRY_FIELDS, ENTRY_TEXTS, ENTRY_INDEXES, vector=True)
    version_fields = f"{ENTRY_FIELDS}, entry_id text, stored_version integer, replaced_version integer"
    collection(text, "entry_versions", version_fields, ENTRY_TEXTS, f"{ENTRY_INDEXES} entry_id", vector=True)
    collection(text, "relations", "source_id text, target_id text, relation text", indexed="source_id target_id")
    collection(text, "operations", "kind text")
    collection(text, "leases", "holder text, until time")
    collection(text, "settings")
    register()


def table(name: str, *columns: Any) -> sa.Table:
    return sa.Table(name, sa.MetaData(), *columns, **OPTIONS)


def system_tables(text: Any) -> None:
    there = op.get_bind()
    made(
        there,
        table(
            "memory_partitions",
            sa.Column("number", LONG, primary_key=True, autoincrement=True),
            sa.Column("tenant", TENANT, nullable=False),
            sa.Column("scope", NAME, nullable=False),
            sa.Column("generation", LONG, nullable=False),
            sa.UniqueConstraint("tenant", "scope", name="uq_memory_partitions"),
        ),
    )
    made(
        there,
        table(
            "memory_counters",
            sa.Column("partition_no", LONG, primary_key=True, autoincrement=False),
            sa.Column("name", NAME, primary_key=True),
            sa.Column("value", LONG, nullable=False),
        ),
    )
    made(there, table("memory_numbers", sa.Column("name", SHORT, primary_key=True), sa.Column("given", LONG, nullable=False)))
    op.execute("INSERT INTO memory_numbers (name, given) VALUES ('records', 0) ON DUPLICATE KEY UPDATE given = given")
    made(
        there,
        table(
            "memory_quarantine",
            sa.Column("collection", SHORT, primary_key=True),
            sa.Column("number", LONG, primary_key=True, autoincrement=False),
            sa.Column("tenant", TENANT, nullable=False),
            sa.Column("id", NAME, nullable=False),
            sa.Column("partition_no", LONG, nullable=True),
            sa.Column("problem", text, nullable=False),
            sa.Column("found_at", LONG, nullable=False),
            sa.Column("content", text, nullable=False),
        ),
    )
    made(there, table("memory_collections", sa.Column("name", SHORT, primary_key=True), sa.Column("declaration", text, nullable=False)))


def collection(text: Any, name: str, fields: str = "", texts: str = "", indexed: str = "", vector: bool = False) -> None:
    kinds = {"text": text, "tags": text, "integer": LONG, "real": DOUBLE(asdecimal=False), "time": LONG}
    pairs = [(field.split()[0], field.split()[1]) for field in fields.split(",") if field]
    records = table(
        name,
        sa.Column("number", LONG, primary_key=True, autoincrement=False),
        sa.Column("tenant", TENANT, nullable=False),
        sa.Column("id", NAME, nullable=False),
        sa.Column("record_kind", WORD, nullable=False),
        sa.Column("partition_no", LONG, nullable=True),
        sa.Column("scope", NAME, nullable=True),
        sa.Column("version", LONG, nullable=False),
        sa.Column("generation", LONG, nullable=True),
        sa.Column("role", WORD, nullable=True),
        sa.Column("tier", text, nullable=True),
        sa.Column("created_at", LONG, nullable=True),
        sa.Column("updated_at", LONG, nullable=True),
        sa.Column("expires_at", LONG, nullable=True),
        sa.Column("accesses", LONG, nullable=False),
        sa.Column("accessed_at", LONG, nullable=True),
        sa.Column("previous", LONG, nullable=True),
        sa.Column("moved_to", text, nullable=True),
        sa.Column("cached_at", LONG, nullable=True),
        sa.Column("epoch", text, nullable=True),
        sa.Column("discard_at", LONG, nullable=True),
        sa.Column("owed", text, nullable=True),
        sa.Column("note", text, nullable=True),
        *[sa.Column(field, kinds[kind], nullable=True) for field, kind in pairs],
        *[sa.Column(f"text_{part}", text, nullable=True) for part in texts.split()],
        sa.Column("body", text, nullable=True),
        *([sa.Column("vector", LONGBLOB(), nullable=True)] if vector else []),
        sa.Column("checksum", LONG, nullable=False),
        sa.Column("words", LONG, nullable=False),
        sa.Column("bytes", LONG, nullable=False),
        sa.Column("owing", FLAG, nullable=True),
        sa.Column("lexemes", LONG, nullable=True),
        sa.UniqueConstraint("tenant", "id", name=f"uq_{name}"),
    )

    def index(label: str, *over: str, **options: Any) -> None:
        sa.Index(f"ix_{name}_{label}", *[records.c[c] for c in over], **options)

    index("created_at", "partition_no", "created_at", "id")
    index("members", "partition_no", "number", "role", "words")
    for single in ("role", "expires_at", "discard_at", "owing"):
        index(single, single)
    if texts:
        index("lexemes", "lexemes", "partition_no")
    for field in indexed.split():
        lengths = {"mysql_length": {field: 100}} if dict(pairs)[field] == "text" else {}
        index(f"field_{field}", "tenant", field, "partition_no", **lengths)
    made(op.get_bind(), records)
    if texts:
        words = table(
            f"memory_words_{name}",
            sa.Column("partition_no", LONG, primary_key=True, autoincrement=False),
            sa.Column("drawer", SMALLINT(), primary_key=True, autoincrement=False),
            sa.Column("segment", LONG, primary_key=True, autoincrement=False),
            sa.Column("part", INTEGER(), primary_key=True, autoincrement=False),
            sa.Column("postings", LONGBLOB(), nullable=False),
        )
        made(op.get_bind(), words)


def register() -> None:
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
        said = sa.text("INSERT INTO memory_collections (name, declaration) VALUES (:name, :said) ON DUPLICATE KEY UPDATE declaration = declaration")
        op.execute(said.bindparams(name=name, said=declaration))
