"""Sweeps: one at a time, store by store, by the rules; marks and tombstones go when they have served."""

from __future__ import annotations

from datetime import timedelta

from memory.domain.entry import EntryType
from memory.orchestrator.settings import EngineSettings
from memory.policies.promotion import PromotionRule
from memory.ports.collections import RELATIONS
from tests.unit.orchestrator.world import DAY, HOUR, SESSION, TENANT, USER, World


async def test_a_sweep_does_not_run_while_another_process_holds_the_lease(world: World) -> None:
    other = world.another_engine()
    await other.open()
    world.mid.fails_before.add("lease.return")
    assert (await world.engine.maintenance.sweep()).ran is True
    world.heal()
    assert (await other.maintenance.sweep()).ran is False
    world.clock.advance(timedelta(seconds=31))
    assert (await other.maintenance.sweep()).ran is True
    assert (await world.engine.maintenance.sweep()).ran is True


async def test_a_lease_from_the_future_binds_nobody(world: World) -> None:
    world.mid.fails_before.add("lease.return")
    world.clock.advance(365 * DAY)
    await world.engine.maintenance.sweep()
    world.heal()
    world.clock.advance(-365 * DAY)  # the clock was wrong
    assert (await world.engine.maintenance.sweep()).ran is True


async def test_a_store_that_is_down_waits_and_the_others_are_swept(world: World) -> None:
    world.mid.fails_before.add("version.keep")
    entry = await world.write()
    await world.update(entry, content="text, edited")
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
    assert (report.finished, report.still_owed) == (0, 1)
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
        PromotionRule(name="learnt", on="session_end", source="short", target="mid", types=(EntryType.LEARNING,)),
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
    report = await world.engine.promotion.by_hand(TENANT, [entry.id, entry.id, "nothing"], "mid")
    assert [m.entry_id for m in report.moved] == [entry.id]
    assert [k.because for k in report.kept] == ["it is there or further already", "there is no such entry"]


async def test_a_relation_left_dangling_by_a_crash_is_swept(world: World) -> None:
    a, b = await world.write("text one"), await world.write("text two", scope=USER)
    await world.engine.relations.relate(TENANT, b.id, "supports", a.id)
    await world.engine.erasure.erase_scope(TENANT, SESSION)
    assert await world.engine.relations.related(TENANT) == []
    report = await world.engine.maintenance.sweep()
    assert report.dropped_relations == 1
    assert await world.rows(world.mid, RELATIONS) == []
