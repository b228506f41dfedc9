"""A search among what others remember, beside ours, with the same texts, questions and
vectors: LangGraph's store in memory, mem0 on local Qdrant.

They are not among what this project installs. `pip install --target FOLDER langgraph
mem0ai`, then `MEMORY_RIVALS=FOLDER python -m bench retrieval --speed`. Each is asked as
its own documentation shows. LangGraph's store finds by vectors alone, and so does mem0
where nothing but its own wheel is installed.
"""

from __future__ import annotations

import importlib
import os
import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy

from bench.measure import Figure, side_by_side
from bench.rivals import importable, missing
from bench.texts import questions
from memory import Memory, Scope
from memory.adapters.embedders.wordllama import DIMENSIONS, WordLlamaEmbedder

ASKED, LIMIT = 20, 10
AT_ONCE = 500
RATIO = 1 / 5
"""Of theirs, that ours may take at most."""

Search = Callable[[str], Awaitable[object]]


async def beside(
    folder: Path, memory: Memory, scope: Scope, contents: Sequence[str], rounds: int
) -> list[Figure]:
    """Ours over a scope that holds just these contents, beside each of theirs over the
    same.
    """
    os.environ |= {
        "MEM0_TELEMETRY": "False",
        "MEM0_DIR": str(folder / "mem0"),
    }  # before it is imported: it tells its makers of its calls otherwise
    found = []
    for name, module, made in RIVALS:
        what = f"search of {len(contents):,}, beside {name}"
        if reason := missing(module):
            found.append(Figure(what, None, "ms", note=f"not run, {reason}"))
            continue
        with importable():
            theirs = await made(folder, contents)
        asked = questions(ASKED * rounds, seed=9)

        async def ours(number: int, asked: Sequence[str] = asked) -> None:
            assert await memory.search(asked[number], scope=scope, limit=LIMIT)

        async def other(number: int, asked: Sequence[str] = asked, search: Search = theirs) -> None:
            assert await search(asked[number])

        ours_s, theirs_s = await side_by_side(len(asked), ours, other)
        found.append(Figure(what, ours_s * 1000, "ms", raw=theirs_s * 1000, ratio_target=RATIO))
    return found


class Vectors:
    """Our default vectors, as both want them."""

    def __init__(self) -> None:
        self._embedder = WordLlamaEmbedder()

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        return self.embed_batch([text])[0]

    def embed_batch(self, texts: list[str], memory_action: str | None = None) -> list[list[float]]:
        return [numpy.frombuffer(vector, "<f4").tolist() for vector in self._embedder._embed(texts)]


async def _langgraph(folder: Path, contents: Sequence[str]) -> Search:
    vectors, place = Vectors(), ("memories", "ada")

    async def embed(texts: list[str]) -> list[list[float]]:
        return vectors.embed_batch(texts)

    index = {"dims": DIMENSIONS, "embed": embed, "fields": ["text"]}
    store: Any = importlib.import_module("langgraph.store.memory").InMemoryStore(index=index)
    for number, content in enumerate(contents):
        await store.aput(place, str(number), {"text": content})

    async def search(query: str) -> object:
        return await store.asearch(place, query=query, limit=LIMIT)

    return search


async def _mem0(folder: Path, contents: Sequence[str]) -> Search:
    qdrant = {
        "path": str(folder / "mem0-qdrant"),
        "collection_name": "bench",
        "embedding_model_dims": DIMENSIONS,
        "on_disk": True,
    }
    unused = {"provider": "openai", "config": {"api_key": "none"}}
    config = {
        "vector_store": {"provider": "qdrant", "config": qdrant},
        "llm": unused,
        "embedder": unused,
        "history_db_path": str(folder / "mem0.db"),
    }
    memory: Any = importlib.import_module("mem0").Memory.from_config(config)
    memory.embedding_model = vectors = Vectors()
    for start in range(
        0, len(contents), AT_ONCE
    ):  # what `add(infer=False)` does with each alone, in a tenth of its time
        some = list(contents[start : start + AT_ONCE])
        payloads = [{"data": content, "user_id": "ada"} for content in some]
        memory.vector_store.insert(
            vectors=vectors.embed_batch(some), payloads=payloads, ids=[str(uuid.uuid4()) for _ in some]
        )

    async def search(query: str) -> object:
        return memory.search(query, filters={"user_id": "ada"}, top_k=LIMIT)["results"]

    return search


RIVALS = (
    ("LangGraph's store in memory", "langgraph.store.memory", _langgraph),
    ("mem0 on local Qdrant", "mem0", _mem0),
)
