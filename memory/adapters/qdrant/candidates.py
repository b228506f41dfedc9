"""Candidates in as few calls as may be, and their statistics, counted by the engine."""

from __future__ import annotations

from memory.adapters.qdrant.codec import LENGTH
from memory.adapters.qdrant.engine import Engine
from memory.adapters.qdrant.filters import located
from memory.adapters.qdrant.pages import everything
from memory.adapters.qdrant.words import index_of
from memory.ports import lexical
from memory.ports.candidates import Candidates, Statistics, none_of
from memory.ports.pace import paced


async def statistics(engine: Engine, asked: Candidates) -> Statistics:
    """Documents and words from the numbers of words that points have, and of each stem how many have it. Only words without their number are read."""
    make = engine.conditions
    there = located(make, asked.collection, asked.where, asked.roles)
    where = make.every(there)
    if not asked.collection.texts:
        return Statistics(await engine.count(where), 0, none_of(asked).containing)
    lengths = await engine.tally(LENGTH, where)
    documents, words = sum(lengths.values()), sum(length * points for length, points in lengths.items())
    async for found in everything(engine, make.every([*there, make.missing(LENGTH)]), ("counted",)):
        async for point in paced(found, 100):
            documents += 1
            words += lexical.length(str(point.payload.get("counted", "0")).encode())
    if not documents or not asked.counted:
        return Statistics(documents, words, none_of(asked).containing)
    holding = await engine.holding([index_of(lexical.token(stem)) for stem in asked.counted], where, documents)
    return Statistics(documents, words, dict(zip(asked.counted, holding, strict=True)))
