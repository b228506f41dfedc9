"""How the contract gets hold of a store: one harness an adapter."""

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
"""Which words are one and which are not, as `memory.ports.text` has it (D57)."""


class Harness:
    """Makes stores of one adapter. A new harness is made for each test, with an empty
    folder of its own.

    Set `name` and `claims`, implement `make` and `restart`, and override what else the
    claims ask for: `client` where `shared` is claimed, `damage` where `durable` is,
    `cut_short` where `fenced` is not; and for a store reached over a network set
    `remote` and implement the five hooks under it.
    """

    name: ClassVar[str]
    """Stands in the test ids; no two harnesses of a run may share it."""
    claims: ClassVar[Capabilities]
    """What the opened store is expected to say of itself: a literal, so that losing a
    capability fails.
    """
    recall: ClassVar[float] = 1.0
    """The share of the exact ten nearest that a search by meaning must find: 1 for an
    exact scan, at least 0.9 for an approximate index.
    """
    exact_scores: ClassVar[bool] = False
    """Whether scores by words are those of the store in memory (BM25F as in
    `memory.ports.text`), rounding aside. No store must have that.
    """
    ttl_patience: ClassVar[timedelta] = timedelta(seconds=5)
    """Where `ttl` is claimed: how long the store may take to forget what is past its
    time.
    """
    remote: ClassVar[bool] = False
    """Whether the store talks to a server over a network, which may freeze or be gone
    while the store lives.
    """
    patience: ClassVar[timedelta] = timedelta(seconds=5)
    """Where `remote`: by when every call of a store `with_short_timeouts` must have ended on a
    server that is frozen or gone.
    """
    secrets: ClassVar[tuple[str, ...]] = ()
    """Passwords and keys that the store is given: no error may show one."""
    urls: ClassVar[tuple[str, ...]] = ()
    """URLs that the adapter takes, of servers and folders that need not be there: by
    these the contract judges what builds a store.
    """
    adapter: ClassVar[Adapter | None] = None
    """What builds the store, where it is not found by the scheme of `urls` among the
    installed ones.
    """
    many: ClassVar[int] = 10_050
    """How many records the volumes are, at most: for a store that is no engine and
    takes long over them.
    """
    primary: ClassVar[str] = ""
    """The harness of the same adapter that draws in full, where this one differs from
    it only in a part: what both are asked, this one is asked with fewer seeds, examples
    and records. What the primary is not asked, or where it is not in the run, this one
    draws in full.
    """
    depth: Depth = FULL
    """How much the test that this harness was made for draws."""
    revives: ClassVar[bool] = True
    """Whether nothing is left of a tombstone over which something of a lower version
    came. A tier on several stores leaves one in each, and the others show again when
    that copy is deleted: long histories do without such writes there (versions are
    moments, so the engine makes none).
    """
    stemming: ClassVar[Mapping[str, tuple[tuple[str, ...], ...]]] = STEMMING
    """The adapter's own table, where its engine cuts words differently and documents
    it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def make(self) -> Store:
        """A fresh, empty, unopened store. Raise when the server does not answer: the
        test is then an error.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement make()")

    async def client(self, store: Store) -> Store:
        """Another unopened store on the same data, as another process would have it.
        Needed where `shared` is claimed.
        """
        raise Unsupported("shared", store=store.name)

    @classmethod
    def can_be_tiny(cls) -> bool:
        return cls.tiny is not Harness.tiny

    async def tiny(self) -> Store:
        """As `make`, with every threshold of the adapter made tiny (portions, pages,
        caches, what waits): what is rare is common then.
        """
        return await self.make()

    @classmethod
    def can_damage_derived(cls) -> bool:
        return cls.damage_derived is not Harness.damage_derived

    async def damage_derived(self, store: Store) -> None:
        """Damage what the store derives from its entries (words, counts, a cache that
        outlives it), and no entry. The store is closed meanwhile. Only for stores that
        derive something.
        """
        raise NotImplementedError(f"{type(self).__name__} derives nothing that could be damaged")

    def another(self, folder: Path) -> Self:
        """One as this, for a store of its own in an empty folder of its own."""
        made = type(self)(folder)
        made.depth = self.depth
        return made

    @classmethod
    def can_be_cleared(cls) -> bool:
        return cls.clear is not Harness.clear

    async def clear(self, store: Store, collections: Sequence[Collection]) -> Store:
        """In the place of an open store that a test did nothing to but write and ask,
        one with nothing left in it, open with these collections: in this event loop,
        which may be another. Implement it where making a store takes long: tests lend
        it each other.
        """
        raise NotImplementedError(f"{type(self).__name__} makes each store anew")

    @classmethod
    def has_files(cls) -> bool:
        return cls.files is not Harness.files

    def files(self, store: Store) -> Sequence[Path]:
        """The files and folders in which the store keeps its data, where the test can
        read them.
        """
        raise NotImplementedError(f"{type(self).__name__} names no files")

    @classmethod
    def has_address(cls) -> bool:
        return cls.address is not Harness.address

    def address(self, store: Store) -> tuple[str, Mapping[str, JsonValue]]:
        """The URL and the options by which another process opens the same data, by the
        adapter that is installed for the URL's scheme.
        """
        raise NotImplementedError(f"{type(self).__name__} has no address")

    async def outlast_loss_window(self, store: Store) -> None:
        """Wait until the death of the server may cost nothing written so far. Override
        it where `restart` is a death that costs nothing anyway.
        """
        await asyncio.sleep((store.capabilities.loss_window or timedelta()).total_seconds())

    async def reopen(self, store: Store) -> Store:
        """Close the store in good order and return an unopened one on the same data."""
        await store.close()
        return store

    async def restart(self, store: Store) -> Store:
        """Let the store's process and server die without a goodbye, start them again,
        and return an unopened store on what is left.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement restart()")

    async def damage(self, store: Store, collection: Collection, key: Key) -> None:
        """Damage the live record kept under the key behind the store's back, as a
        flipped bit on the disk would: its content, no longer as its checksum says. What
        tells where it belongs (key, scope) stays. Needed where `durable` is claimed.
        The store is closed meanwhile.
        """
        raise NotImplementedError(f"{type(self).__name__} claims `durable`, so it must implement damage()")

    async def cut_short(self, store: Store, write: Put, meanwhile: Callable[[], Awaitable[None]]) -> None:
        """Let another client come so far with the write that it has decided on it;
        `meanwhile` happens; then what it decided reaches the data as far as your
        protocol lets it, and that client dies before it looks again. Needed where
        `fenced` is not claimed.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not claim `fenced`, so it must implement cut_short()"
        )

    # -- where `remote` ----------------------------------------------------------------

    async def with_short_timeouts(self, store: Store) -> Store:
        """Another unopened store on the same data, with timeouts as short as the
        adapter allows (best well under a second).
        """
        raise NotImplementedError(
            f"{type(self).__name__} is remote, so it must implement with_short_timeouts()"
        )

    async def freeze(self, store: Store) -> None:
        """The server keeps its connections and answers nothing, to anyone (SIGSTOP of
        its processes, `docker pause`), until `thaw`.
        """
        raise NotImplementedError(f"{type(self).__name__} is remote, so it must implement freeze()")

    async def thaw(self, store: Store) -> None:
        """The frozen server goes on where it stopped."""
        raise NotImplementedError(f"{type(self).__name__} is remote, so it must implement thaw()")

    async def take_away(self, store: Store) -> None:
        """The server dies without a goodbye and nobody listens at its address, until
        `bring_back`.
        """
        raise NotImplementedError(f"{type(self).__name__} is remote, so it must implement take_away()")

    async def bring_back(self, store: Store) -> None:
        """The server is there again at its address, with the data it kept. Return when
        it answers.
        """
        raise NotImplementedError(f"{type(self).__name__} is remote, so it must implement bring_back()")

    # -- where the disk, or the memory, can be made full -------------------------------

    @classmethod
    def can_be_cramped(cls) -> bool:
        return cls.make_with_limited_space is not Harness.make_with_limited_space

    async def make_with_limited_space(self) -> Store:
        """As `make`, with room for some megabytes, until `make_room`: on a small disk,
        or under a limit of the server's memory.
        """
        raise NotImplementedError(f"{type(self).__name__} has no small disk")

    async def make_room(self, store: Store) -> None:
        """The store made by `make_with_limited_space` has room again."""
        raise NotImplementedError(
            f"{type(self).__name__} implements make_with_limited_space(), so it must implement make_room()"
        )

    # -- the end -----------------------------------------------------------------------

    async def dispose(self, store: Store) -> None:
        """Clean up after a test: close everything and remove the data."""
        await store.close()
