"""Copies of windows on real servers: a process that has just begun is shown the same
window whatever becomes of its copy in Redis, and erasures leave none there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from memory import Memory
from memory.domain.message import Message
from memory.facade.runtime.access import engine_of
from memory.orchestrator.conversations.log import window_copies
from memory.orchestrator.conversations.log.seen import NEWEST
from memory.orchestrator.storage.collections import ARTIFACTS, MESSAGES
from memory.ports.query import Everywhere, Query
from memory.ports.record import Record, Role
from memory.ports.writes import Always, Put
from tests.support import redis_servers
from tests.support.backends import marks_of
from tests.support.depth import beyond
from tests.support.placings import STORIES, Placing, forget
from tests.support.servers import Server

SAID = 300
SERVERS: dict[str, Callable[[], Server]] = {
    "volatile-redis-postgres": redis_servers.default,
    "redis-postgres-edge": redis_servers.durable,
}


@pytest.fixture(
    params=[
        pytest.param(
            p, id=p.name, marks=[*marks_of(*p.backends), *beyond(p.name, {"volatile-redis-postgres"}, ())]
        )
        for p in STORIES
        if p.name in SERVERS
    ]
)
def placing(request: pytest.FixtureRequest) -> Placing:
    found: Placing = request.param
    return found


@asynccontextmanager
async def _session(
    placing: Placing, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[dict[str, Any]]:
    """A configuration that a session was written with, by a process that is closed."""
    monkeypatch.setattr(window_copies, "PATIENCE", 30.0)
    config = placing.config(folder) | {"embedder": "none", "durations": {"sweep_every": "0s"}}
    try:
        async with Memory(config) as memory:
            session = await memory.sessions.create("s1", user="ada", system="Be brief.")
            said = [{"role": "user", "content": f"text {n}", "id": f"m{n}"} for n in range(SAID)]
            await session.append(said)
        yield config
    finally:
        forget(folder)


async def _first(config: dict[str, Any]) -> tuple[list[Message], int]:
    """What a process that has just begun is shown, and how many messages it read at
    home. It leaves a copy.
    """
    async with Memory(config) as memory:
        home, read = engine_of(memory).topology.archive, 0
        get, query = home.get, home.query

        async def getting(collection: Any, keys: Any) -> Any:
            nonlocal read
            read += len(keys) if collection is MESSAGES else 0
            return await get(collection, keys)

        async def querying(asked: Query) -> Any:
            nonlocal read
            page = await query(asked)
            read += len(page.records) if asked.collection is MESSAGES else 0
            return page

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(home, "get", getting)
            patched.setattr(home, "query", querying)
            shown = (await memory.session("s1").context()).messages
    return shown, read


async def _copies(memory: Memory) -> list[Record]:
    """The copies in the store of the short tier."""
    asked = Query(ARTIFACTS, Everywhere(), roles=frozenset(Role), limit=10)
    page = await engine_of(memory).topology.serving["short"].query(asked)
    return [row for row in page.records if isinstance(row, Record)]


async def _kept(config: dict[str, Any]) -> list[Record]:
    async with Memory(config) as memory:
        return await _copies(memory)


def _texts(messages: list[Message]) -> list[str]:
    return [message.text for message in messages]


ALL = ["Be brief.", *(f"text {n}" for n in range(SAID))]


@pytest.mark.behaviour("B79", "B80")
async def test_a_first_window_is_the_same_whatever_becomes_of_its_copy(
    placing: Placing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _session(placing, tmp_path, monkeypatch) as config:
        alone, read = await _first(config)
        assert (_texts(alone), read >= SAID) == (ALL, True)
        shown, read = await _first(config)
        assert shown == alone
        assert read <= 2 * NEWEST, "valid: the rest is in the copy"

        async with Memory(config) as memory:
            session = memory.session("s1")
            await session.update("m1", content="edited")
            await session.append({"role": "assistant", "content": "an answer"})
        shown, read = await _first(config)
        assert _texts(shown) == [*ALL[:2], "edited", *ALL[3:], "an answer"], "stale"
        assert read <= 2 * NEWEST

        at = urlsplit(config["tiers"]["short"])
        prefix = parse_qs(at.query)["prefix"][0]
        (copy,) = await _kept(config)
        redis_servers.damage(at.port or 0, prefix, "artifacts", copy.key)
        assert _texts((await _first(config))[0])[-1] == "an answer", "damaged"

        async with Memory(config) as memory:
            other = replace(copy, generation=(copy.generation or 0) + 1)
            short = engine_of(memory).topology.serving["short"]
            (put,) = await short.apply([Put(ARTIFACTS, other, Always())])
            assert put.applied
        shown, read = await _first(config)
        assert (_texts(shown)[-1], read >= SAID) == ("an answer", True), "of another generation"

        async with Memory(config) as memory:
            await memory.session("s1").pop(1)
        redis_servers.emptied(at.port or 0)
        shown, read = await _first(config)
        assert (_texts(shown)[-1], read >= SAID) == (f"text {SAID - 1}", True), "lost"


@pytest.mark.thorough
async def test_a_first_window_is_shown_while_redis_is_down(
    placing: Placing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _session(placing, tmp_path, monkeypatch) as config:
        await _first(config)
        async with Memory(config) as memory:
            server = SERVERS[placing.name]()
            server.kill()
            try:
                context = await memory.session("s1").context()
            finally:
                server.revive()
        assert (_texts(context.messages), context.degraded) == (ALL, [])


@pytest.mark.thorough
@pytest.mark.parametrize("what", ["message", "session", "user", "tenant"])
async def test_an_erasure_leaves_no_copy_in_redis(
    placing: Placing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    async with _session(placing, tmp_path, monkeypatch) as config:
        await _first(config)
        async with Memory(config) as memory:
            assert len(await _copies(memory)) == 1
            match what:
                case "message":
                    assert await memory.session("s1").erase("m7")
                case "session":
                    assert await memory.session("s1").delete()
                case "user":
                    await memory.admin.erase_user("ada")
                case _:
                    receipt = await memory.admin.erase_tenant()
                    assert "artifacts" not in receipt.records, "a copy is no artifact"
            assert await _copies(memory) == []
        if what == "message":
            shown, _ = await _first(config)
            assert _texts(shown) == [text for text in ALL if text != "text 7"]


@pytest.mark.thorough
async def test_a_copy_is_in_no_export_and_no_report(
    placing: Placing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _session(placing, tmp_path, monkeypatch) as config:
        async with Memory(config) as memory:
            before = [line async for line in memory.admin.export()], await memory.admin.stats()
        await _first(config)
        async with Memory(config) as memory:
            assert len(await _copies(memory)) == 1
            assert ([line async for line in memory.admin.export()], await memory.admin.stats()) == before
            assert (await memory.admin.compare()).ok
            assert all(not audit.problems for audit in await memory.admin.audit())
            report = await memory.admin.sweep()
            assert (report.expired, report.finished, report.pending_steps, report.stays) == (0, 0, 0, ())
            assert len(await _copies(memory)) == 1
