"""Runs of sessions: the real engine on in-memory stores, several workers in one
conversation, faults at every call of a store.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta

from memory.adapters.in_memory import InMemoryStore, Snapshot
from memory.adapters.wrappers.retry import Retry
from memory.adapters.wrappers.timeout import Timeout
from memory.domain.errors import MemoryTiersError
from memory.orchestrator.engine import Engine
from memory.orchestrator.storage.topology import Topology
from memory.policies.window_exit import WindowExitFunction
from memory.ports.collections import Collection
from memory.ports.record import Record
from memory.ports.store import Store
from tests.simulation.faults import CLOCK_ERROR, LATEST, Fault, FaultPlan, Process, Server, WorkerCrashed
from tests.simulation.faulty_store import FaultyStore
from tests.simulation.loop import OWNER, START, SimulatedClock, SimulatedLoop, run, seeded
from tests.simulation.sessions.acts import ACTS, BESIDE_COPIES, Worker
from tests.simulation.sessions.ending import in_the_end
from tests.simulation.sessions.setback import set_back
from tests.simulation.sessions.told import Taking, Told
from tests.simulation.setup import SETTINGS
from tests.simulation.steps import session_pairs
from tests.simulation.world import HOME, volatile

WORKERS, OPERATIONS = 3, 14


@dataclass(slots=True)
class Run:
    """Everything of one run that its workers share. The last of the servers has the
    sessions.
    """

    seed: int
    loop: SimulatedLoop
    plan: FaultPlan
    servers: list[Server]
    told: Told
    trace: list[str] = field(default_factory=list)
    first_put: dict[str, Taking] = field(default_factory=dict)
    """By process: the call whose first put into a log is waited for. What comes into
    the log later is not known to it.
    """
    backups: list[Snapshot] | None = None
    """Earlier moments of the store that has the sessions, where it is set back."""
    copied: int = 0
    """From how many messages on readers leave copies of windows; 0: never."""

    def engine(self, process: Process, on_window_exit: WindowExitFunction | None) -> Engine:
        clients: list[Store] = [FaultyStore(server, process, self.servers) for server in self.servers]
        if self.seed % 3 == 0:
            clients = [Retry(Timeout(store, 8.0), attempts=3, backoff=0.1) for store in clients]
        short, mid = clients[0], clients[-1]
        bits = process.random_bits(self.seed)
        topology = Topology(short=short, mid=mid, long=mid)
        return Engine(
            topology,
            clock=process.clock,
            settings=replace(SETTINGS, page=20, copied_window=self.copied),
            random_bits=bits,
            on_window_exit=on_window_exit,
        )

    def process(self, name: str, error: float = 0.0) -> Process:
        def trace(what: str) -> None:
            self.trace.append(f"{self.loop.time():10.4f} {name} {what}")
            if (
                what.startswith("log.append")
                and " -> " not in what
                and (taking := self.first_put.pop(name, None)) is not None
            ):
                taking.knew = self.loop.time()

        return Process(name, self.loop, SimulatedClock(self.loop, error, CLOCK_ERROR), self.plan, trace)

    def standing(self, collection: Collection) -> Iterator[Record]:
        """The live records of all stores, as their disks have them."""
        for server in self.servers:
            yield from (
                row for row in server.store.state.everything(collection.name) if isinstance(row, Record)
            )


def world_of(seed: int, plan: FaultPlan, *, atomic: bool, servers: int, cache: bool) -> Run:
    """The sessions are in the last of the servers; before it stands nothing, a store of
    the short tier, or one that forgets.
    """
    loop = SimulatedLoop(seed * 1000 + 7)
    able = replace(HOME, atomic=atomic)
    made = [
        Server(
            InMemoryStore(
                f"store-{n}", capabilities=able, clock=lambda: START + timedelta(seconds=loop.time())
            )
        )
        for n in range(servers)
    ]
    return Run(
        seed, loop, plan, [volatile(seed, atomic=atomic), *made[1:]] if cache else made, Told(loop.time)
    )


def run_sessions(seed: int) -> Run:
    """One run; the same seed is the same run."""
    random = seeded(seed, 6)
    step, fault = random.choice(session_pairs())
    plan = FaultPlan(seed=seed, focus=(step, fault.value))
    if seed % 3 == 0:  # what is retried: answers that are lost
        plan.focus = ("log.append", random.choice((Fault.ERROR_AFTER, Fault.TIMEOUT, Fault.PARTIAL)).value)
    atomic, servers = random.random() < 0.5, random.choice((1, 2, 2))
    world = world_of(seed, plan, atomic=atomic, servers=servers, cache=servers == 2 and random.random() < 0.5)
    world.backups = [] if seed % 8 == 6 else None
    return played(world, [f"w{worker}" for worker in range(WORKERS)])


def played(world: Run, workers: list[str]) -> Run:
    try:
        run(world.loop, _all(world, workers))
    except Exception as error:  # noqa: BLE001 - whatever it is, the run did not end well, and which seed it was matters
        world.told.broken.append("stuck: " + "".join(traceback.format_exception(error)))
    return world


async def _all(world: Run, workers: list[str]) -> None:
    await _part(world, workers, "")
    if world.backups is not None:
        await set_back(world)
        world.plan.active = True
        await _part(world, workers, "b")
    await in_the_end(world)


async def _part(world: Run, workers: list[str], part: str) -> None:
    async with asyncio.TaskGroup() as group:
        for number, worker in enumerate(workers):
            group.create_task(_worker(world, worker, number, part))
    world.plan.active = False
    await asyncio.sleep(2 * LATEST + 1)  # what is still on the network arrives


async def _worker(world: Run, name: str, number: int, part: str) -> None:
    """One worker through its acts. When its process dies, another takes its place, with
    nothing but the stores.
    """
    random = seeded(world.seed, 3, number, *part.encode())
    todo = [
        (f"{name}.{part}{n}", random.choice(BESIDE_COPIES if world.copied else ACTS))
        for n in range(OPERATIONS if world.backups is None else OPERATIONS // 2)
    ]
    if world.seed % 4 == 1 and number == 0:
        todo.insert(0, (f"{name}.long", "lengthen"))
    life = 0
    while todo:
        life += 1
        process = world.process(f"{name}.{part}{life}", (random.random() - 0.5) * 0.2)
        await process.lives(_live(world, process, todo, 1000 * number + 500 * bool(part)))
        await asyncio.sleep(random.random() ** 3 * 10 if process.dead else 0)


async def _live(world: Run, process: Process, todo: list[tuple[str, str]], numbers: int) -> None:
    OWNER.set(process)
    with suppress(WorkerCrashed):
        worker = Worker(world, process)
        process.begin(numbers)
        while not await opened(worker.engine):  # noqa: ASYNC110
            await asyncio.sleep(1)
        while todo and not process.dead:
            label, act = todo.pop(0)
            if world.copied and seeded(world.seed, 11, *label.encode()).random() < 0.6:
                worker = Worker(world, process)  # another process, that remembers nothing
                if not await opened(worker.engine):
                    continue
            random = seeded(world.seed, 8, *label.encode())
            if world.backups is not None and random.random() < 0.2:
                world.backups.append(world.servers[-1].store.state.snapshot())
            process.begin(numbers + 1 + len(todo))
            await asyncio.sleep(random.random() ** 4 * 0.2)
            world.trace.append(f"{process.name} === {label} {act}")
            await process.performs(worker.perform(act, label, random))


async def opened(engine: Engine) -> bool:
    try:
        await engine.open()
    except MemoryTiersError:
        return False
    return True
