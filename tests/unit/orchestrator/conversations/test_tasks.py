"""The tasks and runs of sessions, over stores that fail and with several processes (B54
to B60, B63).
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from memory.domain.errors import Conflict, NotFound, StoreUnavailable
from memory.domain.task import Task
from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.conversations.tasks.runs import RunDraft
from memory.orchestrator.conversations.tasks.tasks import TaskDraft
from memory.orchestrator.engine import Engine
from memory.orchestrator.storage.collections import CLAIMS, TASKS
from memory.ports.query import Everywhere, Query
from tests.unit.orchestrator.conversations.talking import begun, opened
from tests.unit.orchestrator.world import TENANT, World


async def save(engine: Engine, session: Conversation, task_id: str, **more: Any) -> Task:
    return await engine.conversations.tasks.save(session.log, TaskDraft(task_id, **more))


async def titles(engine: Engine, session: Conversation) -> dict[str, str]:
    page = await engine.conversations.tasks.list(session.log, (), limit=100)
    return {task.id: task.title for task in page.tasks}


async def claims(world: World) -> int:
    return (await world.mid.count(Query(CLAIMS, Everywhere()))).records


async def test_one_of_two_sessions_gets_an_id_however_they_meet(world: World) -> None:
    one, other = await begun(world.engine, "s1"), await begun(world.engine, "s2")
    engines = [world.engine, await world.another_process()]
    for round_ in range(10):
        saved = await asyncio.gather(
            *[
                save(engine, session, f"t{round_}")
                for engine, session in zip(engines, (one, other), strict=True)
            ],
            return_exceptions=True,
        )
        assert sorted(type(one).__name__ for one in saved) == ["Conflict", "Task"]
    assert len(await titles(world.engine, one)) + len(await titles(world.engine, other)) == 10


async def test_the_id_of_a_task_that_never_came_is_free_in_the_end(world: World) -> None:
    """A writer that died between claim and task keeps its id for as long as its task
    may yet come.
    """
    one, other = await begun(world.engine, "s1"), await begun(world.engine, "s2")
    world.mid.fails_before.add("tasks.save")
    with pytest.raises(StoreUnavailable):
        await save(world.engine, one, "t1")
    world.heal()
    assert await claims(world) == 1
    with pytest.raises(Conflict, match="Task ID collision detected: t1"):
        await save(world.engine, other, "t1")
    world.clock.advance(2 * world.engine.settings.mark_life)
    assert (await save(world.engine, other, "t1")).session_id == "s2"
    with pytest.raises(Conflict):
        await save(world.engine, one, "t1")


async def test_a_deleted_task_s_claim_goes_also_after_a_crash(world: World) -> None:
    one, other = await begun(world.engine, "s1"), await begun(world.engine, "s2")
    await save(world.engine, one, "t1")
    world.mid.fails_before.add("claims.delete")
    assert await world.engine.conversations.tasks.delete(one.log, "t1")
    world.heal()
    assert await claims(world) == 1
    await world.engine.maintenance.sweep()
    assert await claims(world) == 0
    assert (await save(world.engine, other, "t1")).session_id == "s2"


async def test_a_task_saved_again_after_its_deletion_keeps_its_claim(world: World) -> None:
    one, other = await begun(world.engine, "s1"), await begun(world.engine, "s2")
    await save(world.engine, one, "t1", title="first")
    world.mid.fails_before.add("claims.delete")
    await world.engine.conversations.tasks.delete(one.log, "t1")
    world.heal()
    await save(world.engine, one, "t1", title="second")
    await world.engine.maintenance.sweep()
    assert await claims(world) == 1
    assert await titles(world.engine, one) == {"t1": "second"}
    with pytest.raises(Conflict):
        await save(world.engine, other, "t1")


async def test_a_deleted_session_takes_tasks_runs_and_claims_also_after_a_crash(world: World) -> None:
    session, other = await begun(world.engine, "s1"), await begun(world.engine, "s2")
    await save(world.engine, session, "t1")
    await save(world.engine, other, "t2")
    await world.engine.conversations.runs.save(session.log, RunDraft("r1", "child"))
    world.mid.fails_before.add("claims.find")
    with pytest.raises(StoreUnavailable):
        await world.engine.conversations.sessions.delete(TENANT, "s1")
    world.heal()
    await world.engine.maintenance.sweep()
    assert await claims(world) == 1
    assert (await world.mid.count(Query(TASKS, Everywhere()))).records == 1
    with pytest.raises(NotFound, match="session not found: s1"):
        await save(world.engine, session, "t1")
    again = await begun(world.engine, "s1")
    assert await titles(world.engine, again) == {}
    assert (await save(world.engine, again, "t1", title="of the new life")).title == "of the new life"
    assert await world.engine.conversations.runs.get(again.log, "r1") is None


async def test_a_list_that_is_replaced_leaves_what_another_saves_meanwhile(world: World) -> None:
    session = await begun(world.engine)
    for task_id in ("t1", "t2"):
        await save(world.engine, session, task_id, title="before")
    theirs = await world.another_process()
    late = await opened(theirs)

    async def another_saves() -> None:
        await save(theirs, late, "t9", title="theirs")

    world.mid.before["claims.put"] = another_saves
    await world.engine.conversations.tasks.replace_all(
        session.log, [TaskDraft("t2", "after"), TaskDraft("t3", "new")]
    )
    assert await titles(world.engine, session) == {"t2": "after", "t9": "theirs", "t3": "new"}


async def test_the_last_save_of_a_run_counts_and_none_is_lost(world: World) -> None:
    session = await begun(world.engine)
    handles = [await opened(world.engine) for _ in range(10)]
    await asyncio.gather(
        *[
            world.engine.conversations.runs.save(handle.log, RunDraft("same", f"c{n}"))
            for n, handle in enumerate(handles)
        ]
    )
    await asyncio.gather(
        *[
            world.engine.conversations.runs.save(handle.log, RunDraft(f"r{n}", "c"))
            for n, handle in enumerate(handles)
        ]
    )
    assert (await world.engine.conversations.runs.get(session.log, "same")) is not None
    assert [
        await world.engine.conversations.runs.get(session.log, f"r{n}") is not None for n in range(10)
    ] == [True] * 10
