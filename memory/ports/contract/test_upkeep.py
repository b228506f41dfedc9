"""Upkeep: audits of derived data, vacuum, and idle partitions."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from memory.domain.errors import InvalidInput
from memory.ports.collections import Collection
from memory.ports.contract.capability_tests import needs, needs_derived_damage
from memory.ports.contract.cells import cells
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import DECLARED, MORE_SAMPLES, PLAIN, SAMPLES
from memory.ports.contract.harness import Harness
from memory.ports.contract.support import (
    ELSEWHERE,
    FOREIGN,
    HERE,
    T0,
    apply_all,
    delete,
    fetch_record,
    fetch_stored,
    hit_ids,
    id_of,
    key_of,
    one,
    put,
    record,
    release,
)
from memory.ports.query import MAX_LIMIT, Everywhere, Query, RowType, within
from memory.ports.record import Partition, PendingStep, Role, pack_vector
from memory.ports.store import Audit, Store
from memory.ports.writes import Absent, Annotate, Newer, Purge, RaiseGeneration

EMPTY = Partition("acme", "session:empty")
PLACES = (HERE, ELSEWHERE, FOREIGN, EMPTY)


async def _busy(store: Store) -> None:
    """Write, change, find, move and delete records in several collections."""
    for version in range(1, 5):
        await apply_all(
            store,
            *[
                put(
                    record(
                        n, version=version, accesses=1, texts={"content": f"lantern word{n} turn{version}"}
                    )
                )
                for n in range(40)
            ],
        )
    await apply_all(
        store,
        put(record(1, ELSEWHERE, texts={"content": "lantern"})),
        put(record(1), collection=PLAIN),
        RaiseGeneration(EMPTY, 3),
    )
    if store.capabilities.conditional:
        await apply_all(
            store,
            *[release(n, 4, owed=(PendingStep("k", "k"),)) for n in range(5)],
            *[delete(n, owed=(PendingStep("k", "k"),)) for n in range(5, 12)],
            *[Annotate(SAMPLES, key_of(n), 4, role=Role.REPLICA, accessed_at=T0) for n in range(12, 16)],
            *[put(record(n, texts={"content": "lantern"}), Absent(), MORE_SAMPLES) for n in range(6)],
            delete(2, collection=MORE_SAMPLES),
            put(record(50, role=Role.CACHED, texts={"content": "lantern"})),
            Purge(SAMPLES, key_of(50), 1),
            put(record(5, version=200, texts={"content": "lantern again"}), Newer(), settles={"k"}),
        )
    await store.delete_matching(Query(SAMPLES, within(ELSEWHERE)), 60)


async def _snapshot(store: Store) -> dict[str, Any]:
    """Return all stored items, and the data that finds them."""
    keys = [key_of(n) for n in range(60)] + [key_of(1, ELSEWHERE)]
    seen: dict[str, Any] = {c.name: await store.get(c, keys) for c in (SAMPLES, MORE_SAMPLES, PLAIN)}
    seen["generations"] = [(await one(store, RaiseGeneration(p, 0))).number for p in PLACES]
    if store.capabilities.lexical:
        seen["found"] = {
            word: await hit_ids(store, word)
            for word in ("lantern", "turn3", "turn4", "word7", "word20", "again")
        }
    if store.capabilities.tenant_wide:
        seen["left"] = (
            await store.query(
                Query(
                    SAMPLES, Everywhere(), types=frozenset({RowType.MARK, RowType.TOMBSTONE}), limit=MAX_LIMIT
                )
            )
        ).records
    return seen


@clause("upkeep.audit")
@pytest.mark.asyncio
async def test_an_audit_of_a_healthy_store_finds_nothing_and_changes_nothing(store: Store) -> None:
    assert (await store.audit()).problems == ()
    await _busy(store)
    before = await _snapshot(store)
    for repair in (False, True):
        audit = await store.audit(repair=repair)
        assert isinstance(audit, Audit)
        assert audit.problems == ()
        assert await _snapshot(store) == before


@clause("upkeep.audit")
@pytest.mark.asyncio
async def test_an_audit_misses_nothing_of_records_that_have_nothing_to_be_found_by(store: Store) -> None:
    """They have no text, an empty one, stopwords, equal words, or only a vector."""
    texts = [
        {},
        {"content": ""},
        {"title": "?! -- \x00", "content": " "},
        {"content": "the of and"},
        {"title": "lantern", "content": "lanterns LANTERN"},
    ]
    vectors = [None, pack_vector([1.0, 0.0])] if store.capabilities.semantic else [None]
    await apply_all(
        store,
        *[
            put(record(10 * n + m, texts=t, vector=v))
            for n, t in enumerate(texts)
            for m, v in enumerate(vectors)
        ],
    )
    await apply_all(
        store,
        put(record(1, texts={"content": "lantern"}), collection=MORE_SAMPLES),
        put(record(1), collection=PLAIN),
    )
    for repair in (False, True, False):
        assert (await store.audit(repair=repair)).problems == ()


@clause("upkeep.repairs", "upkeep.audit")
@needs_derived_damage
@pytest.mark.asyncio
async def test_an_audit_tells_of_damage_and_a_repair_undoes_it(harness: Harness, store: Store) -> None:
    """The records stay unchanged: derived data are never the only copy of anything."""
    await _busy(store)
    before = await _snapshot(store)
    again = await harness.reopen(store)
    await harness.damage_derived(again)
    await again.open(DECLARED)
    try:
        assert {name: seen for name, seen in (await _snapshot(again)).items() if name != "found"} == {
            n: s for n, s in before.items() if n != "found"
        }
        told = (await again.audit()).problems
        assert told
        assert not any(word in problem for problem in told for word in ("lantern", "turn4")), (
            "a problem says nothing of what a record says"
        )
        assert (await again.audit()).problems == told, "it only looked"
        assert (await again.audit(repair=True)).problems == told
        assert (await again.audit()).problems == ()
        assert await _snapshot(again) == before
    finally:
        await again.close()


@clause("upkeep.vacuum")
@pytest.mark.asyncio
async def test_a_vacuum_changes_nothing_that_can_be_asked(store: Store) -> None:
    assert await store.vacuum() >= 0
    await _busy(store)
    before = await _snapshot(store)
    assert await store.vacuum() >= 0
    assert await _snapshot(store) == before
    await apply_all(store, put(record(30, version=9, texts={"content": "afterwards"})))
    if store.capabilities.lexical:
        assert await hit_ids(store, "afterwards") == {id_of(30)}
    assert (await store.audit()).problems == ()


@clause("upkeep.audit", "upkeep.vacuum")
@needs("conditional")
@pytest.mark.asyncio
@cells("upkeep", ["audit", "repair", "vacuum"])
async def test_upkeep_keeps_what_is_past_its_time(store: Store, upkeep: str) -> None:
    """Readers hide expired items, and upkeep does not delete them.

    A step may be pending, and a reader may still ask.
    """
    past, owed = datetime(2001, 1, 1, tzinfo=UTC), (PendingStep("k", "k"),)
    await apply_all(
        store,
        put(record(1, expires_at=past)),
        put(record(2)),
        release(2, owed=owed, discard_at=past),
        delete(3, owed=owed, discard_at=past),
    )
    if not store.capabilities.ttl:
        await apply_all(store, put(record(4)), release(4, discard_at=past), delete(5, discard_at=past))
    before = await _snapshot(store)
    await (store.vacuum() if upkeep == "vacuum" else store.audit(repair=upkeep == "repair"))
    assert await _snapshot(store) == before


@clause("upkeep.audit", "upkeep.vacuum", "life.at-once")
@pytest.mark.asyncio
async def test_an_audit_beside_writers_takes_their_writes_for_no_damage(store: Store) -> None:
    """A vacuum loses none of the writes either."""

    async def write(n: int) -> None:
        for version in range(1, 6):
            await apply_all(
                store, put(record(n, version=version, texts={"content": f"lantern turn{version}"}))
            )
            if n % 5 == 0:
                await store.delete_matching(Query(SAMPLES, within(ELSEWHERE)), 60)

    writers = asyncio.gather(*(write(n) for n in range(10)))
    audits = [await store.audit(), await store.audit(repair=True)]
    await store.vacuum()
    audits.append(await store.audit())
    await store.vacuum()
    await writers
    assert [audit.problems for audit in (*audits, await store.audit())] == [()] * 4
    assert [(await fetch_record(store, n)).version for n in range(10)] == [5] * 10
    if store.capabilities.lexical:
        assert (await hit_ids(store, "turn5"), await hit_ids(store, "turn4")) == (
            {id_of(n) for n in range(10)},
            set(),
        )


@clause("upkeep.idle", "upkeep.forget")
@pytest.mark.asyncio
@cells("collection", DECLARED, ids=lambda c: c.name)
async def test_a_record_of_any_collection_and_role_is_something(store: Store, collection: Collection) -> None:
    places = [Partition("acme", f"user:{role}") for role in Role]
    await apply_all(store, *[RaiseGeneration(place, 3) for place in places])
    await apply_all(
        store,
        *[
            put(record(n, place, role=role), collection=collection)
            for n, (role, place) in enumerate(zip(Role, places, strict=True))
        ],
    )
    assert await store.idle_partitions() == []
    assert await store.forget_partitions([(place, 3) for place in places]) == 0
    for n, place in enumerate(places):
        await fetch_record(store, n, place, collection)
        assert (await one(store, RaiseGeneration(place, 0))).number == 3


@clause("upkeep.idle", "upkeep.forget")
@needs("conditional")
@pytest.mark.asyncio
@cells("collection", DECLARED, ids=lambda c: c.name)
async def test_a_mark_of_any_collection_is_something(store: Store, collection: Collection) -> None:
    await apply_all(
        store,
        RaiseGeneration(HERE, 3),
        put(record(1), collection=collection),
        replace(release(1), collection=collection),
    )
    assert await store.idle_partitions() == []
    assert await store.forget_partitions([(HERE, 3)]) == 0
    assert (await one(store, RaiseGeneration(HERE, 0))).number == 3


@clause("upkeep.forget")
@pytest.mark.asyncio
async def test_a_partition_named_twice_is_forgotten_once(store: Store) -> None:
    await apply_all(store, RaiseGeneration(EMPTY, 3), RaiseGeneration(ELSEWHERE, 2))
    assert await store.forget_partitions([(EMPTY, 3), (ELSEWHERE, 2), (EMPTY, 3)]) == 2
    assert await store.forget_partitions([(EMPTY, 3), (EMPTY, 0)]) == 0


@clause("upkeep.forget", "shared.sees")
@needs("shared")
@pytest.mark.asyncio
async def test_what_one_client_forgot_another_does_not_remember(harness: Harness, store: Store) -> None:
    other = await harness.client(store)
    try:
        await other.open(DECLARED)
        await apply_all(other, RaiseGeneration(HERE, 5))
        assert (await one(store, RaiseGeneration(HERE, 0))).number == 5
        await apply_all(other, put(record(1, ELSEWHERE)))
        assert await store.forget_partitions([(HERE, 5)]) == 1
        assert (await one(other, put(record(1)))).generation == 0
        assert (await fetch_record(store, 1)).generation == 0
        assert (await one(other, RaiseGeneration(HERE, 0))).number == 0
    finally:
        await other.close()


@clause("upkeep.idle")
@pytest.mark.asyncio
async def test_a_partition_is_idle_exactly_where_nothing_stands_in_it(store: Store) -> None:
    """A partition with only a tombstone may be held back or listed."""
    assert await store.idle_partitions() == []
    await apply_all(store, *[RaiseGeneration(p, n) for n, p in enumerate(PLACES, start=3)])
    await apply_all(store, put(record(1)), put(record(1, ELSEWHERE), collection=PLAIN))
    assert sorted(await store.idle_partitions()) == sorted([(FOREIGN, 5), (EMPTY, 6)])
    assert len(await store.idle_partitions(1)) == 1
    with pytest.raises(InvalidInput):
        await store.idle_partitions(0)
    if store.capabilities.conditional:
        await apply_all(store, put(record(1, FOREIGN)), replace(release(1), key=key_of(1, FOREIGN)))
        assert await store.idle_partitions() == [(EMPTY, 6)], "a mark is something"
        await apply_all(store, put(record(2, EMPTY), Absent(), MORE_SAMPLES))
        assert await store.idle_partitions() == []
    await store.delete_matching(Query(SAMPLES, within(HERE)), 9)
    assert {p for p, _ in await store.idle_partitions()} <= (
        {HERE} if store.capabilities.conditional else {HERE, FOREIGN, EMPTY}
    )


@clause("upkeep.forget")
@pytest.mark.asyncio
async def test_only_an_idle_partition_at_its_generation_is_forgotten(store: Store) -> None:
    assert await store.forget_partitions([]) == 0
    await apply_all(store, *[RaiseGeneration(p, n) for n, p in enumerate(PLACES, start=3)])
    await apply_all(store, put(record(1)), put(record(1, ELSEWHERE), collection=PLAIN))
    asked = [(HERE, 3), (ELSEWHERE, 4), (FOREIGN, 4), (FOREIGN, 6), (Partition("nobody", "x"), 1)]
    assert await store.forget_partitions(asked) == 0
    assert [(await one(store, RaiseGeneration(p, 0))).number for p in PLACES] == [3, 4, 5, 6]
    assert await store.forget_partitions([(FOREIGN, 5), (HERE, 3)]) == 1
    assert [(await one(store, RaiseGeneration(p, 0))).number for p in PLACES] == [3, 4, 0, 6]
    assert (await apply_all(store, put(record(7, FOREIGN))))[0].generation == 0, "it begins anew"
    assert not (await one(store, put(record(7, generation=2)))).applied, "and no other does"
    assert (EMPTY, 6) in await store.idle_partitions()
    assert await fetch_stored(store, 1) is not None


@clause("upkeep.forget")
@needs("conditional")
@pytest.mark.asyncio
async def test_what_is_idle_no_longer_when_it_shall_be_forgotten_is_kept(store: Store) -> None:
    """A call between the list and the removal changes the partition.

    It adds a record, or raises the generation.
    """
    await apply_all(store, RaiseGeneration(HERE, 3), RaiseGeneration(ELSEWHERE, 3))
    idle = await store.idle_partitions()
    assert sorted(idle) == [(HERE, 3), (ELSEWHERE, 3)]
    await apply_all(store, put(record(1)), RaiseGeneration(ELSEWHERE))
    assert await store.forget_partitions(idle) == 0
    assert [(await one(store, RaiseGeneration(p, 0))).number for p in (HERE, ELSEWHERE)] == [3, 4]
