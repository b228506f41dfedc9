"""Topologies on real engines, each call on a clean place of its own: for the tests that
prove the whole on more than one file.
"""

from __future__ import annotations

import asyncio
import shutil
import uuid
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memory.orchestrator.storage.kinds import KINDS
from tests.support import (
    edge_folders,
    mongo_servers,
    mysql_servers,
    postgres_servers,
    quick_folders,
    redis_servers,
)

_EMPTY = """DO $$ DECLARE name text; BEGIN
FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'topology' AND tablename NOT IN ('memory_schema_version', 'memory_collections')
LOOP EXECUTE 'DELETE FROM topology.' || quote_ident(name); END LOOP; END $$"""


@dataclass(frozen=True)
class Placing:
    """Which backends serve the tiers. `config(folder)` is a configuration of it that
    nothing was kept in yet.
    """

    name: str
    backends: tuple[str, ...]
    config: Callable[[Path], dict[str, Any]]


def _redis() -> str:
    return f"redis://127.0.0.1:{redis_servers.durable().port}?prefix=p{uuid.uuid4().hex}"


def _volatile_redis() -> str:
    return f"redis://127.0.0.1:{redis_servers.default().port}?prefix=p{uuid.uuid4().hex}"


def _postgres() -> str:
    """The schema that tests of this process share, emptied: making one takes longer
    than most tests.
    """
    server = postgres_servers.container()
    _apart(lambda: _emptied(server.settings))
    return server.url(schema="topology")


def _apart(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run it to its end in a thread: a loop may be running here."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(work())).result()


async def _emptied(settings: dict[str, Any]) -> None:
    import asyncpg

    connection = await asyncpg.connect(**settings)
    try:
        await connection.execute(_EMPTY)
    finally:
        await connection.close()


def _mongo() -> str:
    """The database that tests of this process share, emptied."""
    server = mongo_servers.replica_set()
    mongo_servers.emptied(server, "topology")
    return server.url("topology")


def _mariadb() -> str:
    server = mysql_servers.container()
    _apart(lambda: server.fresh("topology"))
    return server.url("topology")


def _edge(folder: Path) -> str:
    link = folder / "edge"
    if not link.is_symlink():
        link.symlink_to(quick_folders.new(otherwise=folder))
    return f"qdrant+edge:///{edge_folders.begun(link.resolve() / 'data', KINDS.collections)}"


def forget(folder: Path) -> None:
    """Take away what `_edge` left outside of the folder."""
    link = folder / "edge"
    if link.is_symlink():
        shutil.rmtree(link.resolve(), ignore_errors=True)


def two_of(placing: Placing, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two places of one topology that share nothing but the servers."""
    places = [folder / "one", folder / "two"]
    for place in places:
        place.mkdir()
    first, second = [placing.config(place) for place in places]
    own = f"t{uuid.uuid4().hex[:12]}"  # a schema, or a database
    urls = {tier: url.replace("topology", own) for tier, url in second["tiers"].items()}
    return first, {**second, "tiers": urls}


def _tiers(short: str, mid: str, long: str) -> dict[str, Any]:
    return {"tiers": {"short": short, "mid": mid, "long": long}}


def _everything_in_postgres(folder: Path) -> dict[str, Any]:
    return _tiers(*[_postgres()] * 3)


def _everything_in_mariadb(folder: Path) -> dict[str, Any]:
    return _tiers(*[_mariadb()] * 3)


def two_mid_stores(folder: Path) -> dict[str, Any]:
    """Redis for sessions; of everything else the tenant acme's in PostgreSQL, the
    others' in MongoDB; each where it is found by words.
    """
    route = {"tiers": ["mid", "long"], "store": "eu", "tenants": ["acme"]}
    stores = {"sessions": {"url": _redis()}, "eu": {"url": _postgres()}, "us": {"url": _mongo()}}
    return {"stores": stores, "tiers": {"short": "sessions", "mid": "us", "long": "us"}, "routes": [route]}


PLACINGS = (
    Placing(
        "redis-postgres-edge",
        ("redis", "postgresql", "qdrant_edge"),
        lambda folder: _tiers(_redis(), _postgres(), _edge(folder)),
    ),
    Placing("postgres-only", ("postgresql",), _everything_in_postgres),
)
"""Every acceptance test runs on these, and so does the story."""

STORIES = (
    *PLACINGS,
    Placing(
        "volatile-redis-postgres",
        ("redis_volatile", "postgresql"),
        lambda folder: _tiers(_volatile_redis(), *[_postgres()] * 2),
    ),
    Placing(
        "redis-mongo-edge",
        ("redis", "mongo_replica_set", "qdrant_edge"),
        lambda folder: _tiers(_redis(), _mongo(), _edge(folder)),
    ),
    Placing("mariadb-only", ("mariadb",), _everything_in_mariadb),
    Placing("files-only", ("file",), lambda folder: _tiers(*[f"file://{folder / 'files'}"] * 3)),
)
"""The demo's story runs on these."""


def _wrapped(folder: Path) -> dict[str, Any]:
    """One file with everything around it that a configuration can put there."""
    guards = {"timeout": "30s", "retry": 2, "breaker": 5}
    return {"stores": {"main": {"url": f"sqlite:///{folder / 'memory.db'}", **guards}}, "telemetry": True}


def _split(folder: Path) -> dict[str, Any]:
    """A file for one tenant, one for the links of the others, and one for the rest,
    alike in every tier.
    """
    files = {name: {"url": f"sqlite:///{folder / name}.db"} for name in ("own", "links", "others")}
    tiers = ("short", "mid", "long")
    own = {"tiers": tiers, "store": "own", "tenants": ["globex"]}
    links = {"tiers": tiers, "store": "links", "collections": ["relations"]}
    return {"stores": files, "tiers": dict.fromkeys(tiers, "others"), "routes": [own, links]}


ORDINARY = (
    Placing("default", ("sqlite",), lambda folder: _tiers(*[f"sqlite:///{folder / 'memory.db'}"] * 3)),
    Placing("in-memory", ("in_memory",), lambda folder: _tiers(*["memory://"] * 3)),
    Placing("edge-only", ("qdrant_edge",), lambda folder: _tiers(*[_edge(folder)] * 3)),
    Placing("wrapped", ("sqlite",), _wrapped),
    Placing("split", ("sqlite",), _split),
    *STORIES,
    Placing("redis-only", ("redis",), lambda folder: _tiers(*[_redis()] * 3)),
    Placing("mongo-only", ("mongo_replica_set",), lambda folder: _tiers(*[_mongo()] * 3)),
    Placing(
        "mariadb-edge",
        ("mariadb", "qdrant_edge"),
        lambda folder: _tiers(mariadb := _mariadb(), mariadb, _edge(folder)),
    ),
)
"""The model test and the benchmarks run on these."""

BESIDE_EDGE = (
    Placing(
        "postgres-edge",
        ("postgresql", "qdrant_edge"),
        lambda folder: _tiers(postgres := _postgres(), postgres, _edge(folder)),
    ),
    Placing(
        "mongo-edge",
        ("mongo_replica_set", "qdrant_edge"),
        lambda folder: _tiers(mongo := _mongo(), mongo, _edge(folder)),
    ),
)
"""A database for sessions and all else, Edge for what is found by meaning; the
benchmark searches on these too.
"""

OF_SERVERS = Placing(
    "redis-postgres",
    ("redis", "postgresql"),
    lambda folder: _tiers(_redis(), *[_postgres()] * 2),
)
"""Several processes serve this one: it has no folder that one of them would own."""

PGVECTOR = Placing(
    "pgvector-only",
    ("postgresql_pgvector",),
    lambda folder: _tiers(*[postgres_servers.with_pgvector().url(schema=f"m{uuid.uuid4().hex}")] * 3),
)
