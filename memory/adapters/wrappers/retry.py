"""Calls that found a store unavailable are made again, and a write that was carried out though its answer was lost is known for what it is.

Every write of the port is repeatable: applied twice, it leaves what applied once it leaves. Its outcome is not: the second time its own work stands
in the way, and a condition that held does not hold any more. So after a call of unknown end, a conflict with exactly what the write was to leave is
an application. What others changed in between is a conflict, as it would have been had they come first.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar, cast

from memory.adapters.wrappers.base import Call, Wrapper
from memory.domain.errors import StoreError
from memory.ports.record import Mark, Record, Tombstone
from memory.ports.store import Store
from memory.ports.writes import Annotate, Append, Delete, Outcome, Purge, Put, RaiseGeneration, Release, Status, Write

T = TypeVar("T")

LONGEST = 5.0
"""Seconds between two attempts, at most."""
NOT_AGAIN = ("close", "check", "delete_matching")
"""`check` is to say how things are now; the number that `delete_matching` returns would be of the last attempt only."""


class Retry(Wrapper):
    """Makes a call up to `attempts` times while it raises an error that says it is retryable; the last one's error is the caller's.

    Between attempts it waits a random time, up to `backoff` seconds at first and twice as long each time ("full jitter", AWS Architecture Blog).
    Not made again: `check`, `close`, `delete_matching`, and a batch that raises a generation by one, which would raise it twice.
    """

    def __init__(self, inner: Store, attempts: int = 3, backoff: float = 0.1) -> None:
        super().__init__(inner)
        self._attempts = attempts
        self._backoff = backoff

    async def _call(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:
        attempts = self._attempts if _may_be_repeated(call) else 1
        for attempt in range(1, attempts + 1):
            try:
                answer = await work()
            except StoreError as error:
                if not error.retryable or attempt == attempts:
                    raise
                await asyncio.sleep(random.uniform(0, min(LONGEST, self._backoff * 2 ** (attempt - 1))))  # noqa: S311 - no secret
                continue
            if attempt > 1 and call.method == "apply":
                return cast(T, recognised(call, cast("list[Outcome]", answer)))
            return answer
        raise AssertionError("the last attempt returns or raises")


def _may_be_repeated(call: Call) -> bool:
    return call.method not in NOT_AGAIN and not any(isinstance(write, RaiseGeneration) and write.to is None for write in call.writes)


def recognised(call: Call, outcomes: list[Outcome]) -> list[Outcome]:
    """The outcomes of a batch that may have been carried out before: what is there already was applied."""
    known = [_recognised(write, outcome) for write, outcome in zip(call.writes, outcomes, strict=True)]
    if not call.together or all(o.applied for o in outcomes):
        return known
    # Kept together or not at all: a conflict with the batch's own work says that all of it is there.
    mine = any(after.applied and not before.applied for before, after in zip(outcomes, known, strict=True))
    if mine and all(o.applied or o.status is Status.SKIPPED for o in known):
        return [_as_applied(w) if o.status is Status.SKIPPED else o for w, o in zip(call.writes, known, strict=True)]
    return outcomes


def _recognised(write: Write, outcome: Outcome) -> Outcome:
    """The outcome, or that of an application where exactly what the write leaves stands in its way."""
    stored = outcome.stored
    if outcome.status is not Status.CONFLICT or stored is None:
        return outcome
    match write:
        case Put(record=record) if isinstance(stored, Record) and _is_there(record, stored):
            return Outcome(Status.APPLIED, version=stored.version, generation=stored.generation)
        case Append(record=record, field=field) if isinstance(stored, Record):
            number = stored.fields.get(field)
            if isinstance(number, int) and _is_there(replace(record, fields={**record.fields, field: number}), stored):
                return Outcome(Status.APPLIED, version=stored.version, generation=stored.generation, number=number)
        case Delete() if isinstance(stored, Tombstone) and stored.version == write.version and dict(stored.note) == dict(write.note):
            return _as_applied(write)
        case Release() if isinstance(stored, Mark) and stored.version == write.at and stored.to == write.to:
            return _as_applied(write)
        case Annotate() if isinstance(stored, Record) and write.role_is is not None and _is_annotated(write, stored):
            return _as_applied(write)
    return outcome


def _is_there(record: Record, stored: Record) -> bool:
    """Whether a record that was to be put stands there: it says the same in the same role and tier. What it owes may have been done since."""
    born = record if record.generation is not None else replace(record, generation=stored.generation)
    return stored.same_content(born) and stored.role is record.role and stored.tier == record.tier


def _is_annotated(write: Annotate, stored: Record) -> bool:
    """Whether a change of role has been made: the role it starts from is gone, the one it leads to is there."""
    return stored.version == write.at and write.role is not None and stored.role is write.role and write.tier in (None, stored.tier)


def _as_applied(write: Write) -> Outcome:
    match write:
        case Put() | Append():
            return Outcome(Status.APPLIED, version=write.record.version, generation=write.record.generation)
        case Delete():
            return Outcome(Status.APPLIED, version=write.version)
        case Release() | Annotate():
            return Outcome(Status.APPLIED, version=write.at)
        case Purge() | RaiseGeneration():
            return Outcome(Status.APPLIED)
