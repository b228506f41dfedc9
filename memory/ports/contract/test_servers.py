"""A server that freezes or dies while its store is open.

Every call ends in time with an error of ours, and the same store works afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from memory.domain.errors import StoreUnavailable
from memory.ports.contract.capability_tests import needs, needs_server, without
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import DECLARED, MORE_SAMPLES, SAMPLES
from memory.ports.contract.harness import Harness
from memory.ports.contract.support import (
    ELSEWHERE,
    HERE,
    apply_all,
    delete,
    fetch_record,
    key_of,
    one,
    put,
    record,
    release,
)
from memory.ports.query import Eq, Near, Order, Query, Search, Words, within
from memory.ports.record import Mark, Record, Role, Stored, Tombstone, pack_vector
from memory.ports.store import Store
from memory.ports.writes import Absent, Annotate, AtVersion, Newer, Purge, RaiseGeneration, Write

Call = Callable[[Store], Coroutine[Any, Any, object]]
HELD = (3, 4, 5, 6, 7, 8)
"""The records before the failure; those in ELSEWHERE are for `delete_matching`."""


def _writes(store: Store) -> dict[str, list[Write]]:
    """Return one write of each kind, each with a key of its own, and a batch."""
    writes: dict[str, list[Write]] = {
        "put": [put(record(1, version=2, body={"n": "new"}))],
        "a batch": [put(record(n, version=2, body={"n": "new"})) for n in range(10, 20)],
        "raise the generation": [RaiseGeneration(ELSEWHERE, 7)],
    }
    if store.capabilities.conditional:
        writes |= {
            "put absent": [put(record(2, version=2, body={"n": "new"}), Absent())],
            "put at a version": [put(record(3, version=2, body={"n": "new"}), AtVersion(1))],
            "put newer": [put(record(4, version=2, body={"n": "new"}), Newer())],
            "delete": [delete(5, version=2)],
            "release": [release(6)],
            "annotate": [Annotate(SAMPLES, key_of(7), 1, tier="long")],
            "purge": [Purge(SAMPLES, key_of(8), 1)],
            "append": [put(record(9, version=2, body={"n": "new"}), Absent(), MORE_SAMPLES)],
        }
    return writes


def _calls(store: Store) -> dict[str, Call]:
    """Return the claimed methods that raise if the server does not answer."""

    def apply_call(some: list[Write], together: bool = False) -> Call:
        return lambda s: s.apply(some, together=together)

    can = store.capabilities
    part, order = (Eq("type", "a") if can.filter else None), ((Order("type"),) if can.order else ())
    calls: dict[str, Call] = {
        "get": lambda s: s.get(SAMPLES, [key_of(n) for n in HELD]),
        "query": lambda s: s.query(Query(SAMPLES, within(HERE), part, order)),
        "count": lambda s: s.count(Query(SAMPLES, within(HERE), part)),
        "delete_matching": lambda s: s.delete_matching(Query(SAMPLES, within(ELSEWHERE)), 50),
        **{name: apply_call(some) for name, some in _writes(store).items()},
    }
    if can.atomic:
        calls["together"] = apply_call(
            [put(record(n, version=2, body={"n": "new"})) for n in range(20, 25)], together=True
        )
    if can.lexical:
        calls["search by words"] = lambda s: s.search(Search(SAMPLES, within(HERE), Words("lantern"), 5))
    if can.semantic:
        calls["search by meaning"] = lambda s: s.search(
            Search(SAMPLES, within(HERE), Near(pack_vector([1.0, 2.0])), 5)
        )
    return calls


@asynccontextmanager
async def _open_with_short_timeouts(harness: Harness, store: Store) -> AsyncIterator[Store]:
    """Return a store with short timeouts, connections and the data of `_calls`."""
    roles = {8: Role.CACHED}
    standing = [
        record(n, body={"n": "old"}, role=roles.get(n, Role.HOME), texts={"content": "lantern"}) for n in HELD
    ]
    await apply_all(store, *[put(r) for r in standing], *[put(record(n, ELSEWHERE)) for n in range(3)])
    hurried = await harness.with_short_timeouts(store)
    try:
        await _patiently(harness, lambda: hurried.open(DECLARED))
        await _patiently(
            harness, lambda: asyncio.gather(*(hurried.get(SAMPLES, [key_of(n)]) for n in range(8)))
        )
        yield hurried
    finally:
        await hurried.close()


async def _patiently(harness: Harness, call: Callable[[], Awaitable[object]]) -> None:
    """Repeat a call that failed on a slow machine or a dead connection."""
    deadline = asyncio.get_running_loop().time() + 2 * harness.patience.total_seconds()
    while True:
        try:
            await call()
            return
        except StoreUnavailable:
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(0.02)


@asynccontextmanager
async def _freeze(harness: Harness, store: Store) -> AsyncIterator[None]:
    await harness.freeze(store)
    try:
        yield
    finally:
        await harness.thaw(store)


@asynccontextmanager
async def _take_away(harness: Harness, store: Store) -> AsyncIterator[None]:
    await harness.take_away(store)
    try:
        yield
    finally:
        await harness.bring_back(store)


FAILURES = {"frozen": _freeze, "dead": _take_away}


async def _in_time(harness: Harness, what: str, call: Awaitable[object]) -> object:
    """Return the call's result or error; fail if it exceeds `patience`."""
    asked = asyncio.ensure_future(call)
    await asyncio.wait([asked], timeout=harness.patience.total_seconds())
    if not asked.done():
        asked.cancel()
        raise AssertionError(f"{what} did not end within {harness.patience}")
    return asked.exception() or asked.result()


async def _all_unavailable(
    harness: Harness, store: Store, calls: Mapping[str, Callable[[], Awaitable[object]]]
) -> None:
    answers = await asyncio.gather(*(_in_time(harness, name, call()) for name, call in calls.items()))
    for name, answer in zip(calls, answers, strict=True):
        assert isinstance(answer, StoreUnavailable), f"{name}: StoreUnavailable is due, not {answer!r}"
        assert answer.retryable
        assert answer.store == store.name
        assert store.name in str(answer)
        assert len(answer.problem) > 10, f"{name}: '{answer.problem}' does not say what is wrong"
        shown = f"{answer} {answer!r} {answer.__cause__} {answer.__cause__!r}"
        assert not [secret for secret in harness.secrets if secret in shown], (
            f"{name}: the error shows a secret"
        )


async def _unavailable(harness: Harness, store: Store) -> None:
    """Check that every method of an open store reports the failure.

    All run at once, on open connections as far as there are any. They run again on the
    remaining connections.
    """
    for turn in ("first", "second"):
        await _all_unavailable(
            harness,
            store,
            {f"{name}, {turn} time": lambda c=call: c(store) for name, call in _calls(store).items()},  # type: ignore[misc]
        )
        health = await _in_time(harness, f"check, {turn} time", store.check())
        assert getattr(health, "ok", None) is False, (
            f"check answers, and says that the store does not work: {health!r}"
        )
        assert not [secret for secret in harness.secrets if secret in repr(health)]


async def _works_again(harness: Harness, store: Store) -> None:
    """Check that the store works, without being rebuilt or reopened.

    A call is needed to detect each dead connection, so the first few may still fail.
    """

    async def works() -> None:
        await apply_all(store, put(record(90, version=3)))
        assert await fetch_record(store, 90)
        await asyncio.gather(*(store.get(SAMPLES, [key_of(n)]) for n in range(8)))
        assert (await store.check()).ok

    await _patiently(harness, works)


# -- calls under way -------------------------------------------------------------------


@clause("remote.in-time", "build.no-secrets")
@needs_server
@pytest.mark.asyncio
@pytest.mark.parametrize("failure", FAILURES)
async def test_every_call_to_a_server_that_does_not_answer_ends_in_time_and_the_store_works_on(
    harness: Harness, store: Store, failure: str
) -> None:
    async with _open_with_short_timeouts(harness, store) as hurried:
        epoch = hurried.epoch
        async with FAILURES[failure](harness, store):
            await _unavailable(harness, hurried)
        await _works_again(harness, hurried)
        await _works_again(harness, store)
        if failure == "frozen" or store.capabilities.durable:
            await _is_whole(store)
            assert hurried.epoch == epoch


async def _is_whole(store: Store) -> None:
    """Check a write that ended with an error: it happened as a whole or not at all."""
    numbers = (*range(1, 9), *range(10, 25))
    stands = dict(zip(numbers, await store.get(SAMPLES, [key_of(n) for n in numbers]), strict=True))
    old = {
        n: stored
        for n, stored in stands.items()
        if isinstance(stored, Record) and stored.version == 1 and dict(stored.body) == {"n": "old"}
    }
    new = {
        n: stored
        for n, stored in stands.items()
        if isinstance(stored, Record) and stored.version == 2 and dict(stored.body) == {"n": "new"}
    }
    left: dict[int, Callable[[Stored | None], bool]] = {
        5: lambda s: isinstance(s, Tombstone) and s.version == 2,
        6: lambda s: isinstance(s, Mark) and s.to == "mid",
        7: lambda s: isinstance(s, Record) and s.tier == "long",
        8: lambda s: s is None,
    }
    for n, stored in stands.items():
        whole = n in old or n in new or (n in left and left[n](stored)) or (n not in HELD and stored is None)
        assert whole, f"record {n} is neither as it was nor as it was to be: {stored}"
    if store.capabilities.atomic:
        for batch in (range(10, 20), range(20, 25)):
            assert len({stands[n] is None for n in batch}) == 1, (
                "a call that was cut off is kept whole or not at all"
            )
    elsewhere = await store.get(SAMPLES, [key_of(n, ELSEWHERE) for n in range(3)])
    assert all(isinstance(s, Record | Tombstone) for s in elsewhere)
    assert (await one(store, RaiseGeneration(ELSEWHERE, 0))).number in (0, 7)


@clause("remote.in-time")
@needs_server
@pytest.mark.asyncio
@pytest.mark.parametrize("failure", FAILURES)
async def test_a_store_is_closed_in_time_whatever_its_server_does(
    harness: Harness, store: Store, failure: str
) -> None:
    async with _open_with_short_timeouts(harness, store) as hurried:
        async with FAILURES[failure](harness, store):
            answer = await _in_time(harness, "close", hurried.close())
            assert answer is None or isinstance(answer, StoreUnavailable)
        await hurried.close()
        await _patiently(harness, lambda: hurried.open(DECLARED))
        await _works_again(harness, hurried)


@clause("remote.in-time")
@needs_server
@pytest.mark.asyncio
@pytest.mark.parametrize("failure", FAILURES)
async def test_a_store_that_could_not_be_opened_in_time_can_be_opened_later(
    harness: Harness, store: Store, failure: str
) -> None:
    late = await harness.with_short_timeouts(store)
    try:
        async with FAILURES[failure](harness, store):
            for turn in ("first", "second"):
                await _all_unavailable(harness, late, {f"open, {turn} time": lambda: late.open(DECLARED)})
        await _patiently(harness, lambda: late.open(DECLARED))
        await _works_again(harness, late)
    finally:
        await late.close()


# -- what was acknowledged -------------------------------------------------------------


async def _write_on(
    store: Store, worker: int, stop: asyncio.Event, acknowledged: dict[int, Record], swinging: asyncio.Event
) -> None:
    """Write one record after the other until told to stop or the server fails.

    It signals when many were written.
    """
    for n in range(1000 * worker, 1000 * worker + 1000):
        wrote = record(n, version=5, body={"n": n, "said": "x" * 200})
        try:
            await apply_all(store, put(wrote))
        except StoreUnavailable:
            swinging.set()
            return
        acknowledged[n] = wrote
        if len(acknowledged) > 30:
            swinging.set()
        if stop.is_set():
            return
        await asyncio.sleep(0)  # a store may answer without once letting others run


@clause("remote.kept")
@needs_server
@needs("durable")
@pytest.mark.asyncio
@pytest.mark.parametrize("failure", FAILURES)
async def test_what_was_acknowledged_while_the_server_failed_is_there_when_it_is_back(
    harness: Harness, store: Store, failure: str
) -> None:
    acknowledged: dict[int, Record] = {}
    async with _open_with_short_timeouts(harness, store) as hurried:
        stop, swinging = asyncio.Event(), asyncio.Event()
        writers = [
            asyncio.ensure_future(_write_on(hurried, worker, stop, acknowledged, swinging))
            for worker in range(1, 7)
        ]
        await swinging.wait()
        async with FAILURES[failure](harness, store):
            stop.set()
            assert await _in_time(harness, "the writes under way", asyncio.gather(*writers)) is not None
        await _works_again(harness, hurried)
        await _works_again(harness, store)
        assert acknowledged
        stands = await store.get(SAMPLES, [r.key for r in acknowledged.values()])
        for wrote, stored in zip(acknowledged.values(), stands, strict=True):
            assert isinstance(stored, Record)
            assert dict(stored.body) == dict(wrote.body)


@clause("epoch.tells")
@needs_server
@without("durable")
@pytest.mark.asyncio
async def test_a_store_that_may_lose_data_tells_of_a_restart_behind_its_back(
    harness: Harness, store: Store
) -> None:
    async with _open_with_short_timeouts(harness, store) as hurried:
        epoch = hurried.epoch
        async with _take_away(harness, store):
            pass
        await _works_again(harness, hurried)
        assert hurried.epoch not in ("", epoch)
        assert (await hurried.check()).epoch == hurried.epoch
