"""A record that cannot be read is refused by name, its neighbours are served, and it
can be erased.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest

from memory.domain.entry import Entry
from memory.domain.errors import CorruptRecord
from memory.orchestrator.storage.collections import ENTRIES, ENTRY_VERSIONS
from memory.policies.entry_query import EntryQuery
from memory.ports.record import Corrupt, Key
from tests.unit.orchestrator.world import ORG, SESSION, TENANT, USER, World


async def _damaged(world: World, **more: Any) -> Entry:
    entry = await world.write("text damaged", scope=USER, **more)
    await world.write("text beside", scope=USER)
    world.mid.state.damage("entries", Key(TENANT, entry.id))
    return entry


async def test_it_is_refused_by_name_on_every_path_that_needs_it(world: World) -> None:
    entry = await _damaged(world, key="k")
    for call in (
        world.get(entry),
        world.update(entry, content="x"),
        world.engine.entries.history(TENANT, entry.id),
        world.engine.derivation.promote(TENANT, entry.id, ORG),
        world.engine.derivation.compact(TENANT, [entry.id], lambda entries: "x"),
        world.engine.entries.invalidate(TENANT, entry.id, None),
        world.write("text damaged", scope=USER, key="k"),
        world.move(entry, "long"),
    ):
        with pytest.raises(CorruptRecord, match=entry.id) as caught:
            await call
        assert caught.value.record_id == entry.id


async def test_its_neighbours_are_served(world: World, caplog: pytest.LogCaptureFixture) -> None:
    entry = await _damaged(world)
    with caplog.at_level(logging.WARNING):
        assert await world.browse(USER) == ["text beside"]
    assert entry.id in caplog.text
    assert await world.search("text", USER) == ["text beside"]
    assert [e.content async for e in world.engine.browser.everything(TENANT, [USER])] == ["text beside"]


async def test_it_can_be_deleted_with_all_that_hung_on_it(world: World) -> None:
    entry, other = await world.write("text one", scope=USER), await world.write("text two", scope=USER)
    known = world.clock.advance()
    await world.update(entry, content="text edited")
    await world.engine.relations.relate(TENANT, entry.id, "supports", other.id)
    world.mid.state.damage("entries", Key(TENANT, entry.id))
    assert await world.delete(entry) is True
    assert await world.delete(entry) is False
    assert await world.get(entry) is None
    assert await world.browse(USER, known_at=known) == ["text two"]
    await world.engine.maintenance.sweep()
    assert await world.rows(world.mid, ENTRY_VERSIONS) == []
    assert await world.engine.relations.find(TENANT) == []


async def test_it_is_deleted_also_when_the_clock_went_back(world: World) -> None:
    entry = await _damaged(world)
    world.clock.advance(-(world.clock.moment - entry.created_at) * 10_000)
    await world.delete(entry)
    assert await world.get(entry) is None


async def test_it_is_erased_with_its_scope_and_counted(world: World) -> None:
    entry = await _damaged(world)
    assert await world.engine.erasure.erase_scope(TENANT, USER) == 2
    assert await world.get(entry) is None


async def test_a_damaged_copy_in_a_cache_is_erased_and_not_counted(cached: World) -> None:
    entry = await cached.write()
    assert await cached.get(entry) is not None
    cached.short.state.damage(ENTRIES.name, Key(TENANT, entry.id))
    assert await cached.engine.erasure.erase_scope(TENANT, SESSION) == 1
    assert not isinstance(await cached.standing(cached.short, entry.id), Corrupt)


async def test_maintenance_passes_it_over(world: World) -> None:
    await _damaged(world)
    report = await world.engine.maintenance.sweep()
    assert report.ran
    assert report.waiting == ()


async def test_a_corrupt_kept_version_hides_no_other(world: World) -> None:
    entry = await world.write("text one", scope=SESSION)
    known = world.clock.advance()
    world.clock.advance()
    await world.update(entry, content="text two")
    kept = (await world.rows(world.mid, ENTRY_VERSIONS))[0]
    world.mid.state.damage("entry_versions", kept.key)
    assert [e.content for e in await world.engine.entries.history(TENANT, entry.id)] == ["text two"]
    assert await world.engine.browser.browse(EntryQuery(TENANT, (SESSION,), known_at=known)) == []
    assert await world.seen(entry) == ["text two"]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_its_deletion_leaves_nothing_behind_whichever_step_failed(world: World, when: str) -> None:
    """The tombstone in its place owes the rest; a copy elsewhere would outlive a
    deletion that broke off in between.
    """
    entry = await world.write("text one", scope=USER)
    await world.update(entry, content="text edited")
    world.mid.state.damage("entries", Key(TENANT, entry.id))
    for store, step in (
        (world.long, "delete.unreadable"),
        (world.long, "delete.elsewhere"),
        (world.mid, "hanging.erase"),
    ):
        (store.fails_before if when == "before" else store.fails_after).add(step)
    assert await world.delete(entry) is True
    world.heal()
    await world.engine.maintenance.sweep()
    assert await world.stands(entry) == ["-", "tombstone", "tombstone"]
    assert await world.rows(world.mid, ENTRY_VERSIONS) == []
