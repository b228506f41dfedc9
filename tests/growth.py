"""Growth and slow-down: a hundred entries are updated twenty thousand times, and the
store is to be as quick and as small afterwards.

python -m tests.growth                                every store of this machine, for `make prove`
python -m tests.growth --store sqlite --updates 2000   one, for less long

After each tenth of the updates times are taken, of updates and of questions by words,
by filter and by key; the last tenth is compared with the second, for the first pays for
what is made once. Bytes are those that the store keeps once it has been vacuumed, after
the fifth tenth and after the last; in between it is left to itself. A store may take
room step by step at first (InnoDB gives each part of an index a page of its own in the
end): what it needs it has had half-way. Times tell something on a quiet machine only.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from memory.ports.contract.collections import DECLARED
from memory.ports.contract.harness import Harness
from memory.ports.contract.support import (
    T0,
    apply_all,
    fetch_record,
    fetch_stored,
    hit_ids,
    put,
    query_ids,
    record,
)
from memory.ports.query import Has
from memory.ports.record import Record
from memory.ports.store import Store
from tests.contract.every_harness import HARNESSES
from tests.contract.in_a_folder import InAFolder
from tests.contract.mongo_harnesses import DATABASE as MONGO_DATABASE
from tests.contract.mongo_harnesses import MongoAlone
from tests.contract.mysql_harnesses import DATABASE, MariaDb
from tests.contract.postgres_harnesses import Postgresql
from tests.contract.redis_harnesses import Redis
from tests.support import mongo_servers, redis_servers

ENTRIES_KEPT = 100
TENTHS = 10
HALF_WAY = TENTHS // 2
SLOWER = 2.0
"""How much slower the end may be than the beginning: more than the noise of a machine."""
LEFT_BEHIND = 200.0
"""Bytes an update may leave behind once there was a vacuum: less than the smallest row,
more than a log that is cut now and then.
"""
WORDS = ("harbour", "lantern", "violin", "ferry", "copper", "orchard", "thistle", "granite")


@dataclass
class Course:
    """What one store came to, a number a tenth."""

    each: int
    """Updates in a tenth."""
    updates: list[float] = field(default_factory=list)
    questions: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    """Half-way and after the last tenth; 0 where that cannot be asked."""

    @property
    def left_behind(self) -> float:
        """Bytes, by each update of the second half."""
        return (self.sizes[-1] - self.sizes[0]) / (self.each * (TENTHS - HALF_WAY))

    @property
    def verdicts(self) -> list[str]:
        """What has grown beyond what is allowed."""
        times = (("updates", self.updates), ("questions", self.questions))
        slower = [
            f"{name} take {took[-1] / took[1]:.1f} times as long"
            for name, took in times
            if took[-1] > SLOWER * took[1]
        ]
        larger = (
            [f"each update leaves {self.left_behind:.0f} bytes behind"]
            if self.left_behind > LEFT_BEHIND
            else []
        )
        return slower + larger


async def course(harness: Harness, store: Store, updates: int) -> Course:
    """Update the entries in turn, one call an update, each time to other words, and
    measure.
    """
    await store.open(DECLARED)
    await apply_all(store, *[put(_entry(n, 1)) for n in range(ENTRIES_KEPT)])
    come_to, version = Course(each=updates // TENTHS), 1
    for tenth in range(TENTHS):
        took = []
        for n in range(come_to.each):
            version += n % ENTRIES_KEPT == 0
            begun = time.perf_counter()
            await apply_all(store, put(_entry(n % ENTRIES_KEPT, version)))
            took.append(time.perf_counter() - begun)
        come_to.updates.append(median(took))
        come_to.questions.append(median([await _asked(store, word) for word in WORDS]))
        if tenth + 1 in (HALF_WAY, TENTHS):
            await store.vacuum()
            come_to.sizes.append(await _size(harness))
    assert (await fetch_record(store, 0)).version == version
    assert not (await store.audit()).problems
    return come_to


def _entry(n: int, version: int) -> Record:
    words = " ".join(WORDS[(n + version * place) % len(WORDS)] for place in range(1, 6))
    tags = ("even",) if version % 2 == 0 else ("odd",)
    content = f"{words} number{n} version{version}"
    return record(
        n,
        version=version,
        updated_at=T0,
        fields={"type": "context", "tags": tags},
        texts={"content": content},
    )


async def _asked(store: Store, word: str) -> float:
    begun = time.perf_counter()
    if store.capabilities.lexical:
        assert await hit_ids(store, word)
    if store.capabilities.filter:
        await query_ids(store, part=Has("tags", "even"), limit=20)
    assert await fetch_stored(store) is not None
    return time.perf_counter() - begun


async def _size(harness: Harness) -> int:
    """Bytes that are kept; 0 where that cannot be asked."""
    if isinstance(harness, InAFolder):
        return sum(file.stat().st_blocks * 512 for file in harness.folder.rglob("*") if file.is_file())
    if isinstance(harness, Redis):
        return redis_servers.used(harness.server.port)
    if isinstance(harness, Postgresql):
        import asyncpg

        connection = await asyncpg.connect(**harness.running().settings)
        try:
            await connection.execute("VACUUM")  # as the server does by itself, once a minute has gone by
            return int(await connection.fetchval("SELECT pg_database_size(current_database())"))
        finally:
            await connection.close()
    if isinstance(harness, MariaDb):
        server = harness.running()
        ((where,),) = await server.run_sql("SELECT @@datadir")
        return (
            int((await asyncio.to_thread(server.run, "du", "-sk", f"{where}/{DATABASE}")).split()[0]) * 1024
        )
    if isinstance(harness, MongoAlone):
        return mongo_servers.size(harness.running(), MONGO_DATABASE)
    return 0


async def _measured(kind: type[Harness], updates: int) -> Course:
    with tempfile.TemporaryDirectory() as folder:
        harness = kind(Path(folder))
        store = await harness.make()
        if isinstance(harness, MongoAlone):
            mongo_servers.keep_no_history(
                harness.running()
            )  # a replica set keeps what was replaced for five minutes: longer than this takes
        try:
            return await course(harness, store, updates)
        finally:
            await harness.dispose(store)


def main() -> int:
    stores = {
        harness.name: harness
        for harness in HARNESSES
        if not harness.name.startswith(("in_memory_", "split", "wrapped"))
    }
    parser = argparse.ArgumentParser(
        prog="tests.growth", description="A hundred entries, updated many times."
    )
    parser.add_argument(
        "--store", choices=sorted(stores), action="append", help="this one only; may be repeated"
    )
    parser.add_argument("--updates", type=int, default=20_000, help="how many in all")
    options = parser.parse_args()
    failed = False
    print(
        f"{'':20} {'update, ms':>19} {'questions, ms':>19} {'kilobytes':>19}   (second tenth and last;"
        " half-way and at the end)"
    )
    for name in options.store or stores:
        found = asyncio.run(_measured(stores[name], options.updates))
        times = [f"{took[1] * 1e3:9.2f} {took[-1] * 1e3:9.2f}" for took in (found.updates, found.questions)]
        sizes = [f"{size / 1e3:9.0f}" if size else f"{'not asked':>9}" for size in found.sizes]
        print(f"{name:20} {' '.join(times + sizes)}   {', '.join(found.verdicts) or 'as before'}", flush=True)
        failed = failed or bool(found.verdicts)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
