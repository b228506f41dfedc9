"""Upkeep: an audit of what is derived, room given back, partitions that hold nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from memory.domain.errors import InvalidInput
from memory.ports.collections import ENTRIES, ENTRY_VERSIONS, RELATIONS
from memory.ports.contract.clauses import clause
from memory.ports.contract.judges import needs
from memory.ports.contract.support import ELSEWHERE, FOREIGN, HERE, T0, append, delete, done, found, hit_ids, id_of, key_of, one, put, record, release
from memory.ports.query import Everywhere, Kind, Query, within
from memory.ports.record import Owed, Partition, Role
from memory.ports.store import Audit, Store
from memory.ports.writes import Annotate, Newer, Purge, RaiseGeneration

EMPTY = Partition("acme", "session:empty")
PLACES = (HERE, ELSEWHERE, FOREIGN, EMPTY)


async def _busy(store: Store) -> None:
    """Records that came, changed, were found, moved on and went, in several collections."""
    for version in range(1, 5):
        await done(store, *[put(record(n, version=version, accesses=1, texts={"content": f"lantern word{n} turn{version}"})) for n in range(40)])
    await done(store, put(record(1, ELSEWHERE, texts={"content": "lantern"})), put(record(1), collection=RELATIONS), RaiseGeneration(EMPTY, 3))
    if store.capabilities.conditional:
        await done(
            store,
            *[release(n, 4, owed=(Owed("k"),)) for n in range(5)],
            *[delete(n, owed=(Owed("k"),)) for n in range(5, 12)],
            *[Annotate(ENTRIES, key_of(n), 4, role=Role.REPLICA, accessed_at=T0) for n in range(12, 16)],
            *[append(record(n, texts={"content": "lantern"}), ENTRY_VERSIONS, "stored_version") for n in range(6)],
            delete(2, collection=ENTRY_VERSIONS),
            put(record(50, role=Role.CACHED, texts={"content": "lantern"})),
            Purge(ENTRIES, key_of(50), 1),
            put(record(5, version=200, texts={"content": "lantern again"}), Newer()),
        )
    await store.delete_matching(Query(ENTRIES, within(ELSEWHERE)), 60)


async def _pictured(store: Store) -> dict[str, Any]:
    """All that stands, and what it is found by."""
    keys = [key_of(n) for n in range(60)] + [key_of(1, ELSEWHERE)]
    seen: dict[str, Any] = {c.name: await store.get(c, keys) for c in (ENTRIES, ENTRY_VERSIONS, RELATIONS)}
    seen["generations"] = [(await one(store, RaiseGeneration(p, 0))).number for p in PLACES]
    if store.capabilities.lexical:
        seen["found"] = {word: await hit_ids(store, word) for word in ("lantern", "turn3", "turn4", "word7", "word20", "again")}
    if store.capabilities.tenant_wide:
        seen["left"] = (await store.query(Query(ENTRIES, Everywhere(), kinds=frozenset({Kind.MARK, Kind.TOMBSTONE})))).records
    return seen


@clause("upkeep.audit")
@pytest.mark.asyncio
async def test_an_audit_of_a_healthy_store_finds_nothing_and_changes_nothing(store: Store) -> None:
    assert (await store.audit()).problems == ()
    await _busy(store)
    before = await _pictured(store)
    for repair in (False, True):
        audit = await store.audit(repair=repair)
        assert isinstance(audit, Audit)
        assert audit.problems == ()
        assert await _pictured(store) == before
    if store.capabilities.conditional:
        assert (await done(store, append(record(20), ENTRY_VERSIONS, "stored_version")))[0].number == 7


@clause("upkeep.vacuum")
@pytest.mark.asyncio
async def test_a_vacuum_changes_nothing_that_can_be_asked(store: Store) -> None:
    assert await store.vacuum() >= 0
    await _busy(store)
    before = await _pictured(store)
    assert await store.vacuum() >= 0
    assert await _pictured(store) == before
    await done(store, put(record(30, version=9, texts={"content": "afterwards"})))
    if store.capabilities.lexical:
        assert await hit_ids(store, "afterwards") == {id_of(30)}
    assert (await store.audit()).problems == ()


@clause("upkeep.idle")
@pytest.mark.asyncio
async def test_a_partition_is_idle_exactly_where_nothing_stands_in_it(store: Store) -> None:
    """One whose last record left a tombstone may be held back; one that holds anything else is."""
    assert await store.idle_partitions() == []
    await done(store, *[RaiseGeneration(p, n) for n, p in enumerate(PLACES, start=3)])
    await done(store, put(record(1)), put(record(1, ELSEWHERE), collection=RELATIONS))
    assert sorted(await store.idle_partitions()) == sorted([(FOREIGN, 5), (EMPTY, 6)])
    assert len(await store.idle_partitions(1)) == 1
    with pytest.raises(InvalidInput):
        await store.idle_partitions(0)
    if store.capabilities.conditional:
        await done(store, put(record(1, FOREIGN)), replace(release(1), key=key_of(1, FOREIGN)))
        assert await store.idle_partitions() == [(EMPTY, 6)], "a mark is something"
        numbered = replace(append(record(2), ENTRY_VERSIONS, "stored_version"), record=replace(record(2), scope=EMPTY.scope))
        await done(store, numbered)
        assert await store.idle_partitions() == []
    await store.delete_matching(Query(ENTRIES, within(HERE)), 9)
    assert {p for p, _ in await store.idle_partitions()} <= {HERE}


@clause("upkeep.forget")
@pytest.mark.asyncio
async def test_only_an_idle_partition_at_its_generation_is_forgotten(store: Store) -> None:
    assert await store.forget_partitions([]) == 0
    await done(store, *[RaiseGeneration(p, n) for n, p in enumerate(PLACES, start=3)])
    await done(store, put(record(1)), put(record(1, ELSEWHERE), collection=RELATIONS))
    asked = [(HERE, 3), (ELSEWHERE, 4), (FOREIGN, 4), (FOREIGN, 6), (Partition("nobody", "x"), 1)]
    assert await store.forget_partitions(asked) == 0
    assert [(await one(store, RaiseGeneration(p, 0))).number for p in PLACES] == [3, 4, 5, 6]
    assert await store.forget_partitions([(FOREIGN, 5), (HERE, 3)]) == 1
    assert [(await one(store, RaiseGeneration(p, 0))).number for p in PLACES] == [3, 4, 0, 6]
    assert (await done(store, put(record(7, FOREIGN))))[0].generation == 0, "it begins anew"
    assert not (await one(store, put(record(7, generation=2)))).applied, "and no other does"
    assert (EMPTY, 6) in await store.idle_partitions()
    assert await found(store, 1) is not None


@clause("upkeep.forget")
@needs("conditional")
@pytest.mark.asyncio
async def test_what_is_idle_no_longer_when_it_shall_be_forgotten_is_kept(store: Store) -> None:
    """A call that comes between the list and the forgetting makes it another partition: by a record, or by its generation."""
    await done(store, RaiseGeneration(HERE, 3), RaiseGeneration(ELSEWHERE, 3))
    idle = await store.idle_partitions()
    assert sorted(idle) == [(HERE, 3), (ELSEWHERE, 3)]
    await done(store, put(record(1)), RaiseGeneration(ELSEWHERE))
    assert await store.forget_partitions(idle) == 0
    assert [(await one(store, RaiseGeneration(p, 0))).number for p in (HERE, ELSEWHERE)] == [3, 4]
