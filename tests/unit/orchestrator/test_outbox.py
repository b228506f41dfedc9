"""Steps owed: what a failing store leaves undone is done later, by whoever finds it,
and never fails the write it belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from memory.domain.entry import Entry
from memory.domain.errors import NotFound, StoreUnavailable
from memory.domain.versions import stored_version
from memory.orchestrator.maintenance.sweeps import READ_AT_ONCE
from memory.orchestrator.storage import outbox
from memory.orchestrator.storage.collections import ENTRIES, ENTRY_VERSIONS, OPERATIONS, RELATIONS
from memory.orchestrator.storage.outbox import MOST_VERSIONS_OWED, REPLICA, OutboxRecord, replicas
from memory.ports.record import PendingStep, Record, Tombstone
from memory.ports.writes import AtVersion, Delete, Outcome, Put, Status, Write
from tests.unit.orchestrator.world import DAY, HOUR, ORG, SESSION, TENANT, USER, World


async def _settled(world: World) -> None:
    world.heal()
    world.clock.advance(HOUR)
    report = await world.engine.maintenance.sweep()
    assert report.ran
    assert report.waiting == ()
    assert await world.owed() == 0


@pytest.mark.parametrize("step", ["replica.deliver", "owed.settle"])
async def test_a_replica_that_could_not_be_delivered_is_owed_and_delivered_later(
    world: World, step: str
) -> None:
    for store in world.stores:
        store.fails_before.add(step)
    entry = await world.write(scope=USER)
    many = await world.engine.entries.write_many(TENANT, [])
    assert many == []
    assert await world.owed() == 1
    assert await world.seen(entry) == ["text"]
    await _settled(world)
    assert await world.stands(entry) == ["-", "home", "replica"]


async def test_a_replica_refused_because_its_home_was_replaced_arrives_once_that_is_level(
    world: World,
) -> None:
    await world.engine.erasure.erase_scope(TENANT, USER)
    world.mid.state.wipe()
    entry = await world.write(scope=USER)  # finds out, makes the stores agree, and delivers
    assert await world.owed() == 0
    assert await world.stands(entry) == ["-", "home", "replica"]


async def test_a_replica_of_an_edited_entry_follows_it(world: World) -> None:
    entry = await world.write(scope=USER)
    world.long.down = True
    edited = await world.update(entry, content="text, edited")
    await world.update(entry, tags=["t"])
    world.heal()
    assert await world.seen(entry) == ["text, edited"]
    assert await world.search("text", USER) == ["text, edited"]
    await _settled(world)
    replica = (await world.rows(world.long, world.long._collections["entries"]))[0]
    assert replica.version > stored_version(edited.version)


async def test_a_stale_replica_never_shows_what_was_deleted(world: World) -> None:
    entry = await world.write("text of old", scope=USER)
    world.long.fails_before.add("delete.elsewhere")
    assert await world.delete(entry) is True
    world.heal()
    assert await world.stands(entry) == ["-", "tombstone", "replica"]
    assert await world.seen(entry) == []
    await _settled(world)
    assert await world.stands(entry) == ["-", "tombstone", "tombstone"]
    assert await world.seen(entry) == []


async def test_a_kept_version_that_could_not_be_stored_is_owed_and_known_all_the_same(world: World) -> None:
    entry = await world.write("text one", tags=["old"])
    first = world.clock.advance()
    world.clock.advance()
    world.mid.fails_before.add("version.keep")
    await world.update(entry, content="text two", tags=["new"])
    second = world.clock.advance()
    world.clock.advance()
    await world.update(entry, content="text three")
    for moment, text in ((first, "text one"), (second, "text two")):
        known = await world.get(entry, known_at=moment)
        assert known is not None
        assert known.content == text
        assert await world.browse(known_at=moment) == [text]
        assert await world.search("text", known_at=moment) == [text]
    assert await world.browse(known_at=first, tags=("new",)) == []
    assert await world.browse(known_at=first, types=("user",)) == []
    assert await world.browse(known_at=first, since=second) == []
    assert await world.browse(known_at=entry.created_at - DAY) == []
    assert await world.search("two", known_at=first) == []
    assert [e.content for e in await world.engine.entries.history(TENANT, entry.id)] == [
        "text one",
        "text two",
        "text three",
    ]
    await _settled(world)
    assert len(await world.rows(world.mid, ENTRY_VERSIONS)) == 2
    assert await world.browse(known_at=first) == ["text one"]
    assert [e.content for e in await world.engine.entries.history(TENANT, entry.id)] == [
        "text one",
        "text two",
        "text three",
    ]


async def test_kept_versions_on_their_way_do_not_survive_a_deletion(world: World) -> None:
    entry = await world.write("secret one")
    known = world.clock.advance()
    world.mid.fails_before.add("version.keep")
    await world.update(entry, content="secret two")
    await world.update(entry, content="secret three")
    world.mid.fails_before.clear()
    await world.delete(entry)
    await _settled(world)
    assert await world.rows(world.mid, ENTRY_VERSIONS) == []
    assert await world.get(entry, known_at=known) is None
    assert await world.browse(known_at=known) == []


@pytest.mark.parametrize(
    "step", ["hanging.find", "hanging.walk", "hanging.erase", "delete.elsewhere", "owed.settle"]
)
async def test_what_hangs_on_a_deleted_entry_goes_in_the_end_whichever_step_failed(
    world: World, step: str
) -> None:
    entry, other = await world.write("text one"), await world.write("text two")
    known = world.clock.advance()
    await world.update(entry, content="text edited")
    await world.update(entry, content="text edited again")
    await world.engine.relations.relate(TENANT, entry.id, "supports", other.id)
    for store in world.stores:
        store.fails_before.add(step)
    assert await world.delete(entry) is True
    world.heal()
    assert await world.seen(entry) == []
    assert await world.engine.relations.find(TENANT) == []
    assert await world.get(entry, known_at=known) is None
    await _settled(world)
    assert await world.rows(world.mid, ENTRY_VERSIONS) == []
    assert await world.rows(world.mid, RELATIONS) == []


@pytest.mark.parametrize("outcome", ["before", "after"])
@pytest.mark.parametrize("step", ["erase.raise", "erase.delete", "erase.end"])
async def test_an_erasure_broken_off_is_finished_by_a_sweep(world: World, step: str, outcome: str) -> None:
    stays = await world.write("text that stays", scope=USER)
    entries = [await world.write(f"text {n}") for n in range(3)]
    known = world.clock.advance()
    await world.update(entries[0], content="text edited")
    await world.move(entries[1], "long")
    for store in world.stores:
        (store.fails_before if outcome == "before" else store.fails_after).add(step)
    with pytest.raises(StoreUnavailable):
        await world.engine.erasure.erase_scope(TENANT, SESSION)
    await _settled(world)
    assert await world.browse() == []
    assert await world.search("text") == []
    assert await world.browse(known_at=known) == []
    for entry in entries:
        assert await world.get(entry) is None
        assert set(await world.stands(entry)) <= {"-", "mark", "tombstone"}
    assert await world.seen(stays) == ["text that stays"]
    assert [row.fields["kind"] for row in await world.rows(world.mid, OPERATIONS)] == ["erased"]
    assert await world.write("text after")
    assert await world.browse() == ["text after"]


async def test_cutting_a_relation_that_an_end_left_over_cuts_nothing_that_anybody_saw(world: World) -> None:
    ends = [await world.write("one"), await world.write("other")]
    relation = await world.engine.relations.relate(TENANT, ends[0].id, "supports", ends[1].id)
    world.mid.fails_before.add("hanging.find")
    await world.delete(ends[1])
    assert await world.engine.relations.find(TENANT) == []
    assert not await world.engine.relations.unrelate(TENANT, relation.id)
    assert await world.rows(world.mid, RELATIONS) == []


async def test_a_relation_is_cut_while_the_store_of_an_end_is_away(world: World) -> None:
    ends = [await world.write("one"), await world.write("other", USER)]
    relation = await world.engine.relations.relate(TENANT, ends[0].id, "supports", ends[1].id)
    world.short.down = True
    assert await world.engine.relations.unrelate(TENANT, relation.id)
    assert await world.rows(world.mid, RELATIONS) == []


async def test_an_erasure_that_could_not_begin_erases_nothing(world: World) -> None:
    await world.write()
    world.mid.fails_before.add("erase.begin")
    with pytest.raises(StoreUnavailable):
        await world.engine.erasure.erase_scope(TENANT, SESSION)
    await _settled(world)
    assert await world.browse() == ["text"]


async def test_the_sources_of_a_compaction_that_could_not_be_deleted_go_later(world: World) -> None:
    one, two = await world.write("text one"), await world.write("text two")
    world.short.fails_before.add("delete.home")
    whole = await world.engine.derivation.compact(
        TENANT, [one.id, two.id], lambda entries: "text whole", delete_sources=True
    )
    world.heal()
    assert sorted(await world.browse()) == ["text one", "text two", "text whole"]
    await world.update(two, content="text two, edited")
    await _settled(world)
    assert sorted(await world.browse()) == ["text two, edited", "text whole"]
    assert (await world.get(whole)) is not None


async def test_the_original_of_a_promotion_that_could_not_be_deleted_goes_later_or_when_asked_again(
    world: World,
) -> None:
    source = await world.write()
    world.short.fails_before.add("delete.home")
    promoted = await world.engine.derivation.promote(TENANT, source.id, ORG, delete_original=True)
    world.heal()
    assert await world.get(source) is not None
    again = await world.engine.derivation.promote(TENANT, source.id, ORG, delete_original=True)
    assert again.id == promoted.id
    assert await world.get(source) is None


async def test_a_scope_erased_under_an_edit_makes_the_entry_not_found(world: World) -> None:
    entry = await world.write()
    row = await world.standing(world.short, entry.id)
    await world.engine.erasure.erase_scope(TENANT, SESSION)
    world.short.state.place("entries", row.key, row)  # type: ignore[union-attr, arg-type]  # a crash kept a store from erasing it
    with pytest.raises(NotFound):
        await world.update(entry, content="text edited")
    assert await world.get(entry) is None


async def test_sweeping_twice_at_once_does_the_work_once(world: World) -> None:
    world.long.down = True
    for n in range(3):
        await world.write(f"text {n}", scope=USER)
    await world.flush()
    world.heal()
    first = await world.engine.maintenance.sweep()
    assert (first.finished, first.pending_steps) == (3, 0)
    second = await world.engine.maintenance.sweep()
    assert (second.finished, second.pending_steps) == (0, 0)


async def test_a_record_carries_only_so_much_of_its_own_past_while_the_archive_is_away(world: World) -> None:
    entry = await world.write("text 0")
    world.mid.fails_before.add("version.keep")
    for n in range(1, MOST_VERSIONS_OWED + 1):
        await world.update(entry, content=f"text {n}")
    with pytest.raises(StoreUnavailable, match="has not stored 16 earlier versions"):
        await world.update(entry, content="text too much")
    assert await world.seen(entry) == ["text 16"]
    world.heal()
    await world.update(entry, content="text after all")
    assert [e.content for e in await world.engine.entries.history(TENANT, entry.id)] == [
        *(f"text {n}" for n in range(17)),
        "text after all",
    ]
    assert await world.owed() == 0


async def test_long_versions_fill_a_record_sooner_but_one_edit_is_always_taken(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MOST_BYTES_OWED", 100_000)
    entry = await world.write("y" * 60_000)
    world.mid.fails_before.add("version.keep")
    await world.update(entry, content="z" * 60_000)
    with pytest.raises(StoreUnavailable, match="has not stored 1 earlier version of"):
        await world.update(entry, content="short")


async def test_an_erasure_finished_by_a_sweep_is_no_problem_any_more(world: World) -> None:
    await world.write()
    world.long.down = True
    with pytest.raises(StoreUnavailable):
        await world.engine.erasure.erase_scope(TENANT, SESSION)
    world.clock.advance(HOUR)
    await world.engine.maintenance.sweep()
    assert [problem.step for problem in world.engine.outbox.problems] == ["erase_scope"]
    world.heal()
    world.clock.advance(HOUR)
    report = await world.engine.maintenance.sweep()
    assert (report.finished, report.pending_steps) == (1, 0)
    assert world.engine.outbox.problems == ()


@pytest.mark.parametrize("seen_to", ["finished", "deleted"])
async def test_what_another_process_has_seen_to_is_no_problem_any_more(world: World, seen_to: str) -> None:
    world.long.down = True
    entry = await world.write(scope=USER)
    await world.engine.maintenance.sweep()
    assert [problem.step for problem in await world.engine.outbox.remaining_failures()] == ["deliver.replica"]
    assert len(await world.engine.maintenance.overdue()) > 0
    world.heal()
    other = await world.another_process()
    await (other.deletion.delete(TENANT, entry.id) if seen_to == "deleted" else other.maintenance.sweep())
    world.mid.down = True
    assert len(await world.engine.outbox.remaining_failures()) == 1, "nobody can tell just now"
    world.heal()
    assert await world.engine.outbox.remaining_failures() == ()
    assert await world.engine.maintenance.overdue() == []


async def test_a_tombstone_whose_steps_two_processes_did_each_a_part_of_is_forgotten_in_its_time(
    world: World,
) -> None:
    entry = await world.write()
    world.long.down = True
    world.mid.fails_before.add("hanging.find")
    assert await world.delete(entry) is True
    row = await world.standing(world.short, entry.id)
    assert isinstance(row, Tombstone)
    assert {owed.step for owed in row.owed} == {"deliver.tombstone", "erase", "unmake"}
    seen, other = OutboxRecord(ENTRIES, world.short, row), await world.another_process()
    world.heal()
    world.mid.fails_before.add("hanging.find")
    assert {owed.step for owed in await world.engine.outbox.finish(seen)} == {"erase"}
    world.heal()
    world.long.fails_before.add("delete.elsewhere")
    assert len(await other.outbox.finish(seen)) == 1
    world.heal()
    assert await world.owed() == 0
    world.clock.advance(31 * DAY)
    await world.engine.maintenance.sweep()
    assert await world.standing(world.short, entry.id) is None


# -- steps of any kind -----------------------------------------------------------------


async def _owe(world: World, entry: Entry, *steps: PendingStep) -> None:
    """As another version of the library may have left it."""
    row = await world.standing(world.mid, entry.id)
    assert isinstance(row, Record)
    (outcome,) = await world.mid.apply(
        [Put(ENTRIES, replace(row, owed=steps), AtVersion(row.version), settles=frozenset({REPLICA}))]
    )
    assert outcome.applied


async def test_a_delivery_nobody_here_has_heard_of_is_carried_out_as_it_says_what_to_write(
    world: World,
) -> None:
    world.long.fails_before.add("replica.deliver")
    entry = await world.write(scope=USER)
    world.heal()
    await _owe(
        world, entry, PendingStep("1", "deliver.of-version-2", {"to": "long", "write": {"put": "self"}})
    )
    assert (await world.engine.maintenance.sweep()).finished == 1
    assert await world.stands(entry) == ["-", "home", "replica"]
    assert await world.owed() == 0


@pytest.mark.parametrize(
    "step",
    [
        PendingStep("1", "of-version-2", {"to": "long"}),
        PendingStep("1", "deliver.replica", {"to": "long", "write": {"patch": "self"}}),
        PendingStep("1", "deliver.replica", {"to": "beyond", "write": {"put": "self"}}),
        PendingStep("1", "deliver.version", {"to": "mid", "write": {"put": {}, "in": "of-version-2"}}),
        PendingStep("1", "erase", {"collection": "of-version-2", "fields": ["entry_id"]}),
    ],
    ids=lambda step: str(step.data),
)
async def test_a_step_that_nobody_here_can_read_stays_owed_and_is_shown_beside_others_that_are_done(
    world: World, step: PendingStep
) -> None:
    entry = await world.write(scope=USER)
    await _owe(world, entry, step, *replicas(world.engine.placement, ENTRIES, world.mid, "mid"))
    report = await world.engine.maintenance.sweep()
    assert [entry.id in said for said in report.stays] == [True]
    row = await world.standing(world.mid, entry.id)
    assert isinstance(row, Record)
    assert row.owed == (step,)


async def test_a_deletion_owes_each_later_store_for_itself(world: World) -> None:
    entry = await world.write()
    world.long.down = True
    assert await world.delete(entry) is True
    row = await world.standing(world.short, entry.id)
    assert isinstance(row, Tombstone)
    assert [owed.id for owed in row.owed] == [
        "deliver.tombstone:long",
        "unmake",
    ], "what was made of it may lie in the store that is away"
    assert await world.stands(entry) == ["tombstone", "tombstone", "-"]


async def test_a_tombstone_that_a_store_refuses_stays_owed_and_is_shown(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = await world.write(scope=USER)
    apply = world.long.apply

    async def refuses(writes: Sequence[Write], **more: Any) -> list[Outcome]:
        refused = any(isinstance(write, Delete) for write in writes)
        return [Outcome(Status.REJECTED, reason="no room")] if refused else await apply(writes, **more)

    monkeypatch.setattr(world.long, "apply", refuses)
    assert await world.delete(entry) is True
    assert await world.owed() == 1
    assert ["no room" in said for said in (await world.engine.maintenance.sweep()).stays] == [True]
    monkeypatch.undo()
    await _settled(world)
    assert await world.stands(entry) == ["-", "tombstone", "tombstone"]


async def test_what_many_owe_one_store_is_delivered_in_batches(world: World) -> None:
    world.long.down = True
    for n in range(2 * READ_AT_ONCE + 1):
        await world.write(f"text {n}", scope=USER)
    await world.flush()
    world.heal()
    world.long.steps.clear()
    world.mid.steps.clear()
    assert (await world.engine.maintenance.sweep()).finished == 2 * READ_AT_ONCE + 1
    assert (world.long.steps.count("replica.deliver"), world.mid.steps.count("owed.settle")) == (3, 3)
