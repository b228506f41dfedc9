"""What is derived from records is compared with them, and made anew from them."""

from __future__ import annotations

import pytest

from memory.adapters.sql.postgresql.store import PostgresStore
from memory.ports.contract.support import apply_all, put, record
from tests.unit.adapters import auditing
from tests.unit.adapters.sql.postgresql.conftest import ON_SERVER, Raw

pytestmark = ON_SERVER

DAMAGE = {
    "a row lost its words": "UPDATE {s}.memory_samples SET lexemes = NULL WHERE row_type = 'record'",
    "a row lost its counts": "UPDATE {s}.memory_samples SET counts = NULL WHERE row_type = 'record'",
    "rows have another's words": (
        "UPDATE {s}.memory_samples SET lexemes = (SELECT max(lexemes::text)::tsvector FROM"
        " {s}.memory_samples) WHERE role = 'home'"
    ),
    "dead rows have words": (
        "UPDATE {s}.memory_samples SET lexemes = 'p1xapple', length = 3 WHERE row_type = 'tombstone'"
    ),
    "lengths are wrong": "UPDATE {s}.memory_samples SET length = length + 40",
    "sizes are wrong": "UPDATE {s}.memory_samples SET bytes = 0",
    "a partition is not registered": "DELETE FROM {s}.memory_partitions",
    "a copy of what could not be read was left behind": (
        "INSERT INTO {s}.memory_quarantine (collection, tenant, id, problem, found_at, content) "
        "VALUES ('samples', 'acme', '00000000-0009-8000-8000-000000000000', 'x', 0, 'x')"
    ),
}


async def test_nothing_is_found_where_nothing_is_wrong(store: PostgresStore) -> None:
    await auditing.nothing_is_found_where_nothing_is_wrong(store)


@pytest.mark.parametrize("what", list(DAMAGE))
async def test_damage_is_named_and_mended_beside_running_writers(
    store: PostgresStore, raw: Raw, what: str
) -> None:
    async def damage() -> None:
        await raw(DAMAGE[what])

    await auditing.damage_is_named_and_mended(store, damage)


async def test_ten_thousand_records_are_audited_page_by_page(store: PostgresStore) -> None:
    await auditing.many_records_are_audited_page_by_page(store)


async def test_vacuuming_is_asked_of_the_server_and_breaks_nothing(store: PostgresStore, raw: Raw) -> None:
    await apply_all(store, put(record(1)))
    assert await store.vacuum() >= 0
    ((vacuumed,),) = await raw("SELECT pg_stat_get_vacuum_count('{s}.memory_samples'::regclass)")
    assert vacuumed == 1
