"""One act in a small scene, cut off at each of its calls of a store in turn: all that
rules, quotas and holds promise holds afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress

from tests.simulation.faults import LATEST, Fault, Process, WorkerCrashed
from tests.simulation.loop import OWNER, run, seeded
from tests.simulation.rules.acts import Worker
from tests.simulation.rules.ending import in_the_end
from tests.simulation.rules.given import OLD, SCOPES, TENANTS
from tests.simulation.rules.run import Run, begin, world_of
from tests.simulation.sessions.crashes import MOST_CALLS, OPERATION, Cut
from tests.simulation.sessions.run import opened

CUT = "sweep end crowd hold release delete".split()
BEFORE = "hold update update relate relate hold".split()
"""What has happened hours before the act, on some entries of every scope."""
SEED = 6
"""One with a rule on what a scope holds."""


def cut_off(act: str, fault: Fault) -> Iterator[Run]:
    """The act, cut off at its first call, at its second, and so on, until it comes to
    its end.
    """
    for at in range(1, MOST_CALLS):
        plan = Cut(seed=at, at=at, fault=fault)
        world = world_of(SEED, plan, atomic=False, layout=(0, 1, 2))
        run(world.loop, _scene(world, act))
        yield world
        if not plan.struck:
            return


async def _scene(world: Run, act: str) -> None:
    await begin(world)
    await _live(world, world.process("w0"), BEFORE, OPERATION - 1)
    await asyncio.sleep(OLD.total_seconds())
    await _live(world, world.process("w1"), [act], OPERATION)
    await asyncio.sleep(2 * LATEST + 1)
    await in_the_end(world)


async def _live(world: Run, process: Process, acts: Sequence[str], operation: int) -> None:
    """The acts one after the other; what the plan strikes are those of one operation."""
    await process.lives(_perform(world, process, acts, operation), as_one_operation=True)


async def _perform(world: Run, process: Process, acts: Sequence[str], operation: int) -> None:
    OWNER.set(process)
    with suppress(WorkerCrashed):
        worker = Worker(world, process)
        process.begin(OPERATION - 1)
        await opened(worker.engine)
        process.begin(operation)
        for scope in SCOPES if operation != OPERATION else ():
            for tenant in TENANTS:
                await worker.write_some(
                    tenant, scope, f"{scope} of {tenant}", seeded(1, *scope.text.encode()), 2
                )
        for number, act in enumerate(acts):
            await worker.perform(act, f"{process.name}.{number}", seeded(1, number, *act.encode()))
