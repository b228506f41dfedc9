"""Nearest by meaning among records in hand: exact, for stores without an index of vectors."""

from __future__ import annotations

from collections.abc import Sequence

from memory.ports.query import Hit
from memory.ports.record import Record


def by_nearness(vector: bytes, records: Sequence[Record]) -> list[Hit]:
    """Every record with a vector of the same dimensions, scored by cosine, unsorted."""
    import numpy

    having = [r for r in records if r.vector is not None and len(r.vector) == len(vector)]
    if not having:
        return []
    matrix = numpy.frombuffer(b"".join(r.vector or b"" for r in having), dtype="<f4").reshape(len(having), -1).astype("f8")
    asked = numpy.frombuffer(vector, dtype="<f4").astype("f8")
    # Multiply and sum row by row: equal vectors get equal scores to the last bit, which a matrix product does not promise.
    cosines = (matrix * asked).sum(axis=1) / (numpy.sqrt((matrix * matrix).sum(axis=1)) * numpy.sqrt((asked * asked).sum()))
    return [Hit(r, float(score)) for r, score in zip(having, cosines, strict=True)]


def best(hits: Sequence[Hit], limit: int) -> list[Hit]:
    """The best first, ties by id."""
    return sorted(hits, key=lambda hit: (-hit.score, hit.record.key.id))[:limit]
