"""Weigh messages: their importance, and their similarity to others. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import ceil

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
"""Words of messages about the work itself."""
SHORT = 50
"""A message with fewer characters counts as short."""

_ACKNOWLEDGES = re.compile(
    r"\s*(ok|okay|yes|yep|yeah|sure|thanks|thank you|got it|great|perfect|understood|alright|cool|nice|sounds"
    r" good|no problem)\b",
    re.IGNORECASE,
)


def importance(message: Message, index: int, total: int, task_words: Iterable[str] = ()) -> float:
    """Return the importance of a message, from 0 to 100.

    Later messages count more. So do system messages, summaries, questions and messages
    about the work. Mere acknowledgements count less. A number in
    `metadata["importance"]` is the caller's opinion; then the result is the mean of
    both.
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
    """Return the share of common words of two texts, from 0 to 1.

    It is the Jaccard index of lower-cased words of more than two characters; 0 if a
    text has none.
    """
    return _alike(_words(one), _words(other))


def duplicates(messages: Sequence[Message], threshold: float = 0.85) -> dict[int, tuple[int, ...]]:
    """Return the positions of messages that are similar to an earlier one.

    They are grouped by the position of the earliest, and each occurs once. Two texts
    with enough common words share one of their rarest words, so only those are
    compared.
    """
    said = [_words(message.text) for message in messages]
    frequency = Counter(word for words in said for word in words)
    rarest = [_rarest(words, frequency, threshold) for words in said]
    sharing: dict[str, list[int]] = {}
    for position, words in enumerate(rarest):
        for word in words:
            sharing.setdefault(word, []).append(position)
    found: dict[int, tuple[int, ...]] = {}
    named: set[int] = set()
    for earliest, words in enumerate(rarest):
        if earliest not in named:
            others = {at for word in words for at in sharing[word] if at > earliest and at not in named}
            alike = tuple(sorted(at for at in others if _alike(said[earliest], said[at]) >= threshold))
            found |= {earliest: alike} if alike else {}
            named.update(alike)
    return found


def _words(text: str) -> frozenset[str]:
    return frozenset(word for word in text.lower().split() if len(word) > 2)


def _alike(one: frozenset[str], other: frozenset[str]) -> float:
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared) if one and other else 0.0


def _rarest(words: frozenset[str], frequency: Mapping[str, int], threshold: float) -> list[str]:
    """Return the rarest words, of which every similar enough text has at least one."""
    spared = len(words) - ceil(threshold * len(words) - 1e-9)
    return sorted(words, key=lambda word: (frequency[word], word))[: spared + 1]


def _speaks_of(text: str, words: Iterable[str]) -> bool:
    said = set(re.findall(r"\w+", text.lower()))
    return any(word.lower() in said for word in words)
