"""Damage: a record that is not as it was written is answered as corrupt, its neighbours
are served, erasure reaches it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memory.adapters.qdrant.engine import PointChange
from memory.adapters.qdrant.keys import generation_point, record_point
from memory.adapters.qdrant.store import QdrantStore
from memory.domain.errors import CorruptRecord, StoreFull
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import (
    HERE,
    apply_all,
    fetch_record,
    fetch_stored,
    hit_ids,
    id_of,
    key_of,
    one,
    put,
    query_ids,
    record,
)
from memory.ports.query import Eq, Near, Order, Query, Search, within
from memory.ports.record import Corrupt, Tombstone, pack_vector
from memory.ports.writes import Absent, AtVersion, Newer, RaiseGeneration, Status
from tests.support.depth import drawn


async def _damage(store: QdrantStore, point: str, **values: Any) -> None:
    """Change values of a payload behind the adapter's back."""
    engine: Any = store.engine
    if engine.alone:
        import qdrant_edge

        engine.shard.update(qdrant_edge.UpdateOperation.set_payload([point], values))
    else:
        await engine.client.set_payload("memory", values, [point])


async def _three(store: QdrantStore) -> None:
    await apply_all(
        store,
        *[
            put(record(n, texts={"content": "lantern"}, vector=pack_vector([1.0, n]), fields={"type": "a"}))
            for n in (1, 2, 3)
        ],
    )
    await _damage(store, record_point("samples", key_of(2)), body='{"not":"said"}')


async def test_a_damaged_record_is_corrupt_and_its_neighbours_are_served(either: QdrantStore) -> None:
    await _three(either)
    assert await fetch_stored(either, 2) == Corrupt(key_of(2), "checksum mismatch")
    page = await either.query(Query(SAMPLES, within(HERE)))
    assert [r.key.id for r in page.records] == [id_of(1), id_of(3)]
    assert page.corrupt == (key_of(2),)
    assert {id_of(1), id_of(3)} <= await hit_ids(either, "lantern"), "heads are not held against checksums"
    near = await either.search(Search(SAMPLES, within(HERE), Near(pack_vector([1.0, 2.0])), 3))
    assert {id_of(1), id_of(3)} <= {hit.head.key.id for hit in near}


async def test_writes_meet_a_damaged_record_as_something_of_its_version(either: QdrantStore) -> None:
    await _three(either)
    for when in (Absent(), AtVersion(1)):
        outcome = await one(either, put(record(2, version=5), when))
        assert (outcome.status, outcome.stored) == (Status.CONFLICT, Corrupt(key_of(2), "checksum mismatch"))
    assert (await one(either, put(record(2, version=1), Newer()))).status is Status.CONFLICT
    await apply_all(either, put(record(2, version=2), Newer()))
    assert (await fetch_record(either, 2)).version == 2


async def test_erasure_reaches_a_damaged_record_whatever_the_filter(either: QdrantStore) -> None:
    await _three(either)
    assert await either.delete_matching(Query(SAMPLES, within(HERE), Eq("type", "nothing")), 50) == 1
    assert await fetch_stored(either, 2) == Tombstone(key_of(2), 50)
    assert await query_ids(either) == [id_of(1), id_of(3)]


@pytest.mark.parametrize("by", ["get", "query", "audit"])
async def test_what_was_met_is_in_quarantine_where_it_stands(either: QdrantStore, by: str) -> None:
    await _three(either)
    point = record_point("samples", key_of(2))
    before = (await either.engine.retrieve([point]))[point]
    assert (await either.check()).quarantined == 0
    if by == "get":
        assert await fetch_stored(either, 2) == Corrupt(key_of(2), "checksum mismatch")
    elif by == "query":
        assert (await either.query(Query(SAMPLES, within(HERE)))).corrupt == (key_of(2),)
    else:
        assert (await either.audit()).damaged == (f"samples {id_of(2)} of tenant acme",)
    after = (await either.engine.retrieve([point]))[point]
    assert {
        name: value for name, value in after.items() if name not in ("quarantined", "token", "lineage")
    } == {name: value for name, value in before.items() if name not in ("token", "lineage")}, (
        "as it was, for people to look at"
    )
    assert (await either.check()).quarantined == 1
    assert await fetch_stored(either, 2) == Corrupt(key_of(2), "checksum mismatch")
    await apply_all(either, put(record(2, version=2, texts={"content": "lantern"}), Newer()))
    assert (await either.check()).quarantined == 0, "nothing is left of it"


async def test_what_another_release_may_have_written_is_left_as_it_is(either: QdrantStore) -> None:
    await _three(either)
    await _damage(either, record_point("samples", key_of(2)), schema=99)
    assert isinstance(await fetch_stored(either, 2), Corrupt)
    assert (await either.query(Query(SAMPLES, within(HERE)))).corrupt == (key_of(2),)
    assert ((await either.check()).quarantined, (await either.audit()).damaged) == (
        0,
        (f"samples {id_of(2)} of tenant acme",),
    )


async def test_what_cannot_be_quarantined_now_is_still_not_served(
    either: QdrantStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _three(either)

    async def full(changes: Sequence[PointChange]) -> set[str]:
        raise StoreFull(either.name, "no room")

    monkeypatch.setattr(either.engine, "commit", full)
    for _ in range(2):
        assert await fetch_stored(either, 2) == Corrupt(key_of(2), "checksum mismatch")
        page = await either.query(Query(SAMPLES, within(HERE)))
        assert ([r.key.id for r in page.records], page.corrupt) == ([id_of(1), id_of(3)], (key_of(2),))


async def test_a_payload_of_another_key_is_not_served(either: QdrantStore) -> None:
    await apply_all(either, put(record(1)))
    engine: Any = either.engine
    payload = (await engine.retrieve([record_point("samples", key_of(1))]))[
        record_point("samples", key_of(1))
    ]
    await apply_all(either, put(record(2)))
    await _damage(either, record_point("samples", key_of(2)), **payload)
    assert isinstance(await fetch_stored(either, 2), Corrupt)


async def test_a_damaged_generation_stops_writes_instead_of_starting_again(either: QdrantStore) -> None:
    await apply_all(either, RaiseGeneration(HERE, 5))
    await _damage(either, generation_point(HERE), number=1)
    with pytest.raises(CorruptRecord, match="generation"):
        await either.apply([put(record())])


def _flip(page: Path, chance: random.Random) -> None:
    """Eight single bits, where there is something."""
    held = bytearray(page.read_bytes())
    used = len(held.rstrip(b"\x00"))
    for _ in range(8):
        held[chance.randrange(used)] ^= 1 << chance.randrange(8)
    page.write_bytes(held)


@pytest.mark.backend("qdrant_edge")
@pytest.mark.parametrize("seed", range(drawn(6, 1)))
@pytest.mark.thorough
async def test_flipped_bits_make_corrupt_records_and_never_wrong_ones(folder: Path, seed: int) -> None:
    """Some of the payloads cannot even be unpacked any more: Edge then fails whole
    calls, and the adapter must not.
    """
    chance = random.Random(seed)  # noqa: S311
    store = QdrantStore(f"qdrant+edge:///{folder}")
    await store.open(DECLARED)
    wrote = [
        record(
            n,
            body={"n": n, "text": "x" * 300},
            texts={"content": "lantern"},
            vector=pack_vector([1.0, n]),
            generation=0,
        )
        for n in range(50)
    ]
    await apply_all(store, *[put(r) for r in wrote])
    await store.close()
    _flip(next(folder.glob("shard/segments/*/payload_storage/page_0.dat")), chance)  # noqa: ASYNC240

    await store.open(DECLARED)
    try:
        stands = await store.get(SAMPLES, [r.key for r in wrote])
        sound = [r for r, stored in zip(wrote, stands, strict=True) if stored == r]
        damaged = [r for r, stored in zip(wrote, stands, strict=True) if isinstance(stored, Corrupt)]
        assert len(sound) + len(damaged) == 50
        assert len(damaged) >= 1
        assert len((await store.audit()).damaged) == len(damaged)
        for order in ((), (Order("created_at"),)):
            page = await store.query(Query(SAMPLES, within(HERE), order=order, limit=60))
            assert list(page.records) == sound
            assert len(page.corrupt) == len(damaged)
        assert {r.key.id for r in sound} <= await hit_ids(store, "lantern")
        assert len(
            await store.search(Search(SAMPLES, within(HERE), Near(pack_vector([1.0, 2.0])), 60))
        ) >= len(sound)
        await apply_all(store, put(replace(damaged[0], version=5), Newer()))
        assert await store.delete_matching(Query(SAMPLES, within(HERE)), 50) == 50
        page = await store.query(Query(SAMPLES, within(HERE)))
        assert (page.records, page.corrupt) == ((), ())
    finally:
        await store.close()
