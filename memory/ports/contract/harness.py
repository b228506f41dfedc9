"""Harnesses: the base class through which the contract makes and controls a store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Self

from memory.domain.errors import Unsupported
from memory.ports.adapter import Adapter
from memory.ports.capabilities import Capabilities
from memory.ports.collections import Collection
from memory.ports.contract.depth import FULL, Depth
from memory.ports.record import JsonValue, Key
from memory.ports.store import Store
from memory.ports.writes import Put

STEMMING: Mapping[str, tuple[tuple[str, ...], ...]] = MappingProxyType(
    {
        "same": (
            ("deploy", "deploys", "deployed", "deploying"),
            ("deployment", "deployments"),
            ("connect", "connection"),
            ("prefer", "preference"),
        ),
        "different": (("deploy", "deployment"), ("fly", "flies")),
    }
)
"""Words that share a stem and words that do not, as in `memory.ports.text`."""


class Harness:
    """Makes stores of one adapter.

    Each test gets a new harness with an empty folder of its own.

    Set `name` and `claims`, and implement `make` and `restart`. Implement `client` if
    `shared` is claimed, `damage` if `durable` is, and `cut_short` if `fenced` is not.
    For a store reached over a network, set `remote` and implement the five hooks under
    it.
    """

    name: ClassVar[str]
    """The name in the test ids; unique among the harnesses of a run."""
    claims: ClassVar[Capabilities]
    """The expected capabilities of the opened store.

    It is a literal, so that losing a capability fails.
    """
    recall: ClassVar[float] = 1.0
    """The share of the exact ten nearest that a search by meaning must find.

    It is 1 for an exact scan, and at least 0.9 for an approximate index.
    """
    exact_scores: ClassVar[bool] = False
    """Whether scores by words equal those of the store in memory, apart from rounding.

    These are BM25F as in `memory.ports.text`. No store must have them.
    """
    ttl_patience: ClassVar[timedelta] = timedelta(seconds=5)
    """How late a store that claims `ttl` may delete expired data."""
    remote: ClassVar[bool] = False
    """Whether the store uses a server over a network.

    Such a server may freeze or disappear while the store lives.
    """
    patience: ClassVar[timedelta] = timedelta(seconds=5)
    """The time in which calls must end on a frozen or dead server, if `remote`.

    It applies to every call of a store `with_short_timeouts`.
    """
    secrets: ClassVar[tuple[str, ...]] = ()
    """Passwords and keys of the store, which no error may show."""
    urls: ClassVar[tuple[str, ...]] = ()
    """URLs that the adapter accepts; their servers and folders need not exist.

    With these the contract tests the building of stores.
    """
    adapter: ClassVar[Adapter | None] = None
    """The adapter that builds the store.

    Set it if the installed adapters have none for the scheme of `urls`.
    """
    many: ClassVar[int] = 10_050
    """The most records of the volume tests.

    Lower it for a store that is no engine and would take long.
    """
    primary: ClassVar[str] = ""
    """The harness that runs in full, if this one differs from it only in a part.

    Both are the same adapter. Tests that both run use fewer seeds, examples and records
    here. This harness runs in full those that the primary does not run. The same holds
    if the primary is not in the run.
    """
    depth: Depth = FULL
    """The number of seeds and examples for the test that this harness was made for."""
    revives: ClassVar[bool] = True
    """Whether a write of a lower version over a tombstone removes all of the tombstone.

    A tier on several stores leaves a tombstone in each store. The others show again
    when the written copy is deleted. If False, long histories make no such writes.
    Versions are times, so the engine makes none either.
    """
    stemming: ClassVar[Mapping[str, tuple[tuple[str, ...], ...]]] = STEMMING
    """The adapter's own word table, if its engine documents another analysis."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def make(self) -> Store:
        """Make a fresh, empty, unopened store.

        Raise if the server does not answer: the test is then an error.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement make()")

    async def client(self, store: Store) -> Store:
        """Return another unopened store on the same data, as another process has it.

        Needed if `shared` is claimed.
        """
        raise Unsupported("shared", store=store.name)

    @classmethod
    def can_be_tiny(cls) -> bool:
        return cls.tiny is not Harness.tiny

    async def tiny(self) -> Store:
        """Like `make`, with every threshold of the adapter tiny.

        Thresholds are portions, pages, caches and buffers. Rare events then become
        frequent.
        """
        return await self.make()

    @classmethod
    def can_damage_derived(cls) -> bool:
        return cls.damage_derived is not Harness.damage_derived

    async def damage_derived(self, store: Store) -> None:
        """Damage the store's derived data, and no entry.

        Derived data are words, counts, or a cache that outlives the store. The store is
        closed meanwhile. Only for stores that derive data.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement damage_derived()")

    def another(self, folder: Path) -> Self:
        """Return a harness like this for another store, in an empty folder."""
        made = type(self)(folder)
        made.depth = self.depth
        return made

    @classmethod
    def can_be_cleared(cls) -> bool:
        return cls.clear is not Harness.clear

    async def clear(self, store: Store, collections: Sequence[Collection]) -> Store:
        """Empty an open store and open it with these collections, or return another.

        The previous test only wrote to it and read it. The event loop is the current
        one, and may differ from the previous one. Implement it if making a store takes
        long: tests then reuse stores.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement clear()")

    @classmethod
    def has_files(cls) -> bool:
        return cls.files is not Harness.files

    def files(self, store: Store) -> Sequence[Path]:
        """Return the files and folders with the store's data, readable by the test."""
        raise NotImplementedError(f"{type(self).__name__} must implement files()")

    @classmethod
    def has_address(cls) -> bool:
        return cls.address is not Harness.address

    def address(self, store: Store) -> tuple[str, Mapping[str, JsonValue]]:
        """Return the URL and options with which another process opens the same data.

        The other process uses the installed adapter for the URL's scheme.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement address()")

    async def outlast_loss_window(self, store: Store) -> None:
        """Wait until the server's death can lose none of the writes so far.

        Override it if `restart` is a death that never loses data.
        """
        await asyncio.sleep((store.capabilities.loss_window or timedelta()).total_seconds())

    async def reopen(self, store: Store) -> Store:
        """Close the store in good order and return an unopened one on the same data."""
        await store.close()
        return store

    async def restart(self, store: Store) -> Store:
        """Kill the store's process and server, start them again, and reopen.

        Returns:
            An unopened store on the remaining data.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement restart()")

    async def damage(self, store: Store, collection: Collection, key: Key) -> None:
        """Damage the stored record of this key, as a flipped bit on the disk would.

        The content no longer matches its checksum. The key and scope stay. The store is
        closed meanwhile. Needed if `durable` is claimed.
        """
        raise NotImplementedError(f"{type(self).__name__} claims `durable`, so it must implement damage()")

    async def cut_short(self, store: Store, write: Put, meanwhile: Callable[[], Awaitable[None]]) -> None:
        """Interrupt another client between its decision on the write and its check.

        The client decides on the write, and then `meanwhile` runs. Its decision reaches
        the data as far as your protocol allows. The client then dies before it checks
        again. Needed if `fenced` is not claimed.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not claim `fenced`, so it must implement cut_short()"
        )

    # -- if `remote` -------------------------------------------------------------------

    async def with_short_timeouts(self, store: Store) -> Store:
        """Return another unopened store on the same data with the shortest timeouts.

        They are best well under a second.
        """
        raise NotImplementedError(
            f"{type(self).__name__} is remote, so it must implement with_short_timeouts()"
        )

    async def freeze(self, store: Store) -> None:
        """Freeze the server until `thaw`.

        It keeps its connections and answers no client, as after SIGSTOP or `docker
        pause`.
        """
        raise NotImplementedError(f"{type(self).__name__} is remote, so it must implement freeze()")

    async def thaw(self, store: Store) -> None:
        """Let the frozen server continue."""
        raise NotImplementedError(f"{type(self).__name__} is remote, so it must implement thaw()")

    async def take_away(self, store: Store) -> None:
        """Kill the server and close its port, until `bring_back`."""
        raise NotImplementedError(f"{type(self).__name__} is remote, so it must implement take_away()")

    async def bring_back(self, store: Store) -> None:
        """Start the server at its address, with the data it kept.

        Return when it answers.
        """
        raise NotImplementedError(f"{type(self).__name__} is remote, so it must implement bring_back()")

    # -- if the disk or the memory can be made full ------------------------------------

    @classmethod
    def can_be_cramped(cls) -> bool:
        return cls.make_with_limited_space is not Harness.make_with_limited_space

    async def make_with_limited_space(self) -> Store:
        """Like `make`, with space for some megabytes until `make_room`.

        Use a small disk, or limit the server's memory.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement make_with_limited_space()")

    async def make_room(self, store: Store) -> None:
        """Give the store of `make_with_limited_space` space again."""
        raise NotImplementedError(
            f"{type(self).__name__} implements make_with_limited_space(), so it must implement make_room()"
        )

    # -- the end -----------------------------------------------------------------------

    async def dispose(self, store: Store) -> None:
        """Clean up after a test: close everything and remove the data."""
        await store.close()
