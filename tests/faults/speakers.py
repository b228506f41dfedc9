"""A process that speaks in a session with others at once and notes what was
acknowledged, and the judge of what must be there afterwards.

`python -m tests.faults.speakers CONFIG NAME SEED DIES` says one message after the
other, tells some again under an id, and compacts now and then, until its input ends.
What it does it prints, a JSON list a line: `["?", …]` before a call, `["!", …]` once it
was acknowledged. A call that fails is repeated, as its caller is told to. Where DIES is
"append" or "compaction" it kills itself in the middle of one of these.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from memory import Memory, Message, Session, TooMuchContention
from memory.domain.errors import StoreError, StoreUnavailable
from memory.domain.session import HistoryItem
from memory.facade.runtime.access import engine_of
from memory.orchestrator.storage.collections import MESSAGES
from memory.orchestrator.storage.placement import Placement
from memory.policies.window_exit import ExitedMessages
from memory.ports.full_scan import scan
from memory.ports.query import Everywhere, Query
from memory.ports.record import Record

SESSION = "talk"
PAUSE = 0.1
"""Seconds between two calls, at most."""
CALLS = 12
"""A process that is to die makes at most so many calls before."""


class Speaker:
    """One writer of the session."""

    def __init__(self, memory: Memory, name: str, seed: int, dies: str) -> None:
        self._session = memory.session(SESSION, user="ada")
        self._name = name
        self._chance = random.Random(seed)  # noqa: S311
        self._dies = dies
        self._dies_after = self._chance.randrange(2, CALLS)
        self._dooms = self._chance.choice(("before", "within", "after"))
        self.calls = 0

    async def one(self) -> None:
        """One call, repeated until it is acknowledged."""
        self.calls += 1
        compacts = self._chance.random() < 0.15 if self._dies != "compaction" else self.calls % 2 == 0
        if self._dies and self.calls > self._dies_after and compacts == (self._dies == "compaction"):
            self._doom()
        what, said = ("compaction" if compacts else "append"), f"{self._name} {self.calls}"
        message = Message(role="user", content=said, id=None if self.calls % 3 else f"id {said}")
        _say("?", what, said)
        while True:
            try:
                await (self._compact(said) if compacts else self._session.append(message))
                break
            except (StoreError, TooMuchContention):
                await asyncio.sleep(0.2)
        _say("!", what, said)
        await asyncio.sleep(self._chance.random() * PAUSE)

    async def _compact(self, said: str) -> None:
        await self._session.compact(lambda _: self._summary(said), keep_last=self._chance.choice((5, 20)))

    def _summary(self, said: str) -> str:
        if self._dies_now and self._dooms == "within":
            _die()
        return f"summary {said}"

    _dies_now = False

    def _doom(self) -> None:
        """From now on the process dies at the first write to a store, or while a
        summary is made.
        """
        self._dies_now = True
        write, before = Placement.write, self._dooms == "before"

        async def deadly(placement: Placement, *arguments: Any, **options: Any) -> Any:
            if before:
                _die()
            outcomes = await write(placement, *arguments, **options)
            _die()
            return outcomes

        Placement.write = deadly  # type: ignore[method-assign,assignment]


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _say(*said: str) -> None:
    print(json.dumps(said), flush=True)


# -- the judge -------------------------------------------------------------------------


@dataclass
class Heard:
    """What one process has told: what it was about to say, and what of that was
    acknowledged, in order.
    """

    asked: list[tuple[str, str]] = field(default_factory=list)
    acknowledged: list[tuple[str, str]] = field(default_factory=list)

    def hears(self, line: str) -> None:
        mark, what, said = json.loads(line)
        (self.asked if mark == "?" else self.acknowledged).append((what, said))


def noted(leaving: ExitedMessages) -> str:
    """The entry that is made of what a compaction archived."""
    return " ".join(["noted", *(str(number) for number in leaving.numbers)])


async def judged(memory: Memory, heard: Sequence[Heard]) -> list[str]:
    """What is not as it must be once maintenance has been there; empty when all is."""
    session = memory.session(SESSION, create=False)
    wrong: list[str] = []
    for _ in range(2):
        report = await memory.admin.sweep()
        await engine_of(memory).conversations.window_exit.drain()
        wrong += [f"maintenance: {said}" for said in (*report.waiting, *report.stays)]
    items = [item async for item in _items(session)]
    if [item.number for item in items] != list(range(1, len(items) + 1)):
        wrong.append("the numbers have holes")
    said = [item.message.text for item in items if not item.is_summary]
    wrong += _wrong_of(heard, said)
    wrong += await _wrong_compactions(session, items, heard)
    left = {item.archived_by: list[int]() for item in items if item.archived_by and not item.is_summary}
    for item in items:
        if item.archived_by and not item.is_summary:
            left[item.archived_by].append(item.number)
    entries = [entry.content async for entry in memory.entries.iterate("user:ada")]
    if sorted(entries) != sorted(" ".join(["noted", *map(str, numbers)]) for numbers in left.values()):
        wrong.append(f"of {len(left)} compactions {len(entries)} entries were made")
    places: list[Any] = [row.fields["place"] for row in await _rows(memory)]
    if sorted(places) != list(range(2, 2 + len(places))):
        wrong.append("places are missing, or taken twice")
    if (await session.info()).message_count != len(items):
        wrong.append("the count is not that of the history")
    (listed,) = (await memory.sessions.list()).sessions
    if listed.message_count != len(items):
        wrong.append("the session's own record does not follow its log")
    if owed := (await memory.admin.stats()).pending_steps:
        wrong.append(f"{owed} records still owe a step")
    return wrong


def _wrong_of(heard: Sequence[Heard], said: list[str]) -> list[str]:
    """Nothing acknowledged is lost, nothing is doubled or out of the order of who said
    it, and nobody's words are there whom nobody heard.
    """
    wrong = [f"{text!r} is there {often} times" for text, often in Counter(said).items() if often > 1]
    for one in heard:
        asked, sure = (
            [text for what, text in one.asked if what == "append"],
            [text for what, text in one.acknowledged if what == "append"],
        )
        there = [text for text in said if text in asked]
        wrong += [f"{text!r} is lost" for text in sure if text not in there]
        if there != [text for text in asked if text in there]:
            wrong.append(f"{there} is another order than {asked}")
    strangers = set(said) - {text for one in heard for _, text in one.asked}
    return wrong + [f"{text!r} was said by nobody" for text in strangers]


async def _wrong_compactions(
    session: Session, items: Sequence[HistoryItem], heard: Sequence[Heard]
) -> list[str]:
    """Each message is in the window or archived by one compaction, which names it; each
    compaction that was acknowledged is there, or another was.
    """
    wrong, made = list[str](), await session.compactions()
    shown = [message.id for message in (await session.context()).messages]
    by_id = {item.message.id: item for item in items}
    archived = [(message_id, compaction.id) for compaction in made for message_id in compaction.archived_ids]
    if sorted(archived, key=str) != sorted(
        ((name, item.archived_by) for name, item in by_id.items() if item.archived_by), key=str
    ):
        wrong.append("what compactions archived is not what the history says")
    if sorted(shown, key=str) != sorted(
        (name for name, item in by_id.items() if item.archived_by is None), key=str
    ):
        wrong.append("the window is not what no compaction archived")
    tried = {f"summary {text}" for one in heard for what, text in one.asked if what == "compaction"}
    if {compaction.summary.text for compaction in made} - tried:
        wrong.append("a compaction was made by nobody")
    if any(what == "compaction" for one in heard for what, _ in one.acknowledged) and not made:
        wrong.append("every compaction is lost")
    return wrong


async def _items(session: Session) -> AsyncIterator[HistoryItem]:
    cursor, more = None, True
    while more:
        page = await session.history(limit=1_000, cursor=cursor)
        for item in page.items:
            yield item
        cursor = page.cursor
        more = cursor is not None


async def _rows(memory: Memory) -> list[Record]:
    """The session's log, as it is stored."""
    archive = engine_of(memory).topology.archive
    return [
        row
        async for page in scan(archive, Query(MESSAGES, Everywhere()))
        for row in page.records
        if isinstance(row, Record)
    ]


async def _speaks(config: dict[str, Any], name: str, seed: int, dies: str) -> None:
    ended = asyncio.Event()
    reading = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    reading.add_done_callback(lambda _: ended.set())
    async with await _opened(config) as memory:
        speaker = Speaker(memory, name, seed, dies)
        while not ended.is_set():
            await speaker.one()


async def _opened(config: dict[str, Any]) -> Memory:
    """A memory, as soon as its servers are there: one may be down just now."""
    while True:
        memory = Memory(config, on_window_exit="elsewhere")
        try:
            return await memory.open()
        except StoreUnavailable:
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(_speaks(json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]))
