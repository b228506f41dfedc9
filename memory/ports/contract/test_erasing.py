"""Counting, and deleting all that matches."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta, timezone
from typing import Any

import pytest

from memory.ports.collections import Collection
from memory.ports.contract.capability_tests import needs
from memory.ports.contract.cells import cells
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import DECLARED, PLAIN, SAMPLES
from memory.ports.contract.support import (
    ELSEWHERE,
    FOREIGN,
    HERE,
    T0,
    apply_all,
    delete,
    fetch_record,
    fetch_stored,
    fetch_tombstone,
    hit_ids,
    id_of,
    key_of,
    one,
    put,
    query_ids,
    record,
    release,
)
from memory.ports.query import (
    MAX_LIMIT,
    And,
    Condition,
    Count,
    Eq,
    Everywhere,
    Ge,
    Gt,
    Has,
    In,
    IsNull,
    Le,
    Lt,
    Not,
    Or,
    Order,
    Query,
    Tenant,
    Where,
    within,
)
from memory.ports.query_evaluation import lets_through
from memory.ports.record import FieldValue, Key, Partition, PendingStep, Record, Role, Tombstone
from memory.ports.store import Store
from memory.ports.writes import Absent, Newer, Status


@clause("count.exact")
@pytest.mark.asyncio
@cells("collection", DECLARED, ids=lambda c: c.name)
async def test_counts_tell_records_and_roughly_their_size(store: Store, collection: Collection) -> None:
    assert await store.count(Query(collection, within(HERE))) == Count(0, 0)
    await apply_all(
        store,
        *[put(record(n, body={"text": "x" * 10_000}), collection=collection) for n in range(9)],
        put(record(1, ELSEWHERE), collection=collection),
    )

    counted = await store.count(Query(collection, within(HERE)))

    assert counted.records == 9
    assert 90_000 <= counted.bytes <= 360_000
    if store.capabilities.filter:
        one_of_them = await store.count(Query(collection, within(HERE), Eq("id", id_of(1))))
        assert one_of_them.records == 1
        assert 10_000 <= one_of_them.bytes <= 40_000


@clause("count.exact")
@needs("order")
@pytest.mark.asyncio
async def test_a_count_takes_no_notice_of_limit_order_and_cursor(store: Store) -> None:
    await apply_all(store, *[put(record(n)) for n in range(5)])
    page = await store.query(Query(SAMPLES, within(HERE), limit=2, order=(Order("type"),)))
    assert (
        await store.count(Query(SAMPLES, within(HERE), limit=2, order=(Order("type"),), cursor=page.cursor))
    ).records == 5


@clause("count.exact")
@needs("conditional")
@pytest.mark.asyncio
async def test_a_count_leaves_out_marks_and_tombstones(store: Store) -> None:
    await apply_all(store, *[put(record(n)) for n in range(4)], release(1), delete(2))
    assert (await store.count(Query(SAMPLES, within(HERE)))).records == 2


@clause("erase.matches", "isolation.where")
@pytest.mark.asyncio
async def test_deleting_what_matches_leaves_tombstones_above_both_versions(store: Store) -> None:
    await apply_all(
        store,
        put(record(1, version=3)),
        put(record(2, version=70)),
        put(record(3, ELSEWHERE)),
        put(record(1, FOREIGN)),
        put(record(1), collection=PLAIN),
    )

    assert await store.delete_matching(Query(SAMPLES, within(HERE)), 50, T0 + timedelta(days=1)) == 2

    assert await fetch_stored(store, 1) == Tombstone(key_of(1), 50, discard_at=T0 + timedelta(days=1))
    assert await fetch_stored(store, 2) == Tombstone(key_of(2), 71, discard_at=T0 + timedelta(days=1))
    assert await query_ids(store) == []
    await fetch_record(store, 3, ELSEWHERE)
    await fetch_record(store, 1, FOREIGN)
    await fetch_record(store, 1, collection=PLAIN)
    assert await store.delete_matching(Query(SAMPLES, within(HERE)), 60) == 0
    assert await fetch_stored(store, 1) == Tombstone(key_of(1), 50, discard_at=T0 + timedelta(days=1))


@clause("erase.carries")
@pytest.mark.asyncio
async def test_tombstones_go_on_owing_the_steps_that_are_carried_and_nothing_else(store: Store) -> None:
    """Steps are carried by name, with any id; others' data may hold record text."""
    owed = (
        PendingStep("keep:1", "keep", {"said": "a secret"}),
        PendingStep("x", "deliver", {"to": ["a", None]}),
        PendingStep("delete", "erase"),
        PendingStep("y", "delete", {"n": 1}),
    )
    await apply_all(
        store,
        put(record(1, owed=owed)),
        put(record(2, owed=owed[:1])),
        put(record(3)),
        put(record(4, owed=owed[1:2])),
    )

    assert (
        await store.delete_matching(
            Query(SAMPLES, within(HERE)), 50, T0, frozenset({"deliver", "delete", "never"})
        )
        == 4
    )

    left = [(owed[1], owed[3]), (), (), owed[1:2]]
    assert [await fetch_stored(store, n) for n in (1, 2, 3, 4)] == [
        Tombstone(key_of(n), 50, steps, discard_at=T0) for n, steps in enumerate(left, start=1)
    ]
    await apply_all(store, put(record(5, owed=owed)))
    assert await store.delete_matching(Query(SAMPLES, within(HERE)), 50) == 1
    assert await fetch_stored(store, 5) == Tombstone(key_of(5), 50)


@clause("erase.matches")
@needs("filter")
@pytest.mark.asyncio
async def test_deleting_what_matches_keeps_what_does_not(store: Store) -> None:
    await apply_all(
        store, *[put(record(n, fields={"type": "even" if n % 2 == 0 else "odd"})) for n in range(10)]
    )
    assert await store.delete_matching(Query(SAMPLES, within(HERE), Eq("type", "odd")), 50) == 5
    assert await query_ids(store) == [id_of(n) for n in range(0, 10, 2)]


@clause("erase.all", "erase.matches")
@pytest.mark.asyncio
async def test_deleting_what_matches_takes_no_notice_of_the_limit_and_keeps_to_the_roles(
    store: Store,
) -> None:
    await apply_all(store, *[put(record(n)) for n in range(4)], put(record(9, role=Role.REPLICA)))
    assert await store.delete_matching(Query(SAMPLES, within(HERE), limit=1), 50) == 4
    assert (await fetch_record(store, 9)).role is Role.REPLICA
    assert await store.delete_matching(Query(SAMPLES, within(HERE), roles=frozenset(Role)), 50) == 1


@clause("erase.matches", "isolation.where")
@needs("tenant_wide")
@pytest.mark.asyncio
async def test_a_whole_tenant_is_deleted_and_no_other(store: Store) -> None:
    await apply_all(
        store,
        put(record(1)),
        put(record(2, ELSEWHERE, texts={"content": "lantern"})),
        put(record(3, FOREIGN)),
    )
    assert await store.delete_matching(Query(SAMPLES, Tenant("acme")), 50) == 2
    await fetch_record(store, 3, FOREIGN)
    if store.capabilities.lexical:
        await apply_all(store, put(record(2, ELSEWHERE, version=60, texts={"content": "harbour"})))
        assert await hit_ids(store, "lantern", Tenant("acme")) == set(), (
            "what is written again is not found by what was erased"
        )


@clause("delete.stays")
@needs("conditional")
@pytest.mark.asyncio
async def test_what_was_deleted_by_matching_is_not_resurrected_by_a_late_copy(store: Store) -> None:
    await apply_all(store, put(record(version=3)))
    await store.delete_matching(Query(SAMPLES, within(HERE)), 50)
    assert (await one(store, put(record(version=3), Newer()))).status is Status.CONFLICT
    assert (await one(store, put(record(version=60), Absent()))).status is Status.CONFLICT


@clause("lexical.follows")
@needs("lexical")
@pytest.mark.asyncio
async def test_what_was_deleted_by_matching_is_no_longer_found_by_words(store: Store) -> None:
    await apply_all(store, put(record(texts={"content": "cormorant"})))
    assert await hit_ids(store, "cormorant") == {id_of(1)}
    await store.delete_matching(Query(SAMPLES, within(HERE)), 50)
    assert await hit_ids(store, "cormorant") == set()


@clause("erase.matches", "filter.holds")
@needs("filter")
@pytest.mark.asyncio
async def test_deleting_under_every_kind_of_filter_deletes_what_a_query_finds(store: Store) -> None:
    """Each filter has partitions of its own, so one fill serves all."""
    parts: list[Condition] = [
        Eq("type", "b"), In("type", ("a", "c")), In("type", ()), Lt("confidence", 0.4), Le("confidence", 0.4), Gt("confidence", 0.4),
        Ge("confidence", 0.4), Has("tags", "red"), IsNull("source"), Not(IsNull("source")), Not(Eq("type", "b")), Not(Has("tags", "red")),
        And((Eq("type", "b"), Has("tags", "red"))), And(()), Or((Eq("type", "a"), Lt("confidence", 0.2))), Or(()), Eq("owing", True),
        Le("valid_from", T0 + timedelta(seconds=3)), Gt("valid_from", T0 + timedelta(seconds=3)), Gt("version", 4), In("id", ()), Eq("source", None),
        Eq("tier", "short"), Lt("generation", 1), Not(Or((Eq("type", "a"), Not(Ge("confidence", 0.4))))), IsNull("expires_at"), Eq("role", Role.HOME),
    ]  # fmt: skip
    places = [Partition("acme", f"user:erased {n}") for n in range(len(parts))]
    for place in places:
        await apply_all(store, *[put(_varied_record(n, place)) for n in range(10)])
    for place, part in zip(places, parts, strict=True):
        everything = Query(SAMPLES, within(place), limit=MAX_LIMIT)
        asked_for = {r.key for r in (await store.query(replace(everything, filter=part))).records}
        expected = {
            r.key
            for n in range(10)
            if lets_through(part, r := replace(_varied_record(n, place), generation=0))
        }
        assert asked_for == expected, part
        assert await store.delete_matching(replace(everything, filter=part), 50) == len(expected), part
        stands = await store.get(SAMPLES, [key_of(n, place) for n in range(10)])
        assert {s.key for s in stands if isinstance(s, Tombstone)} == expected, part
        assert all(s is not None for s in stands)
        assert {r.key for r in (await store.query(everything)).records} == {
            key_of(n, place) for n in range(10)
        } - expected, part


def _varied_record(n: int, place: Partition) -> Record:
    fields: dict[str, FieldValue] = {
        "type": "abc"[n % 3],
        "confidence": n / 10,
        "valid_from": T0 + timedelta(seconds=n),
    }
    fields |= {"tags": ("red", "blue")[: n % 3]} if n % 4 else {}
    fields |= {"source": ""} if n % 2 else {}
    owed = (PendingStep("deliver", "deliver"),) if n % 5 == 0 else ()
    return record(
        n,
        place,
        version=1 + n,
        fields=fields,
        owed=owed,
        tier="short" if n < 4 else "",
        expires_at=T0 if n % 2 else None,
    )


@clause("erase.matches")
@needs("conditional")
@pytest.mark.asyncio
async def test_deleting_what_matches_touches_no_mark_and_no_tombstone(store: Store) -> None:
    ends = T0 + timedelta(days=9)
    await apply_all(
        store,
        *[put(record(n)) for n in range(5)],
        release(1, owed=(PendingStep("k", "k"),), discard_at=ends),
        delete(2, 7, note={"k": 1}, discard_at=ends),
    )
    before = await store.get(SAMPLES, [key_of(1), key_of(2)])

    assert await store.delete_matching(Query(SAMPLES, within(HERE)), 50, T0) == 3

    assert await store.get(SAMPLES, [key_of(1), key_of(2)]) == before


@clause("erase.matches", "moments.utc")
@pytest.mark.asyncio
async def test_tombstones_of_an_erasure_keep_their_end_in_utc(store: Store) -> None:
    await apply_all(store, put(record(1)))
    there = T0.astimezone(timezone(timedelta(hours=-7)))

    assert await store.delete_matching(Query(SAMPLES, within(HERE)), 50, there) == 1

    first = await fetch_tombstone(store, 1)
    assert first == Tombstone(key_of(1), 50, discard_at=T0)
    assert first.discard_at is not None
    assert first.discard_at.utcoffset() == timedelta(0)


@clause("erase.matches", "erase.carries")
@pytest.mark.asyncio
@cells("collection", DECLARED, ids=lambda c: c.name)
async def test_what_is_erased_leaves_nothing_but_its_id_version_and_end_in_every_collection(
    store: Store, collection: Collection
) -> None:
    """No step stays pending, and the version is above both versions.

    This holds also for a version equal to the record's own.
    """
    books: dict[str, Any] = {
        "owed": (PendingStep("deliver", "deliver", {"to": "long"}),),
        "accesses": 4,
        "previous": 2,
        "expires_at": T0,
        "body": {"said": "lantern"},
    }
    numbers = {n: (version, max(version + 1, 50)) for n, version in enumerate((1, 49, 50, 51, 2**40))}
    await apply_all(
        store,
        *[
            put(record(n, version=version, **books), collection=collection)
            for n, (version, _) in numbers.items()
        ],
    )

    assert await store.delete_matching(Query(collection, within(HERE)), 50, T0) == len(numbers)

    left = await store.get(collection, [key_of(n) for n in numbers])
    assert left == [Tombstone(key_of(n), above, discard_at=T0) for n, (_, above) in numbers.items()]


@clause("erase.matches", "everywhere.all", "count.exact", "query.roles")
@needs("tenant_wide", "filter")
@pytest.mark.asyncio
@cells("where", [within(HERE, ELSEWHERE), Tenant(HERE.tenant), Everywhere()], ids=lambda w: type(w).__name__)
async def test_wherever_it_is_asked_a_count_and_an_erasure_keep_to_filter_and_roles_as_a_query_does(
    store: Store, where: Where
) -> None:
    third = Partition("third", "user:ann")
    places = (HERE, ELSEWHERE, FOREIGN, third)
    made = [
        record(10 * n + m, at, role=role, fields={"type": "ab"[m]})
        for at in places
        for n, role in enumerate(Role)
        for m in (0, 1)
    ]
    await apply_all(store, *map(put, made))
    inside = {HERE, ELSEWHERE} | ({FOREIGN, third} if isinstance(where, Everywhere) else set())
    gone: set[Key] = set()
    for roles in ({Role.HOME}, {Role.REPLICA, Role.CACHED}, set(Role)):
        for part in (Eq("type", "b"), None):
            query = Query(SAMPLES, where, part, roles=frozenset(roles), limit=MAX_LIMIT)
            wanted = {
                r.key
                for r in made
                if r.partition in inside and r.role in roles and (part is None or r.fields["type"] == "b")
            } - gone
            assert {r.key for r in (await store.query(query)).records} == wanted
            assert (await store.count(query)).records == len(wanted)
            assert await store.delete_matching(query, 50) == len(wanted)
            gone |= wanted
            stands = await store.get(SAMPLES, [r.key for r in made])
            assert {r.key for r, s in zip(made, stands, strict=True) if isinstance(s, Tombstone)} == gone


@clause("erase.matches", "life.at-once", since=3)
@needs("conditional", "filter")
@pytest.mark.asyncio
async def test_what_is_changed_beside_a_deletion_is_judged_as_it_is_then(store: Store) -> None:
    """A record that matches no more is kept, and a deleted one is above its change."""
    for round_, part in enumerate((Eq("type", "old"), None)):
        for turn in range(8):
            numbers, base = range(4), 1_000 * (8 * round_ + turn + 1)
            await apply_all(store, *[put(record(n, version=base, fields={"type": "old"})) for n in numbers])
            changed = [record(n, version=base + 500, fields={"type": "new"}, generation=0) for n in numbers]
            calls = [store.apply([put(r, Newer())]) for r in changed]
            calls.insert(turn % 5, store.delete_matching(Query(SAMPLES, within(HERE), part), base + 2))  # type: ignore[arg-type]
            await asyncio.gather(*calls)
            for now, wrote in zip(await store.get(SAMPLES, [r.key for r in changed]), changed, strict=True):
                deleted = isinstance(now, Tombstone) and part is None and now.version > wrote.version
                assert deleted or now == wrote, (part, turn, now)
