"""What a record's texts leave in an index of words on the server dialects: one token a word, the parts it stands in, and how often it does.

Words are cut and stemmed by `memory.ports.text`, as on every backend. A token is plain ASCII, so that no server's own analysis splits it.
A server's limits never refuse a text: a word of more than 128 characters is indexed by its digest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from memory.ports.text import cut, stem

LABELS = "ABCD"
_LONGEST = 128


@lru_cache(maxsize=65_536)
def token(stem: str) -> str:
    """A stem in plain ASCII letters and digits."""
    if len(stem) > _LONGEST:
        return "h" + blake2b(stem.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return "x" + stem if stem.isascii() else "y" + stem.encode("utf-8", "surrogatepass").hex()


@lru_cache(maxsize=65_536)
def _token_of(word: str) -> str:
    """The token of a folded word."""
    return token(stem(word))


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
            tokens = [_token_of(word) for word in cut(text)]
            total += len(tokens)
            one, label = 1 << (i * self.bits), f"{i + 1}{self._labels[i]}"
            if len(tokens) > self.most:
                tokens = list(_capped(tokens, self.most))
            here = dict.fromkeys(tokens, label)
            if not counts and len(here) == len(tokens):
                counts = dict.fromkeys(tokens, one)
            else:
                for word in tokens:
                    counts[word] = counts.get(word, 0) + one
            if labels:
                for word in here.keys() & labels.keys():
                    here[word] = f"{labels[word]},{label}"
                labels |= here
            else:
                labels = here
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
