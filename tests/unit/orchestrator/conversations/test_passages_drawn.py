"""Passages are those of the messages, whatever happens: drawn histories of two
processes over stores that fail, while texts are embedded too.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

import pytest

from memory.domain.errors import MemoryTiersError
from memory.domain.message import Role
from memory.orchestrator.conversations import redaction
from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.conversations.log import events, log
from memory.orchestrator.conversations.sessions import SessionDraft
from memory.orchestrator.conversations.window.streaming import StreamedMessage
from memory.orchestrator.embeddings import passages
from memory.orchestrator.engine import Engine
from memory.policies.passage_splitting import PART
from memory.ports.query import Tenant
from tests.support import noticed
from tests.support.depth import drawn
from tests.support.mutations import Mutation
from tests.unit.orchestrator.conversations.meant import FILLING, LONG, Embedder, embedder, settled
from tests.unit.orchestrator.conversations.talking import answer, calling, hits_of, user
from tests.unit.orchestrator.world import TENANT, World

TEXTS = (
    "tea",
    "a heron",
    "the ship crashed",
    "nothing known",
    "tea " + LONG,
    LONG,
    f"{FILLING * 25} outage",
    "x" * (PART + 1),
)
FAILING = (
    "passages.write",
    "owed.settle",
    "log.append",
    "log.change",
    "passages.read",
    "redact.find",
    "erase.delete",
    "erase.raise",
    "hanging.find",
)


class Told:
    """A history that a seed draws: two processes that come and go over stores that
    fail, while texts are embedded too.
    """

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(f"passages {seed}")  # noqa: S311
        self.world = World(embedder=Embedder(), passages=self.draw.choice(["home", "long"]))
        self.engines: list[Engine] = []
        self.busy: list[Engine] = []

    async def played(self) -> list[str]:
        async with self.world:
            self.engines = [self.world.engine, await self.world.another_process()]
            for _ in range(self.draw.randrange(5, 25)):
                self.world.heal()
                if self.draw.random() < 0.3:
                    store = self.draw.choice([self.world.mid, self.world.long])
                    self.draw.choice([store.fails_before, store.fails_after]).add(self.draw.choice(FAILING))
                if self.draw.random() < 0.3:
                    embedder(self.world).meanwhile = self.step
                await self.step()
            embedder(self.world).meanwhile = None
            return await settled(self.world)

    async def step(self) -> None:
        """A call of a process that is not in the middle of one."""
        engine = self.draw.choice([engine for engine in self.engines if engine not in self.busy])
        self.busy.append(engine)
        with suppress(MemoryTiersError):
            session = await engine.conversations.open(
                TENANT, SessionDraft(self.draw.choice(["s1", "s2"])), create=True
            )
            await self.draw.choice(self.calls)(engine, session)
        self.busy.remove(engine)

    @property
    def calls(self) -> list[Callable[[Engine, Conversation], Awaitable[object]]]:
        text, name = self.draw.choice(TEXTS), self.draw.choice(["m1", "m2", "m3"])
        said = user(text, self.draw.choice([name, None]))

        async def stream(engine: Engine, session: Conversation) -> None:
            out = StreamedMessage(session, engine.placement, Role.ASSISTANT, name)
            for piece in (text, " and ", "tea"):
                await out.write(piece)
                self.world.clock.advance(timedelta(seconds=1))
            if self.draw.random() < 0.7:
                await out.finish({})

        async def die(engine: Engine, session: Conversation) -> None:
            self.engines[self.engines.index(engine)] = await self.world.another_process()

        async def forget(engine: Engine, session: Conversation) -> None:
            await engine.conversations.sessions.delete(TENANT, session.id)

        return [
            lambda engine, session: session.append([said]),
            lambda engine, session: session.append([said, calling("c1"), answer("c1", text)]),
            lambda engine, session: session.update(name, {"content": text}),
            lambda engine, session: session.update(name, {"content": text}),
            lambda engine, session: engine.conversations.redaction.erase(session.log, name),
            lambda engine, session: session.exclude(name, "manual"),
            lambda engine, session: session.compact(lambda _: text, keep_last=1, reason="manual"),
            lambda engine, session: hits_of(session, "beverage", 10),
            lambda engine, session: engine.message_search.find(Tenant(TENANT), None, "boat", 10),
            lambda engine, session: engine.conversations.passages.catch_up(),
            lambda engine, session: engine.maintenance.sweep(),
            stream,
            die,
            forget,
        ]


async def test_passages_are_those_of_the_messages_whatever_happens() -> None:
    for seed in range(drawn(400, 20, proof=5_000)):
        assert await Told(seed).played() == [], f"in history {seed}"


MUTATIONS = {
    "an edit owes nothing": Mutation(
        log, "Log.change", "new.with_pending_steps(self._passages.owed_by(new.draft, new.parts))", "new"
    ),
    "an erasure owes nothing": Mutation(
        redaction, "Redaction._erase_at", "*self._sessions.passages.owed_by_erasing(event)", "*()"
    ),
    "a message owes nothing": Mutation(
        log, "Log._with_nonce", ", owed=(*draft.owed, *self._passages.owed_by(draft))", ""
    ),
    "what was more parts once is forgotten": Mutation(
        events, "Event.with_message", "parts=max(self.parts, parts)", "parts=0"
    ),
    "a passage has no generation": Mutation(
        passages, "PassageBuilder._passage", "generation=record.generation,", ""
    ),
}


@pytest.mark.parametrize("name", noticed.cases("passages/", MUTATIONS))
def test_a_mutation_shows(name: str) -> None:
    assert MUTATIONS[name].seen_in(lambda seed: Told(seed).played(), 200, f"passages/{name}")
