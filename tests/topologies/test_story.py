"""The demo's story on stores of every kind together: the same answers as on one file,
and the same rules about where things are.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from memory.cli.demo.run import SESSION, TOP, USER, Demo, turns
from tests.support.backends import marks_of
from tests.support.placings import STORIES, Placing, forget

Told = dict[str, Any]


@pytest.fixture(params=[pytest.param(p, id=p.name, marks=marks_of(*p.backends, "sqlite")) for p in STORIES])
def placing(request: pytest.FixtureRequest) -> Placing:
    chosen: Placing = request.param
    return chosen


async def told(memory: Memory) -> Told:
    """The story, and what can be browsed before and after the session ends."""
    demo = Demo(memory)
    told: Told = {"remembered": await demo.remember(lambda done, total: None)}
    told["before"] = [e.content for scope in (SESSION, USER) for e in await memory.retrieve(scope, limit=100)]
    told["answers"] = await demo.answers()
    told["ended"] = await demo.end_session()
    told["after"] = [
        (e.content, e.tier)
        for scope in (SESSION, USER)
        for e in await memory.retrieve(scope, limit=100, order="oldest")
    ]
    told["tagged"] = [e.content for e in await memory.retrieve(SESSION, tags=["fact"], limit=100)]
    told["again"] = await demo.answers()
    told["tiers"] = await demo.tiers()
    told["where"] = {
        e.content: [(c.tier, c.role) for c in await memory.admin.where(e.id)]
        async for e in memory.entries.iterate()
    }
    return told


@pytest.fixture
async def on_one_file(tmp_path: Path) -> Told:
    async with Memory(f"sqlite:///{tmp_path / 'story.db'}") as memory:
        return await told(memory)


@pytest.fixture
async def placed(placing: Placing, tmp_path: Path) -> AsyncIterator[Told]:
    async with Memory(placing.config(tmp_path)) as memory:
        yield await told(memory)
    forget(tmp_path)


async def test_the_story_is_the_same_on_every_topology(
    placing: Placing, placed: Told, on_one_file: Told
) -> None:
    for name in ("remembered", "before", "after", "tagged"):
        assert placed[name] == on_one_file[name], name
    for when in ("answers", "again"):
        for here, there in zip(placed[when], on_one_file[when], strict=True):
            found = {hit["turn"] for hit in here["hits"] if hit["evidence"]}
            assert found == {hit["turn"] for hit in there["hits"] if hit["evidence"]}, here["question"]
            assert 0 < here["found_at"] <= TOP
    assert [(m["turn"], m["rule"]) for m in placed["ended"]["moved"]] == [
        (m["turn"], m["rule"]) for m in on_one_file["ended"]["moved"]
    ]
    assert [(t["tier"], t["entries"]) for t in placed["tiers"]["tiers"]] == [
        (t["tier"], t["entries"]) for t in on_one_file["tiers"]["tiers"]
    ]
    assert placed["tiers"]["pending_steps"] == 0


async def test_it_can_be_seen_where_each_record_lives(placing: Placing, placed: Told) -> None:
    facts = [turn.draft.content for turn in turns() if "fact" in turn.draft.tags]
    apart = (
        len(set(placing.backends) - {"redis_volatile"}) > 1
    )  # a store that forgets is a cache, and no home
    for content in facts:
        homes = [tier for tier, role in placed["where"][content] if role == "home"]
        assert homes == ["long"]
        assert any(role == "mark to long" for _, role in placed["where"][content]) is apart
