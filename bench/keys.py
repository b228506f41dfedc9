"""What an address by scope and key costs: a read beside the driver's own by primary key,
a keyed write beside an update, and many keyed writes in one call beside the driver's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from bench.measure import Figure, side_by_side
from bench.placed import on_each
from bench.texts import sentences
from memory import Memory, Scope
from tests.support import mongo_servers, postgres_servers
from tests.support.placings import ORDINARY, Placing

NAMES = ("default", "postgres-only", "redis-postgres-edge", "mongo-only")
HELD, CALLS = 1_000, 200
ADA = Scope.user("ada")
AT_ONCE, ROUNDS = 500, 6
Rows = dict[str, str]
Read = Callable[[str], Awaitable[object]]
Upsert = Callable[[Rows], Awaitable[object]]
"""Stores texts under their keys, whether there are some or not, in one step."""


async def keys(folder: Path, rounds: int) -> list[Figure]:
    named = (p for name in NAMES for p in ORDINARY if p.name == name)
    return await on_each(named, folder, "keys", lambda placing, place: _on(placing, place))


async def _on(placing: Placing, folder: Path) -> list[Figure]:
    contents = sentences(HELD + 4 * CALLS + 2 * ROUNDS * AT_ONCE, seed=21)
    names = [f"note {n}" for n in range(HELD)]
    async with (
        Memory(placing.config(folder) | {"durations": {"sweep_every": 0}}) as memory,
        _raw(placing, folder, dict(zip(names, contents, strict=False))) as (read, upsert),
    ):
        drafts = [{"content": c, "scope": ADA, "key": k} for k, c in zip(names, contents, strict=False)]
        await memory.write_many(drafts)
        spare = iter(contents[HELD:])

        def get(number: int) -> Awaitable[object]:
            return memory.get(scope=ADA, key=names[number % HELD])

        def bare(number: int) -> Awaitable[object]:
            return read(names[number % HELD])

        def replace(number: int) -> Awaitable[object]:
            return memory.write(next(spare), scope=ADA, key=names[number], if_exists="replace")

        def update(number: int) -> Awaitable[object]:
            return memory.update(scope=ADA, key=names[-1 - number], content=next(spare))

        def replace_many(number: int) -> Awaitable[object]:
            some = [{"content": next(spare), "scope": ADA, "key": name} for name in names[:AT_ONCE]]
            return memory.write_many(some, if_exists="replace")

        def bare_many(number: int) -> Awaitable[object]:
            return upsert({name: next(spare) for name in names[:AT_ONCE]})

        await side_by_side(20, get, bare)
        ours, raw = await side_by_side(CALLS, get, bare)
        await side_by_side(10, replace, update)
        replacing, updating = await side_by_side(CALLS, replace, update)
        many, many_raw = await side_by_side(ROUNDS, replace_many, bare_many)
    return [
        Figure(f"{placing.name}: get(scope, key)", ours * 1000, "ms", raw=raw * 1000, ratio_target=2.0),
        Figure(
            f"{placing.name}: keyed write, if_exists='replace', beside update",
            replacing * 1000,
            "ms",
            raw=updating * 1000,
            ratio_target=1.2,
        ),
        Figure(
            f"{placing.name}: write_many(if_exists='replace') of {AT_ONCE}, per entry",
            many / AT_ONCE * 1000,
            "ms",
            raw=many_raw / AT_ONCE * 1000,
        ),
    ]


@contextlib.asynccontextmanager
async def _raw(placing: Placing, folder: Path, texts: Rows) -> AsyncIterator[tuple[Read, Upsert]]:
    """A read of a JSON text by its primary key and an upsert of many, with the driver of
    the mid tier.
    """

    def rows_of(some: Rows) -> list[tuple[str, str]]:
        return [(name, json.dumps({"content": text, "scope": "user:ada"})) for name, text in some.items()]

    rows = dict(rows_of(texts))
    if placing.name == "default":
        with contextlib.closing(sqlite3.connect(folder / "raw.db", check_same_thread=False)) as file:
            file.execute("CREATE TABLE raw (key TEXT PRIMARY KEY, body TEXT) WITHOUT ROWID")
            file.executemany("INSERT INTO raw VALUES (?, ?)", rows.items())

            def look(name: str) -> Any:
                return json.loads(file.execute("SELECT body FROM raw WHERE key = ?", (name,)).fetchone()[0])

            def store(some: Rows) -> None:
                with file:
                    file.executemany(
                        "INSERT INTO raw VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET body = excluded.body",
                        rows_of(some),
                    )

            yield lambda name: asyncio.to_thread(look, name), lambda some: asyncio.to_thread(store, some)
    elif placing.name == "mongo-only":
        from pymongo import AsyncMongoClient, ReplaceOne

        server, name = mongo_servers.replica_set(), f"raw_{uuid.uuid4().hex[:8]}"
        client: Any = AsyncMongoClient(server.url("admin"))
        try:
            await client[name].raw.insert_many([{"_id": key, "body": body} for key, body in rows.items()])

            def replace(some: Rows) -> Awaitable[object]:
                writes = [ReplaceOne({"_id": k}, {"body": body}, upsert=True) for k, body in rows_of(some)]
                done: Awaitable[object] = client[name].raw.bulk_write(writes)
                return done

            yield lambda key: client[name].raw.find_one({"_id": key}), replace
        finally:
            await client.drop_database(name)
            await client.close()
    else:
        import asyncpg

        connection = await asyncpg.connect(**postgres_servers.container().settings)
        table = f"raw_{uuid.uuid4().hex[:8]}"
        try:
            await connection.execute(f"CREATE TABLE {table} (key TEXT PRIMARY KEY, body JSONB)")
            await connection.executemany(f"INSERT INTO {table} VALUES ($1, $2)", list(rows.items()))  # noqa: S608

            def upsert(some: Rows) -> Awaitable[object]:
                text = f"INSERT INTO {table} VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET body = excluded.body"  # noqa: S608
                done: Awaitable[object] = connection.executemany(text, rows_of(some))
                return done

            yield lambda key: connection.fetchrow(f"SELECT body FROM {table} WHERE key = $1", key), upsert  # noqa: S608
        finally:
            await connection.execute(f"DROP TABLE {table}")
            await connection.close()
