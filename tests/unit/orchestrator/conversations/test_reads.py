"""What a task keeps of the reads of others."""

from __future__ import annotations

import asyncio
import gc
import weakref

from memory.orchestrator.conversations.window.reads import WindowRead, WindowReads, reads_of_caller


async def test_a_chain_of_tasks_does_not_keep_the_reads_of_those_that_are_over() -> None:
    """Each task begins the next, as an agent does that plans its next turn."""
    kept: list[weakref.ref[WindowReads]] = []
    over = asyncio.get_running_loop().create_future()
    tasks: set[asyncio.Task[None]] = set()

    async def turn(left: int) -> None:
        reads = reads_of_caller()
        reads.put("s", WindowRead())
        kept.append(weakref.ref(reads))
        if not left:
            gc.collect()
            over.set_result(sum(one() is not None for one in kept))
            return
        tasks.add(task := asyncio.create_task(turn(left - 1)))
        task.add_done_callback(tasks.discard)
        await asyncio.sleep(0)

    tasks.add(first := asyncio.create_task(turn(50)))
    first.add_done_callback(tasks.discard)
    assert await over <= 5
