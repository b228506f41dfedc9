"""The same random work on this store and on the one in memory, which is the specification: the same answers.

Ids are of every kind: of their record's partition, of another partition's making, and not this library's at all; scopes of a key change. Now and
then the folder is closed and opened, and two stores take turns on it.
"""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from memory.adapters.in_memory import InMemoryStore
from memory.ports.collections import COLLECTIONS, ENTRIES, ENTRY_VERSIONS
from memory.ports.contract.support import HERE, T0, id_of, put, record
from memory.ports.query import Eq, Everywhere, Filter, Has, IsNull, Kind, Order, Query, Tenant, Where, within
from memory.ports.record import Key, Owed, Partition, Record, Role
from memory.ports.store import Store
from memory.ports.writes import Absent, Always, Annotate, Append, AtVersion, Delete, Newer, Purge, Put, RaiseGeneration, Release, When, Write
from tests.support.random_work import answers, random_record
from tests.unit.adapters.file.helping import opened

pytestmark = pytest.mark.backend("file")

SCOPES = [HERE, Partition("acme", "user:bob"), Partition("acme", "x" * 300), Partition("Acme", "user:ann")]
IDS = [id_of(n, SCOPES[n % 4]) for n in range(12)] + ["", "*", "a/b", "..", "x\x00y", "X", "x", "é", "A" * 300, "\ud800"]
STEPS = (Owed("deliver", {"to": "long", "n": 1}), Owed("erase", {"deep": [1, {"x": None}]}))


def _record(chance: random.Random) -> Record:
    made = record(1, at=chance.choice(SCOPES), version=chance.randrange(1, 5), role=chance.choice(list(Role)))
    at = T0 + timedelta(seconds=chance.randrange(4))
    return replace(
        made,
        key=Key(made.key.tenant, chance.choice(IDS)),
        created_at=at,
        fields={"type": chance.choice(("fact", "event")), "tags": tuple(chance.sample(("a", "A"), chance.randrange(3)))},
        body={"n": chance.random()},
        owed=tuple(chance.sample(STEPS, chance.randrange(3))),
        generation=chance.choice((None, None, None, 0, 1, 2)),
        tier=chance.choice(("short", "mid")),
    )


def _when(chance: random.Random) -> When:
    return chance.choice((Absent(), Newer(), Newer(), Always(), AtVersion(chance.randrange(1, 5), chance.choice((None, Role.HOME)))))


def _write(chance: random.Random) -> Write:
    made, version, kind = _record(chance), chance.randrange(1, 6), chance.randrange(10)
    changes: dict[str, Any] = chance.choice(({"tier": "x"}, {"role": Role.HOME}, {"accessed_at": T0}, {"discard_at": T0}, {"settle": STEPS[:1]}))
    kinds: dict[int, Write] = {
        4: Append(ENTRY_VERSIONS, made, "numbers", "stored_version"),
        5: Delete(ENTRIES, made.key, version, chance.choice((Newer(), AtVersion(version))), made.owed, {"k": version}, T0),
        6: Release(ENTRIES, made.key, version, chance.choice(("mid", "long")), made.owed, T0),
        7: Annotate(ENTRIES, made.key, version, **changes),
        8: Purge(ENTRIES, made.key, version, chance.choice((None, Role.ARRIVING))),
        9: RaiseGeneration(made.partition, chance.choice((None, 0, 1))) if chance.random() < 0.3 else Put(ENTRIES, made, Newer()),
    }
    return kinds.get(kind) or Put(ENTRIES, made, _when(chance))


async def _answers(store: Store) -> list[object]:
    given: list[object] = [await store.get(ENTRIES, [Key(scope.tenant, i) for scope in SCOPES for i in IDS])]
    wheres: tuple[Where, ...] = (*map(within, SCOPES), within(*SCOPES[:3]), Tenant("acme"), Everywhere())
    filters: tuple[Filter | None, ...] = (None, Has("tags", "a"), IsNull("confidence"), Eq("owing", True))
    orders = ((), (Order("created_at", True),), (Order("type"), Order("id", True)), (Order("version", True),))
    for where in wheres:
        for part, order in zip(filters, orders, strict=True):
            query = Query(ENTRIES, where, part, order, limit=7, roles=frozenset(Role))
            given += [(await store.query(query)), (await store.count(query)).records]
    for kinds in (frozenset({Kind.MARK}), frozenset({Kind.TOMBSTONE}), frozenset(Kind)):
        given.append(await store.query(Query(ENTRIES, Everywhere(), kinds=kinds)))
    given.append(await store.query(Query(ENTRY_VERSIONS, Everywhere(), roles=frozenset(Role))))
    return given


@pytest.mark.parametrize("seed", range(4))
async def test_random_work_gives_the_same_answers(folder: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    specification, ours, beside = InMemoryStore(), await opened(folder, fsync=False), await opened(folder, fsync=False)
    await specification.open(COLLECTIONS)
    for turn in range(5):
        writes = [_write(chance) for _ in range(40)]
        together = turn == 3 and chance.random() < 0.5
        expected = await specification.apply(writes, together=together)
        outcomes = await (ours if turn % 2 else beside).apply(writes, together=together)
        for write, one, other in zip(writes, outcomes, expected, strict=True):
            assert one == other, write
        assert await _answers(ours) == await _answers(specification)
        if turn == 2:
            await ours.close()
            await ours.open(COLLECTIONS)
    query = Query(ENTRIES, Tenant("acme"), Eq("type", "fact"), roles=frozenset(Role))
    deleted = [await store.delete_matching(query, 50, T0, keep=("type",)) for store in (ours, specification)]
    assert deleted[0] == deleted[1]
    assert await _answers(beside) == await _answers(specification) == await _answers(ours)
    for store in (ours, beside):
        await store.close()


@pytest.mark.parametrize("seed", range(3))
async def test_searches_give_the_same_answers_to_the_last_bit(folder: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    specification, ours = InMemoryStore(), await opened(folder, fsync=False)
    await specification.open(COLLECTIONS)
    for _ in range(2):
        writes = [put(random_record(chance, n)) for n in range(60)]
        for store in (specification, ours):
            await store.apply(writes)
        assert await answers(ours) == await answers(specification)
    await ours.close()
