"""Long histories of single writes, in lockstep with the specification, with thresholds as they are and all of them tiny."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from memory.adapters.in_memory import InMemoryStore
from memory.adapters.sql.sqlite.claims import THRESHOLDS, Thresholds
from memory.adapters.sql.sqlite.store import SqliteStore
from memory.ports.collections import COLLECTIONS, ENTRIES
from memory.ports.contract.random_work import PLACES, RandomWork
from memory.ports.query import Everywhere, Kind, Query, Search, Words, within
from memory.ports.record import Role, Stored
from memory.ports.store import Store
from tests.support import quick_folders

TINY = Thresholds(writes_together=1, rows_at_once=2, buried_at_once=1, block=8, log_pages=1)
EVERYTHING = Query(ENTRIES, Everywhere(), roles=frozenset(Role), kinds=frozenset(Kind))
DEPLOY = Search(ENTRIES, within(*[place for place in PLACES if place.tenant == PLACES[0].tenant]), Words("deploy café 東京"), 50)


async def _standing(store: Store) -> tuple[list[Stored], list[tuple[str, float]]]:
    page = await store.query(EVERYTHING)
    hits = await store.search(DEPLOY)
    return sorted(page.records, key=lambda stored: stored.key), [(hit.record.key.id, round(hit.score, 9)) for hit in hits]


@pytest.fixture
def quick_file(tmp_path: Path) -> Iterator[Path]:
    folder = quick_folders.new(otherwise=tmp_path)
    yield folder / "memory.db"
    shutil.rmtree(folder)


@pytest.mark.parametrize("thresholds", [THRESHOLDS, TINY], ids=["as_they_are", "tiny"])
@pytest.mark.parametrize("seed", range(3))
async def test_a_long_history_of_single_writes_leaves_what_the_specification_has_and_nothing_besides(
    quick_file: Path, seed: int, thresholds: Thresholds
) -> None:
    ours, specification = SqliteStore(f"sqlite:///{quick_file}", thresholds=thresholds), InMemoryStore()
    for store in (ours, specification):
        await store.open(COLLECTIONS)
    work, chance = RandomWork(seed, ours.capabilities), random.Random(seed)  # noqa: S311
    for turn in range(1_000):
        write = work.write()
        assert await ours.apply([write]) == await specification.apply([write]), write
        if turn % 50 == 49:
            query = work.query()
            assert await ours.delete_matching(query, 3) == await specification.delete_matching(query, 3)
        if turn % 100 == 99:
            assert (await ours.audit()).problems == ()
            assert await _standing(ours) == await _standing(specification)
            idle = [i for i in await specification.idle_partitions() if i in await ours.idle_partitions()]
            assert await ours.forget_partitions(idle) == await specification.forget_partitions(idle)
        if chance.random() < 0.01:
            await ours.vacuum()
            await ours.close()
            await ours.open(COLLECTIONS)
    await ours.close()
