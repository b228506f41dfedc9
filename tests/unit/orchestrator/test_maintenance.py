"""Sweeps: one at a time, store by store, by the rules; marks and tombstones go when
they have served.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from memory.domain.entry import Entry, EntryType
from memory.domain.errors import CorruptRecord, StoreError, StoreUnavailable
from memory.orchestrator.storage.collections import ENTRIES, ENTRY_VERSIONS, LEASES, RELATIONS
from memory.orchestrator.storage.settings import EngineSettings
from memory.policies.promotion import PromotionRule
from memory.ports.record import Key, Partition, PendingStep, Record, Tombstone
from memory.ports.writes import Annotate, AtVersion, Delete, Put, Write
from tests.unit.orchestrator.world import DAY, DURABLE, HOUR, SESSION, TENANT, USER, World


async def test_a_sweep_with_something_to_do_does_not_run_while_another_process_holds_the_lease(
    world: World,
) -> None:
    other = await world.another_process()
    await world.write_undelivered()
    world.mid.fails_before.add("lease.return")
    assert (await world.engine.maintenance.sweep()).ran is True
    await world.write_undelivered()
    assert (await other.maintenance.sweep()).ran is False
    assert await world.owed() == 1
    world.clock.advance(
        world.engine.placement.settings.lease * 0.75
    )  # a worker's next look is before the whole length is over
    assert (await other.maintenance.sweep()).ran is True
    await world.write_undelivered()
    assert (await world.engine.maintenance.sweep()).ran is True
    assert await world.owed() == 0


async def test_a_lease_from_the_future_binds_nobody(world: World) -> None:
    world.clock.advance(365 * DAY)
    await world.write_undelivered()
    world.mid.fails_before.add("lease.return")
    await world.engine.maintenance.sweep()
    world.clock.advance(-365 * DAY)  # the clock was wrong
    await world.write_undelivered()
    assert (await world.engine.maintenance.sweep()).ran is True
    assert await world.owed() == 0


async def test_a_long_sweep_renews_its_lease_and_stops_once_another_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A page of rows takes longer than a lease lasts."""
    async with World(settings=EngineSettings(page=2)) as world:
        await world.write_undelivered(8)
        deliver = world.engine.outbox.finish_all
        leases: list[object] = []

        async def slow(*args: Any) -> Any:
            leases.append((await world.rows(world.mid, LEASES))[0].fields["until"])
            world.clock.advance(timedelta(seconds=20))
            if len(leases) == 3:
                (lease,) = await world.rows(world.mid, LEASES)
                await world.mid.apply(
                    [Put(LEASES, replace(lease, version=lease.version + 1), AtVersion(lease.version))]
                )
            return await deliver(*args)

        monkeypatch.setattr(world.engine.outbox, "finish_all", slow)
        report = await world.engine.maintenance.sweep()
        assert report.ran is False
        assert len(set(leases)) == len(leases) == 3, "each page finds it renewed"
        assert await world.owed() == 2


async def _idle_sweep(count: int) -> Counter[tuple[str, str]]:
    """What an idle sweep over so many entries, half of them edited and linked, asks of
    which store, and how often.
    """
    async with World() as world:
        entries = [
            await world.write(f"text {n}", scope=(SESSION, USER)[n % 2], tags=["t"]) for n in range(count)
        ]
        await world.engine.short_ids.of(TENANT, [entry.id for entry in entries])
        for entry, other in zip(entries[::2], entries[1::2], strict=True):
            await world.update(entry, content="text, edited")
            await world.engine.relations.relate(TENANT, entry.id, "supports", other.id)
        await world.flush()
        world.clock.advance(HOUR)
        await world.engine.rollback_detector.note()  # as every few minutes
        before = {store.name: (len(store.steps), store.rows_read) for store in world.stores}
        report = await world.engine.maintenance.sweep()
        assert (report.ran, report.waiting, report.stays) == (True, (), ())
        assert await world.rows(world.mid, LEASES) == []
        read = sum(store.rows_read - before[store.name][1] for store in world.stores)
        assert read <= 2 * 500 + 3 * 1_500, "a slice of links and one of numbers, and where what they name is"
        return Counter(
            (store.name, step) for store in world.stores for step in store.steps[before[store.name][0] :]
        )


async def test_an_idle_sweep_asks_as_little_of_a_full_store_as_of_a_small_one_and_writes_nothing() -> None:
    few, many = await _idle_sweep(20), await _idle_sweep(1_400)
    of_a_slice = {
        "relation.sweep",
        "read.home",
    }  # one page of links and one of numbers, or two where it comes round
    for about in few | many:
        assert (1 <= many[about] <= 4) if about[1] in of_a_slice else many[about] == few[about], about
    assert {step for _, step in many} == {
        "sweep.due",
        "session.expired",
        "copies.expired",
        "erase.remembered",
        "relation.sweep",
        "read.home",
        "promotion.scan",
        "setback.look",
    }


async def test_a_store_that_is_down_waits_and_the_others_are_swept(world: World) -> None:
    world.mid.fails_before.add("version.keep")
    entry = await world.write()
    await world.update(entry, content="text, edited")
    await world.flush()
    world.heal()
    world.long.down = True
    report = await world.engine.maintenance.sweep()
    assert report.finished == 1
    assert [w.partition(":")[0] for w in report.waiting] == ["store 'long'"]
    world.heal()
    assert (await world.engine.maintenance.sweep()).waiting == ()


async def test_what_cannot_be_finished_yet_stays_owed_and_is_counted(world: World) -> None:
    world.long.down = True
    await world.write(scope=USER)
    world.long.down = False
    world.long.fails_before.add("replica.deliver")
    report = await world.engine.maintenance.sweep()
    assert (report.finished, report.pending_steps) == (0, 1)
    assert await world.owed() == 1


async def test_marks_and_tombstones_are_kept_for_their_time_and_then_forgotten(world: World) -> None:
    moved, deleted = await world.write("text one"), await world.write("text two")
    await world.move(moved, "long")
    await world.delete(deleted)
    world.clock.advance(timedelta(minutes=59))
    await world.engine.maintenance.sweep()
    assert (await world.stands(moved))[0] == "mark"
    world.clock.advance(timedelta(minutes=2))
    await world.engine.maintenance.sweep()
    assert await world.stands(moved) == ["-", "-", "home"]
    world.clock.advance(29 * DAY)
    await world.engine.maintenance.sweep()
    assert await world.stands(deleted) == ["tombstone", "tombstone", "tombstone"]
    world.clock.advance(2 * DAY)
    report = await world.engine.maintenance.sweep()
    assert report.purged >= 3
    assert await world.stands(deleted) == ["-", "-", "-"]
    assert await world.seen(moved) == ["text one"]


async def test_more_rows_than_a_page_are_all_swept() -> None:
    async with World(settings=EngineSettings(page=2, batch=2)) as world:
        world.long.down = True
        entries = await world.engine.entries.write_many(TENANT, [])
        entries = [await world.write(f"text {n}", scope=USER) for n in range(7)]
        await world.flush()
        world.heal()
        assert (await world.engine.maintenance.sweep()).finished == 7
        for entry in entries:
            await world.delete(entry)
        world.clock.advance(31 * DAY)
        assert (await world.engine.maintenance.sweep()).purged >= 14
        assert [await world.stands(e) for e in entries] == [["-", "-", "-"]] * 7


async def test_a_sweep_moves_what_the_sweep_rules_take(world: World) -> None:
    idle, busy = await world.write("text idle"), await world.write("text busy")
    world.clock.advance(6 * DAY)
    await world.update(busy, content="text busy still")
    world.clock.advance(DAY + HOUR)
    report = await world.engine.maintenance.sweep()
    assert report.moved == 1
    assert (await world.stands(idle))[:2] == ["mark", "home"]
    assert await world.stands(busy) == ["home", "-", "-"]


async def test_ending_a_session_moves_what_its_rules_take_and_says_why_the_rest_stayed() -> None:
    rules = (
        PromotionRule(
            name="learnt", on="session_end", source="short", target="mid", types=(EntryType.LEARNING,)
        ),
        PromotionRule(name="facts", on="session_end", source="short", target="long", tags=("fact",)),
    )
    async with World(rules=rules) as world:
        learnt = await world.write("text one", type="learning", tags=["fact"])
        fact = await world.write("text two", tags=["fact"])
        chat = await world.write("text three")
        await world.write("expired", expires_at=world.clock.moment - HOUR)
        await world.write("elsewhere", scope=USER, tags=["fact"])
        report = await world.engine.promotion.end_session(TENANT, SESSION)
        assert {(m.entry_id, m.from_tier, m.to_tier, m.rule) for m in report.moved} == {
            (learnt.id, "short", "mid", "learnt"),
            (fact.id, "short", "long", "facts"),
        }
        assert [k.entry_id for k in report.kept] == [chat.id]
        assert "session end" in report.kept[0].because
        again = await world.engine.promotion.end_session(TENANT, SESSION)
        assert again.moved == []
        assert len(again.kept) == 3


async def test_moving_by_hand_says_what_could_not_be_moved(world: World) -> None:
    entry = await world.write()
    report = await world.engine.promotion.by_hand(
        TENANT, [entry.id, entry.id, "01900000-0000-8000-8000-000000000000"], "mid"
    )
    assert [m.entry_id for m in report.moved] == [entry.id]
    assert [k.because for k in report.kept] == ["there is no such entry"], "what is named twice is told once"
    again = await world.engine.promotion.by_hand(TENANT, [entry.id], "mid")
    assert [k.because for k in again.kept] == ["it is already in that tier or a later one"]


async def test_a_relation_left_dangling_by_a_crash_is_swept(world: World) -> None:
    a, b = await world.write("text one"), await world.write("text two", scope=USER)
    await world.engine.relations.relate(TENANT, b.id, "supports", a.id)
    await world.engine.erasure.erase_scope(TENANT, SESSION)
    assert await world.engine.relations.find(TENANT) == []
    report = await world.engine.maintenance.sweep()
    assert report.dropped_relations == 1
    assert await world.rows(world.mid, RELATIONS) == []


# -- one bad thing stops nothing else --------------------------------------------------


async def _owe(world: World, entry: Entry, kind: str) -> None:
    """Let the entry's record owe a step that another version of the library may have
    left.
    """
    row = await world.standing(world.mid, entry.id)
    assert isinstance(row, Record)
    outcome = (
        await world.mid.apply(
            [
                Put(
                    ENTRIES,
                    replace(row, owed=(PendingStep(kind, kind, {}),), version=row.version + 1),
                    AtVersion(row.version),
                )
            ]
        )
    )[0]
    assert outcome.applied


async def test_a_step_of_an_unknown_kind_stays_owed_and_is_shown_and_the_rest_is_done(world: World) -> None:
    strange, entry = await world.write(scope=USER), None
    await _owe(world, strange, "of-version-2")
    world.long.down = True
    entry = await world.write("text two", scope=USER)
    world.heal()
    world.clock.advance(HOUR)
    report = await world.engine.maintenance.sweep()
    assert report.waiting == ()
    assert ["of-version-2" in said and strange.id in said for said in report.stays] == [True]
    assert await world.stands(entry) == ["-", "home", "replica"]
    assert await world.delete(strange) is True
    assert await world.get(strange) is None
    row = await world.standing(world.mid, strange.id)
    assert isinstance(row, Tombstone)
    assert "of-version-2" in {owed.step for owed in row.owed}


async def test_a_replica_that_its_tier_refuses_stays_owed_and_is_shown() -> None:
    async with World(long=replace(DURABLE, max_record_bytes=500)) as world:
        entry = await world.write("text " * 300, scope=USER)
        report = await world.engine.maintenance.sweep()
        assert await world.owed() == 1
        assert "at most 500 bytes" in report.stays[0]
        assert entry.id in report.stays[0]
        assert "at most 500 bytes" in (await world.engine.maintenance.overdue())[0]
        other = world.another_engine()
        await other.open()
        assert "at most 500 bytes" in (await other.maintenance.overdue())[0], "another process finds out why"


async def test_a_kept_version_that_the_archive_refuses_is_known_all_the_same() -> None:
    async with World(mid=replace(DURABLE, max_record_bytes=1000)) as world:
        entry = await world.write("y" * 1500)
        await world.update(entry, content="short now")
        await world.engine.maintenance.sweep()
        assert await world.owed() == 1
        assert [len(e.content) for e in await world.engine.entries.history(TENANT, entry.id)] == [1500, 9]


AGED = PromotionRule(name="aged", on="sweep", source="mid", target="long", older_than=timedelta(days=1))
IDLE = PromotionRule(name="idle", on="sweep", source="short", target="mid", idle_for=timedelta(days=7))


async def test_a_rule_between_healthy_stores_works_while_another_store_is_down() -> None:
    async with World(rules=(IDLE,)) as world:
        entry = await world.write()
        world.clock.advance(8 * DAY)
        world.long.down = True
        report = await world.engine.maintenance.sweep()
        assert report.moved == 1
        assert await world.stands(entry) == ["mark", "home", "-"]
        assert any("'long'" in said for said in report.waiting)


async def test_a_damaged_record_costs_a_rule_that_record_only() -> None:
    async with World(rules=(AGED,)) as world:
        broken = await world.write("text broken")
        await world.break_off(broken, "mid")
        world.short.state.damage("entries", Key(TENANT, broken.id))
        young = [await world.write(f"text {n}", scope=USER) for n in range(3)]
        world.clock.advance(2 * DAY)
        report = await world.engine.maintenance.sweep()
        assert report.moved == 3
        assert [(await world.stands(entry))[2] for entry in young] == ["home"] * 3
        assert any(broken.id in said for said in report.stays + report.waiting)


async def test_a_job_that_fails_of_a_mistake_is_told_and_the_others_are_done(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = await world.write(scope=USER)

    async def mistaken(*_: object) -> int:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(world.engine.orphans, "drop", mistaken)
    monkeypatch.setattr(world.engine.erasure, "watch", mistaken)
    world.long.down = True
    await world.update(entry, content="text two")
    await world.flush()
    world.heal()
    report = await world.engine.maintenance.sweep()
    assert report.finished == 1
    assert sum("ZeroDivisionError" in said for said in report.stays) == 2
    assert (await world.engine.maintenance.sweep()).ran, "the lease was given back"


async def test_a_sweep_that_is_cut_off_gives_its_lease_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()

    async def long_job(*_: object) -> int:
        begun.set()
        await asyncio.Event().wait()
        return 0

    monkeypatch.setattr(world.engine.orphans, "drop", long_job)
    sweep = asyncio.create_task(world.engine.maintenance.sweep())
    await begun.wait()
    sweep.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sweep
    monkeypatch.undo()
    assert (await world.engine.maintenance.sweep()).ran


async def test_expired_entries_are_deleted_with_all_that_hangs_on_them_by_slices() -> None:
    async with World(settings=EngineSettings(page=3)) as world:
        entries = [
            await world.write(f"secret {n}", scope=(SESSION, USER)[n % 2], expires_at=world.clock() + HOUR)
            for n in range(10)
        ]
        for entry in entries:
            await world.update(entry, content="secret, edited")
        edited = await world.write("put off", expires_at=world.clock() + HOUR)
        world.clock.advance(HOUR + timedelta(minutes=1))
        assert (await world.engine.maintenance.sweep()).expired == 0
        world.clock.advance(2 * DAY)
        other = await world.another_process()
        await other.erasure.delete(ENTRIES, Key(TENANT, edited.id))
        assert (await world.engine.maintenance.sweep()).expired == len(entries)
        assert [
            await world.rows(store, of) for store in world.stores for of in (ENTRIES, ENTRY_VERSIONS)
        ] == [[]] * 6
        assert await world.owed() == 0


async def test_what_expired_while_it_owed_a_step_goes_with_what_it_owed(world: World) -> None:
    entry = await world.write("secret one", expires_at=world.clock() + HOUR)
    world.mid.fails_before.add("version.keep")
    await world.update(entry, content="secret two")
    world.clock.advance(2 * DAY)
    assert (await world.engine.maintenance.sweep()).expired == 1
    world.heal()
    await world.engine.maintenance.sweep()
    assert [await world.rows(store, of) for store in world.stores for of in (ENTRIES, ENTRY_VERSIONS)] == [
        []
    ] * 6


async def test_an_expired_entry_on_its_way_goes_when_it_has_arrived(world: World) -> None:
    entry = await world.write("text", expires_at=world.clock() + HOUR)
    await world.break_off(entry, "long")
    world.clock.advance(2 * DAY)
    await world.engine.maintenance.sweep()
    await world.engine.maintenance.sweep()
    assert [await world.rows(store, ENTRIES) for store in world.stores] == [[]] * 3
    assert await world.owed() == 0


async def test_an_expired_entry_that_cannot_be_deleted_costs_itself_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with World() as world:
        bad, *others = [await world.write(f"text {n}", expires_at=world.clock() + HOUR) for n in range(3)]
        world.clock.advance(2 * DAY)
        apply = world.short.apply

        async def refuses_one(writes: Sequence[Write], **more: Any) -> Any:
            if any(isinstance(write, Delete) and write.key.id == bad.id for write in writes):
                raise StoreError("short", "will not have it")
            return await apply(writes, **more)

        monkeypatch.setattr(world.short, "apply", refuses_one)
        report = await world.engine.maintenance.sweep()
        assert report.expired == len(others)
        assert report.waiting == ("store 'short': will not have it",)


async def test_a_record_whose_steps_cannot_be_taken_from_it_costs_itself_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.long.down = True
    bad, *others = [await world.write(f"text {n}", scope=USER) for n in range(3)]
    await world.flush()
    world.heal()
    apply = world.mid.apply

    async def refuses_one(writes: Sequence[Write], **more: Any) -> Any:
        if any(isinstance(write, Annotate) and write.key.id == bad.id for write in writes):
            raise StoreError("mid", "will not have it")
        return await apply(writes, **more)

    monkeypatch.setattr(world.mid, "apply", refuses_one)
    report = await world.engine.maintenance.sweep()
    assert (report.finished, report.pending_steps) == (len(others), 1)
    assert report.stays == (f"deliver.replica of {bad.id}: store 'mid': will not have it",)


async def test_what_is_overdue_is_told_though_a_store_does_not_answer(world: World) -> None:
    entry = await world.write(scope=USER)
    await _owe(world, entry, "of-version-2")
    world.short.down = True
    said = await world.engine.maintenance.overdue()
    assert ["short" in said[0], entry.id in said[1]] == [True, True]


async def test_a_tenants_end_takes_all_but_the_scope_that_refuses(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for scope in (SESSION, USER):
        await world.write("text", scope)
    erase = world.engine.erasure.erase

    async def refusing(partition: Partition, *more: Any, **named: Any) -> Any:
        if partition.scope == SESSION.text:
            raise CorruptRecord("short", "one", "it is held")
        return await erase(partition, *more, **named)

    monkeypatch.setattr(world.engine.erasure, "erase", refusing)
    with pytest.raises(CorruptRecord, match="it is held"):
        await world.engine.tenants.erase(TENANT)
    assert await world.browse(USER) == []
    assert await world.browse(SESSION) == ["text"]
    monkeypatch.undo()
    world.mid.down = True
    with pytest.raises(StoreUnavailable):
        await world.engine.tenants.erase(TENANT)
    world.heal()
    assert (await world.engine.tenants.erase(TENANT)).scopes == 1
    assert await world.browse(SESSION) == []
