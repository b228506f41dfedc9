"""Finds candidates by all ways and by id at once, then their neighbours.

It reads only the measured parts of payloads. The engine counts the statistics.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from memory.adapters.qdrant.codec import LENGTH
from memory.adapters.qdrant.engine import Engine, FoundPoint, PointQuery, QdrantCondition, Sparse
from memory.adapters.qdrant.filters import Compiler, ConstantCondition, Part, scope_conditions
from memory.adapters.qdrant.keys import record_point
from memory.adapters.qdrant.pages import everything
from memory.adapters.qdrant.search import HEADS_AT_A_TIME, HeadReader, PointSearch
from memory.adapters.qdrant.words import index_of
from memory.ports import lexical
from memory.ports.candidate_scan import asking_for, head_fields, measure_heads, neighbours, place_of
from memory.ports.candidates import CandidateColumns, Candidates, Neighbourhood, Statistics, none_of
from memory.ports.concurrency import both_at_once
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.query import Condition, Everywhere, Head, Near, Search, Words, all_of
from memory.ports.record import Key


async def candidates(engine: Engine, asked: Candidates) -> CandidateColumns:
    """Find and measure candidates.

    One request returns the best of each way, the named records and the counts of words.
    Another returns the numbers of words.
    """
    make = engine.conditions
    if engine.alone and not await engine.count(
        make.every(scope_conditions(make, asked.collection, asked.where, asked.roles))
    ):
        return await measure_heads(
            asked, [], none_of(asked)
        )  # cheap in this process, while each search costs far more
    looking = _CandidateSearch(engine, asked)
    counting = _StatisticsBuilder(engine, asked)
    answers, lengths = await both_at_once(
        engine.ask([*looking.questions, *counting.questions]), counting.lengths()
    )
    of_looking = len(looking.questions)
    found = {head.key.id: head for head in await looking.heads(answers[:of_looking])}
    counted = await counting.statistics(lengths, answers[of_looking:])
    if asked.around is not None:
        found |= {head.key.id: head for head in await looking.around(found, asked.around)}
    return await measure_heads(asked, list(found.values()), counted)


class _CandidateSearch:
    """Finds heads with all measured values."""

    def __init__(self, engine: Engine, asked: Candidates) -> None:
        self._engine, self._asked = engine, asked
        self._select = head_fields(asked)
        ways = list[Words | Near]()
        ways += [Words(asked.text)] if asked.text.strip() else []
        ways += [Near(asked.near)] if asked.near is not None else []
        searches = [
            Search(asked.collection, asked.where, by, asked.limit, asked.filter, asked.roles, self._select)
            for by in ways
        ]
        rankings = [PointSearch(engine, search) for search in searches]
        self._rankings = [(r, r.question) for r in rankings if r.question is not None]
        self._named = self._make_listing(asked.filter, self._points()) if asked.among else None

    @property
    def questions(self) -> list[PointQuery]:
        """Queries for the best by words, the best by meaning, and the named records."""
        return [question for _, question in self._rankings] + (
            [self._named.question] if self._named is not None else []
        )

    async def heads(self, answers: Sequence[Sequence[FoundPoint]]) -> list[Head]:
        """Return the heads in the answers; some may be repeated."""
        ranked = [
            hit.head
            for (r, _), found in zip(self._rankings, answers, strict=False)
            for hit in await r.hits(found)
        ]
        return ranked + (await self._named.heads(answers[-1]) if self._named is not None else [])

    def _points(self) -> QdrantCondition:
        assert not isinstance(self._asked.where, Everywhere)  # noqa: S101 - callers never ask for everywhere
        keys = [Key(self._asked.where.tenant, i) for i in self._asked.among]
        return self._engine.conditions.points(
            [record_point(self._asked.collection.name, key) for key in keys]
        )

    async def around(self, found: Mapping[str, Head], around: Neighbourhood) -> list[Head]:
        """Return the neighbours of the found heads."""
        places = neighbours(found.values(), around)
        listings = [
            self._make_listing(all_of(self._asked.filter, part)) for part in asking_for(places, around)
        ]
        asked = [listing for listing in listings if listing is not None]
        answers = await self._engine.ask([listing.question for listing in asked]) if asked else []
        heads = [
            head
            for listing, points in zip(asked, answers, strict=True)
            for head in await listing.heads(points)
        ]
        return [head for head in heads if head.key.id not in found and place_of(head, around) in places]

    def _make_listing(self, part: Condition | None, there: Part = ConstantCondition.YES) -> _PointScan | None:
        """Build a listing of what passes the filter and the condition.

        The result is None if nothing can pass.
        """
        asked = self._asked
        compiler = Compiler(asked.collection, self._engine.conditions)
        compiled = compiler.compile(part)
        where = compiler.every(
            [
                *scope_conditions(self._engine.conditions, asked.collection, asked.where, asked.roles),
                compiled.asked,
                there,
            ]
        )
        if where is ConstantCondition.NO:
            return None
        return _PointScan(self._engine, HeadReader(asked.collection, self._select, compiled.rest), where)


class _PointScan:
    """All points that pass a condition, as heads."""

    def __init__(self, engine: Engine, reading: HeadReader, where: QdrantCondition) -> None:
        self._engine, self._reading, self._where = engine, reading, where
        self.question = PointQuery(where, engine.thresholds.read_at_once, reading.keys)

    async def heads(self, points: Sequence[FoundPoint]) -> list[Head]:
        """Return the heads of the answer to `question`, and of later pages."""
        if len(points) < self.question.limit:
            return await self._read(points)
        return [
            h
            async for some in everything(self._engine, self._where, self._reading.keys)
            for h in await self._read(some)
        ]

    async def _read(self, points: Sequence[FoundPoint]) -> list[Head]:
        reading = self._reading
        return [
            head
            async for point in iterate_cooperatively(points, reading.at_a_time)
            if (head := reading.head(point.payload)) is not None
        ]


class _StatisticsBuilder:
    """Counts the statistics.

    The points' numbers of words give the documents and their total words. The score of
    one point gives a word's rarity, and so the number of points with that word. Nothing
    is fetched for counting.
    """

    def __init__(self, engine: Engine, asked: Candidates) -> None:
        self._engine, self._asked, make = engine, asked, engine.conditions
        self._there = scope_conditions(make, asked.collection, asked.where, asked.roles)
        self._where = make.every(self._there)
        self._old = make.every([*self._there, make.missing(LENGTH)])
        self._counted = bool(asked.statistics and asked.collection.texts)
        self._words = [index_of(lexical.token(stem)) for stem in asked.counted] if self._counted else []

    @property
    def questions(self) -> list[PointQuery]:
        if not self._counted:
            return []
        old = PointQuery(self._old, self._engine.thresholds.read_at_once, ("counted",))
        best = [
            PointQuery(self._where, 1, (), words=Sparse([w], [1.0]), corpus=self._where, with_words=True)
            for w in self._words
        ]
        return [old, *best]

    async def lengths(self) -> Mapping[int, int]:
        """Return how many points have each number of words."""
        if self._counted:
            return await self._engine.tally(LENGTH, self._where)
        return {0: await self._engine.count(self._where)} if self._asked.statistics else {}

    async def statistics(
        self, lengths: Mapping[int, int], answers: Sequence[Sequence[FoundPoint]]
    ) -> Statistics:
        documents, words = sum(lengths.values()), sum(length * points for length, points in lengths.items())
        if not self._counted:
            return Statistics(documents, 0, none_of(self._asked).containing)
        old, *best = answers
        if len(old) < self._engine.thresholds.read_at_once:
            many, more = len(old), sum(_length(point) for point in old)
        else:
            many, more = 0, 0
            async for found in everything(self._engine, self._old, ("counted",)):
                async for point in iterate_cooperatively(found, HEADS_AT_A_TIME):
                    many, more = many + 1, more + _length(point)
        documents, words = documents + many, words + more
        holding = [
            _document_frequency(found, word, documents) for word, found in zip(self._words, best, strict=True)
        ]
        return Statistics(documents, words, dict(zip(self._asked.counted, holding, strict=True)))


def _length(point: FoundPoint) -> int:
    return lexical.length(str(point.payload.get("counted", "0")).encode())


def _document_frequency(best: Sequence[FoundPoint], word: int, documents: int) -> int:
    """Return how many documents contain the word, from its best point.

    The score is the point's weight of the word times the word's rarity, `ln((N - n +
    0.5) / (n + 0.5) + 1)`. Scores are 32-bit floats, so `n` is exact up to about a
    million documents.
    """
    if not best or best[0].words is None:
        return 0
    weight = dict(zip(best[0].words.indices, best[0].words.values, strict=True)).get(word)
    if not weight:
        return 0
    odds = math.expm1(best[0].value / weight)
    return max(1, min(documents, round((documents + 0.5 - 0.5 * odds) / (1 + odds))))
