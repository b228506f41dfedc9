"""The table of words: what is in it is exactly what stands, whatever was written,
together or alone, and however much of it there is.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

import pytest

from memory.adapters.in_memory.store import InMemoryStore
from memory.adapters.sql.mysql import words
from memory.adapters.sql.mysql.batch import put_absent
from memory.adapters.sql.mysql.connection import Connection
from memory.adapters.sql.mysql.store import MySqlStore
from memory.adapters.sql.mysql.thresholds import THRESHOLDS, Thresholds
from memory.adapters.sql.mysql.words import BUCKETS
from memory.ports import lexical
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import (
    HERE,
    apply_all,
    delete,
    fetch_record,
    fetch_stored,
    hit_ids,
    id_of,
    one,
    put,
    record,
    search_hits,
)
from memory.ports.query import Eq, Query, Tenant, within
from memory.ports.record import Corrupt, Partition, Record, Role
from memory.ports.writes import Absent, AtVersion, Newer, When, Write
from tests.support.mysql_servers import MySqlServer
from tests.unit.adapters.sql.mysql.conftest import ON_SERVER, Raw, sixteen

pytestmark = ON_SERVER

ELSEWHERE = Partition(HERE.tenant, "elsewhere")
Postings = set[tuple[int, int, int, int]]


async def _indexed(raw: Raw) -> Postings:
    """Partition, digest of the word, number and packed counts of every posting; none is
    there twice.
    """
    rows = await raw("SELECT partition_no, bucket, postings FROM memory_words_samples")
    postings = [
        (at, bucket, *posting)
        for at, bucket, content in rows
        for posting in words._postings(content).tolist()
    ]
    assert all(digest % BUCKETS == bucket for _, bucket, digest, *_ in postings)
    told = {(at, digest, number, counts) for at, _, digest, number, counts, _ in postings}
    assert len(told) == len(postings)
    return told


async def _standing(raw: Raw) -> Postings:
    """What the rows say that have words in the table."""
    texts = ", ".join(f"text_{p.name}" for p in SAMPLES.texts)
    rows = await raw(f"SELECT partition_no, number, {texts} FROM memory_samples WHERE lexemes > 0")  # noqa: S608
    said = [(at, number, lexical.packed_counts(_packed(*texts))) for at, number, *texts in rows]
    return {
        (at, words._digest(word), number, counts)
        for at, number, told in said
        for word, counts in told.items()
    }


def _packed(*texts: str | None) -> bytes:
    """The words of these texts, in the order of their parts."""
    return lexical.index(
        SAMPLES, {part.name: text or "" for part, text in zip(SAMPLES.texts, texts, strict=False)}
    )


def _said(n: int, text: str, version: int = 1, at: Partition = HERE, **parts: Any) -> Record:
    return record(n, at, version, texts={"content": text, "title": text.split()[0]}, **parts)


async def test_the_words_of_what_stands_are_there_and_no_others(store: MySqlStore, raw: Raw) -> None:
    """A hundred calls of every kind, and the specification does the same."""
    chance = random.Random(3)  # noqa: S311 - repeatable, not secret
    specification = InMemoryStore()
    await specification.open(DECLARED)
    vocabulary = [f"{a}{b}" for a in ("bar", "fen", "lod") for b in ("ark", "ish", "omel", "um", "ost")]
    versions = iter(range(1, 10_000))

    def text() -> str:
        return " ".join(chance.choices(vocabulary, k=chance.randint(1, 12)))

    def some_write() -> Write:
        n, version = chance.randrange(60), next(versions)
        at = HERE if n % 3 else ELSEWHERE
        if chance.random() < 0.2:
            return delete(n, version, at)
        role = chance.choice([Role.HOME, Role.HOME, Role.CACHED])
        when: When = Absent() if chance.random() < 0.3 else Newer()
        return put(_said(n, text(), version, at, role=role), when)

    for _ in range(100):
        writes = [some_write() for _ in range(chance.choice([1, 2, 20]))]
        assert [o.status for o in await store.apply(writes)] == [
            o.status for o in await specification.apply(writes)
        ]
        if chance.random() < 0.1:
            gone = Query(
                SAMPLES, within(chance.choice([HERE, ELSEWHERE])), Eq("id", id_of(chance.randrange(60)))
            )
            version = next(versions)
            assert await store.delete_matching(gone, version) == await specification.delete_matching(
                gone, version
            )
        if chance.random() < 0.2:
            asked = chance.choice(vocabulary)
            for where in (within(HERE), within(HERE, ELSEWHERE), Tenant(HERE.tenant)):
                for roles in (frozenset({Role.HOME}), frozenset({Role.HOME, Role.CACHED})):
                    hits, expected = [
                        await search_hits(s, f"{asked} lodum", where, roles=roles)
                        for s in (store, specification)
                    ]
                    assert {h.head.key: round(h.score, 9) for h in hits} == {
                        h.head.key: round(h.score, 9) for h in expected
                    }
    assert await _indexed(raw) == await _standing(raw) != set()
    await store.delete_matching(Query(SAMPLES, Tenant(HERE.tenant), roles=frozenset(Role)), next(versions))
    assert await raw("SELECT * FROM memory_words_samples") == []


@pytest.mark.parametrize("how", ["replaced", "deleted", "erased", "damaged"])
async def test_what_leaves_a_segment_takes_its_words_along_and_no_others(
    store: MySqlStore, raw: Raw, how: str
) -> None:
    await store.apply([put(_said(n, f"lantern number{n}"), Absent()) for n in range(300)])
    assert len(await raw("SELECT DISTINCT segment FROM memory_words_samples")) == 1
    leave: dict[str, Callable[[], Awaitable[object]]] = {
        "replaced": lambda: apply_all(store, put(_said(7, "candle", 2), AtVersion(1))),
        "deleted": lambda: apply_all(store, delete(7)),
        "erased": lambda: store.delete_matching(Query(SAMPLES, within(HERE), Eq("id", id_of(7))), 100),
        "damaged": lambda: _damage(store, raw, "a candle that nobody wrote"),
    }
    await leave[how]()
    assert await hit_ids(store, "number7") == set()
    assert await _indexed(raw) == await _standing(raw)
    assert len(await search_hits(store, "lantern", limit=400)) == 299


async def _spoil(raw: Raw, text: str) -> None:
    """The row tells another text, and the words of that."""
    packed = lexical.index(SAMPLES, {"content": text})
    await raw(
        "UPDATE memory_samples SET text_content = %s, words = %s WHERE id = %s", text, packed, sixteen(7)
    )


async def _damage(store: MySqlStore, raw: Raw, text: str) -> None:
    await _spoil(raw, text)
    assert isinstance(await fetch_stored(store, 7), Corrupt)


@pytest.mark.parametrize("text", ["number7 lantern", "lantern lantern number7", "", "number8 lantern"])
async def test_words_are_gone_also_where_the_texts_do_not_tell_them_any_more(
    store: MySqlStore, raw: Raw, text: str
) -> None:
    """A row that was damaged is replaced before anyone has read it."""
    await apply_all(store, *[put(_said(n, f"lantern number{n}"), Absent()) for n in range(9)])
    await _spoil(raw, text)
    await apply_all(store, put(_said(7, "candle", 9), Newer()))
    assert await _indexed(raw) == await _standing(raw)
    assert await hit_ids(store, "lantern") == {id_of(n) for n in range(9) if n != 7}


@pytest.mark.parametrize("how", ["replaced", "deleted", "in quarantine"])
async def test_words_that_the_texts_do_not_tell_are_looked_for_in_one_partition(
    store: MySqlStore, raw: Raw, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Not in the whole table, which takes as long as it is large: after a change of how
    words are cut every record would need that.
    """
    await apply_all(store, *[put(_said(n, f"lantern number{n}"), Absent()) for n in range(9)])
    asked: list[str] = []
    fetch = Connection.fetch

    async def noted(self: Connection, sql: str, *values: Any) -> Any:
        asked.append(sql)
        return await fetch(self, sql, *values)

    monkeypatch.setattr(Connection, "fetch", noted)
    await _spoil(raw, "a candle that nobody wrote")
    if how == "in quarantine":
        assert isinstance(await fetch_stored(store, 7), Corrupt)
    else:
        await apply_all(store, put(_said(7, "candle", 9), Newer()) if how == "replaced" else delete(7))
    assert await _indexed(raw) == await _standing(raw)
    assert await hit_ids(store, "number7") == set()
    assert not [sql for sql in asked if "DISTINCT partition_no" in sql]


async def test_words_are_gone_also_where_the_row_names_another_partition(store: MySqlStore, raw: Raw) -> None:
    await apply_all(
        store,
        *[put(_said(n, f"lantern number{n}"), Absent()) for n in range(9)],
        put(_said(20, "wren", at=ELSEWHERE), Absent()),
    )
    ((other,),) = await raw("SELECT number FROM memory_partitions WHERE scope = %s", ELSEWHERE.scope)
    await raw("UPDATE memory_samples SET partition_no = %s WHERE id = %s", other, sixteen(6))
    await raw("UPDATE memory_samples SET partition_no = NULL WHERE id = %s", sixteen(7))
    await apply_all(store, delete(6), delete(7))
    assert await _indexed(raw) == await _standing(raw)


async def test_a_row_that_names_no_partition_does_not_keep_others_from_being_indexed(
    store: MySqlStore, raw: Raw
) -> None:
    await apply_all(store, put(_said(0, "lantern"), Absent()))
    await raw("UPDATE memory_samples SET partition_no = NULL WHERE id = %s", sixteen(0))
    for n in range(1, THRESHOLDS.waiting_taken_up):
        await apply_all(store, put(_said(n, "lantern"), Absent()))
    assert await raw("SELECT id FROM memory_samples WHERE lexemes = 0") == [(sixteen(0),)]
    assert len(await search_hits(store, "lantern", limit=100)) == THRESHOLDS.waiting_taken_up - 1


async def test_a_bucket_that_was_cut_off_does_not_keep_records_from_being_found_and_deleted(
    store: MySqlStore, raw: Raw
) -> None:
    await apply_all(store, *[put(_said(n, "lantern"), Absent()) for n in range(9)])
    await raw("UPDATE memory_words_samples SET postings = LEFT(postings, LENGTH(postings) - 5)")
    assert len(await search_hits(store, "lantern")) == 8
    await apply_all(store, *[delete(n) for n in range(9)])
    assert await raw("SELECT * FROM memory_words_samples") == []


async def test_long_records_do_not_wait_to_be_indexed(store: MySqlStore, raw: Raw) -> None:
    """Each search would cut their texts again."""
    long = "lantern " * (THRESHOLDS.waiting_characters // 8)
    await apply_all(store, put(_said(1, long), Absent()), put(_said(2, "wren"), Absent()))
    for n, text in ((3, long), (4, "wren")):
        assert (await one(store, put(_said(n, text), Absent()))).applied
    assert {n for (n,) in await raw("SELECT id FROM memory_samples WHERE lexemes = 0")} == {
        UUID(id_of(4)).bytes
    }
    assert await hit_ids(store, "lantern") == {id_of(1), id_of(3)}
    assert (await one(store, put(_said(3, long), Absent()))).status == "conflict"
    await apply_all(store, delete(3))
    assert await _indexed(raw) == await _standing(raw)


async def test_the_words_of_very_long_records_go_without_asking_their_texts(
    store: MySqlStore, raw: Raw
) -> None:
    text = " ".join(f"word{n}" for n in range(3_000))
    await apply_all(
        store, *[put(_said(n, text), Absent()) for n in (1, 2)], put(_said(3, "word7 lantern"), Absent())
    )
    await apply_all(store, delete(1), put(_said(2, "candle", 2), Newer()))
    assert await hit_ids(store, "word7") == {id_of(3)}
    assert await _indexed(raw) == await _standing(raw)


async def test_a_store_closed_right_after_a_record_is_stored_says_that_it_was(
    store: MySqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its words are taken up by whoever comes next."""

    async def stored_and_closed(*given: Any) -> Any:
        outcome = await put_absent(*given)
        closing.append(asyncio.ensure_future(store.close()))
        await asyncio.sleep(0)
        return outcome

    closing: list[asyncio.Task[None]] = []
    for n in range(1, THRESHOLDS.waiting_taken_up):
        await apply_all(store, put(_said(n, "lantern"), Absent()))
    monkeypatch.setattr("memory.adapters.sql.mysql.store.put_absent", stored_and_closed)
    assert (await one(store, put(_said(THRESHOLDS.waiting_taken_up, "lantern"), Absent()))).applied
    await closing[0]
    await store.open(DECLARED)
    assert len(await search_hits(store, "lantern", limit=100)) == THRESHOLDS.waiting_taken_up


async def test_new_records_among_which_one_is_there_are_decided_one_by_one(
    store: MySqlStore, raw: Raw
) -> None:
    await apply_all(store, put(_said(3, "heron"), Absent()))
    writes = [put(_said(n, f"wren number{n}", 5), Absent()) for n in range(100)]
    assert [o.status for o in await store.apply(writes, together=True)] == ["skipped"] * 3 + ["conflict"] + [
        "skipped"
    ] * 96
    assert await hit_ids(store, "wren") == set()
    outcomes = await store.apply([*writes, put(record(200, generation=-1), Absent())])
    assert [o.status for o in outcomes] == ["applied"] * 3 + ["conflict"] + ["applied"] * 96 + ["rejected"]
    assert len(await search_hits(store, "wren", limit=200)) == 99
    assert (await fetch_record(store, 3)).texts["content"] == "heron"
    assert await _indexed(raw) == await _standing(raw)


@pytest.mark.parametrize("at", [0, 64, 511, 699])
async def test_a_key_that_is_taken_leaves_the_connection_sound_wherever_it_comes(
    server: MySqlServer, store: MySqlStore, database: str, at: int
) -> None:
    """Statements were sent ahead of its answer: theirs are read too."""
    await apply_all(store, put(_said(at, "heron"), Absent()))
    single = MySqlStore(server.url(database, pool_size=1))
    await single.open(DECLARED)
    before = await single.with_connection(lambda connection: connection.fetchval("SELECT CONNECTION_ID()"))
    outcomes = await single.apply([put(_said(n, f"wren number{n}"), Absent()) for n in range(700)])
    assert [n for n, o in enumerate(outcomes) if not o.applied] == [at]
    assert await hit_ids(single, f"heron number{699 - at}") == {id_of(at), id_of(699 - at)}
    assert (
        await single.with_connection(lambda connection: connection.fetchval("SELECT CONNECTION_ID()"))
        == before
    )
    await single.close()


async def _cancelled_at(store: MySqlStore, writes: Sequence[Write], statement: int) -> bool:
    """Apply writes, and cancel the call while this statement is under way; whether it
    came so far.
    """
    run, left = Connection._run, iter(range(statement, -1, -1))

    async def counted(self: Connection, sql: str, values: Any) -> Any:
        if next(left, None) == 0:
            asyncio.get_running_loop().call_soon(call.cancel)
        return await run(self, sql, values)

    call = asyncio.ensure_future(store.apply(writes))
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(asyncio.CancelledError):
        patch.setattr(Connection, "_run", counted)
        await call
    return call.cancelled()


async def test_a_call_cancelled_at_any_of_its_statements_leaves_nothing(store: MySqlStore, raw: Raw) -> None:
    writes, statements = [put(_said(n, f"wren number{n}"), Absent()) for n in range(600)], 0
    while await _cancelled_at(store, writes, statements):
        assert await hit_ids(store, "wren") == set()
        assert await raw("SELECT * FROM memory_words_samples LIMIT 1") == []
        statements += 1
    assert statements > 10
    assert len(await search_hits(store, "wren", limit=1_000)) == 600
    assert await _indexed(raw) == await _standing(raw)


async def test_a_bucket_that_is_too_full_has_several_rows(
    server: MySqlServer, database: str, raw: Raw
) -> None:
    store = MySqlStore(server.url(database), thresholds=Thresholds(postings=4))
    await store.open(DECLARED)
    await apply_all(store, *[put(_said(n, f"lantern number{n}"), Absent()) for n in range(30)])
    assert await raw("SELECT MAX(part) FROM memory_words_samples") == [(7,)]
    await apply_all(store, *[delete(n) for n in range(10)])
    assert len(await search_hits(store, "lantern")) == 20
    assert await _indexed(raw) == await _standing(raw)
    await store.close()


async def test_more_records_than_a_segment_takes_are_several(store: MySqlStore, raw: Raw) -> None:
    await store.apply([put(_said(n, "lantern"), Absent()) for n in range(1_100)])
    assert len(await raw("SELECT DISTINCT segment FROM memory_words_samples")) == 3
    assert len(await search_hits(store, "lantern", limit=2_000)) == 1_100
    await store.delete_matching(Query(SAMPLES, within(HERE)), 100)
    assert await raw("SELECT * FROM memory_words_samples") == []
