"""`memory.admin.reindex` and what stands around it: a memory that is not open, its
twin, a process of before beside it, exports.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memory import BlockingMemory, EmbedderMismatch, InvalidInput, Memory
from tests.support.turned import Embedder

OLD, NEW = Embedder("of yesterday"), Embedder("of today", turned=1)
USER = "user:ada"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'memory.db'}"


async def fill(memory: Memory) -> None:
    edited = await memory.write("Bo prefers tea", scope=USER)
    await memory.update(edited.id, content="Bo saw a heron")
    await memory.write("Ada prefers tea", scope=USER)
    await memory.session("s1").append([{"role": "user", "content": "tea with milk", "id": "m1"}])


async def found(memory: Memory, query: str) -> list[str]:
    return [hit.entry.content for hit in await memory.search(query, scope=USER, mode="semantic")]


async def test_a_memory_that_is_not_open_is_opened_for_it_and_closed(url: str) -> None:
    async with Memory(url, embedder=OLD) as memory:
        await fill(memory)
    memory = Memory(url, embedder=NEW)
    told: list[tuple[int, int]] = []
    came = await memory.admin.reindex(progress=lambda done, total: told.append((done, total)))
    assert "closed" in repr(memory)
    assert came.to_dict() == {
        "model": "of today (3 dimensions, cosine)",
        "ended": True,
        "made": 4,
        "left": 0,
        "waiting": [],
    }
    assert told[-1] == (4, 4)
    async with memory:
        assert await found(memory, "beverage") == ["Ada prefers tea"]
        assert [hit.message.id for hit in await memory.search_messages("beverage", mode="semantic")] == ["m1"]


def test_its_blocking_twin_does_the_same(url: str) -> None:
    with BlockingMemory(url, embedder=OLD) as memory:
        memory.write("Ada prefers tea", scope=USER)
    memory = BlockingMemory(url, embedder=NEW)
    assert memory.admin.reindex().ended
    with memory:
        assert [hit.entry.content for hit in memory.search("beverage", scope=USER)] == ["Ada prefers tea"]


async def test_it_goes_on_in_an_open_memory_while_one_of_before_is_open_beside_it(url: str) -> None:
    async with Memory(url, embedder=OLD) as before:
        await fill(before)
        memory = await Memory(url, embedder=NEW).open(reindex=True)
        try:
            await before.admin.sweep()
            assert await found(before, "beverage") == ["Ada prefers tea"]
            assert await found(memory, "beverage") == []
            await before.write("Cy prefers tea", scope=USER)
            assert (await memory.admin.reindex()).ended
            assert await found(memory, "beverage") == ["Ada prefers tea", "Cy prefers tea"]
            await before.write("Di prefers tea", scope=USER)
            assert (await memory.admin.sweep()).reindexed == 1
            assert sorted(await found(memory, "beverage")) == [
                "Ada prefers tea",
                "Cy prefers tea",
                "Di prefers tea",
            ]
        finally:
            await memory.close()
    with pytest.raises(EmbedderMismatch):
        await Memory(url, embedder=OLD).open()


async def test_an_export_made_meanwhile_is_imported_with_any_embedder_also_meanwhile(
    url: str, tmp_path: Path
) -> None:
    async with Memory(url, embedder=OLD) as memory:
        await fill(memory)
    memory = await Memory(url, embedder=NEW).open(reindex=True)
    try:
        lines = [json.dumps(line).encode() + b"\n" async for line in memory.admin.export()]
        other = f"sqlite:///{tmp_path / 'other.db'}"
        async with Memory(other, embedder=OLD) as begun:
            await begun.write("Cy prefers tea", scope=USER)
        there = await Memory(other, embedder=NEW).open(reindex=True)
        try:
            assert (await there.admin.import_(lines, same_ids=True)).imported == 2
            assert await found(there, "beverage") == ["Ada prefers tea"]
            assert (await there.admin.reindex()).ended
            assert sorted(await found(there, "beverage")) == ["Ada prefers tea", "Cy prefers tea"]
            assert [hit.message.id for hit in await there.search_messages("beverage", mode="semantic")] == [
                "m1"
            ]
        finally:
            await there.close()
    finally:
        await memory.close()


async def test_a_reindex_that_nobody_asked_for_by_a_truth_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="reindex"):
        await Memory(url, embedder=NEW).open(reindex="yes")  # type: ignore[arg-type]
