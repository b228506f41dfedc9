"""Whole rankings merged into one, as those of paraphrases are."""

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
