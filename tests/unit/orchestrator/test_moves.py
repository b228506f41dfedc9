"""Moves in four steps: seen throughout, whole after any of the steps broke off, and
swept to the end.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import timedelta

import pytest

from memory.domain.errors import InvalidInput, StoreUnavailable
from memory.domain.versions import stored_version
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.tiering.moves import MoveResult
from memory.policies.promotion import PromotionRule
from memory.ports.record import Key, Mark
from memory.ports.writes import Delete, Newer, Put, Release
from tests.unit.orchestrator.world import DAY, DURABLE, HOUR, SESSION, TENANT, USER, World, held


async def test_a_move_leaves_a_mark_and_a_home_and_then_only_the_home(world: World) -> None:
    entry = await world.write()
    assert await world.move(entry, "mid") == MoveResult.MOVED
    assert await world.stands(entry) == ["mark", "home", "replica"]
    assert await world.seen(entry) == ["text"]
    assert await world.owed() == 0
    world.clock.advance(2 * HOUR)
    await world.engine.maintenance.sweep()
    assert await world.stands(entry) == ["-", "home", "replica"]
    assert await world.seen(entry) == ["text"]


async def test_a_move_goes_onward_only_and_only_to_tiers(world: World) -> None:
    entry = await world.write()
    await world.move(entry, "long")
    for tier in ("short", "mid", "long"):
        assert await world.move(entry, tier) == MoveResult.ALREADY
    with pytest.raises(InvalidInput, match="tier"):
        await world.move(entry, "attic")
    await world.delete(entry)
    assert await world.move(entry, "long") == MoveResult.GONE


@pytest.mark.parametrize("outcome", ["before", "after"])
@pytest.mark.parametrize("step", ["move.copy", "move.verify", "move.release", "move.arrive"])
async def test_a_move_broken_off_at_any_step_loses_nothing_and_is_swept_to_its_end(
    world: World, step: str, outcome: str
) -> None:
    entry = await world.write()
    await world.update(entry, content="text, edited")
    for store in world.stores:
        (store.fails_before if outcome == "before" else store.fails_after).add(step)
    try:
        await world.move(entry, "long")
    except StoreUnavailable:
        assert step != "move.arrive"  # the release was the moment of the move: what follows is owed
    world.heal()
    assert await world.seen(entry) == ["text, edited"]
    world.clock.advance(HOUR)
    await world.engine.maintenance.sweep()
    assert await world.seen(entry) == ["text, edited"]
    assert await world.owed() == 0
    stands = await world.stands(entry)
    assert stands.count("home") == 1
    assert "arriving" not in stands
    assert await world.move(entry, "long") in (MoveResult.MOVED, MoveResult.ALREADY)
    assert await world.stands(entry) == ["mark", "-", "home"]


@pytest.mark.parametrize("step", ["move.copy", "move.verify", "move.release", "move.arrive"])
async def test_an_entry_deleted_after_a_broken_move_stays_deleted(world: World, step: str) -> None:
    entry = await world.write()
    for store in world.stores:
        store.fails_after.add(step)
    with contextlib.suppress(StoreUnavailable):
        await world.move(entry, "long")
    world.heal()
    assert await world.delete(entry) is True
    assert await world.seen(entry) == []
    for _ in range(2):
        world.clock.advance(HOUR)
        await world.engine.maintenance.sweep()
        assert await world.seen(entry) == []
    assert "home" not in await world.stands(entry)


@pytest.mark.parametrize("step", ["move.copy", "move.verify"])
async def test_an_edit_after_a_broken_move_wins_over_the_copy_it_left(world: World, step: str) -> None:
    entry = await world.write()
    for store in world.stores:
        store.fails_after.add(step)
    with pytest.raises(StoreUnavailable):
        await world.move(entry, "long")
    world.heal()
    assert await world.stands(entry) == ["home", "-", "arriving"]
    await world.update(entry, content="text, edited since")
    assert await world.seen(entry) == ["text, edited since"]
    assert await world.move(entry, "long") == MoveResult.MOVED
    assert await world.seen(entry) == ["text, edited since"]


async def test_an_arriving_copy_without_source_or_mark_is_swept_away(world: World) -> None:
    entry = await world.write()
    await world.break_off(entry, "mid")
    world.short.state.place("entries", Key(TENANT, entry.id), None)  # the source forgot it
    assert await world.stands(entry) == ["-", "arriving", "-"]
    assert await world.seen(entry) == []
    await world.engine.maintenance.sweep()
    assert await world.stands(entry) == ["-", "-", "-"]


async def test_a_mover_that_comes_late_takes_nothing_back(world: World) -> None:
    entry = await world.write()
    await world.move(entry, "mid")
    late = Release(ENTRIES, Key(TENANT, entry.id), at=stored_version(entry.version), to="long")
    await world.short.apply([late])
    mark = await world.standing(world.short, entry.id)
    assert isinstance(mark, Mark)
    assert mark.to == "mid"
    assert await world.seen(entry) == ["text"]
    assert await world.move(entry, "long") == MoveResult.MOVED
    assert await world.seen(entry) == ["text"]
    assert (await world.stands(entry))[2] == "home"


async def test_a_move_onto_its_own_replica_changes_the_replicas_role(world: World) -> None:
    entry = await world.write(scope=USER)
    assert await world.stands(entry) == ["-", "home", "replica"]
    assert await world.move(entry, "long") == MoveResult.MOVED
    assert await world.stands(entry) == ["-", "mark", "home"]
    assert await world.seen(entry) == ["text"]


async def test_a_move_whose_replica_waits_has_moved_and_owes_it(world: World) -> None:
    entry = await world.write()
    world.long.down = True
    assert await world.move(entry, "mid") == MoveResult.MOVED
    world.heal()
    assert await world.stands(entry) == ["mark", "home", "-"]
    assert await world.owed() == 1
    await world.engine.maintenance.sweep()
    assert await world.stands(entry) == ["mark", "home", "replica"]
    assert await world.owed() == 0


@pytest.mark.parametrize(("away", "moved"), [("mid", 0), ("long", 5)])
@pytest.mark.parametrize("how", ["end of session", "by hand", "sweep"])
async def test_many_moves_wait_once_for_a_store_that_is_away(how: str, away: str, moved: int) -> None:
    async with World(
        rules=[PromotionRule(name="ended", on="session_end"), PromotionRule(name="swept", on="sweep")]
    ) as world:
        entries = [await world.write(f"text {n}") for n in range(5)]
        store = world.mid if away == "mid" else world.long
        store.down = True
        before = len(store.steps)
        if how == "end of session":
            report = await world.engine.promotion.end_session(TENANT, SESSION)
        elif how == "by hand":
            report = await world.engine.promotion.by_hand(TENANT, [entry.id for entry in entries], "mid")
        else:
            report = await world.engine.promotion.by_sweep(set(), held)
        assert (len(report.moved), len(report.kept)) == (moved, 5 - moved)
        writes = [step for step in store.steps[before:] if step in ("move.copy", "replica.deliver")]
        assert len(writes) <= 1
        assert all(f"store '{away}'" in kept.because for kept in report.kept)


async def test_a_move_waits_while_the_entry_owes_a_step(world: World) -> None:
    entry = await world.write()
    world.mid.fails_before.add("version.keep")
    await world.update(entry, content="text, edited")
    assert await world.move(entry, "long") == MoveResult.POSTPONED
    world.heal()
    assert await world.move(entry, "long") == MoveResult.MOVED
    assert [e.content for e in await world.engine.entries.history(TENANT, entry.id)] == [
        "text",
        "text, edited",
    ]


async def test_a_move_waits_for_a_tombstone_in_its_target_to_be_purged(world: World) -> None:
    entry = await world.write()
    over = world.clock.moment + DAY
    await world.long.apply(
        [
            Delete(
                ENTRIES,
                Key(TENANT, entry.id),
                version=stored_version(entry.version) + 10,
                when=Newer(),
                discard_at=over,
            )
        ]
    )
    assert await world.move(entry, "long") == MoveResult.POSTPONED
    assert await world.seen(entry) == ["text"]
    world.clock.advance(2 * DAY)
    await world.engine.maintenance.sweep()
    assert await world.move(entry, "long") == MoveResult.MOVED
    assert await world.seen(entry) == ["text"]


async def test_an_entry_of_a_second_life_moves_like_any_other(world: World) -> None:
    source = await world.write("text")
    promoted = await world.engine.derivation.promote(TENANT, source.id, USER)
    await world.delete(promoted)
    again = await world.engine.derivation.promote(TENANT, source.id, USER)
    assert await world.stands(again) == ["-", "home", "replica"]
    assert await world.move(again, "long") == MoveResult.MOVED
    assert await world.seen(again) == ["text"]


async def test_a_move_to_a_tier_that_refuses_the_record_says_so() -> None:
    async with World(long=replace(DURABLE, max_record_bytes=300)) as world:
        entry = await world.write("text " * 200)
        assert await world.move(entry, "long") == MoveResult.REFUSED
        assert await world.stands(entry) == ["home", "-", "-"]
        ended = await world.engine.promotion.by_hand(TENANT, [entry.id], "long")
        assert "300 bytes" in ended.kept[0].because


async def test_a_scope_erased_in_mid_move_stays_erased(world: World) -> None:
    entry = await world.write()
    row = await world.standing(world.short, entry.id)
    assert await world.engine.erasure.erase_scope(TENANT, SESSION) == 1
    for store in (world.mid, world.long):
        outcome = (await store.apply([Put(ENTRIES, row, Newer())]))[0]  # type: ignore[arg-type]
        assert not outcome.applied
    assert await world.move(entry, "long") == MoveResult.GONE
    assert await world.browse() == []


async def test_a_copy_brought_for_an_earlier_tier_of_the_same_store_is_taken_over_for_the_later_one() -> None:
    async with World().in_one_store("mid", "long") as world:
        entry = await world.write()
        await world.break_off(entry, "mid")
        assert await world.move(entry, "long") == MoveResult.MOVED
        moved = await world.get(entry)
        assert moved is not None
        assert moved.tier == "long"
        assert await world.move(entry, "mid") == MoveResult.ALREADY


async def test_a_store_restored_to_the_middle_of_a_move_keeps_what_had_arrived(world: World) -> None:
    entry = await world.write()
    world.mid.fails_before.add("move.arrive")
    await world.move(entry, "mid")
    world.heal()
    backup = world.mid.state.snapshot()
    await world.engine.maintenance.sweep()
    world.mid.state.restore(backup)
    for hours in (0, 0, 2, 2):
        world.clock.advance(hours * HOUR + timedelta(minutes=1))
        if hours == 2:
            assert (
                await world.engine.repair.compare(repair=True)
            ).left == []  # until then nothing is forgotten
        report = await world.engine.maintenance.sweep()
        assert report.removed_copies == 0
        assert await world.seen(entry) == ["text"]
    assert await world.owed() == 0
    assert await world.stands(entry) == ["-", "home", "replica"]


async def test_a_store_restored_to_an_earlier_move_of_the_same_record_keeps_the_version_that_it_has(
    world: World,
) -> None:
    entry = await world.write("text one")
    world.mid.fails_after.add("move.copy")
    with pytest.raises(StoreUnavailable):
        await world.move(entry, "mid")
    world.heal()
    backup = world.mid.state.snapshot()
    await world.update(entry, content="text two")
    assert await world.move(entry, "mid") == "moved"
    world.mid.state.restore(backup)
    world.clock.advance(2 * HOUR)  # the mark has served by now: what it tells is asked before it is forgotten
    for _ in range(2):
        await world.engine.maintenance.sweep()
        assert await world.seen(entry) == ["text one"]


async def test_a_mark_lets_go_of_what_was_deleted_so_long_ago_that_the_tombstone_is_gone(
    world: World,
) -> None:
    """Its copy arrived in the end, was deleted and forgotten; the source was told so
    too late, as it did not answer.
    """
    entry = await world.write(scope=USER)
    world.long.fails_before.add("move.arrive")
    assert await world.move(entry, "long") == "moved"
    world.heal()
    assert await world.delete(entry) is True
    world.clock.advance(31 * DAY)
    world.mid.fails_before.add("owed.settle")
    await world.engine.maintenance.sweep()
    assert await world.standing(world.long, entry.id) is None
    assert isinstance(await world.standing(world.mid, entry.id), Mark)
    world.heal()
    assert (await world.engine.maintenance.sweep()).pending_steps == 0
    assert await world.engine.maintenance.count_pending() == 0
    world.clock.advance(DAY)
    await world.engine.maintenance.sweep()
    assert await world.stands(entry) == ["-", "-", "-"]
