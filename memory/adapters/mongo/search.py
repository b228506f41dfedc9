"""Lexical search: the server finds records, and `memory.ports.text` ranks them.

The ranking uses statistics of the queried records only. MongoDB's text index is not
used. It has its own stemming, interprets operators in queries, and ranks by statistics
of the whole collection. Other tenants' data would change the order of results. Instead,
an index that begins with the partition finds stems.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memory.adapters.mongo.codec import Document, head_in, key_in, projection
from memory.adapters.mongo.filters import OURS, both, records_in
from memory.adapters.mongo.table import Table
from memory.ports import lexical
from memory.ports.concurrency import both_at_once
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.query import Head, Hit, Search
from memory.ports.record import Key
from memory.ports.text import bm25_scores, query_words

COUNTED_AT_A_TIME = 25
"""Records whose words are counted before other tasks get a turn.

A record takes about five microseconds, the largest a millisecond.
"""
HEADS_AT_A_TIME = 50
"""Heads that are built before other tasks get a turn; one takes ten microseconds."""
FURTHER = 4
"""Growth of the next batch if too few of the best pass the filter."""


@dataclass(frozen=True, slots=True)
class LexicalMatches:
    """Records with some of the words, and statistics of all queried records.

    No filter is applied, because records that it hides still count for how rare a word
    is.
    """

    documents: int
    words: int
    counted: Sequence[tuple[Key, Mapping[str, float], int]]
    """Key, weighted counts of the words, and length of each record."""

    def rank(self, words: Sequence[str]) -> list[tuple[Key, float]]:
        """Return the records with one of these words, best first.

        The score is BM25F with the statistics of exactly the queried records.
        """
        counted = [
            (key, {word: counts[word] for word in words if word in counts}, length)
            for key, counts, length in self.counted
        ]
        return sorted(bm25_scores(counted, self.documents, self.words), key=lambda one: (-one[1], one[0].id))


async def find_postings(table: Table, there: Document, words: Sequence[str]) -> LexicalMatches:
    """Find records with one of these words; without words, only statistics."""
    (documents, total), holders = await both_at_once(_statistics(table, there), _holders(table, there, words))
    counted: list[tuple[Key, Mapping[str, float], int]] = []
    async for holder in iterate_cooperatively(holders, COUNTED_AT_A_TIME):
        packed = holder.get("words", lexical.NO_WORDS)  # a damaged document may lack them
        if frequencies := lexical.counts(table.collection, packed, words):
            counted.append((key_in(holder), frequencies, lexical.length(packed)))
    return LexicalMatches(documents, total, counted)


async def search(table: Table, search: Search, text: str) -> list[Hit]:
    """Return the best hits, best first."""
    words = query_words(text)
    if not words or not table.collection.texts:
        return []
    there = records_in(search.where, search.roles)
    scores = dict((await find_postings(table, there, words)).rank(words))
    heads = await first(
        table, list(scores), search.limit, both(there, table.conditions.filter(search.filter)), search.select
    )
    hits = [Hit(head, scores[head.key]) for head in heads]
    hits.sort(key=lambda hit: (-hit.score, hit.head.key.id))
    return hits[: search.limit]


async def _statistics(table: Table, there: Document) -> tuple[int, int]:
    """Return the number of queried records and of all their words.

    An index answers this without reading records.
    """
    total = {"$group": {"_id": None, "documents": {"$sum": 1}, "words": {"$sum": "$length"}}}
    async for found in await table.settled.aggregate([{"$match": there}, total]):
        return int(found["documents"]), int(found["words"])
    return 0, 0


async def _holders(table: Table, there: Document, words: Sequence[str]) -> list[Document]:
    """Read the words of each record that has one of these."""
    found = there | OURS | {"stems": {"$in": [lexical.token(word) for word in words]}}
    return (
        await table.settled.find(found, {"words": 1}, batch_size=table.thresholds.counted_at_once).to_list()
        if words
        else []
    )


async def first(
    table: Table, ranked: Sequence[Key], limit: int, passing: Document, select: frozenset[str]
) -> list[Head]:
    """Return the heads of the first `limit` records that pass, or of more."""
    found, start, size = list[Head](), 0, limit
    while start < len(ranked) and len(found) < limit:
        found += await heads(table, both(table.among(ranked[start : start + size]), passing), select)
        start, size = start + size, size * FURTHER
    return found


async def heads(table: Table, wanted: Document, select: frozenset[str]) -> list[Head]:
    found = await table.settled.find(
        wanted, projection(select), batch_size=table.thresholds.counted_at_once
    ).to_list()
    return [
        head
        async for document in iterate_cooperatively(found, HEADS_AT_A_TIME)
        if (head := head_in(table.collection, document, select)) is not None
    ]
