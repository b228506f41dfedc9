"""Files that are torn, blank, flipped or gone: restored from the version before where
there is one, and never to what was undone (B63-B73).
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from memory.adapters.file.disk import Disk
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
    query_ids,
    record,
    release,
)
from memory.ports.query import Query, within
from memory.ports.record import Corrupt, Mark, Record, Role, Tombstone
from memory.ports.writes import Absent, Annotate, AtVersion, Newer, Purge, RaiseGeneration, Status
from tests.unit.adapters.file.helping import backup_of, file_of, files_below, quarantined, table_of

pytestmark = pytest.mark.backend("file")


def _torn(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def _flipped(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "torn": _torn,
    "flipped": _flipped,
    "blank": lambda file: file.write_bytes(b""),
    "of noughts": lambda file: file.write_bytes(bytes(500)),
    "not JSON": lambda file: file.write_bytes(b"not json{"),
    "gone": lambda file: file.unlink(),
}


async def _edited(store: FileStore) -> None:
    await apply_all(store, put(record(1, version=1, body={"v": 1})), put(record(2)))
    await apply_all(store, put(record(1, version=2, body={"v": 2})))


@pytest.mark.behaviour("B66", "AC-B25")
async def test_the_version_before_is_kept_and_the_first_write_has_none(
    store: FileStore, folder: Path
) -> None:
    await apply_all(store, put(record(1, body={"v": 1})))
    assert [p.name for p in table_of(folder).iterdir()] == [f"{id_of(1)}.json"]
    for version in (2, 3):
        await apply_all(store, put(record(1, version=version, body={"v": version})))
    assert json.loads(file_of(folder).read_bytes())["body"] == {"v": 3}
    assert json.loads(backup_of(folder).read_bytes())["body"] == {"v": 2}


@pytest.mark.behaviour("B68", "B69", "AC-B25")
@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("by", ["get", "query", "search", "write", "reopened"])
async def test_a_bad_file_is_restored_from_the_version_before(
    store: FileStore, folder: Path, damage: str, by: str, caplog: pytest.LogCaptureFixture
) -> None:
    await _edited(store)
    if by in ("query", "search"):
        assert await query_ids(store) == [id_of(1), id_of(2)]
    bad = file_of(folder).read_bytes()
    DAMAGE[damage](file_of(folder))
    damaged = file_of(folder).read_bytes() if damage != "gone" else None
    if by == "reopened":
        await store.close()
        await store.open((SAMPLES,))

    with caplog.at_level(logging.WARNING):
        if by == "write":
            outcome = await one(store, put(record(1, version=3), AtVersion(2)))
            assert (outcome.status, outcome.version) == (Status.CONFLICT, 1), (
                "who knew the lost version is told what stands there"
            )
        elif by in ("query", "reopened"):
            assert [
                dict(r.body)
                for r in (await store.query(Query(SAMPLES, within(HERE)))).records
                if isinstance(r, Record)
            ] == [{"v": 1}, {}]
        elif by == "search":
            await hit_ids(store, "anything")
    assert dict((await fetch_record(store, 1)).body) == {"v": 1}

    assert json.loads(file_of(folder).read_bytes())["body"] == {"v": 1}, "the file itself is good again"
    assert [p.read_bytes() for p in quarantined(folder)] == ([] if damaged is None else [damaged])
    assert bad != damaged
    assert any("was restored to version 1" in r.getMessage() for r in caplog.records)
    health = await store.check()
    assert health.quarantined == len(quarantined(folder))
    await apply_all(store, put(record(1, version=4, body={"v": 4}), AtVersion(1)))


@pytest.mark.behaviour("B70", "AC-B27")
@pytest.mark.parametrize("damage", DAMAGE)
async def test_where_both_are_bad_the_record_is_corrupt_and_its_neighbours_are_served(
    store: FileStore, folder: Path, damage: str
) -> None:
    await _edited(store)
    await apply_all(store, put(record(3)))
    DAMAGE[damage](file_of(folder))
    _torn(backup_of(folder))

    for _ in range(2):
        stored = await fetch_stored(store, 1)
        assert isinstance(stored, Corrupt)
        page = await store.query(Query(SAMPLES, within(HERE)))
        assert [r.key.id for r in page.records] == [id_of(2), id_of(3)]
        assert page.corrupt == (key_of(1),)
        assert ((await store.check()).quarantined, len(quarantined(folder))) == (1, 1)
        await store.close()
        await store.open((SAMPLES,))
    assert (await one(store, put(record(1, version=9), Absent()))).status is Status.CONFLICT
    assert await store.delete_matching(Query(SAMPLES, within(HERE)), 50) == 3
    assert isinstance(await fetch_stored(store, 1), Tombstone)
    assert (await store.check()).quarantined == 0


@pytest.mark.parametrize("by", ["get", "query", "write", "audit"])
async def test_what_is_damaged_stays_where_it_stands_and_is_in_quarantine_once(
    store: FileStore, folder: Path, by: str, caplog: pytest.LogCaptureFixture
) -> None:
    await apply_all(store, put(record(1)), put(record(2)))
    _torn(file_of(folder))
    bad = file_of(folder).read_bytes()
    for _ in range(3):
        if by == "get":
            assert isinstance(await fetch_stored(store, 1), Corrupt)
        elif by == "query":
            assert (await store.query(Query(SAMPLES, within(HERE)))).corrupt == (key_of(1),)
        elif by == "write":
            assert (await one(store, put(record(1, version=9), Absent()))).status is Status.CONFLICT
        else:
            assert (await store.audit()).damaged == (f"samples {id_of(1)} of tenant acme",)
        assert [p.read_bytes() for p in quarantined(folder)] == [file_of(folder).read_bytes()] == [bad]
    assert len([r for r in caplog.records if "is not served" in r.getMessage()]) == 1, (
        "said once, not by every reader"
    )
    await apply_all(store, put(record(1, version=9)))
    assert [p.read_bytes() for p in quarantined(folder)] == [bad], "kept for people, once"
    await apply_all(store, delete(1))
    assert quarantined(folder) == []


async def test_where_quarantine_has_no_room_what_is_damaged_is_still_not_served(
    store: FileStore, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await apply_all(store, put(record(1)), put(record(2)))
    _torn(file_of(folder))

    def full(*_: object) -> bool:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Disk, "copy", full)
    for _ in range(2):
        assert isinstance(await fetch_stored(store, 1), Corrupt)
        assert [r.key.id for r in (await store.query(Query(SAMPLES, within(HERE)))).records] == [id_of(2)]
    assert any("cannot be moved to quarantine now" in r.getMessage() for r in caplog.records)


async def test_a_corrupt_file_that_is_written_over_is_kept(store: FileStore, folder: Path) -> None:
    await apply_all(store, put(record(1)))
    _torn(file_of(folder))
    torn = file_of(folder).read_bytes()
    await apply_all(store, put(record(1, version=9), Newer()))
    assert (await fetch_record(store, 1)).version == 9
    assert [p.read_bytes() for p in quarantined(folder)] == [torn]


@pytest.mark.behaviour("B71", "B73")
@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_deleted_record_never_comes_back_and_nothing_of_it_stays_on_the_disk(
    store: FileStore, folder: Path, damage: str
) -> None:
    said = "the cormorant nests at dawn"
    for version in (1, 2):
        await apply_all(store, put(record(1, version=version, body={"s": said})))
    _torn(file_of(folder))
    assert (await fetch_record(store, 1)).version == 1
    await apply_all(store, put(record(1, version=3, body={"s": said})))
    assert quarantined(folder)

    await apply_all(store, delete(1, version=4))

    assert not backup_of(folder).exists()
    assert [path for path in files_below(folder) if said.encode() in path.read_bytes()] == []
    DAMAGE[damage](file_of(folder))
    assert not isinstance(await fetch_stored(store, 1), Record)
    assert await query_ids(store) == []


async def test_a_stray_version_before_does_not_undo_a_deletion(store: FileStore, folder: Path) -> None:
    await _edited(store)
    old = backup_of(folder).read_bytes()
    await apply_all(store, delete(1, version=4))
    backup_of(folder).write_bytes(old)  # as a disk might leave it that forgets the order of what it was told
    _flipped(file_of(folder))
    assert isinstance(await fetch_stored(store, 1), Corrupt)


@pytest.mark.behaviour("B73")
async def test_a_move_and_a_change_of_role_are_not_undone(store: FileStore, folder: Path) -> None:
    await _edited(store)
    await apply_all(store, release(1, version=2))
    assert not backup_of(folder).exists(), "the version before was a home; now another tier is"
    _torn(file_of(folder))
    assert isinstance(await fetch_stored(store, 1), Corrupt)

    for version in (1, 2):
        await apply_all(store, put(record(3, version=version, role=Role.ARRIVING)))
    assert backup_of(folder, 3).exists()
    await apply_all(store, Annotate(SAMPLES, key_of(3), 2, role=Role.HOME))
    assert not backup_of(folder, 3).exists(), "an arriving copy counts for less than a home"
    assert isinstance(await fetch_stored(store, 3), Record)
    assert isinstance(await fetch_stored(store, 1), Corrupt)


async def test_an_annotation_leaves_the_version_before(store: FileStore, folder: Path) -> None:
    await _edited(store)
    before = backup_of(folder).read_bytes()
    await apply_all(store, Annotate(SAMPLES, key_of(1), 2, accessed_at=record().created_at))
    assert backup_of(folder).read_bytes() == before


async def test_nothing_comes_back_into_an_erased_scope(store: FileStore, folder: Path) -> None:
    await _edited(store)
    await apply_all(store, RaiseGeneration(HERE))
    _torn(file_of(folder))
    assert isinstance(await fetch_stored(store, 1), Corrupt)
    assert await store.delete_matching(Query(SAMPLES, within(HERE)), 50) == 2
    assert isinstance(await fetch_stored(store, 1), Tombstone)


async def test_a_purge_takes_the_version_before_with_it(store: FileStore, folder: Path) -> None:
    await apply_all(store, *[put(record(1, version=v, role=Role.CACHED)) for v in (1, 2)])
    await apply_all(store, put(record(1, version=3, role=Role.CACHED)), Purge(SAMPLES, key_of(1), 3))
    assert list(table_of(folder).iterdir()) == []
    assert await fetch_stored(store, 1) is None


# -- what is counted -------------------------------------------------------------------


@pytest.mark.behaviour("B73")
@pytest.mark.parametrize("damage", DAMAGE)
async def test_generations_never_go_back(store: FileStore, folder: Path, damage: str) -> None:
    await apply_all(store, RaiseGeneration(HERE), RaiseGeneration(HERE))
    file = folder / "acme" / "user%3aann" / "partition.json"
    DAMAGE[damage](file)
    assert (await one(store, RaiseGeneration(HERE, 0))).number == 2
    assert (await one(store, RaiseGeneration(HERE))).number == 3
    DAMAGE[damage](file.with_name("partition.json.bak"))
    assert (await one(store, RaiseGeneration(HERE, 0))).number == 3


async def test_without_what_is_counted_nothing_is_written_and_the_rest_is_read(
    store: FileStore, folder: Path
) -> None:
    await apply_all(store, put(record(1)), RaiseGeneration(HERE))
    for name in ("partition.json", "partition.json.bak"):
        _torn(folder / "acme" / "user%3aann" / name)
    with pytest.raises(Exception, match=r"partition\.json"):
        await store.apply([put(record(2))])
    assert (await fetch_record(store, 1)).key == key_of(1)
    await apply_all(store, put(record(3, at=type(HERE)("acme", "user:bob"))))


# -- many flips ------------------------------------------------------------------------


async def test_of_a_thousand_flipped_bits_none_is_served(store: FileStore, folder: Path) -> None:
    await apply_all(
        store,
        put(
            record(
                1,
                fields={"type": "fact", "tags": ("a",)},
                body={"text": "x" * 50},
                texts={"content": "lantern"},
            )
        ),
    )
    whole = await fetch_record(store, 1)
    content = file_of(folder).read_bytes()
    chance = random.Random(7)  # noqa: S311
    for _ in range(1000):
        flipped = bytearray(content)
        flipped[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        file_of(folder).write_bytes(flipped)
        assert isinstance(await fetch_stored(store, 1), Corrupt)
    file_of(folder).write_bytes(content)
    assert await fetch_stored(store, 1) == whole


# -- people ----------------------------------------------------------------------------


async def test_an_edit_by_hand_is_told_how_to_be_accepted(store: FileStore, folder: Path) -> None:
    await apply_all(store, put(record(1, body={"said": "a lantern"})))
    edited = file_of(folder).read_text().replace("a lantern", "a harbour")
    file_of(folder).write_text(edited)
    stored = await fetch_stored(store, 1)
    assert isinstance(stored, Corrupt)
    assert 'write "accept"' in stored.problem
    checksum = json.loads(edited)["checksum"]
    file_of(folder).write_text(edited.replace(checksum, "accept"))
    assert dict((await fetch_record(store, 1)).body) == {"said": "a harbour"}
    await apply_all(store, put(record(1, version=2, body={"said": "a harbour"}), AtVersion(1)))
    assert "accept" not in file_of(folder).read_text()


@pytest.mark.behaviour("B65", "B72")
async def test_files_of_others_are_left_alone(
    store: FileStore, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await apply_all(store, put(record(1)), put(record(1), collection=MORE_SAMPLES))
    table = table_of(folder)
    others = {
        "notes.txt": b"by hand",
        "Notes.json": b"{}",
        "tasks.json": b'{"tasks": []}',
        "%zz.json": b"x",
        ".DS_Store": b"\x00",
        f"{id_of(9)}.json": file_of(folder, 1, collection="more_samples").read_bytes(),
    }
    for name, content in others.items():
        (table / name).write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert await query_ids(store) == [id_of(1)]
    assert (await store.query(Query(SAMPLES, within(HERE)))).corrupt == ()
    assert {name for name in others if any(name in r.getMessage() for r in caplog.records)} == set(others)
    assert await fetch_stored(store, 9) is None
    await store.delete_matching(Query(SAMPLES, within(HERE)), 50)
    assert {name: (table / name).read_bytes() for name in others} == others


@pytest.mark.behaviour("B67", "AC-B25")
async def test_fifty_writes_at_once_leave_the_last_value_and_no_file_beside(
    store: FileStore, folder: Path
) -> None:
    outcomes = await asyncio.gather(
        *(one(store, put(record(1, version=n, body={"n": n}), Newer())) for n in range(1, 51))
    )
    assert outcomes[-1].applied
    assert dict((await fetch_record(store, 1)).body) == {"n": 50}
    assert [
        p.name
        for p in table_of(folder).iterdir()
        if p.name not in (f"{id_of(1)}.json", f"{id_of(1)}.json.bak")
    ] == []
    assert list((folder / "staging.d").iterdir()) == []


async def test_a_mark_is_read_back_as_it_was(store: FileStore) -> None:
    await _edited(store)
    await apply_all(store, release(1, version=2))
    await store.close()
    await store.open((SAMPLES,))
    assert isinstance(await fetch_stored(store, 1), Mark)


async def test_a_put_that_erases_leaves_nothing_to_restore_and_nothing_for_people(
    store: FileStore, folder: Path
) -> None:
    """Neither the version before nor what was quarantined as damaged; and the text does
    not come back where the file is lost then.
    """
    await apply_all(store, put(record(1, version=1, body={"said": "secret"})))
    _torn(file_of(folder))
    await apply_all(store, put(record(1, version=2, body={"said": "secret"}), Newer()))
    await apply_all(store, put(record(1, version=3, body={"said": "secret"})))
    assert backup_of(folder).exists()
    await apply_all(store, replace(put(record(1, version=4, body={})), erases=True))
    assert not [file for file in files_below(folder) if b"secret" in file.read_bytes()]
    file_of(folder).unlink()
    assert not isinstance(await fetch_stored(store), Record)
