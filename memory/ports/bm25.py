"""BM25F over arrays: the arithmetic of `memory.ports.text` for many records."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from memory.ports.text import K1, B

Scores: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]


def norms(lengths: npt.NDArray[Any], average: float) -> Scores:
    """Return each record's length normalisation of its word counts."""
    return np.asarray(K1 * (1 - B + B * lengths / average)) if average else np.full(len(lengths), K1)


def rarities(documents: int, containing: Ints) -> Scores:
    """Return each word's rarity; see `memory.ports.text.rarity`."""
    return np.asarray(np.log1p((documents - containing + 0.5) / (containing + 0.5)))


def term_scores(rarity: float | Scores, frequencies: Scores, norm: Scores) -> Scores:
    """Return a word's contribution to the scores of records with these frequencies."""
    return np.asarray(rarity * frequencies * (K1 + 1) / (frequencies + norm))
