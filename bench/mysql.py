"""The SQL adapter on MariaDB or MySQL beside bare asyncmy on one held connection, on
the same server; see `bench.beside`.

Like the adapter raw uses prepared statements and lets each statement commit itself; its
searched table has a FULLTEXT index.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.beside import HERE, NEWEST, bulk, newest, puts
from bench.measure import Figure
from memory.adapters.sql.mysql.config import parse
from memory.adapters.sql.mysql.connection import Connection, connect
from memory.adapters.sql.mysql.store import MySqlStore
from memory.domain.time import micros
from memory.orchestrator.storage.kinds import KINDS
from memory.ports.record import Record
from tests.support import mysql_servers, servers

DATABASE = "memory_bench"
COLUMNS = """(id VARBINARY(100) PRIMARY KEY, tenant VARBINARY(100) NOT NULL, scope VARBINARY(100) NOT NULL, created_at BIGINT NOT NULL,
type VARCHAR(100), body JSON NOT NULL, content TEXT, vector BLOB, KEY (tenant, scope, created_at){0}) ENGINE=InnoDB CHARACTER SET utf8mb4"""
ROWS = 100
"""Rows of one statement of the bare bulk write."""
FIND = f"SELECT * FROM raw WHERE tenant = ? AND scope = ? ORDER BY created_at DESC, id DESC LIMIT {NEWEST}"  # noqa: S608


def insert(table: str, rows: int = 1) -> str:
    return f"INSERT INTO {table} VALUES {', '.join(['(?, ?, ?, ?, ?, ?, ?, ?)'] * rows)}"  # noqa: S608


class BareAsyncmy:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def put(self, record: Record) -> None:
        await self._connection.change(insert("raw"), *_row(record))

    async def newest(self) -> Sequence[object]:
        rows = await self._connection.fetch(FIND, HERE.tenant, HERE.scope)
        return [
            {
                "id": r[0].decode(),
                "at": r[3],
                "body": json.loads(r[5]),
                "content": r[6].decode(),
                "vector": r[7],
            }
            for r in rows
        ]

    async def fill(self, records: Sequence[Record], *, found: bool) -> None:
        await self._connection.begin()
        for at in range(0, len(records), ROWS):
            some = records[at : at + ROWS]
            await self._connection.change(
                insert("raw_found" if found else "raw", len(some)),
                *[value for r in some for value in _row(r)],
            )
        await self._connection.commit()


def _row(record: Record) -> tuple[Any, ...]:
    body = json.dumps(dict(record.body))
    at = micros(record.created_at)
    return (
        f"raw-{record.key.id}",
        HERE.tenant,
        record.scope,
        at,
        "fact",
        body,
        record.texts["content"],
        record.vector,
    )


async def mysql(folder: Path, rounds: int) -> list[Figure]:
    if reason := servers.missing("mysql"):
        return [Figure("MySQL, put, newest 20 and bulk", None, "ms", note=reason)]
    server, name = mysql_servers.container(), mysql_servers.product()
    await server.fresh(DATABASE)
    store = MySqlStore(server.url(DATABASE))
    connection = await connect(parse("bare", server.url(DATABASE), {}))
    try:
        await store.open(KINDS.collections)
        await connection.tell(f"CREATE TABLE raw {COLUMNS.format('')}")
        await connection.tell(f"CREATE TABLE raw_found {COLUMNS.format(', FULLTEXT KEY (content)')}")
        bare = BareAsyncmy(connection)
        return [
            await puts(name, store, bare, rounds),
            await newest(name, store, bare, rounds),
            *await bulk(name, store, bare, rounds),
        ]
    finally:
        await store.close()
        await connection.goodbye()
        await server.drop(DATABASE)
