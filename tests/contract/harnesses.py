"""Our adapters' harnesses, their claims pinned."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import ClassVar
from uuid import UUID

from memory.adapters.in_memory import InMemoryStore
from memory.domain.errors import Unsupported
from memory.domain.scope import ScopeKind
from memory.orchestrator.storage.split import Share, SplitStore
from memory.ports.capabilities import Capabilities
from memory.ports.collections import Collection
from memory.ports.contract.collections import DECLARED
from memory.ports.contract.harness import Harness
from memory.ports.record import JsonValue, Key
from memory.ports.store import Store
from memory.ports.writes import Put
from tests.contract.in_a_folder import InAFolder


class InMemory(Harness):
    """The store in memory as everyone gets it."""

    name = "in_memory"
    urls = ("memory://",)
    exact_scores = True
    claims = Capabilities(
        conditional=True,
        atomic=True,
        grouped=True,
        filter=True,
        order=True,
        tenant_wide=True,
        lexical=True,
        semantic=True,
        tenant_statistics=True,
        fenced=True,
    )
    store_type: ClassVar[type[InMemoryStore]] = InMemoryStore

    async def make(self) -> InMemoryStore:
        return self.store_type("memory", capabilities=self.claims)

    async def client(self, store: Store) -> Store:
        if not self.claims.shared:
            raise Unsupported("shared", store=store.name)
        assert isinstance(store, InMemoryStore)
        return self.store_type("memory", capabilities=self.claims, state=store.state)

    async def restart(self, store: Store) -> Store:
        assert isinstance(store, InMemoryStore)
        store.restart(keep=self.claims.durable)
        return self.store_type("memory", capabilities=self.claims, state=store.state)

    async def damage(self, store: Store, collection: Collection, key: Key) -> None:
        assert isinstance(store, InMemoryStore)
        store.state.damage(collection.name, key)


class InMemoryServer(InMemory):
    """The store in memory in the part of a durable server with many clients: it keeps
    every claim there is, limits too.
    """

    name = "in_memory_server"
    primary = "in_memory"
    ttl_patience = timedelta(milliseconds=100)
    claims = Capabilities(
        durable=True,
        shared=True,
        ttl=True,
        conditional=True,
        atomic=True,
        grouped=True,
        filter=True,
        order=True,
        tenant_wide=True,
        lexical=True,
        semantic=True,
        tenant_statistics=True,
        fenced=True,
        max_record_bytes=2**20,
        max_batch=100,
        max_vector_dims=300,
    )


class InMemoryPlain(InMemory):
    """The store in memory with everything off: what is not claimed must be refused."""

    name = "in_memory_plain"
    primary = "in_memory"
    claims = Capabilities()

    async def cut_short(self, store: Store, write: Put, meanwhile: Callable[[], Awaitable[None]]) -> None:
        """As a store would have it that looks at the generation in one step and writes
        in another.
        """
        assert isinstance(store, InMemoryStore)
        await meanwhile()
        store.state.place(write.collection.name, write.record.key, write.record)


class Split(Harness):
    """One tier on four stores: by tenant, by scope kind, by collection, and what
    remains. Held to the same contract as one store.
    """

    name = "split"
    primary = "in_memory"
    revives = False
    claims = replace(InMemoryServer.claims, atomic=False)

    def _over(self, parts: Sequence[InMemoryStore]) -> SplitStore:
        umbrella, sessions, versions, rest = parts
        shares = (
            Share(umbrella, tenants=frozenset({"umbrella"})),
            Share(sessions, scope_kinds=frozenset({ScopeKind.SESSION})),
            Share(versions, collections=frozenset({"more_samples", "plain"})),
        )
        return SplitStore("split", shares, rest)

    async def make(self) -> Store:
        names = ("umbrella", "sessions", "versions", "rest")
        return self._over([InMemoryStore(name, capabilities=InMemoryServer.claims) for name in names])

    async def client(self, store: Store) -> Store:
        return self._over(
            [
                InMemoryStore(p.name, capabilities=InMemoryServer.claims, state=p.state)
                for p in self._parts(store)
            ]
        )

    async def restart(self, store: Store) -> Store:
        for part in self._parts(store):
            part.restart(keep=True)
        return await self.client(store)

    async def damage(self, store: Store, collection: Collection, key: Key) -> None:
        (holder,) = [
            part for part in self._parts(store) if part.state.fetch_stored(collection.name, key) is not None
        ]
        holder.state.damage(collection.name, key)

    @staticmethod
    def _parts(store: Store) -> list[InMemoryStore]:
        assert isinstance(store, SplitStore)
        return [part for part in store.parts if isinstance(part, InMemoryStore)]


class Sqlite(InAFolder):
    """One SQLite file. The first is made from nothing; the others begin as copies of
    it, because making the schema takes longer than most tests.
    """

    _empty: ClassVar[bytes] = b""

    name = "sqlite"
    urls = ("sqlite:////no/such/folder/memory.db", "sqlite:///:memory:")
    exact_scores = True
    claims = Capabilities(
        durable=True,
        shared=True,
        conditional=True,
        atomic=True,
        filter=True,
        order=True,
        tenant_wide=True,
        lexical=True,
        semantic=True,
        tenant_statistics=True,
        fenced=True,
    )

    def _store(self) -> Store:
        from memory.adapters.sql.sqlite.store import SqliteStore

        store: Store = SqliteStore(f"sqlite:///{self.folder / 'memory.db'}", name="sqlite")
        return store

    async def tiny(self) -> Store:
        from memory.adapters.sql.sqlite.config import Thresholds
        from memory.adapters.sql.sqlite.store import SqliteStore

        small = Thresholds(
            writes_together=1, rows_at_once=2, deleted_at_once=1, block=8, statements_kept=1, log_pages=1
        )
        store: Store = SqliteStore(f"sqlite:///{self.folder / 'memory.db'}", name="sqlite", thresholds=small)
        return store

    async def make(self) -> Store:
        file = self.folder / "memory.db"
        if Sqlite._empty:
            file.write_bytes(Sqlite._empty)
            return self._store()
        store = self._store()
        await store.open(DECLARED)
        await store.close()
        Sqlite._empty = file.read_bytes()
        return store

    async def client(self, store: Store) -> Store:
        return self._store()

    def address(self, store: Store) -> tuple[str, Mapping[str, JsonValue]]:
        return f"sqlite:///{self.folder / 'memory.db'}", {}

    def files(self, store: Store) -> Sequence[Path]:
        return [self.folder]

    async def restart(self, store: Store) -> Store:
        return self._store()

    async def damage(self, store: Store, collection: Collection, key: Key) -> None:
        with closing(sqlite3.connect(self.folder / "memory.db")) as file, file:
            changed = f"UPDATE {collection.name} SET body = ? WHERE tenant = ? AND id = ?"  # noqa: S608
            assert file.execute(changed, ('{"not":"said"}', key.tenant, UUID(key.id).bytes)).rowcount == 1

    async def damage_derived(self, store: Store) -> None:
        with closing(sqlite3.connect(self.folder / "memory.db")) as file, file:
            assert file.execute("DELETE FROM samples_words WHERE number % 2 = 0").rowcount > 0


EMBEDDED: tuple[type[Harness], ...] = (InMemory, InMemoryServer, InMemoryPlain, Split, Sqlite)
"""Those that need no driver and no server. This file stands alone: it is also run
beside an installed wheel.
"""
