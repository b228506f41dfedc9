"""What points are found by: words as sparse vectors, by the library's own analysis, and
unit vectors.

A word's index is 32 bits of a digest of its stem, its value the part of BM25F that
depends on the record alone. The engine multiplies each with the word's rarity in the
partitions asked and adds them up: BM25F with the partitions' own statistics, but for
the average length, which a value stored once cannot follow: it is taken to be
`AVERAGE_LENGTH` words everywhere. (Two words share an index once in four thousand
million.)
"""

from __future__ import annotations

import math
from functools import lru_cache
from hashlib import blake2b

from memory.adapters.qdrant.engine import Sparse
from memory.ports import lexical
from memory.ports.collections import Collection
from memory.ports.text import K1, B, query_words

AVERAGE_LENGTH = 64


@lru_cache(maxsize=65_536)
def index_of(token: str) -> int:
    return int.from_bytes(blake2b(token.encode("utf-8", "surrogatepass"), digest_size=4).digest(), "big")


def sparse_record(collection: Collection, packed: bytes) -> Sparse:
    """What a record's words, as `memory.ports.lexical` packs them, are found by; of no
    words, empty.
    """
    found: dict[int, float] = {}
    for token, weight in lexical.weighted_counts(collection, packed).items():
        index = index_of(token)
        found[index] = found.get(index, 0.0) + weight
    norm = K1 * (1 - B + B * lexical.length(packed) / AVERAGE_LENGTH)
    return Sparse(list(found), [frequency * (K1 + 1) / (frequency + norm) for frequency in found.values()])


def sparse_query(text: str) -> Sparse | None:
    """What a question looks for; None where it has no word."""
    indices = list(dict.fromkeys(index_of(lexical.token(stem)) for stem in query_words(text)))
    return Sparse(indices, [1.0] * len(indices)) if indices else None


@lru_cache(maxsize=64)
def unit(packed: bytes) -> list[float]:
    """The vector at length one: the dot product of two of these is their cosine."""
    import numpy

    vector = numpy.frombuffer(packed, dtype="<f4")
    exact = vector.astype("f8")
    square = float(exact.dot(exact))
    if abs(square - 1.0) > 2e-6:  # else it is one already, as embedders make them
        vector = (exact / math.sqrt(square)).astype("<f4")
    found: list[float] = vector.tolist()
    return found
