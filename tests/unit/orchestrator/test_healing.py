"""Stores that were set back alone: how it is noticed, what is left alone until they are
healed, and what healing does and does not do.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from datetime import timedelta

import pytest

from memory.adapters.in_memory.store import InMemoryStore
from memory.domain.errors import StoreUnavailable
from memory.domain.legal_hold import LegalHold
from memory.orchestrator.conversations.log.passages import Where
from memory.orchestrator.maintenance import repair as healing
from memory.orchestrator.maintenance import vector_rebuild
from memory.orchestrator.storage.collections import ENTRIES, ENTRY_VERSIONS, MESSAGES, RELATIONS
from memory.policies.entry_query import EntryQuery
from memory.ports.record import Key
from memory.ports.store import Store
from memory.ports.writes import Newer, Outcome, Put
from tests.support.long_texts import astray
from tests.unit.orchestrator.conversations import meant
from tests.unit.orchestrator.conversations.meant import FILLING, LONG, Embedder
from tests.unit.orchestrator.conversations.talking import begun, user
from tests.unit.orchestrator.world import DAY, HOUR, SESSION, TENANT, USER, VOLATILE, Flaky, World

SOON = timedelta(minutes=6)


async def noted(world: World) -> None:
    """Time passes, and sweeps note how far every store has come."""
    for _ in range(2):
        world.clock.advance(SOON)
        await world.engine.maintenance.sweep()


async def named(world: World) -> list[str]:
    return sorted(await world.engine.rollback_detector.look())


# -- noticed ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["short", "mid", "long"])
@pytest.mark.parametrize("replaced", [False, True], ids=["restored", "replaced"])
async def test_a_store_that_was_set_back_is_named_by_any_process_until_it_is_healed(
    world: World, name: str, replaced: bool
) -> None:
    store: Flaky = getattr(world, name)
    await noted(world)
    backup = store.state.snapshot()
    await noted(world)
    assert await named(world) == []
    if replaced:
        store.state.wipe()
    else:
        store.state.restore(backup)
    assert await named(world) == [name]
    for _ in range(3):
        await noted(world)
        assert await named(await another(world)) == [name]
    assert (await world.engine.repair.compare(repair=True)).ok
    assert await named(await another(world)) == []
    await noted(world)
    assert await named(world) == []
    store.state.restore(backup)
    assert await named(world) == [name], "again"


async def another(world: World) -> World:
    other = World.__new__(World)
    other.engine = await world.another_process()
    return other


async def test_a_store_set_back_while_its_note_is_written_is_named_all_the_same(world: World) -> None:
    await noted(world)
    backup = world.mid.state.snapshot()
    await noted(world)
    world.clock.advance(SOON)

    async def restored() -> None:
        world.mid.state.restore(backup)

    world.mid.before["setback.note"] = restored
    await world.engine.maintenance.sweep()
    assert await named(world) == ["mid"]


@pytest.mark.parametrize("again", [False, True], ids=["the first notes", "later ones"])
@pytest.mark.parametrize("name", ["mid", "long"])
async def test_what_another_process_notes_while_the_notes_are_read_is_no_setback(
    world: World, name: str, again: bool
) -> None:
    other, store = await another(world), getattr(world, name)
    if again:
        await noted(world)
        world.clock.advance(SOON)
    store.before["setback.look"] = other.engine.rollback_detector.note
    assert await named(world) == []
    assert await other.engine.rollback_detector.look() == {}


async def test_what_one_process_noted_of_a_store_that_is_away_is_not_held_against_it(world: World) -> None:
    await noted(world)
    world.long.down = True
    await noted(world)
    world.heal()
    assert await named(world) == []
    world.mid.fails_after.add("setback.note")
    await noted(world)
    world.heal()
    assert await named(world) == []


async def test_a_cache_that_lost_what_it_held_was_not_set_back() -> None:
    async with World(short=VOLATILE) as world:
        await noted(world)
        world.short.state.wipe()
        await noted(world)
        assert await named(world) == []


async def test_nothing_is_noted_where_there_is_one_store() -> None:
    async with World().in_one_store("mid", "short").in_one_store("mid", "long") as world:
        await noted(world)
        assert "setback.look" not in world.mid.steps


# -- until it is healed ----------------------------------------------------------------


async def test_nothing_that_tells_what_is_missing_is_forgotten_until_the_store_is_healed(
    world: World,
) -> None:
    entry = await world.write("text")
    other = await world.write("text other", scope=USER)
    await world.engine.relations.relate(TENANT, other.id, "supports", entry.id)
    await noted(world)
    backup = world.long.state.snapshot()
    await world.move(entry, "long")
    await noted(world)
    world.long.state.restore(backup)
    for _ in range(3):
        world.clock.advance(31 * DAY)
        report = await world.engine.maintenance.sweep()
        assert (report.purged, report.dropped_relations) == (0, 0)
        assert ["was restored" in said for said in report.stays] == [True]
    healed = await world.engine.repair.compare(repair=True)
    assert {one.id for one in healed.lost} == {entry.id}
    world.clock.advance(2 * HOUR)
    report = await world.engine.maintenance.sweep()
    assert (report.purged > 0, report.dropped_relations) == (True, 1)


async def test_a_copy_that_had_arrived_is_not_taken_for_one_whose_move_was_broken_off(world: World) -> None:
    entry = await world.write()
    await noted(world)
    world.mid.fails_before.add("move.arrive")
    await world.move(entry, "mid")
    world.heal()
    backup = world.mid.state.snapshot()
    await noted(world)
    world.clock.advance(2 * HOUR)
    await noted(world)
    assert await world.stands(entry) == ["-", "home", "replica"]
    world.mid.state.restore(backup)
    await noted(world)
    assert await world.stands(entry) == ["-", "arriving", "replica"]
    assert (await world.engine.repair.compare(repair=True)).ok
    assert await world.stands(entry) == ["-", "home", "replica"]


# -- healed ----------------------------------------------------------------------------


async def test_what_was_edited_where_it_had_been_keeps_the_other_text_as_an_earlier_version(
    world: World,
) -> None:
    entry = await world.write("text one")
    await noted(world)
    backup = world.short.state.snapshot()
    await world.move(entry, "mid")
    await world.update(entry, content="text two")
    await noted(world)
    world.short.state.restore(backup)
    await world.update(entry, content="text three")
    assert (await world.engine.repair.compare(repair=True)).ok
    await world.engine.maintenance.sweep()
    assert await world.stands(entry) == ["mark", "home", "replica"]
    assert [e.content for e in await world.engine.entries.history(TENANT, entry.id)] == [
        "text one",
        "text two",
        "text three",
    ]


async def test_the_archives_backup_from_before_an_erasure_does_not_bring_the_text_back(world: World) -> None:
    """It alone remembers erasures. The others have the higher generation, and that it
    was set back is known.
    """
    entry = await world.write("old text", scope=USER)
    link = await world.write("old text too", scope=USER)
    await world.engine.relations.relate(TENANT, entry.id, "supports", link.id)
    await world.update(entry, content="old text, edited")
    await noted(world)
    backup = world.mid.state.snapshot()
    await world.engine.erasure.erase_scope(TENANT, USER)
    await noted(world)
    world.mid.state.restore(backup)
    late = await world.write("new text", scope=USER)
    assert (await world.engine.repair.compare(repair=True)).ok
    await world.engine.maintenance.sweep()
    assert await world.browse(USER) == ["new text"]
    texts = [
        row.texts["content"]
        for store in world.stores
        for c in (ENTRIES, ENTRY_VERSIONS)
        for row in await world.rows(store, c)
    ]
    assert set(texts) == {"new text"}
    assert await world.get(late) is not None


async def test_no_message_of_a_clock_that_was_ahead_outlives_its_session_in_a_backup(world: World) -> None:
    """Such a message looks younger than anything that is known of the store."""
    session = await begun(world.engine)
    await session.append([user("tea", "u1")])
    *_, row = sorted(await world.rows(world.mid, MESSAGES), key=lambda row: row.version)
    ahead = replace(row, version=row.version + round(DAY.total_seconds() * 1e6))
    await world.mid.apply([Put(MESSAGES, ahead, Newer())])
    backup = world.mid.state.snapshot()
    assert await world.engine.conversations.sessions.delete(TENANT, "s1")
    await noted(world)
    world.mid.state.restore(backup)
    assert (await world.engine.repair.compare(repair=True)).ok
    assert await world.rows(world.mid, MESSAGES) == []


async def test_what_was_born_again_under_its_key_after_an_erasure_is_not_taken_for_what_was_erased(
    world: World,
) -> None:
    await world.write("old text", scope=USER, key="k")
    await noted(world)
    backup = world.mid.state.snapshot()
    await world.engine.erasure.erase_scope(TENANT, USER)
    again = await world.write("new text", scope=USER, key="k", revive=True)
    await noted(world)
    world.mid.state.restore(backup)
    came = await world.engine.repair.compare(repair=True)
    assert came.ok
    assert await world.browse(USER) == ["new text"]
    assert await world.stands(again) == ["-", "home", "replica"]


async def test_a_replica_whose_home_is_nowhere_is_left_alone_where_nothing_was_set_back(world: World) -> None:
    entry = await world.write(scope=USER)
    (replica,) = await world.rows(world.long, ENTRIES)
    await world.delete(entry)
    world.clock.advance(31 * DAY)
    await world.engine.maintenance.sweep()
    assert await world.stands(entry) == ["-", "-", "-"]
    await InMemoryStore.apply(world.long, [Put(ENTRIES, replica, Newer())])
    came = await world.engine.repair.compare(repair=True)
    assert not came.ok
    assert entry.id in came.left[0]
    assert await world.stands(entry) == ["-", "-", "replica"]


async def test_a_store_set_back_by_more_than_tombstones_last_brings_nothing_home_of_which_nobody_knows(
    world: World,
) -> None:
    entry = await world.write(scope=USER)
    await noted(world)
    backup = world.long.state.snapshot()
    await world.delete(entry)
    world.clock.advance(31 * DAY)
    await noted(world)
    world.long.state.restore(backup)
    came = await world.engine.repair.compare(repair=True)
    assert await world.get(entry) is None
    assert entry.id in came.left[0]
    assert any("older than tombstones are kept" in said for said in came.unknown)


async def test_a_writer_that_comes_between_reading_and_healing_is_not_written_over(world: World) -> None:
    entry = await world.write("text one", scope=USER)
    await noted(world)
    backup = world.mid.state.snapshot()
    await world.update(entry, content="text two")
    await noted(world)
    world.mid.state.restore(backup)
    world.mid.before["heal.write"] = lambda: world.update(entry, content="text three")
    assert (await world.engine.repair.compare(repair=True)).ok
    got = await world.get(entry)
    assert got is not None
    assert got.content == "text three"
    assert (await world.engine.repair.compare()).differs == {}


async def test_what_writers_do_between_two_stores_is_not_taken_for_a_difference(world: World) -> None:
    edited, deleted = await world.write("text one", scope=USER), await world.write("text", scope=USER)
    world.mid.after["heal.look"] = lambda: world.update(edited, content="text two")
    assert (await world.engine.repair.compare()).differs == {}
    world.mid.after["heal.look"] = lambda: world.delete(deleted)
    assert (await world.engine.repair.compare()).differs == {}
    moved = await world.write("text three")
    world.mid.fails_before.add("move.arrive")
    await world.move(moved, "mid")
    world.heal()
    assert (await world.engine.repair.compare()).differs == {}, "what has yet to arrive is owed"


async def test_an_entry_born_while_the_stores_are_read_is_not_taken_for_a_copy_without_a_home(
    world: World,
) -> None:
    await world.write("text", scope=USER)
    await noted(world)
    backup = world.long.state.snapshot()
    await noted(world)
    world.long.state.restore(backup)
    born = []

    async def write() -> None:
        born.append(await world.write("text new", scope=USER))

    world.mid.after["heal.look"] = write
    assert (await world.engine.repair.compare(repair=True)).ok
    assert await world.stands(born[0]) == ["-", "home", "replica"]


async def test_what_is_broken_off_is_called_again_and_the_store_stays_named_until_then(world: World) -> None:
    entries = [await world.write(f"text {n}", scope=USER) for n in range(3)]
    await noted(world)
    backup = world.long.state.snapshot()
    entries += [await world.write(f"text {n}", scope=USER) for n in range(3, 6)]
    await noted(world)
    world.long.state.restore(backup)
    world.long.fails_before.add("heal.write")
    assert "fails before" in (await world.engine.repair.compare(repair=True)).error
    assert await named(world) == ["long"]
    world.heal()
    came = await world.engine.repair.compare(repair=True)
    assert (came.ok, came.differs) == (True, {"the expected replica is missing": 3})
    assert await named(world) == []


async def test_a_deleted_entry_is_deleted_again_with_all_that_hangs_on_it(world: World) -> None:
    entry, other = await world.write("text", scope=USER), await world.write("text other", scope=USER)
    await world.update(entry, content="text, edited")
    await world.engine.relations.relate(TENANT, other.id, "supports", entry.id)
    await noted(world)
    backup = world.mid.state.snapshot()
    await world.delete(entry)
    await noted(world)
    world.mid.state.restore(backup)
    assert (await world.engine.repair.compare(repair=True)).ok
    assert await world.owed() == 0
    assert await world.stands(entry) == ["-", "tombstone", "tombstone"]
    assert await world.rows(world.mid, ENTRY_VERSIONS) == await world.rows(world.mid, RELATIONS) == []


async def test_what_is_under_legal_hold_is_not_deleted_again(world: World) -> None:
    entry = await world.write("text", scope=USER)
    await noted(world)
    backup = world.mid.state.snapshot()
    await world.delete(entry)
    await noted(world)
    world.mid.state.restore(backup)
    await world.engine.erasure.holds.place(
        TENANT, LegalHold("case 7", "scope", USER.text, "asked for", None, world.clock())
    )
    came = await world.engine.repair.compare(repair=True)
    assert entry.id in came.left[0]
    assert "case 7" in came.left[0]
    assert (await world.stands(entry))[1] == "home"


async def test_of_what_was_erased_nothing_is_erased_again_that_is_under_legal_hold(world: World) -> None:
    entry = await world.write("text one", scope=USER)
    await world.update(entry, content="text two")
    other = await world.write("text one")
    await world.update(other, content="text two")
    await noted(world)
    backup = world.mid.state.snapshot()
    await world.engine.erasure.erase_scope(TENANT, USER)
    await world.delete(other)
    await noted(world)
    world.mid.state.restore(backup)
    for scope in (USER, SESSION):
        await world.engine.erasure.holds.place(
            TENANT, LegalHold(f"of {scope.text}", "scope", scope.text, "asked for", None, world.clock())
        )
    came = await world.engine.repair.compare(repair=True)
    assert any(f"scope '{USER.text}'" in said and f"of {USER.text}" in said for said in came.left)
    assert any(f"an earlier version of entry {other.id}" in said for said in came.left)
    assert (await world.stands(entry))[1] == "home"
    assert len(await world.rows(world.mid, ENTRY_VERSIONS)) == 2


async def test_a_later_life_comes_home_over_an_earlier_one_and_takes_none_of_its_past(world: World) -> None:
    first = await world.write("text one", scope=USER, key="k")
    await world.update(first, content="text two")
    await noted(world)
    backup = world.mid.state.snapshot()
    await world.delete(first)
    again = await world.write("text three", scope=USER, key="k", revive=True)
    await noted(world)
    world.mid.state.restore(backup)
    assert (await world.engine.repair.compare(repair=True)).ok
    assert [e.content for e in await world.engine.entries.history(TENANT, again.id)] == ["text three"]
    assert await world.rows(world.mid, ENTRY_VERSIONS) == []
    assert (await world.engine.repair.compare()).differs == {}


async def test_what_cannot_be_read_is_left_as_it_is(world: World) -> None:
    entry = await world.write("text one", scope=USER)
    await world.update(entry, content="text two")
    await noted(world)
    backup = world.long.state.snapshot()
    await world.update(entry, content="text three")
    await noted(world)
    world.long.state.restore(backup)
    world.mid.state.damage(ENTRIES.name, Key(TENANT, entry.id))
    assert (await world.engine.repair.compare(repair=True)).differs == {}
    assert await world.stands(entry) == ["-", "corrupt", "replica"]


async def test_an_entry_that_only_a_relation_names_is_told_to_be_lost(world: World) -> None:
    entry, other = await world.write("text"), await world.write("text other", scope=USER)
    await world.engine.relations.relate(TENANT, other.id, "supports", entry.id)
    await noted(world)
    backup = world.long.state.snapshot()
    await world.move(entry, "long")
    world.clock.advance(2 * HOUR)
    await noted(world)
    assert await world.stands(entry) == ["-", "-", "home"]
    world.long.state.restore(backup)
    came = await world.engine.repair.compare(repair=True)
    assert [one.id for one in came.lost] == [entry.id]


async def test_a_mark_tells_where_the_home_is_however_long_ago_the_store_was_as_it_is_now(
    world: World,
) -> None:
    entry = await world.write("text", scope=USER)
    await noted(world)
    backup = world.long.state.snapshot()
    world.clock.advance(31 * DAY)
    await world.move(entry, "long")
    await noted(world)
    world.long.state.restore(backup)
    came = await world.engine.repair.compare(repair=True)
    assert came.ok
    assert await world.stands(entry) == ["-", "mark", "home"]


async def test_a_store_stays_named_while_something_is_left_to_be_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await noted(world)
    backup = world.long.state.snapshot()
    entry = await world.write("text", scope=USER)
    await noted(world)
    world.long.state.restore(backup)
    with monkeypatch.context() as patched:
        patched.setattr(healing, "ROUNDS", 0)
        came = await world.engine.repair.compare(repair=True)
    assert entry.id in came.left[0]
    assert await named(world) == ["long"]


async def test_what_is_left_of_an_entry_in_its_earlier_versions_is_put_back_as_a_new_version(
    world: World,
) -> None:
    entry = await world.write("text one")
    await world.move(entry, "long")
    await noted(world)
    backup = world.long.state.snapshot()
    for text in ("text two", "text three"):
        await world.update(entry, content=text)
    await noted(world)
    world.long.state.restore(backup)
    came = await world.engine.repair.compare(repair=True)
    assert [one.id for one in came.lost] == [entry.id]
    got = await world.get(entry)
    assert got is not None
    assert got.content == "text two"
    assert [e.content for e in await world.engine.entries.history(TENANT, entry.id)] == [
        "text one",
        "text two",
        "text two",
    ]


async def test_a_comparison_without_repair_changes_nothing(world: World) -> None:
    for n in range(4):
        await world.write(f"text {n}", scope=(SESSION, USER)[n % 2])
    await noted(world)
    backup = world.mid.state.snapshot()
    await world.write("text new", scope=USER)
    await noted(world)
    world.mid.state.restore(backup)
    before = [store.state.snapshot() for store in world.stores]
    came = await world.engine.repair.compare()
    assert came.differs == {"no home, but a replica with its content": 1}
    for store, then in zip(world.stores, before, strict=True):
        now = store.state.snapshot()
        assert now == then


# -- passages --------------------------------------------------------------------------


@pytest.mark.parametrize("knows", [True, False], ids=["with the embedder", "without one"])
@pytest.mark.parametrize("name", ["short", "mid", "long"])
async def test_long_texts_are_found_by_their_parts_again_whichever_store_was_set_back(
    name: str, knows: bool
) -> None:
    """What is missing is owed again: `doctor` has no embedder, the next sweep of a
    memory does it then.
    """
    async with World(embedder=Embedder()) as world:
        store: Flaky = getattr(world, name)
        edited, deleted = await world.write(LONG, scope=USER), await world.write(f"{LONG} Once more.")
        stays, shorter = [await world.write(f"{FILLING * n} A bird.", scope=USER) for n in (40, 50)]
        await noted(world)
        backup = store.state.snapshot()
        await world.update(edited, content=f"{FILLING * 80} A heron.")
        await world.update(shorter, content="A bird.")
        await world.delete(deleted)
        added = await world.write(f"{FILLING * 60} The outage.", scope=USER)
        await noted(world)
        store.state.restore(backup)
        healer = world.another_engine() if knows else unknowing(world).another_engine()
        await healer.open()
        came = await healer.repair.compare(repair=True)
        assert (came.error, came.left) == ("", [])
        assert await astray(await world.settled()) == []
        assert (await world.engine.repair.compare()).differs == {}
        living = [edited.id, stays.id, shorter.id, added.id]
        assert sorted(e.id for e in await world.engine.browser.browse(EntryQuery(TENANT, (USER,)))) == sorted(
            living
        )


@pytest.mark.parametrize(("passages", "name"), [("home", "mid"), ("home", "long"), ("long", "long")])
async def test_messages_are_found_by_meaning_again_and_what_was_erased_is_not(
    passages: Where, name: str
) -> None:
    async with World(embedder=Embedder(), passages=passages) as world:
        store: Flaky = getattr(world, name)
        session = await begun(world.engine)
        await session.append([user("tea", "u1"), user(LONG, "u2"), user("a bird", "u3")])
        assert await meant.settled(world) == []
        await noted(world)
        backup = store.state.snapshot()
        await session.append([user("an outage", "u4")])
        await world.engine.conversations.redaction.erase(session.log, "u2")
        await world.engine.conversations.passages.catch_up()
        await noted(world)
        store.state.restore(backup)
        came = await world.engine.repair.compare(repair=True)
        assert (came.error, came.left) == ("", [])
        assert await meant.settled(world) == []


async def test_passages_are_nobodys_business_where_no_embedder_ever_was(world: World) -> None:
    world.passages = "long"
    engine = await world.another_process()
    await (await begun(engine)).append([user("tea", "u1")])
    await noted(world)
    backup = world.long.state.snapshot()
    await noted(world)
    world.long.state.restore(backup)
    assert (await engine.repair.compare(repair=True)).differs == {}
    assert await world.owed() == 0


def _refuse_as_full(store: Store, *_: Outcome) -> None:
    raise StoreUnavailable(store.name, "full")


async def test_a_store_that_refuses_passages_ends_a_comparison_that_is_called_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with World(embedder=Embedder()) as world:
        await noted(world)
        backup = world.long.state.snapshot()
        await world.write(LONG)
        await noted(world)
        world.long.state.restore(backup)
        with monkeypatch.context() as patched:
            patched.setattr(vector_rebuild, "raise_if_rejected", _refuse_as_full)
            assert "full" in (await world.engine.repair.compare(repair=True)).error
        assert await named(world) == ["long"]
        assert (await world.engine.repair.compare(repair=True)).ok
        assert await astray(await world.settled()) == []


def unknowing(world: World) -> World:
    """The same world for a process that has no embedder."""
    other = copy(world)
    other.embedder = None
    return other
