"""A store that an earlier version wrote opens: all of it is there, it can be written
and erased, and the next opening has nothing to do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memory.domain.versions import version_text
from memory.facade.runtime.access import engine_of
from memory.ports import formats
from memory.ports.base import BaseStore
from tests.support import mongo_servers, mysql_servers, postgres_servers
from tests.support.backends import marks_of
from tools import stored_fixtures
from tools.stored_fixtures import ADA, BOB, EMBEDDED, Place, memory_over

FORMATS = sorted(
    int(folder.name.removeprefix("format_")) for folder in stored_fixtures.FIXTURES.glob("format_*")
)
BACKENDS = {
    **{name: name for name in (*EMBEDDED, "redis", "postgresql", "mariadb")},
    "mongo": "mongo_replica_set",
}
FIXTURES = [
    pytest.param(number, name, id=f"{backend}-{number}", marks=marks_of(backend))
    for number in FORMATS
    for name, backend in BACKENDS.items()
]


async def _empty(backend: str, folder: Path) -> Place:
    """An empty place for a fixture."""
    if backend in EMBEDDED:
        return stored_fixtures.embedded(backend, folder)
    if backend == "postgresql":
        import asyncpg

        connection = await asyncpg.connect(**postgres_servers.container().settings)
        await connection.execute("DROP SCHEMA IF EXISTS memory CASCADE")
        await connection.close()
    elif backend == "mariadb":
        await mysql_servers.container().fresh("memory")
    elif backend == "mongo":
        with mongo_servers.replica_set().connected() as client:
            client.drop_database("memory")
    return stored_fixtures.served(backend)


def _missing(told: Any, now: Any, path: str = "") -> list[str]:
    """What was told and is not told so any more. What is told now besides is new."""
    if isinstance(told, dict) and isinstance(now, dict):
        return [one for name in told for one in _missing(told[name], now.get(name), f"{path}/{name}")]
    if isinstance(told, list) and isinstance(now, list) and len(told) == len(now):
        return [
            one
            for n, (was, said) in enumerate(zip(told, now, strict=True))
            for one in _missing(was, said, f"{path}/{n}")
        ]
    if path.endswith("/version") and isinstance(told, int):
        told = version_text(told)  # format 1 was told with numbers
    return [] if told == now else [f"{path}: {told!r} is now {now!r}"]


@pytest.mark.parametrize(("number", "backend"), FIXTURES)
async def test_a_store_of_an_earlier_version_opens(
    number: int, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "store").mkdir()
    dumped, told = stored_fixtures.unpack(backend, number, tmp_path)
    place = await _empty(backend, tmp_path / "store")
    await place.restore(dumped)

    async with memory_over(place.url) as memory:
        assert _missing(told, await stored_fixtures.told(memory)) == []
        (report,) = await memory.admin.check()
        (audit,) = await memory.admin.audit()
        assert (report.ok, report.quarantined, audit.problems, audit.damaged, audit.error) == (
            True,
            0,
            (),
            (),
            "",
        )
        assert audit.checked > 0 or backend == "file"

    swapped = []
    swap = BaseStore.swap_format

    async def watched(store: BaseStore, before: str | None, after: str) -> bool:
        swapped.append(after)
        return await swap(store, before, after)

    monkeypatch.setattr(BaseStore, "swap_format", watched)
    asked = []

    def advise(_: Any) -> str:
        asked.append(1)
        return "brass"

    async with memory_over(place.url, advisor=advise) as memory:
        assert swapped == []  # the first opening noted the format
        assert await _format(memory) == str(formats.FORMAT)
        new = await memory.write("The new rope is in the boathouse", scope=ADA)
        assert (await memory.search("new rope", scope=ADA))[0].entry.id == new.id
        session = memory.session("ada/trip")
        assert await session.erase("m1")
        assert "555-0199" not in str([item.message.text for item in (await session.history()).items])
        await memory.admin.sweep()
        assert asked  # the step that stood pending was done
        (bell,) = [entry for entry in await memory.retrieve(BOB) if "brass bell" in entry.content]
        assert bell.tags == ["brass"]
        await memory.admin.legal_holds.remove("case-17")
        await memory.admin.erase_tenant()
        assert [entry async for entry in memory.entries.iterate(include_retired=True)] == []
        assert [one.content for one in await memory.for_tenant("acme").retrieve("org:acme")] == told["acme"]


async def _format(memory: Any) -> str | None:
    store: Any = engine_of(memory).topology.homes[0]
    while not isinstance(store, BaseStore):
        store = store.inner
    return await store.read_format()
