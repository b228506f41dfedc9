"""BM25F over arrays: the arithmetic of `memory.ports.text` for many records at once,
whoever ranks them.
"""

from __future__ import annotations

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


def term_scores(rarity: float | Scores, frequencies: Scores, norm: Scores) -> Scores:
    """What a word adds to the scores of records that hold it so often."""
    return np.asarray(rarity * frequencies * (K1 + 1) / (frequencies + norm))
