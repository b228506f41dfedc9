"""A roll-back restores the window of its checkpoint, whatever happened to the window
since.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from memory import Memory, Message, Session
from tests.acceptance.talking import user, window

SEEDS, STEPS = 12, 40
Drawn = tuple[Any, list[str]]


class Walk:
    """Random changes of one session's window, through two handles, with checkpoints."""

    def __init__(self, memory: Memory, name: str, chance: Random) -> None:
        self.chance, self.handles = chance, [memory.session(name), memory.session(name)]
        self.said, self.erased, self.marks = list[str](), set[str](), list[Drawn]()

    async def step(self) -> None:
        session = self.chance.choice(self.handles)
        act = self.chance.choice(
            (
                "say",
                "say",
                "hint",
                "exclude",
                "restore",
                "again",
                "compact",
                "replace",
                "clear",
                "erase",
                "mark",
                "mark",
                "back",
            )
        )
        await getattr(self, f"_{act}")(session)

    def _any(self) -> str:
        return self.chance.choice(self.said)

    async def _say(self, session: Session, *, in_history: bool = True) -> None:
        names = [f"m{len(self.said) + n}" for n in range(self.chance.randint(1, 3))]
        self.said += names
        await session.append([user(name, name) for name in names], in_history=in_history)

    async def _hint(self, session: Session) -> None:
        await self._say(session, in_history=False)

    async def _exclude(self, session: Session) -> None:
        await session.exclude(self._any())

    async def _restore(self, session: Session) -> None:
        await session.restore(self._any())

    async def _again(self, session: Session) -> None:
        if (name := self._any()) not in self.erased:
            await session.append(user(name, name))

    async def _compact(self, session: Session) -> None:
        summary = Message(role="system", content="sum", id=f"s{len(self.said)}.{self.chance.random()}")
        await session.compact(lambda _: summary, keep_last=self.chance.randint(0, 3))

    async def _replace(self, session: Session) -> None:
        kept = [message for message in (await session.context()).messages if self.chance.random() < 0.7]
        await session.replace(kept)

    async def _clear(self, session: Session) -> None:
        if self.chance.random() < 0.3:
            await session.clear()

    async def _erase(self, session: Session) -> None:
        if self.chance.random() < 0.3:
            before = {
                str(item.message.id)
                for item in (await session.history(limit=1_000)).items
                if not item.is_redacted
            }
            await session.erase(name := self._any())
            after = {
                str(item.message.id)
                for item in (await session.history(limit=1_000)).items
                if not item.is_redacted
            }
            self.erased |= {name, *(before - after)}  # with the summaries that say it

    async def _mark(self, session: Session) -> None:
        self.marks.append(
            (await session.checkpoint(self.chance.choice((None, "named"))), await window(session))
        )

    async def _back(self, session: Session) -> None:
        if self.marks:
            checkpoint, there = self.chance.choice(self.marks)
            before = await window(session)
            left = await session.roll_back(checkpoint)
            wanted = [name for name in there if name not in self.erased]
            for handle in self.handles:
                assert await window(handle) == wanted
            assert left == len(set(before) - set(wanted))


@pytest.mark.behaviour("B52")
async def test_a_roll_back_restores_exactly_the_window_at_the_checkpoint(memory: Memory) -> None:
    for seed in range(SEEDS):
        walk = Walk(memory, f"s{seed}", Random(seed))  # noqa: S311
        await walk._mark(walk.handles[0])
        await walk._say(walk.handles[0])
        for _ in range(STEPS):
            await walk.step()
        await walk._back(walk.handles[1])


@pytest.mark.behaviour("B52")
async def test_what_was_excluded_before_a_checkpoint_stays_out_however_it_came_back_since(
    memory: Memory,
) -> None:
    async def restore(session: Session) -> Any:
        await session.restore("m1")

    async def again(session: Session) -> Any:
        await session.append([user("otherwise", "m1"), user("three", "m3")])

    for number, comes_back in enumerate((restore, again)):
        session = memory.session(f"s{number}")
        await session.append([user("one", "m1"), user("two", "m2")])
        await session.exclude("m1")
        here = await session.checkpoint()
        await comes_back(session)
        await session.exclude("m2")
        assert await session.roll_back(here, "branch") == number + 1
        assert await window(session) == ["m2"]
        told = {item.message.id: item.excluded for item in (await session.history()).items}
        assert (told["m1"], told["m2"]) == ("branch", None)
