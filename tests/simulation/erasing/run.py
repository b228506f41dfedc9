"""Runs of a tenant's erasure: several processes write one of every kind for two
tenants, edit, copy, fork, move and delete, and one or two of them erase one of the
tenants in the middle; faults and deaths at every call.

Everything is looked at that comes to stand in the stores or goes: nothing goes but of
before an erasure, or since somebody deletes it. Who is told that the tenant is erased
finds nothing of what stood before, and is told what went. Once nothing is owed any
more, nothing of before is left, in whatever role, nor a word of it, and what was
acknowledged since is read.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from random import Random
from unittest.mock import patch

from memory.domain import ids
from memory.domain.entry import EntryDraft
from memory.domain.errors import (
    CompactionError,
    Conflict,
    InvalidInput,
    InvalidScopePromotion,
    NotFound,
    StoreError,
    TooMuchContention,
)
from memory.domain.message import Message
from memory.domain.message import Role as Speaker
from memory.domain.scope import Scope
from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.conversations.sessions import SessionDraft
from memory.orchestrator.conversations.tasks.runs import RunDraft
from memory.orchestrator.conversations.tasks.tasks import TaskDraft
from memory.orchestrator.engine import Engine
from memory.orchestrator.entries import scratchpads
from memory.orchestrator.storage.collections import ENTRIES, NUMBERS, RELATIONS, SESSIONS
from memory.orchestrator.storage.session_keys import session_key
from memory.ports.record import Key
from tests.simulation.erasing.told import COPY, ERASED, OTHER, Act, Run, Watched
from tests.simulation.faults import AIMED, CLOCK_ERROR
from tests.simulation.lives import Worker, at_work, audited, drawn_acts, loop_of, plan_of, play, servers_of
from tests.simulation.loop import seeded
from tests.simulation.setup import SETTINGS
from tests.simulation.world import HOME
from tests.support.delivered import undelivered
from tests.support.numbered import misnumbered

SCOPES = (Scope.session("s1"), Scope.user("ada"), Scope.org("o1"))
CHATS = ("chat", "talk")
PART_BYTES = 64
WORKERS, ACTS_EACH, ROUNDS = 3, 9, 25
STEPS = (
    *(
        "tenant.begin",
        "tenant.scopes",
        "tenant.changed",
        "tenant.end",
        "erase.begin",
        "erase.raise",
        "erase.delete",
        "erase.end",
        "erase.find",
    ),
    *(
        "generation.restamp",
        "generation.raise",
        "session.read",
        "session.create",
        "log.append",
        "write.home",
        "replica.deliver",
        "version.keep",
    ),
    *("scratchpad.put", "scratchpad.part", "move.arrive", "derive.home", "owed.settle"),
)
"""What faults strike more readily at; and in some runs one of these at one of them."""
WEIGHTS = {
    "write": 6,
    "edit": 5,
    "copy": 4,
    "relate": 2,
    "move": 2,
    "delete": 1,
    "note": 4,
    "long": 2,
    "say": 6,
    "name": 2,
    "beside": 2,
    "file": 2,
    "fork": 2,
    "renew": 1,
    "sweep": 2,
}


class Client(Worker[Run]):
    """One process."""

    may_be_told = (
        StoreError,
        TooMuchContention,
        NotFound,
        Conflict,
        InvalidInput,
        InvalidScopePromotion,
        CompactionError,
    )

    @contextmanager
    def _act(self, label: str, kind: str, tenant: str) -> Iterator[str]:
        """The text of it."""
        act = self.run.acts[label] = Act(label, tenant, self.run.loop.time(), kind)
        try:
            yield f"[{label}] {kind}"
            act.done = True
        finally:
            act.ended = self.run.loop.time()

    @staticmethod
    def _tenant(random: Random) -> str:
        return OTHER if random.random() < 0.15 else ERASED

    def _entry(self, random: Random, tenant: str) -> str | None:
        there = sorted(life.key.id for life in self.run.standing_lives(tenant) if life.of == ENTRIES.name)
        return random.choice(there) if there else None

    # -- entries -----------------------------------------------------------------------

    async def _write(self, label: str, random: Random) -> None:
        tenant, scope = self._tenant(random), random.choice(SCOPES)
        with self._act(label, "write", tenant) as text:
            await self.engine.entries.write(tenant, EntryDraft(scope=scope, content=text, key=label))
        await self.engine.short_ids.of(tenant, [ids.keyed_id(tenant, scope.text, label)])

    async def _edit(self, label: str, random: Random) -> None:
        tenant = self._tenant(random)
        entry_id = self._entry(random, tenant)
        if entry_id is None:
            return
        with self._act(label, "edit", tenant) as text:
            await self.engine.entries.update(tenant, entry_id, {"content": text})

    async def _copy(self, label: str, random: Random) -> None:
        tenant = self._tenant(random)
        entry_id = self._entry(random, tenant)
        if entry_id is None:
            return
        with self._act(label, COPY, tenant):
            if random.random() < 0.6:
                await self.engine.derivation.promote(
                    tenant, entry_id, random.choice((Scope.user("bo"), Scope.org("o1")))
                )
            else:
                await self.engine.derivation.compact(
                    tenant, [entry_id], lambda entries: f"made of {entries[0].content}"
                )

    async def _relate(self, label: str, random: Random) -> None:
        tenant = self._tenant(random)
        source, target = self._entry(random, tenant), self._entry(random, tenant)
        if source is not None and target is not None:
            await self.engine.relations.relate(tenant, source, "refines", target)

    async def _move(self, label: str, random: Random) -> None:
        tenant = self._tenant(random)
        entry_id = self._entry(random, tenant)
        if entry_id is not None:
            await self.engine.tier_mover.move(ENTRIES, Key(tenant, entry_id), random.choice(("mid", "long")))

    async def _delete(self, label: str, random: Random) -> None:
        tenant = self._tenant(random)
        entry_id = self._entry(random, tenant)
        if entry_id is not None:
            self.run.deleted.add(Key(tenant, entry_id))
            await self.engine.erasure.delete(ENTRIES, Key(tenant, entry_id))

    # -- scratchpads -------------------------------------------------------------------

    async def _note(self, label: str, random: Random, more: str = "") -> None:
        tenant = self._tenant(random)
        with self._act(label, "note", tenant) as text:
            await self.engine.scratchpads.append(tenant, None, text + more)

    async def _long(self, label: str, random: Random) -> None:
        await self._note(label, random, " and so on" * 12)

    # -- sessions ----------------------------------------------------------------------

    async def _session(self, tenant: str, random: Random) -> Conversation:
        return await self.engine.conversations.open(tenant, SessionDraft(random.choice(CHATS)), create=True)

    async def _say(self, label: str, random: Random) -> None:
        tenant = self._tenant(random)
        session = await self._session(tenant, random)
        with self._act(label, "say", tenant) as text:
            await session.append([Message(role=Speaker.USER, content=text)])

    async def _name(self, label: str, random: Random) -> None:
        """What a session says of itself."""
        tenant = self._tenant(random)
        session = await self._session(tenant, random)
        await session.update("system", {"content": f"you are {label}"})

    async def _beside(self, label: str, random: Random) -> None:
        tenant = self._tenant(random)
        session = await self._session(tenant, random)
        with self._act(label, "beside", tenant) as text:
            await self.engine.conversations.tasks.save(session.log, TaskDraft(label, title=text))
        await self.engine.conversations.runs.save(session.log, RunDraft(label, child_id=label))

    async def _file(self, label: str, random: Random) -> None:
        tenant = self._tenant(random)
        session = await self._session(tenant, random)

        async def pieces() -> AsyncIterator[bytes]:
            yield f"[{label}] file".encode()

        with self._act(label, "file", tenant):
            await self.engine.conversations.manifests.put(
                tenant, session.id, f"[{label}].md", "text/plain", pieces(), None
            )

    async def _fork(self, label: str, random: Random) -> None:
        tenant = self._tenant(random)
        session = await self._session(tenant, random)
        draft, messages = await session.as_of(None)
        key = session_key(tenant, session.id)
        if draft.forked_from is None or not any(life.key == key for life in self.run.standing_lives(tenant)):
            return
        incarnation = draft.forked_from.incarnation  # it may have been created again meanwhile
        self.run.forked[session_key(tenant, f"fork-{label}")] = next(
            life for life in self.run.lives[SESSIONS.name, key] if incarnation in life.text
        )
        forked = await self.engine.conversations.create(tenant, replace(draft, id=f"fork-{label}"))
        await forked.begin(messages)

    async def _renew(self, label: str, random: Random) -> None:
        tenant, session_id = self._tenant(random), random.choice(CHATS)
        self.run.deleted.add(session_key(tenant, session_id))
        await self.engine.conversations.sessions.delete(tenant, session_id)

    # -- the end -----------------------------------------------------------------------

    async def _erase(self, label: str, random: Random) -> None:
        begun, struck = self.run.loop.time(), len(self.run.plan.struck)
        counted, arriving = self.run.counted[self.process] = (
            Counter(),
            Counter(),
        )  # an arriving copy whose source has let go is a home
        try:
            receipt = await self.engine.tenants.erase(ERASED)
        finally:
            del self.run.counted[self.process]
        self.run.erased(label, begun)
        self.run.receipts += 1
        told = Counter(
            {
                (of, store): count
                for of, by_store in receipt.records.items()
                for store, count in by_store.items()
            }
        )
        if not told <= counted + arriving or (struck == len(self.run.plan.struck) and not counted <= told):
            self.run.broken.append(
                f"{label} is told that {told} went, and {counted} did, and of what was arriving {arriving}"
            )

    async def _sweep(self, label: str, random: Random) -> None:
        await asyncio.sleep(random.random() ** 2 * random.choice((0.01, 3.0, 100.0)))
        await self.engine.maintenance.sweep()


@contextmanager
def small() -> Iterator[None]:
    with patch.object(scratchpads, "PART_BYTES", PART_BYTES):
        yield


def played(seed: int) -> Run:
    """One run, on one, two or three stores; the same seed is the same run."""
    random, loop = seeded(seed, 6), loop_of(seed)
    able = replace(HOME, atomic=random.random() < 0.5, fenced=seed % 4 != 1)
    servers = servers_of(loop, able, random.choice((1, 2, 3)), Watched)
    plan = plan_of(seed, random, STEPS, AIMED, share=0.4)
    world = Run(seed, loop, plan, servers)
    for server in servers:
        server.store.world = world  # type: ignore[attr-defined]
    with small():
        return play(world, _all)


async def _all(world: Run) -> None:
    await at_work(
        world,
        lambda process: Client(world, process),
        [_acts(world.seed, number) for number in range(WORKERS)],
    )
    lapsed = SETTINGS.mark_life.total_seconds() + 4 * CLOCK_ERROR
    dangle = max(
        len(list(server.store.state.everything(of.name)))
        for server in world.servers
        for of in (NUMBERS, RELATIONS)
    )
    slices = (
        2 + dangle // SETTINGS.page
    )  # as a sweep goes over what may dangle, from a place in the middle until it has come round
    engine = await audited(world, world.process("auditor"), lapsed, ROUNDS, slices)
    world.judge()
    for tenant in (ERASED, OTHER):
        await _read_back(world, engine, tenant)
    world.broken += [*await undelivered(engine), *await misnumbered(engine)]


def _acts(seed: int, number: int) -> tuple[list[tuple[str, str]], Random]:
    """The first erases in the middle; in most runs another does, at about the same
    time.
    """
    acts, random = drawn_acts(seed, number, WEIGHTS, ACTS_EACH)
    if number == 0 or (number == 1 and random.random() < 0.6):
        acts[3 + random.randrange(4)] = f"w{number}.end", "erase"
    return acts, random


async def _read_back(world: Run, engine: Engine, tenant: str) -> None:
    """What was acknowledged, and is of after, is read."""
    acts = [act for act in world.acts.values() if act.tenant == tenant and act.label in world.said]
    there = [(act, life) for act in acts if (life := world.stands(act)) is not None]
    pad = await engine.scratchpads.read(tenant, None)
    torn = sum(act.kind == "note" and not act.done for act in acts)
    if pad.damaged > torn:
        world.broken.append(f"in the end {pad.damaged} notes of {tenant} are damaged, and {torn} broke off")
    said = [
        message.text
        for chat in CHATS
        if await engine.conversations.find(tenant, chat)
        for message in await _told(engine, tenant, chat)
    ]
    for act, life in there:
        if life.of == SESSIONS.name and life.ended < inf:
            continue  # deleted, or gone with the tenant: which is right was judged when it went
        text = f"[{act.label}]"
        if act.kind in ("write", "edit") and await engine.entries.get(tenant, life.key.id) is None:
            world.broken.append(f"in the end {text} is not read, and was written")
        if act.kind == "note" and any(map(world.may_go, world.of_note(life))):
            continue  # its row is by a slower clock than its parts
        if act.kind == "note" and pad.content.count(text) != 1:
            world.broken.append(f"in the end {text} was noted, and is there {pad.content.count(text)} times")
        if act.kind == "say" and sum(text in one for one in said) != 1:
            world.broken.append(
                f"in the end {text} was said, and is there {sum(text in one for one in said)} times"
            )
        if (
            act.kind == "file"
            and await engine.conversations.manifests.at(tenant, life.scope.partition(":")[2], f"{text}.md")
            is None
        ):
            world.broken.append(f"in the end {text} was put, and is not there")


async def _told(engine: Engine, tenant: str, chat: str) -> list[Message]:
    opened = await engine.conversations.open(tenant, SessionDraft(chat), create=False)
    return list((await opened.context()).messages)
