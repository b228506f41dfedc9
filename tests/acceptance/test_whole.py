"""The shape of the whole: what `Memory` offers, what it is independent of, and a life
from the first turn to compaction.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from memory import CompactionError, ConfigError, InvalidScopePromotion, NotFound, NotOpen
from memory.adapters.in_memory import InMemoryStore
from memory.facade.memory import Memory
from memory.facade.runtime.build import build_engine
from memory.orchestrator.engine import Engine
from memory.orchestrator.storage.topology import Topology
from memory.ports.capabilities import HOME_NEEDS
from tests.acceptance.support import HOUR, SESSION, USER, Clock, contents


@pytest.mark.behaviour("A11", "A12", "A13")
async def test_every_operation_of_the_catalogue_is_there_and_a_write_returns_what_is_stored(
    memory: Memory,
) -> None:
    one = await memory.write("one", scope=SESSION)
    assert await memory.get(one.id) == one
    assert await memory.retrieve(SESSION) == [one]
    assert (await memory.update(one.id, content="uno")).content == "uno"
    two = await memory.promote(one.id, to=USER)
    three = await memory.compact([two.id], lambda entries: "all of it")
    assert await memory.delete(one.id)
    assert await memory.admin.erase(USER) == 2
    assert await memory.get(three.id) is None


@pytest.mark.behaviour("A19", "B5")
@pytest.mark.parametrize("flag", ["conditional", "filter", "order", "tenant_wide"])
async def test_a_store_that_cannot_do_what_a_tier_needs_is_refused_by_name(flag: str) -> None:
    store = InMemoryStore("weak", capabilities=replace(HOME_NEEDS, **{flag: False}))  # type: ignore[arg-type]
    topology = Topology(short=store, mid=store, long=store, accept_loss=True)
    with pytest.raises(ConfigError, match=f"tier 'mid' on store 'weak' lacks {flag}"):
        await Engine(topology).open()


@pytest.mark.behaviour("A16", "A17", "A18")
def test_errors_carry_their_facts() -> None:
    assert str(NotFound("e1")) == "Memory entry not found: e1"
    assert NotFound("e1").entry_id == "e1"
    assert (
        str(InvalidScopePromotion("user", "session"))
        == "Cannot promote memory from user scope to session scope."
    )
    error = CompactionError(["a", "b"], "the cause")
    assert str(error) == "Compaction failed for entries [a, b]: the cause"
    assert error.source_entry_ids == ("a", "b")


@pytest.mark.behaviour("A85", "A91")
async def test_nothing_but_the_stores_and_a_clock_is_needed(memory: Memory) -> None:
    assert {report.ok for report in await memory.admin.check()} == {True}
    assert memory.admin.route(SESSION).tier == "short"
    assert memory.admin.route(USER).tier == "mid"


@pytest.mark.behaviour("A93")
async def test_a_life_from_the_first_turn_to_compaction(memory: Memory, clock: Clock) -> None:
    said = await memory.write(
        "Ada likes tea", scope=SESSION, tags=["fact"], metadata={"agentId": "a1", "confidence": 0.9}
    )
    clock.advance()
    assert contents(await memory.retrieve(SESSION)) == ["Ada likes tea"]
    clock.advance()
    report = await memory.sessions.end("sess-1")
    assert [(m.entry_id, m.to_tier, m.rule) for m in report.moved] == [(said.id, "long", "facts-last")]
    kept = await memory.promote(said.id, to=USER)
    clock.advance()
    await memory.write("Ada likes scones", scope=USER, metadata={"agentId": "a2"})
    ids = [e.id for e in await memory.retrieve(USER, order="oldest")]
    whole = await memory.compact(ids, lambda entries: "; ".join(contents(entries)), delete_sources=True)
    assert contents(await memory.retrieve(USER)) == ["Ada likes tea; Ada likes scones"]
    assert whole.contributors is not None
    assert [c.agent_id for c in whole.contributors] == ["a1", "a2"]
    assert whole.metadata["created_in_session_id"] == "sess-1"
    assert ids[0] == kept.id
    assert contents(await memory.retrieve(SESSION)) == ["Ada likes tea"]


@pytest.mark.behaviour("B6", "B7", "B9")
async def test_calls_before_opening_and_after_closing_are_refused(
    config: dict[str, Any], clock: Clock
) -> None:
    memory = Memory(config, clock=clock)
    for _ in range(2):
        for call in (
            memory.get("x"),
            memory.write("x", scope=USER),
            memory.retrieve(USER),
            memory.admin.sweep(),
        ):
            with pytest.raises(NotOpen):
                await call
        await memory.open()
        await memory.open()
        await memory.write("kept", scope=USER)
        await memory.close()
        await memory.close()


@pytest.mark.behaviour("D133", "AC-D49", "B9")
async def test_what_was_written_is_there_after_reopening(config: dict[str, Any], clock: Clock) -> None:
    first = Memory(config, clock=clock)
    async with first:
        entry = await first.write("of the user", scope=USER, tags=["a"], metadata={"n": [1]})
        await first.write("of the session", scope=SESSION)
        await first.update(entry.id, content="edited")
    in_process = config["tiers"]["mid"] == "memory://"
    for again in (
        (first, first) if in_process else (first, Memory(config, clock=clock), Memory(config, clock=clock))
    ):
        async with again:
            assert sorted(contents([e async for e in again.entries.iterate()])) == [
                "edited",
                "of the session",
            ]
            assert contents(await again.entries.history(entry.id)) == ["of the user", "edited"]
            assert [h.entry.id for h in await again.search("edited", scope=USER)] == [entry.id]


@pytest.mark.behaviour("B7")
async def test_opening_many_times_at_once_is_opening_once(config: dict[str, Any], clock: Clock) -> None:
    memory = Memory(config, clock=clock)
    with patch("memory.facade.memory.build_engine", wraps=build_engine) as built:
        await asyncio.gather(*(memory.open() for _ in range(5)))
    assert built.call_count == 1
    entry = await memory.write("kept", scope=USER)
    await asyncio.gather(memory.close(), memory.open(), memory.close(), memory.open())
    assert await memory.get(entry.id) == entry
    await memory.close()


@pytest.mark.behaviour("A24", "A36")
async def test_an_entry_nobody_may_see_any_more_is_in_no_answer(memory: Memory, clock: Clock) -> None:
    entry = await memory.write("ghost story", scope=USER, expires_at=clock.moment + HOUR)
    await memory.update(entry.id, tags=["ghost"])
    clock.advance(2 * HOUR)
    assert await memory.get(entry.id) is None
    assert await memory.get(entry.id, as_of=entry.created_at) is None
    assert await memory.retrieve(USER, as_of=entry.created_at) == []
    assert await memory.search("ghost", scope=USER, as_of=entry.created_at) == []
    assert [e async for e in memory.entries.iterate(USER)] == []
