"""The SQL adapter on MariaDB or MySQL beside bare asyncmy on one held connection, on the same server: one put, the newest twenty, a bulk write.

Raw is what one writes without a library: a plain table with the index that browsing needs, and for the bulk write also one whose words are found.
Like the adapter it uses prepared statements and lets each statement commit itself.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from statistics import median
from typing import Any

from bench.measure import Figure, side_by_side
from bench.postgresql import AT_ONCE, BULK, HERE, records
from bench.texts import sentences
from memory.adapters.sql.mysql.claims import parse
from memory.adapters.sql.mysql.connection import Connection, connect
from memory.adapters.sql.mysql.store import MySqlStore
from memory.domain.time import micros
from memory.ports.collections import COLLECTIONS, ENTRIES
from memory.ports.query import Order, Query, within
from memory.ports.record import Record
from memory.ports.writes import Absent, Put
from tests.support import mysql_servers, servers

DATABASE = "memory_bench"
COLUMNS = """(id VARBINARY(100) PRIMARY KEY, tenant VARBINARY(100) NOT NULL, scope VARBINARY(100) NOT NULL, created_at BIGINT NOT NULL,
type VARCHAR(100), body JSON NOT NULL, content TEXT, vector BLOB, KEY (tenant, scope, created_at){0}) ENGINE=InnoDB CHARACTER SET utf8mb4"""
ROWS = 100
"""Rows of one statement of the bare bulk write."""


def insert(table: str, rows: int = 1) -> str:
    return f"INSERT INTO {table} VALUES {', '.join(['(?, ?, ?, ?, ?, ?, ?, ?)'] * rows)}"  # noqa: S608


NEWEST = "SELECT * FROM raw WHERE tenant = ? AND scope = ? ORDER BY created_at DESC, id DESC LIMIT 20"


def bare_row(record: Record) -> tuple[Any, ...]:
    body = json.dumps(dict(record.body))
    at = micros(record.created_at)
    return (f"raw-{record.key.id}", HERE.tenant, record.scope, at, "fact", body, record.texts["content"], record.vector)


async def mysql(folder: Path, rounds: int) -> list[Figure]:
    if reason := servers.missing("mysql"):
        return [Figure("MySQL, put, newest 20 and bulk", None, "ms", note=reason)]
    server, name = mysql_servers.container(), mysql_servers.product()
    await server.fresh(DATABASE)
    store = MySqlStore(server.url(DATABASE))
    bare = await connect(parse("bare", server.url(DATABASE), {}))
    try:
        await store.open(COLLECTIONS)
        await bare.tell(f"CREATE TABLE raw {COLUMNS.format('')}")
        await bare.tell(f"CREATE TABLE raw_found {COLUMNS.format(', FULLTEXT KEY (content)')}")
        return [await puts(name, store, bare, rounds), await newest(name, store, bare, rounds), *await bulk(name, store, bare, rounds)]
    finally:
        await store.close()
        await bare.goodbye()
        await server.drop(DATABASE)


async def puts(name: str, store: MySqlStore, bare: Connection, rounds: int) -> Figure:
    made = records(sentences(300 * rounds + 50, seed=1), 0)

    async def ours(n: int) -> None:
        (outcome,) = await store.apply([Put(ENTRIES, made[n], Absent())])
        assert outcome.applied

    async def raw(n: int) -> None:
        await bare.change(insert("raw"), *bare_row(made[n]))

    await side_by_side(50, ours, raw)
    ours_s, raw_s = await side_by_side(300 * rounds, lambda n: ours(n + 50), lambda n: raw(n + 50))
    return Figure(f"{name}, one put", ours_s * 1000, "ms", raw=raw_s * 1000, ratio_target=2.5)


async def newest(name: str, store: MySqlStore, bare: Connection, rounds: int) -> Figure:
    query = Query(ENTRIES, within(HERE), order=(Order("created_at", True),), limit=20)

    async def ours(_: int) -> None:
        assert len((await store.query(query)).records) == 20

    async def raw(_: int) -> None:
        rows = await bare.fetch(NEWEST, HERE.tenant, HERE.scope)
        shown = [{"id": r[0].decode(), "at": r[3], "body": json.loads(r[5]), "content": r[6].decode(), "vector": r[7]} for r in rows]
        assert len(shown) == 20

    await side_by_side(20, ours, raw)
    ours_s, raw_s = await side_by_side(300 * rounds, ours, raw)
    return Figure(f"{name}, the 20 newest of a partition", ours_s * 1000, "ms", raw=raw_s * 1000, ratio_target=2)


async def bulk(name: str, store: MySqlStore, bare: Connection, rounds: int) -> list[Figure]:
    """Against a bare table that is not searched, and against one whose words are found as ours are."""
    ours: list[float] = []
    raw: list[float] = []
    found: list[float] = []
    for round_ in range(rounds):
        made = records(sentences(BULK, seed=10 + round_), 100_000 * (round_ + 1))
        begun = time.perf_counter()
        for start in range(0, BULK, AT_ONCE):
            outcomes = await store.apply([Put(ENTRIES, r, Absent()) for r in made[start : start + AT_ONCE]])
            assert all(o.applied for o in outcomes)
        ours.append(BULK / (time.perf_counter() - begun))
        for table, rates in (("raw", raw), ("raw_found", found)):
            begun = time.perf_counter()
            for start in range(0, BULK, AT_ONCE):
                await bare.begin()
                for at in range(start, start + AT_ONCE, ROWS):
                    await bare.change(insert(table, ROWS), *[value for r in made[at : at + ROWS] for value in bare_row(r)])
                await bare.commit()
            rates.append(BULK / (time.perf_counter() - begun))
    label, rate = f"{name}, bulk write, {AT_ONCE} at once", median(ours)
    return [
        Figure(f"{label}, raw with a full-text index", rate, "records/s", median(found) / 2, at_least=True, raw=median(found)),
        Figure(f"{label}, raw without one", rate, "records/s", raw=median(raw)),
    ]
