"""What a message weighs among others: its importance, and how much it says the same as another. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from memory.domain.message import Message, Role

TASK_WORDS = (
    "task",
    "todo",
    "must",
    "should",
    "need",
    "require",
    "implement",
    "create",
    "build",
    "fix",
    "error",
    "bug",
    "goal",
    "deadline",
    "important",
)
"""Words by which a message is taken to speak of the work itself (A116)."""
SHORT = 50
"""Characters below which a message says little."""

_ACKNOWLEDGES = re.compile(
    r"\s*(ok|okay|yes|yep|yeah|sure|thanks|thank you|got it|great|perfect|understood|alright|cool|nice|sounds good|no problem)\b", re.IGNORECASE
)


def importance(message: Message, index: int, total: int, task_words: Iterable[str] = ()) -> float:
    """How much a message matters, 0 to 100: later ones more, what sets the frame or speaks of the work more, mere assent less (A116).

    `metadata["importance"]`, a number, is what the caller thinks: the mean of both then.
    """
    text = message.text
    score = 50 + 20 * index / max(1, total)
    score += 30 * (message.role is Role.SYSTEM)
    score += 15 * _speaks_of(text, (*TASK_WORDS, *task_words))
    score += 10 * ("```" in text)
    score += 10 * (message.role is Role.USER and ("?" in text or "？" in text))
    score -= 20 * (_ACKNOWLEDGES.match(text) is not None)
    score -= 10 * (len(text) < SHORT)
    score += 25 * message.is_summary
    given = message.metadata.get("importance")
    if isinstance(given, int | float) and not isinstance(given, bool):
        score = (score + given) / 2
    return min(100.0, max(0.0, score))


def similarity(one: str, other: str) -> float:
    """How many of their words two texts share, 0 to 1: Jaccard over lower-cased words of more than two characters; 0 where one has none (A117)."""
    return similarity_of(words_of(one), words_of(other))


def similarity_of(one: frozenset[str], other: frozenset[str], *, least: float = 0) -> float:
    """`similarity` of words; 0 too where their numbers alone say that it is below `least`."""
    fewer, more = sorted((len(one), len(other)))
    if fewer < least * more:
        return 0.0
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared) if one and other else 0.0


def words_of(text: str) -> frozenset[str]:
    return frozenset(word for word in text.lower().split() if len(word) > 2)


def _speaks_of(text: str, words: Iterable[str]) -> bool:
    said = set(re.findall(r"\w+", text.lower()))
    return any(word.lower() in said for word in words)
