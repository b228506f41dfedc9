"""From candidates to hits: rows are read from the best down, those the filter lets through, until there are enough."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from memory.adapters.sql.filters import Asked
from memory.adapters.sql.members import MemberCache
from memory.adapters.sql.partitions import Numbers
from memory.adapters.sql.ranking import by_meaning, by_words, exact_cosine
from memory.adapters.sql.reads import Spoiled
from memory.adapters.sql.rows import RECORD
from memory.adapters.sql.session import Session
from memory.adapters.sql.shelf import Found, Shelf, shelf_of
from memory.ports.query import Hit, Near, Search
from memory.ports.record import Corrupt, Record


def search(session: Session, search: Search, numbers: Numbers, cache: MemberCache) -> tuple[list[Hit], list[Spoiled]]:
    """The hits, and what was found unreadable among the rows read: then the search is to be made again."""
    shelf = shelf_of(search.collection)
    partitions = numbers.of(session, search.where)
    near = search.by.vector if isinstance(search.by, Near) else None
    held = cache.members(session, shelf, partitions, vectors=near is not None and search.collection.vector)
    partitions = [n for n, _ in held]
    members = [m for _, m in held]
    if isinstance(search.by, Near):
        candidates = by_meaning(search.by.vector, members, search.roles)
    else:
        candidates = by_words(session, shelf, search.by.text, partitions, members, search.roles)
    hits: list[Hit] = []
    spoiled: list[Spoiled] = []
    seen = 0
    wide = search.limit if search.filter is None else 4 * search.limit
    while seen < len(candidates.numbers) and len(hits) < search.limit:
        ranked, scores = candidates.best(seen + wide)
        score_of = dict(zip(ranked[seen:], scores[seen:], strict=True))
        for found in _rows(session, shelf, search, list(score_of)):
            stored = shelf.layout.read(found.row)
            if isinstance(stored, Corrupt):
                spoiled.append(Spoiled(shelf, found.number, stored.key, stored.problem))
            elif isinstance(stored, Record) and stored.role in search.roles:
                hits.append(Hit(stored, score_of[found.number] if near is None else exact_cosine(near, stored)))
        seen, wide = len(ranked), min(4 * wide, 4096)
    hits.sort(key=lambda hit: (-hit.score, hit.record.key.id))
    return hits[: search.limit], spoiled


def _rows(session: Session, shelf: Shelf, search: Search, numbers: Sequence[int]) -> list[Found]:
    """The rows of these candidates that the filter lets through."""
    if search.filter is None:
        return shelf.at(session, numbers)
    table = shelf.table
    wanted = sa.select(table.c.number).where(table.c.number.in_(numbers), table.c.record_kind == RECORD, Asked(shelf).condition(search.filter))
    return shelf.at(session, [n for (n,) in session.select(wanted)])
