"""The thread behind the store: cancelled callers, closing while busy, locks held by
others, and what errors become.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from memory.adapters.sql.sqlite.errors import translate
from memory.adapters.sql.sqlite.session import Session
from memory.adapters.sql.sqlite.store import SqliteStore
from memory.adapters.sql.sqlite.words import Posting, WordIndex
from memory.adapters.sql.sqlite.worker import Worker, run_synchronously
from memory.domain.errors import InvalidInput, NotOpen, StoreError, StoreFull, StoreUnavailable
from memory.ports.contract.cells import cells
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import (
    HERE,
    apply_all,
    fetch_record,
    fetch_stored,
    key_of,
    put,
    record,
    search_hits,
)
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.query import Eq, Order, Query, within
from memory.ports.record import Record
from memory.ports.writes import Absent
from tests.unit.adapters.sql.sqlite.helping import opened, raw


async def test_a_cancelled_call_hurts_no_other(store: SqliteStore) -> None:
    tasks = [asyncio.create_task(store.apply([put(record(n, body={"n": n}))])) for n in range(60)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(a, asyncio.CancelledError) or a[0].applied for a in answers)  # type: ignore[index]
    assert all(isinstance(r, Record) for r in await store.get(SAMPLES, [key_of(n) for n in range(1, 60, 2)]))
    await apply_all(store, put(record(100)))
    assert (await fetch_record(store, 100)).version == 1


async def test_work_that_nobody_waits_for_any_more_is_not_begun() -> None:
    worker, begun, gate = Worker("test"), [], threading.Event()
    first = asyncio.create_task(worker.run(gate.wait))
    second = asyncio.create_task(worker.run(lambda: begun.append(2)))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    gate.set()
    await first
    await worker.stop(lambda: None)
    assert begun == []


def test_a_coroutine_is_driven_to_its_end_unless_it_waits_for_something() -> None:
    async def counting(waiting: bool) -> int:
        turns = [n async for n in iterate_cooperatively(range(20), 2)]
        if waiting:
            await Waiting()
        return len(turns)

    assert run_synchronously(counting(False)) == 20
    with pytest.raises(AssertionError, match="waits for something"):
        run_synchronously(counting(True))


class Waiting:
    """As a future is waited for."""

    def __await__(self) -> Generator[object, None, None]:
        yield object()


async def test_closing_waits_for_calls_under_way(file: Path) -> None:
    store = await opened(file)
    tasks = [asyncio.create_task(store.apply([put(record(n))])) for n in range(20)]
    await asyncio.sleep(0)
    await store.close()
    assert all(outcomes[0].applied for outcomes in await asyncio.gather(*tasks))
    with pytest.raises(NotOpen):
        await store.get(SAMPLES, [key_of(1)])


async def test_a_file_locked_for_too_long_is_unavailable_and_then_works(file: Path) -> None:
    store = await opened(file, busy_timeout=0.05)
    with raw(file) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked"):
            await store.apply([put(record())])
        assert await fetch_stored(store) is None
        other.execute("ROLLBACK")
    await apply_all(store, put(record()))
    await store.close()


async def test_one_unstorable_record_does_not_fail_its_batch(store: SqliteStore) -> None:
    bad = [
        record(1, body={"n": float("nan")}),
        record(2, texts={"title": "half \ud800"}),
        record(3, version=2**63),
        record(4, fields={"confidence": float("inf")}),
        record(5, body={"x": object()}),
    ]
    outcomes = await store.apply([put(r) for r in [*bad, record(6)]])
    assert [o.status for o in outcomes] == ["rejected"] * 5 + ["applied"]
    assert all(o.reason for o in outcomes[:5])
    assert await store.get(SAMPLES, [r.key for r in bad]) == [None] * 5


async def test_writes_that_wait_together_share_a_commit_and_stay_apart(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed: list[str] = []
    run = Session.run

    def noting(self: Session, sql: str, values: Sequence[object] = ()) -> int:
        committed.append(sql)
        return run(self, sql, values)

    monkeypatch.setattr(Session, "run", noting)
    whole = [store.apply([put(record(n)), put(record(100 + n))]) for n in range(20)]
    undone = [store.apply([put(record(200 + n)), put(record(n), Absent())], together=True) for n in range(20)]
    outcomes = await asyncio.gather(*whole, *undone)
    assert all(o.applied for pair in outcomes[:20] for o in pair)
    assert [[o.status.value for o in pair] for pair in outcomes[20:]] == [["skipped", "conflict"]] * 20
    assert committed.count("COMMIT") < 20
    assert await store.get(SAMPLES, [key_of(200 + n) for n in range(20)]) == [None] * 20
    assert all(isinstance(r, Record) for r in await store.get(SAMPLES, [key_of(100 + n) for n in range(20)]))


async def test_a_write_that_breaks_the_shared_transaction_fails_alone(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = WordIndex.put

    def full(self: WordIndex, session: Session, postings: Iterable[Posting]) -> None:
        stored = list(postings)
        if any("poison" in word for _, word, _, _ in stored):
            raise _with_code(sqlite3.OperationalError, sqlite3.SQLITE_FULL)
        index(self, session, stored)

    monkeypatch.setattr(WordIndex, "put", full)
    batches = [
        [put(record(100 * n + i, texts={"title": "poison" if n == 3 else "water"})) for i in range(40)]
        for n in range(6)
    ]
    outcomes = await asyncio.gather(*[store.apply(batch) for batch in batches], return_exceptions=True)
    assert [isinstance(o, StoreFull) for o in outcomes] == [False, False, False, True, False, False]
    assert len(await search_hits(store, "water", limit=1000)) == 200
    assert await fetch_stored(store, 300) is None


def _with_code(kind: type[sqlite3.Error], code: int) -> sqlite3.Error:
    error = kind()
    error.sqlite_errorcode = code
    return error


@cells(
    "error, expected, retryable",
    [
        (_with_code(sqlite3.OperationalError, sqlite3.SQLITE_FULL), StoreFull, False),
        (_with_code(sqlite3.OperationalError, sqlite3.SQLITE_BUSY), StoreUnavailable, True),
        (_with_code(sqlite3.OperationalError, sqlite3.SQLITE_BUSY_SNAPSHOT), StoreUnavailable, True),
        (_with_code(sqlite3.OperationalError, sqlite3.SQLITE_IOERR_READ), StoreUnavailable, True),
        (_with_code(sqlite3.OperationalError, sqlite3.SQLITE_READONLY), StoreUnavailable, True),
        (_with_code(sqlite3.DatabaseError, sqlite3.SQLITE_CORRUPT_INDEX), StoreError, False),
        (_with_code(sqlite3.DatabaseError, sqlite3.SQLITE_NOTADB), StoreError, False),
        (sqlite3.ProgrammingError("who knows"), StoreError, False),
        (
            sqlite3.OperationalError("Could not decode to UTF-8 column 'x' with text 'secret'"),
            StoreError,
            False,
        ),
    ],
    shared=True,
)
def test_driver_errors_become_ours_also_inside_sqlalchemys(
    error: sqlite3.Error, expected: type[StoreError], retryable: bool
) -> None:
    for raised in (error, OperationalError("SELECT 1", {}, error)):
        ours = translate("s", raised)
        assert type(ours) is expected
        assert ours.retryable is retryable
        assert "secret" not in str(ours)


def test_what_is_not_the_drivers_is_left_alone() -> None:
    assert translate("s", ValueError("mine")) is None


async def test_a_store_opens_closes_and_opens_again_in_another_loop(file: Path) -> None:
    store = SqliteStore(f"sqlite:///{file}")
    for n in range(2):
        await store.open(DECLARED)
        await apply_all(store, put(record(n)))
        await store.close()
    assert threading.active_count() < 20


async def test_half_a_character_in_a_question_is_invalid_input_and_in_words_finds_nothing(
    store: SqliteStore,
) -> None:
    await apply_all(store, put(record(texts={"title": "a word"})))
    with pytest.raises(InvalidInput, match="surrogate"):
        await store.query(Query(SAMPLES, within(HERE), Eq("type", "\ud800")))
    assert await search_hits(store, "\ud800") == []


async def test_many_rows_are_read_in_one_page(store: SqliteStore) -> None:
    await apply_all(store, *[put(record(n, fields={"type": "x" * (n % 3)})) for n in range(5000)])
    page = await store.query(
        Query(SAMPLES, within(HERE), order=(Order("type"), Order("created_at", True)), limit=4999)
    )
    assert len(page.records) == 4999
    rest = await store.query(
        Query(
            SAMPLES,
            within(HERE),
            order=(Order("type"), Order("created_at", True)),
            limit=4999,
            cursor=page.cursor,
        )
    )
    assert [r.key for r in rest.records] == [key_of(2)]
