"""Messages by meaning at the facade: how they are asked for, where that is set, and
that they are made ready behind what is said.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, Literal

import pytest

from memory import (
    BlockingMemory,
    ConfigError,
    FoundEntry,
    FoundMessage,
    InvalidInput,
    Memory,
    SemanticProvider,
)
from memory.facade.config.settings import MemoryConfig, load
from memory.facade.runtime.access import engine_of

TEA = {"role": "user", "content": "Ada prefers tea with milk", "id": "m1"}
FERRY = {"role": "user", "content": "The ferry left the harbour", "id": "m2"}
DRINK = "favourite hot beverage"


def placed(folder: Path, **settings: Any) -> dict[str, Any]:
    return {"tiers": dict.fromkeys(("short", "mid", "long"), f"sqlite:///{folder / 'memory.db'}"), **settings}


async def found(memory: Memory, **asked: Any) -> list[str]:
    return [str(hit.message.id) for hit in await memory.search_messages(DRINK, **asked)]


async def test_what_one_process_says_another_finds_by_meaning_once_it_is_quiet(tmp_path: Path) -> None:
    async with Memory(placed(tmp_path)) as memory, Memory(placed(tmp_path)) as other:
        await memory.session("s1").append([TEA, FERRY])
        deadline = time.monotonic() + 30
        while await found(other, mode="semantic", limit=1) != ["m1"]:
            assert time.monotonic() < deadline, "nobody made it ready"
            await asyncio.sleep(0.05)


async def test_with_no_maintenance_by_itself_it_waits_for_a_search_here_a_sweep_or_the_close(
    tmp_path: Path,
) -> None:
    still = placed(tmp_path, durations={"sweep_every": "0s"})
    async with Memory(still) as other:
        async with Memory(still) as memory:
            session = memory.session("s1")
            await session.append(FERRY)
            assert [
                hit.message.id for hit in await session.search("a boat at sea", mode="semantic", limit=1)
            ] == ["m2"]
            await session.append(TEA)
            assert await found(other, mode="semantic", limit=1) != ["m1"]
        assert await found(other, mode="semantic", limit=1) == ["m1"]


async def test_a_search_says_by_which_way(tmp_path: Path) -> None:
    async with Memory(placed(tmp_path)) as memory:
        session = memory.session("s1", user="ada")
        await session.append([TEA, FERRY])
        assert (await found(memory))[:1] == (await found(memory, mode="semantic"))[:1] == ["m1"]
        assert await found(memory, mode="lexical") == []
        assert await found(memory, user="bob") == []
        assert (await memory.search_messages(DRINK)).degraded == ()
        for asked in ("nearness", "", None, 7):
            with pytest.raises(InvalidInput, match="mode"):
                await session.search(DRINK, mode=asked)  # type: ignore[arg-type]
            with pytest.raises(InvalidInput, match="mode"):
                await memory.search_messages(DRINK, mode=asked)  # type: ignore[arg-type]
        assert list(await session.search("  ")) == list(await session.search("", mode="semantic")) == []


async def test_a_search_finds_entries_and_messages_by_meaning_in_one_order(tmp_path: Path) -> None:
    async with Memory(placed(tmp_path)) as memory:
        await memory.session("s1", user="ada").append([TEA, FERRY])
        await memory.write("A warm cup of cocoa at night", scope="user:ada")
        await memory.write("The budget of next year", scope="user:ada")
        ways: tuple[Literal["hybrid", "semantic"], ...] = ("hybrid", "semantic")
        for mode in ways:
            hits = await memory.search(DRINK, scope="user:ada", messages=True, mode=mode, limit=2)
            assert {type(hit) for hit in hits} == {FoundEntry, FoundMessage}
            assert {
                hit.entry.content if isinstance(hit, FoundEntry) else hit.message.text for hit in hits
            } == {
                "A warm cup of cocoa at night",
                TEA["content"],
            }
        hits = await memory.search(
            "the ferry in the harbour", scope="user:ada", messages=True, min_relevance=0.5
        )
        assert all(isinstance(hit, FoundMessage) for hit in hits), "entries about something else are left out"
        assert max(hits, key=lambda hit: hit.relevance or 0).id == hits[0].id == "m2"


async def test_what_was_said_before_is_made_ready_when_asked_for(tmp_path: Path) -> None:
    async with Memory(placed(tmp_path, conversations={"meaning": "off"})) as memory:
        await memory.session("s1").append([TEA, FERRY])
        with pytest.raises(ConfigError, match=r"conversations\.meaning is 'off'"):
            await memory.admin.embed_messages()
        with pytest.raises(InvalidInput, match=r"conversations\.meaning is 'off'"):
            await found(memory, mode="semantic")
        assert await found(memory) == []
    async with Memory(placed(tmp_path)) as memory:
        assert await memory.admin.embed_messages() == 2
        assert await found(memory, mode="semantic", limit=1) == ["m1"]


async def test_what_is_exported_is_found_by_meaning_where_it_is_imported(tmp_path: Path) -> None:
    for name in ("there", "here"):
        (tmp_path / name).mkdir()
    async with Memory(placed(tmp_path / "there")) as memory:
        await memory.session("s1").append([TEA, FERRY])
        assert await found(memory, limit=1) == ["m1"]
        lines = [line async for line in memory.admin.export()]
    async with Memory(placed(tmp_path / "here")) as memory:
        await memory.admin.import_(lines)
        assert await found(memory, mode="semantic", limit=1) == ["m1"]
        assert await engine_of(memory).maintenance.count_pending() == 0


async def test_a_semantic_provider_finds_what_has_no_word_in_common(tmp_path: Path) -> None:
    async with Memory(placed(tmp_path)) as memory:
        provider = SemanticProvider(memory, last=1, found=1)
        await provider.write([TEA, FERRY, {"role": "user", "content": "well"}])
        assert [message.text for message in await provider.read(query=DRINK)] == [TEA["content"], "well"]


def test_the_blocking_twin_finds_them_too(tmp_path: Path) -> None:
    with BlockingMemory(placed(tmp_path)) as memory:
        memory.session("s1").append([TEA, FERRY])
        assert [hit.message.id for hit in memory.search_messages(DRINK, mode="semantic", limit=1)] == ["m1"]
        assert [hit.message.id for hit in memory.session("s1").search(DRINK, mode="semantic", limit=1)] == [
            "m1"
        ]
        (found,) = memory.search(DRINK, scope="session:s1", messages=True, limit=1)
        assert isinstance(found, FoundMessage)
        assert found.message.id == "m1"


def test_where_it_is_kept_is_set_like_everything_else(tmp_path: Path) -> None:
    assert MemoryConfig().leaves()["conversations.meaning"] == "home"
    config = load(environ={"MEMORY__CONVERSATIONS__MEANING": "long"}, folder=tmp_path)
    assert (config.conversations.meaning, config.origins["conversations.meaning"]) == (
        "long",
        "MEMORY__CONVERSATIONS__MEANING",
    )
    with pytest.raises(ConfigError, match=r"conversations\.meaning"):
        MemoryConfig(conversations={"meaning": "everywhere"})
    with pytest.raises(ConfigError, match=r"there is no setting 'meanings'.*did you mean 'meaning'"):
        MemoryConfig(conversations={"meanings": "home"})
