"""Finds candidates in three rounds, without reading bodies or texts.

The first round reads the data for ranking. The second reads the best and the named
records, and the third reads their neighbours.

There is no vector index. For semantic search, the first round reads and compares the
vectors of all records that pass the filter.
"""

from __future__ import annotations

from collections.abc import Sequence

from memory.adapters.mongo.codec import Document, key_in
from memory.adapters.mongo.filters import OURS, both, records_in
from memory.adapters.mongo.search import find_postings, first, heads
from memory.adapters.mongo.table import Table
from memory.ports.candidate_scan import asking_for, head_fields, measure_heads, neighbours, place_of
from memory.ports.candidates import CandidateColumns, Candidates, Statistics, none_of
from memory.ports.concurrency import both_at_once, each_at_once
from memory.ports.query import Everywhere, Head
from memory.ports.record import Key
from memory.ports.text import query_words
from memory.ports.vector_scan import exact_cosines


async def candidates(table: Table, asked: Candidates) -> CandidateColumns:
    assert not isinstance(asked.where, Everywhere)  # noqa: S101 - callers never ask for everywhere
    there, select = records_in(asked.where, asked.roles), head_fields(asked)
    passing = both(there, table.conditions.filter(asked.filter))
    (by_words, statistics), by_meaning = await both_at_once(
        _by_words(table, asked, there), _by_meaning(table, asked, passing)
    )
    named = [*by_meaning, *[Key(asked.where.tenant, i) for i in asked.among]]
    best = await both_at_once(
        first(table, by_words, asked.limit, passing, select), _by_id(table, named, passing, select)
    )
    found = {head.key.id: head for some in best for head in some}
    if (around := asked.around) is not None:
        places = neighbours(found.values(), around)
        parts = [
            heads(table, both(passing, table.conditions.filter(part)), select)
            for part in asking_for(places, around)
        ]
        beside = [
            head for some in await each_at_once(parts) for head in some if place_of(head, around) in places
        ]
        found |= {head.key.id: head for head in beside if head.key.id not in found}
    return await measure_heads(asked, list(found.values()), statistics)


async def _by_words(table: Table, asked: Candidates, there: Document) -> tuple[list[Key], Statistics]:
    """Return the matches by words, best first, and the statistics.

    Records with a counted stem are read in the same way.
    """
    words = query_words(asked.text) if asked.collection.texts else []
    counted = asked.counted if asked.statistics and asked.collection.texts else ()
    if not words and not asked.statistics:
        return [], none_of(asked)
    held = await find_postings(table, there, list(dict.fromkeys([*words, *counted])))
    ranked = [key for key, _ in held.rank(words)]
    if not asked.statistics:
        return ranked, none_of(asked)
    containing = {stem: sum(stem in counts for _, counts, _ in held.counted) for stem in asked.counted}
    return ranked, Statistics(held.documents, held.words, containing)


async def _by_meaning(table: Table, asked: Candidates, passing: Document) -> list[Key]:
    """Return the keys of the records with the nearest vectors."""
    if asked.near is None:
        return []
    wanted = both(passing, OURS | {"vector": {"$ne": None}})
    found = await table.settled.find(
        wanted, {"vector": 1}, batch_size=table.thresholds.counted_at_once
    ).to_list()
    having = [
        document
        for document in found
        if isinstance(document["vector"], bytes) and len(document["vector"]) == len(asked.near)
    ]
    cosines = exact_cosines(asked.near, [document["vector"] for document in having])
    ranked = sorted(zip(cosines, map(key_in, having), strict=True), key=lambda one: (-one[0], one[1].id))
    return [key for _, key in ranked[: asked.limit]]


async def _by_id(table: Table, keys: Sequence[Key], passing: Document, select: frozenset[str]) -> list[Head]:
    return await heads(table, both(table.among(dict.fromkeys(keys)), passing), select) if keys else []
