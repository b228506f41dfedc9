"""Relevance: how well a candidate answers, from 0 to 1, comparable across questions.

It is a logistic function of two measures. One is how far the cosine is above that of
unrelated texts. The other is the share of the question's words, weighted by rarity, in
the candidate and its neighbours. If the cosine alone, calibrated for semantic searches,
gives more, it counts alone. Words do not count if all of them are stopwords.
Preferences and age do not count. The constants are fitted by `python -m bench
relevance` (see `calibration`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from memory.policies.entry_query import SearchMode
from memory.policies.ranking.calibration import LEXICAL, Calibration, Constants, EmbedderCalibration
from memory.policies.ranking.formatting import percentage

Scores = npt.NDArray[np.float64]

NOTICEABLE = 0.005
"""Cosines that differ by less are shown as equal."""


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """The evidence for each candidate, in the pool's order."""

    cosine: Scores
    """The cosine with the question."""
    window_cosine: Scores
    """The cosine including the neighbours in the conversation."""
    lexical_share: Scores
    """The share of the question's words in the text or its neighbours, by rarity."""
    in_conversation: npt.NDArray[np.bool_]
    """Whether it has a number in a conversation."""
    has_vector: npt.NDArray[np.bool_]
    """Whether there is a cosine: both the question and the candidate have a vector."""
    has_content: bool = True
    """Whether the question has a word that is no stopword. Otherwise words say nothing
    about an answer: every text has them.
    """

    def explain(self, row: int) -> dict[str, float]:
        """Return the evidence for a candidate."""
        shown = {"lexical_share": float(self.lexical_share[row])}
        if self.has_vector[row]:
            shown |= {
                "cosine": float(self.cosine[row]),
                "cosine_with_neighbours": float(self.window_cosine[row]),
            }
        return {name: round(value, 4) for name, value in shown.items()}


@dataclass(frozen=True, slots=True, eq=False)
class EmbedderScale:
    """The constants of an embedder, and its mean vector of unrelated texts."""

    constants: EmbedderCalibration
    unrelated: npt.NDArray[np.float32]

    def baseline(self, near: bytes) -> float:
        """Return the mean cosine of the question with unrelated texts."""
        asked = np.frombuffer(near, "<f4")
        length = float(np.linalg.norm(asked))
        return float(asked @ self.unrelated) / length if length > 0 else 0.0


def embedder_scale(constants: EmbedderCalibration, vectors: Sequence[bytes]) -> EmbedderScale:
    """Return the scale of an embedder, from its vectors of `UNRELATED_TEXTS`."""
    table = np.array([np.frombuffer(vector, "<f4") for vector in vectors if vector])
    return EmbedderScale(constants, table.mean(axis=0))


@dataclass(frozen=True, slots=True, eq=False)
class Relevance:
    """The relevance of each candidate, and the terms of the logistic function."""

    values: Scores
    evidence: Evidence
    baseline: float
    parts: Scores
    """Rows: the offset, the semantic and the lexical term. Columns: candidates."""

    def explain(self, row: int) -> dict[str, Any]:
        """Explain the relevance of a candidate, as numbers and as a sentence."""
        offset, semantic, lexical = map(float, self.parts[:, row])
        shown: dict[str, Any] = self.evidence.explain(row)
        said = [f"{shown['lexical_share']:.0%} of the question's words (by rarity) {lexical:+.2f}"]
        if "cosine" in shown:
            cosine, window = shown["cosine"], shown["cosine_with_neighbours"]
            beside = f" ({window:.2f} with its neighbours)" if abs(window - cosine) >= NOTICEABLE else ""
            said.insert(
                0, f"cosine {cosine:.2f}{beside} over {self.baseline:.2f} of unrelated texts {semantic:+.2f}"
            )
            shown["cosine_of_unrelated"] = round(self.baseline, 4)
        parts = {"offset": round(offset, 4), "semantic": round(semantic, 4), "lexical": round(lexical, 4)}
        value = float(self.values[row])
        words = f"relevance {percentage(value)}: {', '.join(said)}, offset {offset:+.2f}"
        return {**shown, "value": round(value, 4), "parts": parts, "in_words": words}


def relevance(
    evidence: Evidence,
    mode: SearchMode,
    near: bytes | None,
    scale: EmbedderScale | None,
) -> Relevance | None:
    """Return the relevance of each candidate.

    None if cosines count and the embedder has no calibration (`scale` is None).
    """
    if near is None or mode == "lexical":
        return _of(evidence, _constants(evidence, LEXICAL), 0.0)
    if scale is None:
        return None
    baseline = scale.baseline(near)
    semantic = _of(evidence, _constants(evidence, scale.constants.semantic), baseline)
    if mode == "semantic":
        return semantic
    hybrid = _of(evidence, _constants(evidence, scale.constants.hybrid), baseline)
    lexical = _of(evidence, _constants(evidence, LEXICAL), 0.0)
    best = np.where(semantic.values > hybrid.values, semantic.parts, hybrid.parts)
    return _make_relevance(evidence, baseline, np.where(evidence.has_vector, best, lexical.parts))


def _of(evidence: Evidence, constants: Scores, baseline: float) -> Relevance:
    offset, semantic, lexical = constants
    above = (evidence.cosine + evidence.window_cosine) / 2 - baseline
    telling = evidence.lexical_share if evidence.has_content else np.zeros_like(above)
    return _make_relevance(evidence, baseline, np.array([offset, semantic * above, lexical * telling]))


def _make_relevance(evidence: Evidence, baseline: float, parts: Scores) -> Relevance:
    return Relevance(np.asarray(1 / (1 + np.exp(-parts.sum(axis=0)))), evidence, baseline, parts)


def _constants(evidence: Evidence, calibration: Calibration) -> Scores:
    """Return a row for each constant and a column for each candidate."""
    inside, alone = _column(calibration.in_conversation), _column(calibration.alone)
    return np.where(evidence.in_conversation, inside, alone)


def _column(constants: Constants) -> Scores:
    return np.array([[constants.offset], [constants.semantic], [constants.lexical]])
