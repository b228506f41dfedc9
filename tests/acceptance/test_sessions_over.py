"""Sessions that expire, and what is said of a session later on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest

from memory import InvalidInput, Memory, NotFound
from memory.orchestrator.storage.steps import current_step
from tests.acceptance.support import DAY, HOUR, MICROSECOND, Clock, stores_of
from tests.acceptance.talking import user


async def listed(memory: Memory) -> list[str]:
    return [session.id for session in (await memory.sessions.list()).sessions]


async def test_a_session_is_hidden_strictly_after_its_expiry_and_its_id_is_free(
    memory: Memory, clock: Clock
) -> None:
    session = await memory.sessions.create("s1", expires_at=HOUR, title="for an hour")
    await session.append(user("u1", "u1"))
    await session.tasks.save("t1")
    await memory.write("kept", scope="session:s1")
    await memory.sessions.create("s2")
    until = (await session.info()).expires_at
    assert until is not None
    clock.stand_still_at(until)
    assert (await session.info()).expires_at == until
    assert sorted(await listed(memory)) == ["s1", "s2"]
    clock.stand_still_at(until + MICROSECOND)
    clock.tick = MICROSECOND
    for gone in (
        session.info(),
        session.context(),
        session.history(),
        memory.sessions.update("s1", title="again"),
    ):
        with pytest.raises(NotFound, match="session not found: s1"):
            await gone
    for write in (
        session.append(user("late", "late")),
        session.update("u1", content="late"),
        session.exclude("u1"),
        session.clear(),
        session.compact(lambda _: "late", keep_last=0),
        session.checkpoint("late"),
        session.tasks.save("t2"),
        session.runs.save("r1", child_id="c1"),
        session.end(),
    ):
        with pytest.raises(
            NotFound, match=r"session not found: s1\. It expired at 2126-.* UTC\. "
        ) as refused:
            await write
        assert refused.value.expired_at == until
    assert await memory.sessions.get("s1") is None
    assert await listed(memory) == ["s2"]
    again = await memory.sessions.create("s1")
    await again.append(user("u2", "u2"))
    assert [message.id for message in (await again.context()).messages] == ["u2"]
    assert [item.message.id for item in (await again.history()).items] == ["u2"]
    assert (await again.tasks.list()).tasks == []
    assert (await memory.session("s2").tasks.save("t1")).session_id == "s2"
    assert [entry.content for entry in await memory.retrieve("session:s1")] == ["kept"]
    with pytest.raises(NotFound):
        await session.append(user("late", "late"))


@pytest.mark.parametrize("is_read_since", [False, True])
async def test_an_open_handle_writes_nothing_after_another_call_set_an_expiry(
    memory: Memory, clock: Clock, is_read_since: bool
) -> None:
    session = await memory.sessions.create("s1")
    await session.append(user("u1", "u1"))
    until = (await memory.sessions.update("s1", expires_at=HOUR)).expires_at
    assert until is not None
    clock.stand_still_at(until + MICROSECOND)
    if is_read_since:
        assert await memory.sessions.get("s1") is None
    for write in (
        lambda: session.append(user("late", "late")),
        lambda: session.tasks.save("t1"),
        session.clear,
    ):
        with pytest.raises(NotFound, match="session not found: s1"):
            await write()


async def test_a_sweep_erases_what_was_said_in_sessions_that_expired_a_day_ago(
    memory: Memory, clock: Clock
) -> None:
    session = memory.session("s1", expires_at=HOUR)
    await session.append(user("u1", "u1"))
    await memory.session("s2").append(user("u1", "u1"))
    assert (await memory.admin.sweep()).expired == 0
    clock.advance(2 * HOUR)
    assert (await memory.admin.sweep()).expired == 0
    clock.advance(DAY)
    assert (await memory.admin.sweep()).expired == 1
    assert (await memory.admin.sweep()).expired == 0
    with pytest.raises(NotFound):
        await session.append(user("u2", "u2"))
    assert await listed(memory) == ["s2"]
    assert [message.id for message in (await memory.session("s2").context()).messages] == ["u1"]


async def test_what_is_said_of_a_session_can_be_changed(memory: Memory, clock: Clock) -> None:
    session = await memory.sessions.create(
        "s1", title="First", tags=["a", "b"], metadata={"n": 1}, expires_at=HOUR
    )
    await session.append(user("u1", "u1"))
    changed = await memory.sessions.update("s1", title="Second", tags=["c"])
    assert (changed.title, changed.tags, changed.metadata, changed.message_count) == (
        "Second",
        ["c"],
        {"n": 1},
        1,
    )
    assert changed == await memory.session("s1").info()
    changed = await memory.sessions.update("s1", title=None, metadata={"m": 2}, expires_at=None)
    assert (changed.title, changed.tags, changed.metadata, changed.expires_at) == (
        None,
        ["c"],
        {"m": 2},
        None,
    )
    clock.advance(2 * HOUR)
    assert [(one.id, one.metadata) for one in (await memory.sessions.list(tags=["c"])).sessions] == [
        ("s1", {"m": 2})
    ]
    await memory.sessions.update("s1", expires_at=HOUR)
    clock.advance(2 * HOUR)
    assert await memory.sessions.get("s1") is None
    with pytest.raises(NotFound):
        await memory.sessions.update("nobody", title="x")


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"title": "x" * 201}, "title"), ({"tags": "a"}, "tags"), ({"expires_at": timedelta(0)}, "expires_at")],
)
async def test_what_cannot_be_said_of_a_session_is_refused(plain: Memory, changes: Any, field: str) -> None:
    await plain.sessions.create("s1", title="First")
    with pytest.raises(InvalidInput) as refused:
        await plain.sessions.update("s1", **changes)
    assert refused.value.field == field
    assert (await plain.session("s1").info()).title == "First"


@contextmanager
def questions(memory: Memory) -> Iterator[list[str]]:
    """The steps of the engine at which stores are asked for records."""
    asked: list[str] = []

    def noting(query: Any) -> Any:
        async def noted(*args: Any, **kwargs: Any) -> Any:
            asked.append(current_step.get())
            return await query(*args, **kwargs)

        return noted

    with ExitStack() as stack:
        for store in stores_of(memory):
            stack.enter_context(patch.object(store, "query", noting(store.query)))
        yield asked


async def test_the_end_of_a_session_asks_once_what_is_owed_and_not_where_there_is_no_conversation(
    memory: Memory,
) -> None:
    session = await memory.sessions.create("s1")
    await session.append(user("u1", "u1"))
    await memory.write("kept", scope="session:s2")
    with questions(memory) as asked:
        await session.end()
    assert [name for name in asked if name.endswith(".owed")] == ["onward.owed"]
    with questions(memory) as asked:
        await memory.sessions.end("s2")
    assert [name for name in asked if name.endswith(".owed")] == []
    assert "promotion.scan" in asked
