"""What entries say: a topic, found by meaning by a word that is not in the text, and
words of their own, by which one entry alone is found.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

TOPICS = {
    "harbour": "ocean",
    "bakery": "bread",
    "railway": "train",
    "garden": "flower",
    "library": "book",
    "violin": "music",
    "volcano": "lava",
    "chess": "gambit",
}
"""A word of the text, and the word that asks for its meaning."""
_PLACE = {word: place for place, pair in enumerate(TOPICS.items()) for word in pair}
LONG = "and so it went on " * 60
"""Filling of a text that has parts: what is behind it is in the last of them."""


async def embed(texts: Sequence[str]) -> list[list[float]]:
    """One direction a topic; a text of no topic has none, and is found by words alone."""
    return [_vector(text) for text in texts]


def _vector(text: str) -> list[float]:
    vector = [0.0] * len(TOPICS)
    for word in text.split():
        if word in _PLACE:
            vector[_PLACE[word]] = 1.0
    return vector


OWN = re.compile(rb"zq[0-9a-z]+7k")


def own_word(number: int, part: str) -> str:
    """A word that no other operation's texts hold; letters and digits, so that no
    stemmer touches it.
    """
    return f"zq{number}{part}7k"


def owned(text: str) -> set[str]:
    """The words of their own that a text has, wherever they stand in it."""
    return {word.decode() for word in OWN.findall(text.encode())}


def is_own(word: str) -> bool:
    return word.startswith("zq") and word.endswith("7k")
