"""Runs of recordings: managers of several processes over stores that fail, and over a
memory whose stores do; processes die between any two calls.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from dataclasses import replace
from datetime import timedelta
from random import Random

from memory.adapters.in_memory import InMemoryStore
from memory.agents.manager import EveryNTurns, EveryTurn, Extraction, MemoryManager, NamedStore, Recording
from memory.agents.manager.manager import NAMESPACE
from memory.agents.manager.spool import Buffer
from memory.domain.errors import MemoryTiersError
from memory.facade.config.settings import MemoryConfig
from memory.facade.memory import Memory
from memory.facade.resources.session import Session
from memory.orchestrator.storage.kinds import KINDS
from memory.orchestrator.storage.steps import step
from tests.simulation.extracting.elsewhere import RECORDING, STRIKE, Hears, Notes, everything
from tests.simulation.extracting.told import HEARD, LEAVES_OUT, NOTES, SOME, Said, Told
from tests.simulation.extracting.told import Life as Recorded
from tests.simulation.faults import LATEST, RESTARTS, Fault, FaultPlan, Process, Server, WorkerCrashed
from tests.simulation.lives import memory_over
from tests.simulation.loop import OWNER, START, SimulatedLoop, run, seeded
from tests.simulation.sessions.acts import TENANT, texts_in
from tests.simulation.sessions.run import Run
from tests.simulation.sessions.told import Call as Asked
from tests.simulation.sessions.told import Told as SessionsTold
from tests.simulation.world import HOME

WORKERS, OPERATIONS, ROUNDS = 3, 9, 12
STEPS = (
    *("runs.read", "runs.save", "runs.list", "log.append", "session.create", "session.update"),
    *(
        "erase.begin",
        "erase.raise",
        "erase.delete",
        "erase.end",
        *(f"tell.{store}" for store in (HEARD, SOME, NOTES)),
    ),
)
"""What runs are aimed at."""
OTHERS = tuple(fault for fault in Fault if fault not in RESTARTS | {Fault.PARTIAL})
"""What can strike there: the store of a run is durable, and takes what it is given
together.
"""
ACTS = "say say say turn turn flush end end run run resume past erase erase down buffer buffer outage".split()
CONFIG = MemoryConfig.load("memory://", embedder="none", accept_loss=True, tenant=TENANT)
USERS = {"s/1": "bob", "s/2": "ada"}
OUTAGE = 13
"""Turns of an outage: more than it takes for a store to be tried more seldom, and such
that every store is owed something by the last.
"""


class Manager(MemoryManager):
    """One that notes how far stores had come when a recording was begun."""

    told: Told

    async def _begin_recording(self, session: Session | None, run_id: str) -> Recording:
        begun, recording = self.told.now(), await super()._begin_recording(session, run_id)
        if RECORDING in recording._context:
            return recording  # begun by two at once
        number = recording._context[RECORDING] = next(self.told.recordings)
        floors: dict[str, int] = {}
        if session is not None:
            life = (await session._conversation()).log.life
            self.told.lives.setdefault(
                life.incarnation, Recorded(session.id, str(life.whose.get("subject")), begun)
            )
            floors = {store: mark for store, of, mark, _ in self.told.runs() if of == life.incarnation}
        self.told.floors[number] = begun, floors
        return recording


class Agent:
    """What runs in one process: a manager over a memory, and one that keeps what is
    said by itself.
    """

    def __init__(self, told: Told, process: Process) -> None:
        self.told, self._process = told, process
        engine = told.run.engine(process, None)
        self.memory = memory_over(engine, CONFIG)
        self.engine = engine
        self.manager = self._managing(self.memory)
        self._apart = self._managing(None)
        self._recordings: dict[str, tuple[Recording, Session]] = {}
        self._buffered: list[Said] = []

    def _managing(self, memory: Memory | None) -> Manager:
        def leaves_out(message: object) -> object:
            return None if message.text.endswith(LEAVES_OUT) else message  # type: ignore[attr-defined]

        heard, some = (Hears(self.told.stores[name], self._process) for name in (HEARD, SOME))
        notes = Notes(self.told.stores[NOTES], self._process)
        stores = [
            NamedStore(HEARD, heard, writable=True, extraction=Extraction(EveryTurn())),
            NamedStore(SOME, some, writable=True, extraction=Extraction(EveryNTurns(3), leaves_out)),  # type: ignore[arg-type]
            NamedStore(
                NOTES, notes, writable=True, extraction=Extraction(EveryNTurns(2), extractor=everything)
            ),
        ]
        manager = Manager(stores, memory=memory)
        manager.told = self.told
        return manager

    async def open(self) -> bool:
        try:
            await self.memory.open()
            await self.manager.open()
        except MemoryTiersError:
            return False
        return True

    async def perform(self, act: str, label: str, random: Random) -> None:
        """Do it; whatever a store's failure leaves open stays open."""
        try:
            await getattr(self, f"_{act}")(label, random)
        except MemoryTiersError:
            self._recordings.clear()
            for recording in list(self.manager._recordings.values()):
                await recording.close()
        if self._process.dead:
            raise WorkerCrashed(self._process.name)
        self.told.look()

    async def _recording(self, random: Random) -> tuple[Recording, Session]:
        session_id = random.choice(sorted(USERS))
        if session_id not in self._recordings:
            session = self.memory.session(session_id, user=USERS[session_id])
            self._recordings[session_id] = await self.manager.record(session), session
        return self._recordings[session_id]

    async def _added(self, recording: Recording, session: Session, label: str, random: Random) -> list[Said]:
        """Some messages that are handed to a recording."""
        life = (await session._conversation()).log.life.incarnation
        said = [Said(f"{label}/{n}", life, self.told.now()) for n in range(random.randint(1, 4))]
        self.told.said |= {one.text: one for one in said}
        await recording.add([{"role": "user", "content": one.text} for one in said])
        for one in said:
            one.sure = True
        return said

    async def _say(self, label: str, random: Random) -> None:
        await self._added(*await self._recording(random), label, random)

    async def _turn(self, label: str, random: Random) -> None:
        recording, session = await self._recording(random)
        await self._added(recording, session, label, random)
        await recording.turn_ended()
        if random.random() < 0.5:
            await self.manager._drain()

    async def _past(self, label: str, random: Random) -> None:
        """Something is appended past the recording; once a turn has ended without a
        fault it is as sure as what was added.
        """
        recording, session = await self._recording(random)
        said = Said(f"{label}/past", (await session._conversation()).log.life.incarnation, self.told.now())
        self.told.said[said.text] = said
        went_well = self._all_goes_well()
        await session.append({"role": "user", "content": said.text})
        await recording.turn_ended()
        await self.manager._drain()
        said.sure = went_well()

    async def _flush(self, label: str, random: Random) -> None:
        """Every store has everything that this process was acknowledged, unless
        something fails.
        """
        recording, session = await self._recording(random)
        if random.random() < 0.5:
            await recording.flush()  # what fails in it is made up for
        mine, went_well = [said for said in self.told.said.values() if said.sure], self._all_goes_well()
        await recording.flush()
        if went_well():
            life = (await session._conversation()).log.life.incarnation
            self._have(*self.told.stores, said=[said for said in mine if said.life == life])
            self.told.noted(recording._context[RECORDING], life)

    async def _end(self, label: str, random: Random) -> None:
        recording, session = await self._recording(random)
        await self.manager._drain()
        self._recordings.pop(session.id, None)
        said = [one for one in self.told.of((await session._conversation()).log.life.incarnation) if one.sure]
        if await recording.close():
            self._have(*self.told.stores, said=said)

    async def _run(self, label: str, random: Random) -> None:
        """A run without a session of its own, which is closed more often than not."""
        user = random.choice(("ada", "bob"))
        recording = await self.manager.record(run_id=label, user=user)
        session: Session = recording._spool.session  # type: ignore[attr-defined]
        life = (await session._conversation()).log.life.incarnation
        self.told.lives[life] = replace(self.told.lives[life], user=user)
        said = await self._added(recording, session, label, random)
        if random.random() < 0.5:
            await recording.turn_ended()
        if random.random() < 0.7 and await recording.close():
            self._have(*self.told.stores, said=said)

    async def _resume(self, label: str, random: Random) -> None:
        await self.manager.resume()

    async def _erase(self, label: str, random: Random) -> None:
        if random.random() < 0.5:
            return
        erasing = Asked(self.told.now())
        self.told.erasings.append(erasing)
        with self.told.run.told.calling(erasing):
            await self.memory.admin.erase_user("ada")

    async def _down(self, label: str, random: Random) -> None:
        """A store is away for a while."""
        there = random.choice(list(self.told.stores.values()))
        there.is_down = True
        self.told.run.loop.call_later(
            random.random() * 20, lambda: setattr(there, "is_down", False), context=Context()
        )

    async def _buffer(self, label: str, random: Random) -> None:
        """What is said without a memory: it is held until every store has it, and no
        longer.
        """
        recording = await self._apart.record(run_id=f"{self._process.name}.apart")
        held: Buffer = recording._spool  # type: ignore[assignment]
        said = [
            Said(f"{label}/{n}", f"apart {self._process.name}", self.told.now())
            for n in range(random.randint(1, 4))
        ]
        self.told.said |= {one.text: one for one in said}
        went_well = self._all_goes_well()
        await recording.add([{"role": "user", "content": one.text} for one in said])
        self._buffered += said
        await recording.turn_ended()
        await (self._apart.flush() if random.random() < 0.3 else self._apart._drain())
        there = {message.text for message in held._held}
        for name, store in self.told.stores.items():
            lost = [
                one.text
                for one in self._buffered
                if one.is_for(name) and one.text not in there | store.heard()
            ]
            self.told.broken += [f"'{text}' has not come to '{name}', and is held no more" for text in lost]
        await self._apart.flush()
        if went_well() and len(held):
            self.told.broken.append(f"every store has everything, and {len(held)} messages are held")

    async def _outage(self, label: str, random: Random) -> None:
        """One store is away for longer than it is patiently tried, and all else goes
        well: others miss nothing, and it has all once it is back.
        """
        if random.random() < 0.7 or not self.told.run.plan.active:
            return
        plan, down = self.told.run.plan, self.told.stores[HEARD]
        plan.active = False
        try:
            await asyncio.sleep(2 * LATEST + 1)
            session = self.memory.session(f"out/{label}", user="bob")
            recording = await self.manager.record(session)
            said: list[Said] = []
            down.is_down = True
            for turn in range(OUTAGE):
                said += await self._added(recording, session, f"{label}x{turn}", random)
                await recording.turn_ended()
                await self.manager._drain()
            await recording.flush()
            self._have(SOME, NOTES, said=said)
            down.is_down = False
            if random.random() < 0.5:
                await recording.flush()
            else:
                for _ in range(3):
                    await recording.turn_ended()
                    await self.manager._drain()
            self._have(HEARD, said=said)
        finally:
            down.is_down, plan.active = False, True

    def _all_goes_well(self) -> Callable[[], bool]:
        """Whether nothing failed from here on, when that is asked."""
        there = self._failed()
        is_down = any(server.down_until > self.told.now() for server in self.told.run.servers)
        return lambda: not is_down and self._failed() == there

    def _failed(self) -> tuple[int, ...]:
        return len(self.told.run.plan.struck), *(store.refused for store in self.told.stores.values())

    def _have(self, *names: str, said: list[Said]) -> None:
        for name in names:
            heard = self.told.stores[name].heard()
            lost = [
                one
                for one in said
                if one.is_for(name) and one.text not in heard and not self.told.may_be_erased(one)
            ]
            self.told.broken += [f"all was told, and '{name}' has not '{one.text}'" for one in lost]


def run_recordings(seed: int) -> Told:
    """One run; the same seed is the same run."""
    random, loop = seeded(seed, 6), SimulatedLoop(seed * 1000 + 7)
    at = random.choice(STEPS)
    fault = (
        random.choice(
            STRIKE
            if at.startswith("tell.")
            else tuple(set(Fault) - {Fault.EMPTIED, Fault.ROLLED_BACK, Fault.PARTIAL})
        )
        if at
        else STRIKE[0]
    )
    plan = FaultPlan(seed=seed, focus=(at, fault.value), rate=random.choice((0.01, 0.03)))
    store = InMemoryStore("store", capabilities=HOME, clock=lambda: START + timedelta(seconds=loop.time()))
    told = Told(Run(seed, loop, plan, [Server(store)], SessionsTold(loop.time)))
    try:
        run(loop, _all(told))
    except Exception as error:  # noqa: BLE001 - whatever it is, the run did not end well, and which seed it was matters
        told.broken.append("stuck: " + "".join(traceback.format_exception(error)))
    return told


async def _all(told: Told) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(WORKERS):
            group.create_task(_worker(told, number))
    told.run.plan.active = False
    for store in told.stores.values():
        store.is_down = False
    await asyncio.sleep(2 * LATEST + 1)  # what is still on the network arrives
    await _in_the_end(told)


async def _worker(told: Told, number: int) -> None:
    """One worker through its acts. When its process dies, another takes its place, with
    nothing but the stores.
    """
    random = seeded(told.run.seed, 3, number)
    todo, life = [(f"w{number}.{n}", random.choice(ACTS)) for n in range(OPERATIONS)], 0
    while todo:
        life += 1
        process = told.run.process(f"w{number}.{life}", (random.random() - 0.5) * 0.2)
        await process.lives(_live(told, process, todo, 1000 * number))
        await asyncio.sleep(random.random() ** 3 * 10 if process.dead else 0)
        process.dead = True  # what it had not told by then is for others to find


async def _live(told: Told, process: Process, todo: list[tuple[str, str]], numbers: int) -> None:
    OWNER.set(process)
    with suppress(WorkerCrashed):
        agent = Agent(told, process)
        process.begin(numbers)
        while not await agent.open():  # noqa: ASYNC110
            await asyncio.sleep(1)
        while todo and not process.dead:
            label, act = todo.pop(0)
            random = seeded(told.run.seed, 8, *label.encode())
            process.begin(numbers + 1 + len(todo))
            await asyncio.sleep(random.random() ** 4 * 0.2)
            told.run.trace.append(f"{process.name} === {label} {act}")
            await process.performs(agent.perform(act, label, random))


async def _in_the_end(told: Told) -> None:
    """What is owed is carried out, and what was left is told by one process; then
    everything that was promised holds at once.
    """
    process = told.run.process("auditor")
    OWNER.set(process)
    auditor = Agent(told, process)
    await auditor.memory.open()
    for _ in range(ROUNDS):
        await asyncio.sleep(100)  # longer than any lease
        report = await auditor.engine.maintenance.sweep()
        if report.ran and not (
            report.finished or report.pending_steps or report.moved or report.waiting or report.stays
        ):
            break
    rounds = [await auditor.manager.resume() for _ in range(2)]
    if rounds[-1]:
        told.broken.append(f"after all was told {rounds[-1]} sessions are noted to wait")
    numbers: dict[str, dict[str, int]] = {}
    async for session_id in _sessions(auditor.memory):
        session = auditor.memory.session(session_id, create=False)
        info, life = await session.info(), (await session._conversation()).log.life.incarnation
        numbers[life] = {
            item.message.text: item.number - 1 for item in (await session.history(limit=1_000)).items
        }
        if (
            info.namespace == NAMESPACE and info.expires_at is None and info.message_count
        ):  # one that was never recorded in has nothing noted
            told.broken.append(f"'{session_id}' is kept although every store has it")
    told.look()
    told.judged(numbers)
    told.erased(
        [(row, texts_in(row)) for collection in KINDS.collections for row in told.run.standing(collection)]
    )


async def _sessions(memory: Memory):  # type: ignore[no-untyped-def]
    with step("session.list"):
        for info in (await memory.sessions.list(limit=1_000)).sessions:
            yield info.id
