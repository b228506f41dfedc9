"""Window exit: messages that leave a session's window become entries, by the caller's
callback, each once, with their origin (B83, B86).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from memory import (
    BufferProvider,
    ConfigError,
    EntryDraft,
    ExitedMessages,
    Memory,
    Scope,
    SlidingWindowProvider,
)
from tests.acceptance.support import ADA, HOUR, Clock
from tests.acceptance.talking import summary, user


async def talked(memory: Memory, *texts: str, session_id: str = "s1", who: str | None = "ada") -> Any:
    session = memory.session(session_id, user=who, agent="helper")
    await session.append([user(text, text) for text in texts])
    return session


def texts_of(leaving: ExitedMessages) -> list[str]:
    return [f"{leaving.session_id} {message.text}" for message in leaving.messages]


async def taught(memory: Memory, scope: Scope | str = ADA) -> list[str]:
    return sorted(entry.content for entry in await memory.retrieve(scope, limit=100))


async def swept(memory: Memory) -> None:
    await memory.admin.sweep()


@pytest.fixture
async def learning(config: dict[str, Any], clock: Clock) -> Any:
    async with Memory(config, clock=clock, on_window_exit=texts_of) as opened:
        yield opened


@pytest.mark.behaviour("B83", "B86")
async def test_what_a_session_taught_reaches_its_user_with_its_origin(learning: Memory) -> None:
    session = await talked(learning, "tea", "milk")
    await session.append({"role": "assistant", "content": "noted", "id": "a1"})
    report = await session.end()
    made = await learning.retrieve(ADA)
    assert await taught(learning) == ["s1 milk", "s1 noted", "s1 tea"]
    assert sorted(report.derived) == sorted(entry.id for entry in made)
    assert {(entry.conversation_id, entry.metadata["created_in_session_id"]) for entry in made} == {
        ("s1", "s1")
    }
    origin = await learning.entries.source_messages(made[0].id)
    assert [(item.message.id, item.number) for item in origin] == [("tea", 1), ("milk", 2), ("a1", 3)]
    plain = await learning.write("by hand", scope=ADA)
    assert await learning.entries.source_messages(plain.id) == []
    again = await session.end()
    assert (again.derived, again.waiting) == ([], [])
    assert len(await taught(learning)) == 4


@pytest.mark.behaviour("B52", "B83")
@pytest.mark.parametrize("asked_between", [True, False])
async def test_what_a_roll_back_took_from_a_compaction_goes_onward_once(
    learning: Memory, asked_between: bool
) -> None:
    session = await talked(learning, "tea", "milk")
    here = await session.checkpoint()
    await session.append(user("salt", "salt"))
    await session.compact(summary("sum1"), keep_last=0)
    if asked_between:
        await swept(learning)
        assert await taught(learning) == ["s1 milk", "s1 salt", "s1 tea"]
    assert await session.roll_back(here) == 1
    await session.append(user("rice", "rice"))
    await session.compact(summary("sum2"), keep_last=1)
    await session.end()
    await swept(learning)
    assert await taught(learning) == ["s1 milk", "s1 rice", *["s1 salt"][: int(asked_between)], "s1 tea"]


@pytest.mark.behaviour("B83")
async def test_what_a_compaction_took_goes_onward_behind_it_and_nothing_twice(
    config: dict[str, Any], clock: Clock
) -> None:
    left: list[tuple[list[str | None], list[int], str | None]] = []

    async def distil(leaving: ExitedMessages) -> list[Any]:
        left.append(
            (
                [m.id for m in leaving.messages],
                leaving.numbers,
                None if leaving.summary is None else leaving.summary.text,
            )
        )
        return [{"content": text, "tags": ["said"]} for text in texts_of(leaving)]

    async with Memory(config, clock=clock, on_window_exit=distil) as memory:
        session = await talked(memory, "m1", "m2", "m3")
        await session.compact(summary("sum1"), keep_last=1)
        assert left == []
        await swept(memory)
        assert left == [(["m1", "m2"], [1, 2], "so far")]
        await session.append(user("m4", "m4"))
        await session.end()
        await session.resume()
        await session.append([user("m5", "m5"), user("m6", "m6")])
        await session.compact(summary("sum2"), keep_last=1)
        await session.end()
        await swept(memory)
        assert [ids for ids, _, _ in left] == [["m1", "m2"], ["m3", "m4"], ["m5"], ["m6"]]
        assert await taught(memory) == [f"s1 m{n}" for n in range(1, 7)]


@pytest.mark.behaviour("B83")
@pytest.mark.parametrize("provider", ["buffer", "sliding window"])
async def test_what_a_provider_cuts_off_goes_onward_once_and_what_is_taken_back_not_again(
    learning: Memory, provider: str
) -> None:
    cut: Any = (
        BufferProvider(learning, max_messages=2)
        if provider == "buffer"
        else SlidingWindowProvider(learning, max_turns=1)
    )
    said = [
        {"role": role, "content": f"{role} {n}", "id": f"{role}{n}"}
        for n in range(3)
        for role in ("user", "assistant")
    ]
    for end in (2, 4, 4):
        await cut.write(said[:end], "s1")
        await swept(learning)
    (info,) = (await learning.sessions.list()).sessions
    assert await taught(learning, f"session:{info.id}") == [f"{info.id} assistant 0", f"{info.id} user 0"]
    await cut.write(said, "s1")
    session = learning.session(info.id, create=False)
    assert [message.id for message in (await session.context()).messages] == ["user2", "assistant2"]
    await session.append([user("user 0", "user0")])
    assert len((await session.end()).derived) == 4
    assert await taught(learning, f"session:{info.id}") == sorted(
        f"{info.id} {one['content']}" for one in said
    )


async def test_what_is_handed_back_without_some_lets_those_go_onward_with_their_origin(
    learning: Memory,
) -> None:
    session = await talked(learning, "tea", "milk", "honey")
    await session.replace([user("milk", "milk"), user("salt", "salt")])
    await swept(learning)
    assert await taught(learning) == ["s1 honey", "s1 tea"]
    assert [
        (one.message.id, one.excluded)
        for one in await learning.entries.source_messages((await learning.retrieve(ADA))[0].id)
    ] == [
        ("tea", "replaced"),
        ("honey", "replaced"),
    ]
    assert await session.erase("tea")
    await learning.session("s1").end()
    assert await taught(learning) == ["s1 milk", "s1 salt"], (
        "what was made of an erased message goes, with what was made beside it"
    )


async def test_what_was_excluded_cleared_or_for_the_window_only_does_not_go_onward(learning: Memory) -> None:
    session = await talked(learning, "kept", "excluded", "cleared")
    await session.exclude("excluded")
    await session.clear()
    await session.append(user("said", "said"))
    await session.append(user("hint", "hint"), in_history=False)
    await session.end()
    assert await taught(learning) == ["s1 said"]


async def test_a_callback_that_fails_is_asked_again_later_and_by_the_next_end(
    config: dict[str, Any], clock: Clock
) -> None:
    asked = 0

    def distil(leaving: ExitedMessages) -> list[str]:
        nonlocal asked
        asked += 1
        if asked < 3:
            raise ValueError("the model is away")
        return texts_of(leaving)

    async with Memory(config, clock=clock, on_window_exit=distil) as memory:
        session = await talked(memory, "tea", "excluded since")
        report = await session.end()
        assert report.derived == []
        assert report.waiting == [
            "session s1: messages that left its window are not handled yet: the model is away"
        ]
        await swept(memory)
        assert (asked, await taught(memory)) == (1, [])
        clock.advance(timedelta(minutes=2))
        await swept(memory)
        assert (asked, await taught(memory)) == (2, [])
        await session.exclude("excluded since")
        report = await session.end()
        assert (asked, len(report.derived), report.waiting) == (3, 1, [])
        assert await taught(memory) == ["s1 tea"]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (7, "returned int"),
        ({"content": ""}, "content"),
        ({"content": "x", "key": "k"}, "key"),
        ({"content": "x", "scope": "nobody"}, "scope"),
    ],
)
async def test_what_is_no_entry_is_told_and_stays_owed(clock: Clock, made: Any, said: str) -> None:
    async with Memory(
        {"tiers": dict.fromkeys(("short", "mid", "long"), "memory://"), "embedder": "none"},
        clock=clock,
        on_window_exit=lambda _: made,
    ) as memory:
        report = await (await talked(memory, "tea")).end()
        assert said in report.waiting[0]
        assert await memory.retrieve(ADA) == []


async def test_drafts_go_where_they_say_and_without_a_user_to_the_session(
    config: dict[str, Any], clock: Clock
) -> None:
    def distil(leaving: ExitedMessages) -> list[Any]:
        return [
            EntryDraft(scope=Scope.org("o1"), content="for all", expires_at=HOUR),
            {"content": "own", "metadata": {"a": 1}},
            "text",
            None,
        ]

    async with Memory(config, clock=clock, on_window_exit=distil) as memory:
        await (await talked(memory, "tea", who=None)).end()
        assert await taught(memory, "session:s1") == ["own", "text"]
        (whole,) = await memory.retrieve(Scope.org("o1"))
        assert whole.metadata == {"created_in_session_id": "s1"}
        clock.advance(2 * HOUR)
        assert await memory.retrieve(Scope.org("o1")) == []


async def test_without_onward_nothing_is_owed(memory: Memory) -> None:
    session = await talked(memory, "tea", "milk")
    await session.compact(summary("sum"), keep_last=0)
    assert (await session.end()).waiting == []
    report = await memory.admin.sweep()
    assert (report.finished, report.pending_steps) == (0, 0)


@pytest.mark.behaviour("B86")
async def test_a_fact_that_was_deleted_is_not_made_again(learning: Memory) -> None:
    session = await talked(learning, "tea")
    report = await session.end()
    await learning.delete(report.derived[0])
    await session.end()
    await swept(learning)
    assert await taught(learning) == []


async def test_a_deleted_session_takes_what_was_made_of_it_and_nothing_else(learning: Memory) -> None:
    await learning.write("by hand", scope=ADA)
    for session_id in ("s1", "s2"):
        await (await talked(learning, "tea", session_id=session_id)).end()
    assert await learning.sessions.delete("s1")
    assert await taught(learning) == ["by hand", "s2 tea"]
    await (await talked(learning, "again")).end()
    assert await taught(learning) == ["by hand", "s1 again", "s2 tea"]


async def test_a_session_deleted_while_the_callback_was_at_work_teaches_nothing(
    config: dict[str, Any], clock: Clock
) -> None:
    meanwhile: list[Callable[[], Awaitable[object]]] = []

    async def distil(leaving: ExitedMessages) -> list[str]:
        await meanwhile.pop()()
        return texts_of(leaving)

    async with Memory(config, clock=clock, on_window_exit=distil) as memory:
        session = await talked(memory, "secret")
        meanwhile.append(lambda: memory.sessions.delete("s1"))
        await session.end()
        clock.advance(HOUR)
        await swept(memory)
        assert await taught(memory) == []


def test_onward_is_a_function_or_elsewhere() -> None:
    with pytest.raises(ConfigError, match="on_window_exit"):
        Memory("memory://", on_window_exit="anywhere")  # type: ignore[arg-type]
