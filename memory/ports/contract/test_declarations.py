"""Stores opened with other declarations than their records: more fields, or fewer."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
import pytest_asyncio

from memory.ports.collections import Collection, Field, FieldType, TextPart
from memory.ports.contract.capability_tests import needs
from memory.ports.contract.clauses import clause
from memory.ports.contract.harness import Harness
from memory.ports.contract.support import (
    HERE,
    T0,
    apply_all,
    delete,
    fetch_record,
    fetch_stored,
    id_of,
    key_of,
    one,
    put,
    query_ids,
    record,
)
from memory.ports.query import And, Eq, Gt, In, IsNull, Not, Order, Query, Search, Words, within
from memory.ports.record import FieldValue, Record, Role, Tombstone
from memory.ports.store import Store
from memory.ports.writes import Annotate, RaiseGeneration, Status

FIELDS = (Field("shade", FieldType.TEXT, indexed=True), Field("seen", FieldType.TIME))
MORE = (
    *(
        Field("colour", FieldType.TEXT, indexed=True),
        *FIELDS,
        Field("weight", FieldType.REAL),
        Field("marks", FieldType.TAGS),
    ),
    *(Field("ordinal", FieldType.INTEGER, indexed=True), Field("due", FieldType.TIME)),
)
"""Fields before, behind and between the existing ones, of every layout."""
GIVEN: dict[str, FieldValue] = {
    "colour": "red",
    "shade": "dark",
    "weight": 0.1,
    "marks": (),
    "ordinal": 2**60 + 1,
    "due": T0,
}


@pytest.fixture
def narrow() -> Collection:
    """Return a collection with a name of its own.

    Tests may share a server, so no other test may use its table.
    """
    return Collection(f"shades_{secrets.token_hex(4)}", FIELDS, (TextPart("content", 1.0),))


@pytest.fixture
def wide(narrow: Collection) -> Collection:
    return replace(narrow, fields=MORE, indexes=(("shade", "ordinal"),))


@pytest_asyncio.fixture
async def unopened_store(harness: Harness) -> AsyncIterator[Store]:
    made = await harness.make()
    try:
        yield made
    finally:
        await harness.dispose(made)


async def _search_ids(store: Store, collection: Collection, word: str) -> list[str]:
    hits = await store.search(Search(collection, within(HERE), Words(word), 10))
    return sorted(hit.head.key.id for hit in hits)


@clause("declared.more")
@pytest.mark.asyncio
async def test_a_store_opened_with_fields_more_keeps_what_it_has_and_takes_them(
    harness: Harness, unopened_store: Store, narrow: Collection, wide: Collection
) -> None:
    await unopened_store.open((narrow,))
    claims = unopened_store.capabilities
    old = [
        record(n, fields={"shade": "dark", "seen": T0}, texts={"content": "lantern"}, role=role)
        for n, role in enumerate(Role)
    ]
    await apply_all(unopened_store, RaiseGeneration(HERE, 3), *[put(r, collection=narrow) for r in old])
    before = [await fetch_record(unopened_store, n, collection=narrow) for n in range(len(old))]
    again = await harness.reopen(unopened_store)
    try:
        await again.open((wide,))
        if not (again.capabilities.durable or again is unopened_store):
            return
        assert [await fetch_record(again, n, collection=wide) for n in range(len(old))] == before
        await apply_all(again, put(record(10, fields=GIVEN, texts={"content": "lantern"}), collection=wide))
        assert (await fetch_record(again, 10, collection=wide)).fields == GIVEN
        if claims.conditional:
            await apply_all(again, Annotate(wide, key_of(0), 1, accessed_at=T0), delete(1, collection=wide))
            assert (await fetch_record(again, 0, collection=wide)).fields == old[0].fields
            assert isinstance(await fetch_stored(again, 1, collection=wide), Tombstone)
        await apply_all(again, put(replace(old[2], version=2, fields=GIVEN), collection=wide))
        assert (await fetch_record(again, 2, collection=wide)).fields == GIVEN
        roles = frozenset(Role)
        there = [id_of(n) for n in ((0, 2, 3, 10) if claims.conditional else (0, 1, 2, 3, 10))]
        assert sorted(await query_ids(again, collection=wide, roles=roles)) == there
        if claims.filter:
            given, lacking = [id_of(2), id_of(10)], [i for i in there if i not in (id_of(2), id_of(10))]
            for part in (
                *(
                    Eq("colour", "red"),
                    In("ordinal", (2**60 + 1, 5)),
                    Gt("due", T0 - timedelta(days=1)),
                    Eq("weight", 0.1),
                    Not(IsNull("marks")),
                ),
                And((Eq("shade", "dark"), Eq("ordinal", 2**60 + 1))),
            ):
                assert sorted(await query_ids(again, part=part, collection=wide, roles=roles)) == given, part
                assert (await again.count(Query(wide, within(HERE), part, roles=roles))).records == 2
            for field in ("colour", "weight", "marks", "ordinal", "due"):
                assert (
                    sorted(await query_ids(again, part=IsNull(field), collection=wide, roles=roles))
                    == lacking
                ), field
        if claims.order:
            ordered = await query_ids(
                again, order=(Order("ordinal"), Order("created_at")), collection=wide, roles=roles
            )
            assert ordered[-2:] == [id_of(2), id_of(10)]
        if claims.lexical:
            homes = [n for n, role in enumerate(Role) if role is Role.HOME and id_of(n) in there]
            assert await _search_ids(again, wide, "lantern") == [*map(id_of, homes), id_of(10)]
        assert (await again.audit()).problems == ()
    finally:
        await again.close()


@clause("declared.fewer")
@pytest.mark.asyncio
async def test_what_a_store_opened_with_fewer_fields_does_not_declare_stays_with_its_records(
    harness: Harness, unopened_store: Store, narrow: Collection, wide: Collection
) -> None:
    await unopened_store.open((wide,))
    await apply_all(
        unopened_store,
        *[put(record(n, fields=GIVEN, texts={"content": "lantern"}), collection=wide) for n in range(3)],
    )
    earlier = await harness.reopen(unopened_store)
    later = earlier
    try:
        await earlier.open((narrow,))
        claims = earlier.capabilities
        if not (claims.durable or earlier is unopened_store):
            return
        assert [
            _declared_fields(await fetch_record(earlier, n, collection=narrow), narrow) for n in range(3)
        ] == [{"shade": "dark"}] * 3
        if claims.filter:
            assert await query_ids(earlier, part=Eq("shade", "dark"), collection=narrow) == [
                id_of(n) for n in range(3)
            ]
        if claims.lexical:
            assert await _search_ids(earlier, narrow, "lantern") == [id_of(n) for n in range(3)]
        if claims.conditional:
            await apply_all(earlier, Annotate(narrow, key_of(0), 1, accessed_at=T0))
        await apply_all(
            earlier,
            put(record(1, version=2, fields={"shade": "pale"}), collection=narrow),
            put(record(3), collection=narrow),
        )
        assert (await earlier.audit()).problems == ()
        later = await harness.reopen(earlier)
        await later.open((wide,))
        fields = [(await fetch_record(later, n, collection=wide)).fields for n in range(4)]
        assert fields == [GIVEN, {"shade": "pale"}, GIVEN, {}], "a put replaces the whole record"
        if claims.filter:
            assert await query_ids(later, part=Eq("colour", "red"), collection=wide) == [id_of(0), id_of(2)]
            assert await query_ids(later, part=Eq("weight", 0.1), collection=wide) == [id_of(0), id_of(2)]
            assert await query_ids(later, part=Not(IsNull("marks")), collection=wide) == [id_of(0), id_of(2)]
        assert (await later.audit()).problems == ()
    finally:
        await later.close()


@clause("declared.fewer", "shared.sees")
@needs("shared")
@pytest.mark.asyncio
async def test_a_store_that_is_open_goes_on_beside_one_that_was_opened_with_fields_more(
    harness: Harness, unopened_store: Store, narrow: Collection, wide: Collection
) -> None:
    """A release is rolled out process by process.

    Each process sees the other's writes, and takes none of them for damaged.
    """
    await unopened_store.open((narrow,))
    await apply_all(
        unopened_store,
        *[
            put(record(n, fields={"shade": "dark"}, texts={"content": "lantern"}), collection=narrow)
            for n in range(4)
        ],
    )
    other = await harness.client(unopened_store)
    try:
        await other.open((wide,))
        given = [record(n, version=2, fields=GIVEN, texts={"content": "lantern"}) for n in range(3)]
        await apply_all(other, *[put(r, collection=wide) for r in given])
        claims = unopened_store.capabilities
        assert [
            _declared_fields(await fetch_record(unopened_store, n, collection=narrow), narrow)
            for n in range(4)
        ] == [{"shade": "dark"}] * 4
        assert sorted(await query_ids(unopened_store, collection=narrow)) == [id_of(n) for n in range(4)]
        if claims.lexical:
            assert await _search_ids(unopened_store, narrow, "lantern") == [id_of(n) for n in range(4)]
        if claims.conditional:
            await apply_all(unopened_store, Annotate(narrow, key_of(0), 2, accessed_at=T0))
        await apply_all(
            unopened_store,
            put(record(1, version=3, fields={"shade": "pale"}), collection=narrow),
            put(record(9), collection=narrow),
        )
        assert [(await fetch_record(other, n, collection=wide)).fields for n in (0, 1, 2, 9)] == [
            GIVEN,
            {"shade": "pale"},
            GIVEN,
            {},
        ]
        if claims.filter:
            assert await query_ids(other, part=Eq("colour", "red"), collection=wide) == [id_of(0), id_of(2)]
        assert (await other.audit()).problems == () == (await unopened_store.audit()).problems
    finally:
        await other.close()


def _declared_fields(stored: Record, collection: Collection) -> dict[str, object]:
    """Return the record's declared fields; stores may return others too."""
    return {name: value for name, value in stored.fields.items() if collection.field(name) is not None}


@clause("refused.record", "query.order")
@pytest.mark.asyncio
async def test_a_record_without_a_required_field_is_rejected_and_an_order_by_it_misses_none(
    unopened_store: Store, narrow: Collection
) -> None:
    numbered = replace(
        narrow,
        fields=(*FIELDS, Field("place", FieldType.INTEGER, required=True)),
        indexes=(("shade", "place"),),
    )
    await unopened_store.open((numbered,))
    for fields in ({"shade": "dark"}, {"shade": "dark", "place": None}):
        refused = await one(unopened_store, put(record(1, fields=fields), collection=numbered))
        assert refused.status is Status.REJECTED
        assert "'place'" in refused.reason
    assert await fetch_stored(unopened_store, 1, collection=numbered) is None
    await apply_all(
        unopened_store,
        *[
            put(record(n, fields={"shade": "dark" if n % 2 else "pale", "place": -n}), collection=numbered)
            for n in range(7)
        ],
    )
    if unopened_store.capabilities.order:
        ids: list[str] = []
        query = Query(numbered, within(HERE), order=(Order("place"),), limit=3)
        while True:
            page = await unopened_store.query(query)
            ids += [r.key.id for r in page.records]
            if page.cursor is None:
                break
            query = replace(query, cursor=page.cursor)
        assert ids == [id_of(n) for n in range(6, -1, -1)]
        if unopened_store.capabilities.filter:
            dark = await query_ids(
                unopened_store,
                part=Eq("shade", "dark"),
                order=(Order("place", descending=True),),
                limit=2,
                collection=numbered,
            )
            assert dark == [id_of(1), id_of(3)]
