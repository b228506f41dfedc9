"""The ranking of candidates by words and by meaning, before any row is read.

It gives numbers of rows with their scores.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from memory.adapters.sql.scoring import Candidates
from memory.adapters.sql.sqlite.errors import WordIndexMismatch, is_of_a_table
from memory.adapters.sql.sqlite.members import Ints, Members
from memory.adapters.sql.sqlite.session import Session
from memory.adapters.sql.sqlite.table import SqliteTable
from memory.adapters.sql.sqlite.words import IS_DOUBTED, PostingList
from memory.ports import lexical
from memory.ports.bm25 import Scores, norms, term_scores
from memory.ports.candidates import Statistics
from memory.ports.record import Role
from memory.ports.text import query_words, rarity


class Population:
    """The records of these roles in some partitions.

    Their common statistics rank each of them. Each word is read once.
    """

    def __init__(
        self,
        session: Session,
        table: SqliteTable,
        members: Sequence[Members],
        roles: frozenset[Role],
    ) -> None:
        self._session, self._table = session, table
        self.members = members
        self.asked = [members.role_mask(roles) for members in self.members]
        """Which members of each group are in these roles."""
        self.documents = sum(int(mask.sum()) for mask in self.asked)
        self.words = sum(int(m.words[mask].sum()) for m, mask in zip(self.members, self.asked, strict=True))
        """The number of words of all members, unweighted."""
        self._holders: dict[str, list[Postings]] | None = None

    def holders(self, stem: str) -> list[Postings]:
        """Return the records with the word, of each group of members that has any.

        Raises:
            WordIndexMismatch: The index does not say.
        """
        if self._holders is None:
            if self._session.row(IS_DOUBTED, (self._table.name,)) is not None:
                raise WordIndexMismatch(self._table.name)
            self._holders = {}
        found = self._holders.get(stem)
        if found is None:
            found = self._holders[stem] = list(self._read(stem))
        return found

    def _read(self, stem: str) -> Iterator[Postings]:
        for i, members in enumerate(self.members):
            holding = _postings(self._session, self._table, members, stem)
            if holding is None:
                continue
            places = members.places(holding.numbers)
            asked = np.flatnonzero(places >= 0)
            asked = asked[self.asked[i][places[asked]]]
            yield Postings(
                i, places[asked], lexical.weighted_sum(self._table.collection, holding.counts[asked])
            )


class Postings(NamedTuple):
    """The records with a word among some members.

    `group` is the place of these members in the population; `places` are the records'
    places among them. `frequencies` are the word's counts in each record, summed under
    the weights of the text parts.
    """

    group: int
    places: Ints
    frequencies: Scores


def by_words(table: SqliteTable, text: str, population: Population) -> Candidates:
    """Score every record with a word of the text by BM25F.

    The statistics are those of exactly this population.
    """
    stems = query_words(text)
    if not stems or table.words is None:
        return _NONE
    documents, members = population.documents, population.members
    average = population.words / documents if documents else 0.0
    lengths = [norms(m.words, average) for m in members]
    scores = [np.zeros(len(m.numbers)) for m in members]
    matched = [np.zeros(len(m.numbers), np.bool_) for m in members]
    for stem in stems:
        holders = population.holders(stem)
        rare = rarity(documents, sum(len(places) for _, places, _ in holders))
        for i, at, frequencies in holders:
            scores[i][at] += term_scores(rare, frequencies, lengths[i][at])
            matched[i][at] = True
    numbers = (
        np.concatenate([m.numbers[hit] for m, hit in zip(members, matched, strict=True)])
        if members
        else _NONE.numbers
    )
    return Candidates(
        numbers,
        np.concatenate([s[hit] for s, hit in zip(scores, matched, strict=True)]) if members else _NONE.scores,
    )


def statistics(table: SqliteTable, stems: Sequence[str], population: Population) -> Statistics:
    """Return the totals of the population, and how many records have each word."""
    if table.words is None:
        return Statistics(population.documents, containing=dict.fromkeys(stems, 0))
    containing = {stem: sum(len(places) for _, places, _ in population.holders(stem)) for stem in stems}
    return Statistics(population.documents, population.words, containing)


def _postings(session: Session, table: SqliteTable, members: Members, stem: str) -> PostingList | None:
    assert table.words is not None  # noqa: S101 - asked only for collections with texts
    try:
        return members.postings(session, table.words, stem)
    except ValueError as exc:  # this part of the file is damaged
        raise WordIndexMismatch(table.name) from exc
    except sqlite3.Error as exc:
        if not is_of_a_table(exc):
            raise
        raise WordIndexMismatch(table.name) from exc


def by_meaning(vector: bytes, population: Population) -> Candidates:
    """Score every record by cosine in single precision.

    Records need a vector of the same length.
    """
    numbers: list[Ints] = []
    scores: list[npt.NDArray[np.float32]] = []
    for members, there in zip(population.members, population.asked, strict=True):
        matrix = (members.matrices or {}).get(len(vector))
        if matrix is None or not len(matrix):
            continue
        cosines = matrix.units.cosines(vector)
        asked = there[members.places_of(matrix)]
        everyone = bool(asked.all())
        numbers.append(matrix.numbers if everyone else matrix.numbers[asked])
        scores.append(cosines if everyone else cosines[asked])
    if not numbers:
        return _NONE
    return Candidates(np.concatenate(numbers), np.concatenate(scores).astype(np.float64), slack=1e-5)


_NONE = Candidates(np.empty(0, np.int64), np.empty(0, np.float64))
