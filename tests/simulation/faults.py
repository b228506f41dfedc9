"""The faults there are, and the plan of one run: which call is struck by what.

The fault model. Each call of a store is one request and one answer; a fault strikes
before the request is applied, after it, or both:

- crash before, crash after: the worker's process dies at that await; nothing of it runs
  on, and a new process takes its place;
- error before, error after, timeout: the caller is told so and cannot know which; after
  a timeout the request may still arrive late;
- delay, reordering: the request or the answer is late by up to `LATEST` seconds, so
  calls overtake each other;
- duplicate: an applied write is delivered once more, up to `LATEST` seconds later, as a
  retry below the port would;
- partial batch: a store that is not `atomic` keeps some of a batch, in order, and then
  fails;
- down: the store refuses everyone for a while; restarted: a volatile store comes back
  empty, or as it was at an earlier moment;
- clock: the worker's clock jumps, never to be wrong by more than `CLOCK_ERROR`;
- cancelled: the caller gives the operation up at that await, and the same process goes
  on with the same engine;
- frozen: nothing of the worker runs for `FREEZE` seconds, longer than any lease or
  timeout, while others go on.

A store that is not `fenced` lets stand what was sent before an erasure and arrives
after it, where whoever sent it does not look again; a narrow one refuses large records
until the last operation has been done, and takes few writes at once.

And a disk damages a copy of an entry now and then, which no client is told of: see
`EngineClient.damage`.

What the engine may take for granted is therefore: no request arrives later than
`LATEST` after its call ended, and no two clocks differ by more than twice
`CLOCK_ERROR`. The lives of marks and tombstones must be longer than both together. A
freeze may be longer than a mark lives; a tombstone outlives every freeze.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Any

from memory.adapters.in_memory import InMemoryStore
from tests.simulation.loop import SimulatedClock, SimulatedLoop, mixed, seeded

LATEST = 30.0
"""Seconds after which no delayed or repeated request arrives any more."""

CLOCK_ERROR = 60.0
"""Seconds by which a worker's clock may be wrong, either way."""

FREEZE = (200.0, 9_000.0)
"""Seconds for which a worker may be frozen: longer than a lease always, longer than a
mark lives now and then.
"""

FOCUS = 0.75
"""How likely the fault that a seed is about strikes at the step it is about."""


RARER = 5.0
"""How much more readily faults strike at steps that are seldom taken."""


class Fault(StrEnum):
    CRASH_BEFORE = "crash before"
    CRASH_AFTER = "crash after"
    ERROR_BEFORE = "error before"
    ERROR_AFTER = "error after"
    TIMEOUT = "timeout"
    DELAY = "delay"
    REORDER = "reorder"
    DUPLICATE = "duplicate"
    PARTIAL = "partial batch"
    DOWN = "down"
    EMPTIED = "restart empty"
    ROLLED_BACK = "rolled back"
    CLOCK = "clock jump"
    FROZEN = "frozen"
    CANCELLED = "cancelled"


WRITES_ONLY = frozenset({Fault.ERROR_AFTER, Fault.DUPLICATE})
RESTARTS = frozenset({Fault.EMPTIED, Fault.ROLLED_BACK})
UNANSWERED = (Fault.ERROR_AFTER, Fault.TIMEOUT, Fault.FROZEN, Fault.CRASH_AFTER, Fault.DUPLICATE)
"""After these a caller does not know what became of the call, or it arrives twice."""
AIMED = (
    Fault.CRASH_BEFORE,
    Fault.CRASH_AFTER,
    Fault.ERROR_AFTER,
    Fault.TIMEOUT,
    Fault.FROZEN,
    Fault.PARTIAL,
    Fault.DUPLICATE,
    Fault.CANCELLED,
)
"""What small simulations aim at one of their steps. The order is what seeds draw by."""


class WorkerCrashed(BaseException):
    """The simulated process is gone. Not an `Exception`: no handler of the library may
    swallow it.
    """


class Coverage:
    """How often each fault struck at each step, and which could have."""

    def __init__(self) -> None:
        self.hits: Counter[tuple[str, Fault]] = Counter()
        self.chances: set[tuple[str, tuple[Fault, ...]]] = set()

    def add(self, other: Coverage) -> None:
        self.hits.update(other.hits)
        self.chances |= other.chances

    @property
    def pairs(self) -> set[tuple[str, Fault]]:
        """Every step and fault that could have met."""
        return {(step, fault) for step, possible in self.chances for fault in possible}


@dataclass(slots=True)
class Server:
    """One store that all workers reach, and what its operator can do to it. `restart`
    is None where it is durable.
    """

    store: InMemoryStore
    restart: Callable[[bool], None] | None = None
    down_until: float = 0.0
    widened: InMemoryStore | None = None
    """The same store once its operator has lifted its limits."""


@dataclass(frozen=True, slots=True)
class Struck:
    """One injected fault: at which call of which operation. `where` names it across
    runs of the same seed.
    """

    where: tuple[int, int]
    step: str
    fault: Fault


@dataclass(slots=True)
class FaultPlan:
    """Which call is struck by what: decided from the seed, the operation and the number
    of the call in it, so that dropping one changes no other.
    """

    seed: int
    rate: float = 0.03
    focus: tuple[str, str] = ("", "")
    lure: tuple[str, str] | None = None
    lured: frozenset[int] = frozenset()
    """The operations that the lure is for; where there are none, it is for all."""
    lures: Mapping[int, tuple[str, Fault]] = field(default_factory=dict)
    """Operations with a lure of their own."""
    rare: frozenset[str] = frozenset()
    """Steps so seldom taken that faults strike there more readily."""
    most: int = 30
    """Once so many have struck, only those do that operations bring of their own."""
    dropped: frozenset[tuple[int, int]] = frozenset()
    active: bool = True
    struck: list[Struck] = field(default_factory=list)
    coverage: Coverage = field(default_factory=Coverage)

    def draw(
        self, where: tuple[int, int], step: str, possible: tuple[Fault, ...], store: str = ""
    ) -> Fault | None:
        """What strikes this call. Operations get the faults of their own also where
        many have struck before them.
        """
        lured = self._lured(where[0], step, possible, store)
        if lured is None and len(self.struck) >= self.most:
            return None
        self.coverage.chances.add((step, possible))
        chosen = lured or self._chosen(where, step, possible)
        if chosen is None or where in self.dropped:
            return None
        self.struck.append(Struck(where, step, chosen))
        self.coverage.hits[step, chosen] += 1
        return chosen

    def _lured(self, operation: int, step: str, possible: tuple[Fault, ...], store: str) -> Fault | None:
        """The fault of the operation's own, at every call of that step, or at those of
        one store, as in `read.home of short`.
        """
        asked, fault = self.lures.get(operation, ("", None))
        return fault if asked in (step, f"{step} of {store}") and fault in possible else None

    def _chosen(self, where: tuple[int, int], step: str, possible: tuple[Fault, ...]) -> Fault | None:
        bits = mixed(self.seed, *where)
        chance = (bits & 0xFFFFFFFF) / 2**32
        if (
            self.lure is not None
            and self.lure[0] == step
            and self.lure[1] in possible
            and self._lures(where[0], chance)
        ):
            return Fault(self.lure[1])
        if self.focus[0] == step and self.focus[1] in possible and chance < FOCUS and self.focus != self.lure:
            return Fault(self.focus[1])
        if chance > 1 - self.rate * (RARER if step in self.rare else 1):
            return possible[(bits >> 32) % len(possible)]
        return None

    def _lures(self, operation: int, chance: float) -> bool:
        return operation in self.lured if self.lured else chance < FOCUS


@dataclass(slots=True, eq=False)
class Process:
    """One worker's process: its clock, whether it lives, and which operation it is at."""

    name: str
    loop: SimulatedLoop
    clock: SimulatedClock
    plan: FaultPlan
    trace: Callable[[str], None] | None = None
    on_death: Callable[[], object] | None = None
    dead: bool = False
    operation: int = 0
    calls: int = 0
    task: asyncio.Task[None] | None = None
    """The operation it is at."""
    cancelled: bool = False
    _random: Random | None = None

    def random_bits(self, seed: int) -> Callable[[int], int]:
        """Draw from the seed; a later engine of this process goes on where the last stopped,
        or two of them would make equal ids and nonces.
        """
        self._random = self._random or seeded(seed, 5, *self.name.encode())
        return self._random.getrandbits

    def begin(self, operation: int) -> None:
        self.operation, self.calls = operation, 0

    async def lives(self, life: Coroutine[Any, Any, None], *, as_one_operation: bool = False) -> None:
        """Until that has ended or the process has died. What is raised otherwise is
        raised.
        """
        task = asyncio.create_task(life)
        if as_one_operation:
            self.task = task
        self.on_death = task.cancel
        await asyncio.wait([task])
        if not self.dead and not task.cancelled() and (error := task.exception()) is not None:
            raise error

    async def performs(self, operation: Coroutine[Any, Any, None]) -> bool:
        """False where the caller gave it up: the process goes on."""
        self.task = asyncio.create_task(operation)
        try:
            await self.task
        except asyncio.CancelledError:
            if self.dead or not self.cancelled:
                raise
            self.cancelled = False
            return False
        return True

    def cancel(self) -> bool:
        """Whoever waits for the operation gives it up; false where there is none."""
        if self.task is None or self.task.done():
            return False
        self.cancelled = True
        self.loop.call_soon(self.task.cancel, context=Context())
        return True

    def die(self) -> None:
        self.dead = True
        if self.on_death is not None:
            self.loop.call_soon(self.on_death, context=Context())
        raise WorkerCrashed(self.name)
