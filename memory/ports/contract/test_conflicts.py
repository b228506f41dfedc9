"""Outcomes of applied writes, and of conflicts with any stored item."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memory.ports.contract.capability_tests import needs
from memory.ports.contract.cells import cells
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import MORE_SAMPLES, SAMPLES
from memory.ports.contract.support import (
    ELSEWHERE,
    HERE,
    T0,
    apply_all,
    delete,
    fetch_stored,
    key_of,
    one,
    put,
    record,
    release,
    step_ids,
)
from memory.ports.record import PendingStep, Role
from memory.ports.store import Store
from memory.ports.writes import (
    Absent,
    Annotate,
    AtVersion,
    Delete,
    Newer,
    Outcome,
    Purge,
    RaiseGeneration,
    Status,
    Write,
)

V = 10  # the version of the stored item
OWING = (PendingStep("deliver", "deliver", {"to": "long"}), PendingStep("erase", "erase"))
AT = MORE_SAMPLES

STANDING: dict[str, list[Write]] = {
    "nothing": [],
    **{
        role.value: [
            put(
                record(version=V, role=role, tier="mid", owed=OWING, accesses=2, body={"k": [1]}),
                collection=AT,
            )
        ]
        for role in Role
    },
    "mark": [
        put(record(version=V), collection=AT),
        replace(release(version=V, owed=OWING, discard_at=T0), collection=AT),
    ],
    "tombstone": [delete(version=V, collection=AT, owed=OWING, note={"digest": "d"}, discard_at=T0)],
}


def _that_do_not_hold(standing: str) -> list[Write]:
    """Return writes of every kind that must conflict there."""
    key = key_of(1)
    writes: list[Write] = [
        put(record(version=V + 1), AtVersion(V - 1), AT),
        put(record(version=V + 1), AtVersion(V + 1), AT),
        put(record(version=V + 1), AtVersion(V, tier="short"), AT),
        Delete(AT, key, V + 1, AtVersion(V - 1)),
        replace(release(version=V - 1), collection=AT),
        replace(release(version=V, to="short"), collection=AT)
        if standing != "home"
        else replace(release(version=V + 1), collection=AT),
        Annotate(AT, key, V - 1, settle=step_ids(OWING)),
        Annotate(
            AT, key, V, role_is=Role.ARRIVING if standing != "arriving" else Role.HOME, settle=step_ids(OWING)
        ),
    ]
    if standing != "nothing":
        writes += [
            put(record(version=V + 1), Absent(), AT),
            put(record(version=V), Newer(), AT),
            delete(version=V, collection=AT),
            Purge(AT, key, V - 1),
            Purge(AT, key, V, role_is=Role.ARRIVING if standing != "arriving" else Role.CACHED),
        ]
    return writes


@clause("write.table", "apply.order")
@needs("conditional")
@pytest.mark.asyncio
@cells("standing", STANDING)
@cells("batch", [False, True], ids=["each alone", "in one batch"])
async def test_every_kind_of_write_that_conflicts_tells_what_stands_there_and_leaves_it(
    store: Store, standing: str, batch: bool
) -> None:
    await apply_all(store, *STANDING[standing])
    stands = await fetch_stored(store, collection=AT)
    writes = _that_do_not_hold(standing)

    outcomes = await store.apply(writes) if batch else [await one(store, write) for write in writes]

    told = Outcome(Status.CONFLICT, None if stands is None else V, stands)
    assert dict(enumerate(outcomes)) == dict.fromkeys(range(len(writes)), told)
    assert await fetch_stored(store, collection=AT) == stands


@clause("write.table", "generation.stamps")
@needs("conditional")
@pytest.mark.asyncio
@cells("batch", [False, True], ids=["each alone", "in one batch"])
async def test_every_kind_of_write_that_is_carried_out_tells_its_version_generation_and_number(
    store: Store, batch: bool
) -> None:
    key = key_of(1)
    told: list[tuple[Write, Outcome]] = [
        (RaiseGeneration(HERE, 3), Outcome(Status.APPLIED, number=3)),
        (put(record(version=4), Absent()), Outcome(Status.APPLIED, 4, generation=3)),
        (put(record(version=5, generation=7), AtVersion(4)), Outcome(Status.APPLIED, 5, generation=7)),
        (put(record(version=9), Newer()), Outcome(Status.APPLIED, 9, generation=3)),
        (put(record(version=2)), Outcome(Status.APPLIED, 2, generation=3)),
        (Annotate(SAMPLES, key, 2, tier="x"), Outcome(Status.APPLIED, 2)),
        (release(version=2), Outcome(Status.APPLIED, 2)),
        (release(version=2), Outcome(Status.APPLIED, 2)),
        (Annotate(SAMPLES, key, 2, discard_at=T0), Outcome(Status.APPLIED, 2)),
        (delete(version=6), Outcome(Status.APPLIED, 6)),
        (Annotate(SAMPLES, key, 6, discard_at=T0), Outcome(Status.APPLIED, 6)),
        (Delete(SAMPLES, key, 8, AtVersion(6)), Outcome(Status.APPLIED, 8)),
        (Purge(SAMPLES, key, 8), Outcome(Status.APPLIED)),
        (Purge(SAMPLES, key, 8), Outcome(Status.APPLIED)),
        (delete(version=3), Outcome(Status.APPLIED, 3)),
        (put(record(3, version=12), Absent(), AT), Outcome(Status.APPLIED, 12, generation=3)),
        (put(record(4, version=2, generation=5), Absent(), AT), Outcome(Status.APPLIED, 2, generation=5)),
        (RaiseGeneration(ELSEWHERE), Outcome(Status.APPLIED, number=1)),
        (RaiseGeneration(HERE, 0), Outcome(Status.APPLIED, number=3)),
    ]
    writes = [write for write, _ in told]
    outcomes = await store.apply(writes) if batch else [await one(store, write) for write in writes]
    assert list(zip(writes, outcomes, strict=True)) == told


@clause("generation.binds", "write.table")
@needs("conditional")
@pytest.mark.asyncio
@cells("standing", STANDING)
async def test_what_is_rejected_for_its_generation_tells_the_version_that_stands_there_and_nothing_of_it(
    store: Store, standing: str
) -> None:
    await apply_all(store, *STANDING[standing], RaiseGeneration(HERE, 2))
    stands = await fetch_stored(store, collection=AT)
    late: list[Write] = [
        put(record(version=V + 1, generation=1), when, AT) for when in (Newer(), AtVersion(V))
    ]
    late += [
        put(record(version=V + 1, generation=0), collection=AT),
        put(record(version=V + 1, generation=1), Absent(), AT),
    ]
    told = Outcome(Status.REJECTED, None if stands is None else V, reason="generation")
    assert await store.apply(late) == [told] * len(late)
    assert await fetch_stored(store, collection=AT) == stands


@clause("put.whole", "delete.leaves", "release.mark")
@needs("conditional")
@pytest.mark.asyncio
@cells("standing", STANDING)
async def test_nothing_of_what_stood_there_is_left_in_what_comes_after(store: Store, standing: str) -> None:
    """Neither content nor bookkeeping is left, even after a purge in between."""
    bare = record(version=V + 1, generation=0)
    settles = frozenset({"deliver", "erase"})
    plain: Write = delete(version=V + 1, collection=AT, settles=settles)
    await apply_all(store, *STANDING[standing], plain)
    left = await fetch_stored(store, collection=AT)
    await apply_all(store, Purge(AT, key_of(1), V + 1), plain)
    assert await fetch_stored(store, collection=AT) == left, "a tombstone is what it was given"
    await apply_all(store, Purge(AT, key_of(1), V + 1), *STANDING[standing], put(bare, collection=AT))
    assert await fetch_stored(store, collection=AT) == bare
    await apply_all(store, replace(release(version=V + 1), collection=AT))
    mark = await fetch_stored(store, collection=AT)
    assert (getattr(mark, "owed", None), getattr(mark, "discard_at", OWING)) == ((), None)
    await apply_all(store, Purge(AT, key_of(1), V + 1), put(bare, Absent(), AT))
    assert await fetch_stored(store, collection=AT) == bare
