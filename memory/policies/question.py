"""A question as it is searched for: its words, the names in it, the text that is
embedded, its cues. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from memory.policies.cues import expected_marks, intents
from memory.policies.typos import apply_corrections
from memory.ports.text import STOPWORDS, cut, query_words, stem

_LETTER = re.compile(r"[^\W\d_]")


MOST_STEMS = 128
"""Content words by which a question is searched for and ranked: one as long as a page
has hundreds, and each is looked up in every store.
"""


@dataclass(frozen=True)
class Question:
    """What is asked. What ranking alone asks of it is read when it does."""

    text: str
    embedded: str
    """The text without what is taken for names, where as much is left as leaves: a name
    says little of what is meant, and a vector much of the name (retrieval.md: 41 to 57
    for vectors alone).
    """
    corrections: Mapping[str, str] = field(default_factory=dict)
    """Which folded words of what was asked are taken for others, which stand in this
    text instead.
    """

    @cached_property
    def stems(self) -> tuple[str, ...]:
        """The content words it is ranked by, names among them; of a question as long as
        a page the first.
        """
        return tuple(query_words(self.text)[:MOST_STEMS])

    @property
    def search_text(self) -> str:
        """The text whose words stores are asked for: all of it, or of one as long as a
        page its first content words.
        """
        words = cut(self.text)
        if len(words) <= MOST_STEMS:
            return self.text
        content = dict.fromkeys(word for word in words if word not in STOPWORDS) or dict.fromkeys(words)
        return " ".join(list(content)[:MOST_STEMS])

    @cached_property
    def cues(self) -> tuple[tuple[int, float], ...]:
        return expected_marks(self.text)

    @cached_property
    def intents(self) -> frozenset[str]:
        return intents(self.text)

    @property
    def correction_mask(self) -> tuple[bool, ...]:
        """Which of the stems stand for words that were asked otherwise."""
        meant = {stem(word) for word in self.corrections.values()}
        return tuple(one in meant for one in self.stems)


def read(text: str) -> Question:
    """The question, before anything is known of who speaks in the asked scopes:
    capitalised words, but the first of a sentence, may be names.
    """
    named = _capitalised_words(text)
    return Question(text, _without(text, named) if named else text)


def read_as(question: Question, corrections: Mapping[str, str]) -> Question:
    """The question with other words in place of what are probably typos."""
    return replace(read(apply_corrections(question.text, corrections)), corrections=corrections)


def mentioned_speakers(question: Question, speakers: Iterable[str]) -> frozenset[str]:
    """The speakers that the question names, by their first word, in whatever case."""
    said = frozenset(cut(question.text))
    return frozenset(speaker for speaker in speakers if (words := cut(speaker)) and words[0] in said)


def _without(text: str, named: frozenset[str]) -> str:
    """The text without the names. Whole where more would leave than stays: of "What is
    Kubernetes?" nothing does, and a title has a capital in every word.
    """
    said = text.split()
    leaves = {word for word in set(said) if _is_name(word, named)}
    kept = " ".join([word for word in said if word not in leaves])
    return kept if 2 * _content(kept) >= _content(text) else text


def _content(text: str) -> int:
    return sum(word not in STOPWORDS for word in cut(text))


def _is_name(word: str, named: frozenset[str]) -> bool:
    """Whether the word is a name, its genitive and the signs around it aside."""
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
