"""Messages that hold large things (images, files, long results): given back whole,
changed, carried and erased as any other, on every topology.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any

import pytest

from memory import Memory
from memory.facade.runtime.access import engine_of
from memory.facade.transfer.importer import BadFile
from memory.formats import export_messages
from memory.orchestrator.storage.topology import leaves_of
from tests.acceptance.conftest import keeping_bytes
from tests.acceptance.support import HOUR, Clock
from tests.acceptance.talking import assistant, user, window
from tests.unit.orchestrator.conversations.large import everything, large, unsound

IMAGE = b64encode(bytes(range(256)) * 3_000).decode()
"""1 MB of base64."""


config = keeping_bytes("redis-only")


@pytest.fixture(autouse=True)
async def _sound(memory: Memory) -> AsyncIterator[None]:
    """Whatever a test does: what is named is there, and nothing else."""
    yield
    archive = engine_of(memory).topology.archive
    assert [problem for leaf in leaves_of(archive) for problem in await unsound(leaf)] == []


async def stored(memory: Memory) -> str:
    return await everything(
        *[leaf for store in engine_of(memory).topology.homes for leaf in leaves_of(store)]
    )


OPENAI = {
    "role": "user",
    "content": [
        {"type": "text", "text": "what is this?"},
        {"type": "image_url", "image_url": {"url": IMAGE}},
    ],
}
ANTHROPIC = {
    "role": "user",
    "content": [
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": IMAGE}},
        {"type": "text", "text": "read it"},
    ],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": large("räksmörgås", 150_000)}
OURS = {
    "role": "assistant",
    "content": "well",
    "metadata": {"trace": [large("step")]},
    "unknown": {"blob": large("x")},
}


async def test_every_shape_is_given_back_as_it_came(memory: Memory) -> None:
    session = memory.session("s1")
    call = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c1", "name": "look", "arguments": f'{{"at": "{large("y")}"}}'}],
    }
    said = [await session.append(one) for one in (OPENAI, call, RESULT, ANTHROPIC, OURS)]
    stored = [message for messages in said for message in messages]
    for handle in (session, memory.session("s1", create=False)):
        assert (await handle.context()).messages == stored
        assert [item.message for item in (await handle.history()).items] == stored
        assert [export_messages([stored[at]], shape) for at, shape in ((0, "openai"), (3, "anthropic"))] == [
            [OPENAI],
            [ANTHROPIC],
        ]
        assert export_messages(stored[4:], "plain") == [{**OURS, "id": stored[4].id}]
    assert [message.text for message in (await session.context(budget=40)).messages] == ["read it"]


async def test_it_is_found_by_how_it_begins(memory: Memory) -> None:
    session = memory.session("s1", user="ada")
    await session.append([user("a heron " + large("nest"), "u1"), user("something else", "u2")])
    (hit,) = await session.search("heron")
    assert hit.message.text == "a heron " + large("nest")
    assert [hit.message.id for hit in await memory.search_messages("heron")] == ["u1"]
    (info,) = (await memory.sessions.list()).sessions
    assert info.preview is not None
    assert info.preview.startswith("a heron nest nest")


async def test_it_is_changed_and_erased_as_any_other(memory: Memory) -> None:
    session = memory.session("s1")
    await session.append([user(large("nest"), "u1"), user(large("reed"), "u2"), assistant("short", "a1")])
    await session.update("u1", content=large("heron", 400_000))
    await session.append(assistant("short" + large("owl"), "a1"))
    assert [message.text for message in (await session.context()).messages] == [
        large("heron", 400_000),
        large("reed"),
        "short" + large("owl"),
    ]
    assert "nest" not in await stored(memory)
    assert await session.erase("u1")
    assert await session.exclude("u2")
    await session.append(user(large("reed"), "u2"))
    assert await window(session) == ["u2", "a1"]
    assert "heron" not in await stored(memory)
    assert await session.delete()
    assert await stored(memory) == ""


async def test_a_stream_may_grow_large(memory: Memory, clock: Clock) -> None:
    session, said = memory.session("s1"), ""
    async with session.stream(message_id="a1") as out:
        for word in ("one", "two", "three", "four", "five"):
            await out.write(piece := large(word, 120_000))
            said += piece
            clock.advance(HOUR)
            assert (await memory.session("s1").context()).messages[-1].text == said
    (message,) = (await session.context()).messages
    assert (message.text, message.is_final) == (said, True)


async def test_a_fork_and_a_compaction_have_all_of_it(memory: Memory) -> None:
    session = memory.session("s1")
    await session.append([user(large("nest"), "u1"), user("short", "u2")])
    fork = await session.fork(session_id="s2")
    made = await session.compact(lambda messages: "all: " + messages[0].text, keep_last=1)
    assert made.summary.text == "all: " + large("nest") == (await session.compactions())[0].summary.text
    assert (await session.context()).messages[0].text == made.summary.text
    assert await session.delete()
    assert [message.text for message in (await fork.context()).messages] == [large("nest"), "short"]


async def told(memory: Memory) -> None:
    session = memory.session("s1", user="ada")
    await session.append([OPENAI, user("short", "u2"), user(large("nest", 700_000), "u3")])
    await session.compact(lambda _: large("summary"), keep_last=1)
    await session.update("u3", content=large("heron", 600_000))


async def seen(memory: Memory) -> list[Any]:
    session = memory.session("s1", create=False)
    return [
        (await session.context()).to_dict(),
        (await session.history()).to_dict(),
        [made.summary for made in await session.compactions()],
    ]


@pytest.mark.parametrize("same_ids", [True, False])
async def test_exports_and_imports_carry_it(memory: Memory, other: Memory, same_ids: bool) -> None:
    await told(memory)
    lines = [line async for line in memory.admin.export()]
    assert max(len(str(line)) for line in lines) < 600_000
    for _ in range(2):
        report = await other.admin.import_(lines, same_ids=same_ids)
        assert report.refused_lines == []
        assert await seen(other) == await seen(memory)
        assert await unsound(engine_of(other).topology.archive) == []
    assert report.events == 0
    await memory.session("s1").delete()
    await memory.admin.import_(lines)
    assert await memory.sessions.get("s1") is None
    assert await stored(memory) == ""


async def test_what_an_export_lacks_is_refused_and_not_made_up(memory: Memory, other: Memory) -> None:
    await told(memory)
    lines = [line async for line in memory.admin.export()]
    chunk = next(at for at, line in enumerate(lines) if line.get("kind") == "artifacts")
    report = await other.admin.import_([line for at, line in enumerate(lines) if at != chunk])
    assert len(report.refused_lines) == 1
    assert "artifacts: 1 of their chunks do not come before it in this file" in report.problems[0]
    damaged = [
        {**line, "fields": {**line["fields"], "data": b64encode(b"another").decode()}}
        if at == chunk
        else line
        for at, line in enumerate(lines)
    ]
    with pytest.raises(BadFile, match="data: does not match its digest"):
        await other.admin.import_(damaged)
    assert await unsound(engine_of(other).topology.archive) == []
