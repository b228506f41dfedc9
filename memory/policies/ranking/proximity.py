"""How close together the words of a question are in the best candidates' texts."""

from __future__ import annotations

from collections.abc import Sequence

from memory.policies.question import Question
from memory.policies.ranking import constants as c
from memory.ports.text import words

LOOKED_AT = 10_000
"""The maximum number of characters of a text that are searched for words."""


def closeness(question: Question, texts: Sequence[str]) -> float:
    """Return the multiplier of a score.

    A phrase counts most, then words within eight of each other, then words far apart,
    then texts without all words. It applies to questions of two to six content words. A
    phrase of more words counts too; otherwise the multiplier is 1.
    """
    stems = question.stems
    if len(stems) < c.CLOSE_WORDS[0]:
        return 1.0
    said = [words(text[:LOOKED_AT]) for text in texts]
    if any(_has_phrase(one, stems) for one in said):
        return c.PHRASE
    if len(stems) > c.CLOSE_WORDS[1]:
        return 1.0
    spans = [span for one in said if (span := _span(one, stems)) is not None]
    if not spans:
        return 1.0
    return c.NEAR if min(spans) <= c.NEAR_WORDS + len(stems) - 1 else c.FAR


def _has_phrase(said: Sequence[str], stems: Sequence[str]) -> bool:
    first, wide = stems[0], len(stems)
    return any(one == first and tuple(said[at : at + wide]) == tuple(stems) for at, one in enumerate(said))


def _span(said: Sequence[str], stems: Sequence[str]) -> int | None:
    """Return the length of the shortest span with all of these words, or None."""
    wanted, last, best = set(stems), dict[str, int](), None
    for at, one in enumerate(said):
        if one in wanted:
            last[one] = at
            if len(last) == len(wanted):
                span = at - min(last.values()) + 1
                best = span if best is None else min(best, span)
    return best
