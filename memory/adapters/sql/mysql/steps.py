"""Steps of a change to the schema that can be repeated: a crash in the middle of one leaves what doing it again completes."""

from __future__ import annotations

import sqlalchemy as sa


def made(connection: sa.Connection, table: sa.Table) -> None:
    """Create the table, and each of its indexes, where it is missing."""
    inspector = sa.inspect(connection)
    if not inspector.has_table(table.name):
        connection.execute(sa.schema.CreateTable(table))
    there = {index["name"] for index in inspector.get_indexes(table.name)}
    for index in sorted(table.indexes, key=lambda index: str(index.name)):
        if index.name not in there:
            connection.execute(sa.schema.CreateIndex(index))
