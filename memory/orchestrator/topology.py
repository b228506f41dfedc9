"""Which store serves which tier."""

from __future__ import annotations

from collections.abc import Sequence

from memory.domain.errors import ConfigError
from memory.policies.routing import TIERS
from memory.ports.capabilities import Capabilities
from memory.ports.collections import Collection
from memory.ports.store import Store

HOME_NEEDS = Capabilities(conditional=True, filter=True, order=True, tenant_wide=True)
"""What a store must do to be the home of records, durability aside."""
CACHE_NEEDS = Capabilities(conditional=True, tenant_wide=True)


class Topology:
    """The stores of the three tiers; one store may serve several.

    Where the short store is not durable it is a cache: its tier's records are homed in the mid store and kept in short for reading.
    `accept_loss` says that losing everything with the process is fine (tests, scratch work): then every store may be volatile.
    """

    def __init__(self, *, short: Store, mid: Store, long: Store, accept_loss: bool = False) -> None:
        self.serving = {"short": short, "mid": mid, "long": long}
        self.accept_loss = accept_loss

    @property
    def stores(self) -> tuple[Store, ...]:
        """Every distinct store, in the direction records move."""
        return tuple(dict.fromkeys(self.serving.values()))

    async def open(self, collections: Sequence[Collection]) -> None:
        """Open every store and settle what each is; on failure close what was opened."""
        opened: list[Store] = []
        try:
            for store in self.stores:
                await store.open(collections)
                opened.append(store)
            self._settle()
        except BaseException:
            for store in opened:
                await store.close()
            raise

    async def close(self) -> None:
        for store in self.stores:
            await store.close()

    def home(self, tier: str) -> Store:
        """The store that holds the homes of this tier's records."""
        return self._homes[tier]

    @property
    def homes(self) -> tuple[Store, ...]:
        """The distinct home stores, in the direction records move."""
        return self._distinct

    def later(self, store: Store) -> tuple[Store, ...]:
        """The home stores that a record here may yet move to."""
        return self._distinct[self._distinct.index(store) + 1 :]

    @property
    def cache(self) -> Store | None:
        """The volatile short store, where there is one."""
        return self._cache

    @property
    def archive(self) -> Store:
        """The durable middle: kept versions, relations, operations and leases live here."""
        return self._homes["mid"]

    def tiers_of(self, store: Store) -> tuple[str, ...]:
        return tuple(tier for tier in TIERS if self.serving[tier] is store)

    def _settle(self) -> None:
        short, mid = self.serving["short"], self.serving["mid"]
        volatile = not short.capabilities.durable and not self.accept_loss and short is not mid
        self._cache = short if volatile else None
        self._homes = {**self.serving, "short": mid} if volatile else dict(self.serving)
        self._distinct = tuple(dict.fromkeys(self._homes[tier] for tier in TIERS))
        problems = []
        for tier in TIERS:
            store = self.serving[tier]
            missing = store.capabilities.missing(CACHE_NEEDS if store is self._cache else HOME_NEEDS)
            if store is not self._cache and not store.capabilities.durable and not self.accept_loss:
                missing.append("durable")
            if missing:
                problems.append(f"tier '{tier}' on store '{store.name}' lacks {', '.join(missing)}")
        if problems:
            raise ConfigError("; ".join(problems))
