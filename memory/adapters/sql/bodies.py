"""Indexes on values in bodies, one for each path and type that it may have there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.elements import Grouping

from memory.adapters.sql.conditions import Conditions

Paths = Mapping[str, frozenset[tuple[str, ...]]]
"""The paths in bodies that have an index, by collection."""


def body_indexes(
    table: sa.Table,
    paths: Iterable[tuple[str, ...]],
    make: Callable[[sa.Table], Conditions],
    name: Callable[[str], str],
    key: Callable[[str, Any], Any] = lambda _kind, column: column,
) -> Iterator[sa.Index]:
    """Yield the indexes of a table's paths, on a copy of its declaration.

    On SQLite they leave out rows without the value. PostgreSQL uses the statistics of
    an expression only if its index has all rows.

    Args:
        make: Returns the conditions of the dialect, which write its expressions.
        name: Returns the name of an index from its label.
        key: Returns what of a value is in the index.
    """
    copy = table.to_metadata(sa.MetaData())
    for path in sorted(paths):
        for kind in ("number", "text"):
            digest = blake2b(repr((path, kind)).encode(), digest_size=8).hexdigest()
            column = make(copy).json_column(kind, path)
            there = column.is_not(None)
            yield sa.Index(
                name(f"body_{digest}"),
                Grouping(key(kind, column)),
                sqlite_where=there,
                _table=copy,
            )
