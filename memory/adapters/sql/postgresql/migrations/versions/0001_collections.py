"""The first schema: the adapter's own tables. Those of the collections are made at open, from what is declared there."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context, op

revision = "0001"
down_revision = None

TEXT = sa.Text(collation="C")
LONG = sa.BigInteger()
TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    schema: str = context.config.attributes["schema"]
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
