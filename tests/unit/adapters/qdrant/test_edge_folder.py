"""One opener at a time, who is told who has it; the log and the optimiser."""

from __future__ import annotations

import asyncio
import json
import math
import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from memory.adapters.qdrant.store import QdrantStore
from memory.domain.errors import StoreError, StoreFull, StoreUnavailable, Unsupported
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import HERE, apply_all, delete, fetch_record, hit_ids, id_of, put, record
from memory.ports.query import Near, Query, Search, within
from memory.ports.record import pack_vector
from memory.ports.writes import RaiseGeneration
from tests.support.small_disk import small_disk

__all__ = ["small_disk"]

pytestmark = pytest.mark.backend("qdrant_edge")


def _store(folder: Path, **options: Any) -> QdrantStore:
    return QdrantStore(f"qdrant+edge:///{folder}", name="second", **options)


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True)
    file.write_text(text)


def _read(file: Path) -> str:
    return file.read_text()


def _at(n: int) -> bytes:
    """The n-th of directions that single precision tells apart."""
    return pack_vector([math.cos(n / 1000), math.sin(n / 1000)])


async def test_a_second_opener_is_told_who_has_the_folder_and_what_to_do(
    edge: QdrantStore, folder: Path
) -> None:
    with pytest.raises(
        StoreUnavailable, match=f"this process {os.getpid()} on .* since .*one opener.*qdrant://host"
    ) as caught:
        await _store(folder).open(DECLARED)
    assert caught.value.store == "second"
    await apply_all(edge, put(record()))


async def test_another_process_is_told_too(edge: QdrantStore, folder: Path) -> None:
    code = f"""
        import asyncio
        from memory.adapters.qdrant.store import QdrantStore
        asyncio.run(QdrantStore("qdrant+edge:///{folder}").open(()))
    """
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(code), stderr=subprocess.PIPE
    )
    _, said = await child.communicate()
    assert child.returncode == 1
    assert f"is open in process {os.getpid()} on " in said.decode()


async def test_a_folder_that_was_given_back_can_be_opened_again(edge: QdrantStore, folder: Path) -> None:
    await apply_all(edge, put(record()))
    await edge.close()
    second = _store(folder)
    await second.open(DECLARED)
    assert (await fetch_record(second)).key.id == id_of(1)
    await second.close()


async def test_the_note_of_an_owner_that_died_is_no_hindrance(folder: Path) -> None:
    _write(folder / "owner.json", json.dumps({"process": 1, "machine": "elsewhere", "since": "long ago"}))
    store = _store(folder)
    await store.open(DECLARED)
    assert json.loads(_read(folder / "owner.json"))["process"] == os.getpid()
    await store.close()


async def test_a_failed_open_lets_go_of_the_folder_and_can_be_repeated(folder: Path) -> None:
    _write(folder / "shard" / "edge_config.json", "{")
    store = _store(folder)
    with pytest.raises(StoreError):
        await store.open(DECLARED)
    shutil.rmtree(folder / "shard")
    await store.open(DECLARED)
    await store.close()


async def test_a_disk_without_room_is_refused_before_edge_dies_of_it(small_disk: Path) -> None:
    """On a full disk the system kills the process that runs Edge. This disk has three
    megabytes.
    """
    store = _store(small_disk / "edge")
    with pytest.raises(StoreFull, match="reserve_bytes"):
        await store.open(DECLARED)
    with pytest.raises(StoreFull):
        await store.open(DECLARED)


async def test_writes_stop_before_the_disk_is_full_and_reads_go_on(
    edge: QdrantStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await apply_all(edge, put(record(1)))
    monkeypatch.setattr("shutil.disk_usage", lambda _path: SimpleNamespace(free=100 * 2**20))
    with pytest.raises(StoreFull, match="reserve_bytes"):
        await edge.apply([put(record(2))])
    assert (await fetch_record(edge, 1)).key.id == id_of(1)
    monkeypatch.undo()
    await apply_all(edge, put(record(2)))


async def test_what_only_deletes_may_use_half_of_the_reserve(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _store(folder)
    await store.open(DECLARED)
    await apply_all(store, put(record(1)), put(record(2)))
    await store.close()
    monkeypatch.setattr("shutil.disk_usage", lambda _path: SimpleNamespace(free=100 * 2**20))
    await store.open(DECLARED)
    with pytest.raises(StoreFull, match="delete and vacuum"):
        await store.apply([put(record(3)), delete(1)])
    await apply_all(store, delete(1), RaiseGeneration(HERE))
    assert await store.delete_matching(Query(SAMPLES, within(HERE)), 9) == 1
    monkeypatch.setattr("shutil.disk_usage", lambda _path: SimpleNamespace(free=60 * 2**20))
    with pytest.raises(StoreFull):
        await store.apply([delete(5)])
    await store.close()


async def test_the_log_is_cut_when_it_is_long(folder: Path) -> None:
    store = _store(folder, log_bytes=4 * 2**20)
    await store.open(DECLARED)
    for n in range(60):
        await apply_all(
            store,
            put(
                record(
                    n, body={"x": "y" * 100_000}, texts={"content": "lantern"}, vector=pack_vector([1.0, n])
                )
            ),
        )
    assert len(await hit_ids(store, "lantern")) == 50
    assert dict((await fetch_record(store, 3)).body) == {"x": "y" * 100_000}
    await store.close()


async def test_optimising_leaves_the_loop_free_and_the_data_as_it_is(folder: Path) -> None:
    store = _store(folder)
    await store.open(DECLARED)
    await apply_all(
        store, *[put(record(n, texts={"content": "lantern"}, vector=_at(n))) for n in range(1500)]
    )
    longest, last, over = 0.0, time.perf_counter(), False

    async def breathe() -> None:
        nonlocal longest, last
        while not over:
            await asyncio.sleep(0.005)
            longest, last = max(longest, time.perf_counter() - last), time.perf_counter()

    breathing = asyncio.create_task(breathe())
    optimising = asyncio.create_task(store.optimise())
    await asyncio.sleep(0)
    waiting = [asyncio.create_task(fetch_record(store, n)) for n in range(5)]
    await optimising
    over = True
    await breathing
    assert [(await w).key.id for w in waiting] == [id_of(n) for n in range(5)]
    hits = await store.search(Search(SAMPLES, within(HERE), Near(_at(700)), 3))
    assert hits[0].head.key.id == id_of(700)
    await apply_all(store, put(record(3, version=2)))
    assert longest < 30.0, "only closing and opening hold the loop"
    await store.close()


async def test_only_edge_is_optimised_by_hand() -> None:
    store = QdrantStore("qdrant://:memory:")
    await store.open(DECLARED)
    with pytest.raises(Unsupported, match="optimise"):
        await store.optimise()
    await store.close()
