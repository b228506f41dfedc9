"""Which store serves which tier, chosen by configuration: unknown ones, drivers that
are not there, stores that fail to open, and who is closed.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from memory import Memory
from memory.adapters.in_memory import InMemoryStore
from memory.domain.errors import ConfigError, NotOpen, StoreUnavailable
from memory.facade.runtime.access import engine_of
from memory.orchestrator.storage.collections import ENTRIES, RELATIONS
from memory.orchestrator.storage.kinds import KINDS
from memory.orchestrator.storage.topology import Topology
from memory.ports.adapter import Adapter
from memory.ports.base import BaseStore
from memory.ports.query import Query, Tenant
from memory.ports.store import Store
from tests.acceptance.support import OTHER_USER, SESSION, USER

TIERS = ("short", "mid", "long")


def on(url: str) -> dict[str, Any]:
    return {"tiers": dict.fromkeys(TIERS, url), "embedder": "none"}


@pytest.mark.behaviour("B2", "AC-B01", "C55")
def test_an_unknown_kind_of_store_is_refused_when_the_memory_is_made_and_says_what_there_is() -> None:
    with pytest.raises(ConfigError, match="Unsupported memory store type: gopher") as refused:
        Memory(on("gopher://hole"))
    for scheme in ("redis", "postgresql", "qdrant+edge", "sqlite"):
        assert scheme in str(refused.value)


WITHOUT = """
import asyncio, sys
for name in ("redis", "asyncpg", "qdrant_client", "qdrant_edge"):
    sys.modules[name] = None  # as where it is not installed
from memory import Memory
from memory.domain.errors import ConfigError
async def main(url):
    memory = Memory({"tiers": dict.fromkeys(("short", "mid", "long"), url), "embedder": "none"})
    try:
        await memory.open()
    except ConfigError as error:
        print(url, error)
    await memory.close()
for url in sys.argv[1:]:
    asyncio.run(main(url))
"""


@pytest.mark.behaviour("B4", "AC-B03")
@pytest.mark.thorough
def test_a_missing_driver_is_named_with_what_to_install_and_closing_still_works(tmp_path: Path) -> None:
    missing = {
        "redis://127.0.0.1:1": ("redis", "redis"),
        "rediss+cluster://127.0.0.1:1": ("redis", "redis"),
        "postgresql://me@127.0.0.1:1/db": ("asyncpg", "postgresql"),
        "qdrant://127.0.0.1:1": ("qdrant_client", "qdrant"),
        "qdrant://:memory:": ("qdrant_client", "qdrant"),
        "qdrant+edge:///edge": ("qdrant_edge", "qdrant-edge"),
        "qdrant:///edge": ("qdrant_edge", "qdrant-edge"),
    }
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *missing],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    for url, (driver, extra) in missing.items():
        assert f"needs '{driver}'; run pip install 'memory-tiers[{extra}]'" in told[url], url


def _unwritten(name: str, url: str, options: Mapping[str, Any]) -> Store:
    raise NotImplementedError


PLANNED = Adapter(("gopher",), InMemoryStore("planned").capabilities, _unwritten, planned=True)


@pytest.mark.behaviour("B3")
async def test_a_memory_on_an_adapter_that_is_planned_is_made_and_says_so_when_it_is_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    point = EntryPoint("gopher", f"{__name__}:PLANNED", "memory.adapters")
    monkeypatch.setattr("memory.facade.runtime.build._adapter_entry_points", lambda: (point,))
    memory = Memory(on("gopher://hole"))
    with pytest.raises(ConfigError, match="the adapter for 'gopher' is planned, and not implemented yet"):
        await memory.open()
    await memory.close()


@pytest.mark.behaviour("B10")
async def test_a_memory_that_failed_to_open_is_not_open_and_can_be_opened_again(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    memory = Memory(on(f"sqlite:///{folder / 'memory.db'}"))
    with pytest.raises((ConfigError, StoreUnavailable)):
        await memory.open()
    with pytest.raises(NotOpen):
        await memory.retrieve(USER)
    await memory.close()
    folder.mkdir()
    await memory.open()
    assert await memory.retrieve(USER) == []
    await memory.close()


@pytest.mark.behaviour("B8", "B11", "AC-B05", "AC-B07")
async def test_tasks_that_share_one_memory_while_it_opens_all_find_it_open() -> None:
    memory = Memory(on("memory://"))
    with pytest.raises(NotOpen):
        await memory.write("too early", scope=USER)

    async def child(number: int) -> str:
        await memory.open()
        return (await memory.write(f"child {number}", scope=SESSION)).content

    assert await asyncio.gather(*(child(n) for n in range(10))) == [f"child {n}" for n in range(10)]
    assert len(await memory.retrieve(SESSION)) == 10
    await memory.close()


@pytest.mark.behaviour("B59", "B11", "AC-B37")
async def test_calls_that_begin_while_a_memory_opens_wait_until_it_is_open() -> None:
    memory = Memory(on("memory://"))
    session = memory.session("s1", system="Be kind.")

    async def listed() -> list[str]:
        return [entry.content async for entry in memory.entries.iterate()]

    async def streamed() -> None:
        async with session.stream(message_id="streamed") as stream:
            await stream.write("in pieces")

    for said in (True, False):  # the second time, the memory is opened again
        await asyncio.gather(
            memory.open(),
            memory.write("a fact", scope=USER, key="fact"),
            *(session.append({"id": f"m{n}", "role": "user", "content": "hello"}) for n in range(2)),
            *(session.runs.save(f"r{n}", child_id="c") for n in range(10)),
            session.context(),
            streamed() if said else listed(),
        )
        assert [run.id for run in (await session.runs.list()).runs] == [f"r{n}" for n in range(10)]
        assert {m.id for m in (await session.window()).messages} == {"system", "m0", "m1", "streamed"}
        assert await listed() == ["a fact"]
        await memory.close()
        with pytest.raises(NotOpen):
            await listed()


async def test_a_signed_stream_waits_until_its_memory_is_open_again(tmp_path: Path) -> None:
    async with Memory(on(f"sqlite:///{tmp_path / 'memory.db'}")) as memory:
        session = memory.restrict(origin="key:first").session("s1")
        await session.append({"id": "m0", "role": "user", "content": "hello"})

    async def streamed() -> None:
        async with session.stream(message_id="m1") as stream:
            await stream.write("in pieces")

    await asyncio.gather(memory.open(), streamed())
    assert [one.id for one in (await session.window()).messages] == ["m0", "m1"]
    await memory.close()


@pytest.mark.behaviour("B10")
async def test_calls_that_wait_for_an_opening_that_fails_or_that_asks_them_are_refused(
    tmp_path: Path,
) -> None:
    memory = Memory(on(f"sqlite:///{tmp_path / 'later' / 'memory.db'}"))
    found = await asyncio.gather(memory.open(), memory.retrieve(USER), return_exceptions=True)
    assert [isinstance(one, NotOpen) for one in found] == [False, True]
    assert isinstance(found[0], ConfigError | StoreUnavailable)
    refused: list[NotOpen] = []

    async def embed(texts: Sequence[str]) -> list[list[float]]:
        try:
            await own.retrieve(USER)
        except NotOpen as error:
            refused.append(error)
        return [[1.0, 0.0] for _ in texts]

    own = Memory({**on("memory://"), "embedder": "none"}, embedder=embed)
    async with own:
        assert refused
        assert await own.retrieve(USER) == []


@pytest.mark.behaviour("B79")
async def test_what_is_short_lived_begins_in_short_and_what_must_last_in_mid(tmp_path: Path) -> None:
    async with Memory(
        {"tiers": {tier: f"sqlite:///{tmp_path / tier}.db" for tier in TIERS}, "embedder": "none"}
    ) as memory:
        turn = await memory.write("a turn", scope=SESSION)
        facts = [await memory.write(f"fact {n}", scope=USER, consistency="replicated") for n in range(2)]
        await memory.relations.relate(facts[0].id, "supports", facts[1].id)
        stores = engine_of(memory).topology.serving
        kept = {
            tier: (await store.count(Query(RELATIONS, Tenant("default")))).records
            for tier, store in stores.items()
        }
        assert kept == {"short": 0, "mid": 1, "long": 0}
        assert [(c.tier, c.role) for c in await memory.admin.where(turn.id)] == [("short", "home")]
        assert [(c.tier, c.role) for c in await memory.admin.where(facts[0].id)] == [
            ("mid", "home"),
            ("long", "replica"),
        ]


@pytest.mark.behaviour("B80")
async def test_nothing_is_lost_with_a_short_store_that_forgets(tmp_path: Path) -> None:
    config = {
        "tiers": {
            "short": "memory://",
            "mid": f"sqlite:///{tmp_path / 'mid.db'}",
            "long": f"sqlite:///{tmp_path / 'long.db'}",
        },
        "embedder": "none",
    }
    async with Memory(config) as memory:
        said = [await memory.write(f"turn {n}", scope=SESSION) for n in range(3)]
        assert [await memory.get(e.id) for e in said] == said  # and cached
    async with Memory(config) as memory:  # the short store begins empty
        assert await memory.retrieve(SESSION, order="oldest") == said
        assert [await memory.get(e.id) for e in said] == said


@pytest.mark.behaviour("B81")
async def test_one_tier_may_be_overridden_and_the_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMORY__TIERS__LONG", f"sqlite:///{tmp_path / 'long.db'}")
    async with Memory(f"sqlite:///{tmp_path / 'main.db'}", embedder="none") as memory:
        assert {store.store: store.tiers for store in await memory.admin.check()} == {
            "sqlite": ("short", "mid", "long")
        }  # an argument is stronger
    monkeypatch.setenv("MEMORY_CONFIG", f"sqlite:///{tmp_path / 'main.db'}")
    async with Memory(embedder="none") as memory:
        entry = await memory.write("kept twice", scope=OTHER_USER, consistency="replicated")
        assert sorted(store.tiers for store in await memory.admin.check()) == [("long",), ("short", "mid")]
        assert [(c.tier, c.role) for c in await memory.admin.where(entry.id)] == [
            ("mid", "home"),
            ("long", "replica"),
        ]


@pytest.mark.behaviour("B82")
async def test_closing_closes_each_distinct_store_once() -> None:
    one, other = InMemoryStore("one"), InMemoryStore("other")
    topology = Topology(short=one, mid=one, long=other, accept_loss=True)
    await topology.open(KINDS.collections)
    closed: list[str] = []
    original = BaseStore.close

    async def close(self: BaseStore) -> None:
        closed.append(self.name)
        await original(self)

    with patch.object(BaseStore, "close", close):
        await topology.close()
    assert sorted(closed) == ["one", "other"]
    with pytest.raises(NotOpen):
        await one.count(Query(ENTRIES, Tenant("default")))
