"""A memory on a full disk: it opens, reads, searches and is checked; with a little room
it deletes and erases.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from memory.domain.errors import StoreFull
from tests.support.backends import marks_of
from tests.support.small_disk import small_disk

__all__ = ["small_disk"]

LITTLE = 400_000
"""Bytes: for the log of a deletion."""
ROOM_TO_BEGIN = 40_960
"""Bytes: too few for the tables of a new file, whose creation ends in the middle."""


def _config(small_disk: Path, backend: str) -> dict[str, Any]:
    url = f"sqlite:///{small_disk / 'memory.db'}" if backend == "sqlite" else f"file://{small_disk / 'data'}"
    return {
        "stores": {"home": {"url": url}},
        "tiers": dict.fromkeys(("short", "mid", "long"), "home"),
        "durations": {"sweep_every": "0s"},
    }


@pytest.mark.parametrize(
    "backend", [pytest.param(name, marks=marks_of(name), id=name) for name in ("sqlite", "file")]
)
async def test_a_memory_on_a_full_disk_opens_and_reads_and_with_a_little_room_it_erases(
    small_disk: Path, backend: str
) -> None:
    config = _config(small_disk, backend)
    async with Memory(config, embedder="none") as memory:
        for scope in ("user:ada", "user:bob", "user:eve"):
            await memory.write(f"a fact of {scope}", scope=scope, key="fact")
        for name in ("s", "t"):
            await memory.session(name, user="cleo").append({"role": "user", "content": "hello"})
    others = small_disk / "of-another-program"
    others.write_bytes(b"x" * shutil.disk_usage(small_disk).free)
    async with Memory(config, embedder="none") as memory:
        assert all(report.ok for report in await memory.admin.check())
        (ada,) = await memory.retrieve("user:ada")
        assert ada.content == "a fact of user:ada"
        assert [hit.content for hit in await memory.search("fact", scope="user:ada")] == [
            "a fact of user:ada"
        ]
        assert (await memory.session("s").context()).messages[0].content == "hello"
        for refused in (
            memory.write("y" * 60_000, scope="user:ada"),
            memory.session("s").append({"role": "user", "content": "more"}),
        ):
            with pytest.raises(StoreFull, match="Make room on the disk"):
                await refused

    others.write_bytes(b"x" * (others.stat().st_size - LITTLE))
    async with Memory(config, embedder="none") as memory:
        assert await memory.delete(ada.id)
        assert await memory.admin.erase("user:bob") == 1
        assert await memory.session("s").delete()
        assert (await memory.admin.erase_user("cleo")).sessions == 1
        assert (await memory.admin.sweep()).ran
        await memory.admin.erase_tenant()
        assert [entry async for entry in memory.entries.iterate()] == []


@pytest.mark.parametrize(
    "backend", [pytest.param(name, marks=marks_of(name), id=name) for name in ("sqlite", "file")]
)
async def test_a_new_memory_on_a_full_disk_says_that_the_disk_is_full(small_disk: Path, backend: str) -> None:
    (small_disk / "of-another-program").write_bytes(
        b"x" * (shutil.disk_usage(small_disk).free - ROOM_TO_BEGIN)
    )

    async def begin() -> None:
        async with Memory(_config(small_disk, backend), embedder="none") as memory:
            for number in range(20):
                await memory.write("y" * 60_000, scope="user:ada", key=str(number))

    with pytest.raises(StoreFull, match="Make room on the disk"):
        await begin()
