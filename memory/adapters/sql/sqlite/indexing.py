"""What one write transaction does to the word index: told row by row, done before the commit.

Words are derived: where the index itself fails, the records are kept all the same, and the collection is marked. Searches by words then
say so until the index is built anew from the records, by `audit(repair=True)` or when the file is next opened.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import NamedTuple

from memory.adapters.sql.sqlite.errors import is_of_a_table
from memory.adapters.sql.sqlite.rows import WORDS
from memory.adapters.sql.sqlite.session import Session
from memory.adapters.sql.sqlite.shelf import Found, Shelf
from memory.adapters.sql.sqlite.words import Counts, Posting, WordIndex

_DOUBTED = "UPDATE memory_collections SET indexed_to = 0 WHERE name = ?"
_TRUSTED = "UPDATE memory_collections SET indexed_to = NULL WHERE name = ?"
IS_DOUBTED = "SELECT 1 FROM memory_collections WHERE name = ? AND indexed_to IS NOT NULL"


class Indexed(NamedTuple):
    """What the index holds, or is to hold, of a row."""

    partition: int
    counts: Counts


NOTHING = Indexed(0, {})


class Indexing:
    """The changes of one collection's words."""

    def __init__(self, session: Session, shelf: Shelf, index: WordIndex) -> None:
        self._session, self._shelf, self._index = session, shelf, index
        self._was: dict[int, Indexed | None] = {}
        """As the transaction found it, by number; None where that cannot be told."""
        self._will: dict[int, Indexed] = {}

    def put(self, number: int, partition: int, counts: Counts) -> None:
        """These are the words of the row now. Where it had others before, `remove` comes first."""
        self._was.setdefault(number, NOTHING)
        self._will[number] = Indexed(partition, counts)

    def remove(self, found: Found) -> None:
        """The row as found has no words any more."""
        if found.number not in self._was:
            self._was[found.number] = self._indexed(found)
        self._will[found.number] = NOTHING

    def _indexed(self, found: Found) -> Indexed | None:
        if not self._shelf.layout.is_sound(found.row):
            return None
        if found.partition is None or not found.row[WORDS]:
            return NOTHING
        return Indexed(found.partition, self._shelf.layout.words(found.row)[1])

    def finish(self) -> None:
        """Change the index. Raises only what is not the index's own failing: a full disk, say."""
        changed = {number: was for number, was in self._was.items() if was != self._will[number]}
        if not changed:
            return
        self._session.run("SAVEPOINT words")
        try:
            self._change(changed)
        except sqlite3.Error as exc:
            if not is_of_a_table(exc):
                raise
            self._session.run("ROLLBACK TO words")
            self._session.run(_DOUBTED, (self._shelf.name,))
        self._session.run("RELEASE words")

    def _change(self, changed: Mapping[int, Indexed | None]) -> None:
        gone: list[tuple[int, str, int]] = []
        new: list[Posting] = []
        unknown = [number for number, was in changed.items() if was is None]
        if unknown:
            self._index.sweep(self._session, unknown)
        for number, found in changed.items():
            was, will = found or NOTHING, self._will[number]
            kept = was.counts if was.partition == will.partition else {}
            gone += [(was.partition, word, number) for word in was.counts if word not in kept or word not in will.counts]
            new += [(will.partition, word, number, count) for word, count in will.counts.items() if kept.get(word) != count]
        if gone and self._index.remove(self._session, gone) != len(gone):
            # Words that should have been in the index were not: for these rows it is mended here, for all others it is doubted.
            self._index.sweep(self._session, list(changed))
            new = [(will.partition, word, n, count) for n, will in self._will.items() if n in changed for word, count in will.counts.items()]
            self._session.run(_DOUBTED, (self._shelf.name,))
        if new:
            self._index.put(self._session, new)


def index_anew(session: Session, shelf: Shelf) -> None:
    """Make the word index from the records, whatever it was, and trust it again."""
    assert shelf.words is not None  # noqa: S101 - asked only for collections with texts
    assert shelf.tables.words is not None  # noqa: S101 - so there is a table of them
    session.run(f"DROP VIEW IF EXISTS {shelf.words.table}_instances")
    session.run(f"DROP TABLE IF EXISTS {shelf.words.table}")
    shelf.tables.words.create(session.connection)
    for rows in shelf.live(session):
        postings: list[Posting] = []
        for found in rows:
            if found.partition is not None and shelf.layout.is_sound(found.row):
                counts = shelf.layout.words(found.row)[1]
                postings += [(found.partition, word, found.number, count) for word, count in counts.items()]
        shelf.words.put(session, postings)
    session.run(_TRUSTED, (shelf.name,))
