"""The Redis adapter's harnesses: a durable server, one with the settings it comes with,
and a node in cluster mode.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from memory.ports.capabilities import Capabilities
from memory.ports.collections import Collection
from memory.ports.record import JsonValue, Key
from memory.ports.store import Store
from tests.contract.served import Served
from tests.support import redis_servers
from tests.support.servers import Server

PATIENCE = 20.0
"""Seconds that a store waits on a machine that has other things to do; what judges time
asks for one that is made `with_short_timeouts`.
"""


class Redis(Served):
    """A Redis that writes every acknowledged write to disk. The tests of a process
    share the server, each with a prefix of its own.
    """

    name = "redis"
    urls = ("redis://user:hunter2-cormorant@127.0.0.1:1/0",)
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
        fenced=True,
    )
    scheme: ClassVar[str] = "redis"
    _tests: ClassVar[Iterator[int]] = itertools.count()

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.server = self._server()
        self.prefix = f"test-{next(self._tests)}"

    def _server(self) -> Server:
        return redis_servers.durable()

    def running(self) -> Server:
        return self.server

    def _store(self, **options: Any) -> Store:
        from memory.adapters.redis.store import RedisStore

        patient = {"timeout": PATIENCE, "connect_timeout": PATIENCE, **options}
        return RedisStore(
            f"{self.scheme}://127.0.0.1:{self.server.port}", name=self.name, prefix=self.prefix, **patient
        )

    async def make(self) -> Store:
        return self._store()

    async def tiny(self) -> Store:
        from memory.adapters.redis.thresholds import Thresholds

        small = Thresholds(
            page=2,
            beyond=1,
            least_in_order=1,
            least_in_portions=1,
            indexes_at_once=3,
            answer_bytes=0,
            keys_at_once=1,
            audited_at_once=1,
            members_at_once=1,
            partitions_at_once=1,
            forgotten_at_once=1,
        )
        return self._store(thresholds=small)

    async def make_with_limited_space(self) -> Store:
        redis_servers.limit(self.server.port, 4 * 2**20)
        return await self.make()

    async def make_room(self, store: Store) -> None:
        redis_servers.limit(self.server.port, None)

    async def with_short_timeouts(self, store: Store) -> Store:
        return self._store(timeout=0.5, connect_timeout=0.5)

    async def client(self, store: Store) -> Store:
        return await self.make()

    def address(self, store: Store) -> tuple[str, Mapping[str, JsonValue]]:
        return f"{self.scheme}://127.0.0.1:{self.server.port}", {"prefix": self.prefix}

    async def restart(self, store: Store) -> Store:
        self.server.kill()
        await store.close()
        self.server.revive()
        return await self.make()

    async def damage(self, store: Store, collection: Collection, key: Key) -> None:
        redis_servers.damage(self.server.port, self.prefix, collection.name, key)

    async def dispose(self, store: Store) -> None:
        await store.close()
        redis_servers.limit(self.server.port, None)
        redis_servers.emptied(self.server.port)


class RedisVolatile(Redis):
    """A Redis with the settings it comes with: what was written since the last snapshot
    dies with it.
    """

    name = "redis_volatile"
    primary = "redis"
    claims = replace(Redis.claims, durable=False)

    def _server(self) -> Server:
        return redis_servers.default()


class RedisCluster(Redis):
    """One node in cluster mode: it refuses whatever reaches over a slot."""

    name = "redis_cluster"
    primary = "redis"
    claims = replace(Redis.claims, atomic=False)
    scheme = "redis+cluster"

    def _server(self) -> Server:
        return redis_servers.cluster()
