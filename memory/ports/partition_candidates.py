"""Candidates from in-memory indexes of the asked partitions.

Records are ranked over arrays, and filtered from the best down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from memory.ports.bm25 import norms, term_scores
from memory.ports.candidate_scan import beside, stack_vectors
from memory.ports.candidates import CandidateColumns, Candidates, Statistics, none_of
from memory.ports.partition_index import PartitionIndex, stands_at
from memory.ports.query_evaluation import condition, reader
from memory.ports.record import Record
from memory.ports.text import query_words, rarity
from memory.ports.vector_scan import exact_cosines

if TYPE_CHECKING:
    from memory.ports.candidates import Floats, Ints, Scores

_SLACK = 1e-5
"""Cosines in single precision that are this close may change places.

The exact computation decides their order.
"""


def candidates_of(asked: Candidates, forms: Sequence[PartitionIndex]) -> CandidateColumns:
    """Return the candidates among these indexes' records.

    All records of the indexes lie in the question's partitions.
    """
    pool = _Pool(asked, forms)
    found = dict.fromkeys([*pool.by_words(), *pool.by_meaning(), *pool.by_id()])
    found |= dict.fromkeys(pool.beside(found))
    return pool.measure(list(found))


def nearest(asked: Candidates, forms: Sequence[PartitionIndex]) -> list[str]:
    """Return the ids of the best records by meaning, best first.

    All records of the indexes lie in the question's partitions.
    """
    pool = _Pool(asked, forms)
    return [pool.record(place).key.id for place in pool.by_meaning()]


class _Pool:
    """The places of all indexes, one index after the other."""

    def __init__(self, asked: Candidates, forms: Sequence[PartitionIndex]) -> None:
        self._asked = asked
        self._forms = list(zip(np.cumsum([0, *map(len, forms)]).tolist(), forms, strict=False))
        self._records = (
            forms[0].records if len(forms) == 1 else [record for form in forms for record in form.records]
        )
        self._vectors = (
            forms[0].vectors if len(forms) == 1 else [vector for form in forms for vector in form.vectors]
        )
        self._there = np.concatenate([form.role_mask(asked.roles) for form in forms])
        self._lengths = np.concatenate([form.lengths() for form in forms])
        self._documents, self._words = int(self._there.sum()), int(self._lengths[self._there].sum())
        self._lets_through = condition(asked.filter)

    # -- which records -----------------------------------------------------------------

    def by_words(self) -> list[int]:
        """Return the best places by words.

        All records count for the statistics, before the filter: a hidden record still
        shows how rare a word is.
        """
        scores, matched = np.zeros(len(self._there)), np.zeros(len(self._there), np.bool_)
        average = self._words / self._documents if self._documents else 0.0
        norm = norms(self._lengths, average)
        for stem in query_words(self._asked.text):
            places, frequencies = self._postings(stem)
            scores[places] += term_scores(rarity(self._documents, len(places)), frequencies, norm[places])
            matched[places] = True
        return self._best(np.flatnonzero(matched), scores[matched])

    def by_meaning(self) -> list[int]:
        near = self._asked.near
        if near is None:
            return []
        parts = [(start, *form.cosines(near)) for start, form in self._forms]
        places, cosines = (
            np.concatenate([start + at for start, at, _ in parts]),
            np.concatenate([c for _, _, c in parts]),
        )
        there = self._there[places]
        return self._best(
            places[there],
            cosines[there],
            _SLACK,
            lambda these: exact_cosines(near, [self._vectors[place] for place in these]),
        )

    def by_id(self) -> list[int]:
        places = [
            start + at
            for start, form in self._forms
            for i in self._asked.among
            if (at := form.place_of(i)) is not None
        ]
        return self._filter_passing(places)

    def beside(self, found: Iterable[int]) -> list[int]:
        around = self._asked.around
        if around is None:
            return []
        there = {
            stands
            for place in found
            if (stands := stands_at(self.record(place), around.group, around.number)) is not None
        }
        wanted = beside(there, around.reach)
        return self._filter_passing(
            [
                start + at
                for start, form in self._forms
                for w in wanted
                for at in form.beside(around).get(w, ())
            ]
        )

    def _best(
        self,
        places: Ints,
        scores: Scores | Floats,
        slack: float = 0.0,
        exactly: Callable[[Sequence[int]], Sequence[float]] | None = None,
    ) -> list[int]:
        """Return the best `limit` places that pass the filter, ties by id.

        Most places pass, so it examines few more than these. Scores are within half of
        `slack` of the result of `exactly`.
        """
        limit = self._asked.limit
        looked = limit + limit // 4
        while True:
            lowest = (
                -np.inf
                if looked >= len(scores)
                else np.partition(scores, len(scores) - looked)[len(scores) - looked]
            )
            chosen = np.flatnonzero(scores >= lowest - slack)
            passing = np.array([at for at in chosen.tolist() if self._passes(int(places[at]))], np.int64)
            if looked >= len(scores) or int((scores[passing] >= lowest).sum()) >= limit:
                break
            looked *= 4
        these = places[passing].tolist()
        told = scores[passing].tolist() if exactly is None else exactly(these)
        ranked = sorted(zip(told, these, strict=True), key=lambda one: (-one[0], self.record(one[1]).key.id))
        return [place for _, place in ranked[:limit]]

    def _filter_passing(self, places: Sequence[int]) -> list[int]:
        return [place for place in places if self._passes(place)]

    def _passes(self, place: int) -> bool:
        return bool(self._there[place]) and self._lets_through(self.record(place))

    def record(self, place: int) -> Record:
        """Return the record at an occupied place."""
        return cast("Record", self._records[place])

    # -- their columns -----------------------------------------------------------------

    def measure(self, places: Sequence[int]) -> CandidateColumns:
        asked, counted = self._asked, self._asked.counted
        records = [self.record(place) for place in places]
        counts, containing = np.zeros((len(places), len(counted))), dict.fromkeys(counted, 0)
        for column, stem in enumerate(counted):
            holding, frequencies = self._postings(stem)
            containing[stem] = len(holding)
            everywhere = np.zeros(len(self._there))
            everywhere[holding] = frequencies
            counts[:, column] = everywhere[places]
        return CandidateColumns(
            [r.key.id for r in records],
            [r.scope for r in records],
            [r.version for r in records],
            [r.role for r in records],
            [r.tier for r in records],
            self._lengths[places],
            counts,
            stack_vectors([self._vectors[place] for place in places], asked.width),
            {name: list(map(reader(name), records)) for name in asked.select},
            Statistics(self._documents, self._words, containing) if asked.statistics else none_of(asked),
        )

    def _postings(self, stem: str) -> tuple[Ints, Scores]:
        """Return the places in the asked roles that hold the stem, and its counts."""
        parts = [(start, *form.postings(stem)) for start, form in self._forms]
        places, frequencies = (
            np.concatenate([start + at for start, at, _ in parts]),
            np.concatenate([f for _, _, f in parts]),
        )
        there = self._there[places]
        return places[there], frequencies[there]
