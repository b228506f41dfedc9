"""Records whose words are not in the full-text index yet.

A single write into FTS5 costs as much as all the rest of it, because every commit makes a segment of its own; many at once cost little.
So single writes only note the row here, and the one that finds enough of them indexes them all. A search reads the few noted rows itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from memory.adapters.sql.session import Session
from memory.adapters.sql.shelf import Shelf

Stems: TypeAlias = Sequence[Sequence[str]]
"""The words of each text part."""

ENOUGH = 32

_NOTE = "INSERT INTO memory_pending (collection, number, partition_no) VALUES (?, ?, ?)"
_STRIKE = "DELETE FROM memory_pending WHERE collection = ? AND number = ?"
_STRIKE_ALL = "DELETE FROM memory_pending WHERE collection = ?"
_COUNT = "SELECT count(*) FROM memory_pending WHERE collection = ?"
_ALL = "SELECT number, partition_no FROM memory_pending WHERE collection = ?"
_IS_NOTED = "SELECT 1 FROM memory_pending WHERE collection = ? AND number = ?"


class WordsOf:
    """What one write transaction does to the index of one collection."""

    def __init__(self, session: Session, shelf: Shelf) -> None:
        self._session = session
        self._shelf = shelf
        self._new: dict[int, tuple[int, Stems]] = {}

    def add(self, number: int, partition: int, stems: Stems) -> None:
        self._new[number] = (partition, stems)

    def remove(self, number: int) -> None:
        """Take a row's words out, wherever they are."""
        if self._new.pop(number, None) is not None or self._shelf.words is None:
            return
        if self._session.row(_IS_NOTED, (self._shelf.name, number)) is not None:
            self._session.run(_STRIKE, (self._shelf.name, number))
        else:
            self._shelf.words.remove(self._session, number)

    def finish(self) -> None:
        """Note the new rows, or index them with all that were noted before."""
        words, session, name = self._shelf.words, self._session, self._shelf.name
        if not self._new or words is None:
            return
        if len(self._new) + session.row(_COUNT, (name,))[0] < ENOUGH:
            for number, (partition, _) in self._new.items():
                session.run(_NOTE, (name, number, partition))
            return
        for number, partition, stems in _noted(session, self._shelf):
            words.add(session, number, partition, stems)
        session.run(_STRIKE_ALL, (name,))
        for number, (partition, stems) in sorted(self._new.items()):
            words.add(session, number, partition, stems)


def noted(session: Session, shelf: Shelf, partitions: Sequence[int]) -> Mapping[int, list[tuple[int, Stems]]]:
    """The rows of these partitions that a search must read itself, by partition."""
    found: dict[int, list[tuple[int, Stems]]] = {}
    for number, partition, stems in _noted(session, shelf, frozenset(partitions)):
        found.setdefault(partition, []).append((number, stems))
    return found


def _noted(session: Session, shelf: Shelf, partitions: frozenset[int] | None = None) -> list[tuple[int, int, Stems]]:
    where = {n: p for n, p in session.rows(_ALL, (shelf.name,)) if partitions is None or p in partitions}
    return [(f.number, where[f.number], shelf.layout.stems(f.row)) for f in sorted(shelf.at(session, list(where)), key=lambda f: f.number)]
