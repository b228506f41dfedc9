"""The session for work in the driver's thread: one connection in one transaction.

Its calls return when they are done. So no coroutine that uses it waits for the event
loop, and neither do the coroutines that all dialects share.

Statements that run for every record go to the driver's cursor as prepared strings.
SQLAlchemy's execution costs 30 to 60 µs a statement; a whole write on SQLite costs
less. SQLAlchemy builds the statements of a caller's filter, once for each shape (see
`memory.adapters.sql.questions`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from memory.adapters.sql.bodies import Paths
from memory.adapters.sql.sqlite.config import Thresholds
from memory.ports.collections import Collection

Values = Sequence[Any]


class DeclaredCollections:
    """The collections as their tables are, by name.

    All connections of a store share them. A table that grows replaces the mapping.
    """

    def __init__(self) -> None:
        self.tables: Mapping[str, Collection] = {}
        self.json_paths: Paths = {}
        """The paths in bodies that have an index, by collection."""


class Session:
    """A connection as the sync functions see it; it never leaves its thread."""

    __slots__ = ("_cursor", "connection", "declared", "thresholds")

    def __init__(
        self, connection: sa.Connection, thresholds: Thresholds, declared: DeclaredCollections
    ) -> None:
        if not connection.in_transaction():
            connection.begin()  # the driver handles transactions: this stops SQLAlchemy from ending one
        self.connection = connection
        self.thresholds = thresholds
        self.declared = declared
        self._cursor: Any = connection.connection.cursor()

    def rows(self, sql: str, values: Values = ()) -> list[Any]:
        """Return all rows of a prepared statement."""
        fetched: list[Any] = self._cursor.execute(sql, values).fetchall()
        return fetched

    def row(self, sql: str, values: Values = ()) -> Any:
        """Return the first row, or None where there is none."""
        return self._cursor.execute(sql, values).fetchone()

    def run(self, sql: str, values: Values = ()) -> int:
        """Execute a statement; return the number of the inserted row, if any."""
        self._cursor.execute(sql, values)
        return int(self._cursor.lastrowid or 0)

    def roll_back(self) -> None:
        """End the transaction, unless SQLite has: it does if the disk becomes full."""
        if self._cursor.connection.in_transaction:
            self.run("ROLLBACK")

    def run_many(self, sql: str, values: Iterable[Values]) -> int:
        """Execute a statement once per value; return the number of changed rows."""
        self._cursor.executemany(sql, values)
        return int(self._cursor.rowcount)

    def insert(self, sql: str, values: Values) -> int | None:
        """Insert a row; return its number, or None if none was inserted."""
        self._cursor.execute(sql, values)
        return int(self._cursor.lastrowid) if self._cursor.rowcount else None
