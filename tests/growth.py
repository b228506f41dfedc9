"""Growth and slow-down: a hundred entries are updated twenty thousand times, and the store is to be as quick and as small afterwards.

python -m tests.growth                                every store of this machine, for `make prove`
python -m tests.growth --store sqlite --updates 2000   one, for less long

After each tenth of the updates two times are taken: of the updates, and of questions by words, by filter and by key. Bytes are what the store keeps
on its disk or in its memory, where that can be asked. The last tenth is compared with the second: the first pays for what is made once.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from memory.ports.collections import COLLECTIONS
from memory.ports.contract.harness import Harness
from memory.ports.contract.support import T0, asked, done, found, hit_ids, live, put, record
from memory.ports.query import Has
from memory.ports.record import Record
from memory.ports.store import Store
from tests.contract.every_harness import HARNESSES
from tests.contract.in_a_folder import InAFolder
from tests.contract.redis_harnesses import Redis
from tests.contract.served import Served
from tests.support import redis_servers
from tests.support.servers import Server

ENTRIES_KEPT = 100
TENTHS = 10
SLOWER, LARGER = 2.0, 3.0
"""How much slower and larger the end may be than the beginning: more than the noise of a machine and the room a database keeps for itself."""
WORDS = ("harbour", "lantern", "violin", "ferry", "copper", "orchard", "thistle", "granite")


@dataclass
class Course:
    """What one store came to, a number a tenth."""

    updates: list[float] = field(default_factory=list)
    questions: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    @property
    def verdicts(self) -> list[str]:
        """What has grown beyond what is allowed."""
        measured = (("updates", self.updates, SLOWER), ("questions", self.questions, SLOWER), ("bytes", self.sizes, LARGER))
        return [f"{name} grew {_grown(values):.1f} times" for name, values, most in measured if _grown(values) > most]


def _grown(values: Sequence[float]) -> float:
    return values[-1] / values[1] if len(values) > 1 and values[1] else 1.0


async def course(harness: Harness, store: Store, updates: int) -> Course:
    """Update the entries in turn, one call an update, each time to other words, and measure."""
    await store.open(COLLECTIONS)
    await done(store, *[put(_entry(n, 1)) for n in range(ENTRIES_KEPT)])
    come_to, version = Course(), 1
    for _ in range(TENTHS):
        took = []
        for n in range(updates // TENTHS):
            version += n % ENTRIES_KEPT == 0
            begun = time.perf_counter()
            await done(store, put(_entry(n % ENTRIES_KEPT, version)))
            took.append(time.perf_counter() - begun)
        come_to.updates.append(median(took))
        come_to.questions.append(median([await _asked(store, word) for word in WORDS]))
        await store.vacuum()
        come_to.sizes.append(await _size(harness))
    assert (await live(store, 0)).version == version
    assert not (await store.audit()).problems
    return come_to


def _entry(n: int, version: int) -> Record:
    words = " ".join(WORDS[(n + version * place) % len(WORDS)] for place in range(1, 6))
    tags = ("even",) if version % 2 == 0 else ("odd",)
    content = f"{words} number{n} version{version}"
    return record(n, version=version, updated_at=T0, fields={"type": "context", "tags": tags}, texts={"content": content})


async def _asked(store: Store, word: str) -> float:
    begun = time.perf_counter()
    if store.capabilities.lexical:
        assert await hit_ids(store, word)
    if store.capabilities.filter:
        await asked(store, part=Has("tags", "even"), limit=20)
    assert await found(store) is not None
    return time.perf_counter() - begun


_DISKS = {"postgres": "/var/lib/postgresql/data/base", "mysql": "/var/lib/mysql-data", "mongo": "/data/db"}
"""Where the images keep what they are given."""


async def _size(harness: Harness) -> int:
    """Bytes that are kept; 0 where that cannot be asked."""
    if isinstance(harness, InAFolder):
        return sum(file.stat().st_blocks * 512 for file in harness.folder.rglob("*") if file.is_file())
    if isinstance(harness, Redis):
        return redis_servers.used(harness.server.port)
    server = harness.running() if isinstance(harness, Served) else None
    if isinstance(server, Server) and server.image in _DISKS:
        said = await asyncio.to_thread(server.run, "du", "-sk", _DISKS[server.image])
        return int(said.split()[0]) * 1024
    return 0


async def _measured(kind: type[Harness], updates: int) -> Course:
    with tempfile.TemporaryDirectory() as folder:
        harness = kind(Path(folder))
        store = await harness.make()
        try:
            return await course(harness, store, updates)
        finally:
            await harness.dispose(store)


def main() -> int:
    stores = {harness.name: harness for harness in HARNESSES if not harness.name.startswith(("in_memory_", "split", "wrapped"))}
    parser = argparse.ArgumentParser(prog="tests.growth", description="A hundred entries, updated many times.")
    parser.add_argument("--store", choices=sorted(stores), action="append", help="this one only; may be repeated")
    parser.add_argument("--updates", type=int, default=20_000, help="how many in all")
    options = parser.parse_args()
    failed = False
    print(f"{'':20} {'update, ms':>19} {'questions, ms':>19} {'kilobytes':>19}   (in the second tenth, in the last)")
    for name in options.store or stores:
        come_to = asyncio.run(_measured(stores[name], options.updates))
        columns = [
            f"{first * unit:9.2f} {last * unit:9.2f}"
            for values, unit in ((come_to.updates, 1e3), (come_to.questions, 1e3), (come_to.sizes, 1e-3))
            for first, last in [(values[1], values[-1])]
        ]
        print(f"{name:20} {' '.join(columns)}   {', '.join(come_to.verdicts) or 'as before'}", flush=True)
        failed = failed or bool(come_to.verdicts)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
