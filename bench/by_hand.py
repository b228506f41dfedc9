"""What a team writes that glues Redis, PostgreSQL and Qdrant Edge together by hand: the
bare drivers on the same servers, no promises.

A fact for a session is `RPUSH` of a JSON text; one for a user is a row of a table. What
is written in batches is embedded, goes to a table whose words are found, and then to a
shard of Edge that is filtered by tenant, scope and type.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import uuid
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any

from bench.beside import DIMENSIONS
from memory.adapters.embedders.wordllama import WordLlamaEmbedder
from memory.ports.record import unpack_vector
from tests.support import postgres_servers, redis_servers
from tests.support.placings import Placing


class ByHand:
    def __init__(self, redis: Any, connection: Any, shard: Any) -> None:
        self._redis, self._connection, self._shard = redis, connection, shard
        self._embedder = WordLlamaEmbedder()

    async def append(self, content: str) -> None:
        await self._redis.rpush(
            "by-hand", json.dumps(_fact(content) | {"created_at": datetime.now(UTC).timestamp()})
        )

    async def insert(self, content: str) -> None:
        from bench.postgresql import INSERT

        await self._connection.execute(INSERT, *_row(content, None))

    async def fill(self, contents: Sequence[str]) -> None:
        import qdrant_edge as edge

        from bench.postgresql import INSERT_FOUND

        vectors = await self._embedder.embed(contents)
        rows = [_row(content, vector) for content, vector in zip(contents, vectors, strict=True)]
        await self._connection.executemany(INSERT_FOUND, rows)
        points = [
            edge.Point(row[0], {"dense": unpack_vector(v)}, _fact(row[6]))
            for row, v in zip(rows, vectors, strict=True)
        ]
        self._shard.update(edge.UpdateOperation.upsert_points(points))

    async def analyse(self) -> None:
        """Count the rows of every table, as the server itself does within a minute."""
        await self._connection.execute("ANALYZE")


def _fact(content: str) -> dict[str, Any]:
    return {"content": content, "tenant": "acme", "scope": "user:ada", "type": "fact", "tags": ["bench"]}


def _row(content: str, vector: bytes | None) -> tuple[Any, ...]:
    return (
        str(uuid.uuid4()),
        "acme",
        "user:ada",
        datetime.now(UTC),
        "fact",
        json.dumps({"tags": ["bench"]}),
        content,
        vector,
    )


@contextlib.asynccontextmanager
async def stores_by_hand(placing: Placing) -> AsyncIterator[ByHand | None]:
    """Only beside Redis, PostgreSQL and Edge; None elsewhere."""
    if placing.name != "redis-postgres-edge":
        yield None
        return
    import asyncpg
    import qdrant_edge as edge
    from redis.asyncio import Redis

    from bench.postgresql import CREATE, SCHEMA

    redis = Redis(port=redis_servers.durable().port)
    connection = await asyncpg.connect(**postgres_servers.container().settings)
    await connection.execute(f"CREATE SCHEMA {SCHEMA}; {CREATE}")
    with tempfile.TemporaryDirectory(prefix="by-hand-") as folder:
        dense = edge.EdgeVectorParams(size=DIMENSIONS, distance=edge.Distance.Dot)
        shard = edge.EdgeShard.create(folder, edge.EdgeConfig(vectors={"dense": dense}, wal_enabled=True))
        for field in ("tenant", "scope", "type"):
            shard.update(edge.UpdateOperation.create_field_index(field, edge.PayloadSchemaType.Keyword))
        try:
            yield ByHand(redis, connection, shard)
        finally:
            shard.close()
            await connection.execute(f"DROP SCHEMA {SCHEMA} CASCADE")
            await connection.close()
            await redis.delete("by-hand")
            await redis.aclose()
