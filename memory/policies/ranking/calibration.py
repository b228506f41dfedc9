"""The constants of relevance, written by `python -m bench relevance --write`.

Do not edit them by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Constants:
    """The constants of relevance, which is a logistic function.

    Its argument is `offset + semantic * (cosine above unrelated texts) + lexical *
    (share of words)`.
    """

    offset: float
    semantic: float
    lexical: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Constants for texts with neighbours in a conversation, and for single texts."""

    in_conversation: Constants
    alone: Constants


@dataclass(frozen=True, slots=True)
class EmbedderCalibration:
    """The calibration of one embedder, for hybrid and for semantic searches."""

    hybrid: Calibration
    semantic: Calibration


# written from here on
LEXICAL = Calibration(
    in_conversation=Constants(offset=-5.113, semantic=0.0, lexical=7.414),
    alone=Constants(offset=-5.578, semantic=0.0, lexical=10.023),
)

EMBEDDERS: Mapping[str, EmbedderCalibration] = {
    "wordllama-0.4.0/l2_supercat (256 dimensions, cosine)": EmbedderCalibration(
        hybrid=Calibration(
            in_conversation=Constants(offset=-6.059, semantic=3.649, lexical=6.183),
            alone=Constants(offset=-6.4, semantic=2.669, lexical=8.468),
        ),
        semantic=Calibration(
            in_conversation=Constants(offset=-5.35, semantic=9.015, lexical=0.0),
            alone=Constants(offset=-5.329, semantic=8.133, lexical=0.0),
        ),
    ),
}
