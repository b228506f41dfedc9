"""Retries calls that found the store unavailable, and recognises its own writes.

Every write of the port is repeatable: applying it twice leaves the same data as once.
Its outcome is not repeatable. The second attempt meets the result of the first, so its
condition fails. After a call with an unknown result, a conflict with exactly the
intended data therefore counts as applied. Changes by others in between are conflicts,
as if the others had come first.

This holds only while marks and tombstones still exist, because they expire. A process
may sleep (a laptop, a frozen machine) and then repeat a put after the tombstone of its
own record has expired. That would restore deleted data. So no call is repeated after
half the life of a mark. The wall clock decides, because it runs while a machine sleeps.
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
"""Most seconds between two attempts."""
GIVE_UP_AFTER = timedelta(minutes=30)
"""Half the life of a mark by default; see `EngineSettings.mark_life`."""
NOT_AGAIN = ("close", "check", "delete_matching", "audit", "vacuum", "forget_partitions")
"""`check` reports the present state; the others would report only the last attempt."""


class Retry(Wrapper):
    """Makes a call up to `attempts` times while it raises a retryable error.

    The caller gets the error of the last attempt. Between attempts it waits a random
    time: up to `backoff` seconds at first, and up to twice as long each time ("full
    jitter", AWS Architecture Blog).

    It never repeats:

    - the methods in `NOT_AGAIN`
    - a batch that raises a generation by one, because it would raise it twice
    - a batch with several writes of one key, because the earlier ones cannot be
      recognised
    - any call more than `give_up_after` after its first attempt, by `clock`; the caller
      gets the last error, and the result is unknown

    A repeated access update may be counted twice.
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
        """Return the outcomes of a batch that may have been applied before.

        Data that is already stored counts as applied.
        """
        known = recognise_own_writes(call.writes, outcomes)
        if not call.together or all(o.applied for o in known):
            return known
        left = {i: write for i, write in enumerate(call.writes) if known[i].status is Status.SKIPPED}
        if not all(known[i].applied for i in range(len(known)) if i not in left):
            return outcomes
        # The conflicting data exists, written by this call or by an identical one. Only
        # an application of the rest proves that the rest exists too.
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
    """Treat each conflict with the write's own result as applied.

    The writes must have different keys.
    """
    return [
        outcome if isinstance(write, RaiseGeneration) else _recognise_own_write(write, outcome)
        for write, outcome in zip(writes, outcomes, strict=True)
    ]


def _recognise_own_write(write: Write, outcome: Outcome) -> Outcome:
    """Return "applied" if the conflicting data is exactly what the write leaves."""
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
    """Whether the record of a put is stored: same content, role and tier.

    Its pending steps may have been completed since, and a read may have moved its
    expiry to a later moment.
    """
    born = record if record.generation is not None else replace(record, generation=stored.generation)
    if born.expires_at is not None and stored.expires_at is not None:
        born = replace(born, expires_at=max(born.expires_at, stored.expires_at))
    return stored.same_content(born) and stored.role is record.role and stored.tier == record.tier


def _is_annotated(write: Annotate, stored: Record) -> bool:
    """Whether a change of role was applied.

    The stored role is the new one, and the steps that it completes are no longer
    pending.
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
