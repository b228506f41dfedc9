"""Damage: no read ever returns wrong content, whatever byte of the file was changed."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memory.adapters.sql.columns import checksum_column
from memory.adapters.sql.sqlite.store import SqliteStore
from memory.domain.errors import MemoryTiersError, StoreError
from memory.ports.candidates import Candidates, Neighbourhood
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.support import (
    HERE,
    apply_all,
    delete,
    fetch_record,
    fetch_stored,
    fetch_tombstone,
    key_of,
    one,
    put,
    record,
    search_hits,
)
from memory.ports.query import Eq, Everywhere, Hit, JsonPath, Near, Order, Query, Search, Tenant, within
from memory.ports.record import Corrupt, Key, Record, Stored, pack_vector
from memory.ports.writes import Absent, Always, AtVersion, Newer, Status
from tests.unit.adapters.sql.sqlite.helping import (
    content_of,
    flip_in_page,
    opened,
    raw,
    stored,
    write_content,
)

CHECKSUM = checksum_column(SAMPLES)
ASKED = Candidates(
    SAMPLES,
    within(HERE),
    "common title",
    pack_vector([1.0, 1.0, 0.5]),
    10,
    among=(key_of(1).id, key_of(30).id),
    around=Neighbourhood("conversation_id", "number", 2),
    counted=("common", "titl"),
    select=frozenset({"type", "tags", "confidence", "created_at", "tier", "owing", "pinned"}),
)


def full(n: int, **parts: Any) -> Record:
    return record(
        n,
        fields={
            "type": "fact",
            "tags": ("red", f"n{n}"),
            "confidence": 0.5,
            "conversation_id": f"c{n % 2}",
            "number": n,
        },
        body={"n": n},
        texts={"title": f"title {n}", "content": "some common words"},
        vector=pack_vector([1.0, float(n), 0.5]),
        generation=0,
        **parts,
    )


async def damage(store: SqliteStore, file: Path, n: int, change: str = "text_title = 'forged'") -> None:
    with raw(file) as connection:
        assert (
            connection.execute(f"UPDATE samples SET {change} WHERE id = ?", (stored(key_of(n).id),)).rowcount  # noqa: S608
            == 1
        )


@pytest.mark.parametrize(
    "change",
    [
        "text_title = 'forged'", "body = '{\"n\":7}'", "body = '{'", "version = version + 1", "role = 'replica'", "owed = '[]'", "tier = 'x'",
        "accesses = 9", "vector = zeroblob(12)", "created_at = created_at + 1", f"{CHECKSUM} = 0", "generation = 1", "confidence = 0.25",
        "tags = NULL", "scope = 'user:bob'", "fingerprint = 1", "text_title = CAST(x'ff' AS TEXT)", "revision = 99", "length = 1", "epoch = 'e'",
        "partition_no = 7",
    ],
)  # fmt: skip
async def test_a_changed_column_is_corrupt_and_its_neighbours_are_served(
    store: SqliteStore, file: Path, change: str
) -> None:
    await apply_all(store, *[put(full(n)) for n in range(3)])
    await damage(store, file, 1, change)
    for _ in range(2):
        answers = await store.get(SAMPLES, [key_of(n) for n in range(3)])
        assert [type(a) for a in answers] == [Record, Corrupt, Record]
        assert answers[1].key == key_of(1)  # type: ignore[union-attr]
        page = await store.query(Query(SAMPLES, within(HERE)))
        assert [r.key for r in page.records] == [key_of(0), key_of(2)]
        assert [h.head.key for h in await search_hits(store, "common")] == [key_of(0), key_of(2)]
        near = await store.search(Search(SAMPLES, within(HERE), Near(pack_vector([1.0, 1.0, 0.5])), 5))
        assert {h.head.key for h in near} == {key_of(0), key_of(2)}
        await _only_candidates(store, 0, 2)
        by_body = await store.query(Query(SAMPLES, within(HERE), JsonPath(("n",), ">=", 0)))
        assert [r.key for r in by_body.records] == [key_of(0), key_of(2)]
    await store.close()
    again = await opened(file)
    assert isinstance(await fetch_stored(again, 1), Corrupt)
    await again.close()


@pytest.mark.parametrize(
    "became", ["CAST(id AS TEXT)", "'\u0186 nonsense'", "7", "x'00'", "CAST(x'ff2480' AS TEXT)"]
)
async def test_a_row_whose_id_is_no_id_any_more_is_corrupt_and_its_neighbours_are_served(
    store: SqliteStore, file: Path, became: str
) -> None:
    """A flipped bit of a row's header changes what type its id has."""
    await apply_all(store, *[put(full(n)) for n in range(3)])
    await damage(store, file, 1, f"id = {became}")
    for _ in range(2):
        page = await store.query(Query(SAMPLES, within(HERE)))
        assert [r.key for r in page.records] == [key_of(0), key_of(2)]
        (corrupt,) = page.corrupt
        assert isinstance((await store.get(SAMPLES, [corrupt]))[0], Corrupt)
        assert {h.head.key for h in await search_hits(store, "common")} == {key_of(0), key_of(2)}
        await _only_candidates(store, 0, 2)
    assert await store.delete_matching(Query(SAMPLES, within(HERE)), 50) == 3
    assert (await store.query(Query(SAMPLES, within(HERE)))).corrupt == ()


@pytest.mark.parametrize("became", ["CAST(x'ff24' AS TEXT)", "7", "x'00ff'"])
async def test_a_row_whose_tenant_is_no_text_any_more_is_no_hit_and_its_neighbours_are_served(
    store: SqliteStore, file: Path, became: str
) -> None:
    await apply_all(store, *[put(full(n)) for n in range(3)])
    await damage(store, file, 1, f"tenant = {became}")
    for _ in range(2):
        hits = [
            *await search_hits(store, "common"),
            *await store.search(Search(SAMPLES, within(HERE), Near(pack_vector([1.0, 1.0, 0.5])), 5)),
        ]
        read = await store.get(SAMPLES, [hit.head.key for hit in hits])
        assert {row.key for row in read if isinstance(row, Record)} == {key_of(0), key_of(2)}
        assert set((await store.candidates(ASKED)).ids) == {key_of(0).id, key_of(2).id}
        page = await store.query(Query(SAMPLES, within(HERE)))
        assert [r.key for r in page.records] == [key_of(0), key_of(2)]


async def _only_candidates(store: SqliteStore, *numbers: int) -> None:
    answer = await store.candidates(ASKED)
    assert set(answer.ids) == {key_of(n).id for n in numbers}
    assert (answer.statistics.documents, answer.statistics.containing) == (
        len(numbers),
        {"common": len(numbers), "titl": len(numbers)},
    )


@pytest.mark.parametrize(
    "change",
    [
        "id = x'00ff'",
        "id = NULL",
        "tenant = 'umbrella'",
        "scope = NULL",
        "version = 'x'",
        "tier = x'01'",
        "created_at = 'x'",
        "tags = '[' || tags",
    ],
)
async def test_a_row_with_a_value_that_is_none_is_no_candidate_and_takes_nobodys_place(
    store: SqliteStore, file: Path, change: str
) -> None:
    """Met before any read has set it aside."""
    await apply_all(store, *[put(full(n)) for n in range(6)])
    with raw(file) as connection:
        connection.execute("PRAGMA writable_schema = ON")  # for what the table would not let in
        connection.execute(
            "UPDATE sqlite_master SET sql = replace(sql, ' NOT NULL', '') WHERE name = 'samples'"
        )
    await damage(store, file, 0, change)
    answer = await store.candidates(replace(ASKED, limit=5, near=None, among=(), around=None))
    assert set(answer.ids) == {key_of(n).id for n in range(1, 6)}


async def test_a_vector_that_is_none_is_answered_as_zeros(store: SqliteStore, file: Path) -> None:
    await apply_all(store, *[put(full(n)) for n in range(3)])
    for became in ("'abcdefghijkl'", "7", "x'01'"):
        await damage(store, file, 1, f"vector = {became}")
        answer = await store.candidates(replace(ASKED, near=None, dimensions=3))
        assert [bool(vector.any()) for _, vector in sorted(zip(answer.ids, answer.vectors, strict=True))] == [
            True,
            False,
            True,
        ]


async def test_a_query_names_the_corrupt_record_each_time_and_fills_its_page(
    store: SqliteStore, file: Path
) -> None:
    await apply_all(store, *[put(full(n)) for n in range(6)])
    await damage(store, file, 1)
    for where in (within(HERE), Tenant(HERE.tenant), Everywhere()):
        for _ in range(2):
            page = await store.query(Query(SAMPLES, where, order=(Order("created_at"),), limit=3))
            assert [r.key for r in page.records] == [key_of(0), key_of(2), key_of(3)]
            assert page.corrupt == (key_of(1),)


async def test_the_row_is_kept_in_quarantine_for_people_to_look_at(store: SqliteStore, file: Path) -> None:
    await apply_all(store, put(full(1)))
    await damage(store, file, 1)
    await fetch_stored(store, 1)
    with raw(file) as connection:
        ((problem, content),) = connection.execute(
            "SELECT problem, content FROM memory_quarantine"
        ).fetchall()
        kind, title = connection.execute("SELECT row_type, text_title FROM samples").fetchone()
    assert problem == "checksum mismatch"
    assert '"text_title": "forged"' in content
    assert (kind, title) == ("corrupt", None)


@pytest.mark.parametrize("in_quarantine", [False, True])
async def test_what_writes_do_to_a_corrupt_record(
    store: SqliteStore, file: Path, in_quarantine: bool
) -> None:
    for when, status in (
        (Absent(), Status.CONFLICT),
        (AtVersion(1), Status.CONFLICT),
        (Newer(), Status.APPLIED),
        (Always(), Status.APPLIED),
    ):
        await apply_all(store, put(full(1), Always()))
        await damage(store, file, 1)
        if in_quarantine:
            assert isinstance(await fetch_stored(store, 1), Corrupt)
        outcome = await one(store, put(full(1, version=5), when))
        assert outcome.status is status, when
        if status is Status.CONFLICT:
            assert isinstance(outcome.stored, Corrupt)
        if status is Status.APPLIED:
            assert (await fetch_record(store)).version == 5
            assert [h.head.key for h in await search_hits(store, "common")] == [key_of(1)]
            assert (await store.query(Query(SAMPLES, within(HERE)))).corrupt == ()
    await damage(store, file, 1)
    await apply_all(store, delete(1, version=9))
    assert (await fetch_tombstone(store)).version == 9


@pytest.mark.parametrize("in_quarantine", [False, True])
async def test_delete_matching_reaches_corrupt_records_whatever_the_filter(
    store: SqliteStore, file: Path, in_quarantine: bool
) -> None:
    await apply_all(store, *[put(full(n)) for n in range(3)])
    await damage(store, file, 1)
    if in_quarantine:
        await fetch_stored(store, 1)
    assert await store.delete_matching(Query(SAMPLES, within(HERE), Eq("type", "no such")), 50) == 1
    assert (await fetch_tombstone(store, 1)).version == 50
    assert (await store.query(Query(SAMPLES, within(HERE)))).corrupt == ()
    with raw(file) as connection:
        assert connection.execute("SELECT count(*) FROM memory_quarantine").fetchone() == (0,)


async def test_a_damaged_index_does_not_hide_a_record(store: SqliteStore, file: Path) -> None:
    await apply_all(store, *[put(full(n)) for n in range(3)])
    await store.close()
    with raw(file) as connection:
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_samples_1'"
        ).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    flip_in_page(file, page, size, stored(key_of(1).id))
    again = await opened(file)
    assert (await fetch_record(again, 1)).same_content(full(1))
    assert (await one(again, put(full(1), Absent()))).status is Status.CONFLICT
    assert (await fetch_record(again, 2)).same_content(full(2))
    await again.close()


async def test_a_schema_that_takes_their_numbers_from_rows_refuses_searches(
    store: SqliteStore, file: Path
) -> None:
    """A flipped bit of it is enough: the number is that of the row only where its type
    is spelled so.
    """
    await apply_all(store, *[put(full(n)) for n in range(3)])
    await store.close()
    with raw(file) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_master SET sql = replace(sql, 'number INTEGER', 'number INTEGES') WHERE name ="
            " 'samples'"
        )
    again = await opened(file)
    with pytest.raises(StoreError):
        await search_hits(again, "common")
    with pytest.raises(StoreError):
        await again.candidates(ASKED)
    await again.close()


@pytest.mark.parametrize("became", ["'1,2'", "'3x'"])
async def test_damaged_counts_in_the_word_index_refuse_a_search_and_nothing_else(
    store: SqliteStore, file: Path, became: str
) -> None:
    await apply_all(store, *[put(full(n)) for n in range(3)])
    with raw(file) as connection:
        connection.execute(f"UPDATE samples_words SET counts = {became} WHERE word = 'common' AND number = 2")  # noqa: S608
    with pytest.raises(StoreError):
        await search_hits(store, "common")
    with pytest.raises(StoreError):
        await store.candidates(ASKED)
    by_meaning = await store.candidates(replace(ASKED, text="", counted=()))
    assert set(by_meaning.ids) == {key_of(n).id for n in range(3)}
    assert [r.key for r in (await store.query(Query(SAMPLES, within(HERE)))).records] == [
        key_of(n) for n in range(3)
    ]


async def test_random_flips_anywhere_in_the_file_never_give_wrong_content(
    store: SqliteStore, file: Path, tmp_path: Path
) -> None:
    originals = {n: full(n) for n in range(40)}
    await apply_all(store, *[put(r) for r in originals.values()])
    await store.close()
    with raw(file) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    pristine = content_of(file)
    chance = random.Random(20261121)  # noqa: S311
    served = refused = 0
    for round_ in range(60):
        content = bytearray(pristine)
        for _ in range(chance.choice((1, 1, 3, 40))):
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        copy = tmp_path / f"{round_}.db"
        write_content(copy, content)
        right, wrong = await _read_everything(copy, originals)
        served, refused = served + right, refused + wrong
    assert served > 1000
    assert refused > 0


async def _read_everything(file: Path, originals: dict[int, Record]) -> tuple[int, int]:
    """How many answers were right and how many refused; any other fails here."""
    store = SqliteStore(f"sqlite:///{file}")
    right = refused = 0
    try:
        try:
            await store.open((SAMPLES,))
        except MemoryTiersError:
            return 0, 1
        for n, original in originals.items():
            try:
                answer = await fetch_stored(store, n)
            except StoreError:
                refused += 1
                continue
            if isinstance(answer, Corrupt):
                refused += 1
                continue
            assert isinstance(answer, Record), f"record {n} is gone"
            assert answer.same_content(original)
            right += 1
        near = Search(SAMPLES, within(HERE), Near(pack_vector([1.0, 3.0, 0.5])), 10)
        for look in (
            lambda: _listed(store),
            lambda: search_hits(store, "common title"),
            lambda: store.search(near),
            lambda: _candidates(store),
        ):
            try:
                answers: list[object] = [*await look()]
                if hits := [
                    a for a in answers if isinstance(a, Hit)
                ]:  # heads are not held against checksums: what is shown is read by its key
                    answers = [*await store.get(SAMPLES, [hit.head.key for hit in hits])]
            except StoreError:
                refused += 1
                continue
            for shown in (a for a in answers if isinstance(a, Record)):
                assert shown.same_content(originals[shown.body["n"]])
                right += 1
    finally:
        await store.close()
    return right, refused


async def _candidates(store: SqliteStore) -> list[Stored | None]:
    """Their columns are not held against checksums either."""
    return await store.get(SAMPLES, [Key(HERE.tenant, one) for one in (await store.candidates(ASKED)).ids])


async def _listed(store: SqliteStore) -> list[Record]:
    page = await store.query(Query(SAMPLES, within(HERE), order=(Order("created_at", True),)))
    return [r for r in page.records if isinstance(r, Record)]


async def test_a_torn_file_is_an_error_of_ours(store: SqliteStore, file: Path, tmp_path: Path) -> None:
    await apply_all(store, *[put(full(n)) for n in range(40)])
    await store.close()
    torn = tmp_path / "torn.db"
    content = content_of(file)
    write_content(torn, content[: len(content) // 2])
    right, refused = await _read_everything(torn, {n: full(n) for n in range(40)})
    assert refused > 0, right
