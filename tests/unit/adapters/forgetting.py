"""Partitions that died leave nothing behind, and forgetting them costs nobody a write."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from memory.domain.ids import new_id
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.support import T0, apply_all, one, put
from memory.ports.query import MAX_LIMIT, Everywhere, Query, RowType, within
from memory.ports.record import Key, Partition, Record, Tombstone
from memory.ports.store import Store
from memory.ports.writes import Absent, Purge, Put, RaiseGeneration, Release

SCOPES = 300
ROUNDS = 40
Counted = Callable[[], Awaitable[object]]
"""How many keys, rows or documents there are, by where they are."""


def _record(at: Partition, n: int = 0) -> Record:
    key = Key(at.tenant, new_id(at.tenant, at.scope, n, lambda bits: n % 2**bits))
    return Record(
        key, at.scope, n + 1, T0, T0, fields={"type": "fact"}, texts={"content": "words of a session"}
    )


async def _erase(store: Store, at: Partition) -> None:
    """As the engine does."""
    await apply_all(store, RaiseGeneration(at))
    await store.delete_matching(Query(SAMPLES, within(at)), 10_000)


async def _purge_all(store: Store) -> None:
    """The tombstones, as sweeps do once their time is over."""
    while stones := (
        await store.query(Query(SAMPLES, Everywhere(), types=frozenset({RowType.TOMBSTONE}), limit=500))
    ).records:
        await apply_all(
            store,
            *[Purge(SAMPLES, stone.key, stone.version) for stone in stones if isinstance(stone, Tombstone)],
        )


async def dead_scopes_leave_nothing_behind(store: Store, counted: Counted) -> None:
    scopes = [Partition("acme", f"session:{n}") for n in range(SCOPES)]
    alive, moved_on = Partition("acme", "user:ann"), Partition("acme", "user:bob")
    await apply_all(
        store, put(_record(alive)), put(_record(moved_on)), Release(SAMPLES, _record(moved_on).key, 1, "long")
    )
    before = await counted()
    for start in range(0, SCOPES, 50):
        await apply_all(store, *[put(_record(at, n)) for at in scopes[start : start + 50] for n in (1, 2)])
    await asyncio.gather(*[_erase(store, at) for at in scopes])
    await _purge_all(store)

    first = await store.idle_partitions(10)
    assert len(first) == 10
    idle = await store.idle_partitions()
    assert sorted(idle) == sorted((at, 1) for at in scopes)
    assert await store.forget_partitions([(at, generation + 1) for at, generation in idle]) == 0, (
        "not under another generation"
    )
    assert await store.forget_partitions([*idle, (alive, 0), (moved_on, 0)]) == SCOPES
    assert await store.idle_partitions() == []
    assert await counted() == before
    assert (await one(store, RaiseGeneration(scopes[0], 0))).number == 0


async def a_writer_who_begins_meanwhile_loses_nothing(store: Store, other: Store) -> None:
    """Forgotten by one client while another one, which knows the partition of old,
    begins there again.
    """
    at = Partition("acme", "session:again")
    for n in range(1, ROUNDS):
        writer, forgetter = (store, other) if n % 2 else (other, store)
        await apply_all(writer, put(_record(at, n)))
        await _erase(writer, at)
        await _purge_all(writer)
        ((_, generation),) = await forgetter.idle_partitions()
        begun = _record(at, 10_000 + n)
        writes: list[Put] = [Put(SAMPLES, begun, Absent())] + (
            [Put(SAMPLES, _record(at, 20_000 + n), Absent())] if n % 3 == 0 else []
        )
        outcomes, _ = await asyncio.gather(
            writer.apply(writes), forgetter.forget_partitions([(at, generation)])
        )
        assert all(outcome.applied for outcome in outcomes)
        for reader in (writer, forgetter):
            page = await reader.query(Query(SAMPLES, within(at), limit=MAX_LIMIT))
            assert {r.key for r in page.records} == {w.key for w in writes}, f"round {n}"
        assert await forgetter.forget_partitions([(at, g) for g in range(3)]) == 0, "something stands there"
        current = (await one(forgetter, RaiseGeneration(at))).number
        assert current is not None
        assert all(outcome.generation is not None and outcome.generation < current for outcome in outcomes), (
            "an erasure reaches what was written"
        )
        stale = Put(SAMPLES, replace(_record(at, 30_000 + n), generation=current - 1), Absent())
        assert (await one(writer, stale)).reason == "generation"
        assert await forgetter.delete_matching(Query(SAMPLES, within(at)), 10**6) == len(writes)
        await _purge_all(forgetter)
        await forgetter.forget_partitions(await forgetter.idle_partitions())
