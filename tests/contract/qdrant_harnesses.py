"""The Qdrant adapter's harnesses: Edge in this process, a server, and the client's
local mode, which proves the server's path where there is none.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from unittest.mock import patch

from memory.ports.base import BaseStore
from memory.ports.capabilities import Capabilities
from memory.ports.collections import Collection
from memory.ports.contract.collections import DECLARED
from memory.ports.contract.harness import Harness
from memory.ports.record import Key
from memory.ports.store import Store
from memory.ports.writes import Put
from tests.contract.in_a_folder import InAFolder
from tests.contract.served import Served
from tests.support import edge_folders, small_disk
from tests.support.servers import Server

if TYPE_CHECKING:
    from memory.adapters.qdrant.edge import EdgeEngine
    from memory.adapters.qdrant.engine import PointChange
    from memory.adapters.qdrant.store import QdrantStore
    from memory.adapters.qdrant.thresholds import Thresholds


class QdrantEdge(InAFolder):
    """A folder of Qdrant Edge."""

    name = "qdrant_edge"
    urls = ("qdrant+edge:////no/such/folder", "qdrant://127.0.0.1:1")
    claims = Capabilities(
        durable=True,
        conditional=True,
        filter=True,
        order=True,
        tenant_wide=True,
        lexical=True,
        semantic=True,
        tenant_statistics=True,
        fenced=True,
        max_vector_dims=65_535,
    )
    _deaths: ClassVar[Iterator[int]] = itertools.count()
    megabytes = 200  # of which 128 are kept free, and each index takes two

    def _store(self, name: str, **options: Any) -> Store:
        from memory.adapters.qdrant.store import QdrantStore

        return QdrantStore(f"qdrant+edge:///{self.folder / name}", name=self.name, **options)

    async def make(self) -> Store:
        edge_folders.begun(self.folder / "data", DECLARED)
        return self._store("data")

    async def make_with_limited_space(self) -> Store:
        small_disk.mount(self.folder, self.megabytes)
        return self._store("data")

    async def clear(self, store: Store, collections: Sequence[Collection]) -> Store:
        """To make a folder takes the engine as long as some hundred writes. The shard
        stays open, another store goes on with it, unless it is to keep long vectors:
        for these the engine makes room in every segment.
        """
        import qdrant_edge

        from memory.adapters.qdrant.store import QdrantStore

        assert isinstance(store, QdrantStore)
        await store.open(collections)  # a test may have closed it
        if any(length > 1_000 for length in _edge(store).dimensions):
            await store.close()
            shutil.rmtree(self.folder / "data")
            fresh = await self.make()
            await fresh.open(collections)
            return fresh
        shard = _edge(store).open_shard
        shard.update(qdrant_edge.UpdateOperation.delete_points_by_filter(qdrant_edge.Filter()))
        _edge(store).shard = None
        await store.close()
        again = self._store("data")
        assert isinstance(again, QdrantStore)
        engine = _edge(again)

        def take_over() -> None:
            engine.shard, engine.dimensions = shard, engine.folder.dimensions()

        with patch.object(engine, "_load", take_over):
            await again.open(collections)
        return again

    async def tiny(self) -> Store:
        edge_folders.begun(self.folder / "data", DECLARED)
        return self._store("data", thresholds=_tiny(), log_bytes=2**20)

    async def restart(self, store: Store) -> Store:
        """A process that dies leaves its files as they are at that moment: so the store
        goes on with a copy of them, nothing flushed or closed.

        A process that is killed in earnest is in
        `tests/unit/adapters/qdrant/test_edge_killed.py`.
        """
        assert isinstance(store, BaseStore)
        assert store.path is not None
        left = f"left-{next(self._deaths)}"
        copying = await asyncio.create_subprocess_exec(
            "cp", "-a", "--sparse=always", str(store.path), str(self.folder / left)
        )
        assert await copying.wait() == 0
        return self._store(left)

    def files(self, store: Store) -> Sequence[Path]:
        return [self.folder]

    async def damage(self, store: Store, collection: Collection, key: Key) -> None:
        """Through the engine: what its files look like is its own affair."""
        from memory.adapters.qdrant.keys import record_point

        _change(self.folder / "data", record_point(collection.name, key), {"body": '{"not":"said"}'})


class QdrantLocal(Harness):
    """The local mode of qdrant-client: the server's path through the adapter, without a
    server. It forgets, and is for tests alone.
    """

    name = "qdrant_local"
    many = 1_050
    claims = Capabilities(
        conditional=True,
        filter=True,
        order=True,
        tenant_wide=True,
        lexical=True,
        semantic=True,
        tenant_statistics=True,
        max_vector_dims=65_535,
    )

    async def make(self) -> Store:
        from memory.adapters.qdrant.store import QdrantStore

        return QdrantStore("qdrant://:memory:", name=self.name)

    async def tiny(self) -> Store:
        from memory.adapters.qdrant.store import QdrantStore

        return QdrantStore("qdrant://:memory:", name=self.name, thresholds=_tiny())

    async def restart(self, store: Store) -> Store:
        await store.close()
        return await self.make()

    async def cut_short(self, store: Store, write: Put, meanwhile: Callable[[], Awaitable[None]]) -> None:
        from memory.adapters.qdrant.client import ClientEngine
        from memory.adapters.qdrant.store import QdrantStore

        assert isinstance(store, QdrantStore)
        assert isinstance(store.engine, ClientEngine)
        await _dies_before_it_looks(
            QdrantStore("qdrant://:memory:", client=store.engine.client), write, meanwhile
        )


class QdrantServer(Served):
    """A Qdrant server; the tests of a process share it, each with a collection of its
    own.
    """

    name = "qdrant_server"
    claims = Capabilities(
        durable=True,
        shared=True,
        conditional=True,
        filter=True,
        order=True,
        tenant_wide=True,
        lexical=True,
        semantic=True,
        tenant_statistics=True,
        max_record_bytes=2 * 2**20,
        max_vector_dims=65_535,
    )
    recall = 0.95  # its vector index is approximate
    _tests: ClassVar[Iterator[int]] = itertools.count()

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.server = running_server()
        self.collection = f"test-{next(self._tests)}"

    def running(self) -> Server:
        return self.server

    def _store(self, **options: Any) -> Store:
        from memory.adapters.qdrant.store import QdrantStore

        return QdrantStore(
            f"qdrant://127.0.0.1:{self.server.port}", name=self.name, collection=self.collection, **options
        )

    async def make(self) -> Store:
        return self._store()

    async def tiny(self) -> Store:
        return self._store(thresholds=_tiny())

    async def with_short_timeouts(self, store: Store) -> Store:
        return self._store(timeout=1)  # whole seconds, the server's own limit on a request

    async def client(self, store: Store) -> Store:
        return await self.make()

    async def cut_short(self, store: Store, write: Put, meanwhile: Callable[[], Awaitable[None]]) -> None:
        await _dies_before_it_looks(self._store(), write, meanwhile)

    async def restart(self, store: Store) -> Store:
        self.server.kill()
        await store.close()
        self.server.revive()
        return await self.make()

    async def damage(self, store: Store, collection: Collection, key: Key) -> None:
        from qdrant_client import AsyncQdrantClient

        from memory.adapters.qdrant.keys import record_point

        client = AsyncQdrantClient(port=self.server.port, check_compatibility=False)
        try:
            await client.set_payload(
                self.collection, {"body": '{"not":"said"}'}, [record_point(collection.name, key)], wait=True
            )
        finally:
            await client.close()

    async def dispose(self, store: Store) -> None:
        from qdrant_client import AsyncQdrantClient

        await store.close()
        client = AsyncQdrantClient(port=self.server.port, check_compatibility=False)
        try:
            await client.delete_collection(self.collection)
        finally:
            await client.close()


def _edge(store: QdrantStore) -> EdgeEngine:
    from memory.adapters.qdrant.edge import EdgeEngine

    assert isinstance(store.engine, EdgeEngine)
    return store.engine


def _tiny() -> Thresholds:
    from memory.adapters.qdrant.thresholds import Thresholds

    return Thresholds(
        read_at_once=2,
        beyond_a_page=0,
        retrieved_at_once=1,
        changed_at_once=1,
        changed_bytes_at_once=1,
        changed_in_a_turn=1,
        audited_at_once=1,
        partitions_at_once=1,
        rewritten_at_once=1,
    )


class _Died(BaseException):
    """In the place of a process that is killed."""


async def _dies_before_it_looks(writer: Store, write: Put, meanwhile: Callable[[], Awaitable[None]]) -> None:
    from memory.adapters.qdrant.store import QdrantStore

    assert isinstance(writer, QdrantStore)
    await writer.open(DECLARED)
    commit = writer.engine.commit

    async def late(changes: Sequence[PointChange], *asked: Any) -> set[str]:
        await meanwhile()
        await commit(changes, *asked)
        raise _Died

    with patch.object(writer.engine, "commit", late), suppress(_Died):
        await writer.apply([write])
    await writer.close()


def answers(port: int) -> None:
    """Raises unless a Qdrant is ready there."""
    import httpx

    httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=1).raise_for_status()


def new_server() -> Server:
    """A Qdrant server of the caller's own."""
    return Server("qdrant", answers, inside=6333)


@cache
def running_server() -> Server:
    return new_server()


def _change(folder: Path, point: str, values: dict[str, str]) -> None:
    """Change values of a point's payload behind the adapter's back. No store may have
    the folder open.
    """
    import qdrant_edge

    shard = qdrant_edge.EdgeShard.load(str(folder / "shard"))
    try:
        shard.update(qdrant_edge.UpdateOperation.set_payload([point], values))
        shard.flush()
    finally:
        shard.close()
