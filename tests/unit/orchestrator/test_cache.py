"""A volatile short store is a cache: it saves reads of home, misleads a reader for a
bounded time, and never a writer.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from memory.domain.entry import Entry
from memory.orchestrator.storage.cache import CacheLookup
from memory.orchestrator.storage.collections import ENTRIES
from memory.ports.record import Key, Record, Role
from tests.unit.orchestrator.world import DAY, SESSION, TENANT, USER, VOLATILE, World


async def test_entries_of_the_short_tier_are_homed_in_the_next_durable_store(cached: World) -> None:
    entry = await cached.write()
    assert entry.tier == "short"
    assert await cached.stands(entry) == ["-", "home", "-"]
    assert cached.engine.topology.cache is cached.short


async def test_a_read_fills_the_cache_and_the_next_does_not_ask_home(cached: World) -> None:
    entry = await cached.write()
    assert await cached.get(entry) == entry
    assert await cached.stands(entry) == ["cached", "home", "-"]
    cached.mid.steps.clear()
    assert await cached.get(entry) == entry
    assert cached.mid.steps == []


async def test_only_what_belongs_to_the_short_tier_is_cached(cached: World) -> None:
    entry = await cached.write(scope=USER)
    await cached.get(entry)
    assert await cached.stands(entry) == ["-", "home", "replica"]


async def test_a_writer_clears_the_cache_and_reads_its_own_write(cached: World) -> None:
    entry = await cached.write()
    await cached.get(entry)
    await cached.update(entry, content="text, edited")
    assert await cached.seen(entry) == ["text, edited"]
    await cached.delete(entry)
    assert await cached.seen(entry) == []


async def _stale_entry(cached: World) -> Entry:
    """An entry that was edited while its writer could not reach the cache."""
    entry = await cached.write()
    await cached.get(entry)
    cached.short.fails_before.add("cache.invalidate")
    await cached.update(entry, content="text, edited")
    cached.heal()
    return entry


async def test_a_copy_older_than_its_time_is_a_miss(cached: World) -> None:
    entry = await _stale_entry(cached)
    other = cached.another_engine()
    await other.open()
    stale = await other.entries.get(TENANT, entry.id)
    assert stale is not None
    assert stale.content == "text"
    cached.clock.advance(timedelta(minutes=5, seconds=1))
    fresh = await cached.get(entry)
    assert fresh is not None
    assert fresh.content == "text, edited"


async def test_a_stale_copy_never_misleads_a_writer(cached: World) -> None:
    entry = await cached.write(metadata={"n": 1})
    await cached.get(entry)
    cached.short.fails_before.add("cache.invalidate")
    await cached.update(entry, metadata={"n": 2, "m": 2})
    edited = await cached.update(entry, content="text, edited")
    assert edited.metadata == {"n": 2, "m": 2}
    assert await cached.browse() == ["text, edited"]


async def test_a_copy_from_before_a_restart_is_a_miss(cached: World) -> None:
    entry = await _stale_entry(cached)
    cached.short.restart(keep=True)  # rolled back to what it held
    fresh = await cached.get(entry)
    assert fresh is not None
    assert fresh.content == "text, edited"


async def test_a_cache_that_lost_everything_is_filled_again(cached: World) -> None:
    entry = await cached.write()
    await cached.get(entry)
    cached.short.restart(keep=False)
    assert await cached.stands(entry) == ["-", "home", "-"]
    assert await cached.get(entry) == entry
    assert await cached.stands(entry) == ["cached", "home", "-"]


async def test_a_cache_that_is_down_is_left_out(cached: World) -> None:
    cached.short.down = True
    entry = await cached.write()
    assert await cached.get(entry) == entry
    await cached.update(entry, content="text, edited")
    assert await cached.seen(entry) == ["text, edited"]
    assert (await cached.engine.maintenance.sweep()).waiting == ()
    assert await cached.delete(entry) is True


async def test_a_cache_that_cannot_be_filled_fails_no_read(cached: World) -> None:
    cached.short.fails_before.add("cache.fill")
    entry = await cached.write()
    assert await cached.get(entry) == entry
    assert await cached.stands(entry) == ["-", "home", "-"]


async def test_a_reader_that_is_overtaken_by_a_writer_fills_nothing(cached: World) -> None:
    entry = await cached.write()
    seen = await cached.engine.cache.look(ENTRIES, Key(TENANT, entry.id))
    old = await cached.standing(cached.mid, entry.id)
    assert isinstance(old, Record)
    await cached.update(entry, content="text, edited")
    await cached.engine.cache.fill(ENTRIES, old, seen)
    assert await cached.seen(entry) == ["text, edited"]


async def test_a_reader_that_is_overtaken_while_it_reads_home_fills_nothing(cached: World) -> None:
    entry = await cached.write()
    cached.mid.after["read.home"] = lambda: cached.update(entry, content="text, edited")
    await cached.get(entry)
    assert await cached.seen(entry) == ["text, edited"]


async def test_a_copy_is_as_old_as_the_look_before_home_was_read_however_late_it_is_filled(
    cached: World,
) -> None:
    entry = await cached.write()

    async def goes_on_when_the_stamps_are_forgotten() -> None:
        await cached.update(entry, content="text, edited")
        cached.clock.advance(3 * cached.engine.settings.cache_max_age)
        await cached.engine.maintenance.sweep()
        assert (await cached.stands(entry))[0] == "-"

    cached.mid.after["read.home"] = goes_on_when_the_stamps_are_forgotten
    await cached.get(entry)
    assert await cached.seen(entry) == ["text, edited"]


async def test_a_writer_whose_clock_is_behind_clears_the_copy_of_what_one_ahead_of_it_wrote(
    cached: World,
) -> None:
    edited, deleted = await cached.write(), await cached.write()
    for entry in (edited, deleted):
        await cached.get(entry)
    cached.clock.advance(-timedelta(minutes=2))
    await cached.update(edited, content="text, edited")
    await cached.delete(deleted)
    assert await cached.seen(edited) == ["text, edited"]
    assert await cached.seen(deleted) == []


async def test_a_reader_that_is_overtaken_by_a_restart_fills_nothing(cached: World) -> None:
    entry = await cached.write()
    seen = await cached.engine.cache.look(ENTRIES, Key(TENANT, entry.id))
    old = await cached.standing(cached.mid, entry.id)
    assert isinstance(old, Record)
    cached.short.restart(keep=False)
    await cached.engine.cache.fill(ENTRIES, old, seen)
    assert await cached.stands(entry) == ["-", "home", "-"]


async def test_old_copies_and_stamps_are_swept_from_the_cache(cached: World) -> None:
    kept, edited = await cached.write("text one"), await cached.write("text two")
    await cached.get(kept)
    await cached.update(edited, content="text two, edited")
    assert await cached.stands(kept) == ["cached", "home", "-"]
    cached.clock.advance(DAY)
    await cached.engine.maintenance.sweep()
    assert (await cached.stands(kept))[0] == "-"
    assert (await cached.stands(edited))[0] == "-"


@pytest.mark.parametrize("to", ["mid", "long"])
async def test_a_reader_that_is_overtaken_by_a_move_leaves_no_copy_that_names_the_tier_before(
    cached: World, to: str
) -> None:
    """It looks into the cache after the mover cleared it, reads home before the home
    changes, and fills after that or before.
    """
    for late in (False, True):
        entry = await cached.write()
        key = Key(TENANT, entry.id)
        read: list[tuple[Record, CacheLookup]] = []

        async def looks_and_reads(
            key: Key = key, read: list[tuple[Record, CacheLookup]] = read, late: bool = late
        ) -> None:
            seen = await cached.engine.cache.look(ENTRIES, key)
            home = await cached.standing(cached.mid, key.id)
            assert isinstance(home, Record)
            assert home.tier == "short"
            if not late:
                await cached.engine.cache.fill(ENTRIES, home, seen)
            read.append((home, seen))

        cached.mid.before["move.relabel" if to == "mid" else "move.release"] = looks_and_reads
        await cached.move(entry, to)
        cached.mid.before.clear()
        if late:
            await cached.engine.cache.fill(ENTRIES, *read[0])
        assert len(read) == 1
        shown = await cached.get(entry)
        assert shown is not None
        assert shown.tier == to


async def test_an_erased_scope_is_erased_from_the_cache(cached: World) -> None:
    entry = await cached.write()
    await cached.get(entry)
    assert await cached.engine.erasure.erase_scope(TENANT, SESSION) == 1
    assert await cached.get(entry) is None
    assert (await cached.stands(entry))[0] != "cached"


async def test_a_move_clears_the_cache(cached: World) -> None:
    entry = await cached.write()
    await cached.get(entry)
    await cached.move(entry, "long")
    got = await cached.get(entry)
    assert got is not None
    assert got.tier == "long"
    assert await cached.stands(entry) == ["tombstone", "mark", "home"]


async def test_a_cached_copy_is_found_by_no_query_and_no_search() -> None:
    async with World(short=VOLATILE) as world:
        entry = await world.write()
        await world.get(entry)
        row = await world.standing(world.short, entry.id)
        assert isinstance(row, Record)
        assert row.role is Role.CACHED
        world.mid.down = True
        assert await world.browse() == []
        assert await world.search("text") == []
