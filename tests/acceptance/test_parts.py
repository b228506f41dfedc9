"""Large texts of messages under a quota of `artifact_bytes`: theirs alone, counted with
artifacts, refused by name, returned when they go. On every topology.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from memory import Memory, Message, NotFound, QuotaExceeded
from memory.facade.runtime.access import engine_of
from memory.orchestrator.storage.collections import ARTIFACTS, MESSAGES
from memory.orchestrator.storage.topology import leaves_of
from memory.ports.query import Query, Tenant
from tests.acceptance.conftest import keeping_bytes
from tests.acceptance.support import DAY, HOUR, Clock
from tests.acceptance.talking import window
from tests.support.reserved import assert_reserved
from tests.unit.orchestrator.conversations.large import unsound

MOST = 1_000_000
PART = 300_000

config = keeping_bytes("redis-only")


@pytest.fixture
async def memory(config: dict[str, Any], clock: Clock) -> AsyncIterator[Memory]:
    """With a quota. Whatever a test does: in the end all that is reserved is what
    stands.
    """
    async with Memory(
        config, clock=clock, quotas=[{"name": "files", "per": "tenant", "artifact_bytes": MOST}]
    ) as opened:
        yield opened
        engine = engine_of(opened)
        assert [
            problem for leaf in leaves_of(engine.topology.archive) for problem in await unsound(leaf)
        ] == []
        await assert_reserved(engine, opened.tenant)


def user(said: Any, message_id: str | None = None) -> Message:
    return Message(id=message_id, role="user", content=said)


def part(word: str, size: int = PART) -> str:
    """Of so many bytes, no two stretches alike."""
    return "".join([f"{word}{number} " for number in range(size // 2)])[:size]


async def reserved(memory: Memory) -> int:
    return await engine_of(memory).conversations.reservations.used_bytes(memory.tenant)


async def stored(memory: Memory) -> list[int]:
    """How many chunks stand, and events of logs."""
    archive = engine_of(memory).topology.archive
    return [
        len((await archive.query(Query(kind, Tenant(memory.tenant), limit=500))).records)
        for kind in (ARTIFACTS, MESSAGES)
    ]


async def test_parts_count_with_artifacts_until_their_message_is_erased(memory: Memory) -> None:
    session = memory.session("s1")
    await session.append(
        [
            user(part("a"), "u1"),
            user("short", "u2"),
            user([{"type": "text", "text": part("b")}, {"type": "text", "text": "c"}], "u3"),
        ]
    )
    assert await reserved(memory) == 2 * PART
    file = await memory.artifacts.put("s1", "out.txt", b"x" * PART)
    assert await reserved(memory) == 3 * PART
    assert (await memory.artifacts.list("s1")).artifacts == [file], "parts have no path, and are not listed"
    with pytest.raises(QuotaExceeded, match="'files'"):
        await memory.artifacts.put("s1", "other.txt", b"x" * PART)
    assert await session.erase("u1")
    assert await reserved(memory) == 2 * PART
    await memory.artifacts.put("s1", "other.txt", b"x" * PART)
    assert await memory.artifacts.delete(file.id)
    assert await session.erase("u3")
    assert await reserved(memory) == PART
    assert await session.delete()
    assert await reserved(memory) == 0


async def test_a_message_without_room_is_refused_by_name_and_nothing_of_it_is_stored(memory: Memory) -> None:
    session = memory.session("s1")
    await session.append([user(part("a", 2 * PART), "u1")])
    before = await stored(memory)
    with pytest.raises(
        QuotaExceeded, match=r"'files': tenant '.*' holds 600,000 of at most 1,000,000 bytes of artifacts"
    ) as refused:
        await session.append([user("short", "u2"), user(part("b"), "u3"), user(part("c"), "u4")])
    assert (refused.value.held, refused.value.asked) == (2 * PART, 2 * PART)
    assert await stored(memory) == before
    assert await reserved(memory) == 2 * PART
    assert await window(session) == ["u1"]
    await session.append([user("short", "u2"), user(part("b"), "u3")])
    outcomes = await asyncio.gather(
        *(memory.session(f"s{n}").append(user(part("d", 90_000))) for n in range(2, 5)),
        return_exceptions=True,
    )
    assert sorted(type(outcome).__name__ for outcome in outcomes) == [
        "QuotaExceeded",
        "QuotaExceeded",
        "list",
    ]
    assert await reserved(memory) == 3 * PART + 90_000
    async with memory.for_tenant("another") as another:
        await another.session("s1").append(user(part("theirs", 3 * PART)))
        assert await reserved(another) == 3 * PART
        await assert_reserved(engine_of(another), another.tenant)


async def test_what_a_message_is_changed_to_counts_and_is_not_refused(memory: Memory, clock: Clock) -> None:
    session = memory.session("s1")
    await session.append([user(part("a", 3 * PART), "u1")])
    await session.update("u1", content=part("b", 3 * PART))
    assert await reserved(memory) == 3 * PART
    await session.append(user(part("b", 3 * PART)[:600_000], "u1"))
    assert await reserved(memory) == 600_000, "of what is left of it as much counts as is left"
    await session.update("u1", content="short")
    assert await reserved(memory) == 0
    async with session.stream(message_id="a1") as out:
        for word in ("one", "two", "three", "four"):
            await out.write(part(word))
            clock.advance(HOUR)
    assert await reserved(memory) == 4 * PART, "a stream comes to its end"
    with pytest.raises(QuotaExceeded):
        await session.append(user(part("c", 70_000)))
    assert await session.erase("a1")
    assert await reserved(memory) == 0


async def test_a_fork_counts_what_it_copies(memory: Memory) -> None:
    session = memory.session("s1")
    await session.append([user(part("a"), "u1"), user("short", "u2")])
    fork = await session.fork(session_id="s2")
    assert await reserved(memory) == 2 * PART
    await fork.append(user(part("b"), "u3"))
    with pytest.raises(QuotaExceeded, match="'files'"):
        await fork.fork(session_id="s3")
    assert await memory.sessions.get("s3") is None
    with pytest.raises(NotFound):
        await memory.session("s3", create=False).context()
    assert await session.delete()
    assert await reserved(memory) == 2 * PART
    assert [message.text for message in (await fork.context()).messages] == [part("a"), "short", part("b")]
    assert await fork.erase("u1")
    assert await (await fork.fork(session_id="s3")).info() is not None
    assert await reserved(memory) == 2 * PART


async def test_what_a_user_an_expired_session_or_a_tenant_had_is_returned(
    memory: Memory, clock: Clock
) -> None:
    await memory.session("s1", user="ada").append(user(part("a")))
    shared = memory.session("s2")
    await shared.append([{"role": "user", "name": "ada", "content": part("b")}, user(part("c"), "u2")])
    assert await reserved(memory) == 3 * PART
    await memory.admin.erase_user("ada")
    assert await reserved(memory) == PART
    await memory.sessions.create("s3", expires_at=DAY)
    await memory.session("s3").append(user(part("d")))
    clock.advance(2 * DAY)
    await memory.admin.sweep()
    assert await reserved(memory) == PART
    await shared.compact(lambda messages: messages[0].text, keep_last=0)
    assert await reserved(memory) == 2 * PART
    assert await shared.erase("u2")
    assert await reserved(memory) == 0, "the summary went with it"
    await shared.append(user(part("e")))
    await memory.admin.erase_tenant()
    assert await reserved(memory) == 0


async def test_an_import_counts_what_it_brings_and_stops_where_there_is_no_room(memory: Memory) -> None:
    session = memory.session("s1")
    await session.append([user(part("a"), "u1"), user(part("b"), "u2"), user(part("c"), "u3")])
    lines = [line async for line in memory.admin.export()]
    async with memory.for_tenant("another") as another:
        await another.session("s9").append(user(part("x"), "u1"))
        with pytest.raises(
            QuotaExceeded,
            match=(
                r"'files'.* 1 of 10 lines of 'import' are imported; the rest begins at line 2. .*, and import"
                r" the same file again"
            ),
        ) as refused:
            await another.admin.import_(lines)
        assert (refused.value.imported, refused.value.held, refused.value.asked) == ("import", 3 * PART, PART)
        assert "nothing was written" not in str(refused.value)
        assert [message.id for message in (await another.session("s1").context()).messages] == ["u1", "u2"]
        assert await reserved(another) == 3 * PART
        assert await another.session("s9").delete()
        await another.admin.import_(lines)
        assert await reserved(another) == 3 * PART
        assert [message.text for message in (await another.session("s1").context()).messages] == [
            part("a"),
            part("b"),
            part("c"),
        ]
        await assert_reserved(engine_of(another), another.tenant)
