"""A question as it is searched for: its words, the names in it, the text that is embedded, its cues. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from memory.policies.cues import cued, intents
from memory.ports.text import STOPWORDS, cut, fold, query_words, stem

_WORD = re.compile(r"\S+")
_CAPITAL = re.compile(r"[^\W\d_]")


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, read once."""

    text: str
    stems: tuple[str, ...]
    """The content words it looks for, names among them."""
    named: frozenset[str]
    """The folded words that are taken for names."""
    embedded: str
    """The text without them: a name says little of what is meant, and a vector much of the name (retrieval.md: 41 to 57 for vectors alone)."""
    cues: tuple[tuple[int, float], ...] = ()
    intents: frozenset[str] = frozenset()

    @property
    def names(self) -> tuple[bool, ...]:
        """Which of the stems are names."""
        named = {stem(name) for name in self.named}
        return tuple(one in named for one in self.stems)


def read(text: str) -> Question:
    """The question, before anything is known of who speaks in the asked scopes: capitalised words, but the first of a sentence, may be names."""
    return _question(text, _capitalised(text))


def reread(question: Question, speakers: Iterable[str]) -> Question:
    """The question again, by who speaks in what was found: names are the speakers whose first word it mentions. The same where none speaks."""
    firsts = {fold(words[0]) for speaker in speakers if (words := cut(speaker))}
    return _question(question.text, frozenset(firsts & set(cut(question.text)))) if firsts else question


def mentioned(question: Question, speakers: Iterable[str]) -> frozenset[str]:
    """The speakers that the question names."""
    return frozenset(speaker for speaker in speakers if (words := cut(speaker)) and words[0] in question.named)


def _question(text: str, named: frozenset[str]) -> Question:
    kept = [word for word in _WORD.findall(text) if not _is_name(word, named)]
    return Question(text, tuple(query_words(text)), named, " ".join(kept) or text, cued(text), intents(text))


def _is_name(word: str, named: frozenset[str]) -> bool:
    """Whether the word is a name, its genitive and the signs around it aside."""
    parts = cut(word)
    return bool(parts) and parts[0] in named and parts[1:] in ([], ["s"])


def _capitalised(text: str) -> frozenset[str]:
    found, begins = set[str](), True
    for word in _WORD.findall(text):
        letters = cut(word)
        first = _CAPITAL.search(word)
        if not begins and letters and first and first[0].isupper() and letters[0] not in STOPWORDS and not word.isupper():
            found.add(letters[0])
        begins = word.endswith((".", "!", "?", ":"))
    return frozenset(found)
