"""The audit: everything the store derives from its records is what they say, whatever
became of it, and a repair brings it back.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from memory.adapters.sql import partitions
from memory.adapters.sql.sqlite.store import SqliteStore
from memory.ports.contract.collections import MORE_SAMPLES, SAMPLES
from memory.ports.contract.support import (
    HERE,
    apply_all,
    fetch_record,
    fetch_stored,
    hit_ids,
    id_of,
    key_of,
    one,
    put,
    record,
    search_hits,
)
from memory.ports.query import Near, Query, Search, within
from memory.ports.record import Corrupt, Partition, Record, pack_vector
from memory.ports.writes import Absent, Delete, Newer, Purge, RaiseGeneration, Release
from tests.unit.adapters.sql.sqlite.helping import change, opened, problems, raw, stored

THERE = Partition("acme", "user:bob")
EAST = Partition("other", "user:ada")


def one_of(n: int, at: Partition = HERE) -> Record:
    return record(n, at, texts={"content": "common"}, vector=pack_vector([1.0, float(n)]))


@pytest_asyncio.fixture
async def filled(store: SqliteStore) -> AsyncIterator[SqliteStore]:
    """Two records each in two partitions, one of them of generation 4."""
    await apply_all(
        store, RaiseGeneration(THERE, 4), *[put(one_of(n, at)) for at in (HERE, THERE) for n in (1, 2)]
    )
    yield store


async def mended(store: SqliteStore, *expected: str) -> None:
    """The audit tells just this, does so again while repairing, and then nothing."""
    told = await problems(store)
    assert len(told) == len(expected)
    assert all(part in problem for part, problem in zip(expected, told, strict=True)), told
    assert await problems(store, repair=True) == told
    assert await problems(store) == ()


async def test_records_whose_partition_is_not_registered_are_registered_anew_and_found(
    filled: SqliteStore, file: Path
) -> None:
    change(file, "DELETE FROM memory_partitions WHERE scope = 'user:bob'")
    assert await search_hits(filled, "common", within(THERE)) == []
    await mended(filled, "2 records are in a partition that is not registered as theirs")
    assert await hit_ids(filled, "common", within(HERE, THERE)) == {
        id_of(n, at) for n in (1, 2) for at in (HERE, THERE)
    }
    assert (await one(filled, put(record(7, THERE, generation=3)))).reason == "generation"


async def test_partitions_that_took_each_others_names_are_told_apart_by_their_records(
    filled: SqliteStore, file: Path
) -> None:
    exchanged = [("x", HERE.scope), (HERE.scope, THERE.scope), (THERE.scope, "x")]
    for new, old in exchanged:
        change(file, "UPDATE memory_partitions SET scope = ? WHERE scope = ?", new, old)
    await filled.audit(repair=True)
    assert await problems(filled) == ()
    assert await hit_ids(filled, "common", within(THERE)) == {id_of(1, THERE), id_of(2, THERE)}
    assert {r.key.id for r in (await filled.query(Query(SAMPLES, within(HERE)))).records} == {
        id_of(1),
        id_of(2),
    }


@pytest.mark.parametrize("wrong", ["1;7 common", "17;1 common", "1;x common"])
async def test_a_wrong_count_of_words_is_counted_anew(filled: SqliteStore, file: Path, wrong: str) -> None:
    change(file, "UPDATE samples SET words = ? WHERE id = ?", wrong.encode(), stored(id_of(1)))
    await mended(filled, "1 records carry a wrong count of their words")
    assert (await fetch_record(filled, 1)).texts == {"content": "common"}
    scores = [hit.score for hit in await search_hits(filled, "common")]
    assert scores[0] == scores[1]


async def test_what_is_kept_of_partitions_that_are_gone_and_of_rows_no_longer_in_quarantine_is_removed(
    filled: SqliteStore, file: Path
) -> None:
    change(file, "INSERT INTO memory_revisions VALUES (77, 'samples', 3, 1)")
    change(
        file,
        "INSERT INTO memory_quarantine VALUES ('samples', 'acme', ?, 1, 'was damaged', 0, '[]')",
        stored(id_of(1)),
    )
    await mended(filled, "memory_revisions: 1 rows", "memory_quarantine: 1 rows")
    with raw(file) as connection:
        assert connection.execute("SELECT count(*) FROM memory_quarantine").fetchone() == (0,)


async def test_a_record_that_is_in_quarantine_is_no_problem_of_the_audit(
    filled: SqliteStore, file: Path
) -> None:
    change(file, "UPDATE samples SET text_content = 'forged' WHERE id = ?", stored(id_of(1)))
    assert await problems(filled, repair=True) == ()
    assert isinstance(await fetch_stored(filled, 1), Corrupt)
    assert await problems(filled) == ()
    with raw(file) as connection:
        assert connection.execute("SELECT count(*) FROM memory_quarantine").fetchone() == (1,)


async def test_an_index_of_sqlite_that_lacks_a_row_is_built_anew(filled: SqliteStore, file: Path) -> None:
    with raw(file) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        (sql,) = connection.execute(
            "SELECT sql FROM sqlite_master WHERE name = 'ix_samples_members'"
        ).fetchone()
        connection.execute(
            "UPDATE sqlite_master SET sql = ? WHERE name = 'ix_samples_members'",
            (f"{sql} WHERE revision > 1",),
        )
    with raw(file) as connection:
        connection.execute("REINDEX ix_samples_members")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'ix_samples_members'", (sql,))
    await filled.close()
    again = await opened(file)
    told = await problems(again)
    assert any("ix_samples_members" in problem for problem in told)
    await again.audit(repair=True)
    assert await problems(again) == ()
    assert len(await search_hits(again, "common", within(HERE))) == 2
    await again.close()


async def test_what_searches_keep_in_memory_is_compared_and_dropped_where_it_differs(
    filled: SqliteStore,
) -> None:
    near = Search(SAMPLES, within(HERE), Near(pack_vector([1.0, 2.0])), 5)
    before = await filled.search(near)
    (members,) = filled._cache._kept.values()
    assert members.matrices is not None
    members.words = members.words + 1
    await mended(filled, "what searches keep in memory of partition")
    await filled.search(near)
    (members,) = filled._cache._kept.values()
    assert members.matrices is not None
    next(iter(members.matrices.values())).units.rows[:] = np.float32(0.5)
    await mended(filled, "what searches keep in memory of partition")
    assert await filled.search(near) == before


async def test_forgotten_partitions_are_of_nobody_and_their_numbers_are_never_given_again(
    store: SqliteStore, file: Path
) -> None:
    await apply_all(store, put(one_of(1)), put(one_of(1, EAST)))
    assert len(await search_hits(store, "common", within(EAST))) == 1
    assert await store.idle_partitions() == []
    await store.delete_matching(Query(SAMPLES, within(EAST)), 2)
    assert await store.idle_partitions() == [(EAST, 0)]
    assert await store.forget_partitions([(EAST, 1), (HERE, 0)]) == 0
    assert await store.forget_partitions([(EAST, 0), (EAST, 0)]) == 1
    with raw(file) as connection:
        numbers = {number for (number,) in connection.execute("SELECT number FROM memory_partitions")}
        assert {
            number for (number,) in connection.execute("SELECT partition_no FROM memory_revisions")
        } <= numbers
        assert connection.execute("SELECT tenant FROM memory_partitions").fetchall() == [(HERE.tenant,)]
    await apply_all(store, put(one_of(2, THERE)))
    assert await search_hits(store, "common", within(EAST)) == []
    assert await hit_ids(store, "common", within(THERE)) == {id_of(2, THERE)}
    await apply_all(store, put(one_of(3, EAST), Absent()))
    assert await hit_ids(store, "common", within(EAST)) == {id_of(3, EAST)}
    assert await problems(store) == ()


async def test_a_partition_with_a_mark_or_a_record_in_quarantine_is_not_idle(
    store: SqliteStore, file: Path
) -> None:
    moved, damaged, raised = (Partition("acme", f"user:{name}") for name in ("moved", "damaged", "raised"))
    await apply_all(store, put(one_of(1, moved)), put(one_of(1, damaged)))
    await apply_all(store, RaiseGeneration(raised, 3), Release(SAMPLES, key_of(1, moved), 1, "long"))
    change(file, "UPDATE samples SET body = 'x' WHERE id = ?", stored(id_of(1, damaged)))
    assert isinstance(await fetch_stored(store, 1, damaged), Corrupt)
    assert await store.idle_partitions() == [(raised, 3)]
    assert await store.forget_partitions([(moved, 0), (damaged, 0), (raised, 2)]) == 0
    await apply_all(
        store, Purge(SAMPLES, key_of(1, moved), 1), Delete(SAMPLES, key_of(1, damaged), 2, Newer())
    )
    assert set(await store.idle_partitions()) == {(raised, 3), (moved, 0), (damaged, 0)}
    assert len(await store.idle_partitions(2)) == 2
    assert await store.forget_partitions(await store.idle_partitions()) == 3
    assert await store.idle_partitions() == []
    assert (await one(store, RaiseGeneration(raised, 0))).number == 0


@pytest.mark.parametrize("limit", [1, 4, 100])
async def test_of_many_partitions_some_are_looked_at_in_turn_and_none_is_passed_over(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(partitions, "LOOKED_AT", 3)
    idle = {(Partition("acme", f"session:{n}"), n) for n in range(1, 11)}
    await apply_all(store, *[RaiseGeneration(at, generation) for at, generation in idle], put(record(1)))
    told = set()
    for _ in range(20):
        told |= (some := set(await store.idle_partitions(limit)))
        assert len(some) <= min(limit, 6)
    assert told == idle


async def test_a_partition_in_use_in_a_collection_this_store_was_not_opened_with_is_not_idle(
    store: SqliteStore, file: Path
) -> None:
    await apply_all(store, put(record(1, HERE), collection=MORE_SAMPLES))
    other = SqliteStore(f"sqlite:///{file}")
    await other.open([SAMPLES])
    assert await other.idle_partitions() == []
    assert await other.forget_partitions([(HERE, 0)]) == 0
    await other.close()
