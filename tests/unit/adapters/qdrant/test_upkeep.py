"""Upkeep: what is derived from records is made anew where it differs, partitions in
which nothing stands are forgotten, and room is given back.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import AsyncQdrantClient

from memory.adapters.qdrant.edge import EdgeEngine
from memory.adapters.qdrant.engine import PointChange, Vectors
from memory.adapters.qdrant.keys import record_point
from memory.adapters.qdrant.store import QdrantStore
from memory.adapters.qdrant.words import sparse_query
from memory.ports.contract.collections import DECLARED, MORE_SAMPLES, SAMPLES
from memory.ports.contract.random_work import RandomWork
from memory.ports.contract.support import (
    ELSEWHERE,
    FOREIGN,
    HERE,
    apply_all,
    delete,
    fetch_record,
    fetch_stored,
    hit_ids,
    id_of,
    key_of,
    one,
    put,
    record,
    release,
)
from memory.ports.query import Near, Query, Search, within
from memory.ports.record import Partition, Record, Role, Tombstone, pack_vector
from memory.ports.writes import Absent, Purge, RaiseGeneration
from tests.support.depth import drawn

EVERYBODY = (HERE, ELSEWHERE, FOREIGN)


async def _tamper(
    store: QdrantStore, n: int, payload: dict[str, Any] | None = None, vectors: Vectors | None = None
) -> None:
    """Change what is derived of the n-th record, and nothing that its checksum covers."""
    point = record_point("samples", key_of(n))
    before = (await store.engine.retrieve([point]))[point]
    assert (
        await store.engine.commit([PointChange(point, before, {**before, **(payload or {})}, vectors)])
        == set()
    )


@pytest.mark.parametrize(
    "others",
    [
        {"a": 1, "b": "x"},
        {"a": 1.0, "b": "x"},
        {"a": True, "b": "x"},
        {"a": [1, {"c": 1.0}], "b": "y"},
        {"a": None},
        {"b": "x", "z": 0},
        {},
    ],
    ids=repr,
)
async def test_a_payload_written_beside_the_same_vectors_is_all_that_stands_there(
    either: QdrantStore, others: dict[str, Any]
) -> None:
    await apply_all(either, put(record(vector=pack_vector([1.0, 0.0]))))
    point = record_point("samples", key_of(1))
    (first,) = (await either.engine.retrieve([point])).values()
    own = {name: value for name, value in first.items() if name not in ("token", "lineage")}
    payload = own
    for more in (
        {"a": 1, "b": "x"},
        others,
        {"a": [1, {"c": 1}], "b": "x"},
        others,
        {"a": [1, {"c": 1}], "b": "x", "c": 5},
    ):
        (before,) = (await either.engine.retrieve([point])).values()
        payload = {**own, **more}
        assert await either.engine.commit([PointChange(point, before, payload)]) == set()
        (now,) = (await either.engine.retrieve([point])).values()
        assert repr(sorted((n, v) for n, v in now.items() if n not in ("token", "lineage"))) == repr(
            sorted(payload.items())
        )
    (whole, *_), _ = await either.engine.whole(10)
    assert whole.vectors


# -- audit -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(drawn(2, 1)))
async def test_whatever_was_written_what_is_derived_of_it_is_right(either: QdrantStore, seed: int) -> None:
    work = RandomWork(seed, either.capabilities)
    await either.apply([work.write() for _ in range(300)])
    audit = await either.audit()
    assert audit.problems == ()
    assert audit.checked > 30


DAMAGE: dict[str, tuple[dict[str, Any] | None, Vectors | None]] = {
    "no words": (None, Vectors(None, [1.0, 0.0])),
    "another's words": (None, Vectors(sparse_query("harbour"), [1.0, 0.0])),
    "no vector": (None, Vectors(sparse_query("cormorant"), None)),
    "a vector of others": (None, Vectors(sparse_query("cormorant"), [0.0, 1.0])),
    "a number of others": ({"reals": {"confidence": 0.2}}, None),
    "no number": ({"reals": {}}, None),
    "no number of words": ({"length": None}, None),
    "another's number of words": ({"length": 7}, None),
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_what_is_derived_wrongly_is_told_and_made_anew_on_request(
    either: QdrantStore, damage: str
) -> None:
    whole = record(
        1,
        texts={"content": "cormorant"},
        vector=pack_vector([1.0, 0.0]),
        fields={"confidence": 0.8},
        generation=0,
    )
    await apply_all(either, put(whole), put(record(2, texts={"content": "lantern"})))
    await _tamper(either, 1, *DAMAGE[damage])

    told = await either.audit()
    assert (told.checked, len(told.problems)) == (2, len((await either.audit()).problems)), (
        "without repair nothing is changed"
    )
    assert told.problems
    assert all(id_of(1) in problem for problem in told.problems)
    assert "cormorant" not in repr(told)

    assert (await either.audit(repair=True)).problems == told.problems
    assert (await either.audit()).problems == ()
    assert await fetch_record(either) == whole
    assert await hit_ids(either, "cormorant") == {id_of(1)}
    assert await hit_ids(either, "harbour") == set()
    (near,) = await either.search(Search(SAMPLES, within(HERE), Near(pack_vector([1.0, 0.0])), 1))
    assert near.head.key == key_of(1)
    assert near.score == pytest.approx(1.0)


async def test_words_of_a_dead_record_are_told_and_taken_away(either: QdrantStore) -> None:
    await apply_all(either, put(record(texts={"content": "cormorant"})), delete())
    await _tamper(either, 1, None, Vectors(sparse_query("cormorant")))
    assert len((await either.audit(repair=True)).problems) == 1
    assert (await either.audit()).problems == ()
    assert isinstance(await fetch_stored(either), Tombstone)


async def test_of_many_problems_a_hundred_are_told_and_all_mended(edge: QdrantStore) -> None:
    await apply_all(edge, *[put(record(n, texts={"content": "cormorant"})) for n in range(130)])
    for n in range(130):
        await _tamper(edge, n, None, Vectors())
    assert len((await edge.audit(repair=True)).problems) == 100
    assert len(await hit_ids(edge, "cormorant")) == 50  # as many as are asked for
    assert (await edge.audit()).problems == ()


async def test_a_record_at_anothers_point_is_told_and_left_alone(either: QdrantStore) -> None:
    """It may be the only copy."""
    await apply_all(either, put(record(1, texts={"content": "cormorant"})))
    payload = (await either.engine.retrieve([record_point("samples", key_of(1))])).popitem()[1]
    astray = PointChange(
        record_point("samples", key_of(2)),
        None,
        {k: v for k, v in payload.items() if k not in ("token", "lineage")},
        Vectors(),
    )
    await either.engine.commit([astray])
    told = await either.audit(repair=True)
    assert told.problems == (f"samples {id_of(1)}: is at another point than its own",)
    assert await either.audit() == told


# -- partitions in which nothing stands ------------------------------------------------


async def _generation(store: QdrantStore, at: Partition) -> int | None:
    return (await one(store, RaiseGeneration(at, 0))).number


async def test_a_partition_that_died_is_idle_and_is_forgotten_at_its_generation(either: QdrantStore) -> None:
    await apply_all(
        either,
        put(record(1)),
        put(record(1, ELSEWHERE)),
        put(record(1, FOREIGN)),
        *[RaiseGeneration(at, 3) for at in EVERYBODY],
    )
    assert await either.idle_partitions() == []
    await either.delete_matching(Query(SAMPLES, within(HERE)), 50)
    await either.delete_matching(Query(SAMPLES, within(FOREIGN)), 50)

    assert sorted(await either.idle_partitions()) == [(HERE, 3), (FOREIGN, 3)]
    assert len(await either.idle_partitions(1)) == 1
    assert await either.forget_partitions([(HERE, 2), (ELSEWHERE, 3)]) == 0
    assert await either.forget_partitions([(HERE, 3), (HERE, 3)]) == 1

    assert await either.idle_partitions() == [(FOREIGN, 3)]
    assert [await _generation(either, at) for at in EVERYBODY] == [0, 3, 3]
    await apply_all(either, put(record(2, generation=0)))


async def test_records_of_any_collection_and_marks_hold_a_partition(either: QdrantStore) -> None:
    one_each = [Partition("acme", f"session:{n}") for n in range(3)]
    await apply_all(
        either,
        *[RaiseGeneration(at, 1) for at in one_each],
        put(record(1, one_each[0]), collection=MORE_SAMPLES),
        put(record(7)),
        release(7),
        RaiseGeneration(HERE, 1),
    )
    assert sorted(await either.idle_partitions()) == [(one_each[1], 1), (one_each[2], 1)]
    assert await either.forget_partitions([(at, 1) for at in (*one_each, HERE)]) == 2


async def test_idle_partitions_are_found_among_many_in_use(edge: QdrantStore) -> None:
    at = [Partition("acme", f"session:{n}") for n in range(450)]
    await apply_all(
        edge, *[RaiseGeneration(p, 1) for p in at], *[put(record(1, p)) for n, p in enumerate(at) if n % 3]
    )
    assert sorted(p for p, _ in await edge.idle_partitions()) == sorted(
        p for n, p in enumerate(at) if not n % 3
    )


async def _clients() -> tuple[QdrantStore, QdrantStore]:
    server = AsyncQdrantClient(":memory:")
    stores = QdrantStore("qdrant://:memory:", client=server), QdrantStore("qdrant://:memory:", client=server)
    for store in stores:
        await store.open(DECLARED)
    return stores


def _before_commit(
    store: QdrantStore, meanwhile: Callable[[], Awaitable[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, when the store has decided and is about to write, something else happens
    first.
    """
    commit = store.engine.commit

    async def late(changes: Sequence[PointChange], *asked: Any) -> set[str]:
        monkeypatch.setattr(store.engine, "commit", commit)
        await meanwhile()
        return await commit(changes, *asked)

    monkeypatch.setattr(store.engine, "commit", late)


@pytest.mark.backend("qdrant_local")
async def test_a_generation_that_is_about_to_be_forgotten_comes_back_where_a_record_was_written_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forgetting, writing = await _clients()
    await apply_all(writing, RaiseGeneration(HERE, 3))
    _before_commit(forgetting, lambda: apply_all(writing, put(record())), monkeypatch)
    assert await forgetting.forget_partitions([(HERE, 3)]) == 0
    assert (await fetch_record(writing)).generation == await _generation(writing, HERE) == 3


@pytest.mark.backend("qdrant_local")
async def test_a_record_on_its_way_while_its_generation_is_forgotten_is_of_the_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forgetting, writing = await _clients()
    await apply_all(writing, RaiseGeneration(HERE, 3))
    _before_commit(writing, lambda: forgetting.forget_partitions([(HERE, 3)]), monkeypatch)
    assert (await one(writing, put(record(), Absent()))).generation == 0
    assert (await fetch_record(forgetting)).generation == await _generation(writing, HERE) == 0


# -- room ------------------------------------------------------------------------------


def _readable(folder: Path, text: bytes) -> list[str]:
    return [
        str(file.relative_to(folder))
        for file in folder.rglob("*")
        if file.is_file() and text in file.read_bytes()
    ]


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def _half_deleted(store: QdrantStore, count: int = 400) -> None:
    chance = random.Random(1)  # noqa: S311
    for start in range(0, count, 100):
        numbers = range(start, start + 100)
        texts = [f"{'cormorant' if n % 2 else 'lantern'} {chance.random()}" for n in numbers]
        roles = [Role.CACHED if n % 4 == 3 else Role.HOME for n in numbers]
        puts = [
            put(
                record(
                    n,
                    role=r,
                    texts={"content": t},
                    body={"much": "x" * 8000},
                    vector=pack_vector([float(n + 1), 1.0]),
                )
            )
            for n, t, r in zip(numbers, texts, roles, strict=True)
        ]
        await apply_all(store, *puts, RaiseGeneration(HERE))
    await apply_all(
        store,
        *[delete(n) for n in range(1, count, 4)],
        *[Purge(SAMPLES, key_of(n), 1) for n in range(3, count, 4)],
    )


@pytest.mark.backend("qdrant_edge")
@pytest.mark.thorough
async def test_vacuum_gives_room_back_and_leaves_no_deleted_text_in_any_file(on_disk: Path) -> None:
    """On the disk: a file system in memory may give out whole megabytes."""
    folder = on_disk / "data"
    edge = QdrantStore(f"qdrant+edge:{folder}")
    await edge.open(DECLARED)
    await _half_deleted(edge)
    before = await edge.get(SAMPLES, [key_of(n) for n in range(400)])
    nearest = Search(SAMPLES, within(HERE), Near(pack_vector([7.0, 1.0])), 20)
    by_words, by_meaning = await hit_ids(edge, "lantern"), await edge.search(nearest)
    assert _readable(folder, b"cormorant"), "Edge keeps what was deleted, or there is nothing to do"

    assert await edge.vacuum() > 0

    assert _readable(folder, b"cormorant") == []
    assert _readable(folder, b"lantern")
    assert await edge.get(SAMPLES, [key_of(n) for n in range(400)]) == before
    assert (await hit_ids(edge, "lantern"), await edge.search(nearest)) == (by_words, by_meaning)
    assert await _generation(edge, HERE) == 4
    assert (await edge.audit()).problems == ()
    await edge.close()
    await edge.open(DECLARED)
    assert await edge.get(SAMPLES, [key_of(n) for n in range(400)]) == before
    await edge.close()
    assert _names(folder) == ["owner.json", "shard"]


@pytest.mark.backend("qdrant_local")
async def test_servers_give_room_back_by_themselves() -> None:
    store, _ = await _clients()
    assert await store.vacuum() == 0


@pytest.mark.backend("qdrant_edge")
@pytest.mark.thorough
async def test_calls_and_closing_wait_for_a_vacuum(edge: QdrantStore) -> None:
    import asyncio

    await _half_deleted(edge, 100)
    vacuum = asyncio.ensure_future(edge.vacuum())
    again = asyncio.ensure_future(edge.vacuum())
    await asyncio.sleep(0)
    assert isinstance(await fetch_stored(edge, 2), Record)
    await asyncio.gather(vacuum, again)
    vacuum = asyncio.ensure_future(edge.vacuum())
    await asyncio.sleep(0)
    await edge.close()
    await vacuum
    await edge.open(DECLARED)
    assert isinstance(await fetch_stored(edge, 2), Record)


@pytest.mark.backend("qdrant_edge")
@pytest.mark.parametrize("stopped", ["before", "between", "after"])
async def test_a_vacuum_that_died_anywhere_leaves_a_whole_shard(
    edge: QdrantStore, folder: Path, stopped: str
) -> None:
    """Before the new shard is in its place, between its two renames, and before the old
    one is removed.
    """
    await _half_deleted(edge, 100)
    before = await edge.get(SAMPLES, [key_of(n) for n in range(100)])
    assert isinstance(edge.engine, EdgeEngine)
    await edge.close()
    shard, new, old = folder / "shard", folder / "shard.new", folder / "shard.old"
    if stopped == "before":
        new.mkdir()
        (new / "half").write_text("cormorant")
    elif stopped == "between":
        shard.rename(old)
        new.mkdir()
    else:
        old.mkdir()
        (old / "half").write_text("cormorant")

    await edge.open(DECLARED)

    assert await edge.get(SAMPLES, [key_of(n) for n in range(100)]) == before
    assert _names(folder) == ["owner.json", "shard"]


@pytest.mark.backend("qdrant_edge")
async def test_a_new_shard_that_cannot_take_its_place_leaves_the_old_one(
    edge: QdrantStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _half_deleted(edge, 100)
    assert isinstance(edge.engine, EdgeEngine)
    monkeypatch.setattr(edge.engine.folder, "new", edge.engine.folder.shard.parent / "elsewhere" / "shard")
    with pytest.raises(Exception, match="edge_rewrite failed"):
        await edge.vacuum()
    assert isinstance(await fetch_stored(edge, 2), Record)
