"""What is left behind is cleared up, and what is damaged stops nobody."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from memory.adapters.mongo import batch, reading
from memory.adapters.mongo.quarantine import Quarantine
from memory.adapters.mongo.store import MongoStore
from memory.adapters.mongo.table import Table
from memory.adapters.mongo.thresholds import Thresholds
from memory.domain.errors import InvalidInput
from memory.ports.batch import ResolvedWrite
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import (
    HERE,
    apply_all,
    delete,
    fetch_stored,
    id_of,
    key_of,
    one,
    put,
    record,
)
from memory.ports.query import Condition, Eq, Everywhere, Order, Query, encode_cursor, within
from memory.ports.record import Corrupt, Key, Role, Tombstone
from memory.ports.writes import (
    Absent,
    Always,
    AtVersion,
    Delete,
    Newer,
    Purge,
    RaiseGeneration,
    Status,
    When,
    Write,
)
from tests.unit.adapters.mongo.conftest import EITHER, Raw

pytestmark = pytest.mark.parametrize("server", EITHER, indirect=True)


async def _delete_one(store: MongoStore) -> None:
    await apply_all(store, delete(1))


async def _delete_several(store: MongoStore) -> None:
    await apply_all(store, delete(1), delete(2))


async def _delete_matching(store: MongoStore) -> None:
    await store.delete_matching(Query(SAMPLES, within(HERE)), 100)


@pytest.mark.parametrize("deletion", [_delete_one, _delete_several, _delete_matching])
async def test_a_damaged_record_that_was_written_anew_leaves_no_copy_once_it_is_deleted(
    store: MongoStore, raw: Raw, deletion: Callable[[MongoStore], object]
) -> None:
    await apply_all(store, put(record(1, texts={"content": "the secret"})), put(record(2)))
    raw["memory_samples"].update_one({"id": id_of(1)}, {"$set": {"body": "{}x"}})
    assert isinstance(await fetch_stored(store), Corrupt)
    await apply_all(store, put(record(1, version=5), Newer()))
    assert raw["memory_store.quarantine"].count_documents({}) == 1
    await deletion(store)  # type: ignore[misc]
    assert raw["memory_store.quarantine"].count_documents({}) == 0


async def test_a_copy_made_of_what_is_deleted_meanwhile_does_not_stay(
    store: MongoStore, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    await apply_all(store, put(record(1)))
    raw["memory_samples"].update_one({"id": id_of(1)}, {"$set": {"body": "{}x"}})
    copies = store.ready().quarantine.copies
    replace_one = copies.replace_one

    async def late(*args: object, **parts: object) -> object:
        await apply_all(store, delete(1))
        return await replace_one(*args, **parts)  # type: ignore[arg-type]

    monkeypatch.setattr(store.ready().quarantine, "copies", _With(copies, late))
    await store.get(SAMPLES, [key_of(1)])
    assert raw["memory_store.quarantine"].count_documents({}) == 0


class _With:
    """A collection with another `replace_one`."""

    def __init__(self, collection: object, replace_one: object) -> None:
        self._collection, self.replace_one = collection, replace_one

    def __getattr__(self, name: str) -> object:
        return getattr(self._collection, name)


async def test_a_record_whose_kind_is_damaged_is_erased(store: MongoStore, raw: Raw) -> None:
    await apply_all(store, put(record(1, texts={"content": "the secret"})))
    raw["memory_samples"].update_one({"id": id_of(1)}, {"$set": {"type": "recorc"}})
    assert await store.delete_matching(Query(SAMPLES, within(HERE)), 100) == 1
    assert "texts" not in raw["memory_samples"].find_one({"id": id_of(1)})  # type: ignore[operator]


@pytest.mark.parametrize(
    ("roles", "part"),
    [({Role.ARRIVING}, None), ({Role.CACHED}, None), ({Role.HOME, Role.ARRIVING}, Eq("owing", True))],
    ids=["arriving", "cached", "owing"],
)
async def test_what_maintenance_asks_for_everywhere_reads_only_what_it_finds(
    store: MongoStore, raw: Raw, roles: set[Role], part: Condition | None
) -> None:
    await apply_all(store, *[put(record(n)) for n in range(200)])
    raw.command({"profile": 2})
    try:
        await store.query(Query(SAMPLES, Everywhere(), part, limit=100, roles=frozenset(roles)))
    finally:
        raw.command({"profile": 0})
    [asked] = raw["system.profile"].find({"command.aggregate": "memory_samples", "op": "command"})
    assert asked["docsExamined"] == 0


@pytest.mark.parametrize(
    "write",
    [
        RaiseGeneration(HERE, 2**70),
        put(record(1), AtVersion(2**70)),
        put(record(1), AtVersion(1, tier="\ud800")),
        put(record(1, version=2**70)),
        Delete(SAMPLES, key_of(1), 9, AtVersion(2**70)),
        Delete(SAMPLES, key_of(1), 2**70, Newer()),
        Purge(SAMPLES, key_of(1), 2**70),
    ],
    ids=lambda w: type(w).__name__,
)
async def test_what_no_document_holds_fails_its_write_and_not_the_call(
    store: MongoStore, write: Write
) -> None:
    await apply_all(store, put(record(1)))
    before = await fetch_stored(store)
    alone = await one(store, write)
    first, among, last = await store.apply([put(record(2)), write, put(record(3))])
    assert alone.status == among.status
    assert alone.status in (Status.CONFLICT, Status.REJECTED)
    assert first.applied
    assert last.applied
    assert await fetch_stored(store) == before


@pytest.mark.parametrize("damaged", [{"created_at": "no moment"}, {"fields": "none"}], ids=str)
async def test_pages_over_everything_go_past_a_damaged_value_that_they_are_sorted_by(
    store: MongoStore, raw: Raw, damaged: dict[str, object]
) -> None:
    await apply_all(store, *[put(record(n)) for n in range(10)])
    raw["memory_samples"].update_one({"id": id_of(3)}, {"$set": damaged})
    order = (Order("created_at"), Order("type"))
    page = await store.query(Query(SAMPLES, Everywhere(), order=order, limit=9))
    assert len(page.records) == 9
    assert key_of(3) not in [r.key for r in page.records]
    assert isinstance(await fetch_stored(store, 3), Corrupt)


async def test_an_unmanageable_number_in_a_condition_is_refused_as_ours(store: MongoStore) -> None:
    with pytest.raises(InvalidInput, match="cursor"):
        await store.query(
            Query(
                SAMPLES,
                within(HERE),
                Eq("version", 1),
                (Order("version"),),
                1,
                encode_cursor([2**70], id_of(1)),
            )
        )


async def _by_key(store: MongoStore) -> None:
    await apply_all(store, delete(1, version=5))


async def _after_it_was_read(store: MongoStore) -> None:
    assert isinstance(await fetch_stored(store), Corrupt)
    assert await store.delete_matching(Query(SAMPLES, within(HERE)), 100) == 2


@pytest.mark.parametrize("erasure", [_by_key, _delete_several, _after_it_was_read])
async def test_a_document_whose_tenant_is_damaged_is_corrupt_and_can_be_deleted(
    store: MongoStore, raw: Raw, erasure: Callable[[MongoStore], object]
) -> None:
    await apply_all(store, put(record(1, texts={"content": "the secret"})), put(record(2)))
    raw["memory_samples"].update_one({"id": id_of(1)}, {"$set": {"tenant": "acmf"}})
    await erasure(store)  # type: ignore[misc]
    assert isinstance(await fetch_stored(store), Tombstone)
    left = raw["memory_samples"].find_one({"id": id_of(1)})
    assert left is not None
    assert (left["tenant"], "texts" in left) == ("acme", False)
    assert raw["memory_store.quarantine"].count_documents({}) == 0


@pytest.mark.parametrize("when", [Newer(), Always()], ids=str)
async def test_a_document_whose_tenant_is_damaged_is_repaired_by_what_is_written_in_its_place(
    store: MongoStore, raw: Raw, when: When
) -> None:
    await apply_all(store, put(record(1)))
    raw["memory_samples"].update_one({"id": id_of(1)}, {"$set": {"tenant": "acmf"}})
    refused = await one(store, put(record(1, version=5), Absent()))
    assert (refused.status, type(refused.stored)) == (Status.CONFLICT, Corrupt)
    await apply_all(store, put(record(1, version=5), when))
    assert await fetch_stored(store) == record(1, version=5, generation=0)


async def test_a_deletion_holds_no_more_at_once_than_it_has_room_for(
    build: Callable[..., MongoStore], raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = build(thresholds=Thresholds(deleted_bytes_at_once=5_000))
    await store.open(DECLARED)
    await apply_all(store, *[put(record(n, body={"long": "x" * 1000})) for n in range(20)])
    held: list[int] = []
    swap = batch.swap

    async def watched(table: Table, quarantine: Quarantine, changes: Sequence[ResolvedWrite]) -> set[Key]:
        held.append(len(changes))
        return await swap(table, quarantine, changes)

    monkeypatch.setattr(reading, "swap", watched)
    assert await store.delete_matching(Query(SAMPLES, within(HERE)), 100) == 20
    assert max(held) <= 5
    await store.close()
