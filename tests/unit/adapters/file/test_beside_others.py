"""What others did on the folder while this process looked elsewhere, and partitions
whose names are cut.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from memory.adapters.file.library import Library
from memory.adapters.file.names import encode_name
from memory.adapters.file.store import FileStore
from memory.adapters.file.tables import Entry
from memory.domain.errors import StoreUnavailable
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.support import HERE, apply_all, key_of, put, record
from memory.ports.query import MAX_LIMIT, Query, Search, Words, within
from memory.ports.record import Corrupt, Partition, Record, Tombstone
from memory.ports.writes import Absent, Always, Status
from tests.unit.adapters.file.helping import files_below, opened

pytestmark = pytest.mark.backend("file")

CUT = Partition("acme", "user:" + "ü" * 40)
"""Its folder's name is too long to say it whole."""


async def test_whoever_finishes_a_dead_ones_commit_has_heard_of_what_was_kept_before(
    store: FileStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await opened(folder)
    everything = Query(SAMPLES, within(HERE), limit=MAX_LIMIT)
    try:
        await apply_all(store, put(record(1)))
        await store.query(everything)
        await apply_all(other, put(record(2)))

        def dies(_: object) -> None:
            raise OSError(5, "killed")

        with monkeypatch.context() as dying:
            dying.setattr(other.library.commits, "finish", dies)
            with pytest.raises(StoreUnavailable):
                await other.apply([put(record(3)), put(record(4))])
        await apply_all(store, put(record(5)))  # takes the lock first, and finishes
        assert len((await store.query(everything)).records) == 5
        assert await store.delete_matching(everything, 100) == 5
        assert all(
            isinstance(s, Tombstone) for s in await other.get(SAMPLES, [key_of(n) for n in range(1, 6)])
        )
    finally:
        await other.close()


async def test_a_cut_scopes_folder_that_a_dead_process_left_empty_hides_nothing_written_later(
    store: FileStore, folder: Path
) -> None:
    (folder / "acme" / encode_name(CUT.scope) / "samples").mkdir(parents=True)
    first = record(1, at=CUT)
    assert await store.get(SAMPLES, [first.key]) == [None]
    await apply_all(store, put(first, Absent()))
    assert [type(s) for s in await store.get(SAMPLES, [first.key])] == [Record]
    [again] = await store.apply([put(replace(first, version=2), Absent())])
    assert again.status is Status.CONFLICT


async def test_a_damaged_record_of_a_cut_scope_is_named_and_erased(store: FileStore, folder: Path) -> None:
    secret = record(1, at=CUT, texts={"content": "the secret"})
    await apply_all(store, put(secret))
    [file] = (folder / "acme" / encode_name(CUT.scope) / "samples").glob("*.json")
    file.write_bytes(file.read_bytes()[:-9])
    await store.close()
    store = await opened(folder)
    try:
        assert isinstance((await store.get(SAMPLES, [secret.key]))[0], Corrupt)
        assert (await store.query(Query(SAMPLES, within(CUT)))).corrupt == (secret.key,)
        assert await store.delete_matching(Query(SAMPLES, within(CUT)), 100) == 1
        assert not [path for path in files_below(folder) if b"secret" in path.read_bytes()]
    finally:
        await store.close()


class Restless:
    """Another process, which changes a record each time just before it is read, unless
    it has to wait for the lock.
    """

    def __init__(self, library: Library) -> None:
        self.library, self._fresh = library, library.fresh

    def __call__(self, entry: Entry, *rest: object) -> object:
        return self._fresh(entry, *rest) if self.library._locked else None  # type: ignore[arg-type]


@pytest.fixture
def restless(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store.library, "fresh", Restless(store.library))


@pytest.mark.usefixtures("restless")
async def test_queries_and_searches_come_to_an_end_where_others_write_all_the_while(store: FileStore) -> None:
    await apply_all(store, *[put(record(n, texts={"content": "word"}), Always()) for n in (1, 2, 3)])
    assert len((await store.query(Query(SAMPLES, within(HERE)))).records) == 3
    assert len(await store.search(Search(SAMPLES, within(HERE), Words("word"), 10))) == 3
