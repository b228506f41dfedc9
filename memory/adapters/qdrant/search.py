"""Search by words and by meaning: the engine ranks, ties are settled here by id, and what it could only ask roughly is applied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memory.adapters.qdrant.codec import head_in, head_keys, stored_in
from memory.adapters.qdrant.engine import Engine, Found
from memory.adapters.qdrant.filters import Always, Compiler, located
from memory.adapters.qdrant.words import sparse_query, unit
from memory.ports.asking import condition
from memory.ports.heads import head_of
from memory.ports.pace import paced
from memory.ports.query import Hit, Near, Search
from memory.ports.record import Record


async def search(engine: Engine, wanted: Search) -> list[Hit]:
    """The best hits. A record that cannot be read is passed over and the next one taken."""
    ranked = _ranker(engine, wanted)
    if ranked is None:
        return []
    take, rest = ranked
    keys = None if rest is not None else head_keys(wanted.collection, wanted.select)
    asked = wanted.limit + 1
    while True:
        found = await take(asked, keys)
        all_of_them = len(found) < asked
        if not all_of_them:  # the last ones may have ties that were not taken: they wait for the next round
            found = [point for point in found if point.value > found[-1].value]
        hits = await _hits(wanted, found, rest)
        if all_of_them or len(hits) >= wanted.limit:
            return hits[: wanted.limit]
        asked *= 4


def _ranker(engine: Engine, wanted: Search) -> Any:
    """How to take the best so many, and the filter that is left to apply; None where nothing can be found."""
    make = engine.conditions
    compiler = Compiler(wanted.collection, make)
    there = located(make, wanted.collection, wanted.where, wanted.roles)
    compiled = compiler.compile(wanted.filter)
    if compiled.asked is Always.NO:
        return None
    where = compiler.every([*there, compiled.asked])
    if isinstance(wanted.by, Near):
        vector = unit(wanted.by.vector)
        return (lambda limit, keys: engine.near(vector, where, limit, keys)), compiled.rest
    words = sparse_query(wanted.by.text)
    if words is None or not wanted.collection.texts:
        return None
    corpus = where if compiled.asked is Always.YES else make.every(there)  # what the filter hides still tells how rare a word is
    return (lambda limit, keys: engine.by_words(words, where, corpus, limit, keys)), compiled.rest


async def _hits(wanted: Search, found: Sequence[Found], rest: Any) -> list[Hit]:
    """Those that can be read and that the filter lets through: the best first, ties by id. For what is left of the filter records are read."""
    collection, lets_through = wanted.collection, condition(rest)
    hits = []
    async for point in paced(found):
        if rest is None:
            head = head_in(collection, point.payload, wanted.select)
        else:
            record = stored_in(collection, point.payload)
            head = head_of(collection, record, wanted.select) if isinstance(record, Record) and lets_through(record) else None
        if head is not None:
            hits.append(Hit(head, point.value))
    hits.sort(key=lambda hit: (-hit.score, hit.head.key.id))
    return hits
