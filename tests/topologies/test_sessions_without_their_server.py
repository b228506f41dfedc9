"""The server of a conversation dies: its window is shown as it was last seen, marked
so; nothing else is, and nothing acknowledged is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memory import Memory, StoreUnavailable
from memory.domain.session import Context
from tests.acceptance.support import Clock
from tests.support import mongo_servers, mysql_servers, postgres_servers
from tests.support.backends import marks_of
from tests.support.depth import beyond
from tests.support.placings import STORIES, Placing, forget

SERVERS: dict[str, Callable[[], Any]] = {
    "redis-postgres-edge": postgres_servers.container,
    "redis-mongo-edge": mongo_servers.replica_set,
    "mariadb-only": mysql_servers.container,
}


def said(context: Context) -> list[str]:
    return [message.text for message in context.messages]


@pytest.mark.parametrize(
    "placing",
    [
        pytest.param(
            p, id=p.name, marks=[*marks_of(*p.backends), *beyond(p.name, {"redis-postgres-edge"}, ())]
        )
        for p in STORIES
        if p.name in SERVERS
    ],
)
async def test_the_window_is_shown_while_the_server_is_dead(placing: Placing, tmp_path: Path) -> None:
    server = SERVERS[placing.name]
    async with Memory(
        {**placing.config(tmp_path), "embedder": "none", "durations": {"sweep_every": "0s"}}, clock=Clock()
    ) as memory:
        session = memory.session("s1", system="You are kind.")
        await session.append([{"role": "user", "content": "hello"}, {"role": "assistant", "content": "well"}])
        before = await session.context()
        server().kill()
        try:
            for handle in (session, memory.session("s1")):
                context = await handle.context()
                assert said(context) == said(before) == ["You are kind.", "hello", "well"]
                assert context.degraded
                assert "the result shows the session as this process last read it" in context.degraded[0]
            with pytest.raises(StoreUnavailable):
                await session.append({"role": "user", "content": "lost", "id": "u2"})
            with pytest.raises(StoreUnavailable):
                await session.history()
        finally:
            server().revive()
        await session.append({"role": "user", "content": "again", "id": "u2"})
        after = await session.context()
        assert (said(after), after.degraded) == ([*said(before), "again"], [])
    forget(tmp_path)
