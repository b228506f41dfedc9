"""Files that somebody else deletes, replaces, or lets nobody write."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from memory import BlockingMemory, ConfigError, NotFound, StoreError
from memory.adapters.sql.sqlite.config import Thresholds
from memory.adapters.sql.sqlite.store import SqliteStore
from memory.ports.collections import Collection, Field, FieldType, TextPart
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import HERE, apply_all, key_of, put, query_ids, record
from memory.ports.query import Eq, IsNull, Order, Query, Search, Words, within
from memory.ports.record import Record, Role
from tests.support.rights import as_anybody
from tests.unit.adapters.reading_only import READS, it_reads_and_refuses_every_write
from tests.unit.adapters.sql.growing import FILLED, GROWN, WIDE, fill, scores

pytestmark = pytest.mark.backend("sqlite")
SUFFIXES = ("", "-wal", "-shm")


def url(path: Path) -> str:
    return f"sqlite:///{path}"


def filled(path: Path, *texts: str) -> None:
    with BlockingMemory(url(path), embedder="none") as memory:
        memory.write_many([{"content": text, "scope": "user:ada"} for text in texts])


def contents(path: Path) -> set[str]:
    with BlockingMemory(url(path), embedder="none") as memory:
        return {entry.content for entry in memory.retrieve("user:ada", limit=100)}


def crashed(path: Path, to: Path) -> None:
    """The files as a process that is killed now leaves them."""
    for suffix in ("", "-wal"):
        if Path(f"{path}{suffix}").exists():
            shutil.copy(f"{path}{suffix}", f"{to}{suffix}")


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_write_to_a_file_that_was_deleted_or_replaced_fails_and_names_it(
    tmp_path: Path, suffix: str, how: str
) -> None:
    path, other = tmp_path / "a.db", tmp_path / "other.db"
    filled(other, "of another memory")
    with BlockingMemory(url(path), embedder="none") as memory:
        memory.write("acknowledged", scope="user:ada")
        changed = Path(f"{path}{suffix}")
        if how == "deleted":
            changed.unlink()
        else:
            Path(f"{other}{suffix}").touch()
            os.replace(f"{other}{suffix}", changed)
        for call in (
            lambda: memory.write("lost if acknowledged", scope="user:ada"),
            lambda: memory.session("s").append({"role": "user", "content": "lost if acknowledged"}),
            lambda: memory.admin.erase("user:ada"),
        ):
            with pytest.raises(StoreError, match=f"{changed} was {how}.*Nothing of this call was kept"):
                call()
        (report,) = memory.admin.check()
        assert not report.ok
        assert str(changed) in str(report.detail)
        assert [entry.content for entry in memory.retrieve("user:ada")] == ["acknowledged"]


def test_closing_takes_no_log_from_whoever_opened_the_file_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    first = BlockingMemory(url(path), embedder="none").open()
    first.write("of the first file", scope="user:ada")
    for suffix in SUFFIXES:
        os.unlink(f"{path}{suffix}")
    with BlockingMemory(url(path), embedder="none") as second:
        second.write("before", scope="user:ada")
        first.close()
        second.write("after", scope="user:ada")
        crashed(path, tmp_path / "image.db")
    assert contents(path) == contents(tmp_path / "image.db") == {"before", "after"}


@pytest.mark.parametrize(
    "replaced_by", ["another memory", "its earlier self", "its backup", "a copy made while it was open"]
)
def test_the_log_of_another_file_is_never_replayed(tmp_path: Path, replaced_by: str) -> None:
    path, copy, killed = tmp_path / "a.db", tmp_path / "copy.db", tmp_path / "killed.db"
    filled(path, "first")
    if replaced_by == "another memory":
        filled(copy, "of another memory")
    if replaced_by == "its earlier self":
        shutil.copy(path, copy)
        filled(path, "second")  # folds the log into the file
    with BlockingMemory(url(path), embedder="none") as memory:
        memory.write("third", scope="user:ada")
        if replaced_by == "its backup":
            memory.admin.backup(copy)
        if replaced_by == "a copy made while it was open":
            shutil.copy(path, copy)
            memory.admin.vacuum()  # folds the log into the file, and begins another
        memory.write("in the log alone", scope="user:ada")
        crashed(path, killed)
    shutil.copy(killed, path)
    shutil.copy(f"{killed}-wal", f"{path}-wal")
    assert "in the log alone" in contents(killed), "with its own file the log is replayed"
    shutil.copy(copy, path)
    bytes_before = path.read_bytes()
    for how in (url(path), f"{url(path)}?mode=ro"):
        with pytest.raises(
            ConfigError,
            match=f"{path}-wal is the log of another file than {path}.*move a.db-wal and a.db-shm away",
        ):
            BlockingMemory(how, embedder="none").open()
    assert path.read_bytes() == bytes_before
    assert Path(f"{path}-wal").stat().st_size
    Path(f"{path}-wal").rename(tmp_path / "away")
    shutil.copy(copy, tmp_path / "alone.db")
    assert contents(path) == contents(tmp_path / "alone.db")


async def test_a_log_is_replayed_into_its_own_file_wherever_its_process_was_killed(tmp_path: Path) -> None:
    drawn = random.Random(7)  # noqa: S311
    path = tmp_path / "a.db"
    store = SqliteStore(url(path), thresholds=Thresholds(log_pages=40, writes_together=1))
    await store.open([SAMPLES])
    reader = sqlite3.connect(path)
    written = 0
    for number in range(60):
        act = drawn.choice(["write", "write", "write", "look", "let go", "vacuum", "reopen"])
        if act == "look" and not reader.in_transaction:  # a reader keeps a checkpoint from being whole
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM samples").fetchone()
        elif act in ("look", "let go"):
            reader.rollback()
        elif act == "vacuum" and not reader.in_transaction:
            await store.vacuum()
        elif act == "reopen":
            await store.close()
            await store.open([SAMPLES])
        else:
            await apply_all(store, put(record(written, body={"text": "x" * drawn.randrange(9_000)})))
            written += 1
        image = tmp_path / f"image{number}.db"
        crashed(path, image)
        again = SqliteStore(url(image))
        await again.open([SAMPLES])
        assert all(
            isinstance(found, Record)
            for found in await again.get(SAMPLES, [key_of(n) for n in range(written)])
        )
        await again.close()
        image.unlink()
    reader.close()
    await store.close()


# -- read only -------------------------------------------------------------------------


def test_a_memory_opened_to_read_only_reads_searches_and_refuses_every_write(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with BlockingMemory(url(path), embedder="none") as memory:
        entry = memory.write("Ada likes tea", scope="user:ada")
        memory.session("s", user="ada").append({"role": "user", "content": "hello"})
        with BlockingMemory(f"{url(path)}?mode=ro", embedder="none") as reading:  # beside a writer
            assert reading.get(entry.id) is not None
            later = memory.write("Ada likes green tea", scope="user:ada")
            it_reads_and_refuses_every_write(reading, {entry.id, later.id}, path)
    before = path.read_bytes()
    with BlockingMemory(f"{url(path)}?mode=ro", embedder="none") as reading:
        assert len(reading.retrieve("user:ada")) == 2
        with pytest.raises(NotFound):
            reading.session("s2", create=False).info()
    assert path.read_bytes() == before


def test_what_cannot_be_opened_to_read_only_says_why(tmp_path: Path) -> None:
    for name, made in (("missing.db", None), ("empty.db", b"")):
        if made is not None:
            (tmp_path / name).write_bytes(made)
        with pytest.raises(ConfigError, match=name):
            BlockingMemory(f"{url(tmp_path / name)}?mode=ro", embedder="none").open()
    assert not (tmp_path / "missing.db").exists()


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="this platform has other permissions")
@pytest.mark.parametrize("folder_mode", [0o555, pytest.param(0o755, marks=pytest.mark.nightly)])
def test_a_user_who_may_not_write_the_file_reads_and_searches_it(tmp_path: Path, folder_mode: int) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    path = folder / "a.db"
    with BlockingMemory(url(path), embedder="none") as memory:
        memory.write("Ada likes tea", scope="user:ada")
        memory.session("s", user="ada").append({"role": "user", "content": "hello"})
    path.chmod(0o444)
    folder.chmod(folder_mode)
    command = [*as_anybody(), sys.executable, "-c", READS, url(path)]
    other = subprocess.run(command, capture_output=True, text=True, check=False)
    folder.chmod(0o755)
    assert other.stdout.splitlines() == [
        "['Ada likes tea'] ['Ada likes tea']",
        "['hello'] [True]",
        "True",
    ], other.stderr


async def test_a_file_of_an_earlier_release_is_read_as_it_will_be_once_it_has_grown(tmp_path: Path) -> None:
    """It lacks fields, an order and a whole collection."""
    path = tmp_path / "a.db"
    store = SqliteStore(url(path))
    await store.open(DECLARED)
    before = await fill(store)
    await store.close()
    content = path.read_bytes()
    more = Collection("more", (Field("colour", FieldType.TEXT),), (TextPart("title", 1.0),))
    reading = SqliteStore(f"{url(path)}?mode=ro")
    await reading.open((*WIDE, more))
    assert await scores(reading) == before
    assert (
        await reading.count(Query(GROWN, within(HERE), IsNull("colour"), roles=frozenset(Role)))
    ).records == FILLED - 1
    assert await query_ids(reading, part=Eq("colour", "red"), collection=GROWN) == []
    assert (
        len(
            await query_ids(
                reading, part=Eq("type", "fact"), collection=GROWN, order=(Order("weight"),), limit=1_000
            )
        )
        > 500
    )
    assert await query_ids(reading, collection=more) == []
    assert await reading.search(Search(more, within(HERE), Words("lantern"), 10)) == []
    assert ((await reading.audit()).problems, (await reading.check()).ok) == ((), True)
    with pytest.raises(StoreError, match="is opened to read only"):
        await reading.apply([put(record(1))])
    await reading.close()
    assert path.read_bytes() == content
