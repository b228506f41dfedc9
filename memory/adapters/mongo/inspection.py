"""What the server says of itself: its version, whether it has transactions, and whether it keeps what it acknowledged."""

from __future__ import annotations

from dataclasses import dataclass

from pymongo.asynchronous.mongo_client import AsyncMongoClient
from pymongo.errors import OperationFailure

from memory.adapters.mongo.values import Document
from memory.domain.errors import ConfigError
from memory.ports.record import JsonValue

OLDEST = 9
"""The oldest wire version this works with, which is MongoDB 4.4."""
_NOT_ALLOWED = 13


@dataclass(frozen=True, slots=True)
class Inspection:
    """One look at a server. `run` names the server's process; `advice` says what to change where acknowledged writes may be lost."""

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
        raise ConfigError(f"store '{store}': the server is MongoDB {version}; version 4.4 or later is needed")
    sharded, replica_set = hello.get("msg") == "isdbgrid", hello.get("setName")
    topology = "sharded cluster" if sharded else "replica set" if replica_set else "single server"
    engine, journaled, known = {"persistent": True}, True, sharded
    if not sharded:
        try:
            status = await client.admin.command("serverStatus")
        except OperationFailure as exc:  # needs the role clusterMonitor, which a user of one database need not have
            if exc.code != _NOT_ALLOWED:
                raise
        else:
            engine, known = status["storageEngine"], True
            journaled = await _has_journal(client, version)
    durable = bool(engine.get("persistent", True)) and journaled
    advice = []
    if not engine.get("persistent", True):
        advice.append(f"the storage engine {engine.get('name')} keeps nothing on disk: use wiredTiger")
    if not journaled:
        advice.append(
            "the server runs without a journal: what was written since its last checkpoint is lost with the process: start it with a journal"
        )
    facts: dict[str, JsonValue] = {"topology": topology, "transactions": bool(sharded or replica_set), "journal": journaled if known else "not known"}
    if replica_set:
        facts |= {"replica_set": str(replica_set), "members": len(hello.get("hosts", ()))}
    run = str(hello.get("topologyVersion", {}).get("processId", ""))
    return Inspection(version, topology, bool(sharded or replica_set), sharded, journaled, durable, run, tuple(advice), facts)


async def _has_journal(client: AsyncMongoClient[Document], version: str) -> bool:
    """From 6.1 on there is always one; before, a single server can be told to do without."""
    if tuple(int(part) for part in version.split(".")[:2]) >= (6, 1):
        return True
    try:
        options = await client.admin.command("getCmdLineOpts")
    except OperationFailure:
        return True
    return bool(options.get("parsed", {}).get("storage", {}).get("journal", {}).get("enabled", True))
