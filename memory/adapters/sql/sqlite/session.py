"""What works in the driver's thread has: one connection inside one transaction. Its
calls return when they are done, so nothing that is said over it waits for the event
loop, the coroutines that every dialect shares no more than the rest.

Statements that run for every record go to the driver's cursor as prepared strings:
SQLAlchemy's execution costs 30 to 60 µs a statement, a whole write on SQLite less than
that. What is made of a caller's filter is built by SQLAlchemy once a shape
(`memory.adapters.sql.questions`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from memory.adapters.sql.sqlite.config import Thresholds
from memory.ports.collections import Collection

Values = Sequence[Any]


class DeclaredCollections:
    """The collections as their tables are, by name: shared by all connections of a
    store, and another mapping whenever a table has grown.
    """

    def __init__(self) -> None:
        self.tables: Mapping[str, Collection] = {}


class Session:
    """A connection as the sync functions see it. Never leaves its thread."""

    __slots__ = ("_cursor", "connection", "declared", "thresholds")

    def __init__(
        self, connection: sa.Connection, thresholds: Thresholds, declared: DeclaredCollections
    ) -> None:
        if not connection.in_transaction():
            connection.begin()  # transactions are the driver's affair: this keeps SQLAlchemy from ending one
        self.connection = connection
        self.thresholds = thresholds
        self.declared = declared
        self._cursor: Any = connection.connection.cursor()

    def rows(self, sql: str, values: Values = ()) -> list[Any]:
        """All rows of a prepared statement."""
        fetched: list[Any] = self._cursor.execute(sql, values).fetchall()
        return fetched

    def row(self, sql: str, values: Values = ()) -> Any:
        """The first row, None where there is none."""
        return self._cursor.execute(sql, values).fetchone()

    def run(self, sql: str, values: Values = ()) -> int:
        """Carry out a statement; the number of the row it inserted, where it did."""
        self._cursor.execute(sql, values)
        return int(self._cursor.lastrowid or 0)

    def run_many(self, sql: str, values: Iterable[Values]) -> int:
        """Carry out a statement once for each; how many rows that changed in all."""
        self._cursor.executemany(sql, values)
        return int(self._cursor.rowcount)

    def insert(self, sql: str, values: Values) -> int | None:
        """Insert a row; its number, None where the statement let it be."""
        self._cursor.execute(sql, values)
        return int(self._cursor.lastrowid) if self._cursor.rowcount else None
