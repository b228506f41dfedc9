"""Creates the driver's client, inspects the server, and closes without open sockets.

Each server has a monitor task, which `close` cancels. A monitor that is cancelled while
it connects leaves its socket to the garbage collector (seen with pymongo 4.20). Server
selection gives up exactly when the monitor reconnects, so a close right after that
would always hit this case.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

import pymongo
from bson.codec_options import CodecOptions
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.asynchronous.mongo_client import AsyncMongoClient
from pymongo.common import URI_OPTIONS_VALIDATOR_MAP
from pymongo.errors import ConfigurationError, InvalidURI, OperationFailure
from pymongo.monitoring import (
    ServerHeartbeatFailedEvent,
    ServerHeartbeatListener,
    ServerHeartbeatStartedEvent,
    ServerHeartbeatSucceededEvent,
)
from pymongo.uri_parser import parse_uri
from pymongo.write_concern import WriteConcern

from memory.adapters.mongo.codec import Document
from memory.adapters.mongo.config import MongoConfig
from memory.domain.errors import ConfigError
from memory.ports.options import unknown_options
from memory.ports.record import JsonValue

OLDEST = 9
"""Oldest supported wire version: MongoDB 4.4."""
_NOT_ALLOWED = 13
_PATIENCE = 0.25
"""Seconds to wait for connecting monitors.

On a frozen server they wait for an answer instead, and cancelling them is safe.
"""
_NO_TIME = 1e-6


# -- the client ------------------------------------------------------------------------


class Heartbeats(ServerHeartbeatListener):
    """Tracks which servers are being connected to and which were last unreachable."""

    def __init__(self, replica_set: str = "", seeds: int = 1) -> None:
        self._replica_set, self._seeds = replica_set, seeds
        self._others: set[Any] = set()
        self.sets: set[str] = set()
        """Replica sets of the named servers, other than the requested one.

        An empty name stands for a server without a replica set.
        """
        self.of_another_set = asyncio.Event()
        self._connecting: set[Any] = set()
        self._lost: set[Any] = set()
        self._quiet = asyncio.Event()

    def started(self, event: ServerHeartbeatStartedEvent) -> None:
        if not event.awaited:  # an awaited heartbeat uses a connection that is open already
            self._connecting.add(event.connection_id)
            self._quiet.clear()

    def succeeded(self, event: ServerHeartbeatSucceededEvent) -> None:
        self._lost.discard(event.connection_id)
        beginning = event.reply.document.get(
            "isreplicaset", False
        )  # a member that has not been told the name of its set yet
        if (
            self._replica_set
            and not beginning
            and (name := event.reply.replica_set_name or "") != self._replica_set
        ):
            self._others.add(event.connection_id)
            self.sets.add(name)
            if len(self._others) >= self._seeds:
                self.of_another_set.set()
        self._over(event.connection_id)

    def failed(self, event: ServerHeartbeatFailedEvent) -> None:
        self._lost.add(event.connection_id)
        self._over(event.connection_id)

    def _over(self, server: Any) -> None:
        self._connecting.discard(server)
        if not self._connecting:
            self._quiet.set()

    async def close(self, client: AsyncMongoClient[Any]) -> None:
        """Close the client.

        If a server is unreachable, the client does not end its sessions there: that
        would wait for a timeout.
        """
        if self._connecting:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._quiet.wait(), _PATIENCE)
        with pymongo.timeout(_NO_TIME) if self._lost else contextlib.nullcontext():
            await client.close()


def database_of(
    client: AsyncMongoClient[Document], config: MongoConfig, found: Inspection
) -> AsyncDatabase[Document]:
    plain: CodecOptions[Document] = CodecOptions(
        unicode_decode_error_handler="replace"
    )  # the checksum detects a damaged text
    # A server without a journal refuses a write that asks for it.
    return client.get_database(
        config.database, plain, write_concern=None if found.journaled else WriteConcern("majority")
    )


def client_of(config: MongoConfig, heartbeats: Heartbeats) -> AsyncMongoClient[Document]:
    """Create a client whose operations all end within the timeout.

    The timeout includes the driver's own retries, which never apply a write twice.
    """
    settings: dict[str, Any] = {
        "w": "majority",
        "journal": True,
        "timeoutMS": round(config.timeout * 1000),
        "serverSelectionTimeoutMS": round(config.timeout * 1000),
        "connectTimeoutMS": round(config.connect_timeout * 1000),
        "socketTimeoutMS": round(config.timeout * 1000),
        "maxPoolSize": config.connections,
        "serverMonitoringMode": "poll",
        "appname": "memory-tiers",
        "event_listeners": [heartbeats],
    }
    return AsyncMongoClient(config.uri, **settings)


def require_uri(name: str, config: MongoConfig) -> None:
    """Reject a URL that the driver would reject, before connecting.

    A name of a DNS seed list is resolved when the store opens.
    """
    if config.uri.startswith("mongodb+srv://"):
        return
    asked = [option for option, _ in parse_qsl(config.uri.partition("?")[2], keep_blank_values=True)]
    if unknown := sorted(option for option in asked if option.lower() not in URI_OPTIONS_VALIDATOR_MAP):
        raise unknown_options(
            name,
            config.product,
            unknown,
            config.names(),
            ", and those of MongoDB, such as authSource, replicaSet and tls",
        )
    try:
        parse_uri(config.uri, warn=False)
    except (InvalidURI, ConfigurationError, ValueError) as exc:
        raise ConfigError(
            f"store '{name}': the driver refuses the URL ({_describe_error(exc)}); percent-encode special"
            " characters, such as %40 for @"
        ) from None


def _describe_error(error: Exception) -> str:
    """Describe the error without the URL, which messages may quote."""
    return (
        "an option is not one of MongoDB's" if isinstance(error, ConfigurationError) else type(error).__name__
    )


# -- what the server says --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Inspection:
    """Result of inspecting a server.

    `run` identifies the server's process. `advice` says what to change if acknowledged
    writes may be lost.
    """

    version: str
    topology: str
    transactions: bool
    sharded: bool
    journaled: bool
    durable: bool
    run: str
    advice: tuple[str, ...]
    facts: dict[str, JsonValue]


async def inspect(store: str, client: AsyncMongoClient[Document]) -> Inspection:
    hello = await client.admin.command("hello")
    build = await client.admin.command("buildInfo")
    version = str(build["version"])
    if hello["maxWireVersion"] < OLDEST:
        raise ConfigError(f"store '{store}': the server is MongoDB {version}; upgrade it to 4.4 or later")
    sharded, replica_set = hello.get("msg") == "isdbgrid", hello.get("setName")
    topology = "sharded cluster" if sharded else "replica set" if replica_set else "single server"
    engine, journaled, known = {"persistent": True}, True, sharded
    if not sharded:
        try:
            status = await client.admin.command("serverStatus")
        except (
            OperationFailure
        ) as exc:  # needs the role clusterMonitor, which a user of one database may lack
            if exc.code != _NOT_ALLOWED:
                raise
        else:
            engine, known = status["storageEngine"], True
            journaled = await _has_journal(client, version)
    durable = bool(engine.get("persistent", True)) and journaled
    advice = []
    if not engine.get("persistent", True):
        advice.append(f"the storage engine {engine.get('name')} stores nothing on disk: use wiredTiger")
    if not journaled:
        advice.append(
            "the server has no journal: a crash loses all writes since the last checkpoint: start it with a"
            " journal"
        )
    facts: dict[str, JsonValue] = {
        "topology": topology,
        "transactions": bool(sharded or replica_set),
        "journal": journaled if known else "not known",
    }
    if replica_set:
        facts |= {"replica_set": str(replica_set), "members": len(hello.get("hosts", ()))}
    run = str(hello.get("topologyVersion", {}).get("processId", ""))
    return Inspection(
        version,
        topology,
        bool(sharded or replica_set),
        sharded,
        journaled,
        durable,
        run,
        tuple(advice),
        facts,
    )


async def _has_journal(client: AsyncMongoClient[Document], version: str) -> bool:
    """Whether the server has a journal. Since 6.1 there is always one.

    An earlier single server may be configured without one.
    """
    if tuple(int(part) for part in version.split(".")[:2]) >= (6, 1):
        return True
    try:
        options = await client.admin.command("getCmdLineOpts")
    except OperationFailure:
        return True
    return bool(options.get("parsed", {}).get("storage", {}).get("journal", {}).get("enabled", True))
