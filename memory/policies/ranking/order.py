"""A pool in order: scored, and multiplied by what is preferred."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from memory.policies.entry_query import EntryQuery
from memory.policies.question import Question
from memory.policies.ranking.boosts import boost_multipliers
from memory.policies.ranking.relevance import EmbedderScale, Relevance, relevance
from memory.policies.ranking.score import ScoredPool, Scores, score
from memory.ports.candidates import CandidateColumns

SHOWN_FROM = 0.001
"""Parts of a score that are smaller are not told."""


class Value(NamedTuple):
    """The numbers of a hit."""

    score: float
    """The final sort key."""
    relevance: float | None
    """How well it answers, from 0 to 1; None where the embedder has no calibration."""


@dataclass(slots=True, eq=False)
class RankedPool:
    """Of each candidate, in the pool's order: what it is ordered by and what that was
    made of, and whether it answers at all.
    """

    ids: tuple[str, ...]
    scored: ScoredPool
    multipliers: dict[str, Scores]
    order: Scores
    answers: npt.NDArray[np.bool_]
    relevance: Relevance | None

    def best_first(self, rows: Iterable[int]) -> list[int]:
        """Ties by id ascending."""
        order = self.order.tolist()
        return sorted(rows, key=lambda row: (-order[row], self.ids[row]))

    def relevant_rows(self, least: float | None = None) -> list[int]:
        """Return the rows that answer, and with `least` those of at least this
        relevance.
        """
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
        """Those of the rows that hold every word of the question themselves."""
        return [row for row in rows if pool.counts.shape[1] and pool.counts[row].all()]

    def multiply(self, name: str, by: Mapping[int, float]) -> None:
        """Take in a multiplier that is known of some rows alone."""
        factors = np.ones(len(self.ids))
        factors[list(by)] = list(by.values())
        self.multipliers[name] = factors
        self.order = self.order * factors

    def explain(self, row: int) -> dict[str, Any]:
        """What a row's place was made of: its rank by words, by meaning and by both
        before anything multiplied; each part of the score.
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
    """The pool, whose counted words are the question's stems, or none where it is asked
    for meaning alone. Rows that are `alone` answer by what they say themselves, the
    others by what is said beside them too. `scale` is the embedder's, None where it has
    no calibration.
    """
    then = asked.as_of or asked.known_at or now
    scored = score(question if asked.mode != "semantic" else replace(question, text=""), pool, near, then)
    multipliers = dict(boost_multipliers(question, pool, asked.preferred, then))
    order = scored.score
    for by in multipliers.values():
        order = order * by
    terms = scored.terms
    own = pool.counts.sum(axis=1)
    telling = {
        "hybrid": np.where(alone, own + terms["own_semantic"], terms["lexical"] + terms["semantic"]),
        "lexical": own,
        "semantic": terms["own_semantic"],
    }[asked.mode]
    return RankedPool(
        tuple(pool.ids),
        scored,
        multipliers,
        order,
        telling > 0,
        relevance(scored.evidence, asked.mode, near, scale),
    )


def _rank(values: Scores, row: int) -> int | None:
    """From 1; None where there is nothing of it."""
    return int((values > values[row]).sum()) + 1 if values[row] > 0 else None
