"""Merge several rankings into one, such as those of paraphrases."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from memory.domain import validation
from memory.domain.errors import InvalidInput

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

    Args:
        rankings: Ids, best first, under a name for each ranking.
        weights: By name of the ranking; 1 where there is none.

    Returns:
        Each id once, with its score, best first.

    Raises:
        InvalidInput: An argument is no dict, a ranking is no list, or a weight is
            negative, not finite or of no ranking.
    """
    for field, given in (("rankings", rankings), ("weights", weights or {})):
        if not isinstance(given, Mapping):
            raise InvalidInput(field, f"must be a dict by name of the ranking, not {type(given).__name__}")
    for name, weight in (weights or {}).items():
        if name not in rankings:
            raise InvalidInput(f"weights.{name}", "there is no ranking with this name")
        if validation.number(f"weights.{name}", weight) < 0:
            raise InvalidInput(f"weights.{name}", f"must be zero or more, not {weight}")
    parts_of: dict[str, list[float]] = {}
    for name, ids in rankings.items():
        weight = 1.0 if weights is None else weights.get(name, 1.0)
        first: dict[str, float] = {}
        for rank, record_id in enumerate(validation.sequence(f"rankings.{name}", ids), start=1):
            first.setdefault(record_id, weight / (RRF_K + rank))
        for record_id, part in first.items():
            parts_of.setdefault(record_id, []).append(part)
    scores = {
        record_id: math.fsum(parts) for record_id, parts in parts_of.items()
    }  # exact in any order of summation, so that ties are ties
    if len(rankings) == 1:
        return list(scores.items())
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))
