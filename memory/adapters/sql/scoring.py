"""BM25F over arrays: the arithmetic every dialect ranks with."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from memory.ports.text import K1, B

Scores: TypeAlias = npt.NDArray[np.float64]


def norms(lengths: npt.NDArray[Any], average: float) -> Scores:
    """What the length of each record does to the weight of its words."""
    return np.asarray(K1 * (1 - B + B * lengths / average)) if average else np.full(len(lengths), K1)


def gained(rarity: float, frequencies: Scores, norm: Scores) -> Scores:
    """What a word adds to the scores of records that hold it so often."""
    return np.asarray(rarity * frequencies * (K1 + 1) / (frequencies + norm))
