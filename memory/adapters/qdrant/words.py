"""Search data of points: words as sparse vectors, and unit vectors.

The library's own analysis finds the words. A word's index is a 32-bit digest of its
stem. Its value is the part of BM25F that depends only on the record. The engine
multiplies each value by the word's rarity in the queried partitions and adds them up.
The result is BM25F with the partitions' own statistics, except for the average length.
A stored value cannot follow that, so it is always `AVERAGE_LENGTH` words. (The chance
that two words share an index is one in four billion.)
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
    """Return the sparse vector of a record's words, packed by `memory.ports.lexical`.

    Without words, it is empty.
    """
    found: dict[int, float] = {}
    for token, weight in lexical.weighted_counts(collection, packed).items():
        index = index_of(token)
        found[index] = found.get(index, 0.0) + weight
    norm = K1 * (1 - B + B * lexical.length(packed) / AVERAGE_LENGTH)
    return Sparse(list(found), [frequency * (K1 + 1) / (frequency + norm) for frequency in found.values()])


def sparse_query(text: str) -> Sparse | None:
    """Return the sparse vector of a query; None if it has no word."""
    indices = list(dict.fromkeys(index_of(lexical.token(stem)) for stem in query_words(text)))
    return Sparse(indices, [1.0] * len(indices)) if indices else None


@lru_cache(maxsize=64)
def unit(packed: bytes) -> list[float]:
    """Normalize a vector to length 1; the dot product of two is their cosine."""
    import numpy

    vector = numpy.frombuffer(packed, dtype="<f4")
    exact = vector.astype("f8")
    square = float(exact.dot(exact))
    if abs(square - 1.0) > 2e-6:  # else it is one already, as embedders make them
        vector = (exact / math.sqrt(square)).astype("<f4")
    found: list[float] = vector.tolist()
    return found
