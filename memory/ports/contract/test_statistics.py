"""Derived data follow the records: scores, sizes and results.

They equal those of a store that never held anything else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from memory.ports.contract.capability_tests import needs
from memory.ports.contract.cells import cells
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.support import HERE, apply_all, delete, key_of, put, record, search_hits
from memory.ports.query import Eq, Query, Tenant, Where, within
from memory.ports.record import Partition, Record, Role
from memory.ports.store import Store
from memory.ports.writes import Annotate, Newer, Purge, Release

FRESH = Partition("acme", "user:fresh")
KEPT, GONE = range(4), range(10, 16)
LONG = "walrus penguin lantern harbour " * 6


def _kept_record(n: int, at: Partition) -> Record:
    return record(
        n,
        at,
        texts={
            "title": "lantern" if n % 2 else "harbour",
            "content": "lantern and a word " * (n + 1) + "harbour",
        },
    )


def _gone_record(n: int, at: Partition, **parts: Any) -> Record:
    """Return a long record with many searched words, which would affect every score."""
    return record(
        n, at, texts={"title": "harbour", "content": LONG * (n - 8)}, fields={"type": "gone"}, **parts
    )


async def _scores(store: Store, at: Where, whose: Sequence[Partition]) -> dict[tuple[int, str], float]:
    """Return the scores by number and place, comparable with those of other places."""
    numbers = {key_of(n, p): (n, str(place)) for place, p in enumerate(whose) for n in (*KEPT, *GONE)}
    return {numbers[hit.head.key]: hit.score for hit in await search_hits(store, "lantern harbour", at)}


async def _delete(store: Store) -> None:
    await apply_all(store, *[delete(n, at=HERE) for n in GONE])


async def _erase(store: Store) -> None:
    assert await store.delete_matching(Query(SAMPLES, within(HERE), Eq("type", "gone")), 50) == len(GONE)


async def _release(store: Store) -> None:
    await apply_all(store, *[Release(SAMPLES, key_of(n), 1, "long") for n in GONE])


async def _purge(store: Store) -> None:
    await apply_all(
        store,
        *[put(replace(_gone_record(n, HERE), version=2, role=Role.CACHED)) for n in GONE],
        *[Purge(SAMPLES, key_of(n), 2) for n in GONE],
    )


async def _silence_and_delete(store: Store) -> None:
    """Remove the texts of some records and delete others, so that none count."""
    await apply_all(
        store, *[put(record(n, version=2), Newer()) for n in GONE], *[delete(n, at=HERE) for n in GONE]
    )


async def _change_role(store: Store) -> None:
    await apply_all(store, *[Annotate(SAMPLES, key_of(n), 1, role=Role.REPLICA) for n in GONE])


async def _rewrite_and_delete(store: Store) -> None:
    await apply_all(
        store,
        *[put(replace(_kept_record(n, HERE), version=2)) for n in KEPT for _ in range(2)],
        *[delete(n, at=HERE) for n in GONE],
    )


CHANGES: dict[str, Callable[[Store], Awaitable[None]]] = {
    "deleted": _delete,
    "erased by a filter": _erase,
    "released": _release,
    "purged": _purge,
    "silenced and deleted": _silence_and_delete,
    "of another role": _change_role,
    "deleted beside rewritten ones": _rewrite_and_delete,
}


@clause("lexical.follows", "lexical.ranks")
@needs("lexical", "conditional", "filter", "tenant_statistics")
@pytest.mark.asyncio
@cells("change", CHANGES)
async def test_scores_are_those_of_a_partition_that_never_held_what_is_gone(
    store: Store, change: str
) -> None:
    await apply_all(
        store,
        *[put(_kept_record(n, at)) for at in (HERE, FRESH) for n in KEPT],
        *[put(_gone_record(n, HERE)) for n in GONE],
    )
    before = await _scores(store, within(HERE), (HERE,))
    assert {n for n, _ in before} == {*KEPT, *GONE}

    await CHANGES[change](store)

    fresh = await _scores(store, within(FRESH), (FRESH,))
    assert {n for n, _ in fresh} == {*KEPT}
    assert {n: before[n] for n in fresh} != pytest.approx(fresh, rel=1e-3), (
        "what is gone told in the scores, or this proves nothing"
    )
    for _ in range(2):
        assert await _scores(store, within(HERE), (HERE,)) == pytest.approx(fresh, rel=1e-5)


@clause("lexical.ranks", "statistics.own", "everywhere.all")
@needs("lexical", "tenant_statistics")
@pytest.mark.asyncio
async def test_several_partitions_have_the_statistics_of_one_that_holds_all_of_theirs(store: Store) -> None:
    """One may hold most records; a tenant has the statistics of all partitions."""
    one, two, tenant = HERE, Partition(HERE.tenant, "user:two"), Partition("umbrella", "user:all")
    all_there = [replace(_kept_record(n, tenant)) for n in KEPT] + [_gone_record(n, tenant) for n in GONE]
    await apply_all(
        store,
        *[put(_kept_record(n, one)) for n in KEPT],
        *[put(_gone_record(n, two)) for n in GONE],
        *map(put, all_there),
    )
    together = await _scores(store, within(tenant), (tenant,))
    assert len(together) == len(all_there)
    expected = {(n, "0" if n in KEPT else "1"): score for (n, _), score in together.items()}
    places: list[Where] = [within(one, two), within(two, one, two)]
    places += [Tenant(HERE.tenant)] if store.capabilities.tenant_wide else []
    for where in places:
        assert await _scores(store, where, (one, two)) == pytest.approx(expected, rel=1e-5), where


@clause("count.exact")
@needs("conditional")
@pytest.mark.asyncio
async def test_sizes_follow_every_kind_of_write(store: Store) -> None:
    """Sizes are those of the stored records alone, in bytes.

    They are near enough to show growth, shrinking and deletion. These characters take
    three bytes each.
    """

    async def check_size(expected: int, records: int) -> None:
        counted = await store.count(Query(SAMPLES, within(HERE)))
        assert counted.records == records
        assert expected / 2 <= counted.bytes <= expected * 4 + 10_000 * bool(records), (
            f"{counted.bytes} bytes, about {expected} expected"
        )
        there = (await store.query(Query(SAMPLES, within(HERE)))).records
        told = sum(store.counted_bytes(SAMPLES, one) for one in there if isinstance(one, Record))
        assert told == pytest.approx(counted.bytes, rel=0.1), "as is told of each beforehand"

    def of(size: int, n: int = 1, **parts: Any) -> Record:
        return record(n, body={"said": "夜の灯り" * (size // 12)}, **parts)

    handed_in = of(100_000, fields={"type": "fact", "tags": ("a", "b"), "confidence": None})
    await apply_all(store, put(handed_in))
    await check_size(100_000, 1)
    (stands,) = (await store.query(Query(SAMPLES, within(HERE)))).records
    assert isinstance(stands, Record)
    foreseen = store.counted_bytes(SAMPLES, replace(handed_in, generation=stands.generation))
    assert foreseen == pytest.approx((await store.count(Query(SAMPLES, within(HERE)))).bytes, rel=0.1), (
        "before it stands, too"
    )
    for version in range(2, 8):
        await apply_all(store, put(of(100_000, version=version), Newer()))
    await check_size(100_000, 1)
    await apply_all(
        store,
        put(of(1_000, version=8), Newer()),
        *[Annotate(SAMPLES, key_of(1), 8, tier=f"tier {n}") for n in range(20)],
    )
    await check_size(1_000, 1)
    await apply_all(
        store,
        put(of(200_000, version=9), Newer()),
        put(of(100_000, 2)),
        put(of(100_000, 3)),
        put(of(100_000, 4)),
    )
    await check_size(500_000, 4)
    await apply_all(
        store,
        delete(1),
        Release(SAMPLES, key_of(2), 1, "long"),
        Annotate(SAMPLES, key_of(3), 1, role=Role.REPLICA),
    )
    await check_size(100_000, 1)
    await apply_all(store, delete(4))
    await check_size(0, 0)
    await apply_all(store, put(of(100_000, 5)), put(of(100_000, 6)))
    assert await store.delete_matching(Query(SAMPLES, within(HERE)), 300) == 2
    await check_size(0, 0)
    assert (await store.count(Query(SAMPLES, within(HERE)))).bytes == 0
