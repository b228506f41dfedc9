"""Stores number nothing any more: the table of counters goes."""

from __future__ import annotations

from alembic import context, op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.drop_table("memory_counters", schema=context.config.attributes["schema"])
