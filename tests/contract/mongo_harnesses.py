"""The MongoDB adapter's harnesses, their claims pinned: a server on its own, and a replica set, which has transactions."""

from __future__ import annotations

from typing import ClassVar
from urllib.parse import quote

from memory.ports.capabilities import Capabilities
from memory.ports.collections import COLLECTIONS, Collection
from memory.ports.record import Key
from memory.ports.store import Store
from tests.contract.served import Served
from tests.support import mongo_servers
from tests.support.mongo_servers import Mongo

DATABASE = "contract"


class MongoAlone(Served):
    """One server a test process. The first store makes collections and indexes; the others find them emptied, because making them takes long."""

    name = "mongo"
    exact_scores = True
    claims = Capabilities(
        durable=True,
        shared=True,
        conditional=True,
        filter=True,
        order=True,
        tenant_wide=True,
        lexical=True,
        tenant_statistics=True,
        max_record_bytes=8 * 2**20,
        max_batch=1_000,
    )
    secrets = (mongo_servers.PASSWORD, quote(mongo_servers.PASSWORD, safe=""))
    _made: ClassVar[set[str]] = set()

    def server(self) -> Mongo:
        return mongo_servers.alone()

    def running(self) -> Mongo:
        return self.server()

    def _store(self, **options: float) -> Store:
        from memory.adapters.mongo.store import MongoStore

        store: Store = MongoStore(self.server().url(DATABASE), name=self.name, **options)
        return store

    async def make(self) -> Store:
        if self.name in self._made:
            mongo_servers.emptied(self.server(), DATABASE)
        else:
            store = self._store()
            await store.open(COLLECTIONS)
            await store.close()
            self._made.add(self.name)
        return self._store()

    async def client(self, store: Store) -> Store:
        return self._store()

    async def hurried(self, store: Store) -> Store:
        return self._store(timeout=1, connect_timeout=1)

    async def spoil(self, store: Store, collection: Collection, key: Key) -> None:
        mongo_servers.spoil(self.server(), DATABASE, collection.name, key)

    async def restart(self, store: Store) -> Store:
        self.server().kill()
        self.server().revive()
        return self._store()


class MongoReplicaSet(MongoAlone):
    """A replica set of one member."""

    name = "mongo_replica_set"
    claims = Capabilities(
        durable=True,
        shared=True,
        conditional=True,
        atomic=True,
        filter=True,
        order=True,
        tenant_wide=True,
        lexical=True,
        tenant_statistics=True,
        max_record_bytes=8 * 2**20,
        max_batch=1_000,
    )

    def server(self) -> Mongo:
        return mongo_servers.replica_set()
