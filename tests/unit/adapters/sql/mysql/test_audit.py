"""What is derived from records is compared with them, and made anew from them."""

from __future__ import annotations

import pytest

from memory.adapters.sql.mysql.store import MySqlStore
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.support import apply_all, hit_ids, id_of, key_of, put, record
from memory.ports.writes import Delete, Newer
from tests.unit.adapters import auditing
from tests.unit.adapters.sql.mysql.conftest import ON_SERVER, Raw

pytestmark = ON_SERVER

DAMAGE = {
    "all postings are gone": "DELETE FROM memory_words_samples",
    "some postings are gone": "DELETE FROM memory_words_samples ORDER BY bucket LIMIT 3",
    "postings are cut off": "UPDATE memory_words_samples SET postings = LEFT(postings, LENGTH(postings) - 8)",
    "postings are there twice": "UPDATE memory_words_samples SET postings = CONCAT(postings, postings)",
    "postings stand in another segment": "UPDATE memory_words_samples SET segment = segment + 100000",
    "a row names no segment": "UPDATE memory_samples SET lexemes = NULL WHERE role = 'home' LIMIT 2",
    "a row names another segment": "UPDATE memory_samples SET lexemes = 77 WHERE role = 'home' LIMIT 2",
    "a dead row names a segment": "UPDATE memory_samples SET lexemes = 0 WHERE row_type = 'tombstone'",
    "a row that is indexed says it waits": "UPDATE memory_samples SET lexemes = 0 WHERE lexemes > 0",
    "lengths are wrong": "UPDATE memory_samples SET length = length + 40",
    "sizes are wrong": "UPDATE memory_samples SET bytes = 1",
    "what owes is not told": "UPDATE memory_samples SET owing = 1",
    "a partition is not registered": "DELETE FROM memory_partitions",
    "a copy of what could not be read was left behind": (
        "INSERT INTO memory_quarantine (collection, tenant, id, problem, found_at, content) VALUES"
        " ('samples', 'acme', REPEAT('g', 16), 'x', 1, 'x')"
    ),
}


async def test_nothing_is_found_where_nothing_is_wrong(store: MySqlStore) -> None:
    await auditing.nothing_is_found_where_nothing_is_wrong(store)


@pytest.mark.parametrize("what", list(DAMAGE))
async def test_damage_is_named_and_mended_beside_running_writers(
    store: MySqlStore, raw: Raw, what: str
) -> None:
    async def damage() -> None:
        await store._take_up(store._tables["samples"])
        await raw(DAMAGE[what])

    await auditing.damage_is_named_and_mended(store, damage)


async def test_ten_thousand_records_are_audited_page_by_page(store: MySqlStore) -> None:
    await auditing.many_records_are_audited_page_by_page(store)


async def test_segments_give_back_what_a_long_history_put_into_them(store: MySqlStore, raw: Raw) -> None:
    """Fifty records, two thousand edits: the index holds the words of what stands, and
    no more rows than that takes.
    """

    async def postings() -> tuple[int, int]:
        ((rows, size),) = await raw(
            "SELECT COUNT(*), COALESCE(SUM(LENGTH(postings)), 0) FROM memory_words_samples"
        )
        return int(rows), int(size)

    for n in range(2_000):
        text = f"edition{n} of a text about number{n % 7}"
        await apply_all(store, put(record(n % 50, version=n + 1, texts={"content": text}), Newer()))
    words = len(f"edition of a text about number{0}".split())
    rows, size = await postings()
    assert rows <= 50 * words, "a posting in a row of its own, at most"
    assert size <= 50 * words * 32
    assert await hit_ids(store, "edition1949") == set()
    assert await hit_ids(store, "edition1950") == {id_of(0)}
    assert len(await hit_ids(store, "text")) == 50
    assert (await store.audit()).problems == ()
    await apply_all(store, *[Delete(SAMPLES, key_of(n), 9_999, Newer()) for n in range(50)])
    assert await postings() == (0, 0)
