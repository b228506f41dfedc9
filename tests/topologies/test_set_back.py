"""Redis, PostgreSQL or Edge is set back alone under a whole memory, by their own means:
it is named, and healed, or what is lost is named.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from memory import Memory
from memory.facade.runtime.access import engine_of
from tests.acceptance.support import Clock
from tests.support import placings, postgres_servers, redis_servers
from tests.support.backends import marks_of
from tests.support.set_back import SCOPES, History, missing, wrong

pytestmark = marks_of("redis", "postgresql", "qdrant_edge")

_COLUMNS = """SELECT column_name FROM information_schema.columns
WHERE table_schema = 'topology' AND table_name = $1 AND is_generated = 'NEVER'"""

SetBack = Callable[[], Awaitable[None]]


@pytest.fixture
def config(tmp_path: Path) -> Iterator[dict[str, Any]]:
    (whole,) = [placing for placing in placings.PLACINGS if placing.name == "redis-postgres-edge"]
    urls = whole.config(tmp_path)["tiers"]
    stores = {tier: {"url": url} for tier, url in urls.items()}
    yield {
        "stores": stores,
        "tiers": {tier: tier for tier in stores},
        "embedder": "none",
        "durations": {"sweep_every": "0s"},
    }
    placings.forget(tmp_path)


async def backup_of(tier: str, config: dict[str, Any], tmp_path: Path) -> SetBack:
    """Keep what a store holds now; awaiting what is returned takes it back to that."""
    url = config["stores"][tier]["url"]
    match tier:
        case "short":
            return await asyncio.to_thread(_keys, url)
        case "mid":
            return await _tables()
        case _:
            return await asyncio.to_thread(_folder, Path(urlsplit(url).path), tmp_path / "backup")


def _keys(url: str) -> SetBack:
    import redis

    prefix = parse_qs(urlsplit(url).query)["prefix"][0]
    port = redis_servers.durable().port
    with redis.Redis(port=port) as client:
        kept = {key: client.dump(key) for key in client.keys(f"*{prefix}*")}
    assert kept

    def restore() -> None:
        with redis.Redis(port=port) as client:
            for key in client.keys(f"*{prefix}*"):
                client.delete(key)
            for key, value in kept.items():
                client.restore(key, 0, value)

    return lambda: asyncio.to_thread(restore)


async def _tables() -> SetBack:
    import asyncpg

    settings = postgres_servers.container().settings
    connection = await asyncpg.connect(**settings)
    names = [
        row["tablename"]
        for row in await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'topology'")
    ]
    await connection.execute("DROP SCHEMA IF EXISTS topology_backup CASCADE; CREATE SCHEMA topology_backup")
    for name in names:
        await connection.execute(f'CREATE TABLE topology_backup."{name}" AS TABLE topology."{name}"')
    await connection.close()

    async def restore() -> None:
        connection = await asyncpg.connect(**settings)
        for name in names:
            columns = await connection.fetch(_COLUMNS, name)
            listed = ", ".join(f'"{row["column_name"]}"' for row in columns)
            await connection.execute(f'DELETE FROM topology."{name}"')  # noqa: S608
            await connection.execute(
                f'INSERT INTO topology."{name}" ({listed}) SELECT {listed} FROM topology_backup."{name}"'  # noqa: S608
            )
        await connection.execute("DROP SCHEMA topology_backup CASCADE")
        await connection.close()

    return restore


def _folder(place: Path, backup: Path) -> SetBack:
    shutil.copytree(place, backup)

    def restore() -> None:
        shutil.rmtree(place)
        shutil.move(backup, place)  # which may be on another disk

    return lambda: asyncio.to_thread(restore)


@pytest.mark.parametrize("tier", ["short", "mid", "long"])
async def test_a_store_set_back_alone_is_named_and_healed_or_what_is_lost_is(
    tier: str, config: dict[str, Any], tmp_path: Path
) -> None:
    clock, drawn = Clock(datetime.now(UTC)), random.Random(len(tier))  # noqa: S311 - to repeat it
    async with Memory(config, clock=clock) as memory:
        history = History(memory, clock, drawn)
        await history.go_on(50)
        assert (await memory.admin.compare()).differs == {}, "nothing was set back"
    set_back, since = await backup_of(tier, config, tmp_path), clock()
    async with Memory(config, clock=clock) as memory:
        history.memory = memory
        await history.go_on(40)
        await history.erase(drawn.choice(SCOPES))
        await history.settle()
        assert await memory.admin.rolled_back_stores() == []
    await set_back()
    async with Memory(config, clock=clock) as memory:
        history.memory = memory
        assert [one.store for one in await memory.admin.rolled_back_stores()] == [tier]
        healed = await memory.admin.compare(repair=True)
        assert (healed.error, healed.left) == ("", [])
        assert healed.differs, "the backup was of before something"
        await history.settle()
        assert await wrong(engine_of(memory)) == []
        assert await missing(history, tier, since, {one.id for one in healed.lost}) == []
        assert await memory.admin.rolled_back_stores() == []
        assert (await memory.admin.compare()).differs == {}
