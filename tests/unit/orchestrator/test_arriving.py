"""A copy that a move left on its way: its own source alone says whether it has arrived,
it stands for nothing else, and movers take it onward.
"""

from __future__ import annotations

import pytest

from memory.domain.errors import StoreUnavailable
from memory.orchestrator.tiering.moves import MoveResult
from memory.policies.promotion import PromotionRule
from memory.ports.record import Record
from tests.unit.orchestrator.world import SESSION, TENANT, World


async def test_a_mark_to_another_store_does_not_make_a_copy_a_home_in_a_sweep(world: World) -> None:
    entry = await world.write()
    await world.move(entry, "mid")
    await world.break_off(entry, "long")
    assert await world.stands(entry) == ["mark", "home", "arriving"]
    await world.engine.maintenance.sweep()
    assert await world.stands(entry) == ["mark", "mark", "home"]
    await world.update(entry, content="text, edited")
    assert await world.seen(entry) == ["text, edited"]


async def test_a_mark_to_another_store_does_not_make_a_copy_a_home_while_its_source_is_away(
    world: World,
) -> None:
    entry = await world.write()
    await world.move(entry, "mid")
    await world.break_off(entry, "long")
    world.mid.down = True
    with pytest.raises(StoreUnavailable, match="store 'mid'"):
        await world.update(entry, content="text, edited")
    with pytest.raises(StoreUnavailable, match="store 'mid'"):
        await world.get(entry)
    world.heal()
    assert await world.seen(entry) == ["text"]


async def test_a_session_that_ends_asks_for_the_entry_and_not_for_the_copy_that_a_move_left() -> None:
    async with World(
        rules=[PromotionRule(name="ended", on="session_end", source="short", target="mid")]
    ) as world:
        entry = await world.write()
        await world.break_off(entry, "mid")
        report = await world.engine.promotion.end_session(TENANT, SESSION)
        assert [(m.entry_id, m.from_tier, m.to_tier) for m in report.moved] == [(entry.id, "short", "mid")]
        assert report.kept == []
        assert await world.stands(entry) == ["mark", "home", "replica"]


async def test_of_a_copy_that_a_broken_off_move_left_behind_it_is_told_where_its_entry_is() -> None:
    async with World(
        rules=[PromotionRule(name="ended", on="session_end", source="mid", target="long")]
    ) as world:
        entry = await world.write()
        await world.break_off(entry, "mid")
        assert await world.move(entry, "long") == MoveResult.MOVED
        assert await world.stands(entry) == ["mark", "arriving", "home"]
        report = await world.engine.promotion.end_session(TENANT, SESSION)
        assert [(kept.entry_id, kept.tier) for kept in report.kept] == [(entry.id, "long")]


async def test_a_copy_on_its_way_to_a_later_tier_of_the_same_store_arrives_there_though_a_mover_to_an_earlier_one_meets_it() -> (
    None
):
    async with World().in_one_store("mid", "long") as world:
        entry = await world.write()
        world.mid.before["move.verify"] = lambda: world.break_off(entry, "mid")
        assert await world.move(entry, "long") == MoveResult.MOVED
        home = await world.standing(world.long, entry.id)
        assert isinstance(home, Record)
        assert home.tier == "long"
        assert await world.seen(entry) == ["text"]


async def test_what_a_move_brought_and_nobody_told_to_have_arrived_is_found_in_the_past_too(
    world: World,
) -> None:
    entry = await world.write()
    world.clock.advance()
    world.mid.fails_before.add("move.arrive")
    await world.move(entry, "mid")
    world.heal()
    assert await world.stands(entry) == ["mark", "arriving", "-"]
    assert await world.search("text", known_at=world.clock()) == await world.search("text") == ["text"]
