"""Search by words and by meaning, exactly: every record of the asked partitions is looked at."""

from __future__ import annotations

from collections.abc import Sequence

from memory.ports.collections import Collection
from memory.ports.query import Hit
from memory.ports.record import Record
from memory.ports.text import bm25, count_words, query_words, rarity


def by_words(text: str, collection: Collection, records: Sequence[Record]) -> list[Hit]:
    """Every record holding a content word of the text, scored by BM25F with the statistics of exactly these records, unsorted."""
    wanted = frozenset(query_words(text))
    if not wanted:
        return []
    weights = {part.name: part.weight for part in collection.texts}
    counted = [(r, *count_words([(t, weights[name]) for name, t in r.texts.items()], wanted)) for r in records]
    lengths = sum(length for _, _, length in counted)
    average = lengths / len(counted) if counted else 0.0
    rarities = {w: rarity(len(counted), sum(1 for _, found, _ in counted if w in found)) for w in wanted}
    return [Hit(r, bm25(found, length, average, rarities)) for r, found, length in counted if found]


def by_meaning(vector: bytes, records: Sequence[Record]) -> list[Hit]:
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


def best(hits: list[Hit], limit: int) -> list[Hit]:
    """The best first, ties by id."""
    return sorted(hits, key=lambda hit: (-hit.score, hit.record.key.id))[:limit]
