"""Records whose words are not in the full-text index yet.

A single write into FTS5 costs as much as all the rest of it, because every commit makes a segment of its own; many at once cost little.
So single writes leave their rows behind `indexed_to`, at no cost, and the one that finds enough of them indexes them all. A search reads
the few rows that are not indexed itself. Rows before `indexed_to` whose words were changed since are noted one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from memory.adapters.sql.sqlite.fulltext import WordIndex
from memory.adapters.sql.sqlite.session import Session
from memory.adapters.sql.sqlite.shelf import Shelf

Stems: TypeAlias = Sequence[Sequence[str]]
"""The words of each text part."""

ENOUGH = 32

_NOTE = "INSERT INTO memory_pending (collection, number, partition_no) VALUES (?, ?, ?)"
_STRIKE = "DELETE FROM memory_pending WHERE collection = ? AND number = ?"
_STRIKE_ALL = "DELETE FROM memory_pending WHERE collection = ?"
_STATE = """SELECT indexed_to, (SELECT count(*) FROM memory_pending AS p WHERE p.collection = c.name) FROM memory_collections AS c WHERE name = ?"""
_INDEXED_TO = "UPDATE memory_collections SET indexed_to = max(indexed_to, ?) WHERE name = ?"
_IS_NOTED = "SELECT 1 FROM memory_pending WHERE collection = ? AND number = ?"


class WordsOf:
    """What one write transaction does to the index of one collection."""

    def __init__(self, session: Session, shelf: Shelf, index: WordIndex) -> None:
        self._session = session
        self._shelf = shelf
        self._index = index
        self._new: dict[int, tuple[int, Stems]] = {}
        self._highest = 0
        self._state: tuple[int, int] | None = None

    def inserted(self, number: int) -> None:
        """There is a new row, with words or without."""
        self._highest = max(self._highest, number)

    def add(self, number: int, partition: int, stems: Stems) -> None:
        self._new[number] = (partition, stems)

    def remove(self, number: int) -> None:
        """Take a row's words out, wherever they are."""
        if self._new.pop(number, None) is not None or number > self._found()[0]:
            return
        if self._session.row(_IS_NOTED, (self._shelf.name, number)) is not None:
            self._session.run(_STRIKE, (self._shelf.name, number))
        else:
            self._index.remove(self._session, number)

    def finish(self) -> None:
        """Leave the new rows for later, or index them with all that were left before."""
        if not self._new and not self._highest:
            return
        indexed_to, noted = self._found()
        late = [number for number in self._new if number <= indexed_to]
        highest = max(self._highest, *self._new, indexed_to)
        if highest - indexed_to + noted + len(late) >= ENOUGH:
            self._index_all(highest)
            return
        for number in late:
            self._session.run(_NOTE, (self._shelf.name, number, self._new[number][0]))

    def _index_all(self, highest: int) -> None:
        rows = [row for row in self._session.rows(self._shelf.unindexed) if row[0] not in self._new]
        texts = {row[0]: (row[1], self._shelf.layout.stems_of(row[2:])) for row in rows} | self._new
        for number, (partition, stems) in sorted(texts.items()):
            if any(stems):
                self._index.add(self._session, number, partition, stems)
        self._session.run(_STRIKE_ALL, (self._shelf.name,))
        self._session.run(_INDEXED_TO, (highest, self._shelf.name))

    def _found(self) -> tuple[int, int]:
        """Up to where rows are indexed, and how many before that are noted, as the transaction found it."""
        if self._state is None:
            self._state = self._session.row(_STATE, (self._shelf.name,))
        return self._state


def unindexed(session: Session, shelf: Shelf, partitions: Sequence[int]) -> Mapping[int, list[tuple[int, Stems]]]:
    """The rows of these partitions that a search must read itself, by partition."""
    asked = frozenset(partitions)
    found: dict[int, list[tuple[int, Stems]]] = {}
    for number, partition, *texts in session.rows(shelf.unindexed):
        if partition in asked:
            found.setdefault(partition, []).append((number, shelf.layout.stems_of(texts)))
    return found
