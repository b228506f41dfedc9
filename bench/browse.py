"""A page of a tenant's entries by their last change, at the facade, beside a page of a
plain table through the same driver.

The plain table has the same entries under the index that browsing needs; its rows are
read as an application would, with their JSON taken apart.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.measure import Figure, side_by_side
from bench.placed import on_each
from bench.texts import sentences
from memory import Entry, Memory
from memory.adapters.sql.sqlite.config import SqliteConfig
from memory.adapters.sql.sqlite.connection import SqliteDriver
from memory.adapters.sql.sqlite.session import Session
from memory.domain.time import micros
from memory.ports.collections import Collection
from tests.support import postgres_servers
from tests.support.placings import ORDINARY, Placing

HELD, SCOPES, AT_ONCE = 100_000, 200, 500
PAGE = 50
CALLS = 100

COLUMNS = "tenant, id, scope, type, tags, content, metadata, created_at, updated_at, version"
CREATE = (
    "CREATE TABLE {table} (tenant text NOT NULL, id text PRIMARY KEY, scope text NOT NULL, type text, tags"
    " text, content text, metadata text, created_at bigint NOT NULL, updated_at bigint NOT NULL, version"
    " bigint NOT NULL)"
)
ORDER = "CREATE INDEX {name} ON {table} (tenant, updated_at, id)"
FIRST = "SELECT {columns} FROM {table} WHERE tenant = {0} ORDER BY updated_at DESC, id DESC LIMIT 50"
BEHIND = (
    "SELECT {columns} FROM {table} WHERE tenant = {0} AND (updated_at, id) < ({1}, {2}) ORDER BY updated_at"
    " DESC, id DESC LIMIT 50"
)

Read = Callable[..., Awaitable[Sequence[Sequence[Any]]]]


async def browse(folder: Path, rounds: int) -> list[Figure]:
    named = [placing for name in ("default", "postgres-only") for placing in ORDINARY if placing.name == name]
    return await on_each(
        named, folder, f"browse {PAGE} of {HELD:,}", lambda placing, place: _on(placing, place, rounds)
    )


async def _on(placing: Placing, folder: Path, rounds: int) -> list[Figure]:
    config = placing.config(folder) | {"durations": {"sweep_every": 0}, "embedder": "none"}
    async with Memory(config) as memory:
        texts, entries = sentences(HELD, seed=31), list[Entry]()
        for start in range(0, HELD, AT_ONCE):
            drafts = [
                {
                    "content": text,
                    "scope": f"user:u{n % SCOPES}",
                    "tags": ["bench", f"t{n % 50}"],
                    "metadata": {"n": n},
                }
                for n, text in enumerate(texts[start : start + AT_ONCE], start)
            ]
            entries += await memory.write_many(drafts)
        async with (_sqlite if placing.name == "default" else _postgres)(
            folder, [_row(memory.tenant, entry) for entry in entries]
        ) as (read, marks):
            first = FIRST.format(*marks, columns=COLUMNS, table="{table}")
            behind = BEHIND.format(*marks, columns=COLUMNS, table="{table}")
            page = await memory.browse(limit=PAGE)
            middle = entries[HELD // 2]
            deep = page
            return [
                await _beside(
                    f"{placing.name}: browse {PAGE} of {HELD:,}",
                    rounds,
                    lambda: memory.browse(limit=PAGE),
                    lambda: read(first, memory.tenant),
                ),
                await _beside(
                    f"{placing.name}: the {PAGE} behind those",
                    rounds,
                    lambda: memory.browse(limit=PAGE, cursor=deep.cursor),
                    lambda: read(behind, memory.tenant, micros(deep[-1].updated_at), deep[-1].id),
                ),
                await _beside(
                    f"{placing.name}: {PAGE} from the middle on",
                    rounds,
                    lambda: memory.browse(limit=PAGE, updated_before=middle.updated_at),
                    lambda: read(behind, memory.tenant, micros(middle.updated_at), ""),
                ),
                Figure(
                    f"{placing.name}: browse {PAGE} of one scope of {HELD // SCOPES}",
                    1000 * (await side_by_side(CALLS, lambda _: memory.browse("user:u1", limit=PAGE)))[0],
                    "ms",
                ),
            ]


async def _beside(
    name: str,
    rounds: int,
    ours: Callable[[], Awaitable[Sequence[Entry]]],
    raw: Callable[[], Awaitable[Sequence[Any]]],
) -> Figure:
    """The median of as many medians as there are rounds, each of both in turns."""

    async def entries(_: int) -> None:
        assert len(await ours()) == PAGE

    async def rows(_: int) -> None:
        found = [dict(zip(COLUMNS.split(", "), row, strict=True)) for row in await raw()]
        assert (
            len(
                [
                    row | {"tags": json.loads(row["tags"]), "metadata": json.loads(row["metadata"])}
                    for row in found
                ]
            )
            == PAGE
        )

    await side_by_side(20, entries, rows)
    taken = sorted(
        [await side_by_side(CALLS, entries, rows) for _ in range(rounds)], key=lambda both: both[0] / both[1]
    )
    ours_s, raw_s = taken[len(taken) // 2]
    return Figure(name, ours_s * 1000, "ms", raw=raw_s * 1000, ratio_target=2)


def _row(tenant: str, entry: Entry) -> tuple[Any, ...]:
    said = (json.dumps(entry.tags), entry.content, json.dumps(entry.metadata))
    return (
        tenant,
        entry.id,
        str(entry.scope),
        entry.type.value,
        *said,
        micros(entry.created_at),
        micros(entry.updated_at),
        entry.version,
    )


@asynccontextmanager
async def _sqlite(folder: Path, rows: Sequence[tuple[Any, ...]]) -> AsyncIterator[tuple[Read, Sequence[str]]]:
    def create(session: Session) -> Mapping[str, Collection]:
        session.run(CREATE.format(table="raw"))
        session.run(ORDER.format(name="raw_order", table="raw"))
        return {}

    def fill(session: Session) -> None:
        for row in rows:
            session.run(f"INSERT INTO raw ({COLUMNS}) VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608

    async def read(sql: str, *values: Any) -> Sequence[Sequence[Any]]:
        return await driver.read(lambda session: session.rows(sql.format(table="raw"), values))

    driver = SqliteDriver("raw", SqliteConfig(folder / "raw.db"))
    await driver.open(create, lambda _: {}, lambda _: None)
    try:
        await driver.write(fill)
        yield read, ("?", "?", "?")
    finally:
        await driver.close()


@asynccontextmanager
async def _postgres(_: Path, rows: Sequence[tuple[Any, ...]]) -> AsyncIterator[tuple[Read, Sequence[str]]]:
    import asyncpg

    table = f"topology.raw_{uuid.uuid4().hex}"
    connection = await asyncpg.connect(**postgres_servers.container().settings)

    async def read(sql: str, *values: Any) -> Sequence[Sequence[Any]]:
        found: Sequence[Sequence[Any]] = await connection.fetch(sql.format(table=table), *values)
        return found

    try:
        await connection.execute(CREATE.format(table=table))
        await connection.execute(ORDER.format(name=f"{table.split('.')[1]}_order", table=table))
        await connection.copy_records_to_table(table.split(".")[1], schema_name="topology", records=rows)
        await connection.execute(
            f"ANALYZE {table}; ANALYZE topology.entries"
        )  # as the server itself does within a minute
        yield read, ("$1", "$2", "$3")
    finally:
        await connection.execute(f"DROP TABLE IF EXISTS {table}")
        await connection.close()
