"""Runs of scratchpads: the real engine on an in-memory store, several processes that
append, clear and read, faults at every call.

Every row that ever stood is remembered by its place as soon as it does. What was
acknowledged is in exactly one of them, what was refused in none, each says how large
all is then, and a clearing takes what whoever cleared had seen. Of what is refused no
part is left where nothing failed. Once nothing is owed any more what was cleared is
gone, parts and all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any
from unittest.mock import patch

from memory.domain.errors import ScratchpadFull
from memory.domain.scratchpad import Scratchpad
from memory.orchestrator.entries import scratchpads
from memory.orchestrator.storage.collections import SCRATCHPADS
from memory.ports.record import Record
from tests.simulation.faults import CLOCK_ERROR, LATEST, UNANSWERED, Process
from tests.simulation.lives import (
    Worker,
    World,
    at_work,
    audited,
    bytes_of,
    drawn_acts,
    loop_of,
    plan_of,
    play,
    servers_of,
)
from tests.simulation.loop import seeded
from tests.simulation.setup import SETTINGS
from tests.simulation.world import HOME

TENANT, AGENT = "acme", "builder"
CAP, PART_BYTES = 420, 64
"""So small that a few appends fill it, and that what is longer than a line stands in
parts.
"""
WORKERS, ACTS_EACH, ROUNDS = 3, 8, 12
STEPS = (
    "scratchpad.end",
    "scratchpad.put",
    "scratchpad.part",
    "scratchpad.drop",
    "scratchpad.size",
    "scratchpad.read",
    "scratchpad.find",
)
"""What faults strike more readily at; and in some runs one of these at one of them."""
WEIGHTS = {"append": 9, "long": 5, "clear": 3, "read": 4, "sweep": 2}


@dataclass(slots=True)
class Act:
    """One append or clearing."""

    label: str
    text: str = ""
    outcome: str = "unknown"
    begun: float = 0.0
    size: int = 0
    saw: int | None = None
    """The last place when it first looked."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A row as it stood when it came."""

    nonce: str
    cleared: int
    length: int
    size: int
    parts: int
    said: bytes | None
    """What it says; None where its parts are not all there."""


@dataclass(slots=True)
class Run(World):
    """Everything of one run that its workers share, and what was seen in the store."""

    acts: list[Act] = field(default_factory=list)
    by_nonce: dict[str, Act] = field(default_factory=dict)
    seen: dict[int, Seen] = field(default_factory=dict)
    """By place."""
    told: int = 0
    """The last place of which somebody was told."""

    # -- what holds at every moment ----------------------------------------------------

    def look(self) -> None:
        rows = self.standing(SCRATCHPADS)
        by_key = {row.key: row for row in rows}
        for row in sorted(
            (row for row in rows if "place" in row.fields), key=lambda row: _number(row, "place")
        ):
            place, nonce = _number(row, "place"), str(row.fields["nonce"])
            keys = [
                scratchpads._part_key(row.partition, nonce, number) for number in range(_number(row, "parts"))
            ]
            parts = [bytes_of(by_key[key]) for key in keys if key in by_key]
            if place not in self.seen:
                self._came(place, row, parts)
            elif self.seen[place].said is None and len(parts) == len(keys):
                self.seen[place] = replace(
                    self.seen[place], said=b"".join(parts)
                )  # who noted it has put again what a sweep had taken
            elif self.seen[place].nonce != nonce:
                self.broken.append(f"at place {place} something else stands than did")

    def _came(self, place: int, row: Record, parts: list[bytes]) -> None:
        nonce, number = str(row.fields["nonce"]), _number(row, "parts")
        act = self.by_nonce[nonce]
        whole = not number or (len(parts) == number and sum(map(len, parts)) == _number(row, "bytes"))
        said = b"".join(parts) if number else bytes_of(row)
        seen = self.seen[place] = Seen(
            nonce,
            _number(row, "cleared"),
            _number(row, "bytes"),
            _number(row, "size"),
            number,
            said if whole else None,
        )
        before = self.seen.get(place - 1)
        if place > 1 and before is None:
            self.broken.append(f"{act.label} stands at place {place}, and nothing before it")
        if any(at != place and one.nonce == nonce for at, one in self.seen.items()):
            self.broken.append(f"{act.label} stands at two places")
        if not whole and not self._slept(act):
            self.broken.append(f"{act.label} stands at place {place} before its parts do")
        if whole and act.text and (said.count(b"\n") != 2 or not said.endswith(f"\n{act.text}\n".encode())):
            self.broken.append(f"{act.label} stands as {said!r}")
        if seen.size > CAP:
            self.broken.append(f"with {act.label} there are {seen.size} bytes, of at most {CAP}")
        if (
            size := sum(self.seen[at].length for at in range(seen.cleared + 1, place + 1) if at in self.seen)
        ) != seen.size:
            self.broken.append(f"{act.label} says {seen.size} bytes, and there are {size}")
        taken = 0 if before is None else before.cleared
        if seen.cleared != (taken if act.text else max(act.saw or 0, taken)):
            self.broken.append(
                f"with {act.label} all is cleared up to {seen.cleared}; it saw {act.saw}, and was after"
                f" {taken}"
            )

    def left_of(self, act: Act) -> bool:
        """Whether parts of it stand."""
        nonces = {nonce for nonce, one in self.by_nonce.items() if one is act}
        return any(
            "place" not in row.fields and row.fields["nonce"] in nonces for row in self.standing(SCRATCHPADS)
        )

    def _slept(self, act: Act) -> bool:
        """Whether a sweep may have taken its parts before its row came: who appended
        puts them again.
        """
        return self.loop.time() - act.begun > SETTINGS.mark_life.total_seconds() / 2 - 2 * CLOCK_ERROR

    def content(self, place: int) -> tuple[bytes, int]:
        """What stands there once the row at this place does, and how many appends of it
        cannot be read.
        """
        rows = [self.seen[at] for at in range(self.seen[place].cleared + 1, place + 1)] if place else []
        return b"".join(row.said or b"" for row in rows), sum(row.said is None for row in rows)

    # -- what holds in the end ---------------------------------------------------------

    def judge(self, found: Scratchpad) -> None:
        self.look()
        for act in self.acts:
            rows = [row for row in self.seen.values() if self.by_nonce[row.nonce] is act]
            if act.outcome == "done" and len(rows) != 1:
                self.broken.append(f"{act.label} was acknowledged, and is in {len(rows)} rows")
            if act.outcome == "refused" and rows:
                self.broken.append(f"{act.label} was refused, and is there")
            if (
                act.text
                and len(
                    copies := [
                        row
                        for row in self.seen.values()
                        if row.said and f"[{act.label}]".encode() in row.said
                    ]
                )
                > 1
            ):
                self.broken.append(f"{act.label} is there {len(copies)} times")
            if act.text and act.outcome == "done" and any(row.size != act.size for row in rows):
                self.broken.append(f"{act.label} was told {act.size} bytes")
        last = max(self.seen, default=0)
        cleared = self.seen[last].cleared if last else 0
        standing = {_number(row, "place") for row in self.standing(SCRATCHPADS) if "place" in row.fields}
        if standing != {*range(cleared + 1, last + 1)}:
            self.broken.append(f"after {cleared} of {last} were cleared {sorted(standing)} stand")
        left = {str(row.fields["nonce"]) for row in self.standing(SCRATCHPADS) if "place" not in row.fields}
        if left - {self.seen[place].nonce for place in standing}:
            self.broken.append("parts are left of which no row stands")
        if (found.content.encode(), found.damaged) != self.content(last):
            self.broken.append(
                f"in the end {found.content!r} is read ({found.damaged}), and {self.content(last)} stands"
            )


class Writer(Worker[Run]):
    """One process."""

    def __init__(self, run: Run, process: Process) -> None:
        super().__init__(run, process)
        self.act: Act | None = None
        pads: Any = self.engine.scratchpads
        put, end = pads._put, pads._end

        async def noticed(partition: Any, nonce: str, of: Any, *more: Any) -> Any:
            assert self.act is not None
            run.by_nonce[nonce] = self.act
            return await put(partition, nonce, of, *more)

        async def looked(partition: Any) -> Any:
            found = await end(partition)
            if self.act is not None and self.act.saw is None:
                self.act.saw = found.place
            return found

        pads._put, pads._end = noticed, looked

    def _begun(self, label: str, text: str = "") -> Act:
        self.act = Act(label, text, begun=self.run.loop.time())
        self.run.acts.append(self.act)
        return self.act

    async def _append(self, label: str, random: Random, beyond: str = "") -> None:
        act, struck = self._begun(label, f"[{label}] noted{beyond}"), len(self.run.plan.struck)
        try:
            act.size = await self.engine.scratchpads.append(TENANT, AGENT, act.text)
            act.outcome = "done"
        except ScratchpadFull as full:
            act.outcome = "refused"
            if full.held + full.asked <= CAP:
                self.run.broken.append(f"{label} was refused, though there was room: {full}")
            if full.held and full.held not in {row.size for row in self.run.seen.values()}:
                self.run.broken.append(f"{label} was refused for {full.held} bytes, which never stood there")
            if self.run.left_of(act) and struck == len(self.run.plan.struck):
                self.run.broken.append(f"{label} was refused, and its parts are left though nothing failed")

    async def _long(self, label: str, random: Random) -> None:
        await self._append(
            label, random, " " + " ".join(f"{label}:{n}" for n in range(8 + random.randrange(12)))
        )

    async def _meet(self, label: str, random: Random) -> None:
        """All workers at one moment."""
        await self.wait_for_meeting(random)
        await getattr(self, random.choice(("_append", "_append", "_long", "_long", "_clear", "_swept")))(
            label, random
        )

    async def _clear(self, label: str, random: Random) -> None:
        act = self._begun(label)
        cleared = await self.engine.scratchpads.clear(TENANT, AGENT)
        if cleared:
            act.outcome = "done"
        elif act.saw and self.run.seen[act.saw].size:
            by_others = max(
                row.cleared for row in self.run.seen.values() if self.run.by_nonce[row.nonce] is not act
            )
            if by_others < act.saw:
                self.run.broken.append(
                    f"{label} says that others cleared {act.saw} places, and they cleared {by_others}"
                )

    async def _read(self, label: str, random: Random) -> None:
        """What is read stood there at some moment of the reading."""
        self.act = None
        first = max(self.run.seen, default=0)
        found = await self.engine.scratchpads.read(TENANT, AGENT)
        last = max(self.run.seen, default=0)
        could = [self.run.content(place) for place in range(first, last + 1)]
        cleared = any(not self.run.seen[place].length for place in range(first + 1, last + 1))
        if (found.content.encode(), found.damaged) not in could and not (found.damaged and cleared):
            self.run.broken.append(f"{found.content!r} is read ({found.damaged}), and {could} stood there")

    async def _sweep(self, label: str, random: Random, within: float = 100.0) -> None:
        self.act = None
        await asyncio.sleep(random.random() * within)
        await self.engine.maintenance.sweep()

    async def _swept(self, label: str, random: Random) -> None:
        """While others are in the middle of an append."""
        await self._sweep(label, random, within=random.choice((0.01, 1.0, LATEST)))


def _number(row: Record, name: str) -> int:
    return int(str(row.fields.get(name) or 0))


@contextmanager
def small() -> Iterator[None]:
    with patch.object(scratchpads, "CAP", CAP), patch.object(scratchpads, "PART_BYTES", PART_BYTES):
        yield


def played(seed: int) -> Run:
    """One run; the same seed is the same run."""
    loop = loop_of(seed)
    random = seeded(seed, 6)
    plan = plan_of(seed, random, STEPS, UNANSWERED, share=0.3)
    world = Run(seed, loop, plan, servers_of(loop, HOME))
    with small():
        return play(world, _all)


async def _all(world: Run) -> None:
    await at_work(
        world,
        lambda process: Writer(world, process),
        [
            drawn_acts(world.seed, number, WEIGHTS, ACTS_EACH, {2: "meet", 5: "meet"})
            for number in range(WORKERS)
        ],
    )
    comes_no_more = SETTINGS.mark_life.total_seconds() + 4 * CLOCK_ERROR  # parts of which no row came
    engine = await audited(world, world.process("auditor"), comes_no_more, ROUNDS)
    world.judge(await engine.scratchpads.read(TENANT, AGENT))
