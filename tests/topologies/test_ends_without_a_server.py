"""A server dies while a session is ended by hand: what could not be moved or copied is,
once, by sweeps of another process when it is back.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memory import Memory, PromotionRule, Scope
from tests.acceptance.support import Clock
from tests.support import mysql_servers, redis_servers
from tests.support.backends import marks_of
from tests.support.placings import STORIES, _mariadb, forget

RULES = (
    PromotionRule(name="known", on="session_end", to_scope="user"),
    PromotionRule(name="onward", on="session_end", source="short", target="long"),
)
SESSION, ADA = Scope.session("s1"), Scope.user("ada")


def _long_in_mariadb(folder: Path) -> dict[str, Any]:
    main = f"sqlite:///{folder / 'memory.db'}"
    return {"tiers": {"short": main, "mid": main, "long": _mariadb()}}


CASES = [
    pytest.param(lambda folder: next(p for p in STORIES if p.name == "redis-postgres-edge").config(folder), redis_servers.durable, id="from Redis",
                 marks=marks_of("redis", "postgresql", "qdrant_edge")),
    pytest.param(_long_in_mariadb, mysql_servers.container, id="to MariaDB", marks=[*marks_of("mariadb"), pytest.mark.nightly]),
]  # fmt: skip


@pytest.mark.parametrize("spoken", [True, False], ids=["a conversation", "entries alone"])
@pytest.mark.parametrize(("config", "server"), CASES)
async def test_what_waited_for_a_server_is_done_once_it_is_back(
    config: Any, server: Any, spoken: bool, tmp_path: Path
) -> None:
    given: dict[str, Any] = {**config(tmp_path), "embedder": "none", "durations": {"sweep_every": "0s"}}
    clock = Clock()

    def opened() -> Memory:
        return Memory(given, clock=clock, promotion=RULES if spoken else RULES[1:])

    async with opened() as memory:
        if spoken:
            await memory.session("s1", user="ada").append({"role": "user", "content": "hello"})
        entries = [await memory.write(f"Ada said {number}", scope=SESSION) for number in range(3)]
        await memory.admin.sweep()
        server().kill()
        try:
            report = await memory.sessions.end("s1")
            assert report.waiting
            assert report.moved == []
            assert (await memory.admin.sweep()).pending_steps
        finally:
            server().revive()
    async with opened() as memory:
        assert {one.action for one in (await memory.admin.plan()).planned} == (
            {"copy", "move"} if spoken else {"move"}
        )
        await memory.admin.sweep()
        tiers = {entry.id: entry.tier async for entry in memory.entries.iterate(scope=SESSION)}
        assert tiers == dict.fromkeys([entry.id for entry in entries], "long")
        copies = [entry async for entry in memory.entries.iterate(scope=ADA)]
        assert len(copies) == (3 if spoken else 0)
        for copy in copies:
            await memory.delete(copy.id)
        assert (await memory.admin.sweep()).pending_steps == 0
        assert [entry async for entry in memory.entries.iterate(scope=ADA)] == []
    forget(tmp_path)
