"""BM25F over arrays, and the best of what was scored: the arithmetic every dialect ranks with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from memory.ports.text import K1, B

Scores: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]


def norms(lengths: npt.NDArray[Any], average: float) -> Scores:
    """What the length of each record does to the weight of its words."""
    return np.asarray(K1 * (1 - B + B * lengths / average)) if average else np.full(len(lengths), K1)


def rarities(documents: int, containing: Ints) -> Scores:
    """What each of several words tells, see `memory.ports.text.rarity`."""
    return np.asarray(np.log1p((documents - containing + 0.5) / (containing + 0.5)))


def gained(rarity: float | Scores, frequencies: Scores, norm: Scores) -> Scores:
    """What a word adds to the scores of records that hold it so often."""
    return np.asarray(rarity * frequencies * (K1 + 1) / (frequencies + norm))


@dataclass(frozen=True, slots=True)
class Candidates:
    """Rows and their scores, in no order. Scores within `slack` of each other may change places once computed exactly."""

    numbers: Ints
    scores: Scores
    slack: float = 0.0

    def best(self, count: int) -> tuple[list[int], list[float]]:
        """At least so many of them, best first, as far as there are; never parted between scores too close to tell apart."""
        numbers, scores = self.numbers, self.scores
        if count < len(scores):
            lowest = np.partition(scores, len(scores) - count)[len(scores) - count] - self.slack
            kept = scores >= lowest
            numbers, scores = numbers[kept], scores[kept]
        order = np.argsort(-scores, kind="stable")
        return numbers[order].tolist(), scores[order].tolist()
