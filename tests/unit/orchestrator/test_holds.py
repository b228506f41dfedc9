"""Legal holds are read when something is deleted, from the archive: nothing goes where
nobody can say whether it is held.
"""

from __future__ import annotations

import pytest

from memory.domain.errors import CorruptRecord, LegalHoldActive, StoreUnavailable
from memory.domain.legal_hold import LegalHold, Over
from memory.domain.scope import Scope
from memory.orchestrator.conversations.tasks.tasks import TaskDraft
from memory.orchestrator.engine import Engine
from memory.orchestrator.storage.collections import HOLDS, RELATIONS, TASKS
from memory.ports.record import Key
from tests.unit.orchestrator.conversations.talking import begun
from tests.unit.orchestrator.world import DAY, HOUR, SESSION, TENANT, USER, World


async def _hold(engine: Engine, over: Over, of: str, name: str = "case", scope: Scope = USER) -> None:
    hold = LegalHold(name, over, of, "asked for", None, engine.placement.now())
    await engine.erasure.holds.place(TENANT, hold, scope.text if over == "entry" else None)


async def test_a_hold_placed_while_a_sweep_is_under_way_is_seen_by_the_next_deletion(world: World) -> None:
    entry, other = (
        await world.write("text", scope=USER, expires_at=world.clock() + HOUR),
        await world.another_process(),
    )
    world.clock.advance(2 * DAY)
    world.mid.before["delete.read"] = lambda: _hold(other, "entry", entry.id)
    report = await world.engine.maintenance.sweep()
    assert (report.expired, report.held) == (0, 1)
    assert await world.stands(entry) == ["-", "home", "replica"]


async def test_nothing_is_deleted_while_the_archive_cannot_say_what_is_held(world: World) -> None:
    entry = await world.write(expires_at=world.clock() + HOUR)
    await _hold(world.engine, "tenant", TENANT)
    world.mid.down = True
    with pytest.raises(StoreUnavailable):
        await world.delete(entry)
    world.clock.advance(2 * DAY)
    assert (await world.engine.maintenance.sweep()).expired == 0
    assert (await world.stands(entry))[0] == "home"


async def test_a_hold_that_cannot_be_read_holds(world: World) -> None:
    entry = await world.write(scope=USER)
    await _hold(world.engine, "scope", USER.text)
    [hold] = await world.rows(world.mid, HOLDS)
    world.mid.state.damage("holds", hold.key)
    with pytest.raises(CorruptRecord, match="a legal hold; nothing under it is deleted"):
        await world.delete(entry)
    assert await world.seen(entry) == ["text"]


async def test_a_relation_goes_with_its_other_end_although_its_scope_is_held(world: World) -> None:
    held, erased = await world.write(scope=USER), await world.write(scope=SESSION)
    await world.engine.relations.relate(TENANT, held.id, "supports", erased.id)
    await _hold(world.engine, "scope", USER.text)
    await world.engine.erasure.erase_scope(TENANT, SESSION)
    assert (await world.engine.maintenance.sweep()).dropped_relations == 1
    assert await world.rows(world.mid, RELATIONS) == []


async def test_a_damaged_entry_is_erased_unless_anything_of_its_tenant_is_held(world: World) -> None:
    entry = await world.write(scope=USER)
    await _hold(world.engine, "user", "somebody")
    world.mid.state.damage("entries", Key(TENANT, entry.id))
    with pytest.raises(LegalHoldActive):
        await world.delete(entry)
    await world.engine.erasure.holds.release(TENANT, "case")
    assert await world.delete(entry) is True


async def test_holds_placed_by_two_at_once_both_stand(world: World) -> None:
    other = await world.another_process()
    world.mid.after["hold.read"] = lambda: _hold(other, "tenant", TENANT, "second")
    await _hold(world.engine, "tenant", TENANT, "first")
    assert {hold.name for hold in await world.engine.erasure.holds.all(TENANT)} == {"first", "second"}


async def test_an_entry_whose_source_is_held_when_it_is_to_be_deleted_leaves_it(world: World) -> None:
    source, other = await world.write(), await world.another_process()
    world.mid.after["derive.home"] = lambda: _hold(other, "entry", source.id, scope=source.scope)
    await world.engine.derivation.promote(TENANT, source.id, USER, delete_original=True)
    assert await world.seen(source) == ["text"]
    assert await world.owed() == 0


async def test_a_hold_placed_while_a_task_is_being_replaced_is_seen_by_its_deletion(world: World) -> None:
    session, other = await begun(world.engine), await world.another_process()
    tasks = world.engine.conversations.tasks
    await tasks.save(session.log, TaskDraft("t1"))
    world.mid.before["tasks.save"] = lambda: _hold(other, "scope", SESSION.text)
    with pytest.raises(LegalHoldActive):
        await tasks.replace_all(session.log, [TaskDraft("t2")])
    assert await tasks.get(session.log, "t1") is not None


async def test_a_damaged_task_of_a_held_session_stays(world: World) -> None:
    session, tasks = await begun(world.engine), world.engine.conversations.tasks
    await tasks.save(session.log, TaskDraft("t1"))
    await _hold(world.engine, "scope", SESSION.text)
    [task] = await world.rows(world.mid, TASKS)
    world.mid.state.damage("tasks", task.key)
    with pytest.raises(LegalHoldActive):
        await tasks.delete(session.log, "t1")
    await world.engine.erasure.holds.release(TENANT, "case")
    assert await tasks.delete(session.log, "t1") is True


async def test_an_erasure_that_had_begun_when_a_hold_was_placed_is_carried_out(world: World) -> None:
    entry = await world.write(scope=USER, consistency="replicated")
    world.long.fails_before.add("erase.delete")
    with pytest.raises(StoreUnavailable):
        await world.engine.erasure.erase_scope(TENANT, USER)
    world.heal()
    await _hold(world.engine, "scope", USER.text)
    await world.engine.maintenance.sweep()
    assert await world.stands(entry) == ["-", "tombstone", "tombstone"]
    await world.write(scope=USER)
    with pytest.raises(LegalHoldActive):
        await world.engine.erasure.erase_scope(TENANT, USER)
