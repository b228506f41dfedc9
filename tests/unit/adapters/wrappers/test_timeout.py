"""A call that takes too long is given up, and says so."""

from __future__ import annotations

import pytest

from memory.adapters.wrappers.timeout import Timeout
from memory.domain.errors import StoreTimeout, StoreUnavailable
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import apply_all, fetch_record, key_of, put, record
from tests.unit.adapters.wrappers.faulty import FaultyStore, gone, opened

HANG = FaultyStore.HANG


async def test_a_call_that_does_not_end_is_given_up_and_names_store_method_and_limit() -> None:
    store = Timeout(await opened(HANG), 0.02)
    with pytest.raises(
        StoreTimeout, match=r"store 'faulty': get did not end within the 0\.02 s that 'timeout' allows"
    ):
        await store.get(SAMPLES, [key_of(1)])


async def test_what_ends_in_time_is_answered() -> None:
    store = Timeout(await opened(), 5)
    await apply_all(store, put(record(1)))
    assert (await fetch_record(store)).key == key_of(1)


async def test_a_timeout_of_the_store_itself_stays_what_it_is() -> None:
    store = Timeout(await opened(gone(), TimeoutError("of another kind")), 5)
    with pytest.raises(StoreUnavailable, match="connection is gone"):
        await store.get(SAMPLES, [key_of(1)])
    with pytest.raises(TimeoutError, match="of another kind"):
        await store.get(SAMPLES, [key_of(1)])


async def test_check_says_that_the_store_is_late() -> None:
    health = await Timeout(await opened(HANG), 0.02).check()
    assert not health.ok
    assert "check did not end within" in health.detail


async def test_opening_and_closing_are_not_limited() -> None:
    store = Timeout(FaultyStore(), 1e-9)
    await store.open(DECLARED)
    with pytest.raises(StoreTimeout):
        await Timeout(await opened(HANG), 1e-9).get(SAMPLES, [key_of(1)])
    await store.close()
