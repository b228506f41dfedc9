"""Accesses: counted off the read path, told in batches, and asked for by rules."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from memory.orchestrator.entries import accesses
from memory.orchestrator.storage.settings import EngineSettings
from memory.policies.promotion import PromotionRule
from memory.ports.record import Record
from tests.unit.orchestrator.world import DAY, SESSION, TENANT, USER, World

HOT = PromotionRule(name="hot", on="session_end", source="short", target="mid", min_accesses=3)


async def _count(world: World, entry_id: str) -> int:
    row = await world.standing(world.short, entry_id)
    assert isinstance(row, Record)
    return row.accesses


async def test_a_rule_takes_what_was_read_often_enough_and_leaves_the_rest() -> None:
    async with World(rules=(HOT,)) as world:
        often, seldom = await world.write("text one"), await world.write("text two")
        world.engine.accesses.note(TENANT, [often.id] * 3 + [seldom.id] * 2)
        report = await world.engine.promotion.end_session(TENANT, SESSION)
        assert [moved.entry_id for moved in report.moved] == [often.id]


async def test_reading_asks_no_store_and_a_sweep_tells(world: World) -> None:
    entry = await world.write()
    for store in world.stores:
        store.steps.clear()
    world.engine.accesses.note(TENANT, [entry.id] * 7)
    assert all(store.steps == [] for store in world.stores)
    await world.engine.maintenance.sweep()
    assert await _count(world, entry.id) == 7
    await world.engine.maintenance.sweep()
    assert await _count(world, entry.id) == 7, "told once"


async def test_closing_tells_and_what_cannot_be_told_keeps_nothing_from_closing(world: World) -> None:
    entry = await world.write()
    world.engine.accesses.note(TENANT, [entry.id])
    await world.engine.close()
    await world.engine.open()
    assert await _count(world, entry.id) == 1
    world.engine.accesses.note(TENANT, [entry.id])
    world.short.down = True
    await world.engine.close()
    world.heal()
    await world.engine.open()


async def test_what_may_have_been_counted_is_not_told_again(world: World) -> None:
    entry = await world.write()
    world.engine.accesses.note(TENANT, [entry.id])
    world.short.fails_after.add("access.note")
    await world.engine.maintenance.sweep()
    world.heal()
    await world.engine.maintenance.sweep()
    assert await _count(world, entry.id) == 1


async def test_what_is_gone_or_never_was_counts_nothing(world: World) -> None:
    entry = await world.write()
    await world.delete(entry)
    world.engine.accesses.note(TENANT, [entry.id, "01900000-0000-8000-8000-000000000000"])
    assert await world.engine.accesses.tell() == 0


async def test_an_access_changes_neither_version_nor_text(world: World) -> None:
    entry = await world.write(scope=USER)
    world.engine.accesses.note(TENANT, [entry.id])
    assert await world.engine.accesses.tell() == 1
    assert await world.get(entry) == entry
    assert await world.stands(entry) == ["-", "home", "replica"]


async def test_what_is_remembered_between_two_tellings_is_bounded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accesses, "MOST_ENTRIES", 2)
    monkeypatch.setattr(accesses, "MOST_OF_ONE", 5)
    entries = [await world.write(f"text {n}") for n in range(3)]
    world.engine.accesses.note(TENANT, [entries[0].id] * 9 + [entries[1].id, entries[2].id])
    assert await world.engine.accesses.tell() == 6
    world.clock.advance(DAY)
    assert await world.engine.accesses.tell() == 0


async def test_a_store_that_never_answers_keeps_closing_no_longer_than_the_deadline() -> None:
    async with World(settings=EngineSettings(deadline=timedelta(milliseconds=50))) as world:
        entry = await world.write()
        world.engine.accesses.note(TENANT, [entry.id])
        world.short.silent = True
        async with asyncio.timeout(60):
            await world.engine.close()
        world.heal()
