"""Statements built by SQLAlchemy, cached in the driver's form.

Building and compiling a statement takes ten times as long as running it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from memory.adapters.sql.conditions import is_ours
from memory.adapters.sql.shapes import Values


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement in the driver's form.

    The dialect's own values follow a call's values. `places` says which value goes
    where; None means in order.
    """

    sql: str
    own: tuple[Any, ...]
    places: tuple[int, ...] | None

    def arguments(self, values: Values) -> Values:
        values += self.own
        return values if self.places is None else [values[i] for i in self.places]


def compile_statement(dialect: sa.Dialect, statement: sa.Select[Any], count: int) -> Statement:
    """Return the statement in the dialect's SQL; a call brings `count` values."""
    made: Any = statement.compile(dialect=dialect, compile_kwargs={"render_postcompile": True})
    names: list[str] = list(made.positiontup or ())
    own = [name for name in names if not is_ours(name)]
    places = tuple([int(name[1:]) if is_ours(name) else count + own.index(name) for name in names])
    in_order = places == tuple(
        range(count + len(own))
    )  # SQLAlchemy leaves out values that it knows to be without effect
    return Statement(str(made), tuple([made.params[name] for name in own]), None if in_order else places)


def cached_statement(
    statements: dict[Any, Statement], most: int, key: Any, build: Callable[[], Statement]
) -> Statement:
    """Return the statement cached under the key, or build it.

    Once `most` statements are cached, all are dropped first.
    """
    found = statements.get(key)
    if found is None:
        if len(statements) >= most:
            statements.clear()
        found = statements[key] = build()
    return found
