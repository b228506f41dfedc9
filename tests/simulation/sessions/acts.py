"""What a worker does with a session, and what it is told: one process with an engine of
its own.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING
from zlib import decompress

from memory.domain.errors import Conflict, InvalidInput, MemoryTiersError, NotFound, StoreError
from memory.domain.message import Message, Role, ToolCall
from memory.domain.session import HistoryItem
from memory.domain.versions import check_expected
from memory.orchestrator.conversations.conversation import Checkpoint, Conversation
from memory.orchestrator.conversations.log.session_state import StateChange
from memory.orchestrator.conversations.sessions import SessionDraft
from memory.orchestrator.conversations.window.history import HistoryQuery
from memory.policies.compaction_thresholds import MessageThreshold
from memory.policies.context import ContextRequest
from memory.policies.window_exit import ExitedMessages
from memory.ports.record import Record
from memory.ports.record import Role as Copy
from tests.simulation.faults import Process, WorkerCrashed
from tests.simulation.loop import seeded
from tests.simulation.sessions.told import SYSTEM_ID, Call, Fork, Said, Saying, Taking, summary_of

if TYPE_CHECKING:
    from tests.simulation.sessions.run import Run

TENANT, SESSION, ADA = "acme", "s/1", "ada"
SYSTEM = Message(role=Role.SYSTEM, content="Be brief.")
SAYING = "say say say batch batch name name name update call "
CHANGING = "exclude restore clear roll_back compact compact policy replace erase end archive "
ACTS = [
    *(2 * (SAYING + CHANGING + "read read read sweep onward lists fork ")).split(),
    "delete",
    "erase_user",
]
BESIDE_COPIES = [*ACTS, *("read " * 15 + "name update update erase erase pop pop clear delete").split()]
"""Where copies of windows are left: mostly reads, and what changes a window."""
ALSO = ("pop", "state")
"""Acts that are only cut off at each call: another list would change what seeds draw."""
TEXT = re.compile(r"w\d+\.\w+(?:/\w+)?")
"""Whatever is said in a run."""


class Distiller:
    """The callback of a process, a model's stand-in: it never says the same twice, and
    fails now and then while there are faults.
    """

    def __init__(self, world: Run) -> None:
        self._world = world

    async def __call__(self, leaving: ExitedMessages) -> list[str]:
        number = self._world.told.answers
        self._world.told.answers += 1
        random = seeded(self._world.seed, 9, number)
        await asyncio.sleep(random.random() * 0.05)
        if self._world.plan.active and random.random() < 0.3:
            raise RuntimeError("the model does not answer")
        told = [*leaving.messages, *([] if leaving.summary is None else [leaving.summary])]
        said, many = " ".join(message.text for message in told), 1 + number % 3
        return [f"answer {number}, {each} of {many}: {said}" for each in range(many)]


class Worker:
    """One process."""

    def __init__(self, world: Run, process: Process) -> None:
        self._world, self._process, self._told = world, process, world.told
        self.engine = world.engine(process, Distiller(world))
        self._handle: Conversation | None = None
        self._checkpoint: Checkpoint | None = None
        self._count: dict[str, int] = {}
        """By life: how many messages there were when this process was last acknowledged
        one.
        """

    async def handle(self) -> Conversation:
        if self._handle is None:
            self._handle = await self.engine.conversations.open(
                TENANT, SessionDraft(SESSION, SYSTEM, user=ADA), create=True
            )
        return self._handle

    def forget(self) -> None:
        """The next call opens the session anew."""
        self._handle = None

    async def perform(self, act: str, label: str, random: Random) -> None:
        """Do it, note what was promised; whatever a store's failure leaves open stays
        open.
        """
        if random.random() < 0.15:
            self._handle = None
        self._world.first_put.pop(self._process.name, None)
        try:
            session = await self.handle()
            try:
                await getattr(self, f"_{act}")(session, session.log.life.incarnation, label, random)
            except Conflict:
                await session.resume()  # it was closed
        except NotFound:
            self._handle = None
        except InvalidInput:
            self._checkpoint = None  # of a former life
        except MemoryTiersError:
            pass
        if self._process.dead:
            raise WorkerCrashed(self._process.name)

    # -- saying ------------------------------------------------------------------------

    async def _append(self, session: Conversation, life: str, messages: list[Message]) -> None:
        said = Said(self._told.now(), life=life, texts=tuple(message.text for message in messages))
        self._told.said.append(said)
        with self._told.calling(said):
            try:
                stored = await session.append(messages)
            except StoreError:
                again = (
                    len(messages) == 1 or self._world.servers[-1].store.capabilities.atomic
                )  # of several without ids some would be there twice
                if not again or seeded(self._world.seed, 10, *said.texts[0].encode()).random() < 0.5:
                    raise
                stored = await session.append(messages)  # as many a caller does
        for message in stored:
            self._told.says(
                life, str(message.id), Saying(said.begun, said.ended, done=True, text=message.text)
            )
        self._told.has(life, *(str(message.id) for message in stored))
        if session.log.snapshot is not None:
            self._count[life] = session.log.snapshot.state.after.number

    async def _say(self, session: Conversation, life: str, label: str, random: Random) -> None:
        await self._append(session, life, [Message(role=Role.USER, content=label)])

    async def _batch(self, session: Conversation, life: str, label: str, random: Random) -> None:
        await self._append(
            session,
            life,
            [Message(role=Role.USER, content=f"{label}/{n}") for n in range(random.randint(2, 5))],
        )

    async def _name(self, session: Conversation, life: str, label: str, random: Random) -> None:
        name = f"m{random.randrange(5)}"
        with self._told.calling(self._told.says(life, name, Saying(self._told.now(), text=label))):
            await session.append([Message(id=name, role=Role.ASSISTANT, content=label)])
        self._told.has(life, name)

    async def _lengthen(self, session: Conversation, life: str, label: str, random: Random) -> None:
        """A log so long that its beginning is not read with its end."""
        for each in ("one", "two"):
            await self._name(session, life, f"{label}/{each}", random)
        await self._append(
            session, life, [Message(role=Role.USER, content=f"{label}/{n}") for n in range(100)]
        )

    async def _update(self, session: Conversation, life: str, label: str, random: Random) -> None:
        name = f"m{random.randrange(5)}"
        with self._told.calling(self._told.says(life, name, Saying(self._told.now(), text=label))):
            await session.update(name, {"content": label})

    async def _call(self, session: Conversation, life: str, label: str, random: Random) -> None:
        call = Message(
            role=Role.ASSISTANT,
            content=f"{label}/call",
            tool_calls=[ToolCall(id=label, name="look", arguments="{}")],
        )
        await self._append(session, life, [call])
        if random.random() < 0.3:
            await self._append(session, life, [Message(role=Role.USER, content=f"{label}/meanwhile")])
        await self._append(
            session, life, [Message(role=Role.TOOL, content=f"{label}/result", tool_call_id=label)]
        )

    # -- what leaves the window, and comes back ----------------------------------------

    def _any(self, life: str, random: Random) -> str:
        names: list[str] = [*self._told.ids.get(life, ()), "m0"]
        return names[random.randrange(len(names))]

    async def _exclude(self, session: Conversation, life: str, label: str, random: Random) -> None:
        self._told.done[life, label] = False
        self._told.done[life, label] = await session.exclude(self._any(life, random), label)

    async def _restore(self, session: Conversation, life: str, label: str, random: Random) -> None:
        await session.restore(self._any(life, random))

    async def _clear(self, session: Conversation, life: str, label: str, random: Random) -> None:
        taking = self._told.takes("clear", Taking(self._told.now(), life=life))
        self._world.first_put[self._process.name] = taking
        with self._told.calling(taking):
            await session.clear()

    async def _pop(self, session: Conversation, life: str, label: str, random: Random) -> None:
        taking = self._told.takes("clear", Taking(self._told.now(), life=life))
        self._world.first_put[self._process.name] = taking
        with self._told.calling(taking):
            await session.pop(2)

    async def _state(self, session: Conversation, life: str, label: str, random: Random) -> None:
        """Add the label to the state, with what is said; with two messages if the store
        can put them together.
        """
        state = await session.state()
        change = StateChange({"said": [*state.get("said", ()), label]}, check_expected(state.version))
        together = self._world.servers[-1].store.capabilities.atomic
        texts = [f"{label}/a", f"{label}/b"] if together else [f"{label}/b"]
        said = Said(self._told.now(), life=life, texts=tuple(texts))
        self._told.said.append(said)
        with self._told.calling(said):
            stored = await session.append(
                [Message(role=Role.USER, content=text) for text in texts], change=change
            )
        self._told.has(life, *(str(message.id) for message in stored))

    async def _roll_back(self, session: Conversation, life: str, label: str, random: Random) -> None:
        checkpoint, self._checkpoint = self._checkpoint, await session.checkpoint()
        if checkpoint is None:
            return
        taking = self._told.takes("roll_back", Taking(self._told.now(), life=life))
        self._world.first_put[self._process.name] = taking
        self._told.done[life, label] = False
        with self._told.calling(taking):
            self._told.done[life, label] = await session.roll_back(checkpoint, label) > 0

    async def _compact(self, session: Conversation, life: str, label: str, random: Random) -> None:
        taking = self._told.takes("compaction", Taking(self._told.now(), life=life))
        self._told.done[life, label] = False
        with self._told.calling(taking):
            made = await session.compact(
                self._summarise(taking, random), keep_last=random.randrange(4), reason=label
            )
        self._told.done[life, label] = made.reason == label

    async def _policy(self, session: Conversation, life: str, label: str, random: Random) -> None:
        taking, policy = (
            self._told.takes("compaction", Taking(self._told.now(), life=life)),
            MessageThreshold(most=3, keep_last=random.randrange(3)),
        )
        with self._told.calling(taking):
            await session.compact_if_needed(policy, self._summarise(taking, random))

    def _summarise(self, taking: Taking, random: Random) -> Callable[[list[Message]], Awaitable[str]]:
        async def summarise(messages: list[Message]) -> str:
            taking.knew = self._told.now()
            await asyncio.sleep(random.random() * 0.1)
            return summary_of(messages)

        return summarise

    async def _replace(self, session: Conversation, life: str, label: str, random: Random) -> None:
        """Some of what was read, and something new behind it."""
        messages = (await session.context()).messages
        knew = 0 if session.log.snapshot is None else session.log.snapshot.state.place
        shown = [m for m in messages if m.id != SYSTEM_ID and not m.is_summary and random.random() < 0.7]
        read, kept = (frozenset(str(message.id) for message in some) for some in (messages, shown))
        taking = Taking(self._told.now(), life=life, knew=self._told.now(), kept=kept, read=read)
        self._told.takes("replace", taking)
        await asyncio.sleep(random.random() * 0.2)  # whoever has read it thinks about it
        sayings = [
            self._told.says(life, str(message.id), Saying(taking.begun, text=message.text))
            for message in shown
        ]
        said = Said(taking.begun, life=life, texts=(label,), beside=taking.kept, knew=knew)
        self._told.said.append(said)
        with self._told.calling(taking):
            try:
                await session.replace([*shown, Message(role=Role.USER, content=label)])
                said.done = True
            finally:
                for call in (said, *sayings):
                    call.ended = self._told.now()

    # -- erasing -----------------------------------------------------------------------

    async def _erase(self, session: Conversation, life: str, label: str, random: Random) -> None:
        name = self._any(life, random)
        erasing = Call(self._told.now())
        self._told.erasings.setdefault((life, name), []).append(erasing)
        try:
            erasing.done = await self.engine.conversations.redaction.erase(session.log, name)
        finally:
            erasing.ended = self._told.now()

    async def _delete(self, session: Conversation, life: str, label: str, random: Random) -> None:
        await self.engine.conversations.sessions.delete(TENANT, SESSION)
        self._told.ended.setdefault(life, self._told.now())

    async def _erase_user(self, session: Conversation, life: str, label: str, random: Random) -> None:
        there = [life, *(fork.life for fork in self._told.forks.values() if fork.done)]
        erasing = Call(self._told.now())
        self._told.users.append(erasing)
        with self._told.calling(erasing):
            await self.engine.conversations.redaction.erase_user(TENANT, ADA)
        for each in there:
            self._told.ended.setdefault(each, self._told.now())

    # -- its life ----------------------------------------------------------------------

    async def _end(self, session: Conversation, life: str, label: str, random: Random) -> None:
        self._told.closed[life, "ended"] += await session.close("ended")
        if random.random() < 0.5:
            await session.handle_window_exit()
        await session.resume()

    async def _archive(self, session: Conversation, life: str, label: str, random: Random) -> None:
        self._told.closed[life, "archived"] += await session.close("archived")
        if random.random() < 0.8:
            await session.resume()

    async def _onward(self, session: Conversation, life: str, label: str, random: Random) -> None:
        await session.handle_window_exit()

    async def _sweep(self, session: Conversation, life: str, label: str, random: Random) -> None:
        await self.engine.maintenance.sweep()

    async def _fork(self, session: Conversation, life: str, label: str, random: Random) -> None:
        at = self._any(life, random) if random.random() < 0.5 else None
        draft, messages = await session.as_of(at)
        fork = self._told.forks[label] = Fork(
            self._told.now(), texts=tuple(message.text for message in messages)
        )
        with self._told.calling(fork):
            forked = await self.engine.conversations.create(
                TENANT, SessionDraft(label, draft.system, user=ADA)
            )
            fork.life = forked.log.life.incarnation
            await forked.begin(messages)

    async def _lists(self, session: Conversation, life: str, label: str, random: Random) -> None:
        """What this process was acknowledged before, lists that it asks for have."""
        page = await self.engine.conversations.sessions.list(TENANT, asked={"session_id": SESSION}, limit=5)
        record = await self.engine.conversations.sessions.record(TENANT, SESSION)
        behind, known = self.engine.conversations.sessions._behind, self._count.get(life, 0)
        raised = self._world.servers[-1].store.state.generation(record.partition)
        lives = record.body["incarnation"] == life and raised <= (
            record.generation or 0
        )  # no deletion of it is under way
        if lives and not behind and any(info.message_count < known for info in page.sessions):
            self._told.broken.append(
                f"{label}: a list tells {page.sessions}, and there were {known} messages"
            )

    # -- reading -----------------------------------------------------------------------

    async def _read(self, session: Conversation, life: str, label: str, random: Random) -> None:
        since = self._told.now()
        shown = await session.context()
        cut = await session.context(ContextRequest(budget=random.randrange(10, 120)))
        items_since = self._told.now()
        items = await everything(session)
        info = (
            await session.info()
        )  # raises where the life ended meanwhile: then some of it may have been gone already
        self._told.read(life, items_since, items, label)
        self._told.window(life, since, shown, label)
        if shown.version == cut.version:
            self._told.cut(life, shown, cut, label)
        if shown.version == info.version:
            self._told.same(shown, items, label)


def texts_in(record: Record) -> set[str]:
    """All that a record says of what was said in a run, in whatever part of it."""
    data = record.fields.get("data")
    copied = decompress(data) if record.role is Copy.CACHED and isinstance(data, bytes) else b""
    return set(TEXT.findall(repr((record.body, record.texts, record.owed, copied))))


async def everything(session: Conversation) -> list[HistoryItem]:
    page = await session.history(HistoryQuery(limit=9))
    items = list(page.items)
    while page.cursor is not None:
        page = await session.history(HistoryQuery(limit=9, cursor=page.cursor))
        items += page.items
    return items
