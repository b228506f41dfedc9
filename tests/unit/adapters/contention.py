"""A hundred callers at once, all about the same twenty records."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from memory.adapters.in_memory import InMemoryStore
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import apply_all, key_of, put, record
from memory.ports.record import Partition, Record
from memory.ports.store import Store
from memory.ports.writes import Absent, AtVersion, Newer, Outcome, Put, RaiseGeneration, Status, When

CALLERS, RECORDS = 100, 20
_PATIENCE = 240
"""Seconds in which it ends on any machine, if it ends."""


async def _all_at_once(store: Store, when: When | None, *, together: bool) -> list[list[Outcome]]:
    """Every caller puts all records in a version of its own, from 2 on, half of the
    callers from the last to the first.
    """

    async def call(version: int) -> list[Outcome]:
        numbers = range(RECORDS) if version % 2 else range(RECORDS - 1, -1, -1)
        writes = [
            put(record(n, version=version, texts={"content": f"said by {version}"}), when) for n in numbers
        ]
        outcomes = await store.apply(writes, together=together)
        return outcomes if version % 2 else outcomes[::-1]

    async with asyncio.timeout(_PATIENCE):
        return await asyncio.gather(*[call(version) for version in range(2, CALLERS + 2)])


async def _versions(store: Store) -> Sequence[int]:
    stored = await store.get(SAMPLES, [key_of(n) for n in range(RECORDS)])
    assert all(isinstance(s, Record) and s.texts["content"] == f"said by {s.version}" for s in stored)
    return [s.version for s in stored if isinstance(s, Record)]


async def callers_about_the_same_records_all_get_an_answer_that_is_true(store: Store) -> None:
    await apply_all(store, *[put(record(n, texts={"content": "said by 1"})) for n in range(RECORDS)])
    for together in (False, True) if store.capabilities.atomic else (False,):
        outcomes = await _all_at_once(store, None, together=together)
        assert all(outcome.applied for of_caller in outcomes for outcome in of_caller)
        versions = await _versions(store)
        assert len(set(versions)) == 1 or not store.capabilities.atomic, (
            "a call that is kept whole was mixed with another"
        )

        await apply_all(store, *[put(record(n, texts={"content": "said by 1"})) for n in range(RECORDS)])
        outcomes = await _all_at_once(store, Newer(), together=together)
        assert all(outcome.applied for outcome in outcomes[-1]), "nothing is newer than the last caller's"
        assert await _versions(store) == [CALLERS + 1] * RECORDS

        await apply_all(store, *[put(record(n, texts={"content": "said by 1"})) for n in range(RECORDS)])
        outcomes = await _all_at_once(store, AtVersion(1), together=together)
        winners = [
            [caller for caller, of_caller in enumerate(outcomes, 2) if of_caller[n].applied]
            for n in range(RECORDS)
        ]
        assert all(len(of_record) == 1 for of_record in winners), (
            "of those who replace one version, one succeeds"
        )
        assert await _versions(store) == [winner for (winner,) in winners]


async def new_records_of_many_callers_at_once_are_each_answered_as_alone(
    store: Store, carried_out: list[int]
) -> None:
    """`carried_out` is told of how many writes each call was that the store carried
    out.
    """
    erased = Partition("acme", "user:erased")
    standing, keys = range(0, 40, 10), range(40)
    writes: list[Put] = [put(record(n, texts={"content": f"said by {n}"}), Absent()) for n in keys]
    writes += [put(record(n, erased, generation=2), Absent()) for n in (1, 2)]
    writes += [put(record(1, Partition("a tenant" * 1_000, "user:ann")), Absent())]
    writes += [put(record(n, texts={"content": "said twice"}), Absent()) for n in (50, 50)]
    for one in (store, alone := InMemoryStore("alone")):
        if one is alone:
            await alone.open(DECLARED)
        await apply_all(one, RaiseGeneration(erased, 5), *[put(record(n, version=7)) for n in standing])
    expected = [(await alone.apply([write]))[0] for write in writes]
    carried_out.clear()
    async with asyncio.timeout(_PATIENCE):
        given_up = [
            asyncio.create_task(store.apply([put(record(n, texts={"content": "given up"}), Absent())]))
            for n in range(60, 70)
        ]
        calls = [asyncio.create_task(store.apply([write])) for write in writes]
        await asyncio.sleep(0)
        for task in given_up:
            task.cancel()
        outcomes = [(await call)[0] for call in calls]
    for write, outcome, wanted in zip(writes, outcomes, expected, strict=True):
        assert outcome.status is wanted.status or len(write.key.tenant) > 1_000, write
    assert [(o.status, bool(o.reason)) for o in outcomes[40:43]] == [(Status.REJECTED, True)] * 3
    stored = await store.get(SAMPLES, [key_of(n) for n in (*keys, 50, *range(60, 70))])
    assert [s.version for s in stored[:40] if isinstance(s, Record)] == [
        7 if n in standing else 1 for n in keys
    ]
    assert isinstance(stored[40], Record)
    assert all(s is None or (isinstance(s, Record) and s.texts["content"] == "given up") for s in stored[41:])
    assert len(carried_out) < len(writes) / 4, "they went together"
