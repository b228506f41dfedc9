"""Helpers of the contract's tests: records, partitions, and short calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memory.domain.ids import new_id
from memory.ports.collections import Collection
from memory.ports.contract.collections import SAMPLES
from memory.ports.query import (
    MAX_LIMIT,
    SYSTEM_FIELDS,
    VECTOR,
    WORDS,
    Condition,
    Everywhere,
    Hit,
    Near,
    Query,
    RowType,
    Search,
    Where,
    Words,
    within,
)
from memory.ports.record import Key, Mark, Partition, PendingStep, Record, Stored, Tombstone, pack_vector
from memory.ports.store import Store
from memory.ports.writes import Always, Delete, Newer, Outcome, Put, Release, When, Write

T0 = datetime(2124, 5, 6, 7, 8, 9, 123_456, tzinfo=UTC)
"""A time so far ahead that a store with `ttl` deletes nothing by accident."""
LATER = T0 + timedelta(days=1)
LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)
HERE = Partition("acme", "user:ann")
ELSEWHERE = Partition("acme", "user:bob")
FOREIGN = Partition("umbrella", "user:ann")


def id_of(n: int, at: Partition = HERE) -> str:
    """Return the n-th id of a partition: ids grow with n and are always the same."""
    return new_id(at.tenant, at.scope, n * 1000, lambda bits: 0)


def key_of(n: int, at: Partition = HERE) -> Key:
    return Key(at.tenant, id_of(n, at))


def record(n: int = 1, at: Partition = HERE, version: int = 1, **parts: Any) -> Record:
    """Return a small record with the n-th id of the partition."""
    times = {"created_at": T0 + timedelta(seconds=n), "updated_at": T0 + timedelta(seconds=n)}
    return Record(key_of(n, at), at.scope, version, **{**times, **parts})


def put(
    what: Record, when: When | None = None, collection: Collection = SAMPLES, settles: Iterable[str] = ()
) -> Put:
    return Put(collection, what, Always() if when is None else when, frozenset(settles))


def step_ids(steps: Iterable[PendingStep]) -> tuple[str, ...]:
    return tuple(step.id for step in steps)


def delete(
    n: int = 1, version: int = 100, at: Partition = HERE, collection: Collection = SAMPLES, **parts: Any
) -> Delete:
    """Return a deletion of any lower version."""
    return Delete(collection, key_of(n, at), version, Newer(), **parts)


def release(n: int = 1, version: int = 1, to: str = "mid", **parts: Any) -> Release:
    return Release(SAMPLES, key_of(n), version, to, **parts)


async def one(store: Store, write: Write) -> Outcome:
    """Apply one write and return its outcome."""
    outcomes = await store.apply([write])
    assert len(outcomes) == 1, "apply must return one outcome for each write"
    return outcomes[0]


async def apply_all(store: Store, *writes: Write) -> list[Outcome]:
    """Apply writes that must all be applied, in calls of at most `max_batch`."""
    size = store.capabilities.max_batch or 100
    outcomes: list[Outcome] = []
    for start in range(0, len(writes), size):
        outcomes += await store.apply(writes[start : start + size])
    refused = [
        (write, outcome) for write, outcome in zip(writes, outcomes, strict=True) if not outcome.applied
    ]
    assert not refused, f"these writes must be applied: {refused}"
    return outcomes


async def fetch_stored(
    store: Store, n: int = 1, at: Partition = HERE, collection: Collection = SAMPLES
) -> Stored | None:
    """Return the stored item of the n-th key."""
    answers = await store.get(collection, [key_of(n, at)])
    assert len(answers) == 1, "get must return one answer for each key"
    return answers[0]


async def fetch_record(
    store: Store, n: int = 1, at: Partition = HERE, collection: Collection = SAMPLES
) -> Record:
    """Return the live record that the n-th key must have."""
    stored = await fetch_stored(store, n, at, collection)
    assert isinstance(stored, Record), f"expected a live record here, got {stored}"
    return stored


async def fetch_mark(store: Store, n: int = 1) -> Mark:
    stored = await fetch_stored(store, n)
    assert isinstance(stored, Mark), f"expected a mark here, got {stored}"
    return stored


async def fetch_tombstone(store: Store, n: int = 1) -> Tombstone:
    stored = await fetch_stored(store, n)
    assert isinstance(stored, Tombstone), f"expected a tombstone here, got {stored}"
    return stored


async def query_ids(
    store: Store, where: Where | None = None, part: Condition | None = None, **rest: Any
) -> list[str]:
    """Return the ids of a query's first page, in its order."""
    page = await store.query(
        Query(rest.pop("collection", SAMPLES), where or within(HERE), part, **{"limit": MAX_LIMIT, **rest})
    )
    return [r.key.id for r in page.records]


async def search_hits(
    store: Store, text: str, where: Where | None = None, limit: int = 50, **rest: Any
) -> list[Hit]:
    return await store.search(Search(SAMPLES, where or within(HERE), Words(text), limit, **rest))


async def hit_ids(store: Store, text: str, where: Where | None = None) -> set[str]:
    return {hit.head.key.id for hit in await search_hits(store, text, where)}


def everything_of(collection: Collection) -> frozenset[str]:
    """Return all names that heads of a collection may carry."""
    return frozenset({*SYSTEM_FIELDS, *[f.name for f in collection.fields], WORDS, VECTOR})


def selections(collection: Collection) -> list[frozenset[str]]:
    """Return selections: nothing, everything, each name alone, and all but each."""
    every = everything_of(collection)
    return [
        frozenset(),
        every,
        *[frozenset({name}) for name in sorted(every)],
        *[every - {name} for name in sorted(every)],
    ]


def ways(store: Store, text: str, *vector: float) -> list[Words | Near]:
    """Return the ways of searching this store: words, meaning, both or neither."""
    words: list[Words | Near] = [Words(text)] if store.capabilities.lexical else []
    return words + ([Near(pack_vector(vector))] if store.capabilities.semantic else [])


async def list_rows(store: Store, kind: RowType, collection: Collection = SAMPLES) -> Sequence[Stored]:
    """Return every mark or tombstone that the store lists."""
    return (
        await store.query(Query(collection, Everywhere(), limit=MAX_LIMIT, types=frozenset({kind})))
    ).records


def alike(found: Sequence[object], expected: Sequence[object]) -> None:
    """Fail with the first difference if the sequences differ.

    Use it for long ones: pytest would compare them letter by letter, for minutes.
    """
    if found != expected:
        at = next(
            (n for n, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b),
            min(len(found), len(expected)),
        )
        pytest.fail(
            f"at {at}: {found[at : at + 1]} is not {expected[at : at + 1]} ({len(found)} and {len(expected)}"
            " in all)"
        )
