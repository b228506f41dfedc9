"""Erasures over stores that disagree, are away, or let a late call through; what
deletions leave, and what is forgotten in the end.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from memory.adapters.in_memory.store import InMemoryStore
from memory.domain.entry import Entry, EntryDraft
from memory.domain.errors import StoreUnavailable
from memory.domain.scope import Scope
from memory.domain.versions import stored_version
from memory.orchestrator.storage.collections import ENTRIES, ENTRY_VERSIONS, OPERATIONS, RELATIONS
from memory.orchestrator.storage.entry_records import record_of
from memory.orchestrator.storage.kinds import KINDS
from memory.orchestrator.storage.settings import EngineSettings
from memory.ports.query import Lt, Query, within
from memory.ports.record import Corrupt, Key, Partition, Record, Role, Tombstone
from memory.ports.writes import Annotate, Newer, Put, RaiseGeneration
from tests.unit.orchestrator.world import DAY, DURABLE, HOUR, SESSION, TENANT, USER, VOLATILE, World, held

HERE = Partition(TENANT, SESSION.text)


async def _sweep(world: World, after: timedelta = HOUR) -> None:
    world.heal()
    world.clock.advance(after)
    report = await world.engine.maintenance.sweep()
    assert report.ran
    assert report.waiting == ()
    assert report.stays == ()


# -- generations -----------------------------------------------------------------------


@pytest.mark.parametrize("restored", ["short", "mid", "long"])
async def test_an_erasure_erases_also_where_one_store_was_restored_from_a_backup(
    world: World, restored: str
) -> None:
    store = getattr(world, restored)
    await world.write("old text")
    backup = store.state.snapshot()
    await world.engine.erasure.erase_scope(TENANT, SESSION)
    entry = await world.write("new text")
    store.state.restore(backup)
    await world.engine.erasure.erase_scope(TENANT, SESSION)
    assert await world.get(entry) is None
    assert await world.browse() == []


async def test_a_store_that_was_away_when_the_erasure_began_and_is_ahead_of_the_others_is_erased_when_it_is_back(
    world: World,
) -> None:
    entry = await world.write("text")
    await InMemoryStore.apply(world.short, [RaiseGeneration(HERE, to=5)])
    late = await world.write("text too")
    world.short.down = True
    with pytest.raises(StoreUnavailable):
        await world.engine.erasure.erase_scope(TENANT, SESSION)
    await _sweep(world)
    assert await world.get(entry) is None
    assert await world.get(late) is None
    assert await world.owed() == 0


async def test_an_erasure_finished_late_leaves_what_was_written_after_a_later_one(world: World) -> None:
    await world.write("text one")
    world.long.down = True
    with pytest.raises(StoreUnavailable):
        await world.engine.erasure.erase_scope(TENANT, SESSION)
    world.heal()
    await world.engine.erasure.erase_scope(TENANT, SESSION)
    entry = await world.write("text two")
    await _sweep(world)
    assert await world.get(entry) == entry
    assert await world.owed() == 0


@pytest.mark.parametrize("after", [0, 1, 2])
async def test_an_entry_that_arrives_while_its_scope_is_erased_is_erased_and_counted_once(
    world: World, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its copy is told that it is home now before the first, second or third question
    for what is to be erased.
    """
    entry = await world.write()
    world.mid.fails_before.add("move.arrive")
    await world.move(entry, "mid")
    world.heal()
    assert await world.stands(entry) == ["mark", "arriving", "-"]
    erase, asked = world.mid.delete_matching, 0

    async def arrives(*args: Any, **kwargs: Any) -> Any:
        nonlocal asked
        if asked == after:
            await world.mid.apply(
                [
                    Annotate(
                        ENTRIES,
                        Key(TENANT, entry.id),
                        at=stored_version(entry.version),
                        role_is=Role.ARRIVING,
                        role=Role.HOME,
                    )
                ]
            )
        asked += 1
        return await erase(*args, **kwargs)

    monkeypatch.setattr(world.mid, "delete_matching", arrives)
    assert await world.engine.erasure.erase_scope(TENANT, SESSION) == 1
    assert await world.stands(entry) == ["mark", "tombstone", "-"]


async def test_a_copy_that_a_faster_mover_left_behind_is_erased_and_not_counted(world: World) -> None:
    """Two movers to different tiers: the source let go in favour of the one, and the
    copy of the other still says that it arrives.
    """
    entry = await world.write()
    await world.break_off(entry, "mid")
    await world.move(entry, "long")
    assert await world.stands(entry) == ["mark", "arriving", "home"]
    assert await world.engine.erasure.erase_scope(TENANT, SESSION) == 1
    assert await world.stands(entry) == ["mark", "tombstone", "tombstone"]


async def test_a_store_that_fails_does_not_keep_the_others_from_being_erased(world: World) -> None:
    moved = await world.write("text")
    await world.move(moved, "long")
    world.mid.fails_before.add("erase.delete")
    with pytest.raises(StoreUnavailable):
        await world.engine.erasure.erase_scope(TENANT, SESSION)
    assert isinstance(await world.standing(world.long, moved.id), Tombstone)


async def test_a_replaced_store_is_brought_up_to_the_others_and_its_entries_live_on_whole(
    world: World,
) -> None:
    await world.write("old text")
    await world.engine.erasure.erase_scope(TENANT, SESSION)
    world.short.state.wipe()
    entry, other = await world.write("text one"), await world.write("text other")
    known = world.clock.advance()
    await world.update(entry, content="text two")
    await _sweep(world)
    assert await world.owed() == 0
    assert [e.content for e in await world.engine.entries.history(TENANT, entry.id)] == [
        "text one",
        "text two",
    ]
    assert len(await world.rows(world.mid, ENTRY_VERSIONS)) == 1
    assert await world.move(entry, "mid") == "moved"
    await world.engine.relations.relate(TENANT, other.id, "supports", entry.id)
    seen = await world.get(entry, known_at=known)
    assert seen is not None
    assert seen.content == "text one"
    assert [d.store for d in world.engine.generations.healed] == ["short"]


async def test_what_a_backup_brings_back_from_before_an_erasure_is_erased_when_the_store_is_brought_up(
    world: World,
) -> None:
    erased = await world.write("erased text")
    backup = world.short.state.snapshot()
    await world.engine.erasure.erase_scope(TENANT, SESSION)
    world.short.state.restore(backup)
    entry = await world.write("text")
    assert await world.move(entry, "mid") == "moved"
    assert await world.get(erased) is None
    assert await world.browse() == ["text"]


async def test_a_record_refused_while_its_scope_is_being_erased_is_not_healed(world: World) -> None:
    entry = await world.write("text")
    world.short.fails_before.add("erase.delete")
    with pytest.raises(StoreUnavailable):
        await world.engine.erasure.erase_scope(TENANT, SESSION)
    world.heal()
    await world.move(entry, "mid")
    assert world.engine.generations.healed == []
    await _sweep(world)
    assert await world.get(entry) is None


async def test_an_erasure_erases_what_is_of_a_higher_generation_than_its_store_which_forgot_the_scope(
    world: World,
) -> None:
    await world.write("text")
    await world.engine.erasure.erase_scope(TENANT, SESSION)
    entry = await world.write("text of the second life")
    world.clock.advance(31 * DAY)
    assert await world.engine.erasure.forget(held) == 1, (
        "mid holds nothing of the session, and forgets that it was erased"
    )
    assert await world.move(entry, "mid") == "moved"
    for _ in range(3):
        await _sweep(world, DAY)
    assert [await world.engine.generations.of(store, HERE) for store in world.stores] == [0, 0, 0]
    assert await world.engine.erasure.erase_scope(TENANT, SESSION) == 1
    assert await world.get(entry) is None
    assert await world.rows(world.mid, ENTRIES) == []


# -- watching and forgetting -----------------------------------------------------------


async def test_an_erasure_is_repeated_in_a_store_that_cannot_refuse_a_late_put_as_long_as_one_may_come() -> (
    None
):
    async with World(long=replace(DURABLE, fenced=False)) as world:
        entry = await world.write("erased text")
        await world.move(entry, "long")
        late = await world.standing(world.long, entry.id)
        assert isinstance(late, Record)
        await world.engine.erasure.erase_scope(TENANT, SESSION)
        for minutes in (0, 10, 40):
            world.long.state.place(
                "entries", late.key, late
            )  # its writer died between its put and its look at the generation
            await _sweep(world, timedelta(minutes=minutes) + timedelta(minutes=2))
            assert isinstance(await world.standing(world.long, entry.id), Tombstone), minutes
            assert await world.get(entry) is None


async def test_the_erasures_of_a_hundred_scopes_are_repeated_in_one_call_a_collection_and_only_in_stores_that_are_not_fenced() -> (
    None
):
    async with World(long=replace(DURABLE, fenced=False)) as world:
        late: list[Record] = []
        for n in range(101):
            entry = await world.write("erased text", scope=Scope.session(f"many{n}"))
            if n in (0, 100):
                await world.move(entry, "long")
                standing = await world.standing(world.long, entry.id)
                assert isinstance(standing, Record)
                late.append(standing)
            await world.engine.erasure.erase_scope(TENANT, entry.scope)
        for one in late:
            world.long.state.place("entries", one.key, one)
        world.clock.advance(timedelta(minutes=2))
        for store in world.stores:
            store.steps.clear()
        assert await world.engine.erasure.watch(held) == 101
        assert world.long.steps.count("erase.delete") == 2 * len(
            KINDS.within(Partition(TENANT, "session:many0"))
        )
        assert not [
            step
            for store in (world.short, world.mid)
            for step in store.steps
            if step in ("erase.delete", "erase.count")
        ]
        for one in late:
            assert isinstance(await world.standing(world.long, one.key.id), Tombstone)
        assert await world.engine.erasure.watch(held) == 0


async def test_a_repeat_of_an_erasure_spares_what_was_written_since_to_a_store_that_was_replaced() -> None:
    async with World(short=replace(DURABLE, fenced=False)) as world:
        old = await world.write("erased text")
        backup = world.short.state.snapshot()
        await world.engine.erasure.erase_scope(TENANT, SESSION)
        world.short.state.restore(backup)
        entry = await world.write("text")
        await _sweep(world, timedelta(minutes=2))
        assert await world.seen(entry) == ["text"]
        assert await world.get(old) is None
        assert [d.store for d in world.engine.generations.healed] == ["short"]
        assert await world.engine.erasure.erase_scope(TENANT, SESSION) == 1


async def test_a_repeat_of_an_erasure_spares_what_was_written_while_who_died_brought_up_a_store_that_was_replaced() -> (
    None
):
    """Of several erasures: what is of between two of them does not come back."""
    async with World(short=replace(DURABLE, fenced=False)) as world:
        backup = world.short.state.snapshot()
        await world.write("erased text")
        await world.engine.erasure.erase_scope(TENANT, SESSION)
        between = await world.write("erased with the second")
        await world.engine.erasure.erase_scope(TENANT, SESSION)
        world.short.state.restore(backup)
        world.short.state.place("entries", Key(TENANT, between.id), replace(_copy_of(between), generation=0))
        entry = await world.write("text")
        world.short.state.raise_generation(Partition(TENANT, SESSION.text), 2)  # and here it died
        await _sweep(world, timedelta(minutes=2))
        assert await world.seen(entry) == ["text"]
        assert await world.get(between) is None
        await world.move(entry, "mid")
        assert await world.stands(entry) == ["mark", "home", "replica"]


def _copy_of(entry: Entry) -> Record:
    draft = EntryDraft(scope=entry.scope, content=entry.content)
    return record_of(
        draft,
        key=Key(TENANT, entry.id),
        version=stored_version(entry.version),
        now=entry.created_at,
        tier="short",
        sequence=1,
    )


async def test_an_erasure_that_a_store_was_away_for_is_watched_from_when_it_was_carried_out_there() -> None:
    async with World(long=replace(DURABLE, fenced=False)) as world:
        entry = await world.write("erased text")
        await world.move(entry, "long")
        late = await world.standing(world.long, entry.id)
        assert isinstance(late, Record)
        world.long.fails_before.add("erase.delete")
        with pytest.raises(StoreUnavailable):
            await world.engine.erasure.erase_scope(TENANT, SESSION)
        await _sweep(world, 3 * HOUR)
        await _sweep(world, timedelta(minutes=2))
        world.long.state.place("entries", late.key, late)
        await _sweep(world, timedelta(minutes=20))
        assert isinstance(await world.standing(world.long, entry.id), Tombstone)


async def test_a_scope_is_remembered_for_the_life_of_a_tombstone_after_the_last_store_was_erased(
    world: World,
) -> None:
    await world.write("text")
    world.long.down = True
    with pytest.raises(StoreUnavailable):
        await world.engine.erasure.erase_scope(TENANT, SESSION)
    await _sweep(world, 29 * DAY)
    world.clock.advance(2 * DAY)
    assert await world.engine.erasure.forget(held) == 0
    assert await world.engine.generations.of(world.long, HERE) == 1
    world.clock.advance(29 * DAY)
    assert await world.engine.erasure.forget(held) == 1


@pytest.mark.parametrize("fenced", [True, False])
async def test_a_scope_that_died_leaves_nothing_behind_after_its_tombstones(fenced: bool) -> None:
    async with World(long=replace(DURABLE, fenced=fenced)) as world:
        for name in ("one", "two", "three"):
            entry = await world.write(f"text {name}", scope=USER)
            session = await world.write(f"text {name}")
            await world.update(session, content="text edited")
            await world.engine.relations.relate(TENANT, session.id, "supports", entry.id)
            await world.engine.erasure.erase_scope(TENANT, SESSION)
            await world.engine.erasure.erase_scope(TENANT, USER)
        for _ in range(8):
            await _sweep(world, timedelta(minutes=16))
        for _ in range(4):
            await _sweep(world, 31 * DAY)
        for store in world.stores:
            for collection in (ENTRIES, ENTRY_VERSIONS, RELATIONS, OPERATIONS):
                assert list(store.state.everything(collection.name)) == [], (store.name, collection.name)
            assert [p for p in await store.idle_partitions() if p[0].tenant == TENANT] == []
        assert await world.write("text again")
        assert await world.engine.erasure.erase_scope(TENANT, SESSION) == 1
        assert await world.browse() == []


async def test_scopes_that_are_remembered_keep_no_other_from_being_forgotten() -> None:
    async with World(settings=EngineSettings(page=2)) as world:
        for n in range(5):
            await world.write("text", scope=Scope.session(f"a{n}"))
            await world.engine.erasure.erase_scope(TENANT, Scope.session(f"a{n}"))
        entry = await world.write("text")
        await world.delete(entry)
        for _ in range(4):
            await _sweep(world, DAY)
        assert HERE not in [partition for partition, _ in await world.short.idle_partitions()]
        assert len([p for p, generation in await world.short.idle_partitions() if generation == 1]) == 5


async def test_a_store_that_is_down_keeps_no_other_from_forgetting(world: World) -> None:
    entry = await world.write("text", scope=USER)
    await world.delete(entry)
    await _sweep(world, 31 * DAY)
    await world.mid.apply([RaiseGeneration(HERE, to=3)])
    world.short.idle_partitions = _fails  # type: ignore[method-assign]
    report = await world.engine.maintenance.sweep()
    assert report.waiting == ("store 'short': nobody listens",)
    assert HERE not in [partition for partition, _ in await world.mid.idle_partitions()]


async def _fails(limit: int = 1_000) -> list[tuple[Partition, int]]:
    raise StoreUnavailable("short", "nobody listens")


# -- deletions -------------------------------------------------------------------------


@pytest.mark.parametrize("damaged", [1, 2, 3])
async def test_a_damaged_kept_version_does_not_keep_older_text_from_being_erased(
    world: World, damaged: int
) -> None:
    entry = await world.write("secret 0")
    for n in range(1, 6):
        await world.update(entry, content=f"secret {n}")
    kept = sorted(await world.rows(world.mid, ENTRY_VERSIONS), key=lambda row: row.version)
    assert len(kept) == 5
    world.mid.state.damage("entry_versions", kept[damaged].key)
    assert isinstance(await world.standing(world.mid, kept[damaged].key.id, ENTRY_VERSIONS), Corrupt)
    await world.delete(entry)
    await _sweep(world)
    assert not [row for row in world.mid.state.everything("entry_versions") if isinstance(row, Record)]


async def test_an_entry_with_more_relations_than_a_store_takes_at_once_is_deleted_with_all_of_them() -> None:
    few = replace(DURABLE, max_batch=10)
    async with World(mid=few) as world:
        hub = await world.write("hub")
        others = [await world.write(f"text {n}") for n in range(25)]
        for other in others:
            await world.engine.relations.relate(TENANT, hub.id, "supports", other.id)
        assert await world.delete(hub) is True
        assert await world.rows(world.mid, RELATIONS) == []
        assert await world.owed() == 0


async def test_what_was_deleted_while_the_cache_was_away_is_not_served_from_it() -> None:
    async with World(short=VOLATILE) as world:
        entry = await world.write("text")
        other = world.another_engine()
        await other.open()
        await world.get(entry)
        world.short.fails_before.add("cache.invalidate")
        assert await world.delete(entry) is True
        world.short.heal()
        assert await world.get(entry) is None, "the process that deleted it knows"
        await _sweep(world, timedelta(seconds=1))
        assert await other.entries.get(TENANT, entry.id) is None, (
            "every process, once maintenance has been there"
        )
        assert await world.owed() == 0


async def test_a_repeat_of_an_erasure_leaves_other_generations_alone(world: World) -> None:
    """The filter that repeats use, on the store itself: what is not older stays."""
    entry = await world.write("text")
    row = await world.standing(world.short, entry.id)
    assert isinstance(row, Record)
    young = replace(row, key=Key(TENANT, entry.id[:-1] + ("0" if entry.id[-1] != "0" else "1")), generation=3)
    await world.short.apply([Put(ENTRIES, young, Newer())])
    assert (
        await world.short.delete_matching(Query(ENTRIES, within(HERE), Lt("generation", 3)), row.version + 1)
        == 1
    )
    assert isinstance(await world.standing(world.short, young.key.id), Record)
