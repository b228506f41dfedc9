"""Stores number nothing any more: the table of counters goes."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.drop_table("memory_counters")
