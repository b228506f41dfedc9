"""Candidates: found by each way, and by their points, at once; then what stands beside them. Of payloads only what is measured is read.

Their statistics are counted by the engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from memory.adapters.qdrant.codec import LENGTH
from memory.adapters.qdrant.engine import Engine
from memory.adapters.qdrant.filters import Always, Compiler, Part, located
from memory.adapters.qdrant.keys import record_point
from memory.adapters.qdrant.pages import everything
from memory.adapters.qdrant.search import HEADS_AT_A_TIME, Reading, search
from memory.adapters.qdrant.words import index_of
from memory.ports import lexical
from memory.ports.candidates import Around, Candidates, Measured, Statistics, none_of
from memory.ports.gathering import asking_for, measured, neighbours, place_of, selected
from memory.ports.pace import paced
from memory.ports.query import Everywhere, Filter, Head, Near, Search, Words, all_of
from memory.ports.record import Key


async def candidates(engine: Engine, asked: Candidates) -> Measured:
    make = engine.conditions
    if engine.alone and not await engine.count(make.every(located(make, asked.collection, asked.where, asked.roles))):
        return await measured(asked, [], none_of(asked))  # in this process that costs next to nothing, and each search a good deal more
    looking = _Looking(engine, asked)
    best, named, counted = await asyncio.gather(looking.best(), looking.named(), statistics(engine, asked))
    found = {head.key.id: head for head in [*best, *named]}
    if asked.around is not None:
        found |= {head.key.id: head for head in await looking.around(found, asked.around)}
    return await measured(asked, list(found.values()), counted)


class _Looking:
    """Looks for heads with all that is measured."""

    def __init__(self, engine: Engine, asked: Candidates) -> None:
        self._engine, self._asked = engine, asked
        self._select = selected(asked)

    async def best(self) -> list[Head]:
        """The best by words and by meaning, some twice."""
        asked, ways = self._asked, list[Words | Near]()
        ways += [Words(asked.text)] if asked.text.strip() else []
        ways += [Near(asked.near)] if asked.near is not None else []
        searches = [Search(asked.collection, asked.where, by, asked.limit, asked.filter, asked.roles, self._select) for by in ways]
        return [hit.head for hits in await asyncio.gather(*[search(self._engine, one) for one in searches]) for hit in hits]

    async def named(self) -> list[Head]:
        asked = self._asked
        if not asked.among:
            return []
        assert not isinstance(asked.where, Everywhere)  # noqa: S101 - nobody may ask so
        points = [record_point(asked.collection.name, Key(asked.where.tenant, i)) for i in asked.among]
        return await self._heads(asked.filter, self._engine.conditions.points(points))

    async def around(self, found: Mapping[str, Head], around: Around) -> list[Head]:
        """What stands beside them."""
        places = neighbours(found.values(), around)
        parts = await asyncio.gather(*[self._heads(all_of(self._asked.filter, part)) for part in asking_for(places, around)])
        return [head for heads in parts for head in heads if head.key.id not in found and place_of(head, around) in places]

    async def _heads(self, part: Filter | None, there: Part = Always.YES) -> list[Head]:
        """What the filter and the condition let through."""
        asked, make = self._asked, self._engine.conditions
        compiler = Compiler(asked.collection, make)
        compiled = compiler.compile(part)
        where = compiler.every([*located(make, asked.collection, asked.where, asked.roles), compiled.asked, there])
        if where is Always.NO:
            return []
        reading, heads = Reading(asked.collection, self._select, compiled.rest), list[Head]()
        async for points in everything(self._engine, where, reading.keys):
            heads += [head async for point in paced(points, reading.at_a_time) if (head := reading.head(point.payload)) is not None]
        return heads


async def statistics(engine: Engine, asked: Candidates) -> Statistics:
    """Documents and words from the numbers of words that points have, and of each stem how many have it. Only words without their number are read."""
    if not asked.statistics:
        return none_of(asked)
    make = engine.conditions
    there = located(make, asked.collection, asked.where, asked.roles)
    where = make.every(there)
    if not asked.collection.texts:
        return Statistics(await engine.count(where), 0, none_of(asked).containing)
    lengths = await engine.tally(LENGTH, where)
    documents, words = sum(lengths.values()), sum(length * points for length, points in lengths.items())
    async for found in everything(engine, make.every([*there, make.missing(LENGTH)]), ("counted",)):
        async for point in paced(found, HEADS_AT_A_TIME):
            documents += 1
            words += lexical.length(str(point.payload.get("counted", "0")).encode())
    if not documents or not asked.counted:
        return Statistics(documents, words, none_of(asked).containing)
    holding = await engine.holding([index_of(lexical.token(stem)) for stem in asked.counted], where, documents)
    return Statistics(documents, words, dict(zip(asked.counted, holding, strict=True)))
