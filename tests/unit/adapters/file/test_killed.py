"""Processes that are killed, frozen or many: nothing acknowledged is lost, nothing is
half, and nobody waits for good.
"""

from __future__ import annotations

import asyncio
import errno
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from memory.adapters.file.commits import Commits, Step
from memory.adapters.file.disk import Disk
from memory.adapters.file.store import FileStore
from memory.adapters.file.thresholds import THRESHOLDS
from memory.domain.errors import StoreFull, StoreUnavailable
from memory.ports.contract.collections import MORE_SAMPLES, SAMPLES
from memory.ports.contract.support import (
    HERE,
    apply_all,
    fetch_record,
    fetch_stored,
    id_of,
    key_of,
    one,
    put,
    query_ids,
    record,
)
from memory.ports.query import MAX_LIMIT, Query, within
from memory.ports.record import Corrupt, FieldValue, Record, Tombstone
from memory.ports.writes import Absent, RaiseGeneration, Write
from tests.support.processes import finished, last_before_kill, line_of, started
from tests.unit.adapters.file.helping import file_of, opened, quarantined

pytestmark = pytest.mark.backend("file")

HEAD = """
import asyncio, itertools, sys, time
from memory.adapters.file.store import FileStore
from memory.ports.contract.collections import DECLARED, MORE_SAMPLES, SAMPLES
from memory.ports.contract.support import HERE, apply_all, delete, fetch_record, one, put, record
from memory.ports.writes import Absent, AtVersion, RaiseGeneration
"""
KILLED_AFTER = 60
"""Acknowledged batches after which a writer dies: four writes each."""

WRITER = (
    HEAD
    + """
async def main(folder, first):
    store = FileStore(f"file://{folder}")
    await store.open(DECLARED)
    for n in itertools.count(int(first)):
        writes = [
            put(record(n, body={"n": n})),
            delete(n - 1) if n % 3 == 0 and n % 1000 else put(record(n + 100_000, body={"n": n})),
            put(record(n), Absent(), MORE_SAMPLES),
            RaiseGeneration(HERE, 1 + n // 50),
        ]
        assert all(o.applied for o in await store.apply(writes))
        print(n, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""
)


def _written_until_killed(folder: Path, first: int) -> int:
    """The number of the last batch that the writer was told is kept."""
    with started(WRITER, folder, first) as writer:
        return last_before_kill(writer, first + KILLED_AFTER)


@pytest.mark.nightly
async def test_a_killed_writer_loses_nothing_it_was_told_is_kept_and_leaves_nothing_half(
    folder: Path,
) -> None:
    store = await opened(folder)
    for first in (0, 1000, 2000, 3000):
        last = await asyncio.to_thread(_written_until_killed, folder, first)
        for n in range(first, last + 2):
            other, stands, beside = (
                await fetch_stored(store, n, collection=MORE_SAMPLES),
                await fetch_stored(store, n),
                await fetch_stored(store, n + 100_000),
            )
            after = await fetch_stored(store, n + 1)
            if n == last + 1 and stands is None:
                assert [other, beside] == [None, None], "a batch is kept whole or not at all"
                continue
            assert isinstance(other, Record)
            tombstoned = (n + 1) % 3 == 0 and (n + 1) % 1000 and after is not None
            assert isinstance(stands, Tombstone if tombstoned else Record)
            if n % 3 == 0 and n % 1000:
                assert isinstance(await fetch_stored(store, n - 1), Tombstone)
            else:
                assert isinstance(beside, Record)
        assert ((await one(store, RaiseGeneration(HERE, 0))).number or 0) >= 1 + last // 50
    assert len(await query_ids(store)) > 3 * KILLED_AFTER
    await store.close()
    await store.open((SAMPLES,))
    assert list((folder / "staging.d").iterdir()) == [], (
        "what dead writers staged is cleaned when the store is opened"
    )
    await store.close()


MANY = (
    HEAD
    + """
async def main(folder, writer, each):
    store = FileStore(f"file://{folder}", lock_timeout=60)
    await store.open(DECLARED)
    won = 0
    for n in range(int(each)):
        await apply_all(store, put(record(1000 * int(writer) + n), Absent(), MORE_SAMPLES))
        won += (await one(store, put(record(n, version=int(writer)), Absent()))).applied
        while True:
            now = await fetch_record(store, 999)
            step = put(record(999, version=now.version + 1, body={"n": now.body["n"] + 1}), AtVersion(now.version))
            if (await one(store, step)).applied:
                break
    await store.close()
    print(won)

asyncio.run(main(*sys.argv[1:]))
"""
)


@pytest.mark.thorough
async def test_eight_processes_write_one_partition(store: FileStore) -> None:
    writers, each = 8, 15
    await apply_all(store, put(record(999, body={"n": 0})))
    folder = store.config.path
    outputs = await asyncio.to_thread(
        finished, [started(MANY, folder, w, each) for w in range(1, writers + 1)], 120
    )

    assert sum(map(int, outputs)) == each, "of those who create one record exactly one wins"
    assert dict((await fetch_record(store, 999)).body) == {"n": writers * each}, "no increment is lost"
    for w in range(1, writers + 1):
        for n in range(each):
            await fetch_record(store, 1000 * w + n, collection=MORE_SAMPLES)
    assert len(await query_ids(store)) == each + 1


# -- a process that is frozen ----------------------------------------------------------

HOLDER = (
    HEAD
    + """
from memory.adapters.file.lock import Lock
from pathlib import Path
with Lock("holder", Path(sys.argv[1])).hold(time.monotonic() + 10):
    print("held", flush=True)
    time.sleep(600)
"""
)


async def test_where_the_lock_is_not_to_be_had_a_damaged_record_waits_for_its_quarantine_and_its_neighbours_are_served(
    folder: Path,
) -> None:
    store = await opened(folder, lock_timeout=0.5)
    await apply_all(store, *[put(record(n)) for n in range(3)])
    file_of(folder, 1).write_bytes(b"{ not whole")
    with started(HOLDER, folder) as holder:
        try:
            assert await asyncio.to_thread(line_of, holder) == "held"
            assert [type(one) for one in await store.get(SAMPLES, [key_of(n) for n in range(3)])] == [
                Record,
                Corrupt,
                Record,
            ]
            assert quarantined(folder) == []
        finally:
            holder.kill()
    assert [type(one) for one in await store.get(SAMPLES, [key_of(n) for n in range(3)])] == [
        Record,
        Corrupt,
        Record,
    ]
    assert [one.read_bytes() for one in quarantined(folder)] == [b"{ not whole"]
    await store.close()


@pytest.mark.parametrize("frozen", [True, False], ids=["frozen", "busy"])
async def test_who_holds_the_lock_for_too_long_is_named_and_reads_go_on(folder: Path, frozen: bool) -> None:
    store = await opened(folder, lock_timeout=1)
    await apply_all(store, put(record(1)))
    assert await query_ids(store) == [id_of(1)]
    with started(HOLDER, folder) as holder:
        try:
            assert await asyncio.to_thread(line_of, holder) == "held"
            if frozen:
                holder.send_signal(signal.SIGSTOP)
            began = time.monotonic()
            with pytest.raises(StoreUnavailable, match=rf"store\.lock.*process {holder.pid}"):
                await one(store, put(record(2)))
            calls = [asyncio.ensure_future(one(store, put(record(n)))) for n in range(3, 103)]
            await asyncio.sleep(0)
            read = asyncio.ensure_future(fetch_record(store, 1))
            ended, _ = await asyncio.wait([read, *calls], return_when=asyncio.FIRST_COMPLETED)
            assert read in ended, "a read by key does not wait for the writes before it"
            assert (await read).version == 1
            failed = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(f) for f in failed} == {StoreUnavailable}
            assert await query_ids(store) == [id_of(1)]
            assert not (await store.check()).ok
            assert time.monotonic() - began < 60, (
                "they wait together: one after the other would be a hundred seconds"
            )
        finally:
            holder.kill()
    assert (await one(store, put(record(2)))).applied
    assert (await store.check()).ok
    assert await fetch_stored(store, 3) is None
    await store.close()


# -- a change under way ----------------------------------------------------------------


@pytest.mark.parametrize("changed", [(1, 2, 3), (3,)], ids=["several", "one"])
@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
async def test_whoever_asks_while_a_change_is_under_way_sees_it_whole_and_later_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch, warm: bool, changed: tuple[int, ...]
) -> None:
    writer, reader = await opened(folder), await opened(folder)
    await apply_all(writer, *[put(record(n, version=1)) for n in (1, 2)])
    if warm:
        assert await query_ids(reader) == [id_of(1), id_of(2)]
    noted, go_on = threading.Event(), threading.Event()
    genuine = Commits._do

    def slow(self: Commits, steps: Sequence[Step]) -> None:
        if self is writer.library.commits:
            noted.set()
            assert go_on.wait(60)
        genuine(self, steps)

    async def versions() -> list[int | None]:
        return [
            getattr(r, "version", None)
            for r in (await reader.query(Query(SAMPLES, within(HERE), limit=MAX_LIMIT))).records
        ]

    monkeypatch.setattr(Commits, "_do", slow)
    writing = asyncio.ensure_future(apply_all(writer, *[put(record(n, version=2)) for n in changed]))
    assert await asyncio.to_thread(noted.wait, 60)
    querying = asyncio.ensure_future(versions())
    getting = asyncio.ensure_future(reader.get(SAMPLES, [key_of(n) for n in changed]))
    await asyncio.wait((querying, getting), timeout=0.2)
    go_on.set()
    await writing
    after = [2 if n in changed else 1 for n in (1, 2, 3)]
    assert await querying == after
    if len(changed) > 1:
        assert [getattr(r, "version", None) for r in await getting] == [2] * len(changed)
    assert await versions() == after
    await getting
    for store in (writer, reader):
        await store.close()


# -- cut off between any two steps -----------------------------------------------------


class Killed(BaseException):
    """Where the process ends."""


def _sealed(version: int, apart: bool) -> dict[str, FieldValue]:
    """Bytes that differ from version to version: so many that they lie in a file of
    their own.
    """
    return {"seal": bytes([version]) * THRESHOLDS.bytes_apart} if apart else {}


async def _cut_off(folder: Path, monkeypatch: pytest.MonkeyPatch, method: str, at: int, apart: bool) -> bool:
    """Let a batch of several kinds of write end at the n-th call of this method.
    Whether it did.
    """
    store = await opened(folder)
    calls = 0
    genuine: Callable[..., object] = getattr(Disk, method)

    def counted(self: Disk, *arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls > at:
            raise Killed  # nothing is done any more, cleaning up included
        return genuine(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Disk, method, counted)
        try:
            batch: list[Write] = [
                put(record(1, version=2, body={"v": 2}, fields=_sealed(2, apart))),
                put(record(2, version=2)),
                put(record(3, fields=_sealed(3, apart)), Absent(), MORE_SAMPLES),
            ]
            await store.apply([*batch, RaiseGeneration(HERE)])
        except Killed:
            return True
    await store.close()
    return False


@pytest.mark.parametrize("apart", [False, True], ids=["in one file", "with bytes apart"])
@pytest.mark.parametrize("method", ["write_new", "rename", "remove", "sync_folder", "copy"])
async def test_a_batch_cut_off_anywhere_is_whole_or_was_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, apart: bool
) -> None:
    for at in range(40):
        folder = tmp_path / str(at)
        store = await opened(folder)
        await apply_all(store, put(record(1, body={"v": 1}, fields=_sealed(1, apart))), put(record(2)))
        cut = await _cut_off(folder, monkeypatch, method, at, apart)
        kept = {(await fetch_record(store, n)).version for n in (1, 2)}
        other = (await fetch_stored(store, 3, collection=MORE_SAMPLES)) is not None
        assert len(kept) == 1, f"cut off after {at} calls of {method}"
        assert other is (kept == {2})
        assert (await one(store, RaiseGeneration(HERE, 0))).number == (1 if other else 0)
        again = await opened(folder)
        assert {(await fetch_record(again, n)).version for n in (1, 2)} == kept
        assert (await fetch_record(again, 1)).fields == _sealed(max(kept), apart)
        assert (await again.audit()).problems == ()
        assert list((folder / "staging.d").iterdir()) == []
        await again.close()
        await store.close()
        if not cut:
            assert at > 0
            return
    raise AssertionError("the batch never came to its end")


@pytest.mark.parametrize("lasting", [False, True], ids=["one call", "every call from there"])
@pytest.mark.parametrize("method", ["write_new", "rename", "remove", "sync_folder", "copy"])
@pytest.mark.thorough
async def test_an_error_of_a_full_disk_says_that_nothing_was_kept_only_where_nothing_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, lasting: bool
) -> None:
    genuine: Callable[..., object] = getattr(Disk, method)
    said: set[type[BaseException] | None] = set()
    for at in range(40):
        folder = tmp_path / str(at)
        store = await opened(folder)
        await apply_all(store, put(record(1, body={"v": 1})), put(record(2)))
        calls = 0

        def full(self: Disk, *arguments: object, at: int = at) -> object:
            nonlocal calls
            calls += 1
            if calls == at + 1 or (lasting and calls > at):
                raise OSError(errno.ENOSPC, "No space left on device")
            return genuine(self, *arguments)

        with monkeypatch.context() as patch:
            patch.setattr(Disk, method, full)
            error: BaseException | None = None
            try:
                await store.apply(
                    [
                        put(record(1, version=2, body={"v": 2})),
                        put(record(2, version=2)),
                        put(record(3)),
                        RaiseGeneration(HERE),
                    ]
                )
            except (StoreFull, StoreUnavailable) as exc:
                error = exc
        again = await opened(folder)
        for looking in (store, again):
            kept = {(await fetch_record(looking, n)).version for n in (1, 2)}
            assert len(kept) == 1, f"cut off after {at} calls of {method}"
            assert (await fetch_stored(looking, 3) is not None) is (kept == {2})
            if error is None or isinstance(error, StoreFull):
                assert kept == ({2} if error is None else {1}), f"{error!r} after {at} calls of {method}"
        said.add(None if error is None else type(error))
        await again.close()
        await store.close()
    assert None in said, "the last of them went through"
    assert StoreFull in said or method in ("remove", "sync_folder"), said
    assert StoreUnavailable in said or method in ("write_new", "copy"), said
