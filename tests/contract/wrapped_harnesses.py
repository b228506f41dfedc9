"""Stores with everything around them that a configuration can put there: the contract
holds for these as for bare ones.
"""

from __future__ import annotations

from datetime import timedelta

from memory.adapters.wrappers.base import Wrapper
from memory.facade.config.settings import BreakerSettings, Guards, RetrySettings
from memory.facade.runtime.build import with_guards
from memory.ports.collections import Collection
from memory.ports.contract.harness import Harness
from memory.ports.record import Key
from memory.ports.store import Store
from tests.contract.harnesses import InMemoryServer
from tests.contract.redis_harnesses import Redis

GUARDS = Guards(
    timeout=timedelta(seconds=30),
    retry=RetrySettings(attempts=2),
    breaker=BreakerSettings(cool_down=timedelta(milliseconds=1)),
)
"""The breaker opens as it would anywhere, and tries again so soon that what follows a
thaw or a return finds it closed.
"""
HURRIED = Guards(timeout=timedelta(seconds=1), retry=GUARDS.retry, breaker=GUARDS.breaker)


def around(store: Store, guards: Guards = GUARDS) -> Store:
    return with_guards(store, guards, telemetry=True, tiers=["mid"])


def within(store: Store) -> Store:
    """The store that the others stand around."""
    while isinstance(store, Wrapper):
        store = store.inner
    return store


class Wrapped(Harness):
    """Mixed in before another harness: its stores are wrapped, its hooks are given the
    bare ones.
    """

    async def make(self) -> Store:
        return around(await super().make())

    async def client(self, store: Store) -> Store:
        return around(within(await super().client(within(store))))

    async def restart(self, store: Store) -> Store:
        return around(within(await super().restart(within(store))))

    async def damage(self, store: Store, collection: Collection, key: Key) -> None:
        await super().damage(within(store), collection, key)

    async def with_short_timeouts(self, store: Store) -> Store:
        return around(await super().with_short_timeouts(within(store)), HURRIED)

    async def freeze(self, store: Store) -> None:
        await super().freeze(within(store))

    async def thaw(self, store: Store) -> None:
        await super().thaw(within(store))

    async def take_away(self, store: Store) -> None:
        await super().take_away(within(store))

    async def bring_back(self, store: Store) -> None:
        await super().bring_back(within(store))


class WrappedInMemory(Wrapped, InMemoryServer):  # type: ignore[misc]  # the narrower return of `make` is what is wrapped
    """Every claim there is, wrapped."""

    name = "wrapped_in_memory"
    primary = "in_memory"


class WrappedRedis(Wrapped, Redis):
    """A store whose server freezes and dies, wrapped."""

    name = "wrapped_redis"
    primary = "redis"

    async def tiny(self) -> Store:
        return around(await super().tiny())
