"""The word index: a row for each word of each record, ordered by partition.

So every list that a search reads belongs to one partition.

`memory.ports.lexical` cuts texts into words, as on every backend, and `ranking` scores
them. SQLite only stores and finds rows. The index is a plain table and not FTS5
(decision 020): its rows are deleted one by one, and with `secure_delete` their bytes
too. FTS5 keeps copies of deleted words until all of its segments are merged.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection as Collection_
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from memory.adapters.sql.several import LISTED, portions
from memory.adapters.sql.sqlite.errors import is_of_a_table
from memory.adapters.sql.sqlite.schema import words_table
from memory.adapters.sql.sqlite.session import Session
from memory.ports import lexical
from memory.ports.collections import Collection

Counts: TypeAlias = Mapping[str, int]
"""The frequency of each word of a record in each of its text parts.

`memory.ports.lexical` packs these.
"""
Posting: TypeAlias = tuple[int, str, int, int]
"""A row of the index: partition, word, number of the record's row, packed counts."""


_DOUBTED = "UPDATE memory_collections SET indexed_to = 0 WHERE name = ?"
TRUSTED = "UPDATE memory_collections SET indexed_to = NULL WHERE name = ?"
IS_DOUBTED = "SELECT 1 FROM memory_collections WHERE name = ? AND indexed_to IS NOT NULL"


class PostingList(NamedTuple):
    """The records with a word: the numbers of their rows, and packed counts of each."""

    numbers: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]


class Vocabulary(NamedTuple):
    """The words of some partitions, and the records with each, as SQLite lists them.

    `built` is the version of the file's schema: it changes when an index is rebuilt.
    """

    built: int
    held: Mapping[str, tuple[str, str]]

    @property
    def size(self) -> int:
        """The bytes that it takes, about."""
        return sum(200 + len(numbers) + len(counts) for numbers, counts in self.held.values())

    def same_as(self, other: Vocabulary) -> bool:
        """Whether both have the same postings, in any order."""
        return self.held.keys() == other.held.keys() and all(
            listed == other.held[word] or _in_order(listed) == _in_order(other.held[word])
            for word, listed in self.held.items()
        )


def _in_order(listed: tuple[str, str]) -> list[tuple[str, str]]:
    return sorted(zip(*(part.split(",") for part in listed), strict=True))


def postings_in(numbers: str, counts: str) -> PostingList:
    """Return the postings that SQLite listed.

    Raises:
        ValueError: The stored values are not such numbers.
    """
    found = PostingList(
        np.fromstring(numbers, dtype=np.int64, sep=","), np.fromstring(counts, dtype=np.int64, sep=",")
    )
    if len(found.numbers) != len(found.counts):
        raise ValueError("a record has no count, or a count no record")
    return found


class WordIndex:
    """The statements about one collection's index."""

    def __init__(self, collection: Collection) -> None:
        self.table = name = words_table(collection)
        self._put = f"INSERT OR REPLACE INTO {name} (partition_no, word, number, counts) VALUES (?, ?, ?, ?)"  # noqa: S608
        self._remove = f"DELETE FROM {name} WHERE partition_no = ? AND word = ? AND number = ?"  # noqa: S608
        self._sweep = f"DELETE FROM {name} WHERE number IN "  # noqa: S608
        # Two long strings, not one row per occurrence: SQLite and numpy then work in C,
        # without a Python object for each.
        self._holding = f"SELECT group_concat(number), group_concat(counts) FROM {name} WHERE partition_no = ? AND word = ?"  # noqa: S608
        self._holding_in_many = self._holding.replace("partition_no = ?", f"partition_no IN {LISTED}")
        self._vocabulary = f"SELECT word, group_concat(number), group_concat(counts) FROM {name} WHERE partition_no IN {LISTED} GROUP BY word"  # noqa: S608
        self._count = f"SELECT counts FROM {name} WHERE partition_no = ? AND word = ? AND number = ?"  # noqa: S608
        self._held = f"SELECT number, count(*) FROM {name} GROUP BY number"  # noqa: S608

    def put(self, session: Session, postings: Iterable[Posting]) -> None:
        """Store these, sorted, because neighbours then share a page."""
        session.run_many(self._put, sorted(postings))

    def remove(self, session: Session, postings: Iterable[tuple[int, str, int]]) -> int:
        """Delete these; return how many there were."""
        return session.run_many(self._remove, sorted(postings))

    def sweep(self, session: Session, numbers: Sequence[int]) -> None:
        """Delete all entries of these rows, for rows whose words are unknown.

        It scans the whole index.
        """
        for chunk in portions(numbers, session.thresholds.rows_at_once):
            session.run(f"{self._sweep}({', '.join('?' * len(chunk))})", chunk)

    def postings(
        self, session: Session, partitions: Collection_[int], listed: str, stem: str
    ) -> PostingList | None:
        """Return the records of the partitions with the word; None without any.

        `listed` has the same partitions as JSON.

        Raises:
            ValueError: The stored values are not such numbers.
        """
        if len(partitions) == 1:
            numbers, counts = session.row(self._holding, (*partitions, lexical.token(stem)))
        else:
            numbers, counts = session.row(self._holding_in_many, (listed, lexical.token(stem)))
        return postings_in(numbers, counts) if numbers else None

    def vocabulary(self, session: Session, listed: str) -> Vocabulary:
        """Return all words of these partitions, with the stored form of their postings.

        A set of all partitions takes one statement, in place of one lookup for each
        word and partition.
        """
        (built,) = session.row("PRAGMA schema_version")
        rows = session.rows(self._vocabulary, (listed,))
        return Vocabulary(built, {word: (numbers, counts) for word, numbers, counts in rows})

    def is_of_this_index(self, session: Session, known: Vocabulary) -> bool:
        """Whether the index has not been rebuilt since."""
        (built,) = session.row("PRAGMA schema_version")
        return bool(built == known.built)

    def count(self, session: Session, partition: int, word: str, number: int) -> int:
        """Return the packed counts of one word of one record, 0 if there are none."""
        row = session.row(self._count, (partition, word, number))
        return 0 if row is None else int(row[0])

    def words_per_row(self, session: Session) -> dict[int, int]:
        """Return the number of indexed words of each row, by the row's number."""
        return dict(session.rows(self._held))


@lru_cache(maxsize=256)
def word_index_of(collection: Collection) -> WordIndex | None:
    """Return the index of a collection that has texts."""
    return WordIndex(collection) if collection.texts else None


# -- one write transaction -------------------------------------------------------------


class IndexedRow(NamedTuple):
    """The entries that the index has, or will have, of a row."""

    partition: int
    counts: Counts


NOTHING = IndexedRow(0, {})


def indexed_words(partition: int, words: bytes | None) -> IndexedRow | None:
    """Return the index entries of a record with these packed words.

    Returns None if the words are not valid.
    """
    try:
        return None if words is None else IndexedRow(partition, lexical.packed_counts(words))
    except ValueError:
        return None


class WordIndexWriter:
    """The changes of one collection's words."""

    def __init__(self, session: Session, collection: Collection, index: WordIndex) -> None:
        self._session, self._collection, self._index = session, collection, index
        self._was: dict[int, IndexedRow | None] = {}
        """The entries that the transaction found, by number; None if unknown."""
        self._will: dict[int, IndexedRow] = {}

    def put(self, number: int, partition: int, words: bytes) -> None:
        """Set the packed words of the row.

        Where it had others before, call `remove` first.
        """
        self._was.setdefault(number, NOTHING)
        self._will[number] = IndexedRow(partition, lexical.packed_counts(words))

    def remove(self, number: int, was: IndexedRow | None) -> None:
        """Remove the row's words.

        `was` is the index's entries of the row, None where they are unknown.
        """
        self._was.setdefault(number, was)
        self._will[number] = NOTHING

    def finish(self) -> None:
        """Change the index.

        It raises only errors that are not the index's own, such as a full disk.
        """
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
            self._session.run(_DOUBTED, (self._collection.name,))
        self._session.run("RELEASE words")

    def _change(self, changed: Mapping[int, IndexedRow | None]) -> None:
        gone: list[tuple[int, str, int]] = []
        new: list[Posting] = []
        unknown = [number for number, was in changed.items() if was is None]
        if unknown:
            self._index.sweep(self._session, unknown)
        for number, found in changed.items():
            was, will = found or NOTHING, self._will[number]
            kept = was.counts if was.partition == will.partition else {}
            gone += [
                (was.partition, word, number)
                for word in was.counts
                if word not in kept or word not in will.counts
            ]
            new += [
                (will.partition, word, number, count)
                for word, count in will.counts.items()
                if kept.get(word) != count
            ]
        if gone and self._index.remove(self._session, gone) != len(gone):
            # The index lacked words that it should have. It is repaired here for these
            # rows, and marked as doubtful for all others.
            self._index.sweep(self._session, list(changed))
            new = [
                (will.partition, word, n, count)
                for n, will in self._will.items()
                if n in changed
                for word, count in will.counts.items()
            ]
            self._session.run(_DOUBTED, (self._collection.name,))
        if new:
            self._index.put(self._session, new)
