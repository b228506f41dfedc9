"""Detect entries that may repeat or contradict each other, by words and meaning. Pure.

`python -m bench.near` measures it. Of 48 pairs of such short facts, 90 % are found. Of
1,200 ordinary facts about ten people, 48 % find another about the same person, one on
average. By words alone the figures are 90 %, 50 % and one.
"""

from __future__ import annotations

from collections.abc import Set

from memory.ports.text import query_words

SHOWN = 5
"""The maximum number of entries that are shown."""
LOOKED_AT = 20
"""The number of best hits that are checked, by words and by meaning."""
WORDS = 0.5
"""The minimum share of the shorter text's content words that the other one has."""
MEANING = 0.27
"""The minimum cosine of their vectors.

Of texts with nothing in common, 99 % are below it, by the bundled model. Facts that
differ in one name, as contradictions do, may be at 0.3. At 0.4, 85 % of pairs are
found, and 43 % of facts find another.
"""


def content_words(text: str) -> frozenset[str]:
    """Return the words of a text that are compared."""
    return frozenset(query_words(text))


def in_common(one: Set[str], other: Set[str]) -> float:
    """Return the share of the shorter text's words that the longer one has too.

    It is 0 if one of them has no words.
    """
    fewer = min(len(one), len(other))
    return len(one & other) / fewer if fewer else 0.0


def near(common: float, cosine: float | None) -> bool:
    """Return whether two texts may say the same.

    `common` is their share of common words. `cosine` is that of their vectors; None
    without vectors.
    """
    return common >= WORDS and (cosine is None or cosine >= MEANING)
