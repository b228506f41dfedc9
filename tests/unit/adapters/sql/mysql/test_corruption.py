"""Rows that are not as they were written: told, quarantined, and their neighbours
served.
"""

from __future__ import annotations

import uuid

from memory.adapters.sql.columns import checksum_column
from memory.adapters.sql.mysql.store import MySqlStore
from memory.ports.contract.cells import cells
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.support import (
    HERE,
    apply_all,
    fetch_record,
    fetch_stored,
    hit_ids,
    id_of,
    key_of,
    put,
    query_ids,
    record,
)
from memory.ports.query import Eq, Query, within
from memory.ports.record import Corrupt, Partition, Record, Tombstone
from memory.ports.writes import Newer
from tests.unit.adapters.sql.mysql.conftest import ON_SERVER, Raw, sixteen

pytestmark = ON_SERVER

CHECKSUM = checksum_column(SAMPLES)
DAMAGE = {
    "text": "UPDATE memory_samples SET text_content = 'the heron' WHERE id = %s",
    "a field": "UPDATE memory_samples SET type = 'other' WHERE id = %s",
    "JSON": "UPDATE memory_samples SET body = '{' WHERE id = %s",
    "a moment": "UPDATE memory_samples SET created_at = created_at + 1 WHERE id = %s",
    "a moment beyond all": "UPDATE memory_samples SET expires_at = 9223372036854775807 WHERE id = %s",
    "the version": "UPDATE memory_samples SET version = version + 1 WHERE id = %s",
    "the role": "UPDATE memory_samples SET role = 'hero' WHERE id = %s",
    "the scope": "UPDATE memory_samples SET scope = 'elsewhere' WHERE id = %s",
    "the vector": "UPDATE memory_samples SET vector = NULL WHERE id = %s",
    "the checksum": f"UPDATE memory_samples SET {CHECKSUM} = {CHECKSUM} + 1 WHERE id = %s",  # noqa: S608
}


def _said(n: int, at: Partition = HERE) -> object:
    return put(
        record(
            n,
            at,
            fields={"type": "fact"},
            body={"n": n},
            texts={"content": "the cormorant nests"},
            vector=b"\0\0\x80?",
        )
    )


@cells("damage", DAMAGE, shared=True)
async def test_a_damaged_row_is_told_and_quarantined_and_its_neighbours_are_served(
    store: MySqlStore, raw: Raw, damage: str
) -> None:
    at = Partition(HERE.tenant, f"user:{uuid.uuid4().hex}")
    damaged, sound = key_of(1, at), key_of(2, at)
    quarantined = len(await raw("SELECT * FROM memory_quarantine"))
    await apply_all(store, _said(1, at), _said(2, at))  # type: ignore[arg-type]
    await raw(DAMAGE[damage], sixteen(1, at))
    assert isinstance((await store.get(SAMPLES, [damaged]))[0], Corrupt)
    page = await store.query(Query(SAMPLES, within(at)))
    assert [(r.key, r.body) for r in page.records if isinstance(r, Record)] == [(sound, {"n": 2})]
    assert page.corrupt == (damaged,)
    assert await hit_ids(store, "cormorant", within(at)) == {sound.id}
    assert len(await raw("SELECT * FROM memory_quarantine")) == quarantined + 1
    assert (await store.query(Query(SAMPLES, within(at), Eq("type", "fact")))).corrupt == (damaged,)


async def test_bytes_that_are_no_text_do_not_take_the_rows_beside_them_along(
    store: MySqlStore, raw: Raw
) -> None:
    await apply_all(store, _said(1), _said(2))  # type: ignore[arg-type]
    await raw("UPDATE memory_samples SET scope = UNHEX('FFFE') WHERE id = %s", sixteen(1))
    page = await store.query(Query(SAMPLES, within(HERE)))
    assert [r.key for r in page.records] == [key_of(2)]
    assert isinstance(await fetch_stored(store, 1), Corrupt)


async def test_a_newer_copy_heals_and_nothing_of_the_damaged_one_is_found_or_kept(
    store: MySqlStore, raw: Raw
) -> None:
    await apply_all(store, _said(1))  # type: ignore[arg-type]
    await raw(DAMAGE["text"], sixteen(1))
    assert isinstance(await fetch_stored(store, 1), Corrupt)
    await apply_all(store, put(record(1, version=9, texts={"content": "a wren"}), Newer()))
    assert (await fetch_record(store, 1)).version == 9
    assert await query_ids(store) == [id_of(1)]
    assert await hit_ids(store, "cormorant heron") == set()
    assert await hit_ids(store, "wren") == {id_of(1)}
    assert await raw("SELECT * FROM memory_quarantine") == []


async def test_erasure_reaches_what_is_in_quarantine(store: MySqlStore, raw: Raw) -> None:
    await apply_all(store, _said(1), _said(2))  # type: ignore[arg-type]
    await raw(DAMAGE["text"], sixteen(1))
    assert isinstance(await fetch_stored(store, 1), Corrupt)
    assert await store.delete_matching(Query(SAMPLES, within(HERE)), 100) == 2
    assert isinstance(await fetch_stored(store, 1), Tombstone)
    assert await raw("SELECT * FROM memory_quarantine") == []
    assert await raw("SELECT * FROM memory_words_samples") == []
    assert not [
        row
        for row in await raw("SELECT * FROM memory_samples")
        if "heron" in repr(row) or "cormorant" in repr(row)
    ]
