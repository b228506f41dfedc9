"""Exact lexical search that scans every record of the queried partitions."""

from __future__ import annotations

from collections.abc import Sequence

from memory.ports.collections import Collection
from memory.ports.record import Record
from memory.ports.text import bm25, count_words, query_words, rarity


def by_words(text: str, collection: Collection, records: Sequence[Record]) -> list[tuple[Record, float]]:
    """Score the records that contain a content word of the text, with BM25F.

    The statistics come from exactly these records. The result is unsorted.
    """
    wanted = frozenset(query_words(text))
    if not wanted:
        return []
    weights = collection.weights
    counted = [
        (r, *count_words([(t, weights[name]) for name, t in r.texts.items()], wanted)) for r in records
    ]
    lengths = sum(length for _, _, length in counted)
    average = lengths / len(counted) if counted else 0.0
    rarities = {w: rarity(len(counted), sum(1 for _, found, _ in counted if w in found)) for w in wanted}
    return [(r, bm25(found, length, average, rarities)) for r, found, length in counted if found]
