"""The full-text index: FTS5 over words that carry the number of their partition, so every posting list is one partition's own.

The engine only keeps and finds: text is cut and stemmed by `memory.ports.text`, counted from the index through fts5vocab, and scored by
`ranking`. MATCH is never used, so no text is ever syntax. The index keeps its own copy of the words: taking a record out does not depend
on how its row reads today.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from memory.adapters.sql.columns import text_column
from memory.adapters.sql.sqlite.schema import words_table
from memory.adapters.sql.sqlite.session import Session
from memory.ports.collections import Collection

_LONGEST = 128  # FTS5 cuts a token at 32 KiB; a digest stands for words that no one types

Postings: TypeAlias = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Occurrences of a word: the number of the row, and which text part each is in."""


def token(partition: int, stem: str) -> str:
    """A stem as the index holds it: the partition, a letter for the encoding, and plain ASCII that no tokenizer splits."""
    if len(stem) > _LONGEST:
        return f"p{partition}h{blake2b(stem.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"
    if stem.isascii():
        return f"p{partition}x{stem}"
    return f"p{partition}y{stem.encode('utf-8', 'surrogatepass').hex()}"


def _line(partition: int, stems: Sequence[str]) -> str:
    """The words of one text part as FTS5 is given them."""
    if not stems:
        return ""
    joined = " ".join(stems)
    if joined.isascii() and (len(joined) <= _LONGEST or max(map(len, stems)) <= _LONGEST):
        prefix = f"p{partition}x"
        return prefix + joined.replace(" ", " " + prefix)
    return " ".join([token(partition, s) for s in stems])


class WordIndex:
    """One collection's index."""

    def __init__(self, collection: Collection) -> None:
        name = words_table(collection)
        parts = [text_column(p.name) for p in collection.texts]
        self._parts = len(parts)
        self.ddl = (
            f"CREATE VIRTUAL TABLE IF NOT EXISTS {name} USING fts5({', '.join(parts)}, tokenize = 'ascii', columnsize = 0)",
            f"CREATE VIRTUAL TABLE IF NOT EXISTS {name}_instances USING fts5vocab({name}, 'instance')",
            # Single writes make small segments: merging them later in larger steps keeps most writes short.
            f"INSERT INTO {name}({name}, rank) VALUES ('automerge', 8)",  # noqa: S608
            f"INSERT INTO {name}({name}, rank) VALUES ('crisismerge', 32)",  # noqa: S608
        )
        self._insert = f"INSERT INTO {name}(rowid, {', '.join(parts)}) VALUES ({', '.join('?' * (1 + len(parts)))})"  # noqa: S608
        self._delete = f"DELETE FROM {name} WHERE rowid = ?"  # noqa: S608
        which = " ".join(f"WHEN '{part}' THEN {i}" for i, part in enumerate(parts))
        # One long string instead of a row an occurrence: SQLite and numpy do in C what would be a Python object each.
        self._find = f"SELECT group_concat(doc * {len(parts)} + CASE col {which} END) FROM {name}_instances WHERE term = ?"  # noqa: S608

    def create(self, connection: sa.Connection) -> None:
        for statement in self.ddl:
            connection.exec_driver_sql(statement)

    def add(self, session: Session, number: int, partition: int, stems: Sequence[Sequence[str]]) -> None:
        session.run(self._insert, (number, *[_line(partition, part) for part in stems]))

    def remove(self, session: Session, number: int) -> None:
        session.run(self._delete, (number,))

    def occurrences(self, session: Session, partition: int, stem: str) -> Postings | None:
        """For each occurrence of the word in the partition: the number of the row, and which text part it is in. None where there is none."""
        (found,) = session.row(self._find, (token(partition, stem),))
        if not found:
            return None
        packed = np.fromstring(found, dtype=np.int64, sep=",")
        return packed // self._parts, packed % self._parts


@lru_cache(maxsize=256)
def word_index_of(collection: Collection) -> WordIndex | None:
    """The index of a collection that has texts."""
    return WordIndex(collection) if collection.texts else None
