"""The files: who may read them, what a commit waits for, and what a vacuum leaves of
what was deleted.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from memory.adapters.sql.sqlite.store import SqliteStore
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import HERE, apply_all, fetch_record, put, record, search_hits
from memory.ports.query import Query, within
from memory.ports.record import Record
from tests.unit.adapters.sql.sqlite.helping import content_of, opened, size_of


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def modes(folder: Path) -> dict[str, str]:
    return {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in folder.iterdir()}


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o277])
async def test_the_file_its_log_and_its_index_are_their_owners_alone_whatever_the_umask(
    file: Path, mask: int
) -> None:
    with umask(mask):
        store = await opened(file)
        await apply_all(store, put(record(1)))
        assert modes(file.parent) == {
            "memory.db": "0o600",
            "memory.db-wal": "0o600",
            "memory.db-shm": "0o600",
        }
        await store.vacuum()
        await store.close()
    assert modes(file.parent) == {"memory.db": "0o600"}


async def test_a_file_that_was_shared_on_purpose_stays_so(store: SqliteStore, file: Path) -> None:
    await store.close()
    os.chmod(file, 0o660)
    again = await opened(file)
    await apply_all(again, put(record(1)))
    assert set(modes(file.parent).values()) == {"0o660"}
    await again.close()


async def test_only_a_store_whose_commits_wait_for_the_disk_claims_to_be_durable(tmp_path: Path) -> None:
    def claims(options: str) -> tuple[bool, timedelta | None]:
        store = SqliteStore(f"sqlite:///{tmp_path}/a.db{options}")
        return store.capabilities.durable, store.capabilities.loss_window

    assert claims("") == (True, None)
    assert claims("?synchronous=full") == (True, None)
    assert claims("?synchronous=EXTRA") == (True, None)
    assert claims("?synchronous=NORMAL") == (False, timedelta(seconds=35))


async def test_the_run_of_a_store_tells_whether_it_may_have_lost_what_it_acknowledged(tmp_path: Path) -> None:
    kept, hurried, passing = (
        SqliteStore(f"sqlite:///{place}")
        for place in (f"{tmp_path}/a.db", f"{tmp_path}/b.db?synchronous=NORMAL", ":memory:")
    )
    runs = []
    for _ in range(2):
        for store in (kept, hurried, passing):
            await store.open(DECLARED)
        runs.append((kept.epoch, hurried.epoch, passing.epoch))
        assert (await passing.check()).epoch == passing.epoch
        for store in (kept, hurried, passing):
            await store.close()
    assert runs[0][0] == runs[1][0] == ""
    assert runs[0][1] == runs[1][1] != ""
    assert runs[0][2] != runs[1][2]


async def test_a_vacuum_gives_back_the_room_of_what_was_deleted_and_leaves_no_byte_of_it(
    store: SqliteStore, file: Path
) -> None:
    log = file.with_name("memory.db-wal")
    await apply_all(
        store,
        *[put(record(n, texts={"content": f"kalamazoo{n}"}, body={"said": "x" * 10_000})) for n in range(50)],
        put(record(100)),
    )
    await store.delete_matching(Query(SAMPLES, within(HERE)), 2)
    await apply_all(store, put(record(101, texts={"content": "afterwards"})))
    before = size_of(file, log)
    given_back = await store.vacuum()
    after = size_of(file, log)
    assert given_back == before - after > 500_000
    assert b"kalamazoo" not in content_of(file) + content_of(log)
    assert isinstance(await fetch_record(store, 101), Record)
    assert len(await search_hits(store, "afterwards")) == 1
    assert (await store.audit()).problems == ()
    assert await store.vacuum() == 0
    await apply_all(store, put(record(102)))


async def test_a_vacuum_of_a_store_in_memory_shrinks_it() -> None:
    store = SqliteStore("sqlite:///:memory:")
    await store.open(DECLARED)
    await apply_all(store, *[put(record(n, body={"said": "x" * 10_000})) for n in range(50)])
    await store.delete_matching(Query(SAMPLES, within(HERE)), 2)
    assert await store.vacuum() > 400_000
    assert (await store.audit()).problems == ()
    await store.close()
