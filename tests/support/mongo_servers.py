"""The MongoDB servers of the tests: one on its own that asks for a password, and a
replica set of one member. One each a test process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from memory.ports.record import Key
from tests.support.servers import Server

if TYPE_CHECKING:
    from pymongo import MongoClient

USER = "root"
PASSWORD = "tests' own: p@ss/word%"  # noqa: S105
"""With characters that a URL must escape."""
REPLICA_SET = "rs0"
_SMALL = ("--wiredTigerCacheSizeGB", "0.25", "--setParameter", "diagnosticDataCollectionEnabled=false")


class Mongo(Server):
    """The official image on a port that is the same inside: members of a replica set
    are told by it.
    """

    def __init__(
        self,
        *settings: str,
        environment: Mapping[str, str] | None = None,
        credentials: str = "",
        host_network: bool | None = None,
    ) -> None:
        self._credentials = credentials

        def command(port: int) -> Sequence[str]:
            return ("mongod", "--port", str(port), *_SMALL, *settings)

        super().__init__(
            "mongo",
            self._works,
            command,
            environment=environment,
            host_network=host_network,
            data=["/data/db"],
        )

    def url(self, database: str = "agent_memory", **options: object) -> str:
        return f"mongodb://{self._credentials}127.0.0.1:{self.port}/{database}?{urlencode({**self._always, **options})}"

    @property
    def _always(self) -> Mapping[str, object]:
        return {"authSource": "admin"} if self._credentials else {}

    def connected(self, milliseconds: int = 10_000) -> MongoClient[dict[str, Any]]:
        """A client of the tests' own."""
        return self._connected(self.port, milliseconds)

    def _connected(self, port: int, milliseconds: int) -> MongoClient[dict[str, Any]]:
        from pymongo import MongoClient

        return MongoClient(
            f"mongodb://{self._credentials}127.0.0.1:{port}/",
            directConnection=True,
            serverSelectionTimeoutMS=milliseconds,
            socketTimeoutMS=milliseconds,
        )

    def _works(self, port: int) -> None:
        with self._connected(port, 1_000) as client:
            client.admin.command("listDatabases", nameOnly=True)


class ReplicaSet(Mongo):
    """One member, which is a replica set all the same: it has transactions."""

    def __init__(self) -> None:
        super().__init__("--replSet", REPLICA_SET)

    def _works(self, port: int) -> None:
        from pymongo.errors import OperationFailure

        with self._connected(port, 1_000) as client:
            try:
                client.admin.command(
                    "replSetInitiate",
                    {"_id": REPLICA_SET, "members": [{"_id": 0, "host": f"127.0.0.1:{port}"}]},
                )
            except OperationFailure as exc:
                if exc.code != 23:  # it is initiated already
                    raise
            assert client.admin.command("hello")["isWritablePrimary"]


@cache
def alone() -> Mongo:
    secret = {"MONGO_INITDB_ROOT_USERNAME": USER, "MONGO_INITDB_ROOT_PASSWORD": PASSWORD}
    return Mongo(
        environment=secret,
        credentials=f"{USER}:{quote(PASSWORD, safe='')}@",
        host_network=False,  # to make the user, the image listens on a fixed port first
    )


@cache
def replica_set() -> Mongo:
    return ReplicaSet()


def emptied(server: Mongo, database: str, prefix: str = "memory_") -> None:
    """Forget everything a test left, but for the collections, their indexes and the
    version of the schema: those take longer to make.
    """
    with server.connected() as client:
        for name in client[database].list_collection_names(filter={"name": {"$regex": f"^{prefix}"}}):
            if not name.endswith("store.schema"):
                client[database][name].delete_many({})


def size(server: Mongo, database: str) -> int:
    """Bytes that the database takes, its indexes with it."""
    with server.connected() as client:
        return int(client[database].command("dbStats")["totalSize"])


def keep_no_history(server: Mongo) -> None:
    """What was replaced is let go of at once, not after the server's
    `minSnapshotHistoryWindowInSeconds`.
    """
    with server.connected() as client:
        client.admin.command("setParameter", 1, minSnapshotHistoryWindowInSeconds=0)


def damage(server: Mongo, database: str, collection: str, key: Key) -> None:
    """Change what a record says behind the store's back."""
    with server.connected() as client:
        changed = client[database][f"memory_{collection}"].update_one(
            {"_id": {"tenant": key.tenant, "id": key.id}}, {"$set": {"body": '{"not":"said"}'}}
        )
        assert changed.modified_count == 1
