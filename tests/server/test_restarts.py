"""Servers that restart, and servers whose stores restart, under load: nothing that was
acknowledged is lost, and every other request gets an answer that says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.load import Load, connected, key_headers
from tests.server.serving import (
    LOADED,
    Server,
    check_health,
    create_key,
    serving,
    toml_of,
)
from tests.support import postgres_servers, redis_servers
from tests.support.backends import marks_of
from tests.support.placings import OF_SERVERS, STORIES, forget

WITH_EDGE = STORIES[0]
pytestmark = [*marks_of(*WITH_EDGE.backends), pytest.mark.nightly]
GRACE = ("--grace", "100s")


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with connected() as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    forget(tmp_path)


async def restart(servers: list[Server], number: int, *asked: Any, **given: Any) -> None:
    """Stop a server as an operator does, and start it again."""
    assert await asyncio.to_thread(servers[number].end) == 0
    servers[number] = await asyncio.to_thread(lambda: Server(*asked, **given))


@pytest.mark.parametrize("place", [OF_SERVERS, WITH_EDGE], ids=lambda one: str(one.name))
async def test_a_rolling_restart_under_load_loses_no_acknowledged_request(
    place: Any, folder: Path, http: httpx.AsyncClient
) -> None:
    """Each request is sent once, without an id: it was carried out or it was refused."""
    config = toml_of(folder, place.config(folder))
    key = create_key(folder, config, "writer")
    given: dict[str, Any] = {"config": config, "dev": False, **LOADED}
    servers = [Server(folder, *GRACE, **given) for _ in range(2 if place is OF_SERVERS else 1)]
    try:
        load = Load(http, [one.url for one in servers], key, repeats=False)
        running = asyncio.create_task(load.run())
        for number in (0, len(servers) - 1):
            await load.reaches(150)
            await restart(servers, number, folder, *GRACE, **given)
            load.urls[number] = servers[number].url
        await load.reaches(150)
        load.end()
        await running
        await load.check(whole=True)
        assert load.breaks, "no request came while a server was away"
    finally:
        for one in servers:
            await asyncio.to_thread(one.end)
    await asyncio.to_thread(check_health, folder, config)


@pytest.mark.parametrize(
    "store", [redis_servers.durable, postgres_servers.container], ids=["redis", "postgresql"]
)
async def test_an_outage_of_a_store_under_load_is_told_and_costs_no_acknowledged_request(
    store: Callable[[], Any], folder: Path, http: httpx.AsyncClient
) -> None:
    config = toml_of(folder, WITH_EDGE.config(folder))
    key = create_key(folder, config, "operator")
    with serving(folder, config=config, dev=False, **LOADED) as server:
        load = Load(http, [server.url], key, repeats=False)
        running = asyncio.create_task(load.run())
        for _ in range(2):
            await load.reaches(100)
            await asyncio.to_thread(store().kill)
            try:
                await load.is_refused(30)
                ready = await http.get(f"{server.url}/health/ready")
                assert (ready.status_code, ready.json()["away"]) == (503, [])
                assert (await http.get(f"{server.url}/health/live")).status_code == 200
            finally:
                await asyncio.to_thread(store().revive)
            await load.reaches(100)
        load.end()
        await running
        await load.check(whole=False)
        ready = await http.get(f"{server.url}/health/ready", headers=key_headers(key))
        assert (ready.status_code, ready.json()["away"]) == (200, [])
        assert load.refused.keys() == {(503, code) for _, code in load.refused}
        assert server.end() == 0
    await asyncio.to_thread(check_health, folder, config)


async def test_a_second_server_of_an_edge_folder_is_not_ready_and_loses_nothing(
    folder: Path, http: httpx.AsyncClient
) -> None:
    """It works without the store of tier `long`, which the first server holds."""
    config = toml_of(folder, WITH_EDGE.config(folder))
    operator = create_key(folder, config, "operator")
    given: dict[str, Any] = {"config": config, "dev": False, **LOADED}
    with serving(folder, **given) as first, serving(folder, **given) as second:
        key = create_key(folder, config, "writer")  # beside them
        for server, status, away in ((first, 200, []), (second, 503, ["qdrant+edge"])):
            ready = await http.get(f"{server.url}/health/ready", headers=key_headers(operator))
            assert (ready.status_code, ready.json()["away"]) == (status, away)
        load = Load(http, [first.url, second.url], key, repeats=True)
        running = asyncio.create_task(load.run())
        await load.reaches(150)
        load.end()
        await running
        await load.check(whole=True)
        assert second.end() == first.end() == 0
    await asyncio.to_thread(check_health, folder, config)
