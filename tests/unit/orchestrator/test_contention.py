"""Many writers of one entry: each comes to its turn, or is told by a deadline, without
blaming a store.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from datetime import timedelta

import pytest

from memory.domain.entry import EntryDraft
from memory.domain.errors import NotFound, StoreError, TooMuchContention
from memory.orchestrator.entries.upserts import UpsertCall
from memory.orchestrator.storage.collections import ENTRIES, RELATIONS
from memory.orchestrator.storage.key_locks import KeyLocks, RetryDeadline
from memory.orchestrator.storage.settings import EngineSettings
from memory.ports.record import Key
from tests.unit.orchestrator.world import TENANT, USER, Flaky, World

KEY = Key(TENANT, "one")
PATIENT = EngineSettings(deadline=timedelta(minutes=5))
"""However slow the machine."""


class Slow(Flaky):
    """Lets others run before it carries out anything."""

    async def on_call(self, method: str, *args: object, **kwargs: object) -> object:
        for _ in range(3):
            await asyncio.sleep(0)
        return await super().on_call(method, *args, **kwargs)


async def _until(holds: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to that")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World(settings=PATIENT) as opened:
        yield opened


@pytest.fixture
async def patience(world: World) -> RetryDeadline:
    return RetryDeadline(world.engine.placement, "one")


async def test_two_hundred_edits_of_one_process_lose_no_race(world: World) -> None:
    world.mid.__class__ = Slow
    entry = await world.write(scope=USER)
    await asyncio.gather(*(world.update(entry, metadata={f"k{n}": n}) for n in range(200)))
    got = await world.get(entry)
    assert got is not None
    assert got.metadata == {f"k{n}": n for n in range(200)}
    assert world.mid.steps.count("update.home") == 200


async def test_edits_of_five_processes_all_count(world: World) -> None:
    world.mid.__class__ = Slow
    entry = await world.write(scope=USER)
    others = [await world.another_process() for _ in range(5)]
    edits = (others[n % 5].entries.update(TENANT, entry.id, {"metadata": {f"k{n}": n}}) for n in range(100))
    await asyncio.gather(*edits)
    got = await world.get(entry)
    assert got is not None
    assert got.metadata == {f"k{n}": n for n in range(100)}
    assert world.mid.steps.count("update.home") > 100  # they did meet


async def test_who_waits_until_the_deadline_is_told_that_the_entry_was_contended() -> None:
    async with World(settings=EngineSettings(deadline=timedelta(milliseconds=50))) as world:
        entry = await world.write(scope=USER)
        world.mid.silent = True
        first = asyncio.create_task(world.update(entry, content="first"))
        await _until(lambda: "read.home" in world.mid.steps)
        with pytest.raises(TooMuchContention, match=entry.id) as caught:
            await world.update(entry, content="second")
        assert not isinstance(caught.value, StoreError)
        assert (caught.value.entry_id, caught.value.waited, caught.value.retryable) == (
            entry.id,
            timedelta(milliseconds=50),
            True,
        )
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        world.heal()
        assert (await world.update(entry, content="third")).content == "third"
        assert len(world.engine.key_locks) == 0


async def test_of_many_keyed_writes_the_one_that_waited_too_long_is_named() -> None:
    async with World(settings=EngineSettings(deadline=timedelta(milliseconds=50))) as world:
        calls = [UpsertCall(EntryDraft(scope=USER, content="x", key=f"k{n}")) for n in range(3)]
        engine, key = world.engine, calls[1].key_of(TENANT)
        async with engine.key_locks.take(ENTRIES, key, RetryDeadline(engine.placement, key.id)):
            with pytest.raises(TooMuchContention, match=key.id) as caught:
                await engine.upserts.upsert_many(TENANT, calls)
            assert caught.value.entry_id == key.id
            assert len(engine.key_locks) == 1


async def test_a_deletion_comes_to_its_turn_among_two_hundred_edits(world: World) -> None:
    world.mid.__class__ = Slow
    entry = await world.write(scope=USER)
    edits = [asyncio.create_task(world.update(entry, metadata={f"k{n}": n})) for n in range(100)]
    await asyncio.sleep(0)
    deletion = asyncio.create_task(world.delete(entry))
    await asyncio.sleep(0)
    edits += [asyncio.create_task(world.update(entry, metadata={f"k{n}": n})) for n in range(100)]
    assert await deletion is True
    outcomes = await asyncio.gather(*edits, return_exceptions=True)
    assert [isinstance(o, NotFound) for o in outcomes] == [False] * 100 + [True] * 100
    assert await world.seen(entry) == []


async def test_turns_are_taken_in_the_order_of_asking_and_only_by_one_at_a_time(
    patience: RetryDeadline,
) -> None:
    turns, order, inside = KeyLocks(), list[int](), 0

    async def work(n: int) -> None:
        nonlocal inside
        async with turns.take(ENTRIES, KEY, patience):
            inside += 1
            assert inside == 1
            order.append(n)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(work(n) for n in range(50)))
    assert order == list(range(50))
    assert len(turns) == 0


async def test_other_records_and_collections_do_not_wait(patience: RetryDeadline) -> None:
    turns = KeyLocks()
    async with (
        turns.take(ENTRIES, KEY, patience),
        turns.take(ENTRIES, Key(TENANT, "two"), patience),
        turns.take(ENTRIES, Key("other", "one"), patience),
        turns.take(RELATIONS, KEY, patience),
    ):
        assert len(turns) == 4
    assert len(turns) == 0


async def test_who_is_cancelled_while_waiting_or_working_leaves_the_turn_to_the_next(
    patience: RetryDeadline,
) -> None:
    turns, done = KeyLocks(), list[int]()

    async def work(n: int) -> None:
        async with turns.take(ENTRIES, KEY, patience):
            done.append(n)
            if n == 0:
                await asyncio.Event().wait()

    tasks = [asyncio.create_task(work(n)) for n in range(5)]
    await _until(lambda: bool(done))
    for n in (1, 3, 0):
        tasks[n].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert done == [0, 2, 4]
    assert len(turns) == 0


async def test_event_loops_never_wait_for_each_other(world: World, patience: RetryDeadline) -> None:
    turns, entered = KeyLocks(), threading.Event()

    async def elsewhere() -> None:
        async with turns.take(ENTRIES, KEY, RetryDeadline(world.engine.placement, "one")):
            entered.set()

    async with turns.take(ENTRIES, KEY, patience):
        await asyncio.to_thread(asyncio.run, elsewhere())
    assert entered.is_set()
    assert len(turns) == 0


async def test_who_lost_waits_longer_each_time_and_not_evenly(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept, patience = list[float](), RetryDeadline(world.engine.placement, "one")

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    for _ in range(40):
        await patience.wait()
    assert max(slept[:3]) <= 0.008
    assert 0.1 < max(slept) <= 0.25
    assert len(set(slept)) > 35
