"""Append: the store numbers the records of a partition, and never gives a number twice."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import MORE_SAMPLES
from memory.ports.contract.judges import needs
from memory.ports.contract.support import ELSEWHERE, FOREIGN, HERE, T0, append, delete, done, found, key_of, live, one, put, record, release
from memory.ports.query import Query, within
from memory.ports.record import Owed, Role, pack_vector
from memory.ports.store import Store
from memory.ports.writes import Append, Newer, Purge, RaiseGeneration, Status

FIELD = "stored_version"


def _append(n: int = 1, counter: str = "numbers") -> Append:
    return append(record(n), MORE_SAMPLES, FIELD, counter)


async def _numbers(store: Store, *writes: Append) -> list[int | None]:
    return [outcome.number for outcome in await done(store, *writes)]


@clause("append.numbers", "generation.stamps")
@needs("conditional")
@pytest.mark.asyncio
async def test_appended_records_are_numbered_from_one_and_carry_their_number(store: Store) -> None:
    outcomes = await done(store, *[_append(n) for n in (1, 2, 3)])

    assert [o.number for o in outcomes] == [1, 2, 3]
    assert [(await live(store, n, collection=MORE_SAMPLES)).fields[FIELD] for n in (1, 2, 3)] == [1, 2, 3]
    assert [o.version for o in outcomes] == [1, 1, 1]
    assert [o.generation for o in outcomes] == [0, 0, 0]


@clause("append.numbers", "put.whole")
@needs("conditional")
@pytest.mark.asyncio
async def test_an_append_keeps_the_records_other_fields(store: Store) -> None:
    await done(store, append(record(1, fields={"type": "fact", "tags": ("a",)}, body={"k": [1]}), MORE_SAMPLES, FIELD))
    stored = await live(store, 1, collection=MORE_SAMPLES)
    assert dict(stored.fields) == {"type": "fact", "tags": ("a",), FIELD: 1}
    assert dict(stored.body) == {"k": [1]}


@clause("append.numbers", "bookkeeping.kept")
@needs("conditional")
@pytest.mark.asyncio
async def test_an_append_keeps_every_part_of_its_record(store: Store) -> None:
    """A number that its field held before gives way to the counter's."""
    content: dict[str, Any] = {"fields": {"type": "a", FIELD: 77}, "texts": {"title": "one"}, "body": {"k": [1]}, "vector": pack_vector([1.0])}
    times = dict.fromkeys(("expires_at", "accessed_at", "cached_at"), T0)
    books: dict[str, Any] = {"tier": "short", "owed": (Owed("k"),), "previous": 3, "accesses": 4, "epoch": "run 5", "generation": 2, **times}
    for n, role in enumerate(Role, start=1):
        wrote = record(n, version=40 + n, role=role, **content, **books)
        assert await _numbers(store, append(wrote, MORE_SAMPLES, FIELD, "numbers")) == [n]
        assert await live(store, n, collection=MORE_SAMPLES) == replace(wrote, fields={"type": "a", FIELD: n})


@clause("append.refused")
@needs("conditional")
@pytest.mark.asyncio
async def test_an_append_to_a_taken_key_conflicts_and_uses_up_no_number(store: Store) -> None:
    await done(store, _append(1))
    before = await found(store, 1, collection=MORE_SAMPLES)

    again = await one(store, _append(1))

    assert (again.status, again.stored) == (Status.CONFLICT, before)
    assert await _numbers(store, _append(2)) == [2]
    await done(store, delete(1, collection=MORE_SAMPLES), replace(release(2), collection=MORE_SAMPLES))
    assert [(await one(store, _append(n))).status for n in (1, 2)] == [Status.CONFLICT] * 2, "by a tombstone, and by a mark"
    assert await _numbers(store, _append(3)) == [3]


@clause("append.numbers")
@needs("conditional")
@pytest.mark.asyncio
async def test_a_number_is_not_given_again_after_its_record_was_deleted(store: Store) -> None:
    assert await _numbers(store, _append(1), _append(2)) == [1, 2]
    await done(store, delete(2, collection=MORE_SAMPLES), delete(1, collection=MORE_SAMPLES))

    assert await _numbers(store, _append(3)) == [3]
    assert (await one(store, _append(1))).status is Status.CONFLICT


@clause("append.numbers")
@needs("conditional")
@pytest.mark.asyncio
async def test_a_number_is_not_given_again_after_its_record_was_overwritten(store: Store) -> None:
    assert await _numbers(store, _append(1)) == [1]
    await done(store, put(record(1, version=2), Newer(), MORE_SAMPLES))

    assert await _numbers(store, _append(2)) == [2]


@clause("append.own")
@needs("conditional")
@pytest.mark.asyncio
async def test_counters_of_other_names_and_other_partitions_are_their_own(store: Store) -> None:
    assert await _numbers(store, _append(1), _append(2), _append(3, "others")) == [1, 2, 1]
    assert await _numbers(store, append(record(1, ELSEWHERE), MORE_SAMPLES, FIELD, "numbers")) == [1]
    assert await _numbers(store, append(record(1, FOREIGN), MORE_SAMPLES, FIELD, "numbers")) == [1]
    assert await _numbers(store, _append(4), _append(5, "others")) == [3, 2]


@clause("append.own")
@needs("conditional")
@pytest.mark.asyncio
async def test_a_counter_counts_on_whatever_field_its_numbers_go_into(store: Store) -> None:
    other_field = append(record(2), MORE_SAMPLES, "replaced_version", "numbers")
    assert await _numbers(store, _append(1), other_field, _append(3)) == [1, 2, 3]
    assert dict((await live(store, 2, collection=MORE_SAMPLES)).fields) == {"replaced_version": 2}


@clause("append.refused", "refused.by-name")
@needs("conditional")
@pytest.mark.asyncio
@pytest.mark.parametrize("field", ["type", "colour"])
async def test_an_append_into_a_field_that_is_no_declared_integer_is_rejected(store: Store, field: str) -> None:
    outcome = await one(store, append(record(1), MORE_SAMPLES, field))

    assert outcome.status is Status.REJECTED
    assert field in outcome.reason
    assert await found(store, 1, collection=MORE_SAMPLES) is None


@clause("append.numbers", "life.at-once")
@needs("conditional")
@pytest.mark.asyncio
async def test_appends_under_way_at_once_get_each_a_number_of_their_own(store: Store) -> None:
    outcomes = await asyncio.gather(*(one(store, _append(n)) for n in range(1, 33)))

    assert sorted(o.number or 0 for o in outcomes) == list(range(1, 33))


@clause("append.numbers", "append.own")
@needs("conditional")
@pytest.mark.asyncio
async def test_a_counter_is_its_partitions_and_outlives_every_erasure(store: Store) -> None:
    """Neither the end of all its records, nor a raised generation, nor both begin it anew; other partitions' count on as they did."""
    there = append(record(1, ELSEWHERE), MORE_SAMPLES, FIELD)
    assert await _numbers(store, _append(1), _append(2), there) == [1, 2, 1]
    await store.delete_matching(Query(MORE_SAMPLES, within(HERE)), 50)
    assert await _numbers(store, _append(3)) == [3]
    await done(store, RaiseGeneration(HERE))
    assert await _numbers(store, _append(4)) == [4]
    await done(store, RaiseGeneration(HERE, 9))
    await store.delete_matching(Query(MORE_SAMPLES, within(HERE)), 60)
    await done(store, *[Purge(MORE_SAMPLES, key_of(n), version) for n, version in ((1, 50), (2, 50), (3, 60), (4, 60))])
    assert await _numbers(store, _append(5)) == [5]
    assert await _numbers(store, append(record(2, ELSEWHERE), MORE_SAMPLES, FIELD)) == [2]
