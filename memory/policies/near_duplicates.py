"""When two entries may say the same, or contradict each other: near in words and in
meaning. Pure.

Measured by `python -m bench.near`: of 48 pairs of short facts that do 90 in 100 are
found; of 1,200 ordinary facts about ten people 48 in 100 find another about the same
person, and each finds one on average. By words alone 90, 50 and one.
"""

from __future__ import annotations

from collections.abc import Set

from memory.ports.text import query_words

SHOWN = 5
"""Entries that are shown at most."""
LOOKED_AT = 20
"""The best of a search by words and by meaning: among these the near ones are."""
WORDS = 0.5
"""The least part of the content words of the shorter text that the other has too."""
MEANING = 0.27
"""The least cosine of their vectors: texts with nothing in common are under it, 99 in
100, by the bundled model. Facts that differ in one name, which is what a contradiction
is, may be at 0.3; at 0.4 85 in 100 pairs are found, and 43 in 100 facts find another.
"""


def content_words(text: str) -> frozenset[str]:
    """What is compared of a text."""
    return frozenset(query_words(text))


def in_common(one: Set[str], other: Set[str]) -> float:
    """The part of the words of the shorter text that the longer has too; none where one
    says nothing.
    """
    fewer = min(len(one), len(other))
    return len(one & other) / fewer if fewer else 0.0


def near(common: float, cosine: float | None) -> bool:
    """Whether two texts with so many words in common, and vectors so near each other,
    may say the same. None: there are no vectors.
    """
    return common >= WORDS and (cosine is None or cosine >= MEANING)
