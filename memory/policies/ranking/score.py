"""Score a pool of candidates by words, meaning, speakers and marks.

Words and meaning include those of the neighbours. The formula is that of
`retrieval.md`, with one difference: each term is relative to the best of the pool. The
design uses minimum and maximum, or fixed divisors. So two similar texts have similar
scores, and multipliers keep their meaning. Measured recall@10 on the open conversations
is 80.8 (79.9 with fixed divisors, 80.5 with minimum and maximum).

Without order, speakers or vectors the terms for these are 0. The score only orders.
`evidence` is the input of `relevance`, which is comparable across questions.

A search by a caller's vector alone is ordered by the cosine alone (`score_nearness`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from memory.policies import text_features
from memory.policies.question import Question, mentioned_speakers
from memory.policies.ranking import constants as c
from memory.policies.ranking.relevance import Evidence
from memory.ports.candidates import CandidateColumns
from memory.ports.text import rarity, words

Scores: TypeAlias = npt.NDArray[np.float64]
Places: TypeAlias = npt.NDArray[np.int64]

MONTHS = "january february march april may june july august september october november december".split()


@dataclass(frozen=True, slots=True, eq=False)
class ScoredPool:
    """The scores of the candidates in the pool's order, their terms, and evidence."""

    score: Scores
    evidence: Evidence
    terms: Mapping[str, Scores]


def score(question: Question, pool: CandidateColumns, near: bytes | None, now: datetime) -> ScoredPool:
    """Score the pool, which has the counts of the question's `stems`.

    `near` is the vector of the question. Ages are measured at `now`.
    """
    neighbours = _Neighbours(pool)
    rare = _rarities(question, pool)
    sure: Scores = np.where(question.correction_mask, c.CORRECTED, 1.0)
    own = pool.counts * sure / c.CONTENT
    asks = _shows(pool, text_features.ASKS)
    norm: Scores = (
        c.K1 * (1 - c.LENGTH + c.LENGTH * pool.lengths.astype(np.float64) / max(_average(pool), 1e-9))
    )[:, None]
    previous = np.where(neighbours.of(asks, -1) > 0, c.ASKED, c.PREVIOUS)[:, None]
    with_others = own + previous * neighbours.of(own, -1) + c.NEXT * neighbours.of(own, 1)
    with_others += c.SECOND * (neighbours.of(own, -2) + neighbours.of(own, 2)) + _said_beside(question, pool)
    in_context = _bm25(rare, with_others, norm)
    cosine, window = _meaning(pool, near, neighbours)
    terms = {
        "lexical": c.CONTEXT * _in_parts(in_context),
        "own_lexical": c.OWN_WORDS * _in_parts(_bm25(rare, own, norm)),
        "semantic": c.WINDOW * _in_parts(window),
        "own_semantic": c.OWN_MEANING * _in_parts(cosine),
        "speaker": c.SPEAKER * _speaker_scores(question, pool),
        "asks": c.ENDS_ASKING * _shows(pool, text_features.ENDS_ASKING),
        "session": c.SESSION * _in_parts(_sessions(pool, in_context)),
        "length": c.LENGTHY * np.log1p(np.minimum(pool.lengths, c.LONGEST)),
        "date": _date_scores(question, pool, now),
        "cues": sum((weight * _shows(pool, mark) for mark, weight in question.cues), np.zeros(len(pool))),
    }
    total: Scores = sum(terms.values(), np.zeros(len(pool)))
    terms["answers"] = c.ANSWERS * np.where(
        neighbours.of(_shows(pool, text_features.ENDS_ASKING), -1) > 0, neighbours.of(total, -1), 0.0
    )
    share = np.where(with_others > 0, rare * sure, 0.0).sum(axis=1) / max(rare.sum(), 1e-9)
    numbered = np.array([number is not None for number in pool.fields["number_in_conversation"]], bool)
    evidence = Evidence(cosine, window, share, numbered, _has_vector(pool, near), question.has_content)
    return ScoredPool(np.maximum(total + terms["answers"], c.LEAST), evidence, terms)


def score_nearness(pool: CandidateColumns, near: bytes) -> ScoredPool:
    """Score by the cosine alone, from 0 for opposite to 1 for equal vectors."""
    cosine, _ = _meaning(pool, near, _Neighbours(pool))
    none = np.zeros(len(pool))
    has_vector = _has_vector(pool, near)
    nearness: Scores = np.where(has_vector, np.clip((1 + cosine) / 2, 0.0, 1.0), 0.0)
    evidence = Evidence(cosine, cosine, none, np.zeros(len(pool), bool), has_vector)
    return ScoredPool(nearness, evidence, {"own_lexical": none, "own_semantic": nearness})


class _Neighbours:
    """The neighbours of each row, by conversation and number in the same scope."""

    def __init__(self, pool: CandidateColumns) -> None:
        groups, numbers = pool.fields["conversation_id"], pool.fields["number_in_conversation"]
        places = list(zip(pool.scopes, groups, numbers, strict=True))
        rows = {
            place: row for row, place in enumerate(places) if place[1] is not None and place[2] is not None
        }
        self._rows: dict[int, Places] = {}
        for step in (-2, -1, 1, 2):
            beside = [
                rows.get((scope, group, number + step), -1) if number is not None else -1  # type: ignore[operator]
                for scope, group, number in places
            ]
            self._rows[step] = np.array(beside, np.int64)

    def of(self, values: npt.NDArray[Any], step: int) -> npt.NDArray[Any]:
        """Return for each row the value of the message `step` numbers later, or 0."""
        padded = np.concatenate([values, np.zeros((1, *values.shape[1:]), values.dtype)])
        return padded[self._rows[step]]


def _rarities(question: Question, pool: CandidateColumns) -> Scores:
    known = pool.statistics
    return np.array(
        [
            rarity(known.documents, min(known.containing.get(stem, 0), known.documents))
            for stem in question.stems
        ]
    )


def _average(pool: CandidateColumns) -> float:
    return (
        pool.statistics.words / pool.statistics.documents
        if pool.statistics.documents
        else float(pool.lengths.mean())
        if len(pool)
        else 0.0
    )


def _bm25(rare: Scores, counts: Scores, norm: Scores) -> Scores:
    """Return the BM25 score of each row."""
    return np.asarray((rare * counts * (c.K1 + 1) / (counts + norm)).sum(axis=1))


def _in_parts(values: Scores) -> Scores:
    """Divide by the largest value; all are 0 if none is positive."""
    best = values.max(initial=0.0)
    return np.maximum(values, 0.0) / best if best > 0 else np.zeros(len(values))


def _shows(pool: CandidateColumns, mark: int) -> Scores:
    return np.array(
        [float(bool(shown & mark)) if isinstance(shown, int) else 0.0 for shown in pool.fields["marks"]]
    )


def _meaning(pool: CandidateColumns, near: bytes | None, neighbours: _Neighbours) -> tuple[Scores, Scores]:
    """Return the cosine of each row, and that including its neighbours."""
    if near is None or not pool.vectors.shape[1]:
        return np.zeros(len(pool)), np.zeros(len(pool))
    asked = _unit(np.frombuffer(near, "<f4")[None])[0]
    vectors = _unit(
        pool.vectors
    )  # in their own precision, which takes half the time; cosines are equal to six places
    previous, following, second = c.BESIDE
    window = vectors + previous * neighbours.of(vectors, -1) + following * neighbours.of(vectors, 1)
    window += second * (neighbours.of(vectors, -2) + neighbours.of(vectors, 2))
    return np.einsum("ij,j->i", vectors, asked).astype(np.float64), np.einsum(
        "ij,j->i", _unit(window), asked
    ).astype(np.float64)


def _has_vector(pool: CandidateColumns, near: bytes | None) -> npt.NDArray[np.bool_]:
    if near is None or not pool.vectors.shape[1]:
        return np.zeros(len(pool), bool)
    return np.asarray(pool.vectors.any(axis=1))


def _unit(vectors: npt.NDArray[Any]) -> npt.NDArray[Any]:
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))[:, None]
    return np.asarray(np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0))


def _speaker_scores(question: Question, pool: CandidateColumns) -> Scores:
    """Return 1 for rows of the speaker, if the question names exactly one."""
    speakers = pool.fields["speaker"]
    named = mentioned_speakers(question, {one for one in speakers if isinstance(one, str)})
    return np.array([float(len(named) == 1 and one in named) for one in speakers])


def _date_scores(question: Question, pool: CandidateColumns, now: datetime) -> Scores:
    """Score the distance to the days that the question names; 0 if it names none."""
    period = question.period(now.date())
    if period is None:
        return np.zeros(len(pool))
    days = [at.date() if isinstance(at, datetime) else None for at in pool.fields["valid_from"]]
    away = {day: period.away(day) for day in days if day is not None}
    worth = {
        day: sum(weight * math.exp(-gone / fades) for weight, fades in c.DATED) for day, gone in away.items()
    }
    alone = [number is None for number in pool.fields["number_in_conversation"]]
    return np.array(
        [
            0.0 if day is None else worth[day] + c.OF_THE_DAY * (apart and not away[day])
            for day, apart in zip(days, alone, strict=True)
        ]
    )


def _said_beside(question: Question, pool: CandidateColumns) -> Scores:
    """Return the words of the speaker and the date ("7 may 2023"), once each.

    They count for texts in a conversation, whose texts do not contain them.
    """
    speakers, moments = (
        pool.fields["speaker"],
        zip(pool.fields["valid_from"], pool.fields["number_in_conversation"], strict=True),
    )
    days = [at.date() if number is not None and isinstance(at, datetime) else None for at, number in moments]
    by_speaker = _stem_matches(question, {one: str(one) for one in speakers if one is not None}, speakers)
    by_day = _stem_matches(
        question,
        {day: f"{day.day} {MONTHS[day.month - 1]} {day.year}" for day in days if day is not None},
        days,
    )
    return np.maximum(by_speaker, by_day)


def _stem_matches(question: Question, texts: Mapping[Any, str], of: Sequence[Any]) -> Scores:
    """Return which stems of the question each text has; none without a text.

    Each text is split once, even if many rows have it.
    """
    table = np.zeros((len(texts) + 1, len(question.stems)))
    for row, text in enumerate(texts.values()):
        said = words(text)
        table[row] = [stem in said for stem in question.stems]
    places = {key: row for row, key in enumerate(texts)}
    return table[[places.get(key, len(texts)) for key in of]]


def _sessions(pool: CandidateColumns, in_context: Scores) -> Scores:
    """Return for each row the sum of the best rows of its conversation."""
    groups: dict[Any, list[int]] = {}
    for row, place in enumerate(zip(pool.scopes, pool.fields["conversation_id"], strict=True)):
        if place[1] is not None:
            groups.setdefault(place, []).append(row)
    sums = np.zeros(len(pool))
    for rows in groups.values():
        sums[rows] = np.sort(in_context[rows])[-c.SESSION_BEST :].sum()
    return sums
