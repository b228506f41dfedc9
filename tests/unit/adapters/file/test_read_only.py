"""Folders that may only be read: asked for by `mode=ro`, or met so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from memory import BlockingMemory
from memory.adapters.file.store import FileStore
from memory.domain.errors import ConfigError, StoreUnavailable
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import id_of, put, query_ids, record
from memory.ports.record import Record
from tests.support.rights import as_anybody
from tests.unit.adapters.file.helping import file_of, table_of
from tests.unit.adapters.reading_only import READS, it_reads_and_refuses_every_write


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_folder_opened_to_read_only_reads_searches_and_refuses_every_write(tmp_path: Path) -> None:
    url = f"file:{tmp_path / 'data'}"
    with BlockingMemory(url, embedder="none") as memory:
        entry = memory.write("Ada likes tea", scope="user:ada")
        memory.session("s", user="ada").append({"role": "user", "content": "hello"})
        with BlockingMemory(f"{url}?mode=ro", embedder="none") as reading:  # beside a writer
            later = memory.write("Ada likes green tea", scope="user:ada")
            before = _contents(tmp_path / "data")
            assert reading.get(entry.id) is not None
            it_reads_and_refuses_every_write(reading, {entry.id, later.id}, tmp_path / "data")
            assert _contents(tmp_path / "data") == before


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="this platform has other permissions")
@pytest.mark.parametrize("folder_mode", [0o555, pytest.param(0o755, marks=pytest.mark.nightly)])
def test_a_user_who_may_not_write_the_folder_reads_and_searches_it(tmp_path: Path, folder_mode: int) -> None:
    folder = tmp_path / "data"
    with BlockingMemory(f"file:{folder}", embedder="none") as memory:
        memory.write("Ada likes tea", scope="user:ada")
        memory.session("s", user="ada").append({"role": "user", "content": "hello"})
    for path in folder.rglob("*"):
        path.chmod(0o444 if path.is_file() else 0o555)
    folder.chmod(folder_mode)
    command = [*as_anybody(), sys.executable, "-c", READS, f"file:{folder}"]
    other = subprocess.run(command, capture_output=True, text=True, check=False)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)
    assert other.stdout.splitlines() == ["['Ada likes tea'] ['Ada likes tea']", "['hello'] [True]", "True"], (
        other.stderr
    )


async def test_damage_is_served_from_the_version_before_and_left_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    store = FileStore(f"file:{folder}")
    await store.open(DECLARED)
    for version in (1, 2):
        await store.apply([put(record(1, version=version))])
    await store.close()
    file_of(folder).write_text("{")
    before = _contents(folder)
    reading = FileStore(f"file:{folder}?mode=ro")
    await reading.open(DECLARED)
    (found,) = await reading.get(SAMPLES, [record(1).key])
    assert isinstance(found, Record)
    assert found.version == 1
    assert await query_ids(reading) == [id_of(1)]
    await reading.close()
    assert _contents(folder) == before


async def test_what_cannot_be_opened_to_read_only_says_why(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("missing", "empty"):
        with pytest.raises(ConfigError, match=f"{name} is opened to read only, and contains no store"):
            await FileStore(f"file:{tmp_path / name}?mode=ro").open(DECLARED)
    assert os.listdir(tmp_path) == ["empty"]
    store = FileStore(f"file:{tmp_path / 'data'}")
    await store.open(DECLARED)
    await store.apply([put(record(1))])
    await store.close()
    (tmp_path / "data" / "staging.d" / "journal.json").write_bytes(_journal(store, tmp_path / "data"))
    with pytest.raises(
        StoreUnavailable, match="a process died while it changed several files; open it for writing once"
    ):
        await FileStore(f"file:{tmp_path / 'data'}?mode=ro").open(DECLARED)


def _journal(store: FileStore, folder: Path) -> bytes:
    """The journal of a change that was cut off."""
    from memory.adapters.file.codec import seal

    parts = list(table_of(folder).relative_to(folder).parts)
    return seal({"steps": [{"folder": parts, "name": "gone", "staged": None}]})
