"""The circuit breaker: closed, open, half open."""

from __future__ import annotations

import asyncio

import pytest

from memory.adapters.wrappers import breaker
from memory.adapters.wrappers.breaker import CircuitBreaker
from memory.domain.errors import InvalidInput, StoreFull, StoreUnavailable
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.support import key_of
from memory.ports.query import Order, Query, within
from memory.ports.store import Store
from tests.unit.adapters.wrappers.faulty import FaultyStore, gone, opened


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What time it is: the first element."""
    now = [1000.0]
    monkeypatch.setattr(breaker, "_now", lambda: now[0])
    return now


async def fails(store: Store, match: str = "connection is gone") -> None:
    with pytest.raises(StoreUnavailable, match=match):
        await store.get(SAMPLES, [key_of(1)])


async def answers(store: Store) -> None:
    assert await store.get(SAMPLES, [key_of(1)]) == [None]


async def test_after_so_many_failures_in_a_row_calls_are_refused_without_asking(clock: list[float]) -> None:
    inner = await opened(*[gone() for _ in range(3)])
    store = CircuitBreaker(inner, failures=3, cool_down=10)
    for _ in range(3):
        await fails(store)
    assert store.state == "open"
    await fails(
        store, match=r"was unavailable 3 times in a row, so calls to it are paused; try again in 10\.0 s"
    )
    assert inner.calls == 3


async def test_an_answer_in_between_begins_the_count_anew(clock: list[float]) -> None:
    store = CircuitBreaker(await opened(gone(), gone(), None, gone(), gone()), failures=3)
    for call in (fails, fails, answers, fails, fails, answers):
        await call(store)
    assert store.state == "closed"


async def test_after_the_wait_one_call_tries_and_its_answer_lets_all_through(clock: list[float]) -> None:
    store = CircuitBreaker(await opened(gone()), failures=1, cool_down=10)
    await fails(store)
    clock[0] += 10
    assert store.state == "half-open"
    await answers(store)
    assert store.state == "closed"


async def test_a_try_that_fails_begins_the_wait_anew(clock: list[float]) -> None:
    store = CircuitBreaker(await opened(gone(), gone()), failures=1, cool_down=10)
    await fails(store)
    clock[0] += 10
    await fails(store)
    assert store.state == "open"
    clock[0] += 9
    await fails(store, match="calls to it are paused")
    clock[0] += 1
    await answers(store)


async def test_only_one_call_tries_at_a_time_and_one_given_up_lets_the_next_try(clock: list[float]) -> None:
    store = CircuitBreaker(await opened(gone(), FaultyStore.HANG), failures=1, cool_down=10)
    await fails(store)
    clock[0] += 10
    trying = asyncio.ensure_future(store.get(SAMPLES, [key_of(1)]))
    await asyncio.sleep(0)
    await fails(store, match="one call is testing it now")
    trying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await trying
    await answers(store)


@pytest.mark.parametrize(("waited", "state"), [(breaker.LATE, "open"), (0.1, "closed")])
async def test_calls_given_up_late_are_failures_and_those_given_up_early_say_nothing(
    clock: list[float], waited: float, state: str
) -> None:
    """Readers have deadlines of their own: a frozen store is to be left alone also
    where its own limit of time is longer.
    """
    store = CircuitBreaker(await opened(*[FaultyStore.HANG] * 2), failures=2)
    for _ in range(2):
        waiting = asyncio.ensure_future(store.get(SAMPLES, [key_of(1)]))
        await asyncio.sleep(0)
        clock[0] += waited
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert store.state == state


async def test_a_full_store_is_there_and_bad_input_says_nothing_of_it(clock: list[float]) -> None:
    inner = await opened(StoreFull("faulty", "no room"), gone())
    store = CircuitBreaker(inner, failures=1, cool_down=10)
    with pytest.raises(StoreFull):
        await store.get(SAMPLES, [key_of(1)])
    assert store.state == "closed"
    await fails(store)
    clock[0] += 10
    with pytest.raises(InvalidInput):
        await store.query(Query(SAMPLES, within(), order=(Order("tags"),)))
    assert store.state == "half-open"


async def test_check_is_always_asked_and_a_healthy_store_is_used_again(clock: list[float]) -> None:
    store = CircuitBreaker(await opened(gone()), failures=1, cool_down=10)
    await fails(store)
    assert (await store.check()).ok
    await answers(store)
