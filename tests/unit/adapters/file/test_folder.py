"""The folder itself: who may read it, links in it, a disk that refuses or has no room,
other releases.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import json
import os
import shutil
import stat
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from memory.adapters.file.codec import seal
from memory.adapters.file.disk import FIRST_DELAY
from memory.adapters.file.library import SCHEMA
from memory.adapters.file.store import FileStore
from memory.adapters.file.thresholds import Thresholds
from memory.domain.errors import StoreError, StoreFull, StoreUnavailable
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.support import (
    FOREIGN,
    HERE,
    apply_all,
    fetch_record,
    fetch_stored,
    hit_ids,
    id_of,
    key_of,
    one,
    put,
    query_ids,
    record,
)
from memory.ports.query import Query, within
from memory.ports.record import Corrupt, Partition, Record
from memory.ports.writes import Outcome, RaiseGeneration
from tests.support.small_disk import grow, small_disk
from tests.unit.adapters.file.helping import (
    backup_of,
    everything_below,
    file_of,
    files_below,
    fill,
    opened,
    table_of,
)

__all__ = ["small_disk"]
pytestmark = pytest.mark.backend("file")


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
async def test_no_one_else_is_let_in_whatever_the_umask(folder: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        store = await opened(folder)
        await apply_all(store, put(record(1)), RaiseGeneration(HERE))
        await apply_all(store, put(record(1, version=2)))
        await store.close()
    finally:
        os.umask(before)
    for path in everything_below(folder):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.parametrize("happened", ["was replaced by another folder", "was deleted or renamed"])
async def test_a_folder_that_is_not_the_open_one_any_more_is_named_and_nothing_is_written_elsewhere(
    folder: Path, happened: str
) -> None:
    """Reads, writes and erasures alike: what they answered would be of a folder that
    nobody looks into.
    """
    store = await opened(folder)
    await apply_all(store, put(record(1)))
    moved = await asyncio.to_thread(folder.rename, folder.with_name("moved"))
    if "replaced" in happened:
        shutil.copytree(moved, folder)
    before = everything_below(folder)
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "write": lambda: store.apply([put(record(2))]),
        "read": lambda: store.get(SAMPLES, [key_of(1)]),
        "query": lambda: store.query(Query(SAMPLES, within(HERE))),
        "count": lambda: store.count(Query(SAMPLES, within(HERE))),
        "erase": lambda: store.delete_matching(Query(SAMPLES, within(HERE)), 9),
    }
    answers = {what: await asyncio.gather(call(), return_exceptions=True) for what, call in calls.items()}
    for what, (answer,) in answers.items():
        assert isinstance(answer, StoreError), what
        assert f"{folder} {happened}" in str(answer), what
    health = await store.check()
    assert not health.ok
    assert happened in health.detail
    await store.close()
    assert everything_below(folder) == before
    again = await opened(moved)
    assert await fetch_stored(again, 2) is None
    await fetch_record(again, 1)
    await again.close()


# -- links -----------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [0, 1, 2])
async def test_a_link_in_the_place_of_a_folder_is_refused_by_name(
    folder: Path, tmp_path: Path, depth: int
) -> None:
    store = await opened(folder)
    await apply_all(store, put(record(1, FOREIGN)))
    outside = tmp_path / "outside"
    (outside / "user%3aann" / "samples").mkdir(parents=True)
    path = [folder / "acme", folder / "acme" / "user%3aann", table_of(folder)][depth]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(outside, target_is_directory=True)

    for call in (store.apply([put(record(1))]), store.query(Query(SAMPLES, within(HERE)))):
        with pytest.raises(StoreError, match="is a symbolic link"):
            await call
    assert files_below(outside) == []
    assert isinstance(await fetch_stored(store, 1, FOREIGN), Record)
    await store.close()


async def test_a_link_or_a_pipe_in_the_place_of_a_record_is_not_followed(
    store: FileStore, folder: Path, tmp_path: Path
) -> None:
    await apply_all(store, *[put(record(n)) for n in (1, 2, 3, 4)])
    secret = tmp_path / "secret"
    secret.write_bytes(file_of(folder, 1).read_bytes())
    for n in (1, 2, 3):
        file_of(folder, n).unlink()
    file_of(folder, 1).symlink_to(secret)
    os.mkfifo(file_of(folder, 2))
    file_of(folder, 3).mkdir()
    for n, problem in ((1, "symbolic link"), (2, "not a plain file"), (3, "not a plain file")):
        stored = await fetch_stored(store, n)
        assert isinstance(stored, Corrupt)
        assert problem in stored.problem
    page = await store.query(Query(SAMPLES, within(HERE)))
    assert ([r.key.id for r in page.records], page.corrupt) == ([id_of(4)], (key_of(1), key_of(2), key_of(3)))
    await apply_all(store, put(record(1, version=5)))
    assert (await fetch_record(store, 1)).version == 5
    assert secret.exists()


async def test_a_link_in_the_place_of_the_lock_is_not_followed(
    store: FileStore, folder: Path, tmp_path: Path
) -> None:
    (folder / "store.lock").unlink()
    (folder / "store.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(StoreError):
        await store.apply([put(record(1))])
    assert not (tmp_path / "victim").exists()


# -- a disk that refuses ---------------------------------------------------------------


@pytest.mark.behaviour("B71")
@pytest.mark.parametrize("refusal", [errno.EPERM, errno.EACCES])
async def test_a_refused_rename_is_tried_again_five_times_each_time_later(
    store: FileStore, monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    genuine, refused, at = os.rename, 0, list[float]()

    def rename(*arguments: object, **more: object) -> None:
        nonlocal refused
        at.append(time.monotonic())
        if refused < 5:
            refused += 1
            raise OSError(refusal, "held by a scanner")
        genuine(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("memory.adapters.file.disk.os.rename", rename)
    await apply_all(store, put(record(1)))
    assert refused == 5
    waited = [later - earlier for earlier, later in itertools.pairwise(at)]
    assert all(wait >= FIRST_DELAY * 2**n for n, wait in enumerate(waited)), (
        "a busy machine adds to each what it likes"
    )
    assert len(waited) == 5
    refused = -100
    with pytest.raises(StoreUnavailable, match="refuses"):
        await store.apply([put(record(2))])
    assert await fetch_stored(store, 2) is None


async def test_a_full_disk_fails_by_name_and_keeps_nothing_half(small_disk: Path) -> None:
    store = await opened(small_disk / "data")
    await apply_all(store, put(record(0, texts={"content": "lantern"})))
    filling = {"filling": "x" * 200_000}
    answers = await asyncio.gather(
        *(one(store, put(record(n, body=filling))) for n in range(1, 40)), return_exceptions=True
    )
    acknowledged = [n for n, answer in enumerate(answers, 1) if not isinstance(answer, BaseException)]
    assert {type(a) for a in answers} == {Outcome, StoreFull}, (
        "of calls that wait together none fails for another"
    )
    with pytest.raises(StoreFull):
        await store.apply([put(record(n, body=filling)) for n in range(100, 130)])
    with pytest.raises(StoreFull):
        await store.apply([put(record(0, version=2, body={"x": "x" * 3_000_000})), RaiseGeneration(HERE)])

    assert await store.get(SAMPLES, [key_of(n) for n in range(100, 130)]) == [None] * 30
    assert sorted(await query_ids(store)) == [id_of(n) for n in (0, *acknowledged)]
    assert (await fetch_record(store, 0)).version == 1
    assert await hit_ids(store, "lantern") == {id_of(0)}
    assert list((small_disk / "data" / "staging.d").iterdir()) == []
    grow(small_disk)
    await apply_all(store, *[put(record(n, body=filling)) for n in range(100, 130)])
    await store.close()


async def test_a_record_is_served_from_the_version_before_where_it_cannot_be_restored(
    small_disk: Path,
) -> None:
    folder = small_disk / "data"
    store = await opened(folder)
    for version in (1, 2):
        await apply_all(store, put(record(1, version=version, body={"x": "x" * 20_000})))
    file_of(folder).write_bytes(b"")
    fill(small_disk)
    assert (await fetch_record(store, 1)).version == 1
    assert backup_of(folder).exists()
    await store.close()


async def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    store = FileStore(f"file://{tmp_path / 'data'}")
    with pytest.raises(StoreError, match="data"):
        await store.open((SAMPLES,))
    (tmp_path / "data").unlink()
    await store.open((SAMPLES,))
    await store.close()


async def test_where_files_have_one_name_only_the_version_before_is_a_copy(
    store: FileStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*arguments: object, **more: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no links here")

    monkeypatch.setattr("memory.adapters.file.disk.os.link", link)
    for version in (1, 2):
        await apply_all(store, put(record(1, version=version)))
    file_of(folder).write_bytes(b"")
    assert (await fetch_record(store, 1)).version == 1


# -- releases and logs -----------------------------------------------------------------


@pytest.mark.parametrize(("other", "advice"), [(SCHEMA + 1, "newer release.*upgrade"), (2, "export")])
@pytest.mark.behaviour("B88")
async def test_a_folder_of_another_layout_is_refused_by_name(folder: Path, other: int, advice: str) -> None:
    store = await opened(folder)
    await store.close()
    (folder / "store.json").write_bytes(seal({"schema": other}))
    with pytest.raises(StoreError, match=advice):
        await store.open((SAMPLES,))
    (folder / "store.json").write_text('{"schema": ')
    with pytest.raises(StoreError, match=r"store\.json"):
        await store.open((SAMPLES,))


async def test_the_layout_on_disk_is_as_documented(store: FileStore, folder: Path) -> None:
    await apply_all(
        store,
        put(record(1, generation=0, texts={"content": "Zürich"}, fields={"type": "fact"})),
        RaiseGeneration(Partition("acme", "org")),
    )
    assert {str(p.relative_to(folder)) for p in files_below(folder)} == {
        "store.json",
        "store.lock",
        "changes.log",
        f"acme/user%3aann/samples/{id_of(1)}.json",
        "acme/org/partition.json",
        "acme/org/partition.json.bak",
    }
    text = file_of(folder).read_text()
    assert "Zürich" in text
    assert list(json.loads(text))[:6] == ["checksum", "collection", "kind", "tenant", "id", "version"]
    assert len(text.splitlines()) == len(json.loads(text)), "a line a key"
    assert json.loads((folder / "store.json").read_text())["schema"] == SCHEMA


async def test_the_log_of_changes_is_begun_anew_and_everyone_notices(folder: Path) -> None:
    store, other = [await opened(folder, thresholds=Thresholds(log_bytes=500)) for _ in range(2)]
    for n in range(30):
        await apply_all(store if n % 2 else other, put(record(n, version=1)), put(record(0, version=n + 1)))
        for client in (store, other):
            assert await query_ids(client) == [id_of(i) for i in range(n + 1)]
            assert (await fetch_record(client, 0)).version == n + 1
    assert (folder / "changes.log").stat().st_size < 1_000
    for client in (store, other):
        await client.close()


async def test_closing_waits_for_the_writes_under_way(folder: Path) -> None:
    store = await opened(folder)
    calls = [asyncio.ensure_future(one(store, put(record(n)))) for n in range(40)]
    await asyncio.sleep(0)
    await store.close()
    outcomes = await asyncio.gather(*calls)
    assert all(o.applied for o in outcomes)
    again = await opened(folder)
    assert len(await query_ids(again)) == 40
    await again.close()


async def test_a_lock_that_someone_removed_is_made_again(store: FileStore, folder: Path) -> None:
    await apply_all(store, put(record(1)))
    (folder / "store.lock").unlink()
    await apply_all(store, put(record(2)))
    assert (folder / "store.lock").exists()


async def test_a_small_cache_answers_the_same(folder: Path) -> None:
    store = await opened(folder, cache_bytes=0)
    scopes = [HERE, FOREIGN, Partition("acme", "org")]
    await apply_all(store, *[put(record(n, scopes[n % 3], texts={"content": "lantern"})) for n in range(30)])
    for _ in range(2):
        for scope in scopes:
            assert len(await query_ids(store, within(scope))) == 10
    assert len(store.library.tables._loaded) == 1
    await store.close()
