"""Checkpoints of 20 KiB on one PostgreSQL, beside langgraph-checkpoint-postgres.

    .fitness/langgraph_checkpointer/bin/python -m tests.fitness.langgraph_checkpointer.measure

It prints the median milliseconds of a put, of a get of the newest and of a get by id,
and how many times longer they take than the other saver's. Both savers take turns, so
that the load of the machine is the same for both.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from langgraph.checkpoint.base import create_checkpoint, empty_checkpoint
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

from memory import Memory
from tests.fitness.langgraph_checkpointer.adapter import DocumentSaver
from tests.support import postgres_servers

ROUNDS = 300
TEXT = "x" * 1_000
CALLS = ("put", "get the newest", "get by id", "put the writes of a task")


class Turns:
    """Calls one saver as a run of a graph does, and keeps the times."""

    def __init__(self, saver: Any) -> None:
        self._saver = saver
        self._config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        self._version: Any = None
        self.times: dict[str, list[float]] = {call: [] for call in CALLS}

    async def take(self, number: int) -> None:
        """Put a checkpoint of 20 KiB, read it twice, and put the writes of a task."""
        thread = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        self._version = self._saver.get_next_version(self._version, None)
        messages = [{"type": "human", "id": f"{number}-{place}", "content": TEXT} for place in range(20)]
        checkpoint = create_checkpoint(empty_checkpoint(), None, number)
        checkpoint |= {
            "channel_values": {"messages": messages, "step": number},
            "channel_versions": {"messages": self._version, "step": self._version},
        }
        metadata: Any = {"source": "loop", "step": number, "parents": {}}

        async def put() -> Any:
            return await self._saver.aput(self._config, checkpoint, metadata, checkpoint["channel_versions"])

        self._config = await self._timed("put", put)
        newest = await self._timed("get the newest", lambda: self._saver.aget_tuple(thread))
        chosen = await self._timed("get by id", lambda: self._saver.aget_tuple(self._config))
        assert newest.checkpoint["channel_values"]["messages"] == messages
        assert chosen.checkpoint["channel_values"]["step"] == number
        writes = [("messages", {"type": "ai", "content": TEXT}), ("branch:to:next", None)]
        await self._timed(CALLS[3], lambda: self._saver.aput_writes(self._config, writes, f"task-{number}"))

    async def _timed(self, call: str, work: Callable[[], Awaitable[Any]]) -> Any:
        begun = time.perf_counter()
        result = await work()
        self.times[call].append(time.perf_counter() - begun)
        return result


async def measure() -> None:
    """Print the figures."""
    server = postgres_servers.container()
    async with AsyncExitStack() as stack:
        mine = server.url(schema="measured")
        config = {"tiers": dict.fromkeys(("short", "mid", "long"), mine), "embedder": "none"}
        memory = await stack.enter_async_context(Memory(config))
        own = await stack.enter_async_context(Memory(config, loop="own"))
        address = mine.partition("?")[0].replace("postgresql+asyncpg", "postgresql")
        other = await stack.enter_async_context(AsyncPostgresSaver.from_conn_string(address))
        await other.setup()
        await other.adelete_thread("t")
        savers = {
            "langgraph-checkpoint-postgres": Turns(other),
            "memory": Turns(DocumentSaver(memory)),
            'memory, loop="own"': Turns(DocumentSaver(own, scope="object:langgraph:own")),
        }
        for number in range(ROUNDS):
            for turns in savers.values():
                await turns.take(number)
    others = savers["langgraph-checkpoint-postgres"].times
    print(f"| call | {' | '.join(savers)} |\n|---|{'---|' * len(savers)}")
    for call in CALLS:
        raw = statistics.median(others[call])
        row = [statistics.median(turns.times[call]) for turns in savers.values()]
        print(f"| {call} | {' | '.join(f'{1000 * one:.2f} ms, {one / raw:.2f} x' for one in row)} |")


if __name__ == "__main__":
    sys.exit(asyncio.run(measure()))
