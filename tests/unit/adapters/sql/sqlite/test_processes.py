"""Many processes on one file, and processes that die."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from memory.adapters.sql.sqlite.store import SqliteStore
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.support import HERE, apply_all, key_of, put, record, search_hits
from memory.ports.query import Near, Search, within
from memory.ports.record import Record, pack_vector
from tests.support.processes import finished, line_of, started
from tests.unit.adapters.sql.sqlite.helping import opened

WRITE = """
import asyncio, sys
from memory.adapters.sql.sqlite.store import SqliteStore
from memory.ports.contract.collections import DECLARED
from memory.ports.contract.support import put, record
async def main():
    first, count = int(sys.argv[2]), int(sys.argv[3])
    store = SqliteStore("sqlite:///" + sys.argv[1])
    await store.open(DECLARED)
    for n in range(first, first + count):
        text = {"title": f"number{n} together"}
        outcomes = await store.apply([put(record(n, texts=text)), put(record(100_000 + n, texts=text))])
        assert all(o.applied for o in outcomes), outcomes
        print(n, flush=True)
    await store.close()
asyncio.run(main())
"""


@pytest.mark.thorough
async def test_eight_processes_write_one_file_and_nothing_acknowledged_is_missing(file: Path) -> None:
    processes = [started(WRITE, file, 1000 * p, 40) for p in range(8)]
    acknowledged = [int(n) for out in finished(processes) for n in out.split()]
    assert len(acknowledged) == 320
    store = await opened(file)
    assert all(isinstance(r, Record) for r in await store.get(SAMPLES, [key_of(n) for n in acknowledged]))
    assert len(await search_hits(store, "together", limit=1000)) == 640
    await store.close()


@pytest.mark.nightly
async def test_what_was_acknowledged_before_a_kill_is_there_and_batches_are_whole(file: Path) -> None:
    await (await opened(file)).close()
    for round_ in range(3):
        process = started(WRITE, file, 1000 * round_, 900)
        acknowledged = [int(line_of(process)) for _ in range(30 + 7 * round_)]
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate(timeout=30)
        acknowledged += [int(line) for line in rest.split("\n")[:-1]]
        store = await opened(file)
        assert all(isinstance(r, Record) for r in await store.get(SAMPLES, [key_of(n) for n in acknowledged]))
        written = [
            n
            for n, r in enumerate(await store.get(SAMPLES, [key_of(1000 * round_ + n) for n in range(900)]))
            if r is not None
        ]
        twins = [
            n
            for n, r in enumerate(
                await store.get(SAMPLES, [key_of(100_000 + 1000 * round_ + n) for n in range(900)])
            )
            if r is not None
        ]
        assert written == twins, "a batch was kept in part"
        assert len(await search_hits(store, f"number{1000 * round_}")) == 2
        await store.close()


async def test_what_another_process_wrote_replaced_and_deleted_is_seen_by_the_next_search(
    store: SqliteStore, file: Path
) -> None:
    from memory.ports.contract.support import delete

    async def near() -> list[tuple[str, float]]:
        hits = await store.search(Search(SAMPLES, within(HERE), Near(pack_vector([1.0, 0.0])), 10))
        return [(h.head.key.id, round(h.score, 6)) for h in hits]

    other = await opened(file)
    await apply_all(
        other, put(record(1, vector=pack_vector([1.0, 0.0]))), put(record(2, vector=pack_vector([0.0, 1.0])))
    )
    assert await near() == [(key_of(1).id, 1.0), (key_of(2).id, 0.0)]
    await apply_all(other, put(record(3, vector=pack_vector([1.0, 1.0]))))
    assert await near() == [(key_of(1).id, 1.0), (key_of(3).id, 0.707107), (key_of(2).id, 0.0)]
    await apply_all(
        other,
        put(record(1, version=2, vector=pack_vector([-1.0, 0.0]))),
        put(record(2, version=2, vector=pack_vector([1.0, 0.0, 0.0]))),
    )
    assert await near() == [(key_of(3).id, 0.707107), (key_of(1).id, -1.0)]
    await apply_all(other, delete(3))
    assert await near() == [(key_of(1).id, -1.0)]
    await apply_all(other, put(record(1, version=3)), put(record(4, vector=pack_vector([2.0, 0.0]))))
    assert await near() == [(key_of(4).id, 1.0)]
    await other.close()
