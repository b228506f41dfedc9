"""Maintenance as a task of Docket (`pip install pydocket`): a step of it every minute,
and again at once where something is left.

    MEMORY_CONFIG=memory.toml DOCKET_URL=redis://localhost:6379/1 python examples/docket_worker.py

Docket keeps in Redis when the task is due and gives it to one worker at a time; should
that one die, another gets it. In a worker of your own: `docket worker --docket
maintenance --url redis://localhost:6379/1 --tasks docket_worker:tasks`, beside your
other tasks.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from docket import Perpetual, Shared, Worker

from memory import Memory

EVERY, BUDGET = timedelta(minutes=1), "20s"


@asynccontextmanager
async def opened() -> AsyncIterator[Memory]:
    """The memory that MEMORY_CONFIG names; what is to be done in it is done by the task
    alone.
    """
    async with Memory(durations={"sweep_every": "0s"}) as memory:
        yield memory


async def maintain(
    perpetual: Perpetual = Perpetual(every=EVERY, automatic=True),  # noqa: B008 - so Docket is told what a task needs
    memory: Memory = Shared(opened),  # noqa: B008 - one for all tasks of a worker
) -> None:
    report = await memory.maintain(budget=BUDGET)
    if report.more:
        perpetual.after(timedelta(0))


tasks = [maintain]

if __name__ == "__main__":
    url = os.environ.get("DOCKET_URL", "redis://localhost:6379/0")
    asyncio.run(Worker.run(docket_name="maintenance", url=url, tasks=["__main__:tasks"]))
