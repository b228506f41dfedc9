"""What small simulations share: processes on in-memory stores that go through their
acts, die, are followed by others, and are audited in the end.

Each has acts, a judge and mutations of its own: `erasing`, `linking`, `noting`,
`superseding`, `uploading`.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from math import exp, lgamma, log, log1p
from random import Random
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from memory.adapters.in_memory import InMemoryStore
from memory.domain.errors import MemoryTiersError, StoreError, TooMuchContention
from memory.domain.maintenance_reports import SweepReport
from memory.facade.config.settings import MemoryConfig
from memory.facade.memory import Memory
from memory.facade.runtime.access import Access
from memory.facade.runtime.lifecycle import EngineLifecycle
from memory.orchestrator.engine import Engine
from memory.orchestrator.storage.topology import Topology
from memory.ports.capabilities import Capabilities
from memory.ports.collections import Collection
from memory.ports.record import Record
from memory.ports.store import Store
from tests.simulation.faults import CLOCK_ERROR, LATEST, Fault, FaultPlan, Process, Server, WorkerCrashed
from tests.simulation.faulty_store import FaultyStore
from tests.simulation.loop import OWNER, START, SimulatedClock, SimulatedLoop, run, seeded
from tests.simulation.runner import silence
from tests.simulation.setup import SETTINGS
from tests.support import noticed
from tests.support.mutations import Mutation
from tests.support.repeatable import repeatable

NOTICED_WITHIN = 1_000
NONE_FIXED: Mapping[int, str] = {}
MEETING = 60.0
"""Seconds from one moment at which workers meet to the next."""


@dataclass(slots=True)
class World:
    """Everything of one run that its workers share, and what was seen to be wrong."""

    seed: int
    loop: SimulatedLoop
    plan: FaultPlan
    servers: list[Server]
    broken: list[str] = field(default_factory=list)
    acknowledged: int = 0

    def look(self) -> None:
        """Judge what stands in the stores: behind every call of a process."""

    def standing(self, collection: Collection) -> list[Record]:
        """The live records of all stores, as their disks have them."""
        return [
            row
            for server in self.servers
            for row in server.store.state.everything(collection.name)
            if isinstance(row, Record)
        ]

    def process(self, name: str, error: float = 0.0) -> Process:
        return Process(
            name, self.loop, SimulatedClock(self.loop, error, CLOCK_ERROR), self.plan, self.traced(name)
        )

    def traced(self, name: str) -> Callable[[str], None]:
        return lambda what: self.look()

    def client(self, server: Server, process: Process) -> Store:
        return FaultyStore(server, process, self.servers)

    def engine(self, process: Process, **options: Any) -> Engine:
        """An engine of this process's own, which draws its ids from the seed."""
        clients = [self.client(server, process) for server in self.servers]
        bits = process.random_bits(self.seed)
        topology = Topology(short=clients[0], mid=clients[min(1, len(clients) - 1)], long=clients[-1])
        return Engine(topology, clock=process.clock, settings=SETTINGS, random_bits=bits, **options)


W = TypeVar("W", bound=World)


class Worker(Generic[W]):
    """One process with an engine of its own; each act is a method, `_write` for
    "write", which is handed its label and what it draws from.
    """

    may_be_told: ClassVar[tuple[type[Exception], ...]] = (StoreError, TooMuchContention)
    """What an act may come to that judges by itself."""

    def __init__(self, run: W, process: Process) -> None:
        self.run, self.process, self.engine = run, process, run.engine(process)

    async def open(self) -> None:
        await self.engine.open()

    async def perform(self, act: str, label: str, random: Random) -> None:
        with suppress(*self.may_be_told):
            await getattr(self, f"_{act}")(label, random)
            self.run.acknowledged += 1

    async def _sweep(self, label: str, random: Random) -> None:
        await asyncio.sleep(random.random() * 100)
        await self.engine.maintenance.sweep()

    async def wait_for_meeting(self, random: Random) -> None:
        """Until the next moment at which workers meet."""
        await asyncio.sleep(MEETING - self.run.loop.time() % MEETING + random.random() * 0.002)


class Lasting(EngineLifecycle):
    """An engine that is opened by a process and kept up by nobody: what is to be done
    beside the acts is done by acts.
    """

    async def open(self, *, reindex: bool = False) -> None:
        self._owner = asyncio.get_running_loop()
        self._open = engine = self._build()
        await engine.open()


def memory_over(engine: Engine, config: MemoryConfig) -> Memory:
    """The facade over an engine of a process, not open yet."""
    return Memory._over(Access(config, Lasting(lambda: engine, timedelta(0)), config.tenant))


def loop_of(seed: int) -> SimulatedLoop:
    return SimulatedLoop(seed * 1000 + 11)


def servers_of(
    loop: SimulatedLoop,
    able: Capabilities,
    count: int = 1,
    store: Callable[..., InMemoryStore] = InMemoryStore,
) -> list[Server]:
    return [
        Server(store(f"store-{n}", capabilities=able, clock=lambda: START + timedelta(seconds=loop.time())))
        for n in range(count)
    ]


def plan_of(
    seed: int, random: Random, steps: Sequence[str], aimed: Sequence[Fault] = (), share: float = 0.0
) -> FaultPlan:
    """Nothing fails, or now and then something; more readily at these steps. In this
    share of runs, one of the `aimed` faults strikes at one of the steps.
    """
    plan = FaultPlan(seed=seed, rate=random.choice((0.0, 0.02, 0.05)), rare=frozenset(steps), most=12)
    if aimed and random.random() < share:
        plan.focus = random.choice(steps), random.choice(aimed).value
    return plan


def play(world: W, main: Callable[[W], Coroutine[Any, Any, None]]) -> W:
    """One run; the same seed is the same run."""
    try:
        run(world.loop, main(world))
    except Exception as error:  # noqa: BLE001 - whatever it is, the run did not end well, and which seed it was matters
        world.broken.append("stuck: " + "".join(traceback.format_exception(error)))
    return world


def drawn_acts(
    seed: int, number: int, weights: Mapping[str, int], count: int, fixed: Mapping[int, str] = NONE_FIXED
) -> tuple[list[tuple[str, str]], Random]:
    """What a worker does, each as a label and a kind, and what it draws from then; some
    kinds are `fixed` by their place.
    """
    random = seeded(seed, 3, number)
    kinds, odds = list(weights), list(weights.values())
    drawn = [random.choices(kinds, odds)[0] for _ in range(count)]
    return [(f"w{number}.{n}", fixed.get(n, kind)) for n, kind in enumerate(drawn)], random


async def at_work(
    world: W, begun: Callable[[Process], Worker[W]], todo: Sequence[tuple[list[tuple[str, str]], Random]]
) -> None:
    """Every worker through its acts, each told by a label and a kind; then nothing
    fails any more, and what is still on the network arrives.
    """
    async with asyncio.TaskGroup() as group:
        for number, (acts, random) in enumerate(todo):
            group.create_task(_one(world, begun, number, acts, random))
    world.plan.active = False
    await asyncio.sleep(2 * LATEST + 1)


async def _one(
    world: W, begun: Callable[[Process], Worker[W]], number: int, todo: list[tuple[str, str]], random: Random
) -> None:
    """One worker. When its process dies, another takes its place, with nothing but the
    stores.
    """
    life = 0
    while todo:
        life += 1
        process = world.process(f"w{number}.{life}", (random.random() - 0.5) * 0.2)
        await process.lives(_live(world, begun, process, todo, 1000 * number))
        await asyncio.sleep(random.random() ** 3 * 10 if process.dead else 0)


async def _live(
    world: W,
    begun: Callable[[Process], Worker[W]],
    process: Process,
    todo: list[tuple[str, str]],
    numbers: int,
) -> None:
    OWNER.set(process)
    with suppress(WorkerCrashed):
        worker = begun(process)
        process.begin(numbers)
        while not await _opened(worker):  # noqa: ASYNC110
            await asyncio.sleep(1)
        while todo and not process.dead:
            label, act = todo.pop(0)
            process.begin(numbers + 1 + len(todo))
            random = seeded(world.seed, 8, *label.encode())
            await asyncio.sleep(random.random() ** 4 * 0.2)
            await process.performs(worker.perform(act, label, random))


async def _opened(worker: Worker[Any]) -> bool:
    try:
        await worker.open()
    except MemoryTiersError:
        return False
    return True


def idle(report: SweepReport) -> bool:
    """Whether a sweep ran and had nothing to do."""
    return report.ran and not (
        report.finished or report.pending_steps or report.moved or report.waiting or report.dropped_relations
    )


async def audited(world: World, auditor: Process, waits: float, rounds: int, quiet: int = 1) -> Engine:
    """A process of its own, which sweeps until there is nothing more to do, so many
    times in a row: a sweep looks at a slice of some things only. It `waits` until
    nothing ends any more by another clock.
    """
    OWNER.set(auditor)
    engine = world.engine(auditor)
    await engine.open()
    await asyncio.sleep(waits)
    found_nothing = 0
    for _ in range(rounds + quiet - 1):
        await asyncio.sleep(100)  # longer than any lease
        report = await engine.maintenance.sweep()
        found_nothing = found_nothing + 1 if idle(report) else 0
        if found_nothing == quiet:
            break
    else:
        world.broken.append(
            f"after {rounds + quiet - 1} sweeps without a fault there is still work to do: {report}"
        )
    return engine


def bytes_of(row: Record) -> bytes:
    """What the field `data` of the record holds."""
    data = row.fields.get("data")
    return data if isinstance(data, bytes) else b""


def one(played: Callable[[int], W], seed: int) -> W:
    with silence(), repeatable(seed):
        return played(seed)


def assert_repeats(played: Callable[[int], W], seen: Callable[[W], object]) -> None:
    """A seed is the same run again, in all that is `seen` of it."""
    for seed in (0, 9):
        assert seen(one(played, seed)) == seen(one(played, seed))


ENOUGH = 40
"""So many seeds, as `make nightly` plays, meet all that a simulation is about. Of fewer,
as in CI, it is asked only that none is broken and that faults struck.
"""


def unbroken(
    name: str, seeds: Sequence[int], played: Callable[[int], W], capsys: pytest.CaptureFixture[str]
) -> list[W]:
    """A run of each of these seeds of a judge. Says which they are; none is broken, and
    faults struck.
    """
    with capsys.disabled():
        print(f"\n{name}: {len(seeds)} seeds from {seeds[0]}")
    runs = {seed: one(played, seed) for seed in seeds}
    broken = {seed: world.broken[0] for seed, world in runs.items() if world.broken}
    assert not broken, f"{name}: {broken}"
    assert sum(len(world.plan.struck) for world in runs.values()) > len(seeds)
    noticed.are_sound(name, seeds)
    return list(runs.values())


def assert_shown(worlds: Sequence[W], share: float, shows: Callable[[W], object], what: str) -> None:
    """Enough of these runs show it, where no less than this share of all runs does."""
    wanted = least(len(worlds), share)
    assert wanted > 0, f"{len(worlds)} runs tell nothing of what so few show: {what}"
    shown = sum(bool(shows(world)) for world in worlds)
    assert shown >= wanted, f"of {len(worlds)} runs {shown} show {what}, and {wanted} or more should"


def least(runs: int, share: float) -> int:
    """So many of these runs show what this share of all runs does: that fewer do
    happens once in 100,000 times.
    """
    below, shown = chance_of(0, runs, share), 0
    while below <= 1e-5:
        shown += 1
        below += chance_of(shown, runs, share)
    return shown


def chance_of(shown: int, runs: int, share: float) -> float:
    """That exactly so many do."""
    ways = lgamma(runs + 1) - lgamma(shown + 1) - lgamma(runs - shown + 1)
    return exp(ways + shown * log(share) + (runs - shown) * log1p(-share))


def assert_noticed(name: str, mutation: Mutation, played: Callable[[int], World]) -> None:
    """The noted seed fails with the mutation, and does not without."""
    noticed.assert_shows(
        name, mutation.applied, lambda seed: bool(one(played, seed).broken), range(NOTICED_WITHIN)
    )
