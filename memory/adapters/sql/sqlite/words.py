"""The word index: a row for each word of each record, ordered by partition, so that every list a search reads is one partition's own.

Text is cut and stemmed by `memory.ports.text`, as on every backend, and scored by `ranking`; SQLite only keeps and finds. A plain table
and not FTS5 (decision 020): its rows are taken out one by one, and with `secure_delete` their bytes with them; FTS5 keeps copies of
deleted words until all of its segments are merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from memory.adapters.sql.sqlite.schema import words_table
from memory.adapters.sql.sqlite.session import Session, chunked
from memory.adapters.sql.words import Parts, token
from memory.ports.collections import Collection

Counts: TypeAlias = Mapping[str, int]
"""How often each word of a record stands in each of its text parts, packed as `memory.adapters.sql.words.Parts` does."""
Posting: TypeAlias = tuple[int, str, int, int]
"""A row of the index: the partition, the word, the number of the record's row, the packed counts."""


class Holding(NamedTuple):
    """The records that hold a word: their rows' numbers, and the packed counts of each."""

    numbers: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]


class WordIndex:
    """The statements about one collection's index."""

    def __init__(self, collection: Collection) -> None:
        self.table = name = words_table(collection)
        self.parts = Parts([part.weight for part in collection.texts])
        self._put = f"INSERT OR REPLACE INTO {name} (partition_no, word, number, counts) VALUES (?, ?, ?, ?)"  # noqa: S608
        self._remove = f"DELETE FROM {name} WHERE partition_no = ? AND word = ? AND number = ?"  # noqa: S608
        self._sweep = f"DELETE FROM {name} WHERE number IN "  # noqa: S608
        # Two long strings instead of a row an occurrence: SQLite and numpy do in C what would be a Python object each.
        self._holding = f"SELECT group_concat(number), group_concat(counts) FROM {name} WHERE partition_no = ? AND word = ?"  # noqa: S608
        self._count = f"SELECT counts FROM {name} WHERE partition_no = ? AND word = ? AND number = ?"  # noqa: S608
        self._held = f"SELECT number, count(*) FROM {name} GROUP BY number"  # noqa: S608

    def words(self, texts: Sequence[Any]) -> tuple[int, Counts]:
        """How many words there are in the text parts, and the counts of each."""
        total, counts, _ = self.parts.index([text if isinstance(text, str) else None for text in texts])
        return total, counts

    def put(self, session: Session, postings: Iterable[Posting]) -> None:
        """Store these; sorted, because neighbours then share a page."""
        session.run_many(self._put, sorted(postings))

    def remove(self, session: Session, postings: Iterable[tuple[int, str, int]]) -> int:
        """Take these out; how many were there."""
        return session.run_many(self._remove, sorted(postings))

    def sweep(self, session: Session, numbers: Sequence[int]) -> None:
        """Take out all that is of these rows, wherever it is: for when their words are not known. Looks through the whole index."""
        for chunk in chunked(numbers, session.thresholds.rows_at_once):
            session.run(f"{self._sweep}({', '.join('?' * len(chunk))})", chunk)

    def holding(self, session: Session, partition: int, stem: str) -> Holding | None:
        """The records of the partition that hold the word; None where there are none."""
        numbers, counts = session.row(self._holding, (partition, token(stem)))
        if not numbers:
            return None
        return Holding(np.fromstring(numbers, dtype=np.int64, sep=","), np.fromstring(counts, dtype=np.int64, sep=","))

    def count(self, session: Session, partition: int, word: str, number: int) -> int:
        """The packed counts of one word of one record, 0 where they are not there."""
        row = session.row(self._count, (partition, word, number))
        return 0 if row is None else int(row[0])

    def held(self, session: Session) -> dict[int, int]:
        """How many words of each row are in the index, by number."""
        return dict(session.rows(self._held))


@lru_cache(maxsize=256)
def word_index_of(collection: Collection) -> WordIndex | None:
    """The index of a collection that has texts."""
    return WordIndex(collection) if collection.texts else None
