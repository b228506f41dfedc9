"""The best of the candidates, by words and by meaning: numbers of rows with their scores, before any row is read."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from memory.adapters.sql.scoring import Candidates, Scores, gained, norms
from memory.adapters.sql.sqlite.errors import WordsDoubted, is_of_a_table
from memory.adapters.sql.sqlite.members import Ints, Members
from memory.adapters.sql.sqlite.session import Session
from memory.adapters.sql.sqlite.table import SqliteTable
from memory.adapters.sql.sqlite.words import IS_DOUBTED, Holding
from memory.ports import lexical
from memory.ports.record import Role
from memory.ports.text import query_words, rarity


def by_words(
    session: Session, table: SqliteTable, text: str, partitions: Sequence[int], members: Sequence[Members], roles: frozenset[Role]
) -> Candidates:
    """Every record of these roles that holds a word of the text, scored by BM25F with the statistics of exactly these partitions and roles."""
    stems = query_words(text)
    if not stems or table.words is None:
        return _NONE
    if session.row(IS_DOUBTED, (table.name,)) is not None:
        raise WordsDoubted(table.name)
    there = [m.having(roles) for m in members]
    documents = sum(int(mask.sum()) for mask in there)
    total = sum(int(m.words[mask].sum()) for m, mask in zip(members, there, strict=True))
    average = total / documents if documents else 0.0
    lengths = [norms(m.words, average) for m in members]
    scores = [np.zeros(len(m.numbers)) for m in members]
    matched = [np.zeros(len(m.numbers), np.bool_) for m in members]
    for stem in stems:
        counted: list[tuple[int, Ints, Scores]] = []
        containing = 0
        for i, (partition, member) in enumerate(zip(partitions, members, strict=True)):
            holding = _holding(session, table, partition, stem)
            if holding is None:
                continue
            places = member.places(holding.numbers)
            asked = np.flatnonzero(places >= 0)
            asked = asked[there[i][places[asked]]]
            frequencies: Scores = lexical.weighed(table.collection, holding.counts[asked])
            containing += len(asked)
            counted.append((i, places[asked], frequencies))
        rare = rarity(documents, containing)
        for i, at, frequency in counted:
            scores[i][at] += gained(rare, frequency, lengths[i][at])
            matched[i][at] = True
    numbers = np.concatenate([m.numbers[hit] for m, hit in zip(members, matched, strict=True)]) if members else _NONE.numbers
    return Candidates(numbers, np.concatenate([s[hit] for s, hit in zip(scores, matched, strict=True)]) if members else _NONE.scores)


def _holding(session: Session, table: SqliteTable, partition: int, stem: str) -> Holding | None:
    assert table.words is not None  # noqa: S101 - asked only for collections with texts
    try:
        return table.words.holding(session, partition, stem)
    except ValueError as exc:  # the file is damaged there
        raise WordsDoubted(table.name) from exc
    except sqlite3.Error as exc:
        if not is_of_a_table(exc):
            raise
        raise WordsDoubted(table.name) from exc


def by_meaning(vector: bytes, members: Sequence[Members], roles: frozenset[Role]) -> Candidates:
    """Every record of these roles with a vector of the same length, by cosine in single precision."""
    given = np.frombuffer(vector, dtype="<f4").astype(np.float64)
    unit = (given / np.sqrt((given * given).sum())).astype(np.float32)
    numbers: list[Ints] = []
    scores: list[npt.NDArray[np.float32]] = []
    for member in members:
        matrix = (member.matrices or {}).get(len(vector))
        if matrix is None or not matrix.count:
            continue
        cosines = matrix.dot(unit)
        asked = member.having(roles)[member.places_of(matrix)]
        everyone = bool(asked.all())
        numbers.append(matrix.numbers if everyone else matrix.numbers[asked])
        scores.append(cosines if everyone else cosines[asked])
    if not numbers:
        return _NONE
    return Candidates(np.concatenate(numbers), np.concatenate(scores).astype(np.float64), slack=1e-5)


_NONE = Candidates(np.empty(0, np.int64), np.empty(0, np.float64))
