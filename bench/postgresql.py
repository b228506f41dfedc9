"""The SQL adapter on PostgreSQL beside bare asyncpg on one held connection, on the same
server; see `bench.beside`.

Raw uses prepared statements; its searched table has a generated tsvector and a GIN
index over it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncpg

from bench.beside import HERE, NEWEST, bulk, newest, puts
from bench.measure import Figure
from memory.adapters.sql.postgresql.store import PostgresStore
from memory.orchestrator.storage.kinds import KINDS
from memory.ports.record import Record
from tests.support import postgres_servers, servers

SCHEMA = "memory_bench"
CREATE = f"""CREATE TABLE {SCHEMA}.raw (id text PRIMARY KEY, tenant text NOT NULL, scope text NOT NULL, created_at timestamptz NOT NULL, type text,
body jsonb NOT NULL, content text, vector bytea);
CREATE INDEX ON {SCHEMA}.raw (tenant, scope, created_at);
CREATE TABLE {SCHEMA}.raw_found (LIKE {SCHEMA}.raw INCLUDING ALL, words tsvector GENERATED ALWAYS AS (to_tsvector('english', content)) STORED);
CREATE INDEX ON {SCHEMA}.raw_found USING gin (words)"""
INSERT = f"INSERT INTO {SCHEMA}.raw VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"  # noqa: S608
INSERT_FOUND = INSERT.replace(".raw ", ".raw_found ")
FIND = f"SELECT * FROM {SCHEMA}.raw WHERE tenant = $1 AND scope = $2 ORDER BY created_at DESC, id DESC LIMIT {NEWEST}"  # noqa: S608


class BareAsyncpg:
    def __init__(self, connection: asyncpg.Connection[Any]) -> None:
        self._connection = connection

    async def put(self, record: Record) -> None:
        await self._connection.execute(INSERT, *_row(record))

    async def newest(self) -> Sequence[object]:
        rows = await self._connection.fetch(FIND, HERE.tenant, HERE.scope)
        return [{**row, "body": json.loads(row["body"])} for row in rows]

    async def fill(self, records: Sequence[Record], *, found: bool) -> None:
        await self._connection.executemany(INSERT_FOUND if found else INSERT, [_row(r) for r in records])


def _row(record: Record) -> tuple[Any, ...]:
    body = json.dumps(dict(record.body))
    return (
        f"raw-{record.key.id}",
        HERE.tenant,
        record.scope,
        record.created_at,
        "fact",
        body,
        record.texts["content"],
        record.vector,
    )


async def postgresql(folder: Path, rounds: int) -> list[Figure]:
    if reason := servers.missing("postgres"):
        return [Figure("PostgreSQL, put, newest 20 and bulk", None, "ms", note=reason)]
    server, name = postgres_servers.container(), "PostgreSQL"
    store = PostgresStore(server.url(SCHEMA))
    connection = await asyncpg.connect(**server.settings)
    try:
        await store.open(KINDS.collections)
        await connection.execute(CREATE)
        bare = BareAsyncpg(connection)
        put = await puts(name, store, bare, rounds)
        await connection.execute(
            f"ANALYZE {SCHEMA}.raw; ANALYZE {SCHEMA}.memory_entries"
        )  # as the server itself does within a minute
        return [put, await newest(name, store, bare, rounds), *await bulk(name, store, bare, rounds)]
    finally:
        await store.close()
        await connection.execute(f"DROP SCHEMA {SCHEMA} CASCADE")
        await connection.close()
