"""What a session has to do, and what it gave to others to do (section B.6 of the
catalogue).
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from memory import BlockingMemory, Conflict, InvalidInput, Memory, Session
from memory.ports.contract.cells import cells
from tests.acceptance.support import HOUR, Clock


async def tasks(session: Session, **asked: Any) -> list[str]:
    return [task.id for task in (await session.tasks.list(**asked)).tasks]


async def runs(session: Session, **asked: Any) -> list[str]:
    return [run.id for run in (await session.runs.list(**asked)).runs]


@pytest.mark.behaviour("B54")
async def test_a_task_is_saved_again_under_its_id_in_one_session_only(memory: Memory, clock: Clock) -> None:
    one, other = memory.session("s1"), memory.session("s2")
    made = await one.tasks.save("t1", title="Book a table", metadata={"people": 2})
    clock.advance(HOUR)
    saved = await one.tasks.save("t1", title="Book a table", status="completed", result="at eight")
    assert (saved.created_at, saved.status, saved.result, saved.metadata) == (
        made.created_at,
        "completed",
        "at eight",
        {},
    )
    assert saved.updated_at >= made.updated_at + HOUR
    assert await memory.session("s1", create=False).tasks.get("t1") == saved
    with pytest.raises(Conflict, match=r"Task ID collision detected: t1"):
        await other.tasks.save("t1", title="mine")
    assert await other.tasks.get("t1") is None
    assert await tasks(one) == ["t1"]
    assert await tasks(other) == []


@pytest.mark.behaviour("B55")
async def test_tasks_are_asked_by_status_and_parent(memory: Memory) -> None:
    session = memory.session("s1")
    for status in ("pending", "in_progress", "completed", "failed", "cancelled"):
        await session.tasks.save(status, status=status)
        await session.tasks.save(f"part of {status}", status=status, parent_id=status)
    assert await tasks(session, parent_id=None) == [
        "pending",
        "in_progress",
        "completed",
        "failed",
        "cancelled",
    ]
    assert await tasks(session, parent_id=None, order="newest", limit=2) == ["cancelled", "failed"]
    assert await tasks(session, parent_id="failed") == ["part of failed"]
    assert await tasks(session, status="in_progress") == ["in_progress", "part of in_progress"]
    first = await session.tasks.list(limit=3)
    rest = await session.tasks.list(limit=1_000, cursor=first.cursor)
    assert [task.id for task in (*first.tasks, *rest.tasks)] == await tasks(session)
    assert len(await tasks(session)) == 10


@pytest.mark.behaviour("B56")
async def test_deleting_a_task_leaves_its_parts_and_frees_its_id(memory: Memory) -> None:
    session, other = memory.session("s1"), memory.session("s2")
    await session.tasks.save("whole")
    await session.tasks.save("part", parent_id="whole")
    assert await session.tasks.delete("whole") is True
    assert await session.tasks.delete("whole") is False
    assert await other.tasks.delete("part") is False
    assert await tasks(session) == ["part"]
    assert (await other.tasks.save("whole")).session_id == "s2"
    with pytest.raises(Conflict):
        await session.tasks.save("whole")


async def test_a_task_is_no_part_of_itself(memory: Memory) -> None:
    session = memory.session("s1")
    await session.tasks.save("a")
    await session.tasks.save("b", parent_id="a")
    await session.tasks.save("c", parent_id="b")
    await session.tasks.save("e", parent_id="d")  # d does not exist yet
    for task, parent in [("a", "a"), ("a", "b"), ("a", "c"), ("b", "c"), ("d", "e"), ("new", "new")]:
        with pytest.raises(InvalidInput, match="a part of itself") as refused:
            await session.tasks.save(task, title="moved", parent_id=parent)
        assert refused.value.field == "parent_id"
    for circle in [{"a": "a"}, {"a": "b", "b": "a"}, {"b": "a", "c": "b", "a": "c"}]:
        with pytest.raises(InvalidInput, match="a part of itself"):
            await session.tasks.replace_all([{"id": one, "parent_id": of} for one, of in circle.items()])
    assert await tasks(session) == ["a", "b", "c", "e"]
    assert (await session.tasks.save("c", parent_id="a")).parent_id == "a"
    assert (await session.tasks.save("b", parent_id="c")).parent_id == "c"
    turned = [{"id": "a", "parent_id": "b"}, {"id": "b"}]
    assert [task.parent_id for task in await session.tasks.replace_all(turned)] == ["b", None]


@pytest.mark.behaviour("B63")
async def test_all_tasks_are_replaced_at_once(memory: Memory, clock: Clock) -> None:
    session = memory.session("s1")
    for task_id in ("t1", "t2"):
        await session.tasks.save(task_id)
        clock.advance(HOUR)
    saved = await session.tasks.replace_all([{"id": "t3", "title": "new"}, {"id": "t2", "status": "failed"}])
    assert [(task.id, task.status) for task in saved] == [("t2", "failed"), ("t3", "pending")]
    assert list(saved) == (await session.tasks.list()).tasks
    assert await session.tasks.replace_all([]) == []
    assert await tasks(session) == []


@pytest.mark.behaviour("B57", "AC-B35")
async def test_of_the_messages_of_a_run_only_their_number_is_kept(memory: Memory) -> None:
    session = memory.session("s1")
    messages = [{"role": "user", "content": "secret"}] * 3
    assert (await session.runs.save("r1", child_id="c1", messages=messages)).message_count == 3
    assert (
        await session.runs.save("r2", child_id="c1", messages=messages[:1], message_count=9)
    ).message_count == 9
    assert (await session.runs.save("r3", child_id="c1")).message_count == 0
    read = (await memory.session("s1", create=False).runs.list()).runs
    assert [(run.id, run.message_count) for run in read] == [("r1", 3), ("r2", 9), ("r3", 0)]
    assert "secret" not in str([run.to_dict() for run in read])


@pytest.mark.behaviour("B58")
async def test_runs_are_asked_by_id_session_child_status_and_mode(memory: Memory) -> None:
    session, other = memory.session("s1"), memory.session("s2")
    for status in ("queued", "running", "cancelling", "cancelled", "completed", "failed"):
        await session.runs.save(status, child_id="c1", status=status)
    await session.runs.save("behind", child_id="c2", mode="background")
    await other.runs.save("theirs", child_id="c1")
    assert await runs(session, status="running") == ["running"]
    assert await runs(session, child_id="c2") == await runs(session, mode="background") == ["behind"]
    assert len(await runs(session)) == 7
    everywhere = {
        "child_id": ("c1", 7),
        "run_id": ("theirs", 1),
        "session_id": ("s2", 1),
        "status": ("queued", 3),
        "mode": ("background", 1),
    }
    for name, (value, count) in everywhere.items():
        assert len((await memory.sessions.runs(**{name: value})).runs) == count, name  # type: ignore[arg-type]
    (found,) = (await memory.sessions.runs(run_id="theirs")).runs
    assert (found.session_id, found.child_id, found.status, found.mode) == (
        "s2",
        "c1",
        "queued",
        "foreground",
    )
    assert (await memory.for_tenant("globex").sessions.runs()).runs == []


@pytest.mark.behaviour("B59", "AC-B37")
async def test_runs_saved_at_once_are_all_kept(memory: Memory) -> None:
    """Also by a handle whose session does not exist yet: its first calls wait for that."""
    session = memory.session("s1")
    await asyncio.gather(*[session.runs.save(f"r{n}", child_id=f"c{n}") for n in range(10)])
    assert sorted(await runs(session)) == [f"r{n}" for n in range(10)]


@pytest.mark.behaviour("B60")
async def test_a_deleted_run_is_gone(memory: Memory, clock: Clock) -> None:
    session = memory.session("s1")
    made = await session.runs.save("r1", child_id="c1")
    clock.advance(timedelta(seconds=1))
    assert (await session.runs.save("r1", child_id="c1", status="running")).created_at == made.created_at
    assert await session.runs.delete("r1") is True
    assert await session.runs.get("r1") is None
    assert await session.runs.delete("r1") is False
    assert (await memory.sessions.runs(run_id="r1")).runs == []
    assert (await session.runs.save("r1", child_id="c2")).child_id == "c2"


@pytest.mark.behaviour("B29", "AC-B29")
async def test_ids_of_tasks_and_runs_are_kept_to_the_letter(memory: Memory) -> None:
    session = memory.session("a/b::c é")
    for odd in ("a/b::c é", "A/b::c é", " ", "a/b"):
        await session.tasks.save(odd)
        await session.runs.save(odd, child_id=odd)
    assert await tasks(session) == await runs(session) == ["a/b::c é", "A/b::c é", " ", "a/b"]


async def test_tasks_and_runs_go_with_their_session_and_no_other(memory: Memory) -> None:
    session, other = memory.session("s1"), memory.session("s2")
    await session.tasks.save("t1")
    await session.runs.save("r1", child_id="s2")
    await other.tasks.save("t2")
    assert await session.delete()
    assert await tasks(memory.session("s1")) == await runs(memory.session("s1")) == []
    assert await tasks(other) == ["t2"]
    assert (await other.tasks.save("t1")).session_id == "s2"


@cells(
    "call, field",
    [
        (lambda s: s.tasks.save(""), "task_id"),
        (lambda s: s.tasks.save("t", status="done"), "status"),
        (lambda s: s.tasks.save("t", title="x" * 5_000), "title"),
        (lambda s: s.tasks.save("t", metadata={"at": object()}), "metadata.at"),
        (lambda s: s.tasks.list(status="done"), "status"),
        (lambda s: s.tasks.list(limit=0), "limit"),
        (lambda s: s.tasks.replace_all([{"id": "t"}, {"title": "no id"}]), "tasks[1]"),
        (lambda s: s.tasks.replace_all([{"id": "t"}, {"id": "t"}]), "tasks"),
        (lambda s: s.tasks.replace_all([{"id": "t", "colour": "red"}]), "tasks[0].colour"),
        (lambda s: s.runs.save("r", child_id=""), "child_id"),
        (lambda s: s.runs.save("r", child_id="c", mode="sideways"), "mode"),
        (lambda s: s.runs.save("r", child_id="c", message_count=-1), "message_count"),
        (lambda s: s.runs.list(status="pending"), "status"),
    ],
    shared=True,
)
async def test_what_is_no_task_and_no_run_is_refused(plain: Memory, call: Any, field: str) -> None:
    session = plain.session("s1")
    with pytest.raises(InvalidInput) as refused:
        await call(session)
    assert refused.value.field == field
    assert await plain.sessions.get("s1") is None


def test_the_blocking_twins_of_tasks_and_runs() -> None:
    with BlockingMemory("memory://", embedder="none", accept_loss=True) as memory:
        session = memory.session("s1")
        session.tasks.save("t1", title="Book a table")
        session.runs.save("r1", child_id="c1")
        assert [task.title for task in session.tasks.list().tasks] == ["Book a table"]
        assert [run.id for run in memory.sessions.runs(child_id="c1").runs] == ["r1"]
