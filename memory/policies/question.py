"""Prepare a question for a search: its words, names, embedded text and cues. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property

from memory.policies.cues import expected_marks, intents
from memory.policies.dates import Period, period_of
from memory.policies.typos import apply_corrections
from memory.ports.text import STOPWORDS, cut, query_words, stem

_LETTER = re.compile(r"[^\W\d_]")


MOST_STEMS = 128
"""The maximum number of content words by which a question is searched and ranked.

A question as long as a page has hundreds, and each is looked up in every store.
"""
OPENING = 2_048
"""The number of characters in which a question may name a period, and in which its cues
are recognised.

A text of many pages is no question of a person, and each pattern reads all of it.
"""


@dataclass(frozen=True)
class Question:
    """A question of a search. Values for ranking are computed when they are needed."""

    text: str
    embedded: str
    """The text without names, unless names are more than half of it.

    A name says little about the meaning of a question, but influences its vector much
    (retrieval.md: 41 to 57 for vectors alone).
    """
    corrections: Mapping[str, str] = field(default_factory=dict)
    """The corrections of folded words. The text already has the corrected words."""

    @cached_property
    def stems(self) -> tuple[str, ...]:
        """The content words and names for ranking; the first ones if they are many."""
        return tuple(query_words(self.text)[:MOST_STEMS])

    @cached_property
    def has_content(self) -> bool:
        """Whether it has a word that is no stopword."""
        return _content(self.text) > 0

    @property
    def search_text(self) -> str:
        """The text whose words are searched in stores.

        Of a question as long as a page, it has only the first content words.
        """
        words = cut(self.text)
        if len(words) <= MOST_STEMS:
            return self.text
        content = dict.fromkeys(word for word in words if word not in STOPWORDS) or dict.fromkeys(words)
        return " ".join(list(content)[:MOST_STEMS])

    @cached_property
    def opening(self) -> str:
        return self.text[:OPENING]

    def period(self, today: date) -> Period | None:
        """Return the period that the question names."""
        if today not in self._periods:
            self._periods[today] = period_of(self.opening, today)
        return self._periods[today]

    @cached_property
    def _periods(self) -> dict[date, Period | None]:
        """The periods by the day of asking: several stages of a search need them."""
        return {}

    @cached_property
    def cues(self) -> tuple[tuple[int, float], ...]:
        return expected_marks(self.opening)

    @cached_property
    def intents(self) -> frozenset[str]:
        return intents(self.opening)

    @property
    def correction_mask(self) -> tuple[bool, ...]:
        """Whether each stem is a correction of another word."""
        meant = {stem(word) for word in self.corrections.values()}
        return tuple(one in meant for one in self.stems)


def read(text: str) -> Question:
    """Read a question before the speakers in its scopes are known.

    Capitalised words may be names, except at the beginning of a sentence.
    """
    named = _capitalised_words(text)
    return Question(text, _without(text, named) if named else text)


def read_as(question: Question, corrections: Mapping[str, str]) -> Question:
    """Return the question with the probable typos corrected."""
    return replace(read(apply_corrections(question.text, corrections)), corrections=corrections)


def mentioned_speakers(question: Question, speakers: Iterable[str]) -> frozenset[str]:
    """Return the speakers whose first word occurs in the question, in any case."""
    said = frozenset(cut(question.text))
    return frozenset(speaker for speaker in speakers if (words := cut(speaker)) and words[0] in said)


def _without(text: str, named: frozenset[str]) -> str:
    """Return the text without the names, or the whole text if too little would remain.

    Of "What is Kubernetes?" nothing would remain, and every word of a title has a
    capital.
    """
    said = text.split()
    leaves = {word for word in set(said) if _is_name(word, named)}
    kept = " ".join([word for word in said if word not in leaves])
    return kept if 2 * _content(kept) >= _content(text) else text


def _content(text: str) -> int:
    return sum(word not in STOPWORDS for word in cut(text))


def _is_name(word: str, named: frozenset[str]) -> bool:
    """Return whether the word is a name, ignoring a genitive and punctuation."""
    parts = cut(word)
    return bool(parts) and parts[0] in named and parts[1:] in ([], ["s"])


def _capitalised_words(text: str) -> frozenset[str]:
    found, begins = set[str](), True
    for word in text.split():
        first = _LETTER.search(word)
        if (
            not begins
            and first
            and first[0].isupper()
            and not word.isupper()
            and (letters := cut(word))[0] not in STOPWORDS
        ):
            found.add(letters[0])
        begins = word.endswith((".", "!", "?", ":"))
    return frozenset(found)
