"""Correct probable typos of a question by words of the texts. Pure.

It only corrects words of five letters or more that match nothing. It never adds or
removes an ending.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from memory.ports.text import STOPWORDS, cut, fold, stem

SHORTEST = 5
"""The minimum number of letters of a word that is corrected."""
LONG = 9
"""The letters from which two typos are assumed."""
MOST_WORDS = 8
"""The maximum number of words of one question that are corrected."""
LOOKED_AT = 1_000
"""The maximum number of characters of each text that are searched for corrections."""
ENDING = 2
"""The letters at the end of a word that count as its ending."""
_WORD = re.compile(r"[^\W\d_]+")


def unknown_words(text: str, unknown: Collection[str]) -> tuple[str, ...]:
    """Return the folded words whose stems are unknown and that may be typos."""
    return tuple(
        dict.fromkeys(
            word
            for word in cut(text)
            if len(word) >= SHORTEST and _in_letters(word) and stem(word) in unknown
        )
    )[:MOST_WORDS]


def corrections(words: Iterable[str], texts: Iterable[str]) -> dict[str, str]:
    """Return the nearest word of the texts for each word, if there is one.

    Of equally near words it is the most frequent.
    """
    words = list(words)
    firsts = {word[0] for word in words}
    begins_so = [
        word
        for text in texts
        for word in set(cut(text[:LOOKED_AT]))
        if word[0] in firsts and len(word) >= SHORTEST - 1
    ]
    heard = {word: times for word, times in Counter(begins_so).items() if _in_letters(word)}
    found = {}
    for word in words:
        slips = 1 + (len(word) >= LONG)
        near = [
            (away, -count, other)
            for other, count in heard.items()
            if (away := _away(word, other, slips)) is not None
        ]
        if near:
            found[word] = min(near)[2]
    return found


def _in_letters(word: str) -> bool:
    return word.isascii() and word.isalpha() and word not in STOPWORDS


def apply_corrections(text: str, corrections: Mapping[str, str]) -> str:
    """Return the text with the corrections applied."""
    return _WORD.sub(lambda found: corrections.get(fold(found[0]), found[0]), text)


def _away(word: str, other: str, slips: int) -> int | None:
    """Return the number of typos between two words, or None.

    It is None for more than `slips`, another first letter, or only another ending.
    """
    if word[0] != other[0] or abs(len(word) - len(other)) > slips or word == other:
        return None
    alike = next(
        (n for n, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), min(len(word), len(other))
    )
    if alike >= max(len(word), len(other)) - ENDING and len(word) != len(other):
        return None  # another or an additional ending
    one, another = _apart(word[alike:], other[alike:])
    if slips == 1 and max(len(one), len(another)) > 2:
        return None  # one typo changes at most two adjacent letters
    away = distance(one, another)
    return away if away <= slips else None


def _apart(one: str, other: str) -> tuple[str, str]:
    """Return both without their common end."""
    shared = next(
        (n for n, (a, b) in enumerate(zip(reversed(one), reversed(other), strict=False)) if a != b),
        min(len(one), len(other)),
    )
    return one[: len(one) - shared], other[: len(other) - shared]


def distance(one: str, other: str) -> int:
    """Return the optimal string alignment distance (Damerau, 1964).

    It counts inserted, removed and replaced letters, and swaps of neighbours.
    """
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, start=1):
        earlier, before, row = before, row, [i]
        for j, b in enumerate(other, start=1):
            least = min(before[j] + 1, row[-1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                least = min(least, earlier[j - 2] + 1)
            row.append(least)
    return row[-1]
