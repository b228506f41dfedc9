"""One act in a small scene, cut off at each of its calls of a store in turn: who was
there before goes on, and all that was promised holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tests.simulation.faults import LATEST, Fault, FaultPlan, Process, Struck, WorkerCrashed
from tests.simulation.loop import OWNER, run, seeded
from tests.simulation.sessions.acts import ACTS, ALSO, Worker
from tests.simulation.sessions.ending import in_the_end
from tests.simulation.sessions.run import Run, opened, world_of

CUT = "pop state say batch name exclude clear roll_back compact end delete".split()
ALL = sorted({*ACTS, *ALSO} - {"read"})
BEFORE = "name say batch call compact say name update end roll_back say".split()
"""What has happened when the act begins."""
AFTER = "read say name read sweep read".split()
"""What another process does then, which has read the session before."""
OPERATION = 1
MOST_CALLS = 400


@dataclass(slots=True)
class Cut(FaultPlan):
    """One call of one operation is struck, and no other."""

    at: int = 0
    fault: Fault = Fault.CRASH_AFTER

    def draw(
        self, where: tuple[int, int], step: str, possible: tuple[Fault, ...], store: str = ""
    ) -> Fault | None:
        if where != (OPERATION, self.at) or self.fault not in possible:
            return None
        self.struck.append(Struck(where, step, self.fault))
        return self.fault


def cut_off(act: str, fault: Fault, *, atomic: bool = True) -> Iterator[Run]:
    """The act, cut off at its first call, at its second, and so on, until it comes to
    its end.
    """
    for at in range(1, MOST_CALLS):
        plan = Cut(seed=at, at=at, fault=fault)
        world = world_of(7, plan, atomic=atomic, servers=1, cache=False)
        run(world.loop, _scene(world, act))
        yield world
        if not plan.struck:
            return


async def _scene(world: Run, act: str) -> None:
    witness = world.process("w1")
    await _live(world, world.process("w0"), BEFORE)
    there = await _live(world, witness, ["read"])
    process = world.process("w2")
    first = {"roll_back": ["roll_back", "say"], "state": ["state"]}.get(act, [])
    await _live(world, process, [*first, "read", act], struck=act)
    await _live(world, witness, AFTER, there)
    world.plan.active = False
    await asyncio.sleep(2 * LATEST + 1)
    await in_the_end(world)


async def _live(
    world: Run, process: Process, acts: Sequence[str], worker: Worker | None = None, struck: str = ""
) -> Worker:
    """The acts one after the other; the one to be struck is the operation that the plan
    strikes.
    """
    worker = worker or Worker(world, process)
    await process.lives(_perform(world, process, worker, acts, struck), as_one_operation=True)
    return worker


async def _perform(world: Run, process: Process, worker: Worker, acts: Sequence[str], struck: str) -> None:
    OWNER.set(process)
    with suppress(WorkerCrashed):
        await opened(worker.engine)
        for number, act in enumerate(acts):
            process.begin(OPERATION if act == struck and number == len(acts) - 1 else 0)
            label = f"{process.name}.{len(world.trace)}"
            world.trace.append(f"{process.name} === {label} {act}")
            await worker.perform(act, label, seeded(1, *act.encode(), len(acts)))
