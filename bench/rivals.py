"""What others keep a conversation with, beside a session of ours, in the same run and
on the same server: OpenAI Agents' sessions, and LlamaIndex's memory.

They are not among what this project installs. `pip install --target FOLDER
"openai-agents[sqlalchemy]" llama-index-core aiosqlite`, then `MEMORY_RIVALS=FOLDER
python -m bench rivals`. Each is used as its own documentation shows. Neither promises
what a session does (an agreed order of several writers, ids that are known again, a
history that outlives its window), so a rival that is quicker would still be another
thing.
"""

from __future__ import annotations

import importlib
import os
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.measure import Figure, side_by_side
from bench.placed import on_each
from bench.texts import sentences
from memory import Memory
from tests.support import postgres_servers
from tests.support.placings import ORDINARY, Placing

BEFORE, CALLS, NEWEST, BUDGET = 1_000, 60, 20, 4_000
"""Messages in the session before anything is measured, appends that are, messages read
back, tokens of the window.
"""

Call = Callable[[int], Awaitable[object]]


class Rival:
    """Somebody's session: one message more, the newest twenty, the window under a
    budget where there is such a thing.
    """

    name: str
    window: Call | None = None

    async def add(self, role: str, text: str) -> None:
        raise NotImplementedError

    async def newest(self, number: int) -> object:
        raise NotImplementedError


class AgentsSession(Rival):
    """A session of the OpenAI Agents SDK."""

    def __init__(self, name: str, session: Any) -> None:
        self.name, self._session = name, session

    async def add(self, role: str, text: str) -> None:
        await self._session.add_items([{"role": role, "content": text}])

    async def newest(self, number: int) -> object:
        return await self._session.get_items(limit=NEWEST)


class LlamaMemory(Rival):
    """LlamaIndex's `Memory`, whose reads are of the window under its own limit of
    tokens.
    """

    def __init__(self, name: str, memory: Any, message: Any) -> None:
        self.name, self._memory, self._message = name, memory, message
        self.window = self.newest

    async def add(self, role: str, text: str) -> None:
        await self._memory.aput(self._message(role=role, content=text))

    async def newest(self, number: int) -> object:
        return await self._memory.aget()


async def rivals(folder: Path, rounds: int) -> list[Figure]:
    if reason := missing("agents", "llama_index.core"):
        return [Figure("sessions of others", None, "ms", note=reason)]
    named = (
        p for name in ("default", "redis-postgres-edge", "postgres-only") for p in ORDINARY if p.name == name
    )
    with importable():
        return await on_each(
            named, folder, "sessions of others", lambda placing, place: _on(placing, place, rounds)
        )


async def _on(placing: Placing, folder: Path, rounds: int) -> list[Figure]:
    async with Memory(placing.config(folder) | {"durations": {"sweep_every": 0}}) as memory:
        session = await memory.sessions.create(f"ours-{uuid.uuid4().hex}", system="You help.")
        url = (
            _postgres() if "postgresql" in placing.backends else f"sqlite+aiosqlite:///{folder / 'rival.db'}"
        )
        others = [other async for other in _made(url)]
        texts = sentences(BEFORE + CALLS * rounds, seed=21)
        await session.append([{"role": _role(n), "content": text} for n, text in enumerate(texts[:500])])
        await session.append(
            [{"role": _role(n), "content": text} for n, text in enumerate(texts[500:BEFORE])]
        )
        for other in others:
            for n, text in enumerate(texts[:BEFORE]):
                await other.add(_role(n), text)

        async def append(n: int) -> None:
            await session.append({"role": _role(n), "content": texts[BEFORE + n]})

        def adding(other: Rival) -> Call:
            return lambda n: other.add(_role(n), texts[BEFORE + n])

        where = placing.name
        added = await side_by_side(CALLS * rounds, append, *map(adding, others))
        read = await side_by_side(
            CALLS,
            lambda _: session.context(last=NEWEST),
            *[other.newest for other in others if other.window is None],
        )
        cut = await side_by_side(
            CALLS,
            lambda _: session.context(BUDGET),
            *[other.window for other in others if other.window is not None],
        )
        lists = [o for o in others if o.window is None], [o for o in others if o.window is not None]
        return [
            *_against(f"{where}: append", added, others),
            *_against(f"{where}: the newest {NEWEST} of {BEFORE:,}", read, lists[0]),
            *_against(f"{where}: the window under {BUDGET:,} tokens", cut, lists[1]),
        ]


def _against(what: str, taken: list[float], others: list[Rival]) -> list[Figure]:
    """Ours beside each of theirs. `raw` is theirs: the ratio asked for is a third of
    it.
    """
    return [
        Figure(f"{what}, beside {other.name}", taken[0] * 1000, "ms", raw=theirs * 1000, ratio_target=1 / 3)
        for other, theirs in zip(others, taken[1:], strict=True)
    ]


def _role(number: int) -> str:
    return "user" if number % 2 == 0 else "assistant"


async def _made(url: str) -> Any:
    agents = importlib.import_module("agents.extensions.memory")
    llama = importlib.import_module("llama_index.core.memory")
    message = importlib.import_module("llama_index.core.llms").ChatMessage
    name = f"theirs-{uuid.uuid4().hex}"
    yield AgentsSession(
        "OpenAI Agents' SQLAlchemySession",
        agents.SQLAlchemySession.from_url(name, url=url, create_tables=True),
    )
    if url.startswith("sqlite"):
        plain = importlib.import_module("agents").SQLiteSession
        yield AgentsSession(
            "OpenAI Agents' SQLiteSession", plain(name, url.removeprefix("sqlite+aiosqlite:///") + ".plain")
        )
    memory = llama.Memory.from_defaults(
        session_id=name,
        token_limit=BUDGET,
        chat_history_token_ratio=1.0,
        async_database_uri=url,
        tokenizer_fn=lambda text: text.split() or [""],
    )
    yield LlamaMemory("LlamaIndex's Memory", memory, message)


def _postgres() -> str:
    """The server that ours is on too."""
    return "postgresql+asyncpg" + postgres_servers.container().url().partition("?")[0].removeprefix(
        "postgresql"
    )


def missing(*modules: str) -> str | None:
    """Why these cannot be measured, None where they can."""
    with importable():
        for name in modules:
            try:
                importlib.import_module(name)
            except ImportError as error:
                return f"{error}: name the folder they are installed in, in MEMORY_RIVALS"
    return None


@contextmanager
def importable() -> Iterator[None]:
    """Behind what this project has: its own versions of what both need are the ones
    that are used.
    """
    folder = os.environ.get("MEMORY_RIVALS", "")
    sys.path.append(folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
