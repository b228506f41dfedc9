"""The best of the candidates, by words and by meaning: numbers of rows with their scores, before any row is read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from memory.adapters.sql.scoring import Candidates, Scores, gained, norms
from memory.adapters.sql.sqlite.fulltext import Postings
from memory.adapters.sql.sqlite.members import Ints, Members
from memory.adapters.sql.sqlite.pending import Stems, unindexed
from memory.adapters.sql.sqlite.session import Session
from memory.adapters.sql.sqlite.shelf import Shelf
from memory.ports.record import Role
from memory.ports.text import query_words, rarity


def by_words(session: Session, shelf: Shelf, text: str, partitions: Sequence[int], members: Sequence[Members], roles: frozenset[Role]) -> Candidates:
    """Every record of these roles that holds a word of the text, scored by BM25F with the statistics of exactly these partitions and roles."""
    stems = query_words(text)
    if not stems or shelf.words is None:
        return _NONE
    weights = np.array([part.weight for part in shelf.collection.texts])
    there = [m.having(roles) for m in members]
    documents = sum(int(mask.sum()) for mask in there)
    total = sum(int(m.words[mask].sum()) for m, mask in zip(members, there, strict=True))
    average = total / documents if documents else 0.0
    lengths = [norms(m.words, average) for m in members]
    scores = [np.zeros(len(m.numbers)) for m in members]
    matched = [np.zeros(len(m.numbers), np.bool_) for m in members]
    waiting = unindexed(session, shelf, partitions)
    for stem in stems:
        counted: list[tuple[int, Ints, Scores]] = []
        containing = 0
        for i, (partition, member) in enumerate(zip(partitions, members, strict=True)):
            occurrences = _with(shelf.words.occurrences(session, partition, stem), waiting.get(partition, ()), stem)
            if occurrences is None:
                continue
            places = member.places(occurrences[0])
            known = places >= 0
            frequencies: Scores = np.bincount(places[known], weights=weights[occurrences[1][known]], minlength=len(member.numbers)).astype(np.float64)
            at: Ints = np.flatnonzero((frequencies > 0) & there[i]).astype(np.int64)
            containing += len(at)
            counted.append((i, at, frequencies[at]))
        rare = rarity(documents, containing)
        for i, at, frequency in counted:
            scores[i][at] += gained(rare, frequency, lengths[i][at])
            matched[i][at] = True
    numbers = np.concatenate([m.numbers[hit] for m, hit in zip(members, matched, strict=True)]) if members else _NONE.numbers
    return Candidates(numbers, np.concatenate([s[hit] for s, hit in zip(scores, matched, strict=True)]) if members else _NONE.scores)


def _with(indexed: Postings | None, waiting: Sequence[tuple[int, Stems]], stem: str) -> Postings | None:
    """The index's occurrences of a word and those in rows that are not in it yet."""
    more = [(number, part) for number, parts in waiting for part, stems in enumerate(parts) for _ in range(stems.count(stem))]
    if not more:
        return indexed
    numbers, parts = np.array(more, np.int64).T
    return (numbers, parts) if indexed is None else (np.concatenate([indexed[0], numbers]), np.concatenate([indexed[1], parts]))


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
