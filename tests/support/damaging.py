"""What a disk does to a record behind a store's back, on every store that may be an
archive.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

from memory.adapters.in_memory import InMemoryStore
from memory.ports.collections import Collection
from memory.ports.record import Key
from memory.ports.store import Store
from tests.support import mongo_servers, mysql_servers, postgres_servers, redis_servers


async def damage(store: Store, url: str, collection: Collection, key: Key) -> None:
    """Make a record unreadable in a store that is open under this address, as
    `placings` has them.
    """
    match url.partition(":")[0]:
        case "memory":
            assert isinstance(store, InMemoryStore)
            store.state.damage(collection.name, key)
        case "sqlite":
            with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file, file:
                changed = f"UPDATE {collection.name} SET body = ? WHERE tenant = ? AND id = ?"  # noqa: S608
                assert file.execute(changed, ('{"not":"said"}', key.tenant, UUID(key.id).bytes)).rowcount == 1
        case "postgresql":
            await _in_postgres(collection, key)
        case "redis":
            where = urlsplit(url)
            await asyncio.to_thread(
                redis_servers.damage,
                int(where.port or 0),
                parse_qs(where.query)["prefix"][0],
                collection.name,
                key,
            )
        case "mongodb":
            await asyncio.to_thread(
                mongo_servers.damage, mongo_servers.replica_set(), "topology", collection.name, key
            )
        case "mysql" | "mariadb":
            changed = f'UPDATE memory_{collection.name} SET body = \'{{"not": "said"}}\' WHERE tenant = %s AND id = %s'  # noqa: S608
            await mysql_servers.container().run_sql(
                changed, key.tenant, UUID(key.id).bytes, database="topology"
            )
        case "file":
            _in_files(Path(url.removeprefix("file://")), collection, key)
        case other:
            raise AssertionError(f"nobody knows how to damage a record of {other}")


async def _in_postgres(collection: Collection, key: Key) -> None:
    import asyncpg

    connection: Any = await asyncpg.connect(**postgres_servers.container().settings)
    try:
        changed = f'UPDATE topology.memory_{collection.name} SET body = \'{{"not": "said"}}\' WHERE tenant = $1 AND id = $2'  # noqa: S608
        assert await connection.execute(changed, key.tenant, key.id) == "UPDATE 1"
    finally:
        await connection.close()


def _in_files(folder: Path, collection: Collection, key: Key) -> None:
    """A bit of the record's file, and of the version before it."""
    found = list(folder.glob(f"*/*/{collection.name}/{key.id}.json*"))
    assert found
    for file in found:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 4
        file.write_bytes(content)
