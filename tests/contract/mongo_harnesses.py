"""The MongoDB adapter's harnesses, their claims pinned: a server on its own, and a
replica set, which has transactions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar
from unittest.mock import patch
from urllib.parse import quote

from memory.ports.capabilities import Capabilities
from memory.ports.collections import Collection
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import key_of
from memory.ports.record import JsonValue, Key, Partition
from memory.ports.store import Store
from memory.ports.writes import Purge, Put
from tests.contract.served import OneSchema
from tests.support import mongo_servers
from tests.support.mongo_servers import Mongo

DATABASE = "contract"


class _Died(BaseException):
    """In the place of a process that is killed."""


class MongoAlone(OneSchema):
    """A server on its own, that asks for a password."""

    name = "mongo"
    primary = "mongo_replica_set"  # which has transactions besides
    urls = ("mongodb://user:hunter2-cormorant@127.0.0.1:1/memory",)
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
    hurry: ClassVar[Mapping[str, float]] = {"timeout": 1, "connect_timeout": 1}

    def running(self) -> Mongo:
        return mongo_servers.alone()

    def store(self, **options: Any) -> Store:
        from memory.adapters.mongo.store import MongoStore

        store: Store = MongoStore(self.running().url(DATABASE), name=self.name, **options)
        return store

    async def tiny(self) -> Store:
        from memory.adapters.mongo.thresholds import Thresholds

        await self.make()
        small = Thresholds(
            inserted_at_once=2,
            answered_at_once=1,
            counted_at_once=2,
            deleted_at_once=1,
            deleted_bytes_at_once=1,
            audited_at_once=1,
            partitions_at_once=1,
            partitions_known=1,
            turns=1,
        )
        return self.store(thresholds=small)

    def address(self, store: Store) -> tuple[str, Mapping[str, JsonValue]]:
        return self.running().url(DATABASE), {}

    async def emptied(self) -> None:
        mongo_servers.emptied(self.running(), DATABASE)

    async def cut_short(self, store: Store, write: Put, meanwhile: Callable[[], Awaitable[None]]) -> None:
        """Beside another write: one that is alone is a single command, which the server
        refuses.
        """
        other = self.store()
        await other.open(DECLARED)
        directory = other.ready().directory  # type: ignore[attr-defined]
        look = directory.generations

        async def late(partitions: Sequence[Partition]) -> Mapping[Partition, int]:
            known: Mapping[Partition, int] = await look(partitions)
            await meanwhile()
            return known

        async def dies(_: object) -> None:
            raise _Died

        with (
            patch.object(directory, "generations", late),
            patch.object(directory, "generations_now", dies),
            suppress(_Died),
        ):
            await other.apply([write, Purge(SAMPLES, key_of(999), 1)])
        await other.close()

    async def damage(self, store: Store, collection: Collection, key: Key) -> None:
        mongo_servers.damage(self.running(), DATABASE, collection.name, key)


class MongoReplicaSet(MongoAlone):
    """A replica set of one member."""

    name = "mongo_replica_set"
    primary = ""
    claims = replace(MongoAlone.claims, atomic=True)

    def running(self) -> Mongo:
        return mongo_servers.replica_set()
