"""What every store's audit is asked: it finds nothing where nothing is wrong, names
what was damaged, and makes it anew beside running writers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.support import (
    HERE,
    T0,
    apply_all,
    delete,
    fetch_record,
    hit_ids,
    id_of,
    key_of,
    put,
    record,
)
from memory.ports.query import Query, within
from memory.ports.record import Role
from memory.ports.store import Store
from memory.ports.writes import Always, Newer, Release

Damage = Callable[[], Awaitable[object]]
WORDS = "apple", "banana", "cherry"


async def a_little_of_everything(store: Store) -> None:
    """Records 1 to 9 that say a word each, among them edited ones, and what deletions
    and departures leave.
    """
    await apply_all(
        store, *[put(record(n, texts={"title": "old", "content": "old words"})) for n in range(1, 14)]
    )
    await apply_all(store, put(record(14, texts={"content": "old words"}, expires_at=T0)))
    for n in range(1, 10):
        await apply_all(
            store, put(record(n, version=2, texts={"content": f"{WORDS[n % 3]} crumble"}), Newer())
        )
    await apply_all(store, delete(10), delete(11, discard_at=T0), Release(SAMPLES, key_of(12), 1, "long"))
    await apply_all(store, put(record(13, version=3, role=Role.CACHED), Always()))
    await store.delete_matching(Query(SAMPLES, within(HERE), roles=frozenset({Role.CACHED})), 9)


async def nothing_is_found_where_nothing_is_wrong(store: Store) -> None:
    await a_little_of_everything(store)
    found = await store.audit()
    assert (found.problems, found.checked >= 10) == ((), True)
    assert (await store.audit(repair=True)).problems == ()
    await everything_is_found(store)


async def everything_is_found(store: Store) -> None:
    if store.capabilities.lexical:
        for n, word in enumerate(WORDS):
            assert await hit_ids(store, word) == {id_of(i) for i in range(1, 10) if i % 3 == n}
        assert await hit_ids(store, "old") == {id_of(14)}
    page = await store.query(Query(SAMPLES, within(HERE)))
    assert {r.key.id for r in page.records} == {id_of(i) for i in (*range(1, 10), 14)}


async def damage_is_named_and_mended(store: Store, damage: Damage, *, by_readers: bool = False) -> None:
    """`by_readers`: whoever goes through all of it, as an audit does in the end, mends
    it in passing.
    """
    await a_little_of_everything(store)
    await damage()
    for n in (1, 10, 12):
        assert await store.get(SAMPLES, [key_of(n)]) != [None], "reading by key needs nothing derived"
    named = (await store.audit()).problems
    assert named
    assert all("crumble" not in problem and "apple" not in problem for problem in named)
    assert (await store.audit()).problems == (() if by_readers else named), "it only looked"
    if by_readers:
        await damage()

    assert (await store.audit(repair=True)).problems, "what was found is told"
    assert (await store.audit()).problems == ()
    await everything_is_found(store)
    await damage()

    async def write() -> None:
        for n in range(20, 32):
            await apply_all(store, put(record(n, texts={"content": "beside"})))
            await apply_all(store, put(record(n, version=2, texts={"content": "beside it"}), Newer()))
            await apply_all(store, delete(n))

    await asyncio.gather(write(), store.audit(repair=True))
    assert (await store.audit()).problems == ()
    await everything_is_found(store)
    await fetch_record(store, 1)
    await apply_all(store, put(record(1, version=7, texts={"content": "zebra"}), Newer()))
    if store.capabilities.lexical:
        assert await hit_ids(store, "zebra") == {id_of(1)}


async def many_records_are_audited_page_by_page(store: Store) -> None:
    for start in range(0, 10_000, 500):
        await apply_all(
            store, *[put(record(n, texts={"content": f"word{n} of many"})) for n in range(start, start + 500)]
        )
    found = await store.audit()
    assert (found.checked >= 10_000, found.problems) == (True, ())
