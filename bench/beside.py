"""A store on a database server beside its bare driver on the same server: one put, the
newest twenty of a partition, a bulk write.

Raw is what one writes without a library: a plain table with the index that browsing
needs, and for the bulk write also one whose words are found.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import Protocol

import numpy

from bench.measure import Figure, side_by_side
from bench.texts import sentences
from memory.domain.ids import new_id
from memory.domain.time import moment
from memory.orchestrator.storage.collections import ENTRIES
from memory.ports.query import Order, Query, within
from memory.ports.record import Key, Partition, Record
from memory.ports.store import Store
from memory.ports.writes import Absent, Put

HERE = Partition("acme", "user:ada")
DIMENSIONS = 256
BULK, AT_ONCE = 10_000, 500
NEWEST = 20

numbers = numpy.random.default_rng(7)


class Bare(Protocol):
    """The driver, as one uses it without a library."""

    async def put(self, record: Record) -> None: ...

    async def newest(self) -> Sequence[object]:
        """The newest twenty of the partition, as an application would use them."""

    async def fill(self, records: Sequence[Record], *, found: bool) -> None:
        """Write them all at once: to the table whose words are found, or to the other."""


def records(contents: list[str], start: int) -> list[Record]:
    made = []
    for n, content in enumerate(contents, start):
        at = moment(1_800_000_000_000_000 + n * 1_000)
        vector = numbers.standard_normal(DIMENSIONS).astype("<f4").tobytes()
        key = Key(HERE.tenant, new_id(HERE.tenant, HERE.scope, n * 1_000))
        body = {"metadata": {"n": n, "from": "bench"}}
        made.append(
            Record(
                key,
                HERE.scope,
                n,
                at,
                at,
                fields={"type": "fact"},
                body=body,
                texts={"content": content},
                vector=vector,
            )
        )
    return made


async def puts(name: str, store: Store, bare: Bare, rounds: int) -> Figure:
    made = records(sentences(300 * rounds + 50, seed=1), 1)

    async def ours(n: int) -> None:
        (outcome,) = await store.apply([Put(ENTRIES, made[n], Absent())])
        assert outcome.applied

    async def raw(n: int) -> None:
        await bare.put(made[n])

    await side_by_side(50, ours, raw)
    ours_s, raw_s = await side_by_side(300 * rounds, lambda n: ours(n + 50), lambda n: raw(n + 50))
    return Figure(f"{name}, one put", ours_s * 1000, "ms", raw=raw_s * 1000, ratio_target=2.5)


async def newest(name: str, store: Store, bare: Bare, rounds: int) -> Figure:
    query = Query(ENTRIES, within(HERE), order=(Order("created_at", True),), limit=NEWEST)

    async def ours(_: int) -> None:
        assert len((await store.query(query)).records) == NEWEST

    async def raw(_: int) -> None:
        assert len(await bare.newest()) == NEWEST

    await side_by_side(20, ours, raw)
    ours_s, raw_s = await side_by_side(300 * rounds, ours, raw)
    return Figure(
        f"{name}, the 20 newest of a partition", ours_s * 1000, "ms", raw=raw_s * 1000, ratio_target=2
    )


async def bulk(name: str, store: Store, bare: Bare, rounds: int) -> list[Figure]:
    """Against a bare table that is not searched, and against one whose words are found
    as ours are.
    """
    ours: list[float] = []
    raw: dict[bool, list[float]] = {False: [], True: []}
    for round_ in range(rounds):
        made = records(sentences(BULK, seed=10 + round_), 100_000 * (round_ + 1))
        calls = [made[start : start + AT_ONCE] for start in range(0, BULK, AT_ONCE)]
        begun = time.perf_counter()
        for some in calls:
            outcomes = await store.apply([Put(ENTRIES, r, Absent()) for r in some])
            assert all(o.applied for o in outcomes)
        ours.append(BULK / (time.perf_counter() - begun))
        for found, rates in raw.items():
            begun = time.perf_counter()
            for some in calls:
                await bare.fill(some, found=found)
            rates.append(BULK / (time.perf_counter() - begun))
    rate, title = median(ours), f"{name}, bulk write, {AT_ONCE} at once"
    return [
        Figure(
            f"{title}, raw with a full-text index",
            rate,
            "records/s",
            median(raw[True]) / 2,
            at_least=True,
            raw=median(raw[True]),
        ),
        Figure(f"{title}, raw without one", rate, "records/s", raw=median(raw[False])),
    ]
