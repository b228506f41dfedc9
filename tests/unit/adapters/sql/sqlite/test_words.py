"""The word index: what it holds, what leaves it, and that nothing of the records
depends on it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from memory.adapters.sql.sqlite.store import SqliteStore
from memory.domain.errors import StoreError
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.support import (
    HERE,
    T0,
    apply_all,
    delete,
    fetch_record,
    hit_ids,
    id_of,
    key_of,
    one,
    put,
    record,
    search_hits,
)
from memory.ports.query import Near, Query, Search, within
from memory.ports.record import Partition, Record, pack_vector
from memory.ports.writes import Newer, Purge, Status
from tests.unit.adapters.sql.sqlite.helping import change, content_of, opened, problems, raw, stored

THERE = Partition("acme", "user:bob")


def said(n: int, text: str, version: int = 1, **parts: Any) -> Record:
    return record(n, version=version, texts={"content": text}, **parts)


@pytest_asyncio.fixture
async def filled(store: SqliteStore) -> AsyncIterator[SqliteStore]:
    """Three records of two words each; their words are no one else's."""
    await apply_all(
        store, *[put(said(n, f"common special{n}", vector=pack_vector([1.0, float(n)]))) for n in (1, 2, 3)]
    )
    yield store


async def test_a_file_takes_writes_after_any_number_of_single_puts_and_updates(store: SqliteStore) -> None:
    for n in range(33):
        assert (await one(store, put(said(n, f"note{n}")))).applied
    for k in range(130):
        assert (await one(store, put(said(k % 32, f"changed{k}", k + 2), Newer()))).applied
    assert await problems(store) == ()
    assert await hit_ids(store, "changed129") == {id_of(129 % 32)}
    assert await search_hits(store, "changed0") == []


@pytest.mark.parametrize("others", [0, 40])
async def test_deleted_words_are_in_no_byte_of_the_files(store: SqliteStore, file: Path, others: int) -> None:
    await apply_all(store, *[put(said(n, "everyday")) for n in range(100, 100 + others)])
    await apply_all(store, put(said(1, "abracadabra zanzibar")), put(said(2, "kalamazoo")))
    await apply_all(store, put(said(1, "everyday zanzibar", 2), Newer()), delete(2))
    with raw(file) as connection:
        held = connection.execute(
            "SELECT word FROM samples_words WHERE number <= 2 OR word LIKE '%kala%'"
        ).fetchall()
    assert ("abracadabra",) not in held
    assert ("kalamazoo",) not in held
    await store.close()
    content = content_of(file)
    assert b"zanzibar" in content
    assert b"abracadabra" not in content
    assert b"kalamazoo" not in content


async def test_a_row_number_used_again_brings_no_words_of_its_former_record(store: SqliteStore) -> None:
    await apply_all(store, put(said(1, "first")), put(said(2, "secret")))
    await apply_all(store, delete(2, version=2))
    await apply_all(store, Purge(SAMPLES, key_of(2), 2))
    theirs = record(9, THERE, texts={"content": "innocent"})
    await apply_all(store, put(theirs))
    assert await search_hits(store, "secret", within(HERE, THERE)) == []
    assert await hit_ids(store, "innocent", within(THERE)) == {theirs.key.id}
    assert await problems(store) == ()


async def test_writes_and_reads_go_on_without_a_word_index_and_a_repair_brings_it_back(
    filled: SqliteStore, file: Path
) -> None:
    change(file, "DROP TABLE samples_words")
    await apply_all(
        filled, put(said(4, "common special4")), put(said(1, "common changed", 2), Newer()), delete(2)
    )
    assert (await fetch_record(filled, 4)).texts == {"content": "common special4"}
    assert len((await filled.query(Query(SAMPLES, within(HERE)))).records) == 3
    near = await filled.search(Search(SAMPLES, within(HERE), Near(pack_vector([1.0, 3.0])), 5))
    assert id_of(3) in {hit.head.key.id for hit in near}
    with pytest.raises(StoreError, match=r"word index.*repair"):
        await search_hits(filled, "common")
    assert len(await problems(filled)) == 2
    assert len(await problems(filled, repair=True)) == 2
    assert await problems(filled) == ()
    assert await hit_ids(filled, "common") == {id_of(1), id_of(3), id_of(4)}
    assert await hit_ids(filled, "changed") == {id_of(1)}
    assert await search_hits(filled, "special2") == []
    await apply_all(filled, put(said(5, "common")))
    assert len(await search_hits(filled, "common")) == 4


async def test_a_search_says_that_the_word_index_is_gone_before_any_write_met_it(
    filled: SqliteStore, file: Path
) -> None:
    change(file, "DROP TABLE samples_words")
    with pytest.raises(StoreError, match="word index"):
        await search_hits(filled, "common")


@pytest.mark.behaviour("AC-D25")
async def test_opening_the_file_brings_back_a_word_index_that_a_write_missed(
    filled: SqliteStore, file: Path
) -> None:
    change(file, "DROP TABLE samples_words")
    await apply_all(filled, put(said(4, "common")))
    await filled.close()
    again = await opened(file)
    assert len(await search_hits(again, "common")) == 4
    assert await problems(again) == ()
    await again.close()


@pytest.mark.behaviour("D64", "AC-D25")
@pytest.mark.parametrize("loss", ["DROP TABLE samples_words", "DELETE FROM samples_words"])
async def test_opening_the_file_brings_back_a_word_index_that_was_lost_while_nobody_wrote(
    filled: SqliteStore, file: Path, loss: str
) -> None:
    await filled.close()
    change(file, loss)
    again = await opened(file)
    assert len(await search_hits(again, "common")) == 3
    assert await problems(again) == ()
    await apply_all(again, delete(1), delete(2), delete(3))
    await again.close()
    again = await opened(file)  # an index without words, of records that have none, is none that was lost
    assert await search_hits(again, "common") == []
    assert await problems(again) == ()
    await again.close()


async def test_a_write_that_misses_words_of_its_row_says_that_the_index_is_to_be_doubted(
    filled: SqliteStore, file: Path
) -> None:
    change(file, "DELETE FROM samples_words WHERE word = 'special1'")
    await apply_all(filled, put(said(1, "other", 2), Newer()))
    with pytest.raises(StoreError, match="word index"):
        await search_hits(filled, "other")
    assert await problems(filled, repair=True) == ("samples: a write found the word index damaged",)
    assert await hit_ids(filled, "other") == {id_of(1)}


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ("DELETE FROM samples_words", "3 records are not in the word index"),
        ("DELETE FROM samples_words WHERE word = 'special2'", "1 records are not in the word index"),
        (
            "UPDATE samples_words SET counts = counts * 2 WHERE word = 'common'",
            "3 records are not in the word index",
        ),
        (
            "UPDATE samples_words SET word = 'stale' WHERE word = 'special3'",
            "1 records are not in the word index",
        ),
        (
            (
                "INSERT INTO samples_words SELECT partition_no, 'surplus', number, 1 FROM samples_words WHERE"
                " word = 'special1'"
            ),
            "1 records are in",
        ),
        (
            "INSERT INTO samples_words SELECT partition_no + 7, word, number, counts FROM samples_words",
            "3 records are in the word index with words",
        ),
        (
            "INSERT INTO samples_words SELECT partition_no, word, number + 50, counts FROM samples_words",
            "3 rows are in the word index that hold no",
        ),
    ],
)
async def test_an_audit_finds_missing_wrong_doubled_and_stale_words_and_mends_them(
    filled: SqliteStore, file: Path, damage: str, told: str
) -> None:
    assert await filled.audit() == await filled.audit(repair=True)
    change(file, damage)
    (problem,) = await problems(filled)
    assert problem.startswith(f"samples: {told}")
    assert "special" not in problem
    assert await problems(filled, repair=True) == (problem,)
    assert (await filled.audit()).checked == 3
    assert await problems(filled) == ()
    assert len(await search_hits(filled, "common")) == 3
    assert await hit_ids(filled, "special2") == {id_of(2)}


async def test_damaged_rows_take_their_words_with_them_whatever_they_say_now(
    filled: SqliteStore, file: Path
) -> None:
    change(
        file, "UPDATE samples SET text_content = 'common', partition_no = NULL WHERE id = ?", stored(id_of(1))
    )
    change(file, "UPDATE samples SET text_content = NULL, length = 0 WHERE id = ?", stored(id_of(2)))
    assert (await one(filled, put(said(1, "whole", 2), Newer()))).status is Status.APPLIED
    assert await filled.delete_matching(Query(SAMPLES, within(HERE)), 50, T0) == 3
    with raw(file) as connection:
        assert connection.execute("SELECT count(*) FROM samples_words").fetchone() == (0,)
    assert await problems(filled) == ()
