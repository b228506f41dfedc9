"""How often a call goes to the server and back: the table that an adapter is held to. A
trip more is a change that a user feels on every call.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from memory.ports.candidates import Candidates, Neighbourhood
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import HERE, T0, apply_all, delete, id_of, key_of, put, record, release
from memory.ports.query import Eq, Order, Query, Search, Words, within
from memory.ports.record import PendingStep, Role
from memory.ports.store import Store
from memory.ports.writes import Absent, Annotate, AtVersion, Newer, Purge, RaiseGeneration, Write
from tests.support.backends import marks_of
from tests.support.counting import Counting
from tests.support.drivers import DRIVERS, Driver

ROUNDS = 3
"""The last of so many rounds counts: statements are prepared by then, and partitions
known.
"""

Call = Callable[[Store, int], Awaitable[object]]
"""One call on records of the round's own; rounds begin at 1."""


def _n(round_: int, place: int = 0) -> int:
    return 1_000 * round_ + place


async def _stand(store: Store, round_: int, count: int = 1, **parts: Any) -> None:
    await apply_all(store, *[put(record(_n(round_, i), **parts), Newer()) for i in range(count)])


@dataclass(frozen=True)
class Asked:
    """A call and what stands before it: `standing` records of the round, with these
    parts.
    """

    call: Call
    standing: int = 0
    parts: Mapping[str, Any] | None = None


def _apply(*writes: Callable[[int], Write]) -> Call:
    async def call(store: Store, round_: int) -> None:
        outcomes = await store.apply([write(round_) for write in writes])
        assert all(o.applied for o in outcomes), outcomes

    return call


def _many(write: Callable[[int], Write], count: int) -> Call:
    """The same write to many keys in one call; `write` is given a key's number."""

    async def call(store: Store, round_: int) -> None:
        outcomes = await store.apply([write(_n(round_, i)) for i in range(count)])
        assert all(o.applied for o in outcomes), outcomes

    return call


CALLS: Mapping[str, Asked] = {
    "what is due, where nothing is": Asked(lambda s, r: s.due(T0, expired={SAMPLES: T0})),
    "get one": Asked(lambda s, r: s.get(SAMPLES, [key_of(_n(r))]), 1),
    "get fifty": Asked(lambda s, r: s.get(SAMPLES, [key_of(_n(r, i)) for i in range(50)]), 50),
    "put Absent": Asked(_apply(lambda r: put(record(_n(r)), Absent()))),
    "put AtVersion": Asked(_apply(lambda r: put(record(_n(r), version=2), AtVersion(1))), 1),
    "put Newer": Asked(_apply(lambda r: put(record(_n(r), version=2), Newer())), 1),
    "put Always": Asked(_apply(lambda r: put(record(_n(r), version=2))), 1),
    "put Newer over what owes": Asked(
        _apply(
            lambda r: put(
                record(_n(r), version=2, owed=(PendingStep("deliver", "deliver", {"to": "long"}),)), Newer()
            )
        ),
        1,
        {"owed": (PendingStep("deliver", "deliver", {"to": "long"}),)},
    ),
    "delete": Asked(_apply(lambda r: delete(_n(r), 9)), 1),
    "release": Asked(_apply(lambda r: release(_n(r))), 1),
    "annotate": Asked(_apply(lambda r: Annotate(SAMPLES, key_of(_n(r)), 1, tier="mid")), 1),
    "purge": Asked(_apply(lambda r: Purge(SAMPLES, key_of(_n(r)), 1)), 1, {"role": Role.CACHED}),
    "raise a generation": Asked(_apply(lambda r: RaiseGeneration(HERE, 0))),
    "put fifty, Absent": Asked(_many(lambda n: put(record(n), Absent()), 50)),
    "put fifty, Newer": Asked(_many(lambda n: put(record(n, version=2), Newer()), 50), 50),
    "release fifty": Asked(_many(release, 50), 50),
    "annotate fifty": Asked(_many(lambda n: Annotate(SAMPLES, key_of(n), 1, tier="mid"), 50), 50),
    "newest twenty": Asked(
        lambda s, r: s.query(Query(SAMPLES, within(HERE), order=(Order("created_at", True),), limit=20)), 30
    ),
    "twenty by a field": Asked(
        lambda s, r: s.query(Query(SAMPLES, within(HERE), Eq("type", "fact"), limit=20)),
        30,
        {"fields": {"type": "fact"}},
    ),
    "count": Asked(lambda s, r: s.count(Query(SAMPLES, within(HERE), Eq("id", id_of(_n(r))))), 1),
    "search by words": Asked(
        lambda s, r: s.search(Search(SAMPLES, within(HERE), Words("heron"), 10)),
        30,
        {"texts": {"content": "a grey heron"}},
    ),
    "candidates": Asked(
        lambda s, r: s.candidates(
            Candidates(
                SAMPLES,
                within(HERE),
                "heron",
                counted=("heron",),
                around=Neighbourhood("conversation_id", "number", 2),
            )
        ),
        30,
        {"texts": {"content": "a grey heron"}, "fields": {"conversation_id": "c", "number": 1}},
    ),
}

COLUMNS = ("redis", "postgresql", "mariadb", "mongo_replica_set")
ALLOWED: Mapping[str, tuple[int | None, ...]] = {
    "what is due, where nothing is": (1, 1, 1, 1),
    "get one": (1, 1, 1, 1),
    "get fifty": (1, 1, 1, 1),
    "put Absent": (1, 1, 1, 1),
    "put AtVersion": (1, 1, 6, 1),
    "put Newer": (1, 1, 6, 1),
    "put Always": (1, 1, 6, 1),
    "put Newer over what owes": (1, 4, 6, 4),
    "delete": (1, 1, 5, 1),
    "release": (2, 2, 5, 2),
    "annotate": (2, 2, 2, 2),
    "purge": (2, 2, 5, 2),
    "raise a generation": (1, 1, 1, 1),
    "put fifty, Absent": (1, 4, 6, 4),
    "put fifty, Newer": (1, 4, 8, 8),
    "release fifty": (2, 4, 7, 3),
    "annotate fifty": (2, 4, 6, 3),
    "newest twenty": (1, 1, 1, 1),
    "twenty by a field": (2, 1, 1, 1),
    "count": (2, 1, 1, 1),
    "search by words": (None, 2, 4, 3),
    "candidates": (1, 2, 3, 3),
}
"""The trips of each call on each backend; None where the backend does not offer the
call.
"""


@pytest.fixture(params=[pytest.param(d, id=d.backend, marks=marks_of(d.backend)) for d in DRIVERS])
async def counted(request: pytest.FixtureRequest) -> AsyncIterator[tuple[str, Counting, Store]]:
    driver: Driver = request.param
    if driver.before is not None:
        await driver.before()
    async with Counting(driver.port()) as way:
        store = driver.store(way.port)
        await store.open(DECLARED)
        yield driver.backend, way, store
        await store.close()


async def test_no_call_goes_to_the_server_more_often_than_the_table_says(
    counted: tuple[str, Counting, Store],
) -> None:
    backend, way, store = counted
    column = COLUMNS.index(backend)
    differing: dict[str, tuple[int, int | None]] = {}
    for number, (name, asked) in enumerate(CALLS.items()):
        allowed = ALLOWED[name][column]
        if allowed is None:
            continue
        for round_ in range(1, ROUNDS + 1):
            own = round_ + ROUNDS * number
            if asked.standing:
                await _stand(store, own, asked.standing, **(asked.parts or {}))
            before = way.trips
            await asked.call(store, own)
            taken = way.trips - before
        if taken != allowed:
            differing[name] = (taken, allowed)
    assert not differing, (
        f"trips, and those of the table; a trip less is to be kept too, so write it there: {differing}"
    )


def test_the_table_has_a_row_for_each_call() -> None:
    assert list(ALLOWED) == list(CALLS)
    assert all(len(row) == len(COLUMNS) for row in ALLOWED.values())
    assert [d.backend for d in DRIVERS] == list(COLUMNS)
