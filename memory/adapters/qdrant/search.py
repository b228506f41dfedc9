"""Searches by words and by meaning.

The engine ranks, ties are sorted here by id, and the rest of the filter is applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memory.adapters.qdrant.codec import Payload, head_in, head_keys, stored_in
from memory.adapters.qdrant.engine import Engine, FoundPoint, PointQuery
from memory.adapters.qdrant.filters import Compiler, ConstantCondition, scope_conditions
from memory.adapters.qdrant.words import sparse_query, unit
from memory.ports.collections import Collection
from memory.ports.cooperative import AT_A_TIME, iterate_cooperatively
from memory.ports.heads import head_of
from memory.ports.query import Condition, Head, Hit, Near, Search
from memory.ports.query_evaluation import condition
from memory.ports.record import Record

HEADS_AT_A_TIME = 50
"""Heads that are built before other tasks get a turn; one takes ten microseconds."""


async def search(engine: Engine, wanted: Search) -> list[Hit]:
    """Return the best hits. Unreadable records are skipped and replaced by the next."""
    ranking = PointSearch(engine, wanted)
    if ranking.question is None:
        return []
    (found,) = await engine.ask([ranking.question])
    return await ranking.hits(found)


class PointSearch:
    """One search: its first `question`, None if nothing can match, and its hits."""

    def __init__(self, engine: Engine, wanted: Search) -> None:
        self._engine, self._wanted = engine, wanted
        compiler = Compiler(wanted.collection, engine.conditions)
        there = scope_conditions(engine.conditions, wanted.collection, wanted.where, wanted.roles)
        compiled = compiler.compile(wanted.filter)
        self._reading = HeadReader(wanted.collection, wanted.select, compiled.rest)
        self.question: PointQuery | None = None
        if compiled.asked is ConstantCondition.NO:
            return
        where = compiler.every([*there, compiled.asked])
        if isinstance(wanted.by, Near):  # there are hardly any ties by meaning
            self.question = PointQuery(
                where, wanted.limit + 1, self._reading.keys, near=unit(wanted.by.vector)
            )
            return
        words = sparse_query(wanted.by.text)
        if words is not None and wanted.collection.texts:
            # filtered-out records still count for how rare a word is
            corpus = where if compiled.asked is ConstantCondition.YES else engine.conditions.every(there)
            ties = wanted.limit // 4 + engine.thresholds.beyond_a_page
            self.question = PointQuery(
                where, wanted.limit + ties + 1, self._reading.keys, words=words, corpus=corpus
            )

    async def hits(self, found: Sequence[FoundPoint]) -> list[Hit]:
        """Return the best hits, given the answer to `question`.

        If ties or unreadable records leave too few, it sends further queries.
        """
        question, limit = self.question, self._wanted.limit
        if question is None:
            return []
        while True:
            all_of_them = len(found) < question.limit
            if (
                not all_of_them
            ):  # the last ones may have further ties that were not read: they wait for the next round
                found = [point for point in found if point.value > found[-1].value]
            hits = await _hits(self._reading, found, limit)
            if all_of_them or len(hits) >= limit:
                return hits[:limit]
            question = replace(question, limit=question.limit * 4)
            (found,) = await self._engine.ask([question])


class HeadReader:
    """Reads heads from the `keys` of payloads.

    If a rest of the filter must be applied, it reads whole records.
    """

    def __init__(self, collection: Collection, select: frozenset[str], rest: Condition | None) -> None:
        self._collection, self._select = collection, select
        self._lets_through = None if rest is None else condition(rest)
        self.keys = None if rest is not None else head_keys(collection, select)
        self.at_a_time = HEADS_AT_A_TIME if rest is None else AT_A_TIME

    def head(self, payload: Payload) -> Head | None:
        """Return the head; None if the record is unreadable or filtered out."""
        if self._lets_through is None:
            return head_in(self._collection, payload, self._select)
        record = stored_in(self._collection, payload)
        return (
            head_of(self._collection, record, self._select)
            if isinstance(record, Record) and self._lets_through(record)
            else None
        )


async def _hits(reading: HeadReader, found: Sequence[FoundPoint], limit: int) -> list[Hit]:
    """Return at least `limit` hits if there are so many, best first, ties by id.

    Hits that tie with the last one are included.
    """
    hits: list[Hit] = []
    async for point in iterate_cooperatively(found, reading.at_a_time):
        if len(hits) >= limit and point.value < hits[-1].score:
            break
        if (head := reading.head(point.payload)) is not None:
            hits.append(Hit(head, point.value))
    hits.sort(key=lambda hit: (-hit.score, hit.head.key.id))
    return hits
