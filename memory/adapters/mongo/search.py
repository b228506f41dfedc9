"""Searches by words: the server finds and counts, and the arithmetic of `memory.ports.text` ranks by the asked records' own statistics."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from memory.adapters.mongo.codec import key_in
from memory.adapters.mongo.filters import records_in
from memory.adapters.mongo.shelf import Shelf
from memory.adapters.mongo.values import Document
from memory.adapters.mongo.words import token
from memory.ports.pace import paced
from memory.ports.query import Hit, Search
from memory.ports.record import Key
from memory.ports.text import bm25, query_words, rarity


async def search(shelf: Shelf, search: Search, text: str) -> list[Hit]:
    """The best hits, best first."""
    words = [token(stem) for stem in query_words(text)]
    if not words or not shelf.collection.texts:
        return []
    there = records_in(search.where, search.roles)
    found = there | {"words": {"$in": words}}
    (documents, total), candidates, passing = await asyncio.gather(
        _statistics(shelf, there), _candidates(shelf, found, words), _passing(shelf, search, found)
    )
    scores = await _scored(shelf, words, candidates, documents, total)
    ranked = sorted(((key, score) for key, score in scores if passing is None or key in passing), key=lambda pair: (-pair[1], pair[0].id))
    hits: list[Hit] = []
    start = 0
    while start < len(ranked) and len(hits) < search.limit:  # more than once only where records changed in between
        some = dict(ranked[start : start + search.limit])
        hits += await _hits(shelf, search, some)
        start += search.limit
    hits.sort(key=lambda hit: (-hit.score, hit.head.key.id))
    return hits[: search.limit]


async def _statistics(shelf: Shelf, there: Document) -> tuple[int, int]:
    """How many records are asked, and how many words they have in all. An index answers, no record is read."""
    total = {"$group": {"_id": None, "documents": {"$sum": 1}, "words": {"$sum": "$length"}}}
    async for found in await shelf.settled.aggregate([{"$match": there}, total]):
        return int(found["documents"]), int(found["words"])
    return 0, 0


async def _candidates(shelf: Shelf, found: Document, words: Sequence[str]) -> list[Document]:
    """Of each record that holds one of the words: its length and the counts of those words."""
    counts = {f"counts.{word}": 1 for word in words}
    return await shelf.settled.find(found, {"length": 1, **counts}, batch_size=shelf.thresholds.counted_at_once).to_list()


async def _passing(shelf: Shelf, search: Search, found: Document) -> set[Key] | None:
    """Those that the filter lets through; None for all. Words are weighed before the filter: what it hides still tells how rare a word is."""
    if search.filter is None:
        return None
    wanted = {"$and": [found, shelf.conditions.filter(search.filter)]}
    return {key_in(document) async for document in shelf.settled.find(wanted, {"_id": 1}, batch_size=shelf.thresholds.counted_at_once)}


async def _scored(shelf: Shelf, words: Sequence[str], candidates: Sequence[Mapping[str, Any]], documents: int, total: int) -> list[tuple[Key, float]]:
    """BM25F with the statistics of exactly the asked records."""
    average = total / documents if documents else 0.0
    weighed = shelf.layout.parts.weighed
    place = {word: n for n, word in enumerate(words)}  # sums are made in one order, or records with the same words would differ in the last bit

    def frequencies_in(counts: Mapping[str, Any]) -> dict[str, float]:
        return {word: weighed(counts[word]) for word in sorted(counts.keys() & place.keys(), key=place.__getitem__) if counts[word]}

    counted = [(c, frequencies_in(c.get("counts", {}))) async for c in paced(candidates)]
    containing = Counter(word for _, frequencies in counted for word in frequencies)
    rarities = {word: rarity(documents, containing[word]) for word in containing}
    return [(key_in(c), bm25(frequencies, c.get("length", 0), average, rarities)) for c, frequencies in counted if frequencies]


async def _hits(shelf: Shelf, search: Search, scores: Mapping[Key, float]) -> list[Hit]:
    """The hits of these keys, as far as they still are what was asked for."""
    wanted = shelf.among(list(scores)) | records_in(search.where, search.roles)
    found = shelf.settled.find(wanted, shelf.layout.projection(search.select), batch_size=len(scores) + 1)
    heads = [shelf.layout.head(document, search.select) async for document in found]
    return [Hit(head, scores[head.key]) for head in heads if head is not None]
