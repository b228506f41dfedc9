"""A disk without room: the call fails by name, leaves nothing, and later ones work when
there is room again.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from memory.adapters.sql.sqlite.store import SqliteStore
from memory.domain.errors import StoreFull
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.support import (
    HERE,
    apply_all,
    delete,
    fetch_record,
    fetch_stored,
    key_of,
    put,
    record,
    search_hits,
)
from memory.ports.query import Eq, Query, within
from memory.ports.record import Record, Tombstone
from tests.support.small_disk import grow, small_disk
from tests.unit.adapters.sql.sqlite.helping import opened

__all__ = ["small_disk"]


def large(n: int) -> Record:
    return record(n, texts={"title": f"number{n}"}, body={"filling": "x" * 20_000})


async def test_a_file_at_its_largest_size_fails_by_name_and_leaves_nothing(store: SqliteStore) -> None:
    await apply_all(store, put(large(0)))

    def limit(session: object, pages: int) -> None:
        session.run(f"PRAGMA max_page_count = {pages}")  # type: ignore[attr-defined]

    await store.driver.write(lambda session: limit(session, session.row("PRAGMA page_count")[0] + 8))
    with pytest.raises(StoreFull):
        await store.apply([put(large(n)) for n in range(1, 20)])
    assert await store.get(SAMPLES, [key_of(n) for n in range(1, 20)]) == [None] * 19
    assert await search_hits(store, "number1") == []
    assert (await fetch_record(store, 0)).body == large(0).body
    await store.driver.write(lambda session: limit(session, 1_000_000))
    await apply_all(store, *[put(large(n)) for n in range(1, 20)])
    assert len(await search_hits(store, "number1")) == 1


async def test_a_full_disk_fails_by_name_and_keeps_what_was_acknowledged(small_disk: Path) -> None:
    store = await opened(small_disk / "memory.db")
    acknowledged: list[int] = []

    async def fill() -> None:
        for n in range(1000):
            await store.apply([put(large(n))])
            acknowledged.append(n)

    with pytest.raises(StoreFull):
        await fill()
    assert acknowledged
    assert await fetch_stored(store, len(acknowledged)) is None
    assert all([isinstance(await fetch_stored(store, n), Record) for n in acknowledged])
    with pytest.raises(StoreFull):
        await store.apply([put(large(n)) for n in range(2000, 2100)])
    grow(small_disk)
    await apply_all(store, put(large(3000)))
    await store.close()
    again = await opened(small_disk / "memory.db")
    assert all([isinstance(await fetch_stored(again, n), Record) for n in [*acknowledged, 3000]])
    assert await fetch_stored(again, 2000) is None
    await again.close()


async def test_on_a_full_disk_the_log_is_written_over_so_that_entries_can_be_deleted(
    small_disk: Path,
) -> None:
    store = await opened(small_disk / "memory.db")
    await apply_all(store, *[put(large(n)) for n in range(40)])
    await store.close()
    again = await opened(small_disk / "memory.db")
    await apply_all(again, put(record(100)))
    others = small_disk / "of-another-program"
    others.write_bytes(b"x" * max(0, shutil.disk_usage(small_disk).free - 150_000))
    for n in range(20):
        await apply_all(again, delete(n))
    assert (
        await again.delete_matching(Query(SAMPLES, within(HERE), Eq("type", "nothing of the kind")), 200) == 0
    )
    assert [type(stored) for stored in await again.get(SAMPLES, [key_of(n) for n in (0, 19, 20)])] == [
        Tombstone,
        Tombstone,
        Record,
    ]
    assert (await again.audit()).problems == ()
    await again.close()


async def test_a_deletion_that_a_full_disk_refuses_says_what_was_kept_and_what_to_do(
    small_disk: Path,
) -> None:
    store = await opened(small_disk / "memory.db")
    await apply_all(store, put(large(0)))
    (small_disk / "of-another-program").write_bytes(b"x" * shutil.disk_usage(small_disk).free)
    said = (
        "nothing of this call was kept, everything acknowledged before it was. Make room on the disk and call"
        " again"
    )
    for refused in (
        store.apply([delete(0)]),
        store.delete_matching(Query(SAMPLES, within(HERE)), 200),
        store.vacuum(),
    ):
        with pytest.raises(StoreFull, match=re.escape(said)):
            await refused
    assert (await fetch_record(store, 0)).body == large(0).body
    grow(small_disk)
    await apply_all(store, delete(0))
    await store.close()
