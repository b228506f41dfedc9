"""Stores number nothing any more: the table of counters goes."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.execute("DROP TABLE IF EXISTS memory_counters")  # every step can be repeated
