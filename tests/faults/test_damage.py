"""A flipped byte and a full disk, met through the facade."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from memory.domain.errors import CorruptRecord, StoreFull
from memory.facade.memory import Memory
from tests.support.small_disk import grow, small_disk

__all__ = ["small_disk"]
pytestmark = [pytest.mark.backend("sqlite"), pytest.mark.behaviour("B87")]

CHANGES: dict[str, Callable[[Memory, str], Awaitable[Any]]] = {
    "update": lambda m, entry: m.update(entry, content="third"),
    "replace": lambda m, entry: m.write("third", scope="user:ada", key="k", if_exists="replace"),
    "replace many": lambda m, entry: m.write_many(
        [
            {"content": text, "scope": "user:ada", "key": text[0], "if_exists": "replace"}
            for text in ("kk", "o")
        ]
    ),
    "invalidate": lambda m, entry: m.entries.invalidate(entry),
    "supersede": lambda m, entry: m.write("third", scope="user:ada", supersedes=[entry]),
    "delete": lambda m, entry: m.delete(entry),
}


async def test_a_flipped_byte_is_refused_by_name_and_its_neighbours_are_served(tmp_path: Path) -> None:
    file = tmp_path / "memory.db"
    async with Memory(f"sqlite:///{file}", embedder="none") as memory:
        first = await memory.write("the harbour opens at seven", scope="user:ada")
        damaged = await memory.write("the lighthouse keeper is called Marlow", scope="user:ada")
        last = await memory.write("the ferry runs on Sundays", scope="user:ada")
    _flip_a_byte_of(file, b"keeper is called Marlow")

    async with Memory(f"sqlite:///{file}", embedder="none") as memory:
        with pytest.raises(CorruptRecord, match=damaged.id):
            await memory.get(damaged.id)
        assert [e.id for e in await memory.retrieve("user:ada", order="oldest")] == [first.id, last.id]
        assert (await memory.get(first.id)) == first
        assert [h.entry.id for h in await memory.search("ferry on Sundays", scope="user:ada")] == [last.id]
        with pytest.raises(CorruptRecord, match=damaged.id):
            await memory.update(damaged.id, content="mended")
        assert await memory.delete(damaged.id), "what cannot be read can still be erased"
        assert await memory.get(damaged.id) is None


def _flip_a_byte_of(file: Path, text: bytes) -> None:
    """Flip one bit inside each place where the text stands in the file, as a failing
    disk would.
    """
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    content = bytearray(file.read_bytes())
    at = content.find(text)
    assert at >= 0, "the text does not stand in the file as it is"
    while at >= 0:
        content[at + 3] ^= 0x01
        at = content.find(text, at + 1)
    file.write_bytes(content)


async def test_a_full_disk_refuses_by_name_and_loses_nothing(small_disk: Path) -> None:
    file = small_disk / "memory.db"
    async with Memory(f"sqlite:///{file}", embedder="none") as memory:
        kept: list[str] = []
        with pytest.raises(StoreFull, match="store 'sqlite'"):
            await _write_until_refused(memory, kept)
        assert kept
        assert [e.id async for e in memory.entries.iterate("user:ada")] == kept
        grow(small_disk)
        assert (await memory.write("there is room again", scope="user:ada")).content == "there is room again"
    async with Memory(f"sqlite:///{file}", embedder="none") as memory:
        assert len([e async for e in memory.entries.iterate("user:ada")]) == len(kept) + 1


async def _write_until_refused(memory: Memory, kept: list[str]) -> None:
    for n in range(2_000):
        kept.append((await memory.write(f"note {n} " + "x" * 2_000, scope="user:ada")).id)


@pytest.mark.backend("file")
@pytest.mark.behaviour("B68", "B73")
@pytest.mark.parametrize("change", CHANGES)
async def test_an_entry_that_was_restored_one_version_back_can_be_changed_as_before(
    tmp_path: Path, change: str
) -> None:
    async with Memory(f"file://{tmp_path}/files", embedder="none") as memory:
        entry = await memory.write("first", scope="user:ada", key="k")
        await memory.write("other", scope="user:ada", key="o")
        edited = await memory.update(entry.id, content="second")
    [file] = [
        file for file in (tmp_path / "files").rglob(f"{entry.id}.json") if "quarantine.d" not in file.parts
    ]
    file.write_bytes(b"")

    async with Memory(f"file://{tmp_path}/files", embedder="none", durations={"deadline": "2s"}) as memory:
        restored = await memory.get(entry.id)
        assert restored is not None
        assert restored.content == "first"
        assert await CHANGES[change](memory, entry.id)
        assert (await memory.get(entry.id) or restored).version != edited.version
        if change != "delete":
            history = await memory.entries.history(entry.id)
            assert history[0].content == "first"
            assert len(history) == 2, "the lost version is not there, and the restored one is there once"
            was = await memory.get(entry.id, known_at=edited.updated_at)
            assert was is not None
            assert was.content == "first", "it was served until it was changed again"
