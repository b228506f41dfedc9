"""Merge several rankings into one, such as those of paraphrases."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

# Cormack, Clarke, Büttcher: "Reciprocal Rank Fusion outperforms Condorcet and
# individual Rank Learning Methods" (2009).
RRF_K = 60


def fuse(
    rankings: Mapping[str, Sequence[str]], weights: Mapping[str, float] | None = None
) -> list[tuple[str, float]]:
    """Merge rankings by reciprocal rank fusion.

    Each ranking, best first, gives an id `weight / (60 + rank)`, with ranks from 1.
    Ties are ordered by id. A single ranking keeps its order. An id that a ranking
    repeats counts at its first place.
    """
    given: dict[str, list[float]] = {}
    for name, ids in rankings.items():
        weight = 1.0 if weights is None else weights.get(name, 1.0)
        first: dict[str, float] = {}
        for rank, record_id in enumerate(ids, start=1):
            first.setdefault(record_id, weight / (RRF_K + rank))
        for record_id, part in first.items():
            given.setdefault(record_id, []).append(part)
    scores = {
        record_id: math.fsum(parts) for record_id, parts in given.items()
    }  # exact in any order of summation, so that ties are ties
    if len(rankings) == 1:
        return list(scores.items())
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))
