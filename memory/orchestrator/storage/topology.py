"""Which store serves which tier."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Protocol, runtime_checkable

from memory.domain.errors import ConfigError, StoreUnavailable
from memory.orchestrator.storage.split import SplitStore, close_all, open_all
from memory.policies.routing import TIERS
from memory.ports.capabilities import CACHE_NEEDS, HOME_NEEDS
from memory.ports.collections import Collection as CollectionDeclaration
from memory.ports.record import Partition
from memory.ports.store import Store


@runtime_checkable
class DeferredStore(Protocol):
    """A store that opens though it is away, and says so."""

    on_arrival: Callable[[], Awaitable[None]] | None
    """Awaited when the store has been opened late, before it is used."""

    @property
    def away(self) -> str:
        """Why it has not been opened yet; empty when it has."""
        ...


class Topology:
    """The stores of the three tiers; one store may serve several.

    Where the short store is not durable it is a cache: its tier's records are homed in
    the mid store and kept in short for reading. `accept_loss` names the stores whose
    loss of what they acknowledged is accepted, True means all of them (tests, scratch
    work): these may be homes without being durable.
    """

    def __init__(
        self, *, short: Store, mid: Store, long: Store, accept_loss: bool | Collection[str] = False
    ) -> None:
        self.serving = {"short": short, "mid": mid, "long": long}
        self.accept_loss = accept_loss

    @property
    def stores(self) -> tuple[Store, ...]:
        """Every distinct store, in the direction records move."""
        return tuple(dict.fromkeys(self.serving.values()))

    @property
    def leaves(self) -> tuple[Store, ...]:
        """Every distinct store, the parts of a split one instead of the whole."""
        return tuple(dict.fromkeys(leaf for store in self.stores for leaf in leaves_of(store)))

    async def open(
        self,
        collections: Sequence[CollectionDeclaration],
        on_arrival: Callable[[Store], Awaitable[None]] | None = None,
    ) -> None:
        """Open every store and settle what each is; on failure close what was opened.

        Stores that may arrive late are settled as claimed, and again when they arrive;
        `on_arrival` is awaited then. At least one must be there.
        """
        late = [leaf for leaf in self.leaves if isinstance(leaf, DeferredStore)]
        for leaf in late:
            leaf.on_arrival = partial(self._on_arrival, leaf, on_arrival)
        await open_all(self.stores, collections)
        try:
            if late and all(isinstance(leaf, DeferredStore) and leaf.away for leaf in self.leaves):
                raise StoreUnavailable(
                    self.leaves[0].name, late[0].away.removeprefix(f"store '{self.leaves[0].name}': ")
                )
            self.settle()
        except BaseException:
            await self.close()
            raise

    async def _on_arrival(self, leaf: Store, on_arrival: Callable[[Store], Awaitable[None]] | None) -> None:
        self.settle()
        if on_arrival is not None:
            await on_arrival(leaf)

    @property
    def away(self) -> dict[str, str]:
        """The stores that have not been there since this was opened, and why, by name."""
        return {leaf.name: leaf.away for leaf in self.leaves if isinstance(leaf, DeferredStore) and leaf.away}

    async def close(self) -> None:
        await close_all(self.stores)

    def home(self, tier: str) -> Store:
        """The store that holds the homes of this tier's records."""
        return self._homes[tier]

    @property
    def homes(self) -> tuple[Store, ...]:
        """The distinct home stores, in the direction records move."""
        return self._distinct

    def later(self, store: Store) -> tuple[Store, ...]:
        """The home stores that a record here may yet move to."""
        return self._distinct[self._place(store) + 1 :]

    def since(self, store: Store) -> tuple[Store, ...]:
        """The home stores in which a record born in this one can ever be."""
        return self._distinct[self._place(store) :]

    def _place(self, store: Store) -> int:
        if store not in self._distinct:
            raise not_a_home(store)
        return self._distinct.index(store)

    @property
    def cache(self) -> Store | None:
        """The volatile short store, where there is one."""
        return self._cache

    @property
    def archive(self) -> Store:
        """The durable middle: kept versions, relations, operations and leases live
        here.
        """
        return self._homes["mid"]

    def tiers_of(self, store: Store) -> tuple[str, ...]:
        """The tiers that a store serves, as a whole or as a part."""
        return tuple(
            tier for tier in TIERS if self.serving[tier] is store or store in leaves_of(self.serving[tier])
        )

    def settle(self) -> None:
        """Say what each open store is; raise one `ConfigError` that names everything
        that is missing, tier by tier and store by store.

        What does not fit changes nothing: a store that comes late and is kept out is
        what it was taken for.
        """
        short, mid = self.serving["short"], self.serving["mid"]
        cache = None if short is mid or self._keeps(short) else short
        problems = [problem for tier in TIERS for problem in self._problems(tier, cache)]
        shared = [
            leaf.name for leaf in self.leaves if sum(leaf in leaves_of(store) for store in self.stores) > 1
        ]
        problems += [
            f"store '{name}' is part of one tier's stores and also serves another tier: split both tiers alike"
            for name in shared
        ]
        losing = {leaf.name for leaf in self.leaves if not leaf.capabilities.durable}
        if problems and any("durable" in problem for problem in problems):
            problems.append(
                f"make {', '.join(sorted(losing))} durable, as `memory doctor` and the log say, or accept that a crash may lose "
                f"acknowledged writes: accept_loss = {sorted(losing)}"
            )
        if problems:
            raise ConfigError("; ".join(problems))
        self._cache = cache
        self._homes = dict(self.serving) if cache is None else {**self.serving, "short": mid}
        self._distinct = tuple(dict.fromkeys(self._homes[tier] for tier in TIERS))

    def _problems(self, tier: str, cache: Store | None) -> list[str]:
        """What the stores of a tier lack, all of it, each store by name."""
        serving, problems = self.serving[tier], []
        for store in leaves_of(serving):
            missing = store.capabilities.missing(CACHE_NEEDS if serving is cache else HOME_NEEDS)
            if serving is not cache and not self._keeps(store):
                missing.append("durable")
            if missing:
                problems.append(f"tier '{tier}' on store '{store.name}' lacks {', '.join(missing)}")
        return problems

    def _keeps(self, store: Store) -> bool:
        """Whether a store may be the home of records: what it loses is nothing, or
        accepted by name.
        """
        accepted = self.accept_loss
        return all(
            leaf.capabilities.durable
            or accepted is True
            or (not isinstance(accepted, bool) and leaf.name in accepted)
            for leaf in leaves_of(store)
        )


def not_a_home(store: Store) -> StoreUnavailable:
    """The error for who took for a home what was opened late and is a cache."""
    return StoreUnavailable(
        store.name,
        "was opened just now and turned out to be a cache, which cannot be the home of records; try again",
    )


def refuse_away(store: Store, away: Collection[str]) -> None:
    """Raises where a store is not to be asked again, as none of its parts answered
    lately: `away` holds the names of those that did not.
    """
    if away and all(leaf.name in away for leaf in leaves_of(store)):
        raise StoreUnavailable(store.name, "did not answer a moment ago")


def leaves_of(store: Store) -> tuple[Store, ...]:
    return store.parts if isinstance(store, SplitStore) else (store,)


def part_of(store: Store, partition: Partition, collection: CollectionDeclaration) -> Store:
    """The part of a store, or the store itself, that holds this partition's records of
    the collection.
    """
    return store.holder(partition, collection) if isinstance(store, SplitStore) else store
