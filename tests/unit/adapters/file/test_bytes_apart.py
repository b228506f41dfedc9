"""Fields of many bytes lie in files of their own, beside the record that says what they
are: both are there, whole, or neither (decision 067).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from memory.adapters.file.codec import seal
from memory.adapters.file.disk import Disk
from memory.adapters.file.library import SCHEMA
from memory.adapters.file.store import FileStore
from memory.adapters.file.thresholds import THRESHOLDS
from memory.domain.errors import StoreError
from memory.ports.codec import to_json
from memory.ports.contract.collections import MORE_SAMPLES, SAMPLES
from memory.ports.contract.support import (
    HERE,
    apply_all,
    delete,
    fetch_record,
    fetch_stored,
    id_of,
    key_of,
    one,
    put,
    query_ids,
    record,
)
from memory.ports.query import Eq, Query, within
from memory.ports.record import Corrupt, Mark, Record, Role, Tombstone
from memory.ports.writes import Absent, Annotate, AtVersion, Put, RaiseGeneration, Release, Write
from tests.unit.adapters.file.helping import backup_of, file_of, files_below, opened, quarantined, table_of
from tests.unit.adapters.file.test_killed import Killed

pytestmark = pytest.mark.backend("file")

MANY = THRESHOLDS.bytes_apart
DAMAGE: dict[str, Callable[[Path], object]] = {
    "torn": lambda file: file.write_bytes(file.read_bytes()[:-1]),
    "longer": lambda file: file.write_bytes(file.read_bytes() + b"\0"),
    "altered": lambda file: file.write_bytes(b"\xff" + file.read_bytes()[1:]),
    "gone": lambda file: file.unlink(),
    "a link": lambda file: (
        file.rename(file.with_name("elsewhere")).with_name(file.name).symlink_to("elsewhere")
    ),
}


def content(version: int) -> bytes:
    """What the record of this version holds: no version has another's."""
    return bytes([version % 256]) * (MANY + version)


def sealed(n: int = 1, version: int = 1, **parts: Any) -> Record:
    return record(n, version=version, fields={"seal": content(version)}, body={"v": version}, **parts)


def bytes_of(folder: Path, n: int = 1) -> Path:
    file = file_of(folder, n)
    return file.with_name(f"{file.stem}.seal.bytes")


def before_of(folder: Path, n: int = 1) -> Path:
    file = bytes_of(folder, n)
    return file.with_name(f"{file.name}.bak")


def names_in(folder: Path) -> list[str]:
    return sorted(path.name.removeprefix(id_of(1)) for path in table_of(folder).iterdir())


def is_whole(standing: object, version: int) -> bool:
    return (
        isinstance(standing, Record)
        and standing.version == version
        and standing.fields == {"seal": content(version)}
    )


async def edited(store: FileStore, last: int = 2) -> None:
    for version in range(1, last + 1):
        await apply_all(store, put(sealed(version=version)))


# -- the layout ------------------------------------------------------------------------


async def test_many_bytes_are_a_file_as_they_are_and_the_record_says_which(
    store: FileStore, folder: Path
) -> None:
    await apply_all(store, put(sealed()), put(record(2, fields={"seal": bytes(MANY - 1)})))
    assert bytes_of(folder).read_bytes() == content(1)
    said = json.loads(file_of(folder).read_text())
    assert said["fields"] == {"seal": {"bytes": len(content(1)), "sha256": sha256(content(1)).hexdigest()}}
    assert file_of(folder).stat().st_size < 2_000
    assert bytes_of(folder).stat().st_mode & 0o777 == 0o600
    assert not bytes_of(folder, 2).exists(), "few bytes stay in the record"
    assert is_whole(await fetch_record(store), 1)
    assert (await fetch_record(store, 2)).fields == {"seal": bytes(MANY - 1)}
    assert (await store.count(Query(SAMPLES, within(HERE)))).bytes > 2 * MANY
    assert (await store.audit()).problems == ()


async def test_a_folder_of_the_layout_before_is_taken_over_and_its_records_are_read(folder: Path) -> None:
    store = await opened(folder)
    await apply_all(store, put(sealed()))
    await store.close()
    (folder / "store.json").write_bytes(seal({"store": "memory, one file a record", "schema": SCHEMA - 1}))
    bytes_of(folder).unlink()
    file_of(folder).write_bytes(seal({"collection": "samples", **to_json(sealed(generation=0))}))

    store = await opened(folder)
    assert json.loads((folder / "store.json").read_text())["schema"] == SCHEMA, (
        "a release that knows no such files opens it no more"
    )
    assert is_whole(await fetch_record(store), 1)
    assert await query_ids(store, part=Eq("seal", content(1))) == [id_of(1)]
    await apply_all(store, put(sealed(version=2)))
    assert names_in(folder) == [".json", ".json.bak", ".seal.bytes"]
    file_of(folder).write_bytes(b"")
    assert is_whole(await fetch_record(store), 1)
    assert names_in(folder) == [
        ".json",
        ".json.bak",
    ], "the bytes of what was lost are none of what was restored"
    await store.close()


async def test_what_is_asked_of_bytes_apart_is_answered_and_they_are_not_kept_in_memory(
    store: FileStore,
) -> None:
    await apply_all(store, *[put(sealed(n, n)) for n in (1, 2)], put(record(3)))
    assert await query_ids(store, part=Eq("seal", content(2))) == [id_of(2)]
    assert await query_ids(store) == [id_of(n) for n in (1, 2, 3)]
    page = await store.query(Query(SAMPLES, within(HERE)))
    assert [r.fields.get("seal") for r in page.records if isinstance(r, Record)] == [
        content(1),
        content(2),
        None,
    ]
    (table,) = store.library.tables._loaded.values()
    assert table.size < MANY
    assert all(isinstance(e.standing, Record) and not e.standing.fields for e in table.entries.values())


# -- edits and deletions ---------------------------------------------------------------


async def test_the_version_before_keeps_its_bytes_and_those_before_go(store: FileStore, folder: Path) -> None:
    await edited(store, 3)
    assert names_in(folder) == [".json", ".json.bak", ".seal.bytes", ".seal.bytes.bak"]
    assert [bytes_of(folder).read_bytes(), before_of(folder).read_bytes()] == [content(3), content(2)]
    await apply_all(store, put(record(1, version=4)))
    assert names_in(folder) == [".json", ".json.bak", ".seal.bytes.bak"]
    assert before_of(folder).read_bytes() == content(3)
    await apply_all(store, put(record(1, version=5)))
    assert names_in(folder) == [".json", ".json.bak"]
    assert (await store.audit()).problems == ()


async def test_bytes_that_stay_as_they_are_are_not_written_again(store: FileStore, folder: Path) -> None:
    await apply_all(store, put(sealed()))
    file = bytes_of(folder).stat().st_ino
    await apply_all(store, Annotate(SAMPLES, key_of(1), 1, tier="long"))
    await apply_all(store, put(record(1, version=2, fields={"seal": content(1)})))
    assert [bytes_of(folder).stat().st_ino, before_of(folder).stat().st_ino] == [file, file]
    await apply_all(store, put(sealed(version=3)))
    assert before_of(folder).stat().st_ino == file != bytes_of(folder).stat().st_ino


GOING: dict[str, Callable[[], Write]] = {
    "deleted": lambda: delete(1, version=9),
    "moved": lambda: Release(SAMPLES, key_of(1), 2, "long"),
    "erased": lambda: Put(SAMPLES, record(1, version=9), AtVersion(2), erases=True),
    "given another role": lambda: put(record(1, version=9, role=Role.REPLICA)),
}


@pytest.mark.parametrize("going", GOING)
async def test_no_bytes_are_left_of_what_went(store: FileStore, folder: Path, going: str) -> None:
    await edited(store)
    bytes_of(folder).write_bytes(b"bad")
    assert is_whole(await fetch_record(store), 1)
    await apply_all(store, put(sealed(version=2)))
    assert len(quarantined(folder)) == 2, "the record, and its bytes"
    await apply_all(store, GOING[going]())
    assert names_in(folder) == [".json"]
    assert isinstance(await fetch_stored(store), Record | Mark | Tombstone)
    if going != "given another role":
        assert quarantined(folder) == []
    assert not any(content(2)[:100] in path.read_bytes() for path in files_below(folder))


async def test_the_files_of_a_forgotten_partition_go(store: FileStore, folder: Path) -> None:
    await edited(store)
    await apply_all(store, delete(1, version=9), RaiseGeneration(HERE))
    idle = await store.idle_partitions()
    assert await store.forget_partitions(idle) == 1
    assert not table_of(folder).exists()


# -- damage ----------------------------------------------------------------------------


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("by", ["get", "query", "bytes", "write", "reopened"])
async def test_a_record_whose_bytes_are_damaged_is_restored_with_those_of_the_version_before(
    store: FileStore, folder: Path, damage: str, by: str
) -> None:
    await edited(store)
    assert await query_ids(store) == [id_of(1)]
    DAMAGE[damage](bytes_of(folder))
    if by == "write":
        outcome = await one(store, put(sealed(version=3), AtVersion(2)))
        assert is_whole(outcome.stored, 1), "who writes on condition of what was lost sees what is there"
    elif by == "query":
        (record_,) = (await store.query(Query(SAMPLES, within(HERE)))).records
        assert is_whole(record_, 1)
    elif by == "bytes":
        assert await query_ids(store, part=Eq("seal", content(1))) == [id_of(1)]
    elif by == "reopened":
        await store.close()
        await store.open((SAMPLES, MORE_SAMPLES))
    assert is_whole(await fetch_record(store), 1)
    assert bytes_of(folder).read_bytes() == before_of(folder).read_bytes() == content(1)
    health = await store.check()
    assert health.quarantined == 1
    assert "json.corrupt-" in str(health.facts["quarantined_files"])
    assert (await store.audit()).problems == ()


@pytest.mark.parametrize("damage", DAMAGE)
async def test_damaged_bytes_without_a_version_before_are_answered_as_corrupt_and_written_over(
    store: FileStore, folder: Path, damage: str
) -> None:
    await apply_all(store, put(sealed()), put(sealed(2)))
    DAMAGE[damage](bytes_of(folder))
    there = await fetch_stored(store)
    assert isinstance(there, Corrupt)
    assert "seal" in there.problem
    assert is_whole(await fetch_record(store, 2), 1), "its neighbours are served"
    page = await store.query(Query(SAMPLES, within(HERE)))
    assert [page.corrupt, [r.key for r in page.records if isinstance(r, Record)]] == [
        (key_of(1),),
        [key_of(2)],
    ]
    assert (await store.audit()).problems == ()
    assert not (await one(store, put(sealed(), Absent()))).applied
    await apply_all(store, put(sealed(version=3)))
    assert is_whole(await fetch_record(store), 3)
    assert len(quarantined(folder)) >= 1


async def test_a_damaged_record_with_the_bytes_of_another_version_is_not_put_together(
    store: FileStore, folder: Path
) -> None:
    await edited(store)
    file_of(folder).write_bytes(backup_of(folder).read_bytes())
    assert is_whole(await fetch_record(store), 1)
    assert bytes_of(folder).read_bytes() == content(1)


async def test_of_what_was_deleted_one_repair_leaves_neither_the_version_before_nor_its_bytes(
    store: FileStore, folder: Path
) -> None:
    await edited(store)
    before = {path: path.read_bytes() for path in (backup_of(folder), before_of(folder))}
    await apply_all(store, delete(1, version=3))
    for path, said in before.items():
        path.write_bytes(said)
    (told,) = (await store.audit(repair=True)).problems
    assert "2 files remain" in told
    assert names_in(folder) == [".json"]
    assert (await store.audit()).problems == ()


async def test_what_people_lay_beside_is_no_bytes_of_ours_and_left_alone(
    store: FileStore, folder: Path
) -> None:
    await apply_all(store, put(sealed()))
    theirs = [
        table_of(folder) / name
        for name in ("notes.bytes", "notes.seal.bytes.txt", "A b.seal.bytes", f"{id_of(9)}.bytes")
    ]
    for path in theirs:
        path.write_bytes(b"theirs")
    assert (await store.audit(repair=True)).problems == ()
    assert [path.read_bytes() for path in theirs] == [b"theirs"] * 4
    assert is_whole(await fetch_record(store), 1)


async def test_bytes_that_no_record_names_are_told_and_swept_and_what_is_named_stays(
    store: FileStore, folder: Path
) -> None:
    await edited(store)
    await apply_all(store, put(sealed(2)), put(record(3)), put(sealed(5)))
    file_of(folder, 2).unlink()
    for stray in (bytes_of(folder, 3), before_of(folder, 3), bytes_of(folder, 4)):
        stray.write_bytes(b"stray")
    file_of(folder, 5).write_bytes(b"unreadable")
    (told,) = (await store.audit(repair=True)).problems
    assert "4 files remain" in told
    assert (await store.audit()).problems == ()
    assert sorted(path.name.partition(".")[0] for path in table_of(folder).glob("*.bytes*")) == [
        id_of(1),
        id_of(1),
        id_of(5),
    ]
    assert is_whole(await fetch_record(store), 2)


# -- beside others, and cut off --------------------------------------------------------


CUT_OFF: dict[str, Callable[[FileStore], Awaitable[object]]] = {
    "edit": lambda store: one(store, put(sealed(version=3))),
    "restore": fetch_stored,
    "delete": lambda store: one(store, delete(1, version=3)),
}


async def test_what_was_begun_under_the_layout_of_before_is_finished_before_the_folder_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change of several files was cut off, and then the disk is full: the journal
    says still what is left to do.
    """
    store, renamed = await opened(tmp_path), 0
    await edited(store)
    genuine = Disk.rename

    def cut_off(self: Disk, *arguments: Any) -> object:
        nonlocal renamed
        renamed += 1
        if renamed > 2:
            raise Killed
        return genuine(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Disk, "rename", cut_off)
        with pytest.raises(Killed):
            await CUT_OFF["edit"](store)
    await store.close()
    (tmp_path / "store.json").write_bytes(seal({"store": "memory, one file a record", "schema": SCHEMA - 1}))

    def full(self: Disk, folder: Any, name: str, to: Any, as_name: str) -> object:
        if as_name == "store.json":
            raise OSError(28, "No space left on device")
        return genuine(self, folder, name, to, as_name)

    with monkeypatch.context() as patch:
        patch.setattr(Disk, "rename", full)
        with suppress(StoreError, OSError):
            await opened(tmp_path)
    again = await opened(tmp_path)
    assert is_whole(await fetch_stored(again), 3)
    assert (await again.audit()).problems == ()
    await again.close()


@pytest.mark.parametrize("method", ["write_new", "rename", "remove", "copy", "sync_folder"])
@pytest.mark.parametrize("to", CUT_OFF)
async def test_one_write_cut_off_anywhere_leaves_bytes_and_record_of_one_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, to: str
) -> None:
    genuine: Callable[..., object] = getattr(Disk, method)
    for at in range(40):
        folder = tmp_path / str(at)
        store, calls = await opened(folder), 0
        await edited(store)
        if to == "restore":
            bytes_of(folder).unlink()

        def counted(self: Disk, *arguments: object, at: int = at) -> object:
            nonlocal calls
            calls += 1
            if calls > at:
                raise Killed
            return genuine(self, *arguments)

        with monkeypatch.context() as patch:
            patch.setattr(Disk, method, counted)
            try:
                await CUT_OFF[to](store)
                cut = False
            except Killed:
                cut = True
        for looking in (store, await opened(folder)):
            there = await fetch_stored(looking)
            if to == "delete":
                assert isinstance(there, Tombstone) or is_whole(there, 2), (
                    f"cut off after {at} calls of {method}"
                )
            else:
                assert is_whole(there, 1) or (to == "edit" and (is_whole(there, 2) or is_whole(there, 3))), (
                    f"cut off after {at} calls of {method}"
                )
                assert to == "restore" or not is_whole(there, 1)
            assert (await looking.audit()).problems == ()
            await looking.close()
        if not cut:
            return
    raise AssertionError("it never came to its end")


@pytest.mark.parametrize("going", ["edited", *GOING])
async def test_who_has_read_a_record_when_its_bytes_go_reads_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, going: str
) -> None:
    writer, reader = await opened(folder), await opened(folder)
    await apply_all(writer, put(sealed(version=2)))
    genuine, loop, went = Disk.read, asyncio.get_running_loop(), False

    def read(self: Disk, parts: Sequence[str], name: str) -> bytes | None:
        nonlocal went
        if self is reader._by_key.disk and name == bytes_of(folder).name and not went:
            went = True
            write = put(sealed(version=9)) if going == "edited" else GOING[going]()
            asyncio.run_coroutine_threadsafe(apply_all(writer, write), loop).result(60)
        return genuine(self, parts, name)

    monkeypatch.setattr(Disk, "read", read)
    there = await fetch_stored(reader)
    assert went
    assert there == await fetch_stored(writer)
    assert not isinstance(there, Corrupt)
    assert quarantined(folder) == []
    for store in (writer, reader):
        await store.close()


async def test_whoever_reads_beside_a_writer_gets_the_bytes_of_the_version_it_is_told(folder: Path) -> None:
    writer, reader = await opened(folder), await opened(folder)
    await apply_all(writer, put(sealed()))
    ended = False

    seen = [1]

    async def read() -> None:
        while not ended:
            for there in (
                await fetch_record(reader),
                *(await reader.query(Query(SAMPLES, within(HERE)))).records,
            ):
                assert isinstance(there, Record)
                assert is_whole(there, there.version)
                seen.append(there.version)

    reading = asyncio.ensure_future(read())
    for version in range(2, 60):
        await apply_all(writer, put(sealed(version=version)))
        before = len(seen)
        while version % 10 == 0 and len(seen) == before and not reading.done():  # noqa: ASYNC110 - the reader has no event
            await asyncio.sleep(0)
    ended = True
    await reading
    assert all(one <= other for one, other in pairwise(seen))
    assert len(set(seen)) > 3
    assert quarantined(folder) == []
    for store in (writer, reader):
        await store.close()
