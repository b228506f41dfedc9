"""Selecting the best scored rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memory.ports.bm25 import Ints, Scores


@dataclass(frozen=True, slots=True)
class Candidates:
    """Rows and their scores, in no order.

    Scores within `slack` of each other may change places once computed exactly.
    """

    numbers: Ints
    scores: Scores
    slack: float = 0.0

    def best(self, count: int) -> tuple[list[int], list[float]]:
        """Return at least `count` of them, best first, as far as there are.

        It never cuts between scores that are too close to tell apart.
        """
        numbers, scores = self.numbers, self.scores
        if count < len(scores):
            lowest = np.partition(scores, len(scores) - count)[len(scores) - count] - self.slack
            kept = scores >= lowest
            numbers, scores = numbers[kept], scores[kept]
        order = np.argsort(-scores, kind="stable")
        return numbers[order].tolist(), scores[order].tolist()
