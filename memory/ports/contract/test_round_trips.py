"""Round trips: every collection and type, and hostile values.

Arguments and results share no references with the store.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from memory.ports.collections import Collection, FieldType
from memory.ports.contract.capability_tests import needs
from memory.ports.contract.cells import cells
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import DECLARED, MORE_SAMPLES, SAMPLES
from memory.ports.contract.support import (
    HERE,
    T0,
    apply_all,
    delete,
    fetch_mark,
    fetch_record,
    fetch_tombstone,
    key_of,
    put,
    query_ids,
    record,
    release,
)
from memory.ports.query import Eq, Query, within
from memory.ports.record import FieldValue, PendingStep, Role, pack_vector
from memory.ports.store import Store
from memory.ports.writes import Annotate

TEXTS = [
    "",
    " ",
    "trailing ",
    "O'Brien said \"hello\" -- ; DROP TABLE samples; \\ \\x00 %s {0} $1 :name",
    "Zürich, 東京, Ελλάδα, العربية, עברית, हिन्दी",
    "👩‍👩‍👧‍👦 e\u0301 é \u202eright to left\u202c \ufeff\u200b",
    "line\nbreak\r\n\ttab \x01\x1f\x7f\x85\u2028",
    "null", "true", "NaN", "0", "[]", "{}", "*", "%", "_",
    "x" * 200_000,
]  # fmt: skip
MOMENTS = [
    T0,
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(1, 1, 1, tzinfo=UTC),
]
REALS = [0.0, -0.0, 0.1, 1e308, -1e308, 5e-324, 1.7976931348623157e308, 1 / 3, 2.0**53 + 2, -1.5]
JSON: dict[str, Any] = {
    "null": None,
    "flags": [True, False],
    "numbers": [0, -1, 2**63 - 1, -(2**63), 2**53 + 1, *REALS],
    "texts": TEXTS[:-1],
    "empty": [[], {}, [[]], {"": ""}],
    "keys": {"a.b": 1, "$set": 2, "": 3, "with space": 4, "ключ": 5, "__proto__": 6},
    "nested": {"a": [{"b": [{"c": [{"d": "deep"}]}]}]},
    "order": {"z": 1, "a": 2, "m": 3},
}
OF_TYPE: dict[FieldType, FieldValue] = {
    FieldType.TEXT: "Zürich ' \" %",
    FieldType.INTEGER: 2**63 - 1,
    FieldType.REAL: 0.1,
    FieldType.BOOLEAN: True,
    FieldType.TIME: T0,
    FieldType.TAGS: ("b", "a", "B", ""),
    FieldType.BYTES: bytes(range(256)),
}


@clause("content.exact", "bookkeeping.kept")
@pytest.mark.asyncio
@cells("collection", DECLARED, ids=lambda c: c.name, shared=True)
async def test_a_full_record_of_every_collection_comes_back_as_it_was(
    store: Store, collection: Collection
) -> None:
    whole = record(
        version=1_715_000_000_000_001,
        expires_at=datetime(2999, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        fields={f.name: OF_TYPE[f.type] for f in collection.fields},
        body=JSON,
        texts={part.name: f"the {part.name} of it" for part in collection.texts},
        vector=pack_vector([0.25, -1e-30, 3e38]) if collection.vector else None,
        generation=3,
        role=Role.REPLICA,
        tier="long",
        owed=(
            PendingStep("deliver", "deliver", {"to": ["x", None, {"y": 1.5}]}),
            PendingStep("erase", "erase"),
        ),
        previous=1_714_000_000_000_000,
        accesses=7,
        accessed_at=T0,
        cached_at=T0 + timedelta(microseconds=1),
        epoch="run-1",
    )
    await apply_all(store, put(whole, collection=collection))
    assert await fetch_record(store, collection=collection) == whole


@clause("content.exact", "bookkeeping.kept")
@pytest.mark.asyncio
@cells("collection", DECLARED, ids=lambda c: c.name, shared=True)
async def test_a_bare_record_of_every_collection_comes_back_as_it_was(
    store: Store, collection: Collection
) -> None:
    await apply_all(store, put(record(generation=0), collection=collection))
    assert await fetch_record(store, collection=collection) == record(generation=0)


@clause("content.exact")
@pytest.mark.asyncio
async def test_every_text_comes_back_unchanged_wherever_it_stands(store: Store) -> None:
    for n, text in enumerate(TEXTS):
        await apply_all(
            store,
            put(
                record(
                    n,
                    fields={"type": text, "tags": (text, "x")},
                    texts={"content": text, "title": text},
                    body={"t": text},
                )
            ),
        )
    for n, text in enumerate(TEXTS):
        stored = await fetch_record(store, n)
        assert (stored.fields["type"], stored.fields["tags"]) == (text, (text, "x"))
        assert (stored.texts["content"], stored.texts["title"], stored.body["t"]) == (text, text, text)


@clause("content.exact", "bookkeeping.kept", "release.mark", "annotate.only")
@pytest.mark.asyncio
async def test_every_text_comes_back_unchanged_in_bookkeeping_too(store: Store) -> None:
    """These are tiers, runs and step names, in records, marks and tombstones."""
    texts = [*TEXTS[:-1], "x" * 200]
    steps = [
        (
            PendingStep(text, text, {text: text}),
            PendingStep("long", text + "y" * 1_000),
            PendingStep("y" * 1_000 + text, "long"),
        )
        for text in texts
    ]
    books = list(zip(texts, steps, strict=True))
    await apply_all(
        store, *[put(record(n, tier=text, epoch=text, owed=owed)) for n, (text, owed) in enumerate(books)]
    )
    stands = [await fetch_record(store, n) for n in range(len(texts))]
    assert [(s.tier, s.epoch, s.owed) for s in stands] == [(text, text, owed) for text, owed in books]
    if not store.capabilities.conditional:
        return
    for n, (text, owed) in enumerate(books):
        await apply_all(
            store, put(record(100 + n)), release(100 + n, to=text, owed=owed), delete(200 + n, owed=owed)
        )
        await apply_all(
            store, put(record(300 + n, tier="another")), Annotate(SAMPLES, key_of(300 + n), 1, tier=text)
        )
        mark = await fetch_mark(store, 100 + n)
        assert (
            mark.to,
            mark.owed,
            (await fetch_tombstone(store, 200 + n)).owed,
            (await fetch_record(store, 300 + n)).tier,
        ) == (text, owed, owed, text)


@clause("moments.utc")
@pytest.mark.asyncio
@cells("at", MOMENTS, ids=str, shared=True)
async def test_moments_keep_their_microseconds(store: Store, at: datetime) -> None:
    await apply_all(
        store,
        put(
            record(
                created_at=at,
                updated_at=at,
                expires_at=max(at, T0),
                accessed_at=at,
                fields={"valid_from": at, "valid_to": at},
            )
        ),
    )
    stored = await fetch_record(store)
    assert [
        stored.created_at,
        stored.updated_at,
        stored.accessed_at,
        stored.fields["valid_from"],
        stored.fields["valid_to"],
    ] == [at] * 5
    assert stored.expires_at == max(at, T0)


@clause("moments.utc", "bookkeeping.kept", since=3)
@pytest.mark.asyncio
async def test_moments_far_from_now_keep_their_microseconds_wherever_they_stand(store: Store) -> None:
    """Seconds as a double have no microseconds there, and nanoseconds no 64 bits."""
    far = [
        datetime(1, 1, 2, 3, 4, 5, 740_993, tzinfo=UTC),
        datetime(2255, 6, 5, 23, 47, 34, 740_993, tzinfo=UTC),
        datetime(9876, 5, 4, 3, 2, 1, 234_567, tzinfo=UTC),
    ]
    for n, at in enumerate(far):
        end = max(at, T0)
        times: dict[str, Any] = {
            "created_at": at,
            "updated_at": at,
            "accessed_at": at,
            "cached_at": at,
            "expires_at": end,
        }
        await apply_all(
            store, put(record(n, fields={"valid_from": at, "valid_to": at}, generation=0, **times))
        )
        stored = await fetch_record(store, n)
        assert stored == record(n, fields={"valid_from": at, "valid_to": at}, generation=0, **times)
        if store.capabilities.conditional:
            await apply_all(
                store, put(record(10 + n)), release(10 + n, discard_at=end), delete(20 + n, discard_at=end)
            )
            await apply_all(store, put(record(30 + n)), Annotate(SAMPLES, key_of(30 + n), 1, accessed_at=at))
            left = (await fetch_mark(store, 10 + n), await fetch_tombstone(store, 20 + n))
            assert [standing.discard_at for standing in left] == [end, end]
            assert (await fetch_record(store, 30 + n)).accessed_at == at


@clause("moments.utc")
@pytest.mark.asyncio
async def test_moments_of_other_zones_come_back_as_the_same_moments_in_utc(store: Store) -> None:
    there = T0.astimezone(timezone(timedelta(hours=5, minutes=45)))
    await apply_all(
        store, put(record(created_at=there, updated_at=there, expires_at=there, fields={"valid_from": there}))
    )

    stored = await fetch_record(store)

    moments = [stored.created_at, stored.updated_at, stored.expires_at, stored.fields["valid_from"]]
    assert moments == [T0] * 4
    assert [m.utcoffset() for m in moments if isinstance(m, datetime)] == [timedelta(0)] * 4


@clause("numbers.exact")
@pytest.mark.asyncio
@cells("value", REALS, ids=repr, shared=True)
async def test_reals_come_back_to_the_last_bit(store: Store, value: float) -> None:
    await apply_all(store, put(record(fields={"confidence": value}, body={"r": value})))
    stored = await fetch_record(store)
    assert stored.fields["confidence"] == value
    assert repr(stored.body["r"]) == repr(value), "also the sign of nought"


@clause("numbers.exact")
@pytest.mark.asyncio
@cells("value", [0, -1, 2**53 + 1, 2**63 - 1, -(2**63)], shared=True)
async def test_integers_keep_all_64_bits(store: Store, value: int) -> None:
    await apply_all(store, put(record(fields={"stored_version": value}), collection=MORE_SAMPLES))
    assert (await fetch_record(store, collection=MORE_SAMPLES)).fields["stored_version"] == value


@clause("numbers.exact", "bookkeeping.kept", since=3)
@pytest.mark.asyncio
async def test_numbers_of_bookkeeping_keep_all_64_bits(store: Store) -> None:
    numbers = [2**31, 2**53 + 1, 2**62 + 1]
    await apply_all(store, *[put(record(n, accesses=v, previous=v)) for n, v in enumerate(numbers)])
    stored = [await fetch_record(store, n) for n in range(3)]
    assert [(s.accesses, s.previous) for s in stored] == [(v, v) for v in numbers]
    if store.capabilities.filter:
        for n, value in enumerate(numbers):
            assert await query_ids(store, part=Eq("accesses", value)) == [key_of(n).id]
    if store.capabilities.conditional:
        await apply_all(store, *[Annotate(SAMPLES, key_of(n), 1, accessed_at=T0) for n in range(3)])
        assert [(await fetch_record(store, n)).accesses for n in range(3)] == [v + 1 for v in numbers]


@clause("content.exact")
@pytest.mark.asyncio
async def test_tags_keep_their_order_and_their_doubles(store: Store) -> None:
    sets = [(), ("",), ("b", "a", "b"), ("A", "a"), ('"', "'", ",", "a,b", "[]", "\\")]
    await apply_all(store, *[put(record(n, fields={"tags": tags})) for n, tags in enumerate(sets)])
    assert [(await fetch_record(store, n)).fields["tags"] for n in range(len(sets))] == sets


@clause("json.types")
@pytest.mark.asyncio
async def test_booleans_and_numbers_in_json_stay_what_they_are(store: Store) -> None:
    body = {"one": 1, "true": True, "real": 1.0, "text": "1"}
    await apply_all(store, put(record(body=body)))
    assert {k: type(v) for k, v in (await fetch_record(store)).body.items()} == {
        "one": int,
        "true": bool,
        "real": float,
        "text": str,
    }


@clause("content.none")
@pytest.mark.asyncio
async def test_a_field_of_none_is_a_missing_field(store: Store) -> None:
    await apply_all(store, put(record(fields={"type": None, "tags": (), "source": ""})))
    assert dict((await fetch_record(store)).fields) == {"tags": (), "source": ""}


@clause("query.all", "content.exact")
@pytest.mark.asyncio
async def test_a_query_hands_out_the_same_records_as_a_get(store: Store) -> None:
    await apply_all(
        store,
        put(
            record(
                body=JSON,
                fields={"tags": ("a",), "valid_from": T0},
                texts={"title": "t"},
                vector=pack_vector([1.0]),
            )
        ),
    )
    page = await store.query(Query(SAMPLES, within(HERE)))

    assert page.records == (await fetch_record(store),)
    assert (page.cursor, page.corrupt) == (None, ())


@clause("get.order", "ttl.kinds")
@pytest.mark.asyncio
async def test_an_expired_record_is_hidden_by_readers_not_by_the_store(store: Store) -> None:
    """A store that claims `ttl` deletes it some time later; until then it exists."""
    soon = datetime.now(UTC) + timedelta(minutes=5)
    await apply_all(store, put(record(expires_at=soon)))
    assert (await fetch_record(store)).expires_at == soon
    assert await query_ids(store) == [record().key.id]


# -- nothing is shared -----------------------------------------------------------------


@clause("shared.nothing-in")
@pytest.mark.asyncio
async def test_changing_what_was_handed_in_changes_nothing_stored(store: Store) -> None:
    fields: dict[str, FieldValue] = {"type": "a"}
    texts = {"title": "a"}
    body: dict[str, Any] = {"list": [1], "dict": {"k": [1]}}
    owed: dict[str, Any] = {"to": ["a"]}
    await apply_all(
        store, put(record(fields=fields, texts=texts, body=body, owed=(PendingStep("k", "k", owed),)))
    )

    fields["type"] = texts["title"] = "b"
    body["list"].append(2)
    body["dict"]["k"].append(2)
    body["new"] = 1
    owed["to"].append("b")

    stored = await fetch_record(store)
    assert (stored.fields["type"], stored.texts["title"]) == ("a", "a")
    assert dict(stored.body) == {"list": [1], "dict": {"k": [1]}}
    assert stored.owed == (PendingStep("k", "k", {"to": ["a"]}),)


@clause("shared.nothing-in")
@needs("conditional")
@pytest.mark.asyncio
async def test_changing_a_note_that_was_handed_in_changes_nothing_stored(store: Store) -> None:
    note: dict[str, Any] = {"list": [1]}
    await apply_all(store, delete(note=note))

    note["list"].append(2)

    assert dict((await fetch_tombstone(store)).note) == {"list": [1]}


@clause("shared.nothing-out")
@pytest.mark.asyncio
async def test_changing_what_was_handed_out_changes_nothing_stored(store: Store) -> None:
    await apply_all(
        store,
        put(
            record(
                fields={"type": "a"},
                body={"list": [1]},
                owed=(PendingStep("k", "k", {"to": ["a"]}),),
                generation=0,
            )
        ),
    )
    out: Any = await fetch_record(store)

    changes: list[Callable[[], Any]] = [
        lambda: out.fields.update(type="b"),
        lambda: out.body["list"].append(2),
        lambda: out.body.clear(),
        lambda: out.owed[0].data["to"].append("b"),
    ]
    for change in changes:
        with contextlib.suppress(TypeError, AttributeError):  # to refuse the change is as good
            change()

    assert await fetch_record(store) == record(
        fields={"type": "a"}, body={"list": [1]}, owed=(PendingStep("k", "k", {"to": ["a"]}),), generation=0
    )


@clause("shared.nothing-out")
@pytest.mark.asyncio
async def test_what_was_handed_out_does_not_change_with_later_writes(store: Store) -> None:
    await apply_all(store, put(record(fields={"type": "a"}, generation=0)))
    out = await fetch_record(store)
    await apply_all(store, put(record(version=2, fields={"type": "b"}, generation=0)))
    assert out == record(fields={"type": "a"}, generation=0)
