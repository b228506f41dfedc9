"""Made-up sentences: the same for the same seed, with words as unevenly spread as in
real text.
"""

from __future__ import annotations

import random

_SYLLABLES = [consonant + vowel for consonant in "bdfghklmnprstvw" for vowel in "aeio"]
_ENDS = "lan ler mon net nor pel ras ren rik sal sen tal tan ter vel ven ver vik wen zon".split()
WORDS = [a + b + c for a in _SYLLABLES for b in _SYLLABLES[::5] for c in _ENDS]
random.Random(0).shuffle(WORDS)  # noqa: S311 - repeatable, not secret
_WEIGHTS = [1 / (rank + 3) for rank in range(len(WORDS))]


def sentences(count: int, seed: int, words: int = 14) -> list[str]:
    """So many sentences of about so many words, drawn by Zipf's law."""
    chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
    lengths = [chance.randint(words - 6, words + 6) for _ in range(count)]
    drawn = iter(chance.choices(WORDS, _WEIGHTS, k=sum(lengths)))
    return [" ".join(next(drawn) for _ in range(length)) for length in lengths]


def questions(count: int, seed: int) -> list[str]:
    """Short queries over the same words, the most frequent ones left out as stopwords
    would be.
    """
    chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
    return [
        " ".join(chance.choices(WORDS[30:4000], _WEIGHTS[30:4000], k=chance.randint(2, 5)))
        for _ in range(count)
    ]
