"""Candidates gathered step by step are those of the specification, whatever the store
has an index for.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from memory.adapters.in_memory import InMemoryStore
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import ELSEWHERE, HERE, apply_all, put
from memory.ports.contract.test_candidates import QUESTIONS, random_record
from memory.ports.query import within
from tests.support.gathering import Gathering, rows


@pytest.mark.asyncio
@pytest.mark.parametrize("name", QUESTIONS)
async def test_what_is_gathered_is_what_the_specification_answers(name: str) -> None:
    """Two scopes with the same conversations among them: neighbours are those of one's
    own.
    """
    specified = InMemoryStore()
    gathering = Gathering(state=specified.state)
    for store in (specified, gathering):
        await store.open(DECLARED)
    chance = random.Random(name)  # noqa: S311  the same each time
    await apply_all(
        specified, *[put(random_record(chance, n, at)) for at in (HERE, ELSEWHERE) for n in range(60)]
    )
    for question in (QUESTIONS[name], replace(QUESTIONS[name], where=within(HERE, ELSEWHERE), limit=3)):
        one, other = await specified.candidates(question), await gathering.candidates(question)
        assert rows(one) == rows(other)
        assert one.statistics == other.statistics


@pytest.mark.asyncio
async def test_a_store_without_indexes_finds_the_same_by_looking_through_with_statistics_and_without() -> (
    None
):
    bare = replace(InMemoryStore.claims, lexical=False, semantic=False)
    specified = InMemoryStore()
    looking = Gathering(state=specified.state, capabilities=bare)
    for store in (specified, looking):
        await store.open(DECLARED)
    chance = random.Random(11)  # noqa: S311
    await apply_all(specified, *[put(random_record(chance, n, HERE)) for n in range(60)])
    asked = replace(QUESTIONS["with neighbours"], collection=SAMPLES, around=None)
    for question in (asked, replace(asked, statistics=False)):
        assert set((await looking.candidates(question)).ids) == set(
            (await specified.candidates(question)).ids
        )
