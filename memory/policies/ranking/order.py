"""Order a pool: compute scores, and multiply them by preferences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from memory.policies.entry_query import EntryQuery, SearchMode
from memory.policies.question import Question
from memory.policies.ranking.boosts import boost_multipliers
from memory.policies.ranking.relevance import EmbedderScale, Relevance, relevance
from memory.policies.ranking.score import ScoredPool, Scores, score, score_nearness
from memory.ports.candidates import CandidateColumns

SHOWN_FROM = 0.001
"""Parts of a score below this are not shown."""


class Value(NamedTuple):
    """The numbers of a hit."""

    score: float
    """The final sort key."""
    relevance: float | None
    """How well it answers, from 0 to 1; None if the embedder has no calibration."""


@dataclass(slots=True, eq=False)
class RankedPool:
    """The ranked candidates: sort keys, their parts, and whether each answers at all.

    All arrays have the pool's order.
    """

    ids: tuple[str, ...]
    scored: ScoredPool
    multipliers: dict[str, Scores]
    order: Scores
    answers: npt.NDArray[np.bool_]
    relevance: Relevance | None

    def best_first(self, rows: Iterable[int]) -> list[int]:
        """Sort the rows, best first; ties by id."""
        order = self.order.tolist()
        return sorted(rows, key=lambda row: (-order[row], self.ids[row]))

    def relevant_rows(self, least: float | None = None) -> list[int]:
        """Return the rows that answer, and have at least the relevance `least`."""
        answers = self.answers
        if least is not None and self.relevance is not None:
            answers = answers & (self.relevance.values >= least)
        return [int(row) for row in np.flatnonzero(answers)]

    def value(self, row: int) -> Value:
        """Return the numbers of a hit."""
        return Value(
            float(self.order[row]), None if self.relevance is None else float(self.relevance.values[row])
        )

    def rows_with_all_words(self, rows: Iterable[int], pool: CandidateColumns) -> list[int]:
        """Return the rows whose own text has every word of the question."""
        return [row for row in rows if pool.counts.shape[1] and pool.counts[row].all()]

    def multiply(self, name: str, by: Mapping[int, float]) -> None:
        """Apply a multiplier that is known for some rows only."""
        factors = np.ones(len(self.ids))
        factors[list(by)] = list(by.values())
        self.multipliers[name] = factors
        self.order = self.order * factors

    def explain(self, row: int) -> dict[str, Any]:
        """Explain a row's place.

        It has the ranks by words, by meaning and by both before multipliers, and each
        part of the score.
        """
        terms = {name: round(float(of[row]), 4) for name, of in self.scored.terms.items()}
        return {
            "order": round(float(self.order[row]), 4),
            "relevance": self.scored.evidence.explain(row)
            if self.relevance is None
            else self.relevance.explain(row),
            "ranks": {
                "lexical": _rank(self.scored.terms["own_lexical"], row),
                "semantic": _rank(self.scored.terms["own_semantic"], row),
                "score": _rank(self.scored.score, row),
            },
            "terms": {name: value for name, value in terms.items() if abs(value) >= SHOWN_FROM},
            "multipliers": {
                name: round(float(of[row]), 4) for name, of in self.multipliers.items() if of[row] != 1.0
            },
        }


def rank(
    question: Question,
    pool: CandidateColumns,
    near: bytes | None,
    asked: EntryQuery,
    now: datetime,
    *,
    alone: bool | Sequence[bool] = False,
    scale: EmbedderScale | None = None,
) -> RankedPool:
    """Rank the pool.

    The pool counts the words of the question's stems. Rows that are `alone` answer by
    their own text; other rows also by their neighbours' texts. `scale` is None for an
    embedder without calibration.

    If the caller's vector is all that counts, every row with a vector answers.
    """
    then = asked.as_of or asked.known_at or now
    by_vector = near is not None and asked.is_by_vector_alone(question.text)
    if near is not None and by_vector:
        scored = score_nearness(pool, near)
    else:
        words = question if asked.mode != "semantic" else replace(question, text="")
        scored = score(words, pool, near, then)
    multipliers = dict(boost_multipliers(question, pool, asked.preferred, then))
    order = scored.score
    for by in multipliers.values():
        order = order * by
    return RankedPool(
        tuple(pool.ids),
        scored,
        multipliers,
        order,
        scored.evidence.has_vector if by_vector else _answers(pool, scored, asked.mode, alone),
        relevance(scored.evidence, asked.mode, near, scale),
    )


def _answers(
    pool: CandidateColumns, scored: ScoredPool, mode: SearchMode, alone: bool | Sequence[bool]
) -> npt.NDArray[np.bool_]:
    """Return which rows answer the question at all."""
    terms, own = scored.terms, pool.counts.sum(axis=1)
    telling = {
        "hybrid": np.where(alone, own + terms["own_semantic"], terms["lexical"] + terms["semantic"]),
        "lexical": own,
        "semantic": terms["own_semantic"],
    }[mode]
    return np.asarray(telling > 0)


def _rank(values: Scores, row: int) -> int | None:
    """Return the rank from 1; None if the value is 0."""
    return int((values > values[row]).sum()) + 1 if values[row] > 0 else None
