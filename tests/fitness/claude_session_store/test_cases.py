"""What a demanding user asks of a store of Claude transcripts."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any, cast

import pytest
from claude_agent_sdk import SessionKey

from memory import Memory, Session, SessionOwnerMismatch, StoreUnavailable
from tests.fitness.claude_session_store.adapter import MemorySessionStore
from tests.fitness.suites import memory, shared_memory
from tests.support.conversations import drawn

__all__ = ["memory", "shared_memory"]
KEY: SessionKey = {"project_key": "proj", "session_id": "sess"}
SUB: SessionKey = {**KEY, "subpath": "subagents/agent-1"}


def lines(seed: int) -> list[Any]:
    return drawn("claude", seed).items


async def test_transcripts_are_loaded_equal_however_they_are_cut(memory: Memory) -> None:
    store = MemorySessionStore(memory)
    for seed in range(10):
        key: SessionKey = {"project_key": "proj", "session_id": f"s{seed}"}
        given, start, draw = lines(seed), 0, random.Random(seed)  # noqa: S311
        while start < len(given):
            size = draw.randint(1, 5)
            await store.append(key, given[start : start + size])
            start += size
        assert await store.load(key) == given


async def test_lines_that_share_a_uuid_are_all_kept_and_a_repeat_adds_none(memory: Memory) -> None:
    store = MemorySessionStore(memory)
    shared: list[Any] = [
        {"type": "attachment", "uuid": "u1", "hook": "SessionStart", "content": f"context {number}"}
        for number in range(300)
    ]
    shared += [shared[7], shared[7]]
    for _ in range(2):
        await store.append(KEY, shared)
        assert await store.load(KEY) == shared
    more: list[Any] = [{**shared[0], "content": "later"}, {"type": "user", "uuid": "u2"}]
    await store.append(KEY, more)
    await store.append(KEY, more[1:])
    assert await store.load(KEY) == shared + more


async def test_lines_without_a_uuid_are_added_each_time(memory: Memory) -> None:
    store, line = MemorySessionStore(memory), cast(Any, {"type": "mode", "mode": "plan"})
    await store.append(KEY, [line, line])
    await store.append(KEY, [line])
    assert await store.load(KEY) == [line] * 3


@pytest.mark.parametrize("after", [True, False], ids=["stored", "not stored"])
async def test_a_batch_that_failed_is_sent_again_and_stored_once(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    store, given = (
        MemorySessionStore(memory),
        cast(Any, [{"type": "mode", "n": 1}, {"type": "user", "uuid": "u"}]),
    )
    await store.append(KEY, given)
    append, fails = Session.append, [True, True]

    async def unsteady(self: Session, *arguments: Any, **named: Any) -> Any:
        if fails:
            fails.pop()
            if after:
                await append(self, *arguments, **named)
            raise StoreUnavailable("mid", "the answer was lost")
        return await append(self, *arguments, **named)

    monkeypatch.setattr(Session, "append", unsteady)
    more: list[Any] = [
        {"type": "mode", "n": 1},
        {"type": "user", "uuid": "v"},
        {"type": "title", "customTitle": "T"},
    ]
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await store.append(KEY, more)
    await store.append(KEY, more)
    assert await store.load(KEY) == given + more
    await store.append(KEY, [given[0]])
    assert await store.load(KEY) == [*given, *more, given[0]]


OPAQUE: list[Any] = [
    {"type": "user", "uuid": "1", "message": {"role": "user", "content": [{}]}},
    {"type": "user", "message": {"role": "user", "content": [{"type": "tool_result", "content": "no id"}]}},
    {"type": "assistant", "message": "text"},
    {"type": "user", "message": {"role": "user", "content": 7}},
    {"type": "x", "id": "1", "data": {"a": [1, 2.5, None, True, "\u00fc\U0001f600"]}},
    {"type": "user", "toolUseResult": json.loads("[" * 200 + "]" * 200)},
    {"type": "memory-tiers/line", "line": "not ours"},
    {"type": "deep", "texts": ["y" * 60_000] * 40},
    {"type": "user", "uuid": "u" * 600, "message": {"role": "user", "content": "A" * 3_000_000}},
]


@pytest.mark.parametrize("line", OPAQUE, ids=lambda line: str(line)[:40])
async def test_any_line_is_kept(memory: Memory, line: Any) -> None:
    store = MemorySessionStore(memory)
    given = [*lines(1), line, *lines(2)]
    await store.append(KEY, given)
    assert await store.load(KEY) == given


async def test_long_transcripts(memory: Memory) -> None:
    store = MemorySessionStore(memory)
    given: list[Any] = [
        {"type": "user", "uuid": f"u{n}", "message": {"role": "user", "content": f"say {n}"}}
        for n in range(1_300)
    ]
    await store.append(KEY, given)
    assert await store.load(KEY) == given


ODD = ["a/b", "a%2Fb", "a", "..", "ü ñ", "x" * 600, "x" * 601, "claude/proj", "*"]


async def test_odd_keys_are_keys_of_their_own(memory: Memory) -> None:
    store = MemorySessionStore(memory)
    keys = [
        cast(SessionKey, {"project_key": project, "session_id": session} | ({"subpath": sub} if sub else {}))
        for project in ODD[:6]
        for session in ("s", "s/t", "y" * 500)
        for sub in ("", "t", "subagents/" + "z" * 500)
    ]
    for number, key in enumerate(keys):
        await store.append(key, [cast(Any, {"type": "x", "n": number})])
    for number, key in enumerate(keys):
        assert await store.load(key) == [{"type": "x", "n": number}]
    for project in ODD[:6]:
        listed = await store.list_sessions(project)
        assert sorted(one["session_id"] for one in listed) == ["s", "s/t", "y" * 500]
        assert await store.list_subkeys({"project_key": project, "session_id": "s"}) == [
            "subagents/" + "z" * 500,
            "t",
        ]


async def test_a_deleted_transcript_may_begin_anew(memory: Memory) -> None:
    store = MemorySessionStore(memory)
    for turn in range(3):
        given: list[Any] = [{"type": "user", "uuid": "u", "customTitle": f"turn {turn}"}]
        await store.append(KEY, given)
        await store.append(SUB, given)
        assert await store.load(KEY) == await store.load(SUB) == given
        (summary,) = await store.list_session_summaries("proj")
        assert summary["data"]["custom_title"] == f"turn {turn}"
        await store.delete(KEY)
        assert (await store.load(KEY), await store.load(SUB), await store.list_session_summaries("proj")) == (
            None,
            None,
            [],
        )


async def test_tenants_and_users_are_apart_and_a_user_is_erased(memory: Memory) -> None:
    ada, bob = (MemorySessionStore(memory, user=name) for name in ("ada", "bob"))
    other = MemorySessionStore(memory.for_tenant("other"), user="bob")
    line: Any = {"type": "user", "uuid": "u", "message": {"role": "user", "content": "I live in Porto"}}
    await ada.append(KEY, [line])
    with pytest.raises(SessionOwnerMismatch):
        await bob.append(KEY, [line])
    with pytest.raises(SessionOwnerMismatch):
        await bob.load(KEY)
    assert (await bob.list_sessions("proj"), await other.load(KEY), len(await ada.list_sessions("proj"))) == (
        [],
        None,
        1,
    )
    assert len(await memory.search_messages("Porto", user="ada")) == 1
    await memory.admin.erase_user("ada")
    assert (
        await ada.load(KEY),
        await ada.list_sessions("proj"),
        await ada.list_session_summaries("proj"),
    ) == (None, [], [])


def test_writers_at_once_lose_no_line_and_no_title(config: dict[str, Any]) -> None:
    memory = Memory(config, loop="own")

    def mirror(writer: int) -> None:
        async def append() -> None:
            store = MemorySessionStore(memory)
            for n in range(8):
                await store.append(
                    KEY,
                    [
                        cast(
                            Any,
                            {
                                "type": "user",
                                "uuid": f"{writer}.{n}",
                                ("customTitle", "aiTitle", "tag", "gitBranch")[writer]: "x",
                            },
                        )
                    ],
                )

        asyncio.run(append())

    async def check() -> None:
        async with memory:
            await asyncio.gather(*(asyncio.to_thread(mirror, writer) for writer in range(4)))
            store = MemorySessionStore(memory)
            found: Any = await store.load(KEY)
            for writer in range(4):
                assert [one["uuid"] for one in found if one["uuid"][0] == str(writer)] == [
                    f"{writer}.{n}" for n in range(8)
                ]
            (summary,) = await store.list_session_summaries("proj")
            assert {"custom_title", "ai_title", "git_branch"} <= summary["data"].keys()

    asyncio.run(check())


async def test_a_store_opened_again_has_all_of_it(config: dict[str, Any]) -> None:
    for seed in range(3):
        async with Memory(config) as memory:
            await MemorySessionStore(memory).append(KEY, lines(seed))
    async with Memory(config) as memory:
        store = MemorySessionStore(memory)
        assert await store.load(KEY) == [line for seed in range(3) for line in lines(seed)]
        assert len(await store.list_session_summaries("proj")) == 1
