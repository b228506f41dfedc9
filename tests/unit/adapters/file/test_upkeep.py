"""Upkeep of a folder: audit and repair, partitions in which nothing stands, and room
given back.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memory.adapters.file.codec import seal
from memory.adapters.file.store import FileStore
from memory.ports.contract.collections import MORE_SAMPLES, SAMPLES
from memory.ports.contract.support import (
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
    search_hits,
)
from memory.ports.query import Query, within
from memory.ports.record import Partition, Record, Tombstone
from memory.ports.writes import Absent, Delete, Newer, Purge, RaiseGeneration, Release
from tests.unit.adapters.file.helping import (
    backup_of,
    everything_below,
    file_of,
    files_below,
    opened,
    table_of,
)

pytestmark = pytest.mark.backend("file")

THERE = Partition("acme", "user:bob")
EAST = Partition("eastern", "user:ann")


async def problems(store: FileStore, *, repair: bool = False) -> tuple[str, ...]:
    return (await store.audit(repair=repair)).problems


async def mended(store: FileStore, *expected: str) -> None:
    """The audit tells just this, does so again while repairing, and then nothing."""
    told = await problems(store)
    assert len(told) == len(expected), told
    assert all(part in problem for part, problem in zip(expected, told, strict=True)), told
    assert await problems(store, repair=True) == told
    assert await problems(store) == ()


def said(n: int, text: str, version: int = 1, at: Partition = HERE) -> Record:
    return record(n, at, version, texts={"content": text})


async def test_an_audit_of_what_everyday_use_leaves_finds_nothing(store: FileStore) -> None:
    await apply_all(
        store,
        RaiseGeneration(HERE, 2),
        *[put(said(n, "common")) for n in range(4)],
        put(said(1, "common", 2), Newer()),
    )
    await apply_all(
        store, delete(2), Release(SAMPLES, key_of(3), 1, "long"), put(record(5), Absent(), MORE_SAMPLES)
    )
    assert len(await search_hits(store, "common")) == 2
    await apply_all(store, put(said(6, "common")), put(said(0, "common", 2), Newer()))
    assert await store.audit(repair=True) == await store.audit()
    assert (await store.audit()).checked == 6
    assert await problems(store) == ()


@pytest.mark.parametrize("repair", [False, True])
async def test_what_is_kept_in_memory_is_compared_with_the_files_and_dropped_where_it_differs(
    store: FileStore, folder: Path, repair: bool
) -> None:
    """An audit goes through everything in the end, as any question does: so it is right
    then.
    """
    await apply_all(store, put(said(1, "common")), put(said(2, "common")))
    assert len(await search_hits(store, "common")) == 2
    file_of(folder, 2).unlink()  # as if nobody had said so
    (told,) = await problems(store, repair=repair)
    assert "its data in memory differs from the disk" in told
    assert await problems(store) == ()
    assert await hit_ids(store, "common") == {id_of(1)}


async def test_a_partition_that_this_process_does_not_know_of_is_found(
    store: FileStore, folder: Path
) -> None:
    await apply_all(store, put(said(1, "common")))
    assert isinstance(await fetch_stored(store, 1), Record)
    assert len(await search_hits(store, "common")) == 1
    other = await opened(folder.with_name("other"))
    await apply_all(other, put(said(1, "common", at=THERE)))
    await other.close()
    (folder.with_name("other") / "acme" / "user%3abob").rename(folder / "acme" / "user%3abob")
    assert await store.get(SAMPLES, [key_of(1)]) != [None]
    await mended(store, "but not in this process's list of partitions")
    assert await hit_ids(store, "common", within(THERE)) == {id_of(1, THERE)}


@pytest.mark.parametrize("damage", ["missing", "unreadable", "behind"])
@pytest.mark.parametrize("name", ["partition.json", "partition.json.bak"])
async def test_the_two_copies_of_what_is_counted_are_made_the_same_and_never_go_back(
    store: FileStore, folder: Path, name: str, damage: str
) -> None:
    await apply_all(store, RaiseGeneration(HERE, 5))
    copy = table_of(folder).parent / name
    if damage == "missing":
        copy.unlink()
    elif damage == "unreadable":
        copy.write_bytes(b"{")
    else:
        copy.write_bytes(seal({"tenant": HERE.tenant, "scope": HERE.scope, "generation": 3}))
    await mended(store, "one of the two copies of its generation")
    counted = [
        json.loads((copy.with_name(each)).read_text()) for each in ("partition.json", "partition.json.bak")
    ]
    assert counted[0] == counted[1]
    assert counted[0]["generation"] == 5


async def test_files_left_of_what_was_deleted_are_removed(store: FileStore, folder: Path) -> None:
    await apply_all(store, put(said(1, "secret")))
    await apply_all(store, put(said(1, "secret", 2), Newer()))
    before = backup_of(folder).read_bytes()
    await apply_all(store, delete(1))
    backup_of(folder).write_bytes(before)
    aside = folder / "quarantine.d" / table_of(folder).relative_to(folder)
    aside.mkdir(parents=True)
    (aside / f"{id_of(1)}.json.corrupt-1").write_bytes(before)
    await mended(store, "2 files remain of records that were deleted")
    assert not [file for file in files_below(folder) if b"secret" in file.read_bytes()]


async def test_what_a_dead_process_staged_is_found_by_the_audit_and_its_room_given_back_by_a_vacuum(
    store: FileStore, folder: Path
) -> None:
    left = folder / "staging.d" / "77-left.tmp"
    left.write_bytes(b"x" * 12_345)
    assert len(await problems(store)) == 1
    assert await store.vacuum() == 12_345
    assert await problems(store) == ()
    assert await store.vacuum() == 0
    left.write_bytes(b"x")
    await mended(store, "the staging folder holds 1 files")


async def test_a_forgotten_partition_leaves_no_file_and_begins_anew(store: FileStore, folder: Path) -> None:
    await apply_all(store, put(said(1, "common")), put(said(1, "common", at=EAST)), RaiseGeneration(EAST, 2))
    assert await store.delete_matching(Query(SAMPLES, within(EAST)), 2) == 1
    assert await store.idle_partitions() == [(EAST, 2)]
    assert await store.forget_partitions([(EAST, 1), (HERE, 0)]) == 0
    assert await store.forget_partitions([(EAST, 2), (EAST, 2)]) == 1
    assert not [path for path in everything_below(folder) if "eastern/user" in str(path)]
    assert isinstance(await fetch_stored(store, 1, EAST), Tombstone), (
        "what was deleted is known to be, whatever is forgotten"
    )
    await apply_all(store, Purge(SAMPLES, key_of(1, EAST), 2))
    assert not [path for path in files_below(folder) if "eastern" in str(path)]
    assert await store.idle_partitions() == []
    assert (await fetch_record(store, 1)).texts == {"content": "common"}
    assert (await one(store, RaiseGeneration(EAST, 0))).number == 0
    await apply_all(store, put(said(2, "again", at=EAST), Absent()))
    assert await hit_ids(store, "again", within(EAST)) == {id_of(2, EAST)}
    assert await problems(store) == ()


async def test_another_process_finds_what_is_written_into_a_partition_that_was_forgotten(
    store: FileStore, folder: Path
) -> None:
    beside = await opened(folder)
    await apply_all(
        beside,
        put(said(1, "common", at=EAST)),
        delete(1, at=EAST),
        Purge(SAMPLES, key_of(1, EAST), 100),
        RaiseGeneration(EAST, 2),
    )
    assert await search_hits(beside, "common", within(EAST)) == []
    assert await fetch_stored(beside, 1, EAST) is None
    assert await store.forget_partitions(await store.idle_partitions()) == 1
    await apply_all(store, put(said(3, "common", at=EAST)))
    assert await hit_ids(beside, "common", within(EAST)) == {id_of(3, EAST)}
    assert isinstance(await fetch_stored(beside, 3, EAST), Record)
    await apply_all(beside, put(said(4, "common", at=EAST)))
    assert len(await search_hits(store, "common", within(EAST))) == 2
    await beside.close()


async def test_a_partition_with_a_mark_or_files_that_cannot_be_read_is_not_idle_and_one_of_an_unseen_tombstone_is(
    store: FileStore, folder: Path
) -> None:
    names = ("moved", "beside", "damaged", "raised")
    moved, beside, damaged, raised = (Partition(f"tenant-{name}", f"user:{name}") for name in names)
    await apply_all(
        store,
        put(said(1, "x", at=moved)),
        Release(SAMPLES, key_of(1, moved), 1, "long"),
        Delete(SAMPLES, key_of(1, beside), 2, Newer()),
    )
    await apply_all(store, *[RaiseGeneration(partition, 1) for partition in (moved, beside, damaged, raised)])
    for copy in ("partition.json", "partition.json.bak"):
        (folder / "tenant-damaged" / "user%3adamaged" / copy).write_bytes(b"{")
    assert await store.idle_partitions() == [(beside, 1), (raised, 1)]
    assert await store.forget_partitions([(p, 1) for p in (moved, damaged)]) == 0
    await apply_all(store, Purge(SAMPLES, key_of(1, moved), 1))
    assert await store.idle_partitions() == [(beside, 1), (moved, 1), (raised, 1)]
    assert await store.idle_partitions(2) == [(beside, 1), (moved, 1)]
    assert await store.forget_partitions(await store.idle_partitions()) == 3
    assert isinstance((await store.get(SAMPLES, [key_of(1, beside)]))[0], Tombstone)


async def test_names_that_were_cut_are_told_by_what_is_counted_there(store: FileStore) -> None:
    long = Partition("acme", "user:" + "x" * 400)
    await apply_all(store, RaiseGeneration(long, 3))
    assert await store.idle_partitions() == [(long, 3)]
    assert await store.forget_partitions([(long, 3)]) == 1
    assert await store.idle_partitions() == []
