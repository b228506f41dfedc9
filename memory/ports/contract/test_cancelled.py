"""Cancelled calls: a write happens as a whole or not at all, and the store works on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

import pytest

from memory.ports.contract.capability_tests import needs
from memory.ports.contract.cells import cells
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.harness import Harness
from memory.ports.contract.support import (
    ELSEWHERE,
    HERE,
    T0,
    apply_all,
    fetch_record,
    hit_ids,
    id_of,
    key_of,
    put,
    record,
    search_hits,
    ways,
)
from memory.ports.query import MAX_LIMIT, Near, Query, Search, Words, within
from memory.ports.record import Partition, Record, Stored, Tombstone, pack_vector
from memory.ports.store import Store
from memory.ports.writes import Absent, AtVersion, Outcome, Write

CUT_OFF = 24


def _full(n: int, version: int) -> Record:
    """Return a record that has its version in every part."""
    said = f"version{version}"
    return record(
        n,
        version=version,
        fields={"type": said, "tags": (said,)},
        body={"said": said, "more": said * 200},
        texts={"title": said, "content": f"{said} lantern"},
        vector=pack_vector([1.0, version]),
        tier=said,
    )


def _is_whole(stored: Record) -> bool:
    n = round((stored.created_at - record(0).created_at).total_seconds())
    return (
        stored.same_content(replace(_full(n, stored.version), generation=stored.generation))
        and stored.tier == f"version{stored.version}"
    )


async def _cut_off(
    chance: random.Random, calls: Sequence[Coroutine[Any, Any, list[Outcome]]]
) -> list[list[Outcome] | None]:
    """Begin all calls at once and cancel each after its own delay.

    Returns the answers of calls that were not cancelled, and None for the others. Half
    are cancelled after some turns of the loop, half after some time. A driver's work
    takes turns, a server's work takes time.
    """
    tasks = [asyncio.ensure_future(call) for call in calls]

    async def give_up(task: asyncio.Task[list[Outcome]]) -> None:
        if chance.random() < 0.5:
            for _ in range(chance.randrange(40)):
                await asyncio.sleep(0)
        else:
            await asyncio.sleep(chance.random() * 0.02)
        task.cancel()

    await asyncio.gather(*(give_up(task) for task in tasks))
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, asyncio.CancelledError):
            raise answer
    return [None if isinstance(answer, BaseException) else answer for answer in answers]


async def _works_at_once(store: Store, round_: int) -> None:
    """Check that the connections of cancelled calls work.

    Answers to cancelled calls must not be taken for answers to these.
    """
    numbers = [10_000 + 10 * round_ + n for n in range(8)]
    await asyncio.gather(*(apply_all(store, put(_full(n, 1))) for n in numbers))
    stands = await asyncio.gather(*(fetch_record(store, n) for n in numbers))
    assert [s.key for s in stands] == [key_of(n) for n in numbers]
    assert all(_is_whole(s) for s in stands)


@clause("life.cancelled")
@pytest.mark.asyncio
@cells("size", [1, 5], ids=["one write", "batches"])
async def test_new_records_cut_off_are_whole_or_absent_and_no_acknowledged_one_is_missing(
    harness: Harness, store: Store, size: int
) -> None:
    chance = random.Random(size)  # noqa: S311
    known: set[int] = set()
    for round_ in range(harness.depth.rounds):
        numbers = [range(n, n + size) for n in range(round_ * 1000, round_ * 1000 + CUT_OFF * size, size)]
        answers = await _cut_off(chance, [store.apply([put(_full(n, 1)) for n in some]) for some in numbers])
        await _works_at_once(store, round_)

        known |= {
            n for some, answer in zip(numbers, answers, strict=True) if answer is not None for n in some
        }
        everything = [n for some in numbers for n in some]
        stands = dict(zip(everything, await store.get(SAMPLES, [key_of(n) for n in everything]), strict=True))
        kept = {n: s for n, s in stands.items() if s is not None}
        assert all(isinstance(s, Record) and _is_whole(s) for s in kept.values())
        assert known & set(everything) <= set(kept)
    listed = {r.key for r in (await store.query(Query(SAMPLES, within(HERE), limit=MAX_LIMIT))).records}
    assert {key_of(n) for n in known} <= listed
    if store.capabilities.lexical:
        assert {id_of(n) for n in known} <= {
            hit.head.key.id for hit in await search_hits(store, "version1", limit=10_000)
        }


@clause("life.cancelled", "lexical.follows")
@needs("conditional")
@pytest.mark.asyncio
async def test_changes_cut_off_leave_the_old_record_or_the_new_one_whole(
    harness: Harness, store: Store
) -> None:
    """Search also finds a whole record: by the old words or by the new ones."""
    chance = random.Random(3)  # noqa: S311
    await apply_all(store, *[put(_full(n, 1)) for n in range(CUT_OFF)])
    for round_ in range(harness.depth.rounds):
        before = [await fetch_record(store, n) for n in range(CUT_OFF)]
        writes: list[Write] = [
            put(_full(n, old.version + 1), AtVersion(old.version)) for n, old in enumerate(before)
        ]
        answers = await _cut_off(chance, [store.apply([write]) for write in writes])
        await _works_at_once(store, round_)

        after = [await fetch_record(store, n) for n in range(CUT_OFF)]
        assert all(_is_whole(s) for s in after)
        for old, new, answer in zip(before, after, answers, strict=True):
            assert new.version in (old.version, old.version + 1)
            assert answer is None or not answer[0].applied or new.version == old.version + 1, (
                "what was acknowledged is there"
            )
        if store.capabilities.lexical:
            await _found_by_what_they_say(store)


async def _found_by_what_they_say(store: Store) -> None:
    """Repeat the search if a cancelled write took effect only between the reads."""
    keys = [key_of(n) for n in range(CUT_OFF)]
    while True:
        first: list[Stored | None] = await store.get(SAMPLES, keys)
        versions = {s.version for s in first if isinstance(s, Record)}
        hits = {version: await hit_ids(store, f"version{version}") for version in versions}
        if await store.get(SAMPLES, keys) == first:
            break
    for stored in first:
        assert isinstance(stored, Record)
        assert {version for version in versions if stored.key.id in hits[version]} == {stored.version}


@clause("life.cancelled", "apply.repeatable")
@needs("conditional")
@pytest.mark.asyncio
async def test_a_creation_cut_off_and_made_again_is_made_once(harness: Harness, store: Store) -> None:
    """A caller that does not know whether a write happened repeats its condition."""
    chance = random.Random(5)  # noqa: S311
    for round_ in range(harness.depth.rounds):
        numbers = range(round_ * 100, round_ * 100 + CUT_OFF)
        first = await _cut_off(chance, [store.apply([put(_full(n, 1), Absent())]) for n in numbers])
        second = await asyncio.gather(*(store.apply([put(_full(n, 2), Absent())]) for n in numbers))
        for n, earlier, (outcome,) in zip(numbers, first, second, strict=True):
            stands = await fetch_record(store, n)
            assert _is_whole(stands)
            assert stands.version == (2 if outcome.applied else 1)
            assert not (earlier is not None and outcome.applied)


ENDING: dict[str, Callable[[Store, int], Coroutine[Any, Any, object]]] = {
    "get": lambda s, n: s.get(SAMPLES, [key_of(n) for n in range(30)]),
    "apply": lambda s, n: s.apply([put(record(500 + n)), put(record(600 + n))]),
    "query": lambda s, n: s.query(Query(SAMPLES, within(HERE), limit=MAX_LIMIT)),
    "count": lambda s, n: s.count(Query(SAMPLES, within(HERE))),
    "words": lambda s, n: s.search(Search(SAMPLES, within(HERE), Words("lantern"), 9)),
    "meaning": lambda s, n: s.search(Search(SAMPLES, within(HERE), Near(pack_vector([1.0, 0.0])), 9)),
    "erase": lambda s, n: s.delete_matching(Query(SAMPLES, within(ELSEWHERE)), 9),
}


@clause("life.cancelled")
@pytest.mark.asyncio
async def test_a_cancelled_call_ends_cancelled_and_the_store_works_on(store: Store) -> None:
    """The cancellation is neither swallowed nor reported as an error of the store.

    The caller waits for exactly that. A call that had ended has ended.
    """
    await apply_all(store, *[put(_full(n, 1)) for n in range(20)])
    unable = {"words": not store.capabilities.lexical, "meaning": not store.capabilities.semantic}
    async with asyncio.timeout(60):
        for turns in range(14):
            for name, call in ENDING.items():
                if unable.get(name):
                    continue
                task = asyncio.ensure_future(call(store, turns))
                for _ in range(turns):
                    await asyncio.sleep(0)
                if task.cancel():
                    await asyncio.wait([task])
                    assert task.cancelled(), (
                        f"{name}, cancelled after {turns} turns, ended as"
                        f" {task.exception() or task.result()!r}"
                    )
            await apply_all(store, put(record(700 + turns)))
    assert [
        s is not None for s in await store.get(SAMPLES, [key_of(700 + turns) for turns in range(14)])
    ] == [True] * 14
    pairs = [await store.get(SAMPLES, [key_of(500 + n), key_of(600 + n)]) for n in range(14)]
    assert all((a is None) == (b is None) for a, b in pairs) or not store.capabilities.atomic


@clause("life.cancelled", "erase.all", "lexical.follows", "semantic.follows")
@pytest.mark.asyncio
async def test_an_erasure_cut_off_leaves_each_record_whole_or_deleted_and_repeated_takes_the_rest(
    store: Store,
) -> None:
    """An erasure may delete some records and leave others, and is then repeated.

    The remaining ones are found as before.
    """
    semantic = store.capabilities.semantic
    for turns in range(CUT_OFF):
        at = Partition("acme", f"user:{turns}")
        made = [
            record(
                n,
                at,
                texts={"content": "lantern"},
                vector=pack_vector([1.0, n]) if semantic else None,
                generation=0,
            )
            for n in range(8)
        ]
        await apply_all(store, *map(put, made))
        everything = Query(SAMPLES, within(at), limit=MAX_LIMIT)
        call = asyncio.ensure_future(store.delete_matching(everything, 50, T0))
        for _ in range(turns):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)

        seen: list[object] = []
        while not seen or seen[0] != seen[-1]:  # cancelled calls may still complete
            stands = await store.get(SAMPLES, [r.key for r in made])
            page, count = await store.query(everything), await store.count(everything)
            hits = [
                await store.search(Search(SAMPLES, within(at), by, 50))
                for by in ways(store, "lantern", 1.0, 0.0)
            ]
            seen = [stands, await store.get(SAMPLES, [r.key for r in made])]
        left = [r for r, s in zip(made, stands, strict=True) if s == r]
        deleted = [Tombstone(r.key, 50, discard_at=T0) for r in made if r not in left]
        assert [s for s in stands if s not in left] == deleted, "neither as it was nor deleted"
        assert (page.records, count.records) == (tuple(left), len(left))
        assert [{hit.head.key for hit in some} for some in hits] == [{r.key for r in left}] * len(hits)
        assert await store.delete_matching(everything, 50, T0) <= len(left)
        assert await store.get(SAMPLES, [r.key for r in made]) == [
            Tombstone(r.key, 50, discard_at=T0) for r in made
        ]
