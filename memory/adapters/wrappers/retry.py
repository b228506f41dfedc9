"""Calls that found a store unavailable are made again, and a write that was carried out
though its answer was lost is known for what it is.

Every write of the port is repeatable: applied twice, it leaves what applied once it
leaves. Its outcome is not: the second time its own work stands in the way, and a
condition that held does not hold any more. So after a call of unknown end, a conflict
with exactly what the write was to leave is an application. What others changed in
between is a conflict, as it would have been had they come first.

That holds as long as what others leave in between is still there to be seen. Marks and
tombstones are forgotten in the end: a process that slept (a laptop, a frozen machine)
and then repeated a put over the forgotten tombstone of its own record would bring back
what was deleted. So nothing is repeated once half the life of a mark has passed by the
clock on the wall, which goes on while a machine sleeps.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar, cast

from memory.adapters.wrappers.base import Call, Wrapper
from memory.domain.errors import StoreError
from memory.ports.clock import Clock, system_clock
from memory.ports.record import Mark, Record, Tombstone
from memory.ports.store import Store
from memory.ports.writes import Annotate, Delete, Outcome, Put, RaiseGeneration, Release, Status, Write

T = TypeVar("T")

LONGEST = 5.0
"""Seconds between two attempts, at most."""
GIVE_UP_AFTER = timedelta(minutes=30)
"""Half the life of a mark, unless configured otherwise; see `EngineSettings.mark_life`."""
NOT_AGAIN = ("close", "check", "delete_matching", "audit", "vacuum", "forget_partitions")
"""`check` is to say how things are now; what the others return would be of the last
attempt only.
"""


class Retry(Wrapper):
    """Makes a call up to `attempts` times while it raises an error that says it is
    retryable; the last one's error is the caller's.

    Between attempts it waits a random time, up to `backoff` seconds at first and twice
    as long each time ("full jitter", AWS Architecture Blog). Not made again: `check`,
    `close`, `delete_matching`, a batch that raises a generation by one, which would
    raise it twice, and one with several writes of one key, whose earlier ones nobody
    could recognise. An access that is noted again may be counted twice. Nor is a call
    made again more than `give_up_after` after its first attempt, by `clock`: then its
    last error is the caller's, and whether it was applied is unknown.
    """

    def __init__(
        self,
        inner: Store,
        attempts: int = 3,
        backoff: float = 0.1,
        *,
        give_up_after: timedelta = GIVE_UP_AFTER,
        clock: Clock = system_clock,
    ) -> None:
        super().__init__(inner)
        self._attempts = attempts
        self._backoff = backoff
        self._give_up_after = give_up_after
        self._clock = clock

    async def _call(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:
        attempts, begun = self._attempts if _may_be_repeated(call) else 1, self._clock()
        for attempt in range(1, attempts + 1):
            try:
                answer = await work()
                if attempt > 1 and call.method == "apply":
                    return cast(T, await self._resolve_outcomes(call, cast("list[Outcome]", answer)))
                return answer
            except StoreError as error:
                if not error.retryable or attempt == attempts:
                    raise
                await asyncio.sleep(random.uniform(0, min(LONGEST, self._backoff * 2 ** (attempt - 1))))  # noqa: S311 - no secret
                if abs(self._clock() - begun) > self._give_up_after:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _resolve_outcomes(self, call: Call, outcomes: list[Outcome]) -> list[Outcome]:
        """The outcomes of a batch that may have been carried out before: what is there
        already was applied.
        """
        known = recognise_own_writes(call.writes, outcomes)
        if not call.together or all(o.applied for o in known):
            return known
        left = {i: write for i, write in enumerate(call.writes) if known[i].status is Status.SKIPPED}
        if not all(known[i].applied for i in range(len(known)) if i not in left):
            return outcomes
        # What stood in the way is there, by this call or by another's same work. Only
        # the rest's own application says that it is there too.
        done = await self.inner.apply(list(left.values()), together=True)
        if not all(o.applied for o in done):
            return outcomes
        rest = dict(zip(left, done, strict=True))
        return [rest.get(i, outcome) for i, outcome in enumerate(known)]


def _may_be_repeated(call: Call) -> bool:
    if call.method in NOT_AGAIN or any(
        isinstance(write, RaiseGeneration) and write.to is None for write in call.writes
    ):
        return False
    written = [
        (write.collection.name, write.key) for write in call.writes if not isinstance(write, RaiseGeneration)
    ]
    return len(set(written)) == len(written)


def recognise_own_writes(writes: Sequence[Write], outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes of writes of different keys, with every conflict that is the write's
    own work known for an application.
    """
    return [
        outcome if isinstance(write, RaiseGeneration) else _recognise_own_write(write, outcome)
        for write, outcome in zip(writes, outcomes, strict=True)
    ]


def _recognise_own_write(write: Write, outcome: Outcome) -> Outcome:
    """The outcome, or that of an application where exactly what the write leaves stands
    in its way.
    """
    stored = outcome.stored
    if outcome.status is not Status.CONFLICT or stored is None:
        return outcome
    match write:
        case Put(record=record) if isinstance(stored, Record) and _is_there(record, stored):
            return Outcome(Status.APPLIED, version=stored.version, generation=stored.generation)
        case Delete() if (
            isinstance(stored, Tombstone)
            and stored.version == write.version
            and dict(stored.note) == dict(write.note)
        ):
            return _as_applied(write)
        case Release() if isinstance(stored, Mark) and stored.version == write.at and stored.to == write.to:
            return _as_applied(write)
        case Annotate() if (
            isinstance(stored, Record) and write.role_is is not None and _is_annotated(write, stored)
        ):
            return _as_applied(write)
    return outcome


def _is_there(record: Record, stored: Record) -> bool:
    """Whether a record that was to be put stands there: it says the same in the same
    role and tier. What it owes may have been done since.
    """
    born = record if record.generation is not None else replace(record, generation=stored.generation)
    return stored.same_content(born) and stored.role is record.role and stored.tier == record.tier


def _is_annotated(write: Annotate, stored: Record) -> bool:
    """Whether a change of role has been made: the role it starts from is gone, the one
    it leads to is there, and what it settles is not owed.
    """
    if any(step.id in write.settle for step in stored.owed):
        return False
    return (
        stored.version == write.at
        and write.role is not None
        and stored.role is write.role
        and write.tier in (None, stored.tier)
    )


def _as_applied(write: Delete | Release | Annotate) -> Outcome:
    return Outcome(Status.APPLIED, version=write.version if isinstance(write, Delete) else write.at)
