"""One run: the servers, the workers on them, and their operations under faults, from a
scenario to a verdict.

What is to be proved is reached through `Client`, so that the simulation itself is
tested with toy engines that must be caught.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Protocol

from memory.adapters.in_memory import InMemoryStore, Snapshot, State
from memory.orchestrator.storage.generations import Generations
from memory.ports.capabilities import Capabilities
from memory.ports.clock import Clock
from tests.simulation.checker import check
from tests.simulation.faults import (
    CLOCK_ERROR,
    LATEST,
    RESTARTS,
    Coverage,
    Fault,
    FaultPlan,
    Process,
    Server,
    Struck,
    WorkerCrashed,
)
from tests.simulation.faulty_store import FaultyStore
from tests.simulation.history import History, Violation
from tests.simulation.loop import OWNER, START, SimulatedClock, SimulatedLoop, run, seeded
from tests.simulation.steps import RARE
from tests.simulation.workload import Layout, Operation, Scenario

HOME = Capabilities(
    durable=True,
    shared=True,
    fenced=True,
    conditional=True,
    filter=True,
    order=True,
    tenant_wide=True,
    lexical=True,
    semantic=True,
    tenant_statistics=True,
)
VOLATILE = Capabilities(shared=True, fenced=True, conditional=True, filter=True, order=True, tenant_wide=True)


FEW, SMALL = 2, 2_000
"""How many writes at once, and how large a record, the later stores take while they are
narrow.
"""


FAILURES = (
    frozenset(Fault) - RESTARTS - {Fault.REORDER, Fault.DELAY, Fault.DUPLICATE, Fault.CLOCK, Fault.FROZEN}
)
"""Faults after which, where they strike the cache, a copy in it may outlive what it is
a copy of.
"""
AN_ERASURE_IS_REMEMBERED = 29 * 86_400.0
"""Seconds."""
MOVING_STEPS = ("move.relabel", "move.release")
"""Steps after which a move clears the cache: where one of them fails, a copy in it may
name the tier before.
"""
CACHE_STEPS = ("cache.", "erase.", "sweep.")
"""Steps that reach the cache."""


class Client(Protocol):
    """What one process does its operations with."""

    async def open(self) -> bool:
        """Make ready; false where a store failed, to be tried again."""
        ...

    async def perform(self, operation: Operation) -> None:
        """Carry it out and note in the history what became of it. Raises
        `WorkerCrashed` where the process died.
        """
        ...

    async def settle(self) -> None:
        """After the last fault: sweep until nothing is owed, then read everything once
        more. Notes violations of the final state.
        """
        ...


class ClientFactory(Protocol):
    def __call__(self, world: World, process: Process, stores: dict[str, FaultyStore]) -> Client: ...


@dataclass(frozen=True, slots=True)
class Result:
    """What a run showed; `trace` is filled on demand."""

    violations: list[Violation]
    coverage: Coverage
    struck: list[Struck]
    performed: int
    trace: list[str]


@dataclass(slots=True)
class Meeting:
    """Workers that begin an operation at the same moment: whoever is there waits for
    the others.
    """

    awaited: int = 0
    all_there: asyncio.Event = field(default_factory=asyncio.Event)

    async def join(self) -> None:
        self.awaited -= 1
        if self.awaited <= 0:
            self.all_there.set()
        await self.all_there.wait()


@dataclass(slots=True)
class World:
    """Everything of one run that its workers share."""

    scenario: Scenario
    loop: SimulatedLoop
    plan: FaultPlan
    servers: dict[str, Server] = field(default_factory=dict)
    """By tier; tiers that share a store share its server."""
    trace: list[str] | None = None
    ids: dict[str, str] = field(default_factory=dict)
    """The ids of registers that some worker was told of."""
    meetings: dict[int, Meeting] = field(default_factory=dict)
    remembered: dict[str, list[Snapshot]] = field(default_factory=dict)
    """Backups of the durable stores, where one of them is set back in the end."""
    performed: int = 0
    clocks: list[SimulatedClock] = field(default_factory=list)
    history: History = field(init=False)

    def __post_init__(self) -> None:
        self.history = History(
            self.loop.time, lambda since: any(server.down_until > since for server in self.distinct)
        )

    @property
    def widest(self) -> float:
        """The largest error that any clock ever had."""
        return max((clock.widest for clock in self.clocks), default=0.0)

    @property
    def distinct(self) -> list[Server]:
        return list({id(s): s for s in self.servers.values()}.values())

    @property
    def stores(self) -> list[InMemoryStore]:
        return [server.store for server in self.distinct]

    @property
    def durable(self) -> list[InMemoryStore]:
        return [store for store in self.stores if store.capabilities.durable]

    def back_up(self, pick: int) -> None:
        """Now and then, of one store."""
        if self.scenario.setback and pick % 4 == 0:
            store = self.durable[pick // 4 % len(self.durable)]
            self.remembered.setdefault(store.name, []).append(store.state.snapshot())

    def agrees(self, generations: Generations) -> None:
        """Nothing was set back so far, and no erasure is forgotten yet: then erasures
        alone explain every generation, and no store is behind.
        """
        behind = [d for d in generations.healed if d.store != "cache"]
        if behind and self.loop.time() < AN_ERASURE_IS_REMEMBERED:
            self.history.broken("order", "-", f"a store was taken to be behind, which none is: {behind}")

    def say(self, who: str, what: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.loop.time():10.4f}  {who:<9} {what}")

    def process(self, name: str, *, error: float = 0.0) -> Process:
        clock = SimulatedClock(self.loop, error, CLOCK_ERROR)
        self.clocks.append(clock)
        return Process(
            name,
            self.loop,
            clock,
            self.plan,
            (lambda what: self.say(name, what)) if self.trace is not None else None,
        )

    def stores_for(self, process: Process) -> dict[str, FaultyStore]:
        """This process's own clients of the servers, by tier."""
        clients = {id(s): FaultyStore(s, process, self.distinct) for s in self.distinct}
        return {tier: clients[id(server)] for tier, server in self.servers.items()}


def build_servers(scenario: Scenario, clock: Clock) -> dict[str, Server]:
    """The servers by tier; the second part of a tier that is split under a name of its
    own.
    """

    def durable(name: str, *, ttl: bool = False) -> Server:
        able = replace(
            HOME, atomic=scenario.atomic, ttl=ttl, fenced=not scenario.unfenced, semantic=name != "mid"
        )  # served by its copies in long
        if not scenario.narrow or name in ("one", "short", "early"):
            return Server(InMemoryStore(name, capabilities=able, clock=clock))
        narrow = InMemoryStore(
            name, capabilities=replace(able, max_batch=FEW, max_record_bytes=SMALL), clock=clock
        )
        return Server(narrow, widened=InMemoryStore(name, capabilities=able, state=narrow.state, clock=clock))

    match scenario.layout:
        case Layout.ONE:
            one = durable("one")
            return {"short": one, "mid": one, "long": one}
        case Layout.THREE:
            return {"short": durable("short"), "mid": durable("mid"), "long": durable("long")}
        case Layout.CACHE:
            return {
                "short": volatile(scenario.seed, atomic=scenario.atomic),
                "mid": durable("mid"),
                "long": durable("long"),
            }
        case Layout.SHARED:
            late = durable("late")
            return {"short": durable("short"), "mid": late, "long": late}
        case Layout.TOGETHER:
            early = durable("early")
            return {"short": early, "mid": early, "long": durable("long")}
        case Layout.SPLIT:
            return {
                "short": durable("short"),
                "mid": durable("mid-1"),
                "mid-2": durable("mid-2"),
                "long": durable("long"),
            }
        case Layout.FORGETFUL:
            return {"short": durable("short", ttl=True), "mid": durable("mid"), "long": durable("long")}


def volatile(seed: int, *, atomic: bool) -> Server:
    """A volatile server. A roll-back takes it to one of the moments remembered now and
    then.
    """
    state = State()
    store = InMemoryStore("cache", capabilities=replace(VOLATILE, atomic=atomic), state=state)
    remembered: list[Snapshot] = []
    random = seeded(seed, 2)

    def restart(roll_back: bool) -> None:
        earlier = random.choice(remembered) if roll_back and remembered else None
        remembered.append(state.snapshot())
        state.restart(keep=False)
        if earlier is not None:
            state.restore(earlier)

    return Server(store, restart)


def simulate(
    scenario: Scenario,
    client: ClientFactory,
    *,
    dropped: frozenset[int] = frozenset(),
    spared: frozenset[tuple[int, int]] = frozenset(),
    schedule: int = 0,
    traced: bool = False,
    stale: Callable[[World], float] = lambda world: 0.0,
) -> Result:
    """Run the scenario, without the operations `dropped` and the faults `spared`;
    `schedule` chooses another interleaving of the same.
    """
    loop = SimulatedLoop(scenario.seed * 1000 + schedule)
    plan = FaultPlan(
        seed=scenario.seed,
        rate=scenario.rate,
        focus=scenario.focus,
        lure=scenario.lure,
        lured=frozenset(o.number for o in scenario.operations if o.lured),
        lures={o.number: o.lure for o in scenario.operations if o.lure is not None},
        rare=RARE,
        dropped=spared,
    )
    world = World(
        scenario,
        loop,
        plan,
        build_servers(scenario, lambda: START + timedelta(seconds=loop.time())),
        [] if traced else None,
    )
    world.history.forgets = scenario.layout is Layout.FORGETFUL
    world.history.refuses = scenario.narrow
    kept = [o for o in scenario.operations if o.number not in dropped]
    try:
        run(loop, _run(world, client, kept))
    except Exception as error:  # noqa: BLE001 - whatever it is, the run did not end well, and which seed it was matters
        world.history.broken("stuck", "-", "".join(traceback.format_exception(error)))
    failed = [s.step for s in plan.struck if s.fault in FAILURES]
    strict = not any(step.startswith(CACHE_STEPS) for step in failed)
    violations = check(
        world.history,
        stale(world),
        strict=strict,
        moved=strict and not any(step in MOVING_STEPS for step in failed),
    )
    return Result(violations, plan.coverage, plan.struck, world.performed, world.trace or [])


async def _run(world: World, client: ClientFactory, operations: Sequence[Operation]) -> None:
    workers = range(world.scenario.workers)
    for operation in operations:
        if operation.meeting is not None:
            world.meetings.setdefault(operation.meeting, Meeting()).awaited += 1
    async with asyncio.TaskGroup() as group:
        for worker in workers:
            group.create_task(_worker(world, client, worker, [o for o in operations if o.worker == worker]))
    world.plan.active = False
    await asyncio.sleep(2 * LATEST + 1)  # what is still on the network arrives
    for server in world.distinct:
        server.store = server.widened or server.store
    auditor = world.process("auditor")
    auditor.begin(len(world.scenario.operations))
    OWNER.set(auditor)
    settling = client(world, auditor, world.stores_for(auditor))
    if not await settling.open():
        raise RuntimeError("without faults the stores must open")
    await settling.settle()


async def _worker(world: World, client: ClientFactory, worker: int, operations: Sequence[Operation]) -> None:
    """One worker through its operations. When its process dies, another takes its
    place, with nothing but the stores.
    """
    random = seeded(world.scenario.seed, 3, worker)
    life = 0
    todo = list(operations)
    while todo:
        life += 1
        process = world.process(f"w{worker}.{life}", error=(random.random() - 0.5) * 0.2)
        await process.lives(_live(world, client, process, todo))
        if process.dead:
            world.say(process.name, "--- is dead ---")
            await asyncio.sleep(random.random() ** 3 * 60)


async def _live(world: World, client: ClientFactory, process: Process, todo: list[Operation]) -> None:
    OWNER.set(process)
    with suppress(WorkerCrashed):
        mine = client(world, process, world.stores_for(process))
        process.begin(todo[0].number)
        while not await mine.open():  # noqa: ASYNC110
            await asyncio.sleep(1)
        while todo and not process.dead:
            operation = todo.pop(0)
            process.begin(operation.number)
            if operation.meeting is not None:
                await world.meetings[operation.meeting].join()
            await asyncio.sleep(operation.pause)
            world.say(process.name, f"=== {operation}")
            world.performed += 1
            world.back_up(operation.pick)
            if not await process.performs(mine.perform(operation)):
                world.say(process.name, "--- was cancelled ---")
