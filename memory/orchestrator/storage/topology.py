"""The assignment of stores to tiers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Protocol, runtime_checkable

from memory.domain.errors import ConfigError, StoreUnavailable
from memory.orchestrator.storage.document_homes import DocumentHomes
from memory.orchestrator.storage.split import SplitStore, close_all, open_all
from memory.policies.routing import TIERS
from memory.ports.capabilities import CACHE_NEEDS, HOME_NEEDS
from memory.ports.collections import Collection as CollectionDeclaration
from memory.ports.record import Partition
from memory.ports.store import Store


@runtime_checkable
class DeferredStore(Protocol):
    """A store that opens although its server is away, and says so."""

    on_arrival: Callable[[], Awaitable[None]] | None
    """Awaited when the store has been opened late, before it is used."""

    @property
    def away(self) -> str:
        """Why it has not been opened yet; empty once it has."""
        ...


class Topology:
    """The stores of the three tiers. One store may serve several.

    If the short store is not durable, it is a cache: the records of its tier have their
    home in the mid store and are copied to short for reading.

    Args:
        accept_loss: Names of stores that may be homes without being durable, because
            the loss of acknowledged writes is accepted. True means all stores (tests,
            temporary data).
        documents_in_short: See `DocumentHomes`.
    """

    def __init__(
        self,
        *,
        short: Store,
        mid: Store,
        long: Store,
        accept_loss: bool | Collection[str] = False,
        documents_in_short: Sequence[str] = (),
    ) -> None:
        self.serving = {"short": short, "mid": mid, "long": long}
        self.accept_loss = accept_loss
        self.documents = DocumentHomes(self, documents_in_short)

    @property
    def stores(self) -> tuple[Store, ...]:
        """Every distinct store, in the direction in which records move."""
        return tuple(dict.fromkeys(self.serving.values()))

    @property
    def leaves(self) -> tuple[Store, ...]:
        """Every distinct store, with the parts of a split store instead of itself."""
        return tuple(dict.fromkeys(leaf for store in self.stores for leaf in leaves_of(store)))

    async def open(
        self,
        collections: Sequence[CollectionDeclaration],
        on_arrival: Callable[[Store], Awaitable[None]] | None = None,
    ) -> None:
        """Open every store and settle its role. On failure, close the opened ones.

        Stores that may arrive late are settled by the capabilities that they claim, and
        again when they arrive; `on_arrival` is awaited then. At least one store must be
        reachable.
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
        """The stores that were never reachable since opening, by name, with reasons."""
        return {leaf.name: leaf.away for leaf in self.leaves if isinstance(leaf, DeferredStore) and leaf.away}

    async def close(self) -> None:
        await close_all(self.stores)

    def home(self, tier: str) -> Store:
        """Return the store that holds the homes of this tier's records."""
        return self._homes[tier]

    @property
    def homes(self) -> tuple[Store, ...]:
        """The distinct home stores, in the direction in which records move."""
        return self._distinct

    def later(self, store: Store) -> tuple[Store, ...]:
        """Return the home stores to which a record in this store may still move."""
        return self._distinct[self._place(store) + 1 :]

    def since(self, store: Store) -> tuple[Store, ...]:
        """Return the home stores in which a record that was born in this one can be."""
        return self._distinct[self._place(store) :]

    def _place(self, store: Store) -> int:
        if store not in self._distinct:
            raise not_a_home(store)
        return self._distinct.index(store)

    @property
    def cache(self) -> Store | None:
        """The volatile short store, if there is one."""
        return self._cache

    @property
    def archive(self) -> Store:
        """The durable mid store: kept versions, relations, operations and leases."""
        return self._homes["mid"]

    def tiers_of(self, store: Store) -> tuple[str, ...]:
        """Return the tiers that a store serves, as a whole or as a part."""
        return tuple(
            tier for tier in TIERS if self.serving[tier] is store or store in leaves_of(self.serving[tier])
        )

    def settle(self) -> None:
        """Settle the role of each open store.

        On failure nothing changes: a late store that is refused keeps its assumed role.

        Raises:
            ConfigError: Names everything that is missing, tier by tier and store by
                store.
        """
        short, mid = self.serving["short"], self.serving["mid"]
        cache = None if short is mid or self._keeps(short) else short
        problems = [problem for tier in TIERS for problem in self._problems(tier, cache)]
        problems += self._document_problems(cache)
        shared = [
            leaf.name for leaf in self.leaves if sum(leaf in leaves_of(store) for store in self.stores) > 1
        ]
        problems += [
            f"store '{name}' is part of one tier's stores and also serves another tier: split both tiers"
            " alike"
            for name in shared
        ]
        losing = {leaf.name for leaf in self.leaves if not leaf.capabilities.durable}
        if problems and any("durable" in problem for problem in problems):
            problems.append(
                f"make {', '.join(sorted(losing))} durable, as `memory doctor` and the log say, or accept"
                f" that a crash may lose acknowledged writes: accept_loss = {sorted(losing)}"
            )
        if problems:
            raise ConfigError("; ".join(problems))
        self._cache = cache
        self._homes = dict(self.serving) if cache is None else {**self.serving, "short": mid}
        self._distinct = tuple(dict.fromkeys(self._homes[tier] for tier in TIERS))

    def _problems(self, tier: str, cache: Store | None) -> list[str]:
        """Return everything that the stores of a tier lack, each store by name."""
        serving, problems = self.serving[tier], []
        for store in leaves_of(serving):
            missing = store.capabilities.missing(CACHE_NEEDS if serving is cache else HOME_NEEDS)
            if serving is not cache and not self._keeps(store):
                missing.append("durable")
            if missing:
                problems.append(f"tier '{tier}' on store '{store.name}' lacks {', '.join(missing)}")
        return problems

    def _document_problems(self, cache: Store | None) -> list[str]:
        """Return why the short store cannot have documents, if it is to have some."""
        short = self.serving["short"]
        if not self.documents.short or short is self.serving["mid"]:
            return []
        what = "documents.short: store '{}' of tier 'short' cannot be the home of documents, because it {}"
        if short is cache:
            names = [leaf.name for leaf in leaves_of(short) if not self._keeps(leaf)]
            why = "is not durable, so it only caches records of tier 'mid'"
            return [what.format(name, why) + ". Omit the setting" for name in names]
        why = "cannot store several changes of one scope together. Put tier 'short' on another store"
        return [what.format(leaf.name, why) for leaf in leaves_of(short) if not leaf.capabilities.groups]

    def _keeps(self, store: Store) -> bool:
        """Return whether a store may be the home of records.

        It may if it is durable, or if its loss is accepted by name.
        """
        accepted = self.accept_loss
        return all(
            leaf.capabilities.durable
            or accepted is True
            or (not isinstance(accepted, bool) and leaf.name in accepted)
            for leaf in leaves_of(store)
        )


def not_a_home(store: Store) -> StoreUnavailable:
    """Return the error of a caller that took a store for a home.

    The store opened late and turned out to be a cache.
    """
    return StoreUnavailable(
        store.name,
        "was opened just now and turned out to be a cache, which cannot be the home of records; try again",
    )


def refuse_away(store: Store, away: Collection[str]) -> None:
    """Raise if none of the store's parts answered lately.

    `away` holds the names of the stores that did not answer.

    Raises:
        StoreUnavailable: The store is not to be asked again now.
    """
    if away and all(leaf.name in away for leaf in leaves_of(store)):
        raise StoreUnavailable(store.name, "did not answer a moment ago")


def leaves_of(store: Store) -> tuple[Store, ...]:
    return store.parts if isinstance(store, SplitStore) else (store,)


def part_of(store: Store, partition: Partition, collection: CollectionDeclaration) -> Store:
    """Return the part of a store that holds this partition's records of the collection.

    The result is the store itself if it has no parts.
    """
    return store.holder(partition, collection) if isinstance(store, SplitStore) else store
