"""From ranked rows to hits: the heads of the best rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memory.adapters.sql.partitions import Directory
from memory.adapters.sql.sqlite.members import MemberCache
from memory.adapters.sql.sqlite.passing import FilteredRows, Told, sortable
from memory.adapters.sql.sqlite.ranking import Population, by_meaning, by_words
from memory.adapters.sql.sqlite.session import Session
from memory.adapters.sql.sqlite.table import table_of
from memory.ports.query import Head, Hit, Near, Search


async def search(
    session: Session, directory: Directory[Session], search: Search, cache: MemberCache
) -> list[Hit]:
    """Return the best hits, best first."""
    table = table_of(session, search.collection)
    near = search.by.vector if isinstance(search.by, Near) else None
    vectors = near is not None and search.collection.vector
    population = Population(
        session,
        table,
        cache.members(session, table, search.where, await directory.numbers(session, search.where), vectors),
        search.roles,
    )
    ranked = (
        by_meaning(search.by.vector, population)
        if isinstance(search.by, Near)
        else by_words(table, search.by.text, population)
    )
    passing = FilteredRows(session, table, search.filter, search.roles)
    selection = table.selection(search.select)
    columns = (
        selection.columns if near is None or "vector" in selection.columns else (*selection.columns, "vector")
    )
    rows: dict[int, dict[str, Any]] = {}

    def read(numbers: Sequence[int]) -> list[Told]:
        found = {row[0]: dict(zip(columns, row[1:], strict=True)) for row in passing.among(numbers, columns)}
        rows.update(found)
        return [(number, sortable(row["id"]), row.get("vector")) for number, row in found.items()]

    def head_at(number: int) -> Head | None:
        return selection.read(rows[number])

    hits = [Hit(head, score) for head, score in passing.best(ranked, near, search.limit, read, head_at)]
    return sorted(hits, key=lambda hit: (-hit.score, hit.head.key.id))
