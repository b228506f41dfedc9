"""Exact search by meaning over loaded vectors.

For stores without an index of vectors, and for re-ranking the results of an index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from memory.ports.query import Head
from memory.ports.record import Record

R = TypeVar("R", Record, Head)


def exact_cosines(asked: bytes, vectors: Sequence[bytes | None]) -> list[float]:
    """Return the cosines in double precision.

    Equal vectors get equal scores to the last bit. A vector that is invalid or has
    other dimensions gets an infinite score.
    """
    import numpy

    a = numpy.frombuffer(asked, dtype="<f4").astype("f8")
    whole = [
        v if isinstance(v, bytes) and len(v) == len(asked) else b"\xff" * len(asked) for v in vectors
    ]  # of bytes ff: NaN
    b = numpy.frombuffer(b"".join(whole), dtype="<f4").reshape(len(whole), len(a)).astype("f8")
    with numpy.errstate(all="ignore"):
        # Multiply and sum row by row: a matrix product does not promise equal scores
        # for equal vectors.
        cosines = (b * a).sum(axis=1) / (numpy.sqrt((b * b).sum(axis=1)) * numpy.sqrt((a * a).sum()))
    found: list[float] = numpy.where(numpy.isnan(cosines), numpy.inf, cosines).tolist()
    return found


def by_nearness(vector: bytes, records: Sequence[R]) -> list[tuple[R, float]]:
    """Return the records or heads with a vector of these dimensions, and the cosines.

    They are unsorted.
    """
    having = [r for r in records if r.vector is not None and len(r.vector) == len(vector)]
    return list(zip(having, exact_cosines(vector, [r.vector for r in having]), strict=True))


def best(scored: Sequence[tuple[R, float]], limit: int) -> list[tuple[R, float]]:
    """Return the best first, ties by id."""
    return sorted(scored, key=lambda one: (-one[1], one[0].key.id))[:limit]
