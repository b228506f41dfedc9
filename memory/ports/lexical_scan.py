"""Search by words over loaded heads, for stores without an index of words."""

from __future__ import annotations

from collections.abc import Sequence

from memory.ports import lexical
from memory.ports.collections import Collection
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.query import Head, Hit
from memory.ports.text import bm25_scores, query_words


async def rank_by_words(heads: Sequence[Head], collection: Collection, text: str, limit: int) -> list[Hit]:
    """Rank heads with their words as a store with an index would for `Words`.

    The statistics are those of these heads.
    """
    wanted = query_words(text)
    counted = [
        (h, lexical.counts(collection, h.words, wanted), lexical.length(h.words))
        async for h in iterate_cooperatively(heads)
        if h.words is not None
    ]
    hits = [
        Hit(head, score)
        for head, score in bm25_scores(counted, len(counted), sum(length for _, _, length in counted))
    ]
    return sorted(hits, key=lambda hit: (-hit.score, hit.head.key.id))[:limit]
