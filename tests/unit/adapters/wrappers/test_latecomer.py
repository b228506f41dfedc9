"""A store that is away when the others open: it is opened by the first call that finds
it there, and checked before it is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from memory.adapters.in_memory.store import InMemoryStore
from memory.adapters.wrappers import latecomer
from memory.adapters.wrappers.latecomer import DeferredOpen
from memory.domain.errors import ConfigError, NotOpen, StoreError, StoreUnavailable
from memory.ports.capabilities import Capabilities
from memory.ports.collections import Collection
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.record import Key

KEY = Key("acme", "01890000-0000-8000-8000-000000000000")


class Away(InMemoryStore):
    """A store that cannot be opened while `reason` is set, and finds `found` once it
    is.
    """

    def __init__(self, reason: Exception | None, found: Capabilities | None = None) -> None:
        super().__init__("away")
        self.reason, self.found, self.attempts = reason, found, 0

    async def _open(self, collections: Sequence[Collection]) -> None:
        self.attempts += 1
        await asyncio.sleep(0)
        if self.reason is not None:
            raise self.reason
        self._capabilities = self.found or self._capabilities


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latecomer, "AGAIN_AFTER", 0.0)


async def test_it_opens_though_the_store_is_away_and_says_why() -> None:
    inner = Away(StoreUnavailable("away", "nobody listens"))
    store = DeferredOpen(inner)
    await store.open(DECLARED)
    assert "nobody listens" in store.away
    with pytest.raises(StoreUnavailable, match="could not be opened"):
        await store.get(SAMPLES, [KEY])
    assert (await store.check()).ok is False
    assert "nobody listens" in (await store.check()).detail
    await store.close()
    with pytest.raises(NotOpen):
        await store.get(SAMPLES, [KEY])


async def test_the_first_call_that_finds_it_there_opens_it_once_for_all_that_wait() -> None:
    inner = Away(StoreUnavailable("away", "nobody listens"))
    store = DeferredOpen(inner)
    arrived: list[str] = []

    async def on_arrival() -> None:
        arrived.append(str(await store.get(SAMPLES, [KEY])))  # who is to check the store may use it

    store.on_arrival = on_arrival
    await store.open(DECLARED)
    inner.reason = None
    answers = await asyncio.gather(*(store.get(SAMPLES, [KEY]) for _ in range(5)))
    assert answers == [[None]] * 5
    assert inner.attempts == 2
    assert arrived == ["[None]"]
    assert store.away == ""


async def test_what_is_wrong_with_it_when_it_arrives_keeps_it_out() -> None:
    inner = Away(StoreUnavailable("away", "nobody listens"))
    store = DeferredOpen(inner)

    async def refuse() -> None:
        raise ConfigError("vectors of another embedder")

    store.on_arrival = refuse
    await store.open(DECLARED)
    inner.reason = None
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="vectors of another embedder"):
            await store.get(SAMPLES, [KEY])
    assert "vectors of another embedder" in store.away


async def test_calls_made_on_a_claim_that_proves_wrong_are_to_be_made_again() -> None:
    inner = Away(
        StoreUnavailable("away", "nobody listens"), found=replace(InMemoryStore.claims, durable=True)
    )
    store = DeferredOpen(inner)
    await store.open(DECLARED)
    inner.reason = None
    with pytest.raises(StoreUnavailable, match="try again"):
        await store.get(SAMPLES, [KEY])
    assert await store.get(SAMPLES, [KEY]) == [None]


async def test_between_attempts_calls_fail_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latecomer, "AGAIN_AFTER", 60.0)
    inner = Away(StoreUnavailable("away", "nobody listens"))
    store = DeferredOpen(inner)
    await store.open(DECLARED)
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="next attempt is possible in"):
            await store.get(SAMPLES, [KEY])
    assert inner.attempts == 1


@pytest.mark.parametrize("reason", [ConfigError("wrong"), StoreError("away", "wrong")])
async def test_only_a_store_that_is_away_opens_late(reason: Exception) -> None:
    store = DeferredOpen(Away(reason))
    with pytest.raises(type(reason), match="wrong"):
        await store.open(DECLARED)


async def test_every_call_that_waited_on_a_claim_that_proves_wrong_is_to_be_made_again() -> None:
    inner = Away(
        StoreUnavailable("away", "nobody listens"), found=replace(InMemoryStore.claims, durable=True)
    )
    store = DeferredOpen(inner)
    await store.open(DECLARED)
    inner.reason = None
    answers = await asyncio.gather(*(store.get(SAMPLES, [KEY]) for _ in range(3)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 3
    assert await store.get(SAMPLES, [KEY]) == [None]


def test_it_serves_one_event_loop_after_another_also_where_calls_waited_for_each_other() -> None:
    store = DeferredOpen(Away(StoreUnavailable("away", "nobody listens")))

    async def use() -> list[object]:
        await store.open(DECLARED)
        answers = await asyncio.gather(*(store.get(SAMPLES, [KEY]) for _ in range(3)), return_exceptions=True)
        await store.close()
        return [type(answer) for answer in answers]

    for _ in range(2):
        assert asyncio.run(use()) == [StoreUnavailable] * 3
