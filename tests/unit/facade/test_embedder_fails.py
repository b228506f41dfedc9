"""An embedder of the user that fails or never returns: words still answer, and nothing
is written unseen.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from memory import EmbedderTimeout, Memory
from memory.adapters.embedders.function import FunctionEmbedder

ADA = "user:ada"
NOTE = "the embedder failed (ConnectionError): the search was by words alone"
LATE = "the embedder did not return in time: the search was by words alone"
SHORT = {"embedding": "50ms", "sweep_every": "0s"}


class Model:
    """An embedder that can be away."""

    away = False

    async def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        if self.away:
            raise ConnectionError("https://key@models.example")
        return [[1.0, float(len(text))] for text in texts]


async def test_a_hybrid_search_finds_by_words_while_the_embedder_fails() -> None:
    model = Model()
    async with Memory("memory://", accept_loss=True, embedder=model) as memory:
        await memory.write("Ada drinks tea", scope=ADA)
        session = memory.session("ada/s1", user="ada")
        model.away = True
        await session.append({"role": "user", "content": "Is there more tea?"})
        hits = await memory.search("tea", scope=ADA)
        assert ([hit.content for hit in hits], list(hits.degraded)) == (["Ada drinks tea"], [NOTE])
        both = await memory.search("tea", scope=ADA, messages=True)
        assert (len(both), list(both.degraded)) == (2, [NOTE])
        found = await memory.search_messages("tea")
        assert (len(found), list(found.degraded)) == (1, [NOTE])
        context = await session.context(100, recall="tea")
        assert "Ada drinks tea" in context.messages[0].text
        assert (await memory.commands.run("/mem search tea", scope=ADA))[0].is_error is False
        model.away = False
        assert list((await memory.search("tea", scope=ADA)).degraded) == []


async def test_what_needs_a_vector_raises_the_error_of_the_embedder() -> None:
    model = Model()
    async with Memory("memory://", accept_loss=True, embedder=model) as memory:
        await memory.write("Ada drinks tea", scope=ADA)
        model.away = True
        for call in (
            memory.search("tea", scope=ADA, mode="semantic"),
            memory.search_messages("tea", mode="semantic"),
            memory.write("Ada drinks coffee", scope=ADA),
        ):
            with pytest.raises(ConnectionError):
                await call
        assert [entry.content for entry in await memory.browse()] == ["Ada drinks tea"]


class HangingModel:
    """An embedder that can be made never to return, in a thread or on the loop."""

    hangs = False

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        if self.hangs:
            await asyncio.Event().wait()
        return [[1.0, float(len(text))] for text in texts]

    def embed_blocking(self, texts: Sequence[str]) -> list[list[float]]:
        if self.hangs:
            threading.Event().wait()
        return [[1.0, float(len(text))] for text in texts]


@pytest.mark.parametrize("blocks", [False, True], ids=["on the loop", "in a thread"])
async def test_no_call_waits_for_ever_for_an_embedder_that_never_returns(
    blocks: bool, tmp_path: Path
) -> None:
    model, file = HangingModel(), tmp_path / "memory.db"
    embedder = FunctionEmbedder(model.embed_blocking if blocks else model.embed, model="m")
    async with Memory(file, embedder=embedder) as memory:
        entry = await memory.write("Ada drinks tea", scope=ADA)
    model.hangs = True
    async with Memory(file, embedder=embedder, durations=SHORT) as memory:
        session = memory.session("ada/s1", user="ada")
        await session.append({"role": "user", "content": "Is there more tea?"})
        hits = await memory.search("tea", scope=ADA)
        assert ([hit.content for hit in hits], list(hits.degraded)) == (["Ada drinks tea"], [LATE])
        found = await memory.search_messages("tea")
        assert (len(found), list(found.degraded)) == (1, [LATE])
        for call in (
            memory.search("tea", scope=ADA, mode="semantic"),
            memory.write("Ada drinks coffee", scope=ADA),
            memory.update(entry.id, content="Ada drinks coffee"),
        ):
            with pytest.raises(EmbedderTimeout, match=r"durations\.embedding"):
                await call
        await memory.admin.sweep()
        await session.append({"role": "user", "content": "Is there any coffee?"})  # closing tries to embed it
    model.hangs = False
    async with Memory(file, embedder=embedder) as memory:
        assert [one.content for one in await memory.browse()] == ["Ada drinks tea"]
        assert list((await memory.search("tea", scope=ADA)).degraded) == []
        await memory.admin.sweep()
        assert len(await memory.search_messages("coffee", mode="semantic")) == 2


async def test_a_memory_whose_embedder_never_returns_does_not_open() -> None:
    model = HangingModel()
    model.hangs = True
    memory = Memory("memory://", accept_loss=True, embedder=model.embed, durations=SHORT)
    with pytest.raises(EmbedderTimeout):
        await memory.open()
    model.hangs = False
    async with memory:
        await memory.write("Ada drinks tea", scope=ADA)


PROGRAM = """
import asyncio, threading
from memory import EmbedderTimeout, Memory
from memory.adapters.embedders.function import FunctionEmbedder

calls = []

def embed(texts):
    calls.append(texts)
    if len(calls) > 1:
        threading.Event().wait()
    return [[1.0] for _ in texts]

async def main():
    embedder = FunctionEmbedder(embed)
    await embedder.fingerprint()
    durations = {"embedding": "50ms", "sweep_every": "0s"}
    async with Memory("memory://", accept_loss=True, embedder=embedder, durations=durations) as memory:
        try:
            await memory.write("tea", scope="user:ada")
        except EmbedderTimeout:
            print("late")

asyncio.run(main())
"""


@pytest.mark.thorough
def test_a_program_ends_while_its_embedder_hangs() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=True
    )
    assert ended.stdout == "late\n"
