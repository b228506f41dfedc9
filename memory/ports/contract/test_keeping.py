"""Data kept over a good close, and over the death of a durable store.

Everything that can be read is kept, including bookkeeping.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from memory.domain.errors import InvalidInput
from memory.ports import formats
from memory.ports.base import BaseStore
from memory.ports.contract.capability_tests import needs
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
    hit_ids,
    id_of,
    key_of,
    one,
    put,
    record,
    release,
    step_ids,
)
from memory.ports.formats import current_note
from memory.ports.query import MAX_LIMIT, Everywhere, Near, Query, RowType, Search, within
from memory.ports.record import PendingStep, Role, pack_vector
from memory.ports.store import Store
from memory.ports.writes import Absent, Annotate, Newer, Purge, RaiseGeneration, Status

KEYS = [key_of(n) for n in range(24)]
STEPS = (
    PendingStep("1", "deliver", {"to": ["long", None], "n": 1}),
    PendingStep("2", "erase"),
    PendingStep("3", "deliver", {"to": "archive"}),
)
LATER = T0 + timedelta(days=3, microseconds=7)


async def _furnish(store: Store) -> None:
    """Write one of every kind of item, with bookkeeping of every kind."""
    await apply_all(store, RaiseGeneration(HERE, 2), RaiseGeneration(FOREIGN, 7))
    for n, role in enumerate(Role):
        books: dict[str, Any] = {
            "owed": STEPS[:n],
            "previous": 40 + n,
            "accesses": 3 + n,
            "accessed_at": LATER,
            "tier": f"tier {n}",
        }
        books |= {"cached_at": LATER, "epoch": f"run {n}"} if role is Role.CACHED else {}
        parts: dict[str, Any] = {
            "expires_at": LATER,
            "body": {"n": n},
            "texts": {"content": "lantern"},
            "generation": 2 + n,
        }
        await apply_all(store, put(record(n, version=50 + n, role=role, **parts, **books)))
    if not store.capabilities.conditional:
        return
    await apply_all(
        store,
        *[put(record(n, version=5, owed=STEPS, tier="short")) for n in range(10, 14)],
        Annotate(SAMPLES, key_of(10), 5, accessed_at=LATER, settle=step_ids(STEPS[1:2])),
        Annotate(SAMPLES, key_of(11), 5, role=Role.REPLICA, tier="long"),
        release(12, 5, "long", owed=STEPS, discard_at=LATER),
        release(13, 5, "mid", settles=frozenset({"deliver", "erase"})),
        Annotate(SAMPLES, key_of(13), 5, discard_at=LATER),
        delete(14, 9, owed=STEPS, note={"digest": "d", "n": [1, None]}, discard_at=LATER),
        delete(15, 9),
        put(record(16, role=Role.CACHED)),
        Purge(SAMPLES, key_of(16), 1),
        *[put(record(n), Absent(), MORE_SAMPLES) for n in (1, 2)],
        delete(2, collection=MORE_SAMPLES),
    )


async def _snapshot(store: Store) -> dict[str, object]:
    """Return everything that can be read from the store."""
    seen: dict[str, object] = {c.name: await store.get(c, KEYS) for c in DECLARED}
    seen["query"] = await store.query(Query(SAMPLES, within(HERE), roles=frozenset(Role), limit=MAX_LIMIT))
    seen["count"] = (await store.count(Query(SAMPLES, within(HERE), roles=frozenset(Role)))).records
    seen["generations"] = [
        (await one(store, RaiseGeneration(p, 0))).number for p in (HERE, ELSEWHERE, FOREIGN)
    ]
    if store.capabilities.tenant_wide:
        seen["left"] = (
            await store.query(
                Query(
                    SAMPLES, Everywhere(), types=frozenset({RowType.MARK, RowType.TOMBSTONE}), limit=MAX_LIMIT
                )
            )
        ).records
    if store.capabilities.durable:
        seen["epoch"] = store.epoch
    return seen


async def _goes_on(store: Store) -> None:
    """Check that generations bind and deleted records stay deleted."""
    assert not (await one(store, put(record(20, generation=1)))).applied
    if store.capabilities.conditional:
        assert not (await one(store, put(record(14, version=9), Newer()))).applied
        assert not (await one(store, put(record(12, version=90), Absent()))).applied


@clause("life.close-keeps", "bookkeeping.kept")
@pytest.mark.asyncio
async def test_everything_stands_after_a_good_close_as_it_stood_before(
    harness: Harness, store: Store
) -> None:
    await _furnish(store)
    before = await _snapshot(store)
    again = await harness.reopen(store)
    try:
        await again.open(DECLARED)
        if again.capabilities.durable or again is store:
            assert await _snapshot(again) == before
            await _goes_on(again)
    finally:
        await again.close()


async def _annotate_alone(store: Store, **changes: Any) -> None:
    """Annotate a record that nothing else reads."""
    if store.capabilities.conditional:
        await apply_all(store, Annotate(SAMPLES, key_of(30, ELSEWHERE), 1, **changes))


@clause("durable.survives", "bookkeeping.kept")
@needs("durable")
@pytest.mark.asyncio
async def test_everything_stands_after_the_death_of_a_durable_store_as_it_stood_before(
    harness: Harness, store: Store
) -> None:
    """An annotation is the last call before each death.

    A store may be tempted to write it together with the next call.
    """
    await _furnish(store)
    await apply_all(store, put(record(30, ELSEWHERE, owed=STEPS)))
    before = await _snapshot(store)
    await _annotate_alone(store, accessed_at=LATER)
    again = await harness.restart(store)
    try:
        await again.open(DECLARED)
        assert await _snapshot(again) == before
        noted = await fetch_record(again, 30, ELSEWHERE)
        assert (noted.accesses, noted.accessed_at) == (
            (1, LATER) if again.capabilities.conditional else (0, None)
        )
        await _goes_on(again)
        await apply_all(again, put(record(0, version=60, generation=2, body={"n": "anew"})), put(record(21)))
        await again.delete_matching(Query(MORE_SAMPLES, within(HERE)), 99, LATER)
        before = await _snapshot(again)
        await _annotate_alone(again, settle=step_ids(STEPS), tier="noted")
        last = await harness.restart(again)
    finally:
        await again.close()
    try:
        await last.open(DECLARED)
        assert await _snapshot(last) == before, "what came after the first death survives the second"
        noted = await fetch_record(last, 30, ELSEWHERE)
        assert (noted.owed, noted.tier) == (((), "noted") if last.capabilities.conditional else (STEPS, ""))
    finally:
        await last.close()


async def _fail(store: Store, n: int) -> None:
    """Make calls that fail in different ways, each followed by a write that is kept."""
    claims, bad = store.capabilities, put(record(99, fields={"colour": "red"}))
    old = put(record(98, generation=1))
    assert (await one(store, bad)).status is (await one(store, old)).status is Status.REJECTED
    await apply_all(store, put(record(n)))
    with pytest.raises(InvalidInput):
        await store.query(Query(SAMPLES, within(HERE), cursor="none"))
    await apply_all(store, put(record(n + 1)))
    if claims.conditional:
        assert (await one(store, put(record(n), Absent()))).status is Status.CONFLICT
        await apply_all(store, put(record(n + 2)))
    if claims.groups:
        for last in (bad, old, *([put(record(n), Absent())] if claims.conditional else [])):
            outcomes = await store.apply([put(record(97)), last], together=True)
            assert outcomes[0].status is Status.SKIPPED
    await apply_all(store, put(record(n + 3)))
    for waits in range(4):
        call = asyncio.ensure_future(store.apply([put(record(96, body={"n": waits}))]))
        for _ in range(waits):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    await apply_all(store, put(record(n + 4)), RaiseGeneration(ELSEWHERE))


@clause("durable.survives", "atomic.together", "life.cancelled", "format.note", since=3)
@needs("durable")
@pytest.mark.asyncio
async def test_what_follows_a_failed_call_survives_a_death(
    harness: Harness, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed call leaves no transaction behind that takes later writes with it.

    The note of the format survives too, if the store keeps one.
    """
    await apply_all(store, RaiseGeneration(HERE, 2))
    for n in (40, 50):
        await _fail(store, n)
    keys = [key_of(n) for n in (*range(40, 60), 97, 98, 99)]
    before = await store.get(SAMPLES, keys)
    note = store.notes_format if isinstance(store, BaseStore) else False
    if isinstance(store, BaseStore) and note:
        assert await store.swap_format(current_note(), "7")
        monkeypatch.setattr(formats, "FORMAT", 7)
    again = await harness.restart(store)
    try:
        await again.open(DECLARED)
        assert await again.get(SAMPLES, keys) == before
        assert sum(s is not None for s in before) == (10 if again.capabilities.conditional else 8)
        assert (await one(again, RaiseGeneration(ELSEWHERE, 0))).number == 2
        if isinstance(again, BaseStore) and note:
            assert await again.read_format() == "7"
            monkeypatch.undo()
            assert await again.swap_format("7", current_note())
    finally:
        await again.close()


@clause("loss.window")
@needs("loss_window")
@pytest.mark.asyncio
async def test_what_was_acknowledged_before_the_loss_window_survives_a_death(
    harness: Harness, store: Store
) -> None:
    await _furnish(store)
    before = [await store.get(collection, KEYS) for collection in DECLARED]
    await harness.outlast_loss_window(store)
    again = await harness.restart(store)
    try:
        await again.open(DECLARED)
        assert [await again.get(collection, KEYS) for collection in DECLARED] == before
        assert (await one(again, RaiseGeneration(HERE, 0))).number == 2
    finally:
        await again.close()


@clause("life.close-keeps", "lexical.follows", "semantic.follows")
@needs("durable", "conditional")
@pytest.mark.asyncio
async def test_words_and_vectors_are_found_after_reopening_and_those_of_the_dead_are_not(
    harness: Harness, store: Store
) -> None:
    made = [record(n, texts={"content": "lantern"}, vector=pack_vector([1.0, n])) for n in range(6)]
    await apply_all(
        store,
        *[put(r) for r in made],
        delete(1),
        release(2),
        put(replace(made[3], version=2, texts={"content": "harbour"}), Newer()),
    )
    again = await harness.reopen(store)
    try:
        await again.open(DECLARED)
        if again.capabilities.lexical:
            assert await hit_ids(again, "lantern") == {id_of(n) for n in (0, 4, 5)}
            assert await hit_ids(again, "harbour") == {id_of(3)}
        if again.capabilities.semantic:
            hits = await again.search(Search(SAMPLES, within(HERE), Near(pack_vector([1.0, 0.0])), 9))
            assert [hit.head.key.id for hit in hits] == [id_of(n) for n in (0, 3, 4, 5)]
    finally:
        await again.close()
