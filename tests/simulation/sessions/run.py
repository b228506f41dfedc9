"""Runs of sessions: the real engine on in-memory stores, several workers in one conversation, faults at every call of a store."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random

from memory.adapters.in_memory import InMemoryStore
from memory.adapters.wrappers.retry import Retry
from memory.adapters.wrappers.timeout import Timeout
from memory.domain.errors import InvalidInput, MemoryTiersError, NotFound
from memory.domain.message import Message, Role, ToolCall
from memory.domain.session import HistoryItem
from memory.orchestrator.collections import MESSAGES
from memory.orchestrator.conversations.conversation import Checkpoint, Conversation
from memory.orchestrator.conversations.history import HistoryAsked
from memory.orchestrator.conversations.sessions import SessionDraft, scope_of
from memory.orchestrator.engine import Engine
from memory.orchestrator.topology import Topology
from memory.ports.query import Query, within
from memory.ports.record import Partition, Record
from memory.ports.store import Store
from tests.simulation.faults import CLOCK_ERROR, LATEST, Fault, FaultPlan, Process, Server, WorkerCrashed
from tests.simulation.faulty_store import FaultyStore
from tests.simulation.loop import OWNER, START, SimulatedClock, SimulatedLoop, run, seeded
from tests.simulation.sessions.told import Said, Told, summary_of
from tests.simulation.setup import SETTINGS
from tests.simulation.world import HOME

TENANT, SESSION = "acme", "s/1"
STEPS = (
    "log.append",
    "log.append",
    "log.load",
    "log.read",
    "log.find",
    "log.change",
    "session.create",
    "session.read",
    "erase.raise",
    "erase.delete",
)
WORKERS, OPERATIONS = 3, 14
SYSTEM = Message(role=Role.SYSTEM, content="Be brief.")
ACTS = "say say say batch batch name name name update call exclude restore clear roll_back compact compact end read read read sweep delete".split()


@dataclass(slots=True)
class Run:
    seed: int
    loop: SimulatedLoop
    plan: FaultPlan
    servers: list[Server]
    told: Told = field(default_factory=Told)
    trace: list[str] = field(default_factory=list)

    def engine(self, process: Process) -> Engine:
        clients: list[Store] = [FaultyStore(server, process, self.servers) for server in self.servers]
        if self.seed % 3 == 0:
            clients = [Retry(Timeout(store, 8.0), attempts=3, backoff=0.1) for store in clients]
        short, mid = clients[0], clients[-1]
        bits = seeded(self.seed, 5, *process.name.encode()).getrandbits
        topology = Topology(short=short, mid=mid, long=mid)
        return Engine(topology, clock=process.clock, settings=replace(SETTINGS, page=20), random_bits=bits)

    def process(self, name: str, error: float = 0.0) -> Process:
        return Process(name, self.loop, SimulatedClock(self.loop, error, CLOCK_ERROR), self.plan, lambda what: self.trace.append(f"{name} {what}"))


class Worker:
    """One process with an engine of its own."""

    def __init__(self, world: Run, process: Process) -> None:
        self._world, self._process, self._told = world, process, world.told
        self.engine = world.engine(process)
        self._handle: Conversation | None = None
        self._checkpoint: Checkpoint | None = None
        self._names: list[str] = []

    async def handle(self) -> Conversation:
        if self._handle is None:
            self._handle = await self.engine.conversations.open(TENANT, SessionDraft(SESSION, SYSTEM), create=True)
        return self._handle

    async def perform(self, act: str, label: str, random: Random) -> None:
        """Do it, note what was promised; whatever a store's failure leaves open stays open."""
        if random.random() < 0.15:
            self._handle = None
        try:
            session = await self.handle()
            await getattr(self, f"_{act}")(session, session._log.life.incarnation, label, random)
        except NotFound:
            self._handle = None
        except InvalidInput:
            self._checkpoint = None  # of a former life
        except MemoryTiersError:
            pass
        if self._process.dead:
            raise WorkerCrashed(self._process.name)

    async def _append(self, session: Conversation, life: str, messages: list[Message]) -> None:
        said = Said(life, tuple(message.text for message in messages))
        self._told.said.append(said)
        stored = await session.append(messages)
        said.acknowledged = self._world.loop.time()
        self._names += [str(message.id) for message in stored]

    async def _say(self, session: Conversation, life: str, label: str, random: Random) -> None:
        await self._append(session, life, [Message(role=Role.USER, content=label)])

    async def _batch(self, session: Conversation, life: str, label: str, random: Random) -> None:
        await self._append(session, life, [Message(role=Role.USER, content=f"{label}/{n}") for n in range(random.randint(2, 5))])

    async def _name(self, session: Conversation, life: str, label: str, random: Random) -> None:
        name = f"m{random.randrange(5)}"
        self._told.names(life, name, label)
        await session.append([Message(id=name, role=Role.ASSISTANT, content=label)])
        self._told.sure.setdefault((life, name), self._world.loop.time())
        self._names.append(name)

    async def _lengthen(self, session: Conversation, life: str, label: str, random: Random) -> None:
        """A log so long that its beginning is not read with its end."""
        for _ in range(2):
            await self._name(session, life, label, random)
        await self._append(session, life, [Message(role=Role.USER, content=f"{label}/{n}") for n in range(100)])

    async def _update(self, session: Conversation, life: str, label: str, random: Random) -> None:
        name = f"m{random.randrange(5)}"
        self._told.names(life, name, label)
        await session.update(name, {"content": label})

    async def _call(self, session: Conversation, life: str, label: str, random: Random) -> None:
        call = Message(role=Role.ASSISTANT, content=f"{label}/call", tool_calls=[ToolCall(id=label, name="look", arguments="{}")])
        await self._append(session, life, [call])
        await self._append(session, life, [Message(role=Role.TOOL, content=f"{label}/result", tool_call_id=label)])

    async def _exclude(self, session: Conversation, life: str, label: str, random: Random) -> None:
        if self._names:
            self._told.done[life, label] = False
            self._told.done[life, label] = await session.exclude(random.choice(self._names), label)

    async def _restore(self, session: Conversation, life: str, label: str, random: Random) -> None:
        if self._names:
            await session.restore(random.choice(self._names))

    async def _clear(self, session: Conversation, life: str, label: str, random: Random) -> None:
        await session.clear()

    async def _roll_back(self, session: Conversation, life: str, label: str, random: Random) -> None:
        checkpoint, self._checkpoint = self._checkpoint, await session.checkpoint()
        if checkpoint is not None:
            self._told.done[life, label] = False
            self._told.done[life, label] = await session.roll_back(checkpoint, label) > 0

    async def _compact(self, session: Conversation, life: str, label: str, random: Random) -> None:
        async def summarise(messages: list[Message]) -> str:
            await asyncio.sleep(random.random() * 0.1)
            return summary_of([str(message.id) for message in messages])

        self._told.done[life, label] = False
        made = await session.compact(summarise, keep_last=random.randrange(4), reason=label)
        self._told.done[life, label] = made.reason == label

    async def _end(self, session: Conversation, life: str, label: str, random: Random) -> None:
        await session.close("ended")
        await session.resume()

    async def _sweep(self, session: Conversation, life: str, label: str, random: Random) -> None:
        await self.engine.maintenance.sweep()

    async def _delete(self, session: Conversation, life: str, label: str, random: Random) -> None:
        if random.random() < 0.5:
            await self.engine.conversations.sessions.delete(TENANT, SESSION)
            self._told.ended.setdefault(life, self._world.loop.time())

    async def _read(self, session: Conversation, life: str, label: str, random: Random) -> None:
        since = self._world.loop.time()
        items = await everything(session)
        await session.info()  # raises where the life ended meanwhile: then some of it may have been gone already
        self._told.read(life, since, items, label)
        shown = (await session.context()).messages
        for at, message in enumerate(shown):
            if message.role is Role.TOOL and not (at and [call.id for call in shown[at - 1].tool_calls] == [message.tool_call_id]):
                self._told.broken.append(f"{label}: the result '{message.text}' is not behind its call")


async def everything(session: Conversation) -> list[HistoryItem]:
    page = await session.history(HistoryAsked(limit=9))
    items = list(page.items)
    while page.cursor is not None:
        page = await session.history(HistoryAsked(limit=9, cursor=page.cursor))
        items += page.items
    return items


def run_sessions(seed: int) -> Run:
    """One run; the same seed is the same run."""
    random = seeded(seed, 6)
    loop = SimulatedLoop(seed * 1000 + 7)
    plan = FaultPlan(seed=seed, focus=(random.choice(STEPS), random.choice(list(Fault)).value))
    if seed % 3 == 0:  # what is retried: answers that are lost
        plan.focus = ("log.append", random.choice((Fault.ERROR_AFTER, Fault.TIMEOUT, Fault.PARTIAL)).value)
    able = replace(HOME, atomic=random.random() < 0.5)
    count = random.choice((1, 2))
    servers = [Server(InMemoryStore(f"store-{n}", capabilities=able, clock=lambda: START + timedelta(seconds=loop.time()))) for n in range(count)]
    world = Run(seed, loop, plan, servers)
    run(loop, _all(world))
    return world


async def _all(world: Run) -> None:
    async with asyncio.TaskGroup() as group:
        for worker in range(WORKERS):
            group.create_task(_worker(world, worker))
    world.plan.active = False
    await asyncio.sleep(2 * LATEST + 1)  # what is still on the network arrives
    process = world.process("auditor")
    OWNER.set(process)
    auditor = Worker(world, process)
    await auditor.engine.open()
    session = await auditor.handle()
    life = session._log.life.incarnation
    world.told.read(life, world.loop.time(), await everything(session), "in the end")
    rows: list[Record] = []
    pages = auditor.engine.placement.pages(
        "log.load", world.servers[-1].store, Query(MESSAGES, within(Partition(TENANT, scope_of(SESSION))), limit=20)
    )
    async for page in pages:
        rows += [row for row in page.records if isinstance(row, Record)]
    rows = [row for row in rows if row.key.id == session._log.key(int(str(row.fields["place"])))]  # a deletion cut short leaves some of a former life
    rows.sort(key=lambda row: int(str(row.fields["place"])))
    _, events = await session._log.window()
    window = [str(event.message.id) for event in events.values() if event.message is not None]
    world.told.log(life, rows, window, has_system=True)


async def _worker(world: Run, number: int) -> None:
    """One worker through its acts. When its process dies, another takes its place, with nothing but the stores."""
    random = seeded(world.seed, 3, number)
    todo = [(f"w{number}.{n}", random.choice(ACTS)) for n in range(OPERATIONS)]
    if world.seed % 4 == 1 and number == 0:
        todo.insert(0, ("w0.long", "lengthen"))
    life = 0
    while todo:
        life += 1
        process = world.process(f"w{number}.{life}", (random.random() - 0.5) * 0.2)
        task = asyncio.create_task(_live(world, process, todo, number))
        process.on_death = task.cancel
        await asyncio.wait([task])
        if not process.dead and not task.cancelled() and (error := task.exception()) is not None:
            raise error
        await asyncio.sleep(random.random() ** 3 * 10 if process.dead else 0)


async def _live(world: Run, process: Process, todo: list[tuple[str, str]], number: int) -> None:
    OWNER.set(process)
    with suppress(WorkerCrashed):
        worker = Worker(world, process)
        while True:
            try:
                process.begin(1000 * number + len(todo))
                await worker.engine.open()
                break
            except MemoryTiersError:
                await asyncio.sleep(1)
        while todo and not process.dead:
            label, act = todo.pop(0)
            random = seeded(world.seed, 8, *label.encode())
            process.begin(1000 * number + 500 + len(todo))
            await asyncio.sleep(random.random() ** 4 * 0.2)
            world.trace.append(f"{process.name} === {label} {act}")
            process.task = asyncio.create_task(worker.perform(act, label, random))
            try:
                await process.task
            except asyncio.CancelledError:
                if process.dead or not process.cancelled:
                    raise
                process.cancelled = False  # the caller gave up; the process goes on
