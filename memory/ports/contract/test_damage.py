"""Damage on the disk: a damaged record is never served.

Its neighbours are served, and it can be rewritten and erased.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from memory.ports.contract.capability_tests import needs, works
from memory.ports.contract.cells import cells
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import DECLARED, MORE_SAMPLES, SAMPLES
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
    query_ids,
    record,
    release,
)
from memory.ports.query import Eq, Everywhere, Near, Order, Query, Search, Tenant, Where, within
from memory.ports.record import Corrupt, Key, Partition, PendingStep, Record, Role, Tombstone, pack_vector
from memory.ports.store import Store
from memory.ports.writes import Absent, Always, Annotate, AtVersion, Newer, Purge, When, Write

NUMBERS = range(6)
STEP = (PendingStep("deliver", "deliver", {"to": "long"}),)
DAMAGED = 2
SOUND = [n for n in NUMBERS if n != DAMAGED]


def _full(n: int, at: Partition = HERE, version: int = 7) -> Record:
    return record(
        n,
        at,
        version,
        fields={"type": "fact", "tags": ("a",)},
        body={"n": n, "said": "what was said " * 20},
        texts={"content": f"a lantern and word{n}"},
        vector=pack_vector([1.0, n]),
    )


@asynccontextmanager
async def _damage_and_reopen(harness: Harness, store: Store, *keys: Key) -> AsyncIterator[Store]:
    """Damage these entries and return the reopened store."""
    await store.close()
    for key in keys or (key_of(DAMAGED),):
        await harness.damage(store, SAMPLES, key)
    await store.open(DECLARED)
    yield store


async def _fill(store: Store) -> list[Record]:
    await apply_all(
        store, *[put(_full(n)) for n in NUMBERS], put(_full(0, ELSEWHERE)), put(_full(0, FOREIGN))
    )
    return [await fetch_record(store, n) for n in NUMBERS]


@clause("damage.apart")
@works("durable")
@pytest.mark.asyncio
async def test_a_damaged_record_is_answered_as_corrupt_and_its_neighbours_as_they_were(
    harness: Harness, store: Store
) -> None:
    wrote = await _fill(store)
    others = [await fetch_record(store, 0, at) for at in (ELSEWHERE, FOREIGN)]
    async with _damage_and_reopen(harness, store):
        for _ in range(2):  # also once it is quarantined
            answers = await store.get(SAMPLES, [key_of(n) for n in NUMBERS])
            damaged = answers[DAMAGED]
            assert isinstance(damaged, Corrupt), f"damaged, and answered as {damaged}"
            assert damaged.key == key_of(DAMAGED)
            assert damaged.problem
            assert [answers[n] for n in SOUND] == [wrote[n] for n in SOUND]
        assert [await fetch_record(store, 0, at) for at in (ELSEWHERE, FOREIGN)] == others


@clause("damage.apart")
@needs("durable")
@pytest.mark.asyncio
async def test_damage_is_met_in_every_collection(harness: Harness, store: Store) -> None:
    await apply_all(
        store,
        *[
            put(record(n, body={"said": "what was said " * 20}), collection=c)
            for c in DECLARED
            for n in (1, 2)
        ],
    )
    await store.close()
    for collection in DECLARED:
        await harness.damage(store, collection, key_of(1))
    await store.open(DECLARED)
    for collection in DECLARED:
        assert isinstance(await fetch_stored(store, 1, collection=collection), Corrupt), collection.name
        await fetch_record(store, 2, collection=collection)


@clause("damage.counted")
@works("durable")
@needs("conditional")
@pytest.mark.asyncio
@cells("by", ["get", "query"])
async def test_what_was_found_damaged_is_counted_until_it_is_deleted(
    harness: Harness, store: Store, by: str
) -> None:
    await _fill(store)
    assert (await store.check()).quarantined == 0
    async with _damage_and_reopen(harness, store):
        for _ in range(2):
            if by == "get":
                assert isinstance(await fetch_stored(store, DAMAGED), Corrupt)
            else:
                assert (await store.query(Query(SAMPLES, within(HERE)))).corrupt == (key_of(DAMAGED),)
            assert (await store.check()).quarantined == 1
        await apply_all(store, delete(DAMAGED))
        assert (await store.check()).quarantined == 0


@clause("damage.counted")
@needs("durable")
@pytest.mark.asyncio
async def test_what_was_found_damaged_is_counted_until_its_scope_is_erased(
    harness: Harness, store: Store
) -> None:
    await _fill(store)
    async with _damage_and_reopen(harness, store, key_of(1), key_of(DAMAGED), key_of(0, ELSEWHERE)):
        answers = await store.get(SAMPLES, [key_of(1), key_of(DAMAGED), key_of(0, ELSEWHERE)])
        assert all(isinstance(answer, Corrupt) for answer in answers)
        assert (await store.check()).quarantined == 3
        assert await store.delete_matching(Query(SAMPLES, within(HERE)), 50, T0) == len(NUMBERS)
        assert (await store.check()).quarantined == 1


@clause("damage.named")
@needs("durable", "tenant_wide", "conditional")
@pytest.mark.asyncio
@cells("repair", [False, True])
async def test_an_audit_names_every_damaged_record_and_no_other(
    harness: Harness, store: Store, repair: bool
) -> None:
    """Audits repeat it for every collection and tenant; other records are sound."""
    await _fill(store)
    await apply_all(store, put(record(5, body={"said": "what was said " * 20}), collection=MORE_SAMPLES))
    async with _damage_and_reopen(harness, store, key_of(DAMAGED), key_of(0, FOREIGN)):
        await store.close()
        await harness.damage(store, MORE_SAMPLES, key_of(5))
        await store.open(DECLARED)
        damaged = {
            (SAMPLES.name, key_of(DAMAGED)),
            (SAMPLES.name, key_of(0, FOREIGN)),
            (MORE_SAMPLES.name, key_of(5)),
        }
        for _ in range(2):
            audit = await store.audit(repair=repair)
            assert set(audit.damaged) == {
                f"{collection} {key.id} of tenant {key.tenant}" for collection, key in damaged
            }
            assert len(audit.damaged) == 3
            assert (await store.check()).quarantined == 3
        assert [await fetch_record(store, n) for n in SOUND]
        assert await query_ids(store) == [id_of(n) for n in SOUND]
        await apply_all(store, delete(DAMAGED), delete(0, at=FOREIGN), delete(5, collection=MORE_SAMPLES))
        assert ((await store.audit()).damaged, (await store.check()).quarantined) == ((), 0)


# -- questions -------------------------------------------------------------------------


def _wheres(store: Store) -> list[Where]:
    wide: list[Where] = [Tenant(HERE.tenant), Everywhere()] if store.capabilities.tenant_wide else []
    return [within(HERE), within(HERE, ELSEWHERE), *wide]


@clause("damage.apart")
@needs("durable")
@pytest.mark.asyncio
async def test_queries_serve_the_neighbours_and_name_the_corrupt_key(harness: Harness, store: Store) -> None:
    await _fill(store)
    orders = [(), (Order("created_at", True),), (Order("type"),)] if store.capabilities.order else [()]
    async with _damage_and_reopen(harness, store):
        for where in _wheres(store):
            for order in orders:
                page = await store.query(Query(SAMPLES, where, order=order))
                here = [r.key for r in page.records if isinstance(r, Record) and r.partition == HERE]
                assert sorted(here) == [key_of(n) for n in SOUND]
                assert page.corrupt == (key_of(DAMAGED),)
                assert all(isinstance(r, Record) for r in page.records)
        page = await store.query(Query(SAMPLES, within(ELSEWHERE)))
        assert ([r.key for r in page.records], page.corrupt) == ([key_of(0, ELSEWHERE)], ())


@clause("damage.apart", "query.pages")
@needs("durable")
@pytest.mark.asyncio
async def test_pages_around_a_corrupt_record_lose_and_repeat_nothing(harness: Harness, store: Store) -> None:
    await _fill(store)
    async with _damage_and_reopen(harness, store):
        for limit in (1, 2, 3):
            walked: list[str] = []
            corrupt: set[Key] = set()
            query: Query | None = Query(SAMPLES, within(HERE), limit=limit)
            while query is not None:
                page = await store.query(query)
                walked += [r.key.id for r in page.records]
                corrupt |= set(page.corrupt)
                query = None if page.cursor is None else replace(query, cursor=page.cursor)
            assert walked == [id_of(n) for n in SOUND]
            assert corrupt == {key_of(DAMAGED)}


@clause("damage.apart")
@needs("durable")
@pytest.mark.asyncio
async def test_counting_does_not_fail_over_a_corrupt_record(harness: Harness, store: Store) -> None:
    """A store that counts without reading may include the corrupt record or not."""
    await _fill(store)
    async with _damage_and_reopen(harness, store):
        assert (await store.count(Query(SAMPLES, within(HERE)))).records in (len(SOUND), len(NUMBERS))
        assert (await store.count(Query(SAMPLES, within(ELSEWHERE)))).records == 1


@clause("damage.apart")
@needs("durable", "lexical")
@pytest.mark.asyncio
async def test_search_by_words_does_not_fail_over_a_corrupt_record(harness: Harness, store: Store) -> None:
    """Heads are not verified against checksums, so the damaged one may be found.

    A caller that shows the record reads it by its key.
    """
    await _fill(store)
    async with _damage_and_reopen(harness, store):
        for _ in range(2):
            assert {id_of(n) for n in SOUND} <= await hit_ids(store, "lantern") <= {id_of(n) for n in NUMBERS}
            assert await hit_ids(store, f"word{DAMAGED}") <= {id_of(DAMAGED)}
            assert await hit_ids(store, "lantern", within(ELSEWHERE)) == {id_of(0, ELSEWHERE)}


@clause("damage.apart")
@needs("durable", "semantic")
@pytest.mark.asyncio
async def test_search_by_meaning_does_not_fail_over_a_corrupt_record(harness: Harness, store: Store) -> None:
    await _fill(store)
    async with _damage_and_reopen(harness, store):
        for _ in range(2):
            near = Search(SAMPLES, within(HERE), Near(pack_vector([1.0, DAMAGED])), len(NUMBERS))
            assert (
                {id_of(n) for n in SOUND}
                <= {hit.head.key.id for hit in await store.search(near)}
                <= {id_of(n) for n in NUMBERS}
            )


# -- writes ----------------------------------------------------------------------------


@clause("damage.writes")
@needs("durable", "conditional")
@pytest.mark.asyncio
async def test_no_condition_on_what_stands_there_holds_for_a_corrupt_record(
    harness: Harness, store: Store
) -> None:
    """The write itself meets the damage, or the record is already quarantined."""
    roles = {6: Role.CACHED, 7: Role.ARRIVING}
    await apply_all(store, *[put(replace(_full(n), role=roles.get(n, Role.HOME))) for n in range(1, 8)])
    writes: dict[int, Write] = {
        1: put(_full(1, version=99), Absent()),
        4: release(4, 7),
        5: Annotate(SAMPLES, key_of(5), 7, tier="x"),
        6: Purge(SAMPLES, key_of(6), 7),
        7: Purge(SAMPLES, key_of(7), 7, role_is=Role.ARRIVING),
    }
    async with _damage_and_reopen(harness, store, *map(key_of, writes)):
        for _ in range(2):
            for n, write in writes.items():
                assert not (await one(store, write)).applied, write
                assert isinstance(await fetch_stored(store, n), Corrupt), write


@clause("damage.writes")
@needs("durable", "conditional")
@pytest.mark.asyncio
async def test_a_version_is_that_of_a_sound_record(harness: Harness, store: Store) -> None:
    """Damage that was met has no version.

    A write at the version of unmet damage may be applied. Its result is undamaged.
    """
    await apply_all(store, *[put(_full(n)) for n in range(1, 5)])
    replaced, deleted, met, met_too = (
        put(_full(1, version=99), AtVersion(7)),
        delete(2),
        put(_full(3, version=99), AtVersion(7)),
        delete(4),
    )
    async with _damage_and_reopen(harness, store, *map(key_of, range(1, 5))):
        assert [type(await fetch_stored(store, n)) for n in (3, 4)] == [Corrupt, Corrupt]
        for n, write in ((3, met), (4, replace(met_too, when=AtVersion(7)))):
            assert not (await one(store, write)).applied
            assert isinstance(await fetch_stored(store, n), Corrupt)
        stands = Record if (await one(store, replaced)).applied else Corrupt
        assert type(await fetch_stored(store, 1)) is stands
        stands_too = Tombstone if (await one(store, replace(deleted, when=AtVersion(7)))).applied else Corrupt
        assert type(await fetch_stored(store, 2)) is stands_too


@clause("damage.writes")
@needs("durable", "conditional")
@pytest.mark.asyncio
async def test_a_creation_does_not_replace_a_corrupt_record(harness: Harness, store: Store) -> None:
    first = put(record(1, body={"said": "what was said " * 20}), Absent(), MORE_SAMPLES)
    await apply_all(store, first)
    await store.close()
    await harness.damage(store, MORE_SAMPLES, key_of(1))
    await store.open(DECLARED)
    assert not (await one(store, first)).applied


async def _is_healed(store: Store, wrote: Record) -> None:
    healed = await fetch_record(store, DAMAGED)
    assert healed == replace(wrote, generation=healed.generation)
    page = await store.query(Query(SAMPLES, within(HERE)))
    assert ([r.key.id for r in page.records], page.corrupt) == ([id_of(n) for n in NUMBERS], ())
    assert (await store.count(Query(SAMPLES, within(HERE)))).records == len(NUMBERS)
    if store.capabilities.lexical:
        assert await hit_ids(store, f"word{DAMAGED}") == {id_of(DAMAGED)}
    if store.capabilities.semantic:
        hits = await store.search(Search(SAMPLES, within(HERE), Near(pack_vector([1.0, DAMAGED])), 1))
        assert [hit.head.key.id for hit in hits] == [id_of(DAMAGED)]


@clause("damage.writes")
@needs("durable")
@pytest.mark.asyncio
@cells("met", [False, True], ids=["unseen", "in quarantine"])
async def test_a_new_put_heals(harness: Harness, store: Store, met: bool) -> None:
    """The damage may have been met before or not.

    A write that is newer than any version is applied too, if the store has conditions.
    """
    await _fill(store)
    conditions: list[When] = [Always(), Newer()] if store.capabilities.conditional else [Always()]
    for version, when in enumerate(conditions, start=50):
        async with _damage_and_reopen(harness, store):
            if met:
                assert isinstance(await fetch_stored(store, DAMAGED), Corrupt)
            wrote = replace(
                _full(DAMAGED, version=version),
                owed=STEP,
                tier="short",
                previous=7,
                accesses=3,
                accessed_at=T0,
                expires_at=T0,
            )
            await apply_all(store, put(wrote, when))
            await _is_healed(store, wrote)


@clause("damage.writes")
@needs("durable", "conditional")
@pytest.mark.asyncio
@cells("met", [False, True], ids=["unseen", "in quarantine"])
async def test_a_deletion_that_is_not_newer_is_refused_over_damage_as_such_a_put_is(
    harness: Harness, store: Store, met: bool
) -> None:
    """If the damaged version cannot be read, the put and the deletion apply."""
    await _fill(store)
    async with _damage_and_reopen(harness, store):
        if met:
            assert isinstance(await fetch_stored(store, DAMAGED), Corrupt)
        for version in (3, 7):
            if (await one(store, put(_full(DAMAGED, version=version), Newer()))).applied:
                return
            assert not (await one(store, delete(DAMAGED, version=version))).applied
            assert isinstance(await fetch_stored(store, DAMAGED), Corrupt)
        await apply_all(store, delete(DAMAGED, version=8))


@clause("damage.writes")
@needs("durable", "conditional")
@pytest.mark.asyncio
async def test_a_delete_heals(harness: Harness, store: Store) -> None:
    await _fill(store)
    async with _damage_and_reopen(harness, store):
        await apply_all(store, delete(DAMAGED, version=60, owed=STEP, note={"digest": "d"}, discard_at=T0))
        assert await fetch_stored(store, DAMAGED) == Tombstone(key_of(DAMAGED), 60, STEP, {"digest": "d"}, T0)
        page = await store.query(Query(SAMPLES, within(HERE)))
        assert ([r.key.id for r in page.records], page.corrupt) == ([id_of(n) for n in SOUND], ())


@clause("damage.writes", "atomic.together")
@needs("durable", "atomic", "conditional")
@pytest.mark.asyncio
@cells("met", [False, True], ids=["unseen", "in quarantine"])
async def test_together_with_a_corrupt_record_nothing_is_kept(
    harness: Harness, store: Store, met: bool
) -> None:
    """Unmet damage may be overwritten at its version; then all writes are kept."""
    await _fill(store)
    async with _damage_and_reopen(harness, store):
        if met:
            assert isinstance(await fetch_stored(store, DAMAGED), Corrupt)
        for when in (Absent(), AtVersion(7)):
            outcomes = await store.apply(
                [put(_full(8)), put(_full(DAMAGED, version=99), when), put(_full(9))], together=True
            )
            applied = [o.applied for o in outcomes]
            if applied == [True] * 3 and not met and when == AtVersion(7):
                assert await query_ids(store) == [id_of(n) for n in sorted([*SOUND, DAMAGED, 8, 9])]
                return
            assert applied == [False] * 3
            assert [await fetch_stored(store, 8), await fetch_stored(store, 9)] == [None, None]


@clause("damage.erased")
@needs("durable")
@pytest.mark.asyncio
@cells("met", [False, True], ids=["unseen", "in quarantine"])
async def test_erasure_reaches_a_corrupt_record_of_the_asked_partitions_and_no_other(
    harness: Harness, store: Store, met: bool
) -> None:
    await _fill(store)
    part = Eq("type", "no such") if store.capabilities.filter else None
    elsewhere = key_of(0, ELSEWHERE)
    async with _damage_and_reopen(harness, store, key_of(DAMAGED), elsewhere):
        if met:
            assert isinstance(await fetch_stored(store, DAMAGED), Corrupt)
        assert await store.delete_matching(Query(SAMPLES, within(HERE), part), 50, T0) == (
            1 if part else len(NUMBERS)
        )
        assert await fetch_stored(store, DAMAGED) == Tombstone(key_of(DAMAGED), 50, discard_at=T0)
        assert await query_ids(store) == ([id_of(n) for n in SOUND] if part else [])
        assert (await store.query(Query(SAMPLES, within(HERE)))).corrupt == ()
        assert isinstance((await store.get(SAMPLES, [elsewhere]))[0], Corrupt), (
            "another partition's damage stands"
        )
        assert await store.delete_matching(Query(SAMPLES, within(ELSEWHERE)), 50) == 1


@clause("damage.erased")
@needs("durable")
@pytest.mark.asyncio
async def test_erasure_reaches_a_corrupt_record_in_every_collection(harness: Harness, store: Store) -> None:
    await apply_all(
        store,
        *[
            put(record(n, version=7, body={"said": "what was said " * 20}), collection=c)
            for c in DECLARED
            for n in (1, 2)
        ],
    )
    await store.close()
    for collection in DECLARED:
        await harness.damage(store, collection, key_of(1))
    await store.open(DECLARED)
    for collection in DECLARED:
        assert await store.delete_matching(Query(collection, within(HERE)), 50, T0) == 2, collection.name
        left = await store.get(collection, [key_of(n) for n in (1, 2)])
        assert left == [Tombstone(key_of(n), 50, discard_at=T0) for n in (1, 2)], collection.name


@clause("damage.erased", "everywhere.all")
@needs("durable", "tenant_wide")
@pytest.mark.asyncio
@cells("met", [False, True], ids=["unseen", "in quarantine"])
async def test_erasing_a_whole_tenant_reaches_its_corrupt_records_and_no_others(
    harness: Harness, store: Store, met: bool
) -> None:
    await _fill(store)
    part = Eq("type", "no such") if store.capabilities.filter else None
    foreign = key_of(0, FOREIGN)
    async with _damage_and_reopen(harness, store, key_of(DAMAGED), foreign):
        if met:
            assert isinstance(await fetch_stored(store, DAMAGED), Corrupt)
        assert await store.delete_matching(Query(SAMPLES, Tenant(HERE.tenant), part), 50, T0) == (
            1 if part else len(NUMBERS) + 1
        )
        assert await fetch_stored(store, DAMAGED) == Tombstone(key_of(DAMAGED), 50, discard_at=T0)
        assert isinstance((await store.get(SAMPLES, [foreign]))[0], Corrupt), "another tenant's damage stands"
        assert await store.delete_matching(Query(SAMPLES, Everywhere(), part), 50) == 1
        assert isinstance((await store.get(SAMPLES, [foreign]))[0], Tombstone)


@clause("damage.apart")
@needs("durable")
@pytest.mark.asyncio
async def test_a_corrupt_record_stays_corrupt_when_opened_again(harness: Harness, store: Store) -> None:
    await _fill(store)
    async with _damage_and_reopen(harness, store):
        assert isinstance(await fetch_stored(store, DAMAGED), Corrupt)
        again = await harness.reopen(store)
        try:
            await again.open(DECLARED)
            assert isinstance(await fetch_stored(again, DAMAGED), Corrupt)
            assert (await again.query(Query(SAMPLES, within(HERE)))).corrupt == (key_of(DAMAGED),)
        finally:
            await again.close()
