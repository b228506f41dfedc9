"""Opening, closing, many callers and many clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from memory.domain.errors import InvalidInput, NotOpen
from memory.ports.collections import Collection, Field, FieldType
from memory.ports.contract.capability_tests import needs
from memory.ports.contract.cells import cells
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.harness import Harness
from memory.ports.contract.support import (
    HERE,
    T0,
    apply_all,
    fetch_record,
    fetch_stored,
    id_of,
    key_of,
    one,
    put,
    query_ids,
    record,
    ways,
)
from memory.ports.query import Near, Query, Search, Words, within
from memory.ports.record import Role, pack_vector
from memory.ports.store import Store
from memory.ports.writes import Absent, Annotate, AtVersion, RaiseGeneration

CALLS: dict[str, Callable[[Store], Coroutine[Any, Any, object]]] = {
    "check": lambda s: s.check(),
    "get": lambda s: s.get(SAMPLES, [key_of(1)]),
    "apply": lambda s: s.apply([put(record())]),
    "query": lambda s: s.query(Query(SAMPLES, within(HERE))),
    "count": lambda s: s.count(Query(SAMPLES, within(HERE))),
    "search by words": lambda s: s.search(Search(SAMPLES, within(HERE), Words("x"), 1)),
    "search by meaning": lambda s: s.search(Search(SAMPLES, within(HERE), Near(pack_vector([1.0])), 1)),
    "delete_matching": lambda s: s.delete_matching(Query(SAMPLES, within(HERE)), 1),
    "get of nothing": lambda s: s.get(SAMPLES, []),
    "apply of nothing": lambda s: s.apply([]),
    "due": lambda s: s.due(T0),
    "audit": lambda s: s.audit(),
    "vacuum": lambda s: s.vacuum(),
    "idle_partitions": lambda s: s.idle_partitions(),
    "forget_partitions": lambda s: s.forget_partitions([(HERE, 1)]),
    "forget_partitions of nothing": lambda s: s.forget_partitions([]),
}


@clause("life.open")
@pytest.mark.asyncio
@cells("call", CALLS)
async def test_nothing_works_before_open_and_after_close(harness: Harness, call: str) -> None:
    store = await harness.make()
    try:
        with pytest.raises(NotOpen):
            await CALLS[call](store)
        await store.open(DECLARED)
        await store.close()
        with pytest.raises(NotOpen):
            await CALLS[call](store)
    finally:
        await harness.dispose(store)


@clause("life.open")
@pytest.mark.asyncio
async def test_opening_and_closing_twice_is_no_more_than_once(harness: Harness) -> None:
    store = await harness.make()
    try:
        await store.close()
        await store.open(DECLARED)
        await store.open(DECLARED)
        await apply_all(store, put(record()))
        await store.open(DECLARED)
        assert await query_ids(store) == [id_of(1)]
        await store.close()
        await store.close()
    finally:
        await harness.dispose(store)


@clause("life.open")
@pytest.mark.asyncio
async def test_opening_at_once_from_many_tasks_opens_once(harness: Harness) -> None:
    store = await harness.make()
    try:
        await asyncio.gather(*(store.open(DECLARED) for _ in range(8)))
        await apply_all(store, put(record()))
        await asyncio.gather(*(store.close() for _ in range(8)))
    finally:
        await harness.dispose(store)


@clause("life.close-keeps")
@pytest.mark.asyncio
async def test_a_store_closed_in_good_order_is_as_it_was_when_opened_again(
    harness: Harness, store: Store
) -> None:
    await apply_all(
        store,
        put(record(1, fields={"type": "kept"}, texts={"content": "lantern"}, body={"k": [1]})),
        RaiseGeneration(HERE, 3),
    )
    before = await fetch_stored(store, 1)

    again = await harness.reopen(store)
    try:
        await again.open(DECLARED)
        if again.capabilities.durable or again is store:
            assert await fetch_stored(again, 1) == before
            assert (await one(again, RaiseGeneration(HERE, 0))).number == 3
        await apply_all(again, put(record(2)))
        assert id_of(2) in await query_ids(again)
    finally:
        await again.close()


@clause("life.close-keeps")
@pytest.mark.asyncio
async def test_copies_in_every_role_are_found_again_after_reopening(harness: Harness, store: Store) -> None:
    """They are found by words, by meaning and by a list."""
    roles = dict(enumerate(Role))
    vector = pack_vector([1.0, 0.0]) if store.capabilities.semantic else None
    await apply_all(
        store,
        *[
            put(record(n, role=role, texts={"content": "lantern"}, vector=vector))
            for n, role in roles.items()
        ],
    )
    again = await harness.reopen(store)
    try:
        await again.open(DECLARED)
        if again.capabilities.durable or again is store:
            for n, role in roles.items():
                assert await query_ids(again, roles=frozenset({role})) == [id_of(n)]
                for by in ways(again, "lantern", 1.0, 0.0):
                    hits = await again.search(Search(SAMPLES, within(HERE), by, 10, roles=frozenset({role})))
                    assert [hit.head.key for hit in hits] == [key_of(n)]
    finally:
        await again.close()


@clause("life.health")
@pytest.mark.asyncio
async def test_a_healthy_store_says_so(store: Store) -> None:
    health = await store.check()
    assert health.ok
    assert health.epoch == store.epoch


@clause("life.known")
@pytest.mark.asyncio
async def test_a_collection_the_store_was_not_opened_with_is_refused(store: Store) -> None:
    strange = Collection("strange", (Field("x", FieldType.TEXT),))
    for call in (
        store.get(strange, [key_of(1)]),
        store.query(Query(strange, within(HERE))),
        store.apply([put(record(), collection=strange)]),
    ):
        with pytest.raises(InvalidInput, match="strange"):
            await call


@clause("get.latest")
@pytest.mark.asyncio
async def test_what_was_acknowledged_is_seen_by_the_next_call(store: Store) -> None:
    for version in range(1, 30):
        await apply_all(store, put(record(version=version, fields={"type": str(version)})))
        assert (await fetch_record(store)).version == version
        assert await query_ids(store) == [id_of(1)]


# -- many at once ----------------------------------------------------------------------

WRITERS = 64
CALLS_AT_ONCE = 500
COUNTING = 24
"""Each round of these costs a read and a write of all that are left."""


@clause("life.at-once")
@needs("conditional")
@pytest.mark.asyncio
async def test_of_many_creators_of_one_record_exactly_one_wins(store: Store) -> None:
    outcomes = await asyncio.gather(
        *(one(store, put(record(version=n + 1, body={"by": n}), Absent())) for n in range(WRITERS))
    )

    winners = [n for n, o in enumerate(outcomes) if o.applied]
    assert len(winners) == 1
    assert dict((await fetch_record(store)).body) == {"by": winners[0]}


@clause("life.at-once")
@needs("conditional")
@pytest.mark.asyncio
async def test_of_many_writers_at_one_version_exactly_one_wins_each_round(store: Store) -> None:
    await apply_all(store, put(record(version=1)))
    for version in (1, 2, 3):
        outcomes = await asyncio.gather(
            *(
                one(store, put(record(version=version + 1, body={"by": n}), AtVersion(version)))
                for n in range(WRITERS)
            )
        )
        winners = [n for n, o in enumerate(outcomes) if o.applied]
        assert len(winners) == 1, f"round {version}"
        assert dict((await fetch_record(store)).body) == {"by": winners[0]}


@clause("life.at-once")
@needs("conditional")
@pytest.mark.asyncio
async def test_no_increment_is_lost_when_many_read_change_and_write(store: Store) -> None:
    await apply_all(store, put(record(version=1, body={"n": 0})))

    async def increment() -> None:
        while True:
            now = await fetch_record(store)
            if (
                await one(
                    store,
                    put(
                        record(version=now.version + 1, body={"n": now.body["n"] + 1}), AtVersion(now.version)
                    ),
                )
            ).applied:
                return

    await asyncio.gather(*(increment() for _ in range(COUNTING)))

    assert dict((await fetch_record(store)).body) == {"n": COUNTING}


@clause("life.at-once")
@needs("conditional")
@pytest.mark.asyncio
async def test_accesses_told_at_once_are_all_counted(store: Store) -> None:
    await apply_all(store, put(record()))
    await asyncio.gather(
        *(
            one(store, Annotate(SAMPLES, key_of(1), 1, accessed_at=T0 + timedelta(seconds=n)))
            for n in range(WRITERS)
        )
    )
    assert (await fetch_record(store)).accesses == WRITERS


@clause("life.at-once", "generation.counts")
@pytest.mark.asyncio
async def test_generations_raised_at_once_are_all_counted(store: Store) -> None:
    outcomes = await asyncio.gather(*(one(store, RaiseGeneration(HERE)) for _ in range(WRITERS)))
    assert sorted(o.number or 0 for o in outcomes) == list(range(1, WRITERS + 1))


@clause("life.at-once")
@pytest.mark.asyncio
async def test_reads_and_writes_at_once_disturb_no_one(store: Store) -> None:
    async def work(n: int) -> None:
        await apply_all(store, put(record(n, body={"n": n})))
        assert dict((await fetch_record(store, n)).body) == {"n": n}
        if n < 20:
            assert id_of(n) in await query_ids(store)

    async with asyncio.timeout(120):
        await asyncio.gather(*(work(n) for n in range(CALLS_AT_ONCE)))
    assert await query_ids(store) == [id_of(n) for n in range(CALLS_AT_ONCE)]


@clause("shared.decides")
@needs("shared", "conditional")
@pytest.mark.asyncio
async def test_of_two_clients_writing_at_one_version_exactly_one_wins(harness: Harness, store: Store) -> None:
    other = await harness.client(store)
    try:
        await other.open(DECLARED)
        for version in range(1, 9):
            when = Absent() if version == 1 else AtVersion(version - 1)
            outcomes = await asyncio.gather(
                *(
                    one(client, put(record(version=version, body={"by": n}), when))
                    for n, client in enumerate([store, other] * 4)
                )
            )
            assert sum(o.applied for o in outcomes) == 1, f"version {version}"
            assert await fetch_record(store) == await fetch_record(other)
    finally:
        await other.close()


@clause("life.close-waits")
@pytest.mark.asyncio
async def test_a_store_closed_under_callers_lets_them_end_and_can_be_opened_again(
    harness: Harness, store: Store
) -> None:
    """Each call ends normally or as a call to a store that is not open.

    No call is cancelled, and none hangs. A call that reported that the store is not
    open has kept nothing.
    """
    await apply_all(store, *[put(record(n, texts={"content": "lantern"})) for n in range(20)])
    keeps = True
    for turns in (0, 1, 3, 8):
        numbers = range(1_000 * (turns + 1), 1_000 * (turns + 1) + 12)
        writes = [asyncio.ensure_future(store.apply([put(record(n))])) for n in numbers]
        reads: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(CALLS[name](store)) for name in ("get", "query", "count", "check")
        ]
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(30):
            await store.close()
            ended = await asyncio.gather(*writes, *reads, return_exceptions=True)
        for answer in ended:
            assert not isinstance(answer, BaseException) or isinstance(answer, NotOpen), (
                f"a call under way ended as {answer!r}"
            )
        acknowledged = [
            n
            for n, answer in zip(numbers, ended[: len(writes)], strict=True)
            if isinstance(answer, list) and answer[0].applied
        ]
        too_late = [
            n for n, answer in zip(numbers, ended[: len(writes)], strict=True) if isinstance(answer, NotOpen)
        ]
        again = await harness.reopen(store)
        keeps = again.capabilities.durable or again is store
        store = again
        await store.open(DECLARED)
        stands = await store.get(SAMPLES, [key_of(n) for n in acknowledged])
        assert not keeps or all(s is not None for s in stands), "acknowledged, and not there"
        assert await store.get(SAMPLES, [key_of(n) for n in too_late]) == [None] * len(too_late), (
            "told that the store is not open, and there"
        )
        await apply_all(store, put(record(50 + turns)))
    await store.close()
