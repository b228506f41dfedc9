"""Comparisons of values in bodies, which are JSON text, by SQLite's functions."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from memory.adapters.sql.conditions import Conditions, SqlCondition
from memory.adapters.sql.shapes import BY_BODY, Shape, Shaper, path_text
from memory.adapters.sql.sqlite.session import Session


def has_json(session: Session) -> bool:
    """Return whether SQLite was built with its JSON functions."""
    try:
        session.row("SELECT json_valid('{}')")
    except sqlite3.OperationalError:
        return False
    return True


class SqliteShaper(Shaper):
    """Binds paths in bodies as SQLite writes them."""

    def bind_path(self, parts: Sequence[str]) -> str:
        return path_text(parts)


class SqliteConditions(Conditions):
    """Builds conditions with SQLite's JSON functions.

    A damaged body is no JSON, and has no value at any path.
    """

    def scope(self, shape: Shape, walking: bool = False) -> SqlCondition:
        """Return the condition of the place.

        Without statistics, SQLite would rather read a partition in order than use an
        index on bodies. So the place has a form for which no index can be used.
        """
        if BY_BODY not in shape:
            return super().scope(shape, walking)
        nothing: sa.ColumnElement[Any] = sa.literal_column("0")
        if shape[0] == "tenant":
            return sa.func.coalesce(self._table.c.tenant, nothing) == self.value("s")
        there = (self._table.c.partition_no + nothing).in_(self.values("i" * shape[1]))
        return sa.and_(there, sa.func.coalesce(self._table.c.tenant, nothing) == self.value("s"))

    def json_column(self, kind: str, path: sa.BindParameter[Any] | tuple[str, ...]) -> sa.ColumnElement[Any]:
        body = self._table.c.body
        at: Any = _quote(path_text(path)) if isinstance(path, tuple) else path
        is_json, found = sa.func.json_valid(body), sa.func.json_type(body, at)
        if kind == "type":
            return sa.case((is_json, found))
        types = ("text",) if kind == "text" else ("integer", "real")
        is_kind = found.in_([_quote(name) for name in types])
        return sa.case((sa.and_(is_json, is_kind), sa.func.json_extract(body, at)))


def _quote(text: str) -> sa.ColumnElement[str]:
    """Return a text written out, so that an index on the same expression applies."""
    return sa.literal_column("'" + text.replace("'", "''") + "'", sa.Text())
