"""BM25F over arrays, and cosines in double precision: the arithmetic every dialect ranks with."""

from __future__ import annotations

from collections.abc import Sequence
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


def exact_cosines(asked: bytes, vectors: Sequence[bytes | None]) -> list[float]:
    """The cosines in double precision: equal vectors get equal scores to the last bit. Infinite for what is no such vector."""
    a = np.frombuffer(asked, dtype="<f4").astype("f8")
    whole = [v if isinstance(v, bytes) and len(v) == len(asked) else b"\xff" * len(asked) for v in vectors]  # of bytes ff: NaN
    b = np.frombuffer(b"".join(whole), dtype="<f4").reshape(len(whole), len(a)).astype("f8")
    with np.errstate(all="ignore"):
        cosines = (b * a).sum(axis=1) / (np.sqrt((b * b).sum(axis=1)) * np.sqrt((a * a).sum()))
    found: list[float] = np.where(np.isnan(cosines), np.inf, cosines).tolist()
    return found
