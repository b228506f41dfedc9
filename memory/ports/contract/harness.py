"""How the contract gets hold of a store: one harness an adapter."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from memory.domain.errors import Unsupported
from memory.ports.capabilities import Capabilities
from memory.ports.store import Store

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
    """Makes stores of one adapter. A new harness is made for each test, with an empty folder of its own.

    Set `name` and `claims`, implement `make`, and override what else the claims ask for.
    """

    name: ClassVar[str]
    """Stands in the test ids; no two harnesses of a run may share it."""
    claims: ClassVar[Capabilities]
    """What the opened store is expected to say of itself: a literal, so that losing a capability fails."""
    recall: ClassVar[float] = 1.0
    """The share of the exact ten nearest that a search by meaning must find: 1 for an exact scan, at least 0.9 for an approximate index."""
    ttl_patience: ClassVar[timedelta] = timedelta(seconds=5)
    """Where `ttl` is claimed: how long the store may take to forget what is past its time."""
    stemming: ClassVar[Mapping[str, tuple[tuple[str, ...], ...]]] = STEMMING
    """The adapter's own table, where its engine cuts words differently and documents it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def make(self) -> Store:
        """A fresh, empty, unopened store. Raise when the server does not answer: the test is then an error."""
        raise NotImplementedError(f"{type(self).__name__} must implement make()")

    async def client(self, store: Store) -> Store:
        """Another unopened store on the same data, as another process would have it. Needed where `shared` is claimed."""
        raise Unsupported("shared", store=store.name)

    async def reopen(self, store: Store) -> Store:
        """Close the store in good order and return an unopened one on the same data."""
        await store.close()
        return store

    async def restart(self, store: Store) -> Store:
        """Let the store's process and server die without a goodbye, start them again, and return an unopened store on what is left."""
        raise NotImplementedError(f"{type(self).__name__} must implement restart()")

    async def dispose(self, store: Store) -> None:
        """Clean up after a test: close everything and remove the data."""
        await store.close()
