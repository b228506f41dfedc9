"""Words in a plain table of their own instead of FTS5, and numbers of partitions that are never given twice.

The words themselves are derived from the records: open makes them anew where `indexed_to` is not NULL.
"""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

LONG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    connection = op.get_bind()
    op.drop_table("memory_pending")
    made = {name: json.loads(declared)["texts"] for name, declared in connection.execute(sa.text("SELECT name, declaration FROM memory_collections"))}
    for name in [name for name, texts in made.items() if texts]:
        op.execute(f"DROP TABLE IF EXISTS {name}_words_instances")
        op.execute(f"DROP TABLE IF EXISTS {name}_words")
        op.create_table(
            f"{name}_words",
            sa.Column("partition_no", LONG, primary_key=True),
            sa.Column("word", sa.Text(), primary_key=True),
            sa.Column("number", LONG, primary_key=True),
            sa.Column("counts", sa.BigInteger(), nullable=False),
            sqlite_with_rowid=False,
        )
        op.execute(f"CREATE VIEW {name}_words_instances AS SELECT word AS term, number AS doc, partition_no, counts FROM {name}_words")  # noqa: S608
    again(
        "memory_partitions",
        sa.Column("number", LONG, primary_key=True),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.UniqueConstraint("tenant", "scope", name="uq_memory_partitions"),
        numbered=True,
    )
    again(
        "memory_collections",
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("declaration", sa.Text(), nullable=False),
        sa.Column("indexed_to", sa.BigInteger(), nullable=True),
    )
    collections = sa.table("memory_collections", sa.column("name"), sa.column("indexed_to"))
    for name, texts in made.items():
        op.execute(collections.update().where(collections.c.name == name).values(indexed_to=0 if texts else None))


def again(name: str, *columns: sa.Column[object] | sa.Constraint, numbered: bool = False) -> None:
    """Make the table in another form, with what it holds: SQLite cannot change a column."""
    op.execute(f"CREATE TEMP TABLE was AS SELECT * FROM {name}")  # noqa: S608
    op.drop_table(name)
    op.create_table(name, *columns, sqlite_autoincrement=numbered)
    op.execute(f"INSERT INTO {name} SELECT * FROM was")  # noqa: S608
    op.execute("DROP TABLE was")
