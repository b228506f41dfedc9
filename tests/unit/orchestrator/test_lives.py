"""An id that others derive as well may be born again: over the tombstone of an earlier
life, which is laid to rest first and never shows again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from memory.domain.entry import Entry, EntryDraft
from memory.domain.errors import StoreUnavailable
from memory.domain.versions import stored_version
from memory.orchestrator.storage.collections import ENTRIES, ENTRY_VERSIONS
from memory.orchestrator.storage.versions import version_key
from memory.ports.record import Key, Record, Role, Tombstone
from tests.unit.orchestrator.world import ORG, SESSION, TENANT, USER, World

UNDONE = {"hanging.walk", "hanging.erase", "hanging.find", "delete.elsewhere", "owed.settle"}
WAYS = pytest.mark.parametrize("way", ["promoted", "keyed", "keyed in a session"])


class Born:
    """An entry whose id is derived, and how it is born again."""

    def __init__(self, world: World, way: str) -> None:
        self.world, self.way = world, way
        self.scope = {"promoted": ORG, "keyed": USER, "keyed in a session": SESSION}[way]
        self.source: Entry | None = None

    async def __call__(self) -> Entry:
        if self.way != "promoted":
            return await self.world.write("innocent", scope=self.scope, key="k", revive=True)
        self.source = self.source or await self.world.write("innocent", scope=USER)
        return await self.world.engine.derivation.promote(TENANT, self.source.id, ORG)


async def _with_secrets(world: World, born: Born) -> Entry:
    entry = await born()
    for n in range(2):
        await world.update(entry, content=f"secret {n}")
    return entry


async def _pasts(world: World, entry: Entry, **at: Any) -> set[str]:
    """What any way of reading the past says of an entry."""
    got = await world.get(entry, **at)
    listed = await world.browse(entry.scope, **at)
    found = await world.search("innocent secret", entry.scope, **at)
    return {*listed, *found, *([got.content] if got else [])}


async def _kept(world: World) -> list[str]:
    return [row.texts["content"] for store in world.stores for row in await world.rows(store, ENTRY_VERSIONS)]


@WAYS
async def test_what_a_deletion_still_owed_is_done_before_the_id_is_born_again(world: World, way: str) -> None:
    born = Born(world, way)
    entry = await _with_secrets(world, born)
    for store in world.stores:
        store.fails_before |= UNDONE
    known = world.clock.advance()
    assert await world.delete(entry)
    assert len(await _kept(world)) == 2
    world.heal()
    again = await born()
    assert (again.id, again.content) == (entry.id, "innocent")
    assert again.version > entry.version
    assert await _kept(world) == []
    assert await world.engine.entries.history(TENANT, again.id) == [again]
    assert await _pasts(world, entry, known_at=known, as_of=world.clock()) == set()
    assert await world.delete(again)
    await world.engine.maintenance.sweep()
    assert (await world.owed(), await _kept(world)) == (0, [])


@WAYS
@pytest.mark.parametrize("step", ["hanging.walk", "hanging.erase"])
async def test_an_id_is_not_born_again_while_its_deletion_cannot_be_finished(
    world: World, way: str, step: str
) -> None:
    born = Born(world, way)
    entry = await _with_secrets(world, born)
    world.mid.fails_before.add(step)
    assert await world.delete(entry)
    with pytest.raises(
        StoreUnavailable, match=rf"the deletion of entry {entry.id} is not complete .*erase.*try again"
    ):
        await born()
    assert await world.get(entry) is None
    assert await world.owed() == 1
    world.heal()
    assert (await born()).content == "innocent"
    assert await _kept(world) == []


@WAYS
async def test_the_past_of_an_earlier_life_that_stayed_behind_never_shows_in_a_later_one(
    world: World, way: str
) -> None:
    """As where a store forgot what a tombstone owed, or a kept version arrives later
    than any tombstone lasts.
    """
    born = Born(world, way)
    entry = await _with_secrets(world, born)
    left_behind = await world.rows(world.mid, ENTRY_VERSIONS)
    assert len(left_behind) == 2
    known = world.clock.advance()
    await world.delete(entry)
    again = await born()
    for row in left_behind:
        world.mid.state.place(ENTRY_VERSIONS.name, row.key, row)
    assert sorted(await _kept(world)) == ["innocent", "secret 0"]
    assert await world.engine.entries.history(TENANT, again.id) == [again]
    await world.update(again, content="edited")
    assert [e.content for e in await world.engine.entries.history(TENANT, again.id)] == ["innocent", "edited"]
    assert await _pasts(world, entry, known_at=known, as_of=world.clock()) == set()
    assert await _pasts(world, entry, known_at=again.updated_at) == {"innocent"}


async def test_a_key_revived_later_is_newer_than_every_grave_and_moves_onward(world: World) -> None:
    entry = await world.write("text", key="k")
    await world.delete(entry)
    assert await world.stands(entry) == ["tombstone", "tombstone", "tombstone"]
    grave = await world.standing(world.long, entry.id)
    assert isinstance(grave, Tombstone)
    world.long.state.place(ENTRIES.name, grave.key, replace(grave, version=grave.version + 10**9))
    again = await world.write("text again", key="k", revive=True)
    assert stored_version(again.version) == grave.version + 10**9 + 1
    assert again.created_at == again.valid_from == again.updated_at, "no earlier than its version"
    assert await world.get(again, known_at=again.updated_at) == again
    for tier in ("mid", "long"):
        await world.move(again, tier)
        assert await world.seen(again) == ["text again"]
    assert await world.stands(again) == ["mark", "mark", "home"]


async def test_a_key_is_born_again_where_its_entry_was_deleted(world: World) -> None:
    entry = await world.write("text", key="k")
    await world.move(entry, "mid")
    await world.delete(entry)
    again = await world.write("text", key="k", revive=True)
    assert again.tier == "mid"
    assert await world.seen(again) == ["text"]


async def test_what_is_born_again_in_a_later_tier_has_the_replicas_of_that_tier(world: World) -> None:
    entry = await world.write("text", key="k")
    await world.move(entry, "mid")
    await world.delete(entry)
    again = await world.write("text", key="k", revive=True)
    assert await world.owed() == 0
    assert await world.stands(again) == ["mark", "home", "replica"]


async def test_a_process_that_stood_still_between_two_reads_begins_no_second_life(world: World) -> None:
    """It found nothing in the first store and, much later, a tombstone in the second."""
    other = await world.another_process()
    draft = EntryDraft(scope=SESSION, content="text", key="k")

    async def meanwhile() -> None:
        first = await other.entries.write(TENANT, EntryDraft(scope=SESSION, content="first", key="k"))
        await other.deletion.delete(TENANT, first.id)
        await other.entries.write(TENANT, draft, revive=True)

    world.mid.before["read.home"] = meanwhile
    written = await world.write("text", key="k", revive=True)
    rows = [row for store in world.stores for row in await world.rows(store, ENTRIES)]
    assert [row.texts["content"] for row in rows if row.role is Role.HOME] == ["text"]
    assert await world.seen(written) == ["text"]


async def test_relations_of_a_life_that_was_erased_with_its_scope_are_not_of_the_next(world: World) -> None:
    """They stand in the scope of their other end, where the erasure does not look."""
    draft = EntryDraft(scope=USER, content="text", key="k")
    target = await world.engine.entries.write(TENANT, draft)
    source = await world.write("elsewhere", SESSION)
    await world.engine.relations.relate(TENANT, source.id, "supports", target.id)
    await world.engine.erasure.erase_scope(TENANT, USER)
    again = await world.engine.entries.write(TENANT, draft, revive=True)
    assert again.id == target.id
    assert await world.engine.relations.find(TENANT, source_id=source.id) == []


async def test_a_cached_copy_of_an_earlier_life_is_not_read_in_a_later_one(cached: World) -> None:
    entry = await cached.write("text", key="k")
    assert await cached.get(entry) is not None
    cached.short.down = True
    await cached.delete(entry)
    cached.heal()
    again = await cached.write("text again", key="k", revive=True)
    read = await cached.get(again)
    assert read is not None
    assert read.content == "text again"


async def test_the_life_is_kept_through_edits_and_moves(world: World) -> None:
    entry = await world.write("text", key="k")
    await world.delete(entry)
    again = await world.write("text", key="k", revive=True)
    for n, tier in enumerate(("mid", "long")):
        await world.update(again, content=f"edit {n}")
        await world.move(again, tier)
    assert [e.content for e in await world.engine.entries.history(TENANT, again.id)] == [
        "text",
        "edit 0",
        "edit 1",
    ]
    kept = await world.standing(
        world.mid, version_key(TENANT, again.id, stored_version(again.version)).id, ENTRY_VERSIONS
    )
    assert isinstance(kept, Record)
    assert kept.body["life"] == stored_version(again.version)
    assert Key(TENANT, again.id) not in {row.key for row in await world.rows(world.short, ENTRIES)}


async def test_what_was_revived_in_a_later_tier_is_answered_so_by_a_repeat(world: World) -> None:
    """Its tombstone stands where it had moved to, and so does its second life."""
    entry = await world.write("x", SESSION, key="k")
    await world.engine.tier_mover.move_many(ENTRIES, [Key(TENANT, entry.id)], "mid", set())
    await world.delete(entry)
    second = await world.write("x", SESSION, key="k", revive=True)
    assert second.tier == "mid"
    assert await world.write("x", SESSION, key="k") == second
    await world.update(second, title="edited")
    assert await world.write("x", SESSION, key="k") == second
