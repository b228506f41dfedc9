"""Searches by words: the server finds, and the arithmetic of `memory.ports.text` ranks by the asked records' own statistics.

MongoDB's own text index is not used: it stems by rules of its own, reads operators in what is asked, and ranks by the statistics of the whole
collection, so that other tenants' data would change the order of hits. Stems are found through an index that begins with the partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from memory.adapters.mongo.codec import Document, head_in, key_in, projection
from memory.adapters.mongo.filters import records_in
from memory.adapters.mongo.table import Table
from memory.ports import lexical
from memory.ports.pace import paced
from memory.ports.query import Hit, Search
from memory.ports.record import Key
from memory.ports.text import query_words, scored


async def search(table: Table, search: Search, text: str) -> list[Hit]:
    """The best hits, best first."""
    words = query_words(text)
    if not words or not table.collection.texts:
        return []
    there = records_in(search.where, search.roles)
    found = there | {"stems": {"$in": [lexical.token(word) for word in words]}}
    (documents, total), candidates, passing = await asyncio.gather(
        _statistics(table, there), _candidates(table, found), _passing(table, search, found)
    )
    scores = await _scored(table, words, candidates, documents, total)
    ranked = sorted(((key, score) for key, score in scores if passing is None or key in passing), key=lambda pair: (-pair[1], pair[0].id))
    hits: list[Hit] = []
    start = 0
    while start < len(ranked) and len(hits) < search.limit:  # more than once only where records changed in between
        some = dict(ranked[start : start + search.limit])
        hits += await _hits(table, search, some)
        start += search.limit
    hits.sort(key=lambda hit: (-hit.score, hit.head.key.id))
    return hits[: search.limit]


async def _statistics(table: Table, there: Document) -> tuple[int, int]:
    """How many records are asked, and how many words they have in all. An index answers, no record is read."""
    total = {"$group": {"_id": None, "documents": {"$sum": 1}, "words": {"$sum": "$length"}}}
    async for found in await table.settled.aggregate([{"$match": there}, total]):
        return int(found["documents"]), int(found["words"])
    return 0, 0


async def _candidates(table: Table, found: Document) -> list[Document]:
    """The words of each record that holds one of those asked for."""
    return await table.settled.find(found, {"words": 1}, batch_size=table.thresholds.counted_at_once).to_list()


async def _passing(table: Table, search: Search, found: Document) -> set[Key] | None:
    """Those that the filter lets through; None for all. Words are weighed before the filter: what it hides still tells how rare a word is."""
    if search.filter is None:
        return None
    wanted = {"$and": [found, table.conditions.filter(search.filter)]}
    return {key_in(document) async for document in table.settled.find(wanted, {"_id": 1}, batch_size=table.thresholds.counted_at_once)}


async def _scored(table: Table, words: Sequence[str], candidates: Sequence[Mapping[str, Any]], documents: int, total: int) -> list[tuple[Key, float]]:
    """BM25F with the statistics of exactly the asked records."""
    counted: list[tuple[Key, dict[str, float], int]] = []
    async for candidate in paced(candidates):
        packed = candidate.get("words", lexical.NO_WORDS)  # of a damaged one there may be none
        if frequencies := lexical.counts(table.collection, packed, words):
            counted.append((key_in(candidate), frequencies, lexical.length(packed)))
    return scored(counted, documents, total)


async def _hits(table: Table, search: Search, scores: Mapping[Key, float]) -> list[Hit]:
    """The hits of these keys, as far as they still are what was asked for."""
    wanted = table.among(scores) | records_in(search.where, search.roles)
    found = table.settled.find(wanted, projection(search.select), batch_size=len(scores) + 1)
    heads = [head_in(table.collection, document, search.select) async for document in found]
    return [Hit(head, scores[head.key]) for head in heads if head is not None]
