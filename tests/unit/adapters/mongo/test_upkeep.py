"""What is left behind is cleared up: copies of damaged documents, announcements of processes that ended, fences."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from memory.adapters.mongo import partitions
from memory.adapters.mongo.store import MongoStore
from memory.domain.errors import InvalidInput
from memory.ports.collections import COLLECTIONS, ENTRIES
from memory.ports.contract.support import HERE, delete, done, found, id_of, key_of, put, record
from memory.ports.query import Eq, Everywhere, Filter, Query, within
from memory.ports.record import Corrupt, Role
from memory.ports.writes import AtVersion, Delete, Newer, Purge, RaiseGeneration, Write
from tests.unit.adapters.mongo.conftest import BOTH, Raw

pytestmark = pytest.mark.parametrize("server", BOTH, indirect=True)


async def _delete_one(store: MongoStore) -> None:
    await done(store, delete(1))


async def _delete_several(store: MongoStore) -> None:
    await done(store, delete(1), delete(2))


async def _delete_matching(store: MongoStore) -> None:
    await store.delete_matching(Query(ENTRIES, within(HERE)), 100)


@pytest.mark.parametrize("deletion", [_delete_one, _delete_several, _delete_matching])
async def test_a_damaged_record_that_was_written_anew_leaves_no_copy_once_it_is_deleted(
    store: MongoStore, raw: Raw, deletion: Callable[[MongoStore], object]
) -> None:
    await done(store, put(record(1, texts={"content": "the secret"})), put(record(2)))
    raw["memory_entries"].update_one({"id": id_of(1)}, {"$set": {"body": "{}x"}})
    assert isinstance(await found(store), Corrupt)
    await done(store, put(record(1, version=5), Newer()))
    assert raw["memory_store.set_aside"].count_documents({}) == 1
    await deletion(store)  # type: ignore[misc]
    assert raw["memory_store.set_aside"].count_documents({}) == 0


async def test_a_copy_made_of_what_is_deleted_meanwhile_does_not_stay(store: MongoStore, raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    await done(store, put(record(1)))
    raw["memory_entries"].update_one({"id": id_of(1)}, {"$set": {"body": "{}x"}})
    copies = store._desk.aside._copies  # type: ignore[union-attr]
    replace_one = copies.replace_one

    async def late(*args: object, **parts: object) -> object:
        await done(store, delete(1))
        return await replace_one(*args, **parts)  # type: ignore[arg-type]

    monkeypatch.setattr(store._desk.aside, "_copies", _With(copies, late))  # type: ignore[union-attr]
    await store.get(ENTRIES, [key_of(1)])
    assert raw["memory_store.set_aside"].count_documents({}) == 0


class _With:
    """A collection with another `replace_one`."""

    def __init__(self, collection: object, replace_one: object) -> None:
        self._collection, self.replace_one = collection, replace_one

    def __getattr__(self, name: str) -> object:
        return getattr(self._collection, name)


async def test_announcements_of_processes_that_ended_do_not_pile_up(
    store: MongoStore, build: Callable[[], MongoStore], raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "_CROWDED", 6)
    monkeypatch.setattr(partitions, "_AT_ONCE", 2)
    for n in range(20):
        brief = build()
        await brief.open(COLLECTIONS)
        await done(brief, put(record(n)))
        await brief.close()
    assert len(raw["memory_store.partitions"].find_one({})["writers"]) <= 7  # type: ignore[index]
    assert len((await store.query(Query(ENTRIES, within(HERE)))).records) == 20


async def test_a_fence_put_up_where_an_old_one_stands_stands_its_whole_time(store: MongoStore, raw: Raw) -> None:
    await done(store, put(record(1)))
    await done(store, delete(1, version=5))
    await done(store, Purge(ENTRIES, key_of(1), 5))
    long_ago = datetime.now(UTC) - timedelta(hours=23, minutes=59)
    raw["memory_entries"].update_one({"id": id_of(1)}, {"$set": {"fenced_at": long_ago}})
    await done(store, RaiseGeneration(HERE))
    fence = raw["memory_entries"].find_one({"id": id_of(1)})
    assert fence is not None
    assert datetime.now(UTC) - fence["fenced_at"].replace(tzinfo=UTC) < timedelta(minutes=5)


async def test_a_record_whose_kind_is_damaged_is_erased(store: MongoStore, raw: Raw) -> None:
    await done(store, put(record(1, texts={"content": "the secret"})))
    raw["memory_entries"].update_one({"id": id_of(1)}, {"$set": {"kind": "recorc"}})
    assert await store.delete_matching(Query(ENTRIES, within(HERE)), 100) == 1
    assert "texts" not in raw["memory_entries"].find_one({"id": id_of(1)})  # type: ignore[operator]


@pytest.mark.parametrize(
    ("roles", "part"),
    [({Role.ARRIVING}, None), ({Role.CACHED}, None), ({Role.HOME, Role.ARRIVING}, Eq("owing", True))],
    ids=["arriving", "cached", "owing"],
)
async def test_what_maintenance_asks_for_everywhere_reads_only_what_it_finds(
    store: MongoStore, raw: Raw, roles: set[Role], part: Filter | None
) -> None:
    await done(store, *[put(record(n)) for n in range(200)])
    raw.command({"profile": 2})
    try:
        await store.query(Query(ENTRIES, Everywhere(), part, limit=100, roles=frozenset(roles)))
    finally:
        raw.command({"profile": 0})
    [asked] = raw["system.profile"].find({"command.aggregate": "memory_entries", "op": "command"})
    assert asked["docsExamined"] == 0


@pytest.mark.parametrize(
    "write",
    [RaiseGeneration(HERE, 2**70), put(record(1), AtVersion(2**70)), Delete(ENTRIES, key_of(1), 9, AtVersion(2**70))],
    ids=lambda w: type(w).__name__,
)
async def test_a_number_over_64_bits_is_refused_as_ours(store: MongoStore, write: Write) -> None:
    with pytest.raises(InvalidInput, match="64 bits"):
        await store.apply([write])
