"""Vectors are made anew with another embedder on stores of every kind, while answers
are served and everybody writes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory import EmbedderMismatch, Memory
from memory.facade.runtime.access import engine_of
from memory.orchestrator.storage.collections import ENTRIES, ENTRY_PASSAGES, ENTRY_VERSIONS, MODEL, PASSAGES
from memory.ports.query import MAX_LIMIT, Everywhere, Query
from memory.ports.record import Record, Role
from tests.support.backends import marks_of
from tests.support.depth import beyond
from tests.support.long_texts import astray
from tests.support.placings import BESIDE_EDGE, ORDINARY, PGVECTOR, forget
from tests.support.turned import Embedder

PLACINGS = (
    *(p for p in ORDINARY if p.name != "in-memory"),
    *BESIDE_EDGE,
    PGVECTOR,
)
EVERYONES = {"default"}
"""Where everyone's run does it."""
OLD = Embedder("of yesterday")
NEW = {"equal": Embedder("of today", turned=1), "other": Embedder("of today", dimensions=5)}
USER, SESSION = "user:ada", "session:s1"
TEXTS = {"tea": "beverage", "A heron": "bird", "It crashed": "outage"}
"""How texts begin, and a word that means the same."""
MANY = 12
FILLING = "And so it went on from there to the next of them. "


@pytest.fixture(
    params=[
        pytest.param(
            placing,
            id=placing.name,
            marks=[*marks_of(*placing.backends), *beyond(placing.name, EVERYONES, {"redis-postgres-edge"})],
        )
        for placing in PLACINGS
    ]
)
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    yield request.param.config(tmp_path)
    forget(tmp_path)


@pytest.fixture(params=list(NEW), ids=[f"{length} dimensions" for length in NEW])
def new(request: pytest.FixtureRequest) -> Embedder:
    return NEW[request.param]


async def fill(memory: Memory) -> None:
    for scope in (USER, SESSION):
        await memory.write_many(
            [{"content": f"{text} {n}", "scope": scope} for text in TEXTS for n in range(MANY)]
        )
        await memory.write(f"It crashed. {FILLING * 50}It crashed again.", scope=scope)
    edited = await memory.write("tea, and then another text", scope=USER)
    await memory.update(edited.id, content="A heron instead")
    await memory.session("s1").append(
        [{"role": "user", "content": f"{text}, somebody said", "id": text} for text in TEXTS]
    )
    await memory.admin.sweep()


async def of_meaning(memory: Memory, word: str, scope: str) -> list[str]:
    return [hit.entry.content for hit in await memory.search(word, scope=scope, mode="semantic", limit=50)]


async def others(memory: Memory, embedder: Embedder) -> list[Record]:
    """Records whose vectors are not of this embedder."""
    engine, digest = engine_of(memory), (await embedder.fingerprint()).digest
    found: list[Record] = []
    for store in engine.topology.homes:
        for collection in (ENTRIES, ENTRY_VERSIONS, ENTRY_PASSAGES, PASSAGES):
            page = await store.query(
                Query(
                    collection,
                    Everywhere(),
                    limit=MAX_LIMIT,
                    roles=frozenset({Role.HOME, Role.REPLICA, Role.ARRIVING}),
                )
            )
            found += [
                row for row in page.records if isinstance(row, Record) and row.fields.get(MODEL) != digest
            ]
    return found


async def judged(memory: Memory, embedder: Embedder) -> None:
    assert await others(memory, embedder) == []
    assert await astray(engine_of(memory)) == []
    for text, word in TEXTS.items():
        for scope in (USER, SESSION):
            assert set(await of_meaning(memory, word, scope)) >= {f"{text} {n}" for n in range(MANY)}
            assert all(hit.startswith(text) for hit in await of_meaning(memory, word, scope))
        if engine_of(memory).conversations.passages.store is not None:
            assert [hit.message.id for hit in await memory.search_messages(word, mode="semantic")][:1] == [
                text
            ]


async def test_all_is_found_by_meaning_of_another_embedder_afterwards(
    config: dict[str, Any], new: Embedder
) -> None:
    async with Memory(config, embedder=OLD) as memory:
        await fill(memory)
        await judged(memory, OLD)
    memory = Memory(config, embedder=new)
    with pytest.raises(EmbedderMismatch):
        await memory.open()
    came = await memory.admin.reindex()
    assert (came.ended, came.left, came.waiting) == (True, 0, ())
    async with memory:
        await judged(memory, new)
        assert (await memory.search("tea", scope=USER)).degraded == ()
        assert (await memory.admin.reindex()).made == 0
    with pytest.raises(EmbedderMismatch):
        await Memory(config, embedder=OLD).open()


async def test_answers_are_served_and_writes_kept_meanwhile(config: dict[str, Any], new: Embedder) -> None:
    async with Memory(config, embedder=OLD) as memory:
        await fill(memory)
        erased = await memory.write("tea that is erased", scope=USER)
        changed = await memory.write("tea that is changed", scope=USER)
        moved = await memory.write("tea that moves", scope=SESSION)
    memory = Memory(config, embedder=new)
    await memory.open(reindex=True)
    try:
        work = asyncio.create_task(memory.admin.reindex())
        rounds = 0
        while not work.done() or rounds < 2:
            for text, word in TEXTS.items():
                assert all(hit.startswith(text) for hit in await of_meaning(memory, word, USER))
                hits = await memory.search(text, scope=USER, limit=50)
                assert {hit.entry.content for hit in hits} >= {f"{text} {n}" for n in range(MANY)}
            if rounds == 0:
                await memory.delete(erased.id)
                await memory.update(changed.id, content="A heron, as it says now")
                await memory.write("tea meanwhile", scope=USER)
                await memory.admin.move([moved.id], "long")
            rounds += 1
        assert (await work).ended
        await memory.admin.sweep()  # of a write that was under way at its end
        await judged(memory, new)
        assert "tea meanwhile" in await of_meaning(memory, "beverage", USER)
        assert "A heron, as it says now" in await of_meaning(memory, "bird", USER)
        assert "tea that moves" in await of_meaning(memory, "beverage", SESSION)
        assert "tea that is erased" not in {
            hit.entry.content for hit in await memory.search("tea erased", scope=USER, limit=50)
        }
    finally:
        await memory.close()
