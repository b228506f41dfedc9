"""Words of a question that nothing holds, and what was probably meant: a word of the
texts that is a slip of the hand away. Pure.

For words of five letters or more that match nothing, and never by adding or dropping an
ending.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from memory.ports.text import STOPWORDS, cut, fold, stem

SHORTEST = 5
"""Letters of a word that is corrected."""
LONG = 9
"""Letters from which two slips are thought of."""
MOST_WORDS = 8
"""Words of one question that are corrected."""
LOOKED_AT = 1_000
"""Characters of each text that are searched for what was meant."""
ENDING = 2
"""Letters at the end that make another ending of a word."""
_WORD = re.compile(r"[^\W\d_]+")


def unknown_words(text: str, unknown: Collection[str]) -> tuple[str, ...]:
    """The folded words of the text whose stems are among the unknown, as far as they
    may be slips.
    """
    return tuple(
        dict.fromkeys(
            word
            for word in cut(text)
            if len(word) >= SHORTEST and _in_letters(word) and stem(word) in unknown
        )
    )[:MOST_WORDS]


def corrections(words: Iterable[str], texts: Iterable[str]) -> dict[str, str]:
    """For each of these words the word of the texts that is nearest, the most frequent
    of such; those without one are left out.
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
    """The text with these words in place of those."""
    return _WORD.sub(lambda found: corrections.get(fold(found[0]), found[0]), text)


def _away(word: str, other: str, slips: int) -> int | None:
    """How many slips lie between, where they are no more, the first letter is the same
    and not the ending alone is another.
    """
    if word[0] != other[0] or abs(len(word) - len(other)) > slips or word == other:
        return None
    alike = next(
        (n for n, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), min(len(word), len(other))
    )
    if alike >= max(len(word), len(other)) - ENDING and len(word) != len(other):
        return None  # another ending, or one more
    one, another = _apart(word[alike:], other[alike:])
    if slips == 1 and max(len(one), len(another)) > 2:
        return None  # one slip is in two letters side by side at most
    away = distance(one, another)
    return away if away <= slips else None


def _apart(one: str, other: str) -> tuple[str, str]:
    """Both without the end that they share, which takes no slip."""
    shared = next(
        (n for n, (a, b) in enumerate(zip(reversed(one), reversed(other), strict=False)) if a != b),
        min(len(one), len(other)),
    )
    return one[: len(one) - shared], other[: len(other) - shared]


def distance(one: str, other: str) -> int:
    """Letters to put in, take out, put in place of another, or two neighbours to swap:
    the optimal string alignment distance (Damerau, 1964).
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
