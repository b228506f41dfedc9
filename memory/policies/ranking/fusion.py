"""Whole rankings merged into one: of paraphrases, and of what several ways of searching found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

RRF_K = 60  # Cormack, Clarke, Büttcher: "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning Methods" (2009); D80, D86


def fuse(rankings: Mapping[str, Sequence[str]], weights: Mapping[str, float] | None = None) -> list[tuple[str, float]]:
    """Reciprocal rank fusion: each ranking, best first, gives an id `weight / (60 + rank)`, rank from 1; ties by id ascending (D81).

    One ranking alone keeps its order.
    """
    scores: dict[str, float] = {}
    for name, ids in rankings.items():
        weight = 1.0 if weights is None else weights.get(name, 1.0)
        for rank, record_id in enumerate(ids, start=1):
            scores[record_id] = scores.get(record_id, 0.0) + weight / (RRF_K + rank)
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))


MEANING_WEIGHT = 0.7
"""How much the best possible match by meaning counts beside the best match by words; see docs/decisions on fusion."""


def combine(by_words: Mapping[str, float], by_meaning: Mapping[str, float]) -> list[tuple[str, float]]:
    """One ranking from two: word scores in parts of the best one, plus `MEANING_WEIGHT` times the cosine (never below 0).

    Best first, ties by id ascending.
    """
    best = max(by_words.values(), default=0.0) or 1.0
    scores = {record_id: score / best for record_id, score in by_words.items()}
    for record_id, cosine in by_meaning.items():
        scores[record_id] = scores.get(record_id, 0.0) + MEANING_WEIGHT * max(cosine, 0.0)
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))
