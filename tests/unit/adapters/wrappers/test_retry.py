"""What is tried again, what is not, and what a repeated write is said to have come to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from memory.adapters.in_memory.store import InMemoryStore
from memory.adapters.wrappers.retry import Retry, recognise_own_writes
from memory.domain.errors import StoreFull, StoreTimeout, StoreUnavailable
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import (
    HERE,
    T0,
    apply_all,
    delete,
    fetch_record,
    fetch_stored,
    key_of,
    put,
    record,
    release,
)
from memory.ports.query import Query, within
from memory.ports.record import PendingStep, Role
from memory.ports.writes import (
    Absent,
    Always,
    Annotate,
    AtVersion,
    Newer,
    Outcome,
    Purge,
    RaiseGeneration,
    Status,
    Write,
)
from tests.unit.adapters.wrappers.faulty import FaultyStore, gone, opened

LOST = FaultyStore.LOST


def patient(store: FaultyStore, attempts: int = 3) -> Retry:
    return Retry(store, attempts, backoff=0.001)


async def test_a_read_is_made_again_until_it_is_answered() -> None:
    store = await opened(gone(), gone())
    assert await patient(store).get(SAMPLES, [key_of(1)]) == [None]
    assert store.calls == 3


async def test_the_last_error_is_the_callers() -> None:
    store = await opened(gone(), gone(), StoreUnavailable("faulty", "for good"))
    with pytest.raises(StoreUnavailable, match="for good"):
        await patient(store).get(SAMPLES, [key_of(1)])
    assert store.calls == 3


async def test_what_would_fail_again_is_not_tried_again() -> None:
    store = await opened(StoreFull("faulty", "no room"))
    with pytest.raises(StoreFull):
        await patient(store).get(SAMPLES, [key_of(1)])
    assert store.calls == 1


async def test_check_and_deletions_that_are_counted_are_made_once() -> None:
    store = await opened(gone(), gone())
    assert not (await patient(store).check()).ok
    with pytest.raises(StoreUnavailable):
        await patient(store).delete_matching(Query(SAMPLES, within(HERE)), 5)
    assert store.calls == 2


async def test_a_generation_is_not_raised_twice() -> None:
    store = await opened(LOST)
    with pytest.raises(StoreUnavailable):
        await patient(store).apply([RaiseGeneration(HERE)])
    assert (await store.apply([RaiseGeneration(HERE, 0)]))[0].number == 1


MINE = record(
    1,
    fields={"type": "fact", "confidence": None},
    body={"n": [1, {"x": 0.5}]},
    texts={"content": "red"},
    version=5,
    owed=(PendingStep("deliver", "deliver"),),
)
STANDING = record(1, version=3)
CASES: dict[str, tuple[Sequence[Write], Write]] = {
    "a new record": ((), put(MINE, Absent())),
    "a newer record": ((put(STANDING),), put(MINE, Newer())),
    "a record at a version": ((put(STANDING),), put(MINE, AtVersion(3))),
    "a record in any case": ((put(STANDING),), put(MINE, Always())),
    "a deletion": ((put(STANDING),), delete(1, 9, note={"k": 1})),
    "a deletion of what is missing": ((), delete(1, 9)),
    "a release": ((put(STANDING),), release(1, 3, owed=(PendingStep("tell", "tell"),))),
    "a change of role": (
        (put(record(1, version=3, role=Role.ARRIVING)),),
        Annotate(SAMPLES, key_of(1), 3, role_is=Role.ARRIVING, role=Role.HOME),
    ),
    "a step done": (
        (put(record(1, version=3, owed=(PendingStep("deliver", "deliver"),))),),
        Annotate(SAMPLES, key_of(1), 3, settle=("deliver",)),
    ),
    "a purge": ((put(record(1, version=3, role=Role.CACHED)),), Purge(SAMPLES, key_of(1), 3)),
    "a generation": ((), RaiseGeneration(HERE, 4)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("together", [False, True], ids=["alone", "together"])
async def test_a_write_whose_answer_was_lost_comes_to_what_it_would_have(case: str, together: bool) -> None:
    before, write = CASES[case]
    sure, unsure = await opened(), await opened(*[None] * len(before), LOST)
    for store in (sure, unsure):
        for earlier in before:
            await apply_all(store, earlier)
    expected = await sure.apply([write], together=together)
    assert expected[0].applied
    assert await patient(unsure).apply([write], together=together) == expected
    assert unsure.calls == len(before) + 2
    assert await fetch_stored(unsure) == await fetch_stored(sure)


async def test_a_put_is_known_although_a_read_has_moved_its_expiry() -> None:
    store = await opened()
    mine, later = replace(MINE, expires_at=T0), T0 + timedelta(hours=1)
    await apply_all(store, put(mine), Annotate(SAMPLES, key_of(1), 5, expires_at=later))
    [outcome] = await store.apply([put(mine, Absent())])
    assert recognise_own_writes([put(mine, Absent())], [outcome])[0].applied
    longer = put(replace(mine, expires_at=later + timedelta(hours=1)), Absent())
    assert not recognise_own_writes([longer], [outcome])[0].applied


async def test_a_batch_kept_as_a_whole_is_known_as_a_whole() -> None:
    writes: list[Write] = [
        put(record(1), Absent()),
        Annotate(SAMPLES, key_of(2), 3, settle=("deliver",)),
        delete(3, 9),
        RaiseGeneration(HERE, 2),
    ]
    standing = put(record(2, version=3, owed=(PendingStep("deliver", "deliver"),)))
    sure, unsure = await opened(), await opened(None, LOST)
    for store in (sure, unsure):
        await apply_all(store, standing)
    expected = await sure.apply(writes, together=True)
    assert all(o.applied for o in expected)
    ours = await patient(unsure).apply(writes, together=True)
    assert [o.status for o in ours] == [o.status for o in expected]
    assert [o.version for o in ours] == [o.version for o in expected]


CHANGED: dict[str, Callable[[], Write]] = {
    "another record of that version": lambda: put(record(1, version=5, body={"by": "another"})),
    "the same record in another role": lambda: put(record(1, version=5, role=Role.REPLICA)),
    "a newer record": lambda: put(record(1, version=6)),
    "a deletion": lambda: delete(1, 6),
}


@pytest.mark.parametrize("change", CHANGED)
async def test_what_another_wrote_is_a_conflict(change: str) -> None:
    store = await opened(None, gone())
    await apply_all(store, CHANGED[change]())
    (outcome,) = await patient(store).apply([put(record(1, version=5), Absent())])
    assert outcome.status is Status.CONFLICT
    assert outcome.stored == await fetch_stored(store)


async def test_a_batch_that_was_not_kept_stays_so() -> None:
    store = await opened(None, gone())
    await apply_all(store, put(record(1, version=7)))
    outcomes = await patient(store).apply(
        [put(record(2), Absent()), put(record(1, version=8), AtVersion(3))], together=True
    )
    assert [o.status for o in outcomes] == [Status.SKIPPED, Status.CONFLICT]
    assert await fetch_stored(store, 2) is None


async def test_a_batch_kept_as_a_whole_is_not_there_because_a_part_of_it_is() -> None:
    """Another wrote the very same record; the first attempt did nothing. What is told
    to be applied is applied.
    """
    store = await opened(None, None, gone())
    await apply_all(store, put(record(1)))
    await apply_all(store, put(record(2, version=3, owed=(PendingStep("deliver", "deliver"),))))
    writes: list[Write] = [
        put(record(1), Absent()),
        Annotate(SAMPLES, key_of(2), 3, settle=("deliver",)),
        put(record(3), Absent()),
    ]
    outcomes = await patient(store).apply(writes, together=True)
    assert [o.status for o in outcomes] == [Status.APPLIED] * 3
    assert (await fetch_record(store, 2)).owed == ()
    assert (await fetch_record(store, 3)).version == outcomes[2].version


async def test_a_part_that_is_there_does_not_hide_that_the_rest_conflicts() -> None:
    store = await opened(None, None, gone())
    await apply_all(store, put(record(1)))
    await apply_all(store, put(record(2, version=7)))
    outcomes = await patient(store).apply(
        [put(record(1), Absent()), put(record(2, version=8), AtVersion(3)), put(record(3))], together=True
    )
    assert [o.status for o in outcomes] == [Status.CONFLICT, Status.CONFLICT, Status.SKIPPED]
    assert await fetch_stored(store, 3) is None


async def test_a_batch_with_several_writes_of_one_key_is_not_made_again() -> None:
    """The second of them stands there: nobody could tell that the first was carried
    out.
    """
    store = await opened(LOST)
    with pytest.raises(StoreUnavailable):
        await patient(store).apply([put(record(1, version=2), Newer()), put(record(1, version=3), Newer())])
    assert (store.calls, (await fetch_record(store, 1)).version) == (1, 3)


async def test_a_change_of_role_by_another_does_not_settle_what_is_owed() -> None:
    store = await opened(None, gone())
    await apply_all(
        store, put(record(1, version=3, role=Role.HOME, owed=(PendingStep("deliver", "deliver"),)))
    )
    write = Annotate(SAMPLES, key_of(1), 3, role_is=Role.ARRIVING, role=Role.HOME, settle=("deliver",))
    (outcome,) = await patient(store).apply([write])
    assert outcome.status is Status.CONFLICT


async def test_a_conflict_at_the_first_attempt_is_not_looked_into() -> None:
    """Nothing of ours can stand there: the same write by another is another's."""
    store = await opened()
    await apply_all(store, put(record(1)))
    (outcome,) = await patient(store).apply([put(record(1), Absent())])
    assert outcome.status is Status.CONFLICT


async def test_bookkeeping_that_went_on_does_not_hide_that_the_record_is_ours() -> None:
    class Delivered(FaultyStore):
        """Somebody delivers what is owed between the two attempts."""

        async def apply(self, writes, *, together=False):  # type: ignore[no-untyped-def]
            if self.calls == 1:
                await self._state_annotated()
            return await super().apply(writes, together=together)

        async def _state_annotated(self) -> None:
            await super().apply(
                [Annotate(SAMPLES, key_of(1), 5, settle=("deliver",), accessed_at=T0 + timedelta(seconds=9))]
            )

    store = Delivered(LOST)
    await store.open([SAMPLES])
    (outcome,) = await patient(store).apply([put(MINE, Absent())])
    assert outcome.applied
    assert (await fetch_record(store)).owed == ()


async def test_nothing_is_made_again_once_what_others_left_may_be_forgotten() -> None:
    """A write was applied and its answer lost; the machine slept; meanwhile the record
    was deleted and its tombstone forgotten.
    """
    now = [datetime(2026, 3, 1, tzinfo=UTC)]

    class Sleeps(InMemoryStore):
        async def apply(self, writes: Sequence[Write], *, together: bool = False) -> list[Outcome]:
            outcomes = await super().apply(writes, together=together)
            if now[0].hour == 0:
                now[0] += timedelta(hours=2)
                self.state.wipe()
                raise StoreTimeout(self.name, "no answer")
            return outcomes

    inner = Sleeps("store")
    store = Retry(inner, attempts=3, backoff=0.001, give_up_after=timedelta(minutes=30), clock=lambda: now[0])
    await store.open(DECLARED)
    with pytest.raises(StoreTimeout):
        await store.apply([put(record(1), Absent())])
    assert await inner.get(SAMPLES, [key_of(1)]) == [None]
