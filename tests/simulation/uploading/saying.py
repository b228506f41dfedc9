"""Messages with large texts among artifacts, in the same little room: said, changed,
erased, and copied by forks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import TypeVar
from unittest.mock import patch

from memory.domain import validation
from memory.domain.errors import Conflict, NotFound, QuotaExceeded
from memory.domain.message import Message
from memory.facade.memory import Memory
from memory.orchestrator.conversations.blobs import large_texts
from tests.simulation.lives import Worker
from tests.simulation.uploading.told import MOST, Run, Said

LARGE_TEXT_BYTES, CHUNK_CHARACTERS = 12, 5
SIZES = (5, 14, 23, 37)
R = TypeVar("R", bound=Run)
WEIGHTS = {"say": 12, "resay": 5, "unsay": 3, "fork": 3}
STEPS = ("artifacts.hold", "log.append", "log.change")


@contextmanager
def small() -> Iterator[None]:
    with (
        patch.object(validation, "LARGE_TEXT_BYTES", LARGE_TEXT_BYTES),
        patch.object(large_texts, "CHUNK_CHARACTERS", CHUNK_CHARACTERS),
    ):
        yield


def is_in(seed: int) -> bool:
    """Whether messages are said in a run: in three of eight."""
    return seed % 8 in (1, 3, 7)


def text(label: str, size: int) -> str:
    """No two of its chunks alike."""
    return "".join([f"{label}{number}," for number in range(size)])[:size]


class Saying(Worker[R]):
    """What one process says."""

    memory: Memory

    async def _say(self, label: str, random: Random) -> None:
        said = self.run.said[label] = Said(label, self.run.loop.time(), session=random.choice(("s1", "s2")))
        said.texts.add(told := text(label, random.choice(SIZES)))
        said.size = len(told)
        if random.random() < 0.3:  # until its lease ends, where a fault keeps it
            await asyncio.sleep(random.random())
        try:
            await self.memory.session(said.session, create=False).append(
                Message(id=label, role="user", content=told)
            )
        except QuotaExceeded as error:
            said.outcome = "refused"
            self._is_refused(said, error)
        except NotFound:
            pass
        else:
            said.outcome = "done"
        finally:
            said.ended = self.run.loop.time()

    def _is_refused(self, call: Said, error: QuotaExceeded) -> None:
        totals = self.run.totals
        first = max(at for at, (since, _) in enumerate(totals) if since <= call.begun)
        if error.held not in {total for _, total in totals[first:]}:
            self.run.broken.append(f"{call.label} was refused for {error.held} bytes, which were never held")
        if error.held + error.asked <= MOST:
            self.run.broken.append(f"{call.label} was refused, though there was room: {error}")

    def _some(self, random: Random) -> Said | None:
        known = [said for said in self.run.said.values() if said.outcome == "done"]
        return random.choice(known) if known else None

    async def _resay(self, label: str, random: Random) -> None:
        """More of it, less, or something else: never refused."""
        if (said := self._some(random)) is None:
            return
        now = random.choice(sorted(said.texts))
        told = random.choice((now[:14], f"{now}{text(label, 15)}"[:60], text(label, random.choice(SIZES))))
        said.texts.add(told)
        self.run.unrefused += len(told)
        try:
            await self.memory.session(said.session, create=False).update(said.label, content=told)
        except NotFound:
            pass
        except QuotaExceeded as error:
            self.run.broken.append(f"{label} was not let change a message: {error}")

    async def _unsay(self, label: str, random: Random) -> None:
        if (said := self._some(random)) is not None:
            said.unsaid = True
            try:
                if await self.memory.session(said.session, create=False).erase(said.label):
                    said.outcome = "erased"
            except NotFound:
                pass

    async def _fork(self, label: str, random: Random) -> None:
        """All that a session says, once more; and mostly it is deleted then."""
        forked = Said(label, self.run.loop.time(), session=f"f{label}")
        try:
            await self.memory.session(random.choice(("s1", "s2")), create=False).fork(
                session_id=forked.session
            )
            await asyncio.sleep(random.random() * 5)
        except QuotaExceeded as error:
            self._is_refused(forked, error)
        except (NotFound, Conflict):
            pass
        if random.random() < 0.8:
            await self.memory.sessions.delete(forked.session)


async def read_back(run: Run, memory: Memory) -> None:
    """What stands of what was said is what was acknowledged; what was refused, or
    erased, is not there.
    """
    live = {session: lives[-1][1] for session, lives in run.lives.items()}
    for session, incarnation in live.items():
        if incarnation is None:
            continue
        history = (await memory.session(session, create=False).history(limit=100)).items
        found = {str(item.message.id): item.message.text for item in history if not item.is_redacted}
        for name, told in found.items():
            said = run.said[name]
            if (
                said.outcome in ("refused", "erased")
                and session == said.session
                and incarnation in run.had_life(session, said.begun)
            ):
                run.broken.append(f"{name} was {said.outcome}, and is said in {session}")
            if told not in said.texts and not run.torn:
                run.broken.append(f"{name} says {told!r} in {session}, and was said to say {said.texts}")
        for said in run.said.values():
            stays = said.session == session and run.had_life(session, said.begun) == {incarnation}
            if stays and said.outcome == "done" and not said.unsaid and said.label not in found:
                run.broken.append(f"{said.label} was acknowledged, and is not said in {session}")
