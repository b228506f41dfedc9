"""What a record's texts leave in its document: the distinct stems, which an index serves, and how often each occurs in which part.

MongoDB's own text index is not used: it stems by rules of its own, reads operators in what is asked, and ranks by the statistics of the whole
collection, so that other tenants' data would change the order of hits. Words are cut and stemmed by `memory.ports.text`, as on every backend, found
through an index that begins with the partition, and ranked by the asked records' own statistics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b

from memory.ports.collections import TextPart
from memory.ports.text import words

_LONGEST = 128
_SHORT = _LONGEST // 4
"""Characters that never take more bytes than that."""
_ROOM = 2 * 2**20
"""Bytes of a document that its words may take, the list and the counts together. Of more, those of the heaviest parts are indexed."""
_EACH = 32
"""What one word takes beside its letters, about."""


@lru_cache(maxsize=65_536)
def token(stem: str) -> str:
    """A stem as documents hold it: itself, or its digest where it is very long. No stem has a '#' in it, nor a dot or '$'."""
    encoded = stem.encode("utf-8", "surrogatepass")
    return stem if len(encoded) <= _LONGEST else "#" + blake2b(encoded, digest_size=16).hexdigest()


class Parts:
    """The text parts of a collection, and how the counts of a word in each are packed into one 64-bit integer."""

    def __init__(self, parts: Sequence[TextPart]) -> None:
        self._parts = tuple(parts)
        self._bits = 60 // max(1, len(parts))
        self._most = 2**self._bits - 1
        self._heaviest_first = sorted(range(len(parts)), key=lambda i: -parts[i].weight)

    def index(self, texts: Mapping[str, str]) -> tuple[int, dict[str, int]]:
        """The number of words, and each word's packed counts."""
        parts = [(i, words(text)) for i in self._heaviest_first if (text := texts.get(self._parts[i].name))]
        total = sum([len(stems) for _, stems in parts])
        roomy = sum([_EACH * len(stems) + 8 * sum(map(len, stems)) for _, stems in parts]) <= _ROOM
        room = _ROOM
        counts: dict[str, int] = {}
        most = self._most
        for i, stems in parts:
            shift = i * self._bits
            for stem, count in Counter(stems).items():
                word = stem if len(stem) <= _SHORT else token(stem)
                if not roomy and word not in counts:
                    room -= _EACH + 2 * len(word.encode())
                    if room < 0:
                        continue
                counts[word] = counts.get(word, 0) + ((count if count < most else most) << shift)
        return total, counts

    def weighed(self, packed: int) -> float:
        """The counts of a word, summed under the parts' weights."""
        return sum([part.weight * ((packed >> (i * self._bits)) & self._most) for i, part in enumerate(self._parts)], 0.0)
