"""The first schema: the adapter's own tables. Those of the collections are made at open, from what is declared there.

Every step can be repeated.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.dialects.mysql import BIGINT, LONGTEXT, VARBINARY

from memory.adapters.sql.mysql.steps import made

revision = "0001"
down_revision = None

LONG, TENANT, NAME, SHORT = BIGINT(), VARBINARY(1000), VARBINARY(2000), VARBINARY(64)
OPTIONS: dict[str, Any] = {"mysql_engine": "InnoDB", "mysql_row_format": "DYNAMIC", "mysql_charset": "utf8mb4"}


def table(name: str, *columns: Any) -> sa.Table:
    return sa.Table(name, sa.MetaData(), *columns, **OPTIONS)


def upgrade() -> None:
    text = LONGTEXT(charset="utf8mb4", collation=context.config.attributes["collation"])
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
