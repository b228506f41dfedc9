"""Words as sparse vectors, by the library's own analysis.

A word's index is 32 bits of a digest of its stem, its value the part of BM25F that depends on the record alone. The engine multiplies each
with the word's rarity in the partitions asked and adds them up: BM25F with the partitions' own statistics, but for the average length, which a
value stored once cannot follow: it is taken to be `AVERAGE_LENGTH` words everywhere. (Two words share an index once in four thousand million.)
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b

from memory.adapters.qdrant.engine import Sparse
from memory.ports.collections import Collection
from memory.ports.text import K1, B, query_words, words

AVERAGE_LENGTH = 64


@lru_cache(maxsize=65_536)
def index_of(stem: str) -> int:
    return int.from_bytes(blake2b(stem.encode("utf-8", "surrogatepass"), digest_size=4).digest(), "big")


def sparse_record(collection: Collection, texts: Mapping[str, str]) -> Sparse:
    """What a record's texts are found by; of no words, empty."""
    found: dict[int, float] = {}
    length = 0
    for part in collection.texts:
        stems = words(texts.get(part.name, ""))
        length += len(stems)
        for stem in stems:
            index = index_of(stem)
            found[index] = found.get(index, 0.0) + part.weight
    norm = K1 * (1 - B + B * length / AVERAGE_LENGTH)
    return Sparse(list(found), [frequency * (K1 + 1) / (frequency + norm) for frequency in found.values()])


def sparse_query(text: str) -> Sparse | None:
    """What a question looks for; None where it has no word."""
    indices = list(dict.fromkeys(index_of(stem) for stem in query_words(text)))
    return Sparse(indices, [1.0] * len(indices)) if indices else None
