"""The SQL adapter on PostgreSQL beside bare asyncpg on one held connection, on the same server: one put, the newest twenty, a bulk write.

Raw is what one writes without a library: a plain table with the index that browsing needs, and for the bulk write also one whose words are found.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import asyncpg
import numpy

from bench.measure import Figure, side_by_side
from bench.texts import sentences
from memory.adapters.sql.postgresql.store import PostgresStore
from memory.domain.ids import new_id
from memory.domain.time import moment
from memory.ports.collections import COLLECTIONS, ENTRIES
from memory.ports.query import Order, Query, within
from memory.ports.record import Key, Partition, Record
from memory.ports.writes import Absent, Put
from tests.support import postgres_servers, servers

SCHEMA = "memory_bench"
HERE = Partition("acme", "user:ada")
DIMENSIONS = 256
BULK, AT_ONCE = 10_000, 500

CREATE = f"""CREATE TABLE {SCHEMA}.raw (id text PRIMARY KEY, tenant text NOT NULL, scope text NOT NULL, created_at timestamptz NOT NULL, type text,
body jsonb NOT NULL, content text, vector bytea);
CREATE INDEX ON {SCHEMA}.raw (tenant, scope, created_at);
CREATE TABLE {SCHEMA}.raw_found (LIKE {SCHEMA}.raw INCLUDING ALL, words tsvector GENERATED ALWAYS AS (to_tsvector('english', content)) STORED);
CREATE INDEX ON {SCHEMA}.raw_found USING gin (words)"""
INSERT = f"INSERT INTO {SCHEMA}.raw VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"  # noqa: S608
INSERT_FOUND = INSERT.replace(".raw ", ".raw_found ")
NEWEST = f"SELECT * FROM {SCHEMA}.raw WHERE tenant = $1 AND scope = $2 ORDER BY created_at DESC, id DESC LIMIT 20"  # noqa: S608

numbers = numpy.random.default_rng(7)


def records(contents: list[str], start: int) -> list[Record]:
    made = []
    for n, content in enumerate(contents, start):
        at = moment(1_800_000_000_000_000 + n * 1_000)
        vector = numbers.standard_normal(DIMENSIONS).astype("<f4").tobytes()
        key = Key(HERE.tenant, new_id(HERE.tenant, HERE.scope, n * 1_000))
        body = {"metadata": {"n": n, "from": "bench"}}
        made.append(Record(key, HERE.scope, n, at, at, fields={"type": "fact"}, body=body, texts={"content": content}, vector=vector))
    return made


def bare_row(record: Record) -> tuple[Any, ...]:
    body = json.dumps(dict(record.body))
    return (f"raw-{record.key.id}", HERE.tenant, record.scope, record.created_at, "fact", body, record.texts["content"], record.vector)


async def postgresql(folder: Path, rounds: int) -> list[Figure]:
    if reason := servers.missing("postgres"):
        return [Figure("PostgreSQL, put, newest 20 and bulk", None, "ms", note=reason)]
    server = postgres_servers.container()
    store = PostgresStore(server.url(SCHEMA))
    bare = await asyncpg.connect(**server.settings)
    try:
        await store.open(COLLECTIONS)
        await bare.execute(CREATE)
        return [await puts(store, bare, rounds), await newest(store, bare, rounds), *await bulk(store, bare, rounds)]
    finally:
        await store.close()
        await bare.execute(f"DROP SCHEMA {SCHEMA} CASCADE")
        await bare.close()


async def puts(store: PostgresStore, bare: asyncpg.Connection[Any], rounds: int) -> Figure:
    count = 300 * rounds + 50
    made = records(sentences(count, seed=1), 0)

    async def ours(n: int) -> None:
        (outcome,) = await store.apply([Put(ENTRIES, made[n], Absent())])
        assert outcome.applied

    async def raw(n: int) -> None:
        await bare.execute(INSERT, *bare_row(made[n]))

    await side_by_side(50, ours, raw)
    ours_s, raw_s = await side_by_side(300 * rounds, lambda n: ours(n + 50), lambda n: raw(n + 50))
    return Figure("PostgreSQL, one put", ours_s * 1000, "ms", raw=raw_s * 1000, ratio_target=2.5)


async def newest(store: PostgresStore, bare: asyncpg.Connection[Any], rounds: int) -> Figure:
    query = Query(ENTRIES, within(HERE), order=(Order("created_at", True),), limit=20)

    async def ours(_: int) -> None:
        assert len((await store.query(query)).records) == 20

    async def raw(_: int) -> None:
        rows = await bare.fetch(NEWEST, HERE.tenant, HERE.scope)
        assert len([{**row, "body": json.loads(row["body"])} for row in rows]) == 20

    await bare.execute(f"ANALYZE {SCHEMA}.raw; ANALYZE {SCHEMA}.entries")  # as the server itself does within a minute
    await side_by_side(20, ours, raw)
    ours_s, raw_s = await side_by_side(300 * rounds, ours, raw)
    return Figure("PostgreSQL, the 20 newest of a partition", ours_s * 1000, "ms", raw=raw_s * 1000, ratio_target=2)


async def bulk(store: PostgresStore, bare: asyncpg.Connection[Any], rounds: int) -> list[Figure]:
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
        for sql, rates in ((INSERT, raw), (INSERT_FOUND, found)):
            begun = time.perf_counter()
            for start in range(0, BULK, AT_ONCE):
                await bare.executemany(sql, [bare_row(r) for r in made[start : start + AT_ONCE]])
            rates.append(BULK / (time.perf_counter() - begun))
    name, rate = f"PostgreSQL, bulk write, {AT_ONCE} at once", median(ours)
    return [
        Figure(f"{name}, raw with a full-text index", rate, "records/s", median(found) / 2, at_least=True, raw=median(found)),
        Figure(f"{name}, raw without one", rate, "records/s", raw=median(raw)),
    ]
