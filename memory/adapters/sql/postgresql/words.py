"""What a record's texts leave in the full-text index: one lexeme a word, labelled with the parts it stands in, and how often it does.

Words are cut and stemmed by `memory.ports.text`, as on every backend. Each carries the number of its partition, so that every posting list
is one partition's own and a small scope is found at once in a large table. A lexeme is plain ASCII that the parser never splits and that
is no operator of `websearch_to_tsquery`.

PostgreSQL's limits never refuse a text: a word of more than 128 bytes is indexed by its digest, a word is labelled once a part
and its occurrences counted beside the tsvector (no limit of 255), and of the distinct words beyond 1 MiB the heaviest parts' are indexed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from memory.ports.text import words

LABELS = "ABCD"
_LONGEST = 128
_MOST_BYTES = 2**20 - 2**16  # a tsvector holds less than 1 MiB of lexemes and positions


@lru_cache(maxsize=65_536)
def token(stem: str) -> str:
    """A stem in plain ASCII letters and digits."""
    if len(stem) > _LONGEST:
        return "h" + blake2b(stem.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return "x" + stem if stem.isascii() else "y" + stem.encode("utf-8", "surrogatepass").hex()


def lexeme(partition: int, stem: str) -> str:
    return f"p{partition}{token(stem)}"


class Parts:
    """The text parts of a collection: their order, weights, and how the counts of a word in each are packed into one integer."""

    def __init__(self, weights: Sequence[float]) -> None:
        self.weights = tuple(weights)
        self.bits = 60 // max(1, len(weights))
        self.most = 2**self.bits - 1
        """The highest count kept of a word in one part: 32,767 where there are four."""
        self._heaviest_first = sorted(range(len(weights)), key=lambda i: -weights[i])
        self._labels = {i: LABELS[min(rank, len(LABELS) - 1)] for rank, i in enumerate(self._heaviest_first)}

    def index(self, texts: Sequence[str | None]) -> tuple[int, dict[str, int], dict[str, str]]:
        """The number of words, each word's packed counts, and the labels of the parts it is in, by token."""
        total = 0
        counts: dict[str, int] = {}
        labels: dict[str, str] = {}
        for i in self._heaviest_first:
            text = texts[i]
            if not text:
                continue
            tokens = [token(stem) for stem in words(text)]
            total += len(tokens)
            one, label = 1 << (i * self.bits), f"{i + 1}{self._labels[i]}"
            if len(tokens) > self.most:
                tokens = list(_capped(tokens, self.most))
            for word in tokens:
                counts[word] = counts.get(word, 0) + one
            here = dict.fromkeys(tokens, label)
            for word in here.keys() & labels.keys():
                here[word] = f"{labels[word]},{label}"
            labels |= here
        return total, counts, labels

    def unpacked(self, packed: Any) -> list[Any]:
        """The counts of each part again; also of a whole array at once."""
        return [(packed >> (i * self.bits)) & self.most for i in range(len(self.weights))]


def _capped(tokens: Sequence[str], most: int) -> Iterator[str]:
    """The words, each at most so often."""
    counts: dict[str, int] = {}
    for word in tokens:
        counts[word] = counts.get(word, 0) + 1
        if counts[word] <= most:
            yield word


def vector_text(partition: int, labels: Mapping[str, str]) -> str:
    """A tsvector as text."""
    prefix = f"p{partition}"
    lexemes = [f"{prefix}{word}:{label}" for word, label in labels.items()]
    if sum(map(len, lexemes)) + 16 * len(lexemes) > _MOST_BYTES:
        lexemes = _fitting(lexemes)
    return " ".join(lexemes)


def _fitting(lexemes: Sequence[str]) -> list[str]:
    kept: list[str] = []
    room = _MOST_BYTES
    for one in lexemes:
        room -= len(one) + 16
        if room < 0:
            break
        kept.append(one)
    return kept


def counts_text(counts: Mapping[str, int]) -> str:
    """The packed counts as a JSON object."""
    return "{" + ",".join([f'"{word}":{count}' for word, count in counts.items()]) + "}"
