"""Entries that reads keep, with their copies: replicas, copies of moves, cached ones."""

from __future__ import annotations

from datetime import datetime

import pytest

from memory.domain.entry import Entry
from memory.domain.scope import Scope
from memory.orchestrator.tiering.moves import MoveResult
from memory.ports.record import Record
from tests.unit.orchestrator.world import HOUR, SESSION, TENANT, USER, VOLATILE, World


async def _kept(world: World, scope: Scope = SESSION) -> Entry:
    entry = await world.write(scope=scope, expires_at=2 * HOUR, lifetime=2 * HOUR)
    await world.flush()
    return entry


async def _read(world: World, entry: Entry) -> Entry:
    found = await world.get(entry)
    assert found is not None
    await world.engine.expiry_refresher.refresh(TENANT, [found])
    return found


async def _ends(world: World, entry: Entry) -> set[datetime | None]:
    """When the copies of the entry expire, in all stores."""
    rows = [await world.standing(store, entry.id) for store in world.stores]
    return {row.expires_at for row in rows if isinstance(row, Record)}


async def test_a_read_moves_the_expiry_of_all_copies(world: World) -> None:
    entry = await _kept(world, USER)
    world.clock.advance(HOUR)
    now = await _read(world, entry)
    assert await world.stands(entry) == ["-", "home", "replica"]
    assert await _ends(world, entry) == {now.expires_at}
    world.clock.advance(1.5 * HOUR)
    assert await world.get(entry) is not None
    assert await world.search("text", USER) == ["text"]


async def test_a_later_read_moves_the_copies_that_an_earlier_one_could_not(world: World) -> None:
    entry = await _kept(world, USER)
    world.clock.advance(HOUR)
    world.long.fails_before.add("entry.refresh")
    first = await _read(world, entry)
    assert first.expires_at in await _ends(world, entry) != {first.expires_at}
    world.heal()
    world.clock.advance(HOUR / 2)
    second = await _read(world, entry)
    assert await _ends(world, entry) == {second.expires_at}


async def test_a_read_answers_where_no_expiry_can_be_moved(world: World) -> None:
    entry = await _kept(world)
    world.clock.advance(HOUR)
    for store in world.stores:
        store.fails_before.add("entry.refresh")
    assert await _read(world, entry) == entry
    assert await _ends(world, entry) == {entry.expires_at}


@pytest.mark.parametrize("reaches", ["the source", "both"])
@pytest.mark.parametrize("tier", ["mid", "long"])
async def test_a_copy_that_a_move_left_is_taken_over_with_the_later_expiry(
    world: World, tier: str, reaches: str
) -> None:
    entry = await _kept(world)
    await world.break_off(entry, tier)
    world.clock.advance(HOUR)
    if reaches == "the source":
        for store in (world.mid, world.long):
            store.fails_before.add("entry.refresh")
    now = await _read(world, entry)
    world.heal()
    assert await world.move(entry, tier) == MoveResult.MOVED
    moved = await world.get(entry)
    assert moved is not None
    assert (moved.tier, moved.expires_at) == (tier, now.expires_at)


async def test_a_read_at_the_moment_of_a_change_moves_nothing_of_it(world: World) -> None:
    entry = await _kept(world)
    await world.update(entry, expires_at=None, lifetime=None)
    world.clock.advance(HOUR)
    await world.engine.expiry_refresher.refresh(TENANT, [entry])
    now = await world.get(entry)
    assert now is not None
    assert (now.expires_at, now.lifetime) == (None, None)


async def test_a_cached_copy_hides_no_entry_that_reads_keep() -> None:
    async with World(short=VOLATILE) as world:
        entry = await _kept(world)
        assert await world.get(entry) == entry  # and it is cached
        world.clock.advance(2 * HOUR - 2 * world.engine.placement.settings.cache_max_age / 3)
        assert await world.get(entry) is not None  # cached anew
        now = await _read(world, entry)
        world.clock.advance(2 * world.engine.placement.settings.cache_max_age / 3)
        again = await world.get(entry)
        assert again is not None
        assert again.expires_at == now.expires_at
