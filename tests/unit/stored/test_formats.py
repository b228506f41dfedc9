"""Every store notes its format, upgrades run once and can be resumed, and newer formats
are refused by name.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from memory.domain.errors import FormatMismatch
from memory.orchestrator.storage.collections import SETTINGS
from memory.ports import formats
from memory.ports.base import BaseStore
from memory.ports.contract.support import record
from memory.ports.query import Everywhere, Query
from memory.ports.record import Record
from memory.ports.writes import Always, Put
from tests.support import postgres_servers, redis_servers
from tests.support.backends import marks_of

Opened = Callable[..., BaseStore]


def _store(backend: str, url: str) -> BaseStore:
    from memory.adapters.file.store import FileStore
    from memory.adapters.qdrant.store import QdrantStore
    from memory.adapters.redis.store import RedisStore
    from memory.adapters.sql.postgresql.store import PostgresStore
    from memory.adapters.sql.sqlite.store import SqliteStore

    kinds: dict[str, type[Any]] = {
        "sqlite": SqliteStore,
        "file": FileStore,
        "qdrant_edge": QdrantStore,
        "redis": RedisStore,
        "postgresql": PostgresStore,
    }
    made: BaseStore = kinds[backend](url)
    return made


PLACES = ("sqlite", "file", "qdrant_edge", "redis", "postgresql")


@pytest.fixture(params=[pytest.param(name, marks=marks_of(name)) for name in PLACES])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[str, str]]:
    """An empty store: its backend and URL."""
    backend: str = request.param
    if backend == "redis":
        port = redis_servers.durable().port
        redis_servers.emptied(port, 3)
        yield backend, f"redis://127.0.0.1:{port}/3"
        redis_servers.emptied(port, 3)
    elif backend == "postgresql":
        yield backend, postgres_servers.container().url(f"formats_{os.urandom(4).hex()}")
    else:
        schemes = {"sqlite": "sqlite:///{}.db", "file": "file://{}", "qdrant_edge": "qdrant+edge://{}"}
        yield backend, schemes[backend].format(tmp_path / "store")


async def _written(place: tuple[str, str], note: str = "1") -> None:
    """A store of the first format with some records, and with this note."""
    store = _store(*place)
    await store.open([SETTINGS])
    for n in range(6):
        await store.apply([Put(SETTINGS, record(n, body={"old": n}), Always())])
    assert note == "1" or await store.swap_format("1", note)
    await store.close()


async def _bodies(store: BaseStore) -> list[dict[str, Any]]:
    return sorted(
        (
            dict(r.body)
            for r in (await store.query(Query(SETTINGS, Everywhere()))).records
            if isinstance(r, Record)
        ),
        key=str,
    )


async def _rename(store: Any, report: Callable[[int], None]) -> None:
    """An upgrade as one may be: a field of every record is renamed; what is renamed
    stays.
    """
    import dataclasses

    page = await store.query(Query(SETTINGS, Everywhere()))
    for done, found in enumerate(r for r in page.records if isinstance(r, Record) and "old" in r.body):
        renamed = dataclasses.replace(
            found, version=found.version + 1, body={"new": found.body["old"], "times": 1}
        )
        await store.apply([Put(SETTINGS, renamed, Always())])
        report(done)
        if done == int(os.environ.get("DIE_AFTER", -1)):
            os._exit(9)
        await asyncio.sleep(0)


RENAMED = [{"new": n, "times": 1} for n in range(6)]


def _second_format(patch: pytest.MonkeyPatch | None = None, run: Any = _rename) -> None:
    changes = {"FORMAT": 2, "UPGRADES": (formats.Upgrade(2, run),), "LEASE": 0.4, "LOOK_EVERY": 0.05}
    for name, value in changes.items():
        setattr(formats, name, value) if patch is None else patch.setattr(formats, name, value)


async def test_a_new_store_notes_the_format(place: tuple[str, str]) -> None:
    await _written(place)
    store = _store(*place)
    await store.open([SETTINGS])
    assert await store.read_format() == "1"
    await store.close()


@pytest.mark.parametrize(("note", "found"), [("7", "7"), ("1 to 2 0a0b0c0d 3", "2"), ("strange", "strange")])
async def test_a_newer_format_is_refused_by_name(place: tuple[str, str], note: str, found: str) -> None:
    """Also one to which an upgrade has begun."""
    await _written(place, note)
    with pytest.raises(
        FormatMismatch,
        match=f"store '.*': its data has format {found}, .* reads format 1. Upgrade memory-tiers",
    ) as refused:
        await _store(*place).open([SETTINGS])
    assert (refused.value.found, refused.value.known) == (found, 1)


async def test_an_upgrade_runs_once_and_the_number_is_raised(
    place: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await _written(place)
    runs = []

    async def counted(store: Any, report: Callable[[int], None]) -> None:
        runs.append(1)
        await _rename(store, report)

    _second_format(monkeypatch, counted)
    for _ in range(2):
        store = _store(*place)
        await store.open([SETTINGS])
        assert (await _bodies(store), await store.read_format(), len(runs)) == (RENAMED, "2", 1)
        await store.close()


async def test_an_upgrade_that_fails_is_run_again_by_the_next_opening(
    place: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await _written(place)

    async def fails(store: Any, report: Callable[[int], None]) -> None:
        raise RuntimeError("in the middle")

    _second_format(monkeypatch, fails)
    with pytest.raises(RuntimeError, match="in the middle"):
        await _store(*place).open([SETTINGS])
    monkeypatch.setattr(formats, "LEASE", 3_600.0)  # nobody waits for a lease that was given back
    monkeypatch.setattr(formats, "UPGRADES", (formats.Upgrade(2, _rename),))
    store = _store(*place)
    await store.open([SETTINGS])
    assert (await _bodies(store), await store.read_format()) == (RENAMED, "2")
    await store.close()


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(
            name,
            marks=[*marks_of(name), *((pytest.mark.nightly,) if name in ("file", "qdrant_edge") else ())],
        )
        for name in PLACES
    ],
    indirect=True,
)
async def test_an_upgrade_that_was_killed_is_resumed(
    place: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await _written(place)
    killed = subprocess.run(  # noqa: ASYNC221
        [sys.executable, "-m", __name__, *place], env={**os.environ, "DIE_AFTER": "2"}, check=False
    )
    assert killed.returncode == 9
    _second_format(monkeypatch)
    store = _store(*place)
    await store.open([SETTINGS])
    assert (await _bodies(store), await store.read_format()) == (RENAMED, "2")
    await store.close()


async def test_of_two_processes_one_upgrades(place: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two stores of one process stand for them: nothing but the note is between them."""
    if place[0] == "qdrant_edge":
        return  # one opener at a time
    await _written(place)
    runs = []

    async def slow(store: Any, report: Callable[[int], None]) -> None:
        runs.append(1)
        await asyncio.sleep(0.6)  # beyond the lease, which is renewed
        await _rename(store, report)

    _second_format(monkeypatch, slow)
    both = [_store(*place), _store(*place)]
    await asyncio.gather(*[store.open([SETTINGS]) for store in both])
    assert [await _bodies(store) for store in both] == [RENAMED, RENAMED]
    assert (len(runs), await both[0].read_format()) == (1, "2")
    for store in both:
        await store.close()


@pytest.mark.parametrize("backend", [pytest.param(name, marks=marks_of(name)) for name in ("sqlite", "file")])
async def test_what_is_opened_to_read_is_neither_noted_nor_upgraded(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = {"sqlite": "sqlite:///{}", "file": "file://{}"}[backend].format(tmp_path / "store")
    await _written((backend, url))
    reading = _store(backend, f"{url}?mode=ro")
    await reading.open([SETTINGS])
    assert len(await _bodies(reading)) == 6
    await reading.close()
    _second_format(monkeypatch)
    with pytest.raises(FormatMismatch, match=r"has format 1.* reads format 2.*Open it once to write"):
        await _store(backend, f"{url}?mode=ro").open([SETTINGS])


if __name__ == "__main__":
    _second_format()

    async def _open() -> None:
        await _store(sys.argv[1], sys.argv[2]).open([SETTINGS])

    asyncio.run(_open())
