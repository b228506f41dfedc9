"""Nearest by meaning among what is in hand, exactly: for stores without an index of vectors, and for those that rank again what theirs found."""

from __future__ import annotations

from collections.abc import Sequence

from memory.ports.query import Hit
from memory.ports.record import Record


def exact_cosines(asked: bytes, vectors: Sequence[bytes | None]) -> list[float]:
    """The cosines in double precision: equal vectors get equal scores to the last bit. Infinite for what is no such vector."""
    import numpy

    a = numpy.frombuffer(asked, dtype="<f4").astype("f8")
    whole = [v if isinstance(v, bytes) and len(v) == len(asked) else b"\xff" * len(asked) for v in vectors]  # of bytes ff: NaN
    b = numpy.frombuffer(b"".join(whole), dtype="<f4").reshape(len(whole), len(a)).astype("f8")
    with numpy.errstate(all="ignore"):
        # Multiply and sum row by row: a matrix product does not promise equal scores for equal vectors.
        cosines = (b * a).sum(axis=1) / (numpy.sqrt((b * b).sum(axis=1)) * numpy.sqrt((a * a).sum()))
    found: list[float] = numpy.where(numpy.isnan(cosines), numpy.inf, cosines).tolist()
    return found


def by_nearness(vector: bytes, records: Sequence[Record]) -> list[Hit]:
    """Every record with a vector of the same dimensions, scored by cosine, unsorted."""
    having = [r for r in records if r.vector is not None and len(r.vector) == len(vector)]
    return [Hit(r, score) for r, score in zip(having, exact_cosines(vector, [r.vector for r in having]), strict=True)]


def best(hits: Sequence[Hit], limit: int) -> list[Hit]:
    """The best first, ties by id."""
    return sorted(hits, key=lambda hit: (-hit.score, hit.record.key.id))[:limit]
