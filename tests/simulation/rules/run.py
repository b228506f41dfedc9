"""Runs of rules: the real engine with retention, quotas, holds and promotion by rule,
on in-memory stores, faults at every call of a store.

Hours pass between what workers do. Some of them are at maintenance, in small rounds and
in turn, and die over it.
"""

from __future__ import annotations

import asyncio
import traceback
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta

from memory.adapters.in_memory import InMemoryStore
from memory.adapters.wrappers.retry import Retry
from memory.adapters.wrappers.timeout import Timeout
from memory.orchestrator.conversations.sessions import SessionDraft
from memory.orchestrator.engine import Engine
from memory.orchestrator.storage.topology import Topology
from memory.ports.store import Store
from tests.simulation.faults import CLOCK_ERROR, LATEST, Fault, FaultPlan, Process, Server, WorkerCrashed
from tests.simulation.faulty_store import FaultyStore
from tests.simulation.loop import OWNER, START, SimulatedClock, SimulatedLoop, run, seeded
from tests.simulation.rules.acts import ACTS, Worker
from tests.simulation.rules.ending import in_the_end
from tests.simulation.rules.given import ALONE, PROMOTION, QUOTAS, RULED, TENANTS, WITH_ADA, retention_of
from tests.simulation.rules.told import Told
from tests.simulation.rules.watch import Watch
from tests.simulation.sessions.run import opened
from tests.simulation.steps import can_meet
from tests.simulation.world import HOME, volatile

WORKERS, OPERATIONS = 3, 11
LAYOUTS = ((0, 0, 0), (0, 1, 2), (0, 1, 1), (0, 0, 1), (-1, 0, 1))
"""Which of its stores a run has each tier in; -1: in one that forgets."""
AIMED = tuple(
    """
    hold.read hold.session hold.put hold.list quota.count quota.first retention.scan retention.versions retention.round retention.sessions
    retention.tenants delete.read delete.home delete.versions delete.elsewhere lease.read lease.take lease.return sweep.due sweep.owed
    promotion.scan promotion.rank derive.home move.copy move.release move.arrive move.relabel hanging.erase hanging.find version.keep replica.deliver
    owed.settle write.home update.home erase.begin erase.raise erase.delete onward.owed log.append
    """.split()
)
"""The steps that a run of rules is aimed at."""


@dataclass(slots=True)
class Run:
    """Everything of one run that its workers share."""

    seed: int
    loop: SimulatedLoop
    plan: FaultPlan
    servers: list[Server]
    """By tier; tiers that share a store share its server."""
    traced: bool
    told: Told
    watch: Watch
    trace: list[str] = field(default_factory=list)
    calm: FaultPlan = field(default_factory=lambda: FaultPlan(0, most=0))
    """That of processes which nothing strikes; time passes for them as for the others."""

    @property
    def distinct(self) -> list[Server]:
        return list({id(server): server for server in self.servers}.values())

    @property
    def durable(self) -> list[InMemoryStore]:
        return [server.store for server in self.distinct if server.restart is None]

    def engine(self, process: Process) -> Engine:
        clients = {id(server): self._client(server, process) for server in self.distinct}
        short, mid, long = (clients[id(server)] for server in self.servers)
        return Engine(
            Topology(short=short, mid=mid, long=long),
            clock=process.clock,
            settings=RULED,
            rules=PROMOTION,
            retention=retention_of(self.seed),
            quotas=QUOTAS,
            random_bits=process.random_bits(self.seed),
        )

    def _client(self, server: Server, process: Process) -> Store:
        store = FaultyStore(server, process, self.distinct)
        return Retry(Timeout(store, 8.0), attempts=3, backoff=0.1) if self.seed % 4 == 3 else store

    def process(self, name: str, error: float = 0.0, *, calm: bool = False) -> Process:
        def trace(what: str) -> None:
            self.say(f"{name} {what}")

        return Process(
            name,
            self.loop,
            SimulatedClock(self.loop, error, CLOCK_ERROR),
            self.calm if calm else self.plan,
            trace if self.traced else None,
        )

    def say(self, what: str) -> None:
        if self.traced:
            self.trace.append(f"{self.loop.time():10.4f} {what}")


def world_of(
    seed: int, plan: FaultPlan, *, atomic: bool, layout: tuple[int, int, int], traced: bool = False
) -> Run:
    loop = SimulatedLoop(seed * 1000 + 9)
    able = replace(HOME, atomic=atomic)

    def durable(number: int) -> Server:
        return Server(
            InMemoryStore(
                f"store-{number}", capabilities=able, clock=lambda: START + timedelta(seconds=loop.time())
            )
        )

    made = {
        number: durable(number) if number >= 0 else volatile(seed, atomic=atomic)
        for number in dict.fromkeys(layout)
    }
    told = Told(loop.time)
    watch = Watch(told, [server.store for number, server in made.items() if number >= 0])
    return Run(seed, loop, plan, [made[number] for number in layout], traced, told, watch)


def run_rules(seed: int, *, traced: bool = False) -> Run:
    """One run; the same seed is the same run."""
    random = seeded(seed, 6)
    step, fault = random.choice([(step, fault) for step in AIMED for fault in Fault if can_meet(step, fault)])
    plan = FaultPlan(
        seed=seed,
        rate=random.choice((0.0, 0.01, 0.03, 0.06)),
        focus=(step, fault.value) if random.random() < 0.8 else ("", ""),
    )
    world = world_of(seed, plan, atomic=random.random() < 0.5, layout=random.choice(LAYOUTS), traced=traced)
    try:
        run(world.loop, _all(world))
    except Exception as error:  # noqa: BLE001 - whatever it is, the run did not end well, and which seed it was matters
        world.told.broken.append("stuck: " + "".join(traceback.format_exception(error)))
    return world


async def _all(world: Run) -> None:
    await begin(world)
    async with asyncio.TaskGroup() as group:
        for number in range(WORKERS):
            group.create_task(_worker(world, number))
    await asyncio.sleep(2 * LATEST + 1)  # what is still on the network arrives
    await in_the_end(world)


async def begin(world: Run) -> None:
    """The sessions are there, one of them with a user."""
    process = world.process("first", calm=True)
    OWNER.set(process)
    engine = world.engine(process)
    await engine.open()
    for tenant in TENANTS:
        await engine.conversations.create(tenant, SessionDraft(WITH_ADA, user="ada"))
        await engine.conversations.create(tenant, SessionDraft(ALONE))
    await engine.close()


async def _worker(world: Run, number: int) -> None:
    """One worker through its acts. When its process dies, another takes its place, with
    nothing but the stores.
    """
    random = seeded(world.seed, 3, number)
    todo = [(f"w{number}.{n}", "write" if n == 0 else random.choice(ACTS)) for n in range(OPERATIONS)]
    life = 0
    while todo:
        life += 1
        process = world.process(f"w{number}/{life}", (random.random() - 0.5) * 0.2)
        await process.lives(_live(world, process, todo, 1000 * number))
        await asyncio.sleep(random.random() ** 3 * 60 if process.dead else 0)


async def _live(world: Run, process: Process, todo: list[tuple[str, str]], numbers: int) -> None:
    OWNER.set(process)
    with suppress(WorkerCrashed):
        worker = Worker(world, process)
        process.begin(numbers)
        while not await opened(worker.engine):  # noqa: ASYNC110
            await asyncio.sleep(1)
        while todo and not process.dead:
            label, act = todo.pop(0)
            random = seeded(world.seed, 8, *label.encode())
            process.begin(numbers + 1 + len(todo))
            await asyncio.sleep(rest(random.random(), random.random()))
            world.say(f"{process.name} === {label} {act}")
            await process.performs(worker.perform(act, label, random))


def rest(which: float, how_long: float) -> float:
    """Seconds between two acts: none to speak of, some minutes, or an hour."""
    return how_long * (0.02 if which < 0.5 else 600.0 if which < 0.8 else 5_000.0)
