"""What searches keep of a place with many partitions follows every change of the file,
also those of other processes.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from memory.adapters.sql.sqlite.members import MANY
from memory.adapters.sql.sqlite.store import SqliteStore
from memory.adapters.sql.sqlite.words import Vocabulary
from memory.ports.candidates import Candidates
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.support import apply_all, delete, put, record
from memory.ports.query import Hit, Near, Query, Search, Under, Words, within
from memory.ports.record import Partition, Record, Role, pack_vector
from memory.ports.writes import Newer
from tests.support.depth import seeds
from tests.unit.adapters.sql.sqlite.helping import opened

PLACES = [Partition("acme", f"path:tree/{n:02}/") for n in range(MANY + 8)]
TREE = Under("acme", ("path:tree/",))
WORDS = "lantern harbour walrus penguin river".split()
NEAR = Near(pack_vector([1.0, 0.5]))


def _drawn(chance: random.Random, n: int, at: Partition, version: int) -> Record:
    return record(
        n,
        at,
        version,
        texts={"content": " ".join(chance.choices(WORDS, k=chance.randrange(1, 6)))},
        vector=pack_vector([chance.gauss(0, 1), chance.gauss(0, 1)]) if chance.random() < 0.8 else None,
        role=chance.choice([Role.HOME, Role.HOME, Role.REPLICA]),
    )


async def _told(store: SqliteStore) -> list[list[tuple[str, float]]]:
    """The hits of some searches, and the statistics that candidates come with."""
    ways: list[Words | Near] = [NEAR, *map(Words, WORDS), Words("lantern river")]
    found: list[list[Hit]] = [await store.search(Search(SAMPLES, TREE, by, 200)) for by in ways]
    answer = await store.candidates(
        Candidates(SAMPLES, TREE, "lantern", NEAR.vector, 5, counted=tuple(WORDS))
    )
    statistics = answer.statistics
    counted = [("documents", float(statistics.documents)), ("words", float(statistics.words))]
    return [
        *[[(hit.head.key.id, round(hit.score, 5)) for hit in hits] for hits in found],
        [*counted, *((word, float(count)) for word, count in sorted(statistics.containing.items()))],
    ]


@pytest.mark.drawn
@pytest.mark.parametrize("seed", seeds(quick=1, nightly=3))
async def test_a_subtree_is_searched_as_by_a_store_that_keeps_nothing(
    store: SqliteStore, file: Path, seed: int
) -> None:
    chance, version = random.Random(seed), 1  # noqa: S311 - the same each time
    other = await opened(file)
    await apply_all(store, *[put(_drawn(chance, n, at, 1)) for at in PLACES[:-3] for n in range(2)])
    for _ in range(12):
        assert (await _told(store))[1:], "so that it is kept"
        version += 1
        by, many = chance.choice([store, other]), chance.choice([1, 2, 3, len(PLACES)])
        for at in chance.sample(PLACES, many):
            n, what = chance.randrange(3), chance.random()
            if what < 0.6:
                await apply_all(by, put(_drawn(chance, n, at, version), Newer()))
            elif what < 0.85:
                await by.apply([delete(n, version, at)])
            else:
                await by.delete_matching(Query(SAMPLES, within(at), roles=frozenset(Role)), version)
        if chance.random() < 0.2:
            await by.forget_partitions(await by.idle_partitions())
        fresh = await opened(file)
        assert await _told(store) == await _told(fresh)
        await fresh.close()
    assert (await store.audit()).problems == ()
    await other.close()


async def test_wrong_words_of_a_subtree_are_reported_and_dropped(store: SqliteStore) -> None:
    chance = random.Random(1)  # noqa: S311 - the same each time
    await apply_all(store, *[put(_drawn(chance, n, at, 1)) for at in PLACES for n in range(2)])
    before = await _told(store)
    (members,) = store._cache._kept.values()
    known = members._vocabulary
    assert known is not None
    members._vocabulary = Vocabulary(known.built, dict.fromkeys(known.held, ("1", "1")))
    assert any("partitions is not what the file says" in told for told in (await store.audit()).problems)
    await store.audit(repair=True)
    assert (await store.audit()).problems == ()
    assert await _told(store) == before
