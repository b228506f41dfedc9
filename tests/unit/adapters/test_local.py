"""Where URLs of stores on this machine point, by one rule, and that a store says where
it is.
"""

from __future__ import annotations

import os
import stat
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from memory.ports.adapter import Adapter
from memory.ports.contract.cells import cells
from memory.ports.contract.collections import DECLARED
from memory.ports.contract.support import apply_all, fetch_record, put, record
from memory.ports.local_paths import LOCAL_SCHEMES, local_path, local_url
from memory.ports.store import Store

EVERY_LOCAL = [
    pytest.param("sqlite", marks=pytest.mark.backend("sqlite")),
    pytest.param("file", marks=pytest.mark.backend("file")),
    pytest.param("qdrant+edge", marks=pytest.mark.backend("qdrant_edge")),
]


def _built(url: str) -> Store:
    (point,) = entry_points(group="memory.adapters", name=url.partition(":")[0])
    adapter: Adapter = point.load()
    return adapter.build("here", url, {})


async def _where(url: str) -> str:
    store = _built(url)
    await store.open(DECLARED)
    try:
        return str((await store.check()).facts["path"])
    finally:
        await store.close()


def test_every_scheme_of_this_machine_is_tried_here() -> None:
    assert tuple(param.values[0] for param in EVERY_LOCAL) == LOCAL_SCHEMES


@pytest.mark.parametrize("scheme", EVERY_LOCAL)
async def test_a_store_is_where_its_url_says_and_tells_the_whole_path(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, home = tmp_path / "here", tmp_path / "home"
    here.mkdir()
    home.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(home))
    absolute = tmp_path / "absolute"
    wanted: dict[str, Path | str] = {
        f"{scheme}:one": here / "one",
        f"{scheme}:{absolute}1": f"{absolute}1",
        f"{scheme}:///{absolute}2": f"{absolute}2",  # four slashes
        f"{scheme}://localhost/{absolute}3": f"{absolute}3",
        f"{scheme}:~/two": home / "two",
        f"{scheme}:///~/three": home / "three",
        ("sqlite:///four" if scheme == "sqlite" else f"{scheme}://{absolute}4"): here / "four"
        if scheme == "sqlite"
        else f"{absolute}4",
    }
    for url, path in wanted.items():
        assert await _where(url) == str(path), url
        assert os.path.exists(str(path)), url  # noqa: ASYNC240


@pytest.mark.parametrize("scheme", EVERY_LOCAL)
async def test_a_relative_path_stays_where_it_was_when_the_process_changes_its_folder(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for locks and files that are opened later: in the other folder there is a
    store of the same name.
    """
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (there, here):
        folder.mkdir()
        monkeypatch.chdir(folder)
        store = _built(f"{scheme}:one")
        await store.open(DECLARED)
        if folder == there:
            await store.close()
    before = {path: path.stat().st_mtime_ns for path in sorted(there.rglob("*"))}
    monkeypatch.chdir(there)
    for n in range(3):
        await apply_all(store, put(record(n)))
    assert (await store.check()).facts["path"] == str(here / "one")
    await store.close()
    await store.open(DECLARED)
    for n in range(3):
        await fetch_record(store, n)
    await store.close()
    assert {path: path.stat().st_mtime_ns for path in sorted(there.rglob("*"))} == before


@cells("scheme", LOCAL_SCHEMES, shared=True)
def test_what_names_no_path_of_this_machine_is_refused(scheme: str) -> None:
    for url in (
        f"{scheme}:",
        f"{scheme}://",
        f"{scheme}:///",
        f"{scheme}://elsewhere/share",
        f"{scheme}:?x=1",
        scheme,
    ):
        assert local_path(url) is None, url


@cells("scheme", LOCAL_SCHEMES, shared=True)
def test_the_url_of_a_path_names_that_path(scheme: str) -> None:
    assert local_path(local_url(scheme, "/srv/notes")) == "/srv/notes"


@pytest.mark.backend("qdrant_edge")
@pytest.mark.parametrize("there", [False, True], ids=["made", "there"])
async def test_nobody_else_reaches_an_edge_folder_whatever_the_umask(tmp_path: Path, there: bool) -> None:
    """What Edge makes has the umask's modes; it lies in a folder that only the owner
    can enter.
    """
    folder = tmp_path / "edge"
    before = os.umask(0)
    try:
        if there:
            folder.mkdir()
        store = _built(f"qdrant+edge:{folder}")
        await store.open(DECLARED)
        await apply_all(store, put(record(texts={"content": "cormorant"})))
        await store.close()
    finally:
        os.umask(before)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if _reached_by_others(path, below=folder)] == []
    assert stat.S_IMODE(folder.stat().st_mode) == (0o777 if there else 0o700)


def _reached_by_others(file: Path, below: Path) -> bool:
    """Whether others may read the file and enter every folder on the way to it."""
    folders = [folder for folder in file.parents if folder == below or below in folder.parents]
    return bool(file.stat().st_mode & 0o077) and all(folder.stat().st_mode & 0o077 for folder in folders)
