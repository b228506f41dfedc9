"""Documents: JSON or bytes under keys, on condition of versions, in key order, in
groups. On every topology whose store of tier mid can be their home.
"""

from __future__ import annotations

import asyncio
import enum
import random
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest

from memory import (
    ABSENT,
    Conflict,
    Document,
    DocumentDelete,
    DocumentPut,
    InvalidInput,
    LegalHoldActive,
    Quota,
    QuotaExceeded,
    Unsupported,
    VersionConflict,
)
from memory.domain import document as domain
from memory.domain.errors import CorruptRecord, Forbidden
from memory.domain.scope import Scope
from memory.facade.memory import Memory
from memory.facade.runtime.access import engine_of
from memory.orchestrator.documents import documents
from memory.orchestrator.storage.collections import DOCUMENT_CHUNKS, DOCUMENTS
from memory.ports.query import Everywhere, Query
from memory.ports.record import Record
from memory.ports.writes import AtVersion, Delete
from tests.acceptance.conftest import keeping_bytes
from tests.acceptance.support import DAY, HOUR, OTHER_USER, SESSION, USER, Clock, watching
from tests.support.depth import drawn

config = keeping_bytes()

VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    2**63 - 1,
    -(2**63),
    0.1,
    1.0,
    -0.0,
    1e308,
    "",
    'żółć \U0001f41f \x00 \u2028 \\ "',
    [],
    {},
    [None, [1, [2.0, "3"]], {}],
    {"": 1, "a.b": {"$gt": [False]}, "ключ": None, "\x00": "nul"},
    b"",
    bytes(range(256)),
    "x" * 10_000,
]


async def stored(memory: Memory) -> list[int]:
    """How many documents and how many of their chunks are stored."""
    archive = engine_of(memory).topology.archive
    return [(await archive.count(Query(c, Everywhere()))).records for c in (DOCUMENTS, DOCUMENT_CHUNKS)]


def equal(one: Any, other: Any) -> bool:
    """Equal, and of the same types throughout."""
    return bool(one == other) and repr(one) == repr(other)


async def keys_of(memory: Memory, scope: Scope = USER, **asked: Any) -> list[str]:
    return [one.key for one in (await memory.documents.list(scope, **asked)).documents]


async def test_values_return_equal(memory: Memory) -> None:
    for number, value in enumerate(VALUES):
        await memory.documents.put(USER, f"k{number}", value)
    found = await memory.documents.get_many(USER, [f"k{number}" for number in range(len(VALUES))])
    for value, document in zip(VALUES, found, strict=True):
        assert document is not None
        assert equal(document.value, value), value
        assert document.form == ("bytes" if isinstance(value, bytes) else "json")
    page = await memory.documents.list(USER, values=True)
    by_key = {one.key: one for one in page.documents}
    for number, value in enumerate(VALUES):
        listed = by_key[f"k{number}"]
        assert isinstance(listed, Document)
        assert equal(listed.value, value)


async def test_a_document_is_replaced_and_keeps_its_creation(memory: Memory, clock: Clock) -> None:
    first = await memory.documents.put(USER, "k", {"a": 1}, metadata={"of": "ada"})
    found = await memory.documents.get(USER, "k")
    assert found is not None
    assert (found.value, found.metadata, found.version) == ({"a": 1}, {"of": "ada"}, first.version)
    assert (found.scope, found.key, found.size) == (USER.text, "k", 7)
    clock.advance(HOUR)
    second = await memory.documents.put(USER, "k", b"bytes")
    found = await memory.documents.get(USER, "k")
    assert found is not None
    assert (found.value, found.metadata, found.size) == (b"bytes", {}, 5)
    assert found.created_at == first.created_at < found.updated_at == second.updated_at
    assert found.version == second.version != first.version
    found.metadata["mine"] = 1
    assert (await memory.documents.get(USER, "k")).metadata == {}  # type: ignore[union-attr]


async def test_documents_are_told_apart_by_key_scope_and_tenant(memory: Memory) -> None:
    await memory.documents.put(USER, "k", 1)
    await memory.documents.put(USER, "K", 2)
    await memory.documents.put(USER, "k ", 3)
    await memory.documents.put(OTHER_USER, "k", 4)
    await memory.documents.put(SESSION, "k", 5)
    async with memory.for_tenant("another") as another:
        assert await another.documents.get(USER, "k") is None
        await another.documents.put(USER, "k", 6)
        await another.documents.delete(USER, "K")
    found = [await memory.documents.get(USER, key) for key in ("k", "K", "k ", "kk")]
    assert [one and one.value for one in found] == [1, 2, 3, None]
    assert [await keys_of(memory, scope) for scope in (USER, OTHER_USER, SESSION)] == [
        ["K", "k", "k "],
        ["k"],
        ["k"],
    ]
    assert await memory.retrieve(scope=USER) == []
    assert await memory.search("k", scope=USER) == []


async def test_expected_versions_decide(memory: Memory) -> None:
    with pytest.raises(VersionConflict) as none:
        await memory.documents.put(USER, "k", 1, expected_version="6616f84fd1ba7")
    assert none.value.current_version is None
    first = await memory.documents.put(USER, "k", 1, expected_version=ABSENT)
    with pytest.raises(VersionConflict) as there:
        await memory.documents.put(USER, "k", 2, expected_version=ABSENT)
    assert there.value.current_version == first.version
    second = await memory.documents.put(USER, "k", 2, expected_version=first.version)
    for stale in (first.version, ABSENT):
        with pytest.raises(VersionConflict) as late:
            await memory.documents.put(USER, "k", 3, expected_version=stale)
        assert late.value.current_version == second.version
        with pytest.raises(VersionConflict):
            await memory.documents.delete(USER, "k", expected_version=stale)
    with pytest.raises(Conflict, match="exists already"):
        await memory.documents.put(USER, "k", 2, if_exists="error")
    assert (await memory.documents.get(USER, "k")).value == 2  # type: ignore[union-attr]
    assert await memory.documents.delete(USER, "k", expected_version=second.version) is True
    assert await memory.documents.delete(USER, "k") is False
    with pytest.raises(VersionConflict):
        await memory.documents.delete(USER, "k", expected_version=second.version)
    assert await memory.documents.get(USER, "k") is None
    third = await memory.documents.put(USER, "k", 4, if_exists="error")
    assert third.created_at > second.created_at
    assert third.version > second.version


async def test_one_of_many_writers_wins_each_condition(memory: Memory) -> None:
    async def create(number: int) -> bool:
        try:
            await memory.documents.put(USER, "k", number, expected_version=ABSENT)
        except VersionConflict:
            return False
        return True

    assert sum(await asyncio.gather(*map(create, range(8)))) == 1

    async def count() -> None:
        while True:
            found = await memory.documents.get(USER, "count")
            seen = ABSENT if found is None else found.version
            value = 1 if found is None else found.value + 1
            try:
                await memory.documents.put(USER, "count", value, expected_version=seen)
            except VersionConflict:
                continue
            return

    await asyncio.gather(*(count() for _ in range(8)))
    assert (await memory.documents.get(USER, "count")).value == 8  # type: ignore[union-attr]
    await asyncio.gather(*(memory.documents.put(USER, "last", number) for number in range(8)))
    assert (await memory.documents.get(USER, "last")).value in range(8)  # type: ignore[union-attr]


async def test_an_expired_document_is_absent_and_a_sweep_deletes_it(memory: Memory, clock: Clock) -> None:
    info = await memory.documents.put(USER, "k", 1, expires_in=HOUR)
    assert info.expires_at == info.updated_at + HOUR
    await memory.documents.put(USER, "large", "y" * 300_000, expires_in=HOUR)
    await memory.documents.put(USER, "stays", 1)
    assert await keys_of(memory) == ["k", "large", "stays"]
    clock.advance(2 * HOUR)
    assert await memory.documents.get(USER, "k") is None
    assert await keys_of(memory) == ["stays"]
    assert await memory.documents.delete(USER, "k") is False
    with pytest.raises(VersionConflict):
        await memory.documents.put(USER, "k", 2, expected_version=info.version)
    again = await memory.documents.put(USER, "k", 2, if_exists="error", expires_in="2h")
    assert again.created_at > info.created_at
    clock.advance(HOUR)
    assert (await memory.documents.get(USER, "k")).value == 2  # type: ignore[union-attr]
    clock.advance(3 * DAY)
    for _ in range(3):
        await memory.admin.sweep()
    assert await stored(memory) == [1, 0]
    assert await keys_of(memory) == ["stays"]


ODD_KEYS = [
    "",
    "%",
    "*",
    "/",
    "A",
    "Z",
    "_",
    "a",
    "a\n",
    "a b",
    "a/",
    "a/b",
    "a0",
    "ab",
    "b",
    "é",
    "ü",
    "中",
    "\ue000",
    "\U0001f41f",
]
"""In the order of their code points, after the empty prefix."""


async def test_keys_are_listed_in_the_order_of_code_points(memory: Memory) -> None:
    keys = [f"x{key}" for key in ODD_KEYS] + ["xa" * 256, "y"]
    for key in random.Random(7).sample(keys, len(keys)):  # noqa: S311 - no secret
        await memory.documents.put(USER, key, key)
    expected = sorted(keys)
    assert await keys_of(memory) == expected
    assert await keys_of(memory, reverse=True) == expected[::-1]
    for prefix in ("x", "xa", "xa/", "x%", "x_", "x\U0001f41f", "none"):
        begins = [key for key in expected if key.startswith(prefix)]
        assert await keys_of(memory, prefix=prefix) == begins
        assert await keys_of(memory, prefix=prefix, reverse=True, limit=2) == begins[::-1][:2]
    start, stop = expected[3], expected[9]
    assert await keys_of(memory, start=start, stop=stop) == expected[3:9]
    assert await keys_of(memory, start=start, stop=stop, reverse=True) == expected[3:9][::-1]
    assert await keys_of(memory, prefix="xa", start="xa/b") == [
        key for key in expected if key.startswith("xa") and key >= "xa/b"
    ]
    for reverse in (False, True):
        for values in (False, True):
            pages, cursor = list[str](), None
            while True:
                page = await memory.documents.list(
                    USER, limit=4, cursor=cursor, reverse=reverse, values=values
                )
                pages += [one.key for one in page.documents]
                if (cursor := page.cursor) is None:
                    break
            assert pages == (expected[::-1] if reverse else expected)


async def test_a_range_of_keys_is_deleted(memory: Memory) -> None:
    for number in range(250):
        await memory.documents.put(USER, f"n/{number:03}", number)
    await memory.documents.put(USER, "other", b"y" * 300_000)
    await memory.documents.put(OTHER_USER, "n/001", 1)
    assert await memory.documents.delete_many(USER, prefix="n/", stop="n/220") == 220
    assert len(await keys_of(memory, prefix="n/")) == 30
    assert await memory.documents.delete_many(USER) == 31
    assert await keys_of(memory) == []
    assert await keys_of(memory, OTHER_USER) == ["n/001"]
    assert await memory.documents.delete_many(USER) == 0
    assert await stored(memory) == [1, 0]


LARGE: list[Callable[[], Any]] = [
    lambda: b"\x00\xff" * 150_000,
    lambda: {"text": "ż" * 1_500_000, "list": [1.0, None]},
]


async def test_documents_are_iterated_page_by_page(memory: Memory) -> None:
    keys = [f"k{number:03}" for number in range(205)]
    for key in keys:
        await memory.documents.put(USER, key, {"n": int(key[1:])})
    assert [one.key async for one in memory.documents.iterate(USER)] == keys
    chosen: dict[str, Any] = {"prefix": "k0", "start": "k005", "stop": "k008", "reverse": True}
    assert [one.key async for one in memory.documents.iterate(USER, **chosen)] == ["k007", "k006", "k005"]
    found = memory.documents.iterate(USER, filter={"value.n": {"$gte": 203}}, values=True)
    assert [one.value async for one in found if isinstance(one, Document)] == [{"n": 203}, {"n": 204}]
    with pytest.raises(InvalidInput, match=r"filter\.value"):
        [one async for one in memory.documents.iterate(USER, filter={"value": {"$gt": 1}})]
    view = memory.restrict([Scope.user("eve")])
    with pytest.raises(Forbidden):
        [one async for one in view.documents.iterate(USER)]


async def test_a_document_without_a_chunk_stops_no_list(memory: Memory) -> None:
    """It is counted as damaged, and all others are listed, exported and deleted."""
    await memory.documents.put(USER, "b", {"n": 1, "text": "x" * 300_000})
    archive = engine_of(memory).topology.archive
    (chunk,) = (await archive.query(Query(DOCUMENT_CHUNKS, Everywhere()))).records
    assert isinstance(chunk, Record)
    await archive.apply([Delete(DOCUMENT_CHUNKS, chunk.key, chunk.version, AtVersion(chunk.version))])
    for key in ("a", "c"):
        await memory.documents.put(USER, key, {"n": 1, "text": "x" * 300_000 * (key == "c")})
    with pytest.raises(CorruptRecord):
        await memory.documents.get(USER, "b")
    (damaged,) = [one for audit in await memory.admin.audit() for one in audit.damaged]
    assert re.fullmatch(r"documents \S+ of tenant \S+: a chunk is missing", damaged)
    for asked in ({"values": True}, {"filter": {"value.n": 1}}, {"filter": {"value.n": 1}, "values": True}):
        page = await memory.documents.list(USER, **asked)
        assert ([one.key for one in page.documents], page.damaged) == (["a", "c"], 1), asked
        assert [one.key async for one in memory.documents.iterate(USER, **asked)] == ["a", "c"]
        with pytest.raises(CorruptRecord, match="a chunk"):
            [one async for one in memory.documents.iterate(USER, skip_damaged=False, **asked)]
    exported = [line async for line in memory.admin.export() if line["format"] == "memory-document/1"]
    assert {line["key"] for line in exported} == {"a", "c"}
    assert await memory.documents.delete_many(USER, filter={"value.n": 1}) == 2
    assert await keys_of(memory) == ["b"]
    assert await memory.documents.delete(USER, "b") is True


@pytest.mark.parametrize("made", LARGE, ids=["bytes", "json"])
async def test_a_large_value_is_stored_in_chunks(memory: Memory, made: Callable[[], Any]) -> None:
    value = made()
    first = await memory.documents.put(USER, "k", value, metadata={"m": 1})
    count, chunks = await stored(memory)
    assert count == 1
    assert chunks == -(-first.size // 2**20)
    found = await memory.documents.get(USER, "k")
    assert found is not None
    assert equal(found.value, value)
    assert found.metadata == {"m": 1}
    (listed,) = (await memory.documents.list(USER, values=True)).documents
    assert isinstance(listed, Document)
    assert equal(listed.value, value)
    with pytest.raises(VersionConflict):
        await memory.documents.put(USER, "k", value, expected_version=ABSENT)
    assert await stored(memory) == [1, chunks], "a refused put leaves no chunks"
    await memory.documents.put(USER, "k", [value] if isinstance(value, dict) else value + b"!")
    assert (await stored(memory))[0] == 1
    assert (await memory.documents.get(USER, "k")).size > first.size  # type: ignore[union-attr]
    await memory.documents.put(USER, "k", "small")
    assert await stored(memory) == [1, 0]
    await memory.documents.put(USER, "k", value)
    assert await memory.documents.delete(USER, "k") is True
    assert await stored(memory) == [0, 0]


async def test_the_largest_value_returns_and_a_larger_one_is_refused(memory: Memory) -> None:
    data = random.Random(3).randbytes(32 * 2**20)  # noqa: S311 - no secret
    await memory.documents.put(USER, "k", data)
    assert (await memory.documents.get(USER, "k")).value == data  # type: ignore[union-attr]
    with pytest.raises(InvalidInput, match="value: has 33,554,433 bytes"):
        await memory.documents.put(USER, "k", data + b"x")


async def test_a_group_is_kept_whole_or_not_at_all(memory: Memory) -> None:
    made = await memory.documents.apply(
        [DocumentPut(USER, "a", 1), DocumentPut(USER, "b", b"2"), DocumentDelete(USER, "none")]
    )
    assert [one and one.key for one in made] == ["a", "b", None]
    a, b = await memory.documents.get_many(USER, ["a", "b"])
    assert a is not None
    assert b is not None
    assert (a.version, b.version) == (made[0].version, made[1].version)  # type: ignore[union-attr]
    refused: list[list[Any]] = [
        [DocumentPut(USER, "a", 5), DocumentPut(USER, "c", 5), DocumentPut(USER, "b", 5, if_exists="error")],
        [DocumentDelete(USER, "a"), DocumentPut(USER, "c", 5, expected_version=a.version)],
        [DocumentPut(USER, "c", "z" * 300_000), DocumentDelete(USER, "b", a.version)],
    ]
    for changes in refused:
        with pytest.raises(Conflict):
            await memory.documents.apply(changes)
    assert await memory.documents.get_many(USER, ["a", "b", "c"]) == [a, b, None]
    assert await stored(memory) == [2, 0]
    await memory.documents.apply(
        [
            DocumentDelete(USER, "a", a.version),
            DocumentPut(USER, "b", "w" * 300_000, expected_version=b.version),
            DocumentPut(USER, "c", 3, expected_version=ABSENT, metadata={"m": 1}, expires_in=HOUR),
        ]
    )
    assert await keys_of(memory) == ["b", "c"]
    assert await stored(memory) == [2, 1]
    assert await memory.documents.apply([]) == []


async def test_groups_of_many_writers_are_isolated(memory: Memory) -> None:
    """Two documents that each writer reads and writes together stay equal."""
    await memory.documents.apply([DocumentPut(USER, key, 0) for key in ("x", "y")])

    async def add() -> None:
        while True:
            x, y = await memory.documents.get_many(USER, ["x", "y"])
            assert x is not None
            assert y is not None
            try:
                await memory.documents.apply(
                    [
                        DocumentPut(USER, "x", x.value + 1, expected_version=x.version),
                        DocumentPut(USER, "y", y.value + 1, expected_version=y.version),
                    ]
                )
            except VersionConflict:
                continue
            return

    await asyncio.gather(*(add() for _ in range(6)))
    found = await memory.documents.get_many(USER, ["x", "y"])
    assert [one and one.value for one in found] == [6, 6]


async def test_a_group_of_several_scopes_needs_atomic_false(memory: Memory) -> None:
    changes: list[Any] = [
        DocumentPut(USER, "k", 1),
        DocumentPut(OTHER_USER, "k", 2),
        DocumentDelete(USER, "none"),
        DocumentPut(SESSION, "k", 3),
    ]
    with pytest.raises(InvalidInput, match="atomic=False"):
        await memory.documents.apply(changes)
    assert await stored(memory) == [0, 0]
    made = await memory.documents.apply(changes, atomic=False)
    assert [one and one.scope for one in made] == [USER.text, OTHER_USER.text, None, SESSION.text]


@pytest.mark.parametrize("large", [False, True])
async def test_erasures_take_documents(memory: Memory, large: bool) -> None:
    value = "y" * 300_000 if large else 1
    for scope in (USER, OTHER_USER, SESSION):
        await memory.documents.put(scope, "k", value)
    await memory.admin.erase(OTHER_USER)
    assert await keys_of(memory, OTHER_USER) == []
    assert await stored(memory) == [2, 2 * large]
    await memory.documents.put(OTHER_USER, "k", value, expected_version=ABSENT)
    await memory.admin.erase_user(USER)
    assert await keys_of(memory, USER) == []
    assert await keys_of(memory, OTHER_USER) == ["k"]
    async with memory.for_tenant("another") as another:
        await another.documents.put(USER, "k", value)
        await memory.admin.erase_tenant()
        assert await keys_of(another, USER) == ["k"]
    assert await stored(memory) == [1, 1 * large]
    assert await keys_of(memory, SESSION) == []
    await memory.documents.put(SESSION, "k", value, if_exists="error")
    found = await memory.documents.get(SESSION, "k")
    assert found is not None
    assert found.value == value


async def test_a_legal_hold_stops_deletion_expiry_and_erasure_but_no_put(
    memory: Memory, clock: Clock
) -> None:
    await memory.documents.put(USER, "k", 1, expires_in=HOUR)
    await memory.documents.put(USER, "l", 1)
    await memory.admin.legal_holds.add("case", reason="a lawsuit", scope=USER)
    with pytest.raises(LegalHoldActive):
        await memory.documents.delete(USER, "l")
    with pytest.raises(LegalHoldActive):
        await memory.documents.delete_many(USER)
    with pytest.raises(LegalHoldActive):
        await memory.documents.apply([DocumentPut(USER, "m", 1), DocumentDelete(USER, "l")])
    with pytest.raises(LegalHoldActive):
        await memory.admin.erase(USER)
    await memory.documents.put(USER, "l", 2)
    assert await keys_of(memory) == ["k", "l"]
    clock.advance(3 * DAY)
    await memory.admin.sweep()
    assert await stored(memory) == [2, 0]
    await memory.admin.legal_holds.remove("case")
    clock.advance(DAY)
    await memory.admin.sweep()
    assert await stored(memory) == [1, 0]
    assert await memory.documents.delete(USER, "l") is True


async def test_wrong_input_is_refused_before_a_store_is_touched(plain: Memory) -> None:
    class Colour(enum.Enum):
        RED = "red"

    deep: Any = 1
    for _ in range(33):
        deep = [deep]
    put, list_ = plain.documents.put, plain.documents.list
    with watching(plain) as touched:
        for key in ("", "x" * 513, "é" * 257, "a\x00b", "\ud800", None, 7, b"k"):
            for call in (plain.documents.get, plain.documents.delete):
                with pytest.raises(InvalidInput, match="key"):
                    await call(USER, key)  # type: ignore[arg-type]
            with pytest.raises(InvalidInput, match="key"):
                await put(USER, key, 1)  # type: ignore[arg-type]
            with pytest.raises(InvalidInput, match=r"keys\[1\]"):
                await plain.documents.get_many(USER, ["k", key])  # type: ignore[list-item]
        with pytest.raises(InvalidInput, match="SHA-256"):
            await put(USER, "x" * 513, 1)
        wrong: list[tuple[str, Any]] = [
            ("value.a[1]", {"a": [1, (2,)]}),
            ("value", {1: 2}),
            ("value[0]", [2**63]),
            ("value.a", {"a": float("nan")}),
            ("value", float("inf")),
            ("value", {1, 2}),
            ("value.at", {"at": datetime.now(UTC)}),
            ("value", Colour.RED),
            ("value", object()),
            ("value[0]", ["\ud800"]),
            ("value", deep),
            ("value[0].a", [{"a": b"x"}]),
        ]
        for path, value in wrong:
            with pytest.raises(InvalidInput) as refused:
                await put(USER, "k", value)
            assert refused.value.field.startswith(path), (path, refused.value)
        options: list[tuple[dict[str, Any], str]] = [
            ({"expected_version": 1}, "expected_version"),
            ({"expected_version": "x"}, "expected_version"),
            ({"if_exists": "update"}, "if_exists"),
            ({"if_exists": "error", "expected_version": "6616f84fd1ba7"}, "if_exists"),
            ({"expires_in": 0}, "expires_in"),
            ({"expires_in": "soon"}, "expires_in"),
            ({"refresh_on_read": True}, "refresh_on_read"),
            ({"refresh_on_read": 1, "expires_in": 5}, "refresh_on_read"),
            ({"metadata": [1]}, "metadata"),
            ({"metadata": {"m": "x" * 70_000}}, "metadata"),
        ]
        for more, field in options:
            with pytest.raises(InvalidInput) as refused:
                await put(USER, "k", 1, **more)
            assert refused.value.field.startswith(field), (more, refused.value)
        options = [
            ({"limit": 0}, "limit"),
            ({"limit": 1_001}, "limit"),
            ({"prefix": None}, "prefix"),
            ({"start": 1}, "start"),
            ({"stop": "\x00"}, "stop"),
            ({"reverse": 1}, "reverse"),
            ({"values": "yes"}, "values"),
            ({"cursor": "x"}, "cursor"),
            ({"cursor": 7}, "cursor"),
        ]
        for more, field in options:
            with pytest.raises(InvalidInput) as refused:
                await list_(USER, **more)
            assert refused.value.field == field, (more, refused.value)
        for changes, field in (
            ([("k", 1)], "changes[0]"),
            ([DocumentPut(USER, "k", 1), DocumentPut(USER, "", 1)], "changes[1].key"),
            ([DocumentPut(USER, "k", 1), DocumentDelete(USER, "k")], "changes"),
            ([DocumentDelete(USER, f"k{n}") for n in range(101)], "changes"),
            (DocumentPut(USER, "k", 1), "changes"),
        ):
            with pytest.raises(InvalidInput) as refused:
                await plain.documents.apply(changes)  # type: ignore[arg-type]
            assert refused.value.field == field, refused.value
        for scope in ("ada", None, 7):
            with pytest.raises(InvalidInput, match="scope"):
                await put(scope, "k", 1)  # type: ignore[arg-type]
    assert touched == []


async def test_a_store_that_keeps_no_groups_is_no_home(plain: Memory) -> None:
    store = engine_of(plain).topology.archive
    from dataclasses import replace

    lesser = replace(store.capabilities, atomic=False, grouped=False)
    with patch.object(type(store), "capabilities", property(lambda self: lesser)):
        with pytest.raises(Unsupported, match="grouped"):
            await plain.documents.put(USER, "k", 1)
        with pytest.raises(Unsupported, match="grouped"):
            await plain.documents.apply([DocumentPut(USER, "k", 1)])
    assert await plain.documents.get(USER, "k") is None


async def test_a_page_with_values_ends_early_if_they_are_large(memory: Memory) -> None:
    for number in range(60):
        await memory.documents.put(USER, f"k{number:02}", f"{number}" * 1_000)
    with patch.object(documents, "PAGE_BYTES", 10_000):
        page = await memory.documents.list(USER, values=True)
    assert [one.key for one in page.documents] == [f"k{number:02}" for number in range(50)]
    rest = await memory.documents.list(USER, values=True, cursor=page.cursor)
    assert [one.key for one in rest.documents] == [f"k{number:02}" for number in range(50, 60)]
    assert rest.cursor is None


def test_a_checked_value_is_a_copy() -> None:
    given: Any = {"a": [1]}
    checked = domain.check_value(given)
    given["a"].append(2)
    assert checked.value == {"a": [1]}
    assert checked.size == 9


async def test_a_lifetime_may_be_a_length(memory: Memory) -> None:
    info = await memory.documents.put(USER, "k", 1, expires_in=90)
    assert info.expires_at == info.updated_at + timedelta(seconds=90)


async def test_documents_travel_in_exports(memory: Memory, clock: Clock) -> None:
    values: dict[str, Any] = {"json": {"a": [1.0, None]}, "bytes": b"\x00\xff", "large": b"y" * 300_000}
    for key, value in values.items():
        await memory.documents.put(USER, key, value, metadata={"of": key})
    before = await memory.documents.put(SESSION, "k", 1, expires_in=HOUR)
    await memory.documents.put(SESSION, "gone", 1, expires_in=1)
    clock.advance(timedelta(minutes=1))
    lines = [line async for line in memory.admin.export()]
    assert sorted(line["key"] for line in lines) == ["bytes", "json", "k", "large"]
    assert [line["key"] async for line in memory.admin.export(SESSION)] == ["k"]
    async with memory.for_tenant("another") as another:
        report = await another.admin.import_(lines)
        assert (report.documents, report.refused_lines, report.skipped_lines) == (4, [], [])
        for key, value in values.items():
            found = await another.documents.get(USER, key)
            assert found is not None
            assert equal(found.value, value)
            assert found.metadata == {"of": key}
        after = await another.documents.get(SESSION, "k")
        assert after is not None
        assert (after.created_at, after.expires_at) == (before.created_at, before.expires_at)
        assert (await another.admin.import_(lines)).documents == 0
        await another.documents.put(USER, "json", "other")
        await another.documents.delete(USER, "bytes")
        again = await another.admin.import_(lines)
        assert (again.documents, len(again.refused_lines)) == (0, 1)
        assert await another.documents.get(USER, "bytes") is None
        assert (await another.documents.get(USER, "json")).value == "other"  # type: ignore[union-attr]
        assert (await another.admin.import_(lines, revive=True)).documents == 1
        assert (await another.admin.import_(lines, scope=OTHER_USER)).documents == 4
        assert await keys_of(another, OTHER_USER) == ["bytes", "json", "k", "large"]
    bad = [
        {**lines[0], "key": ""},
        {**lines[0], "form": "bytes", "value": "?"},
        {"format": "memory-document/1"},
    ]
    for line in bad:
        with pytest.raises(InvalidInput, match="line 1"):
            await memory.admin.import_([line])


async def test_a_quota_refuses_documents_that_grow_beyond_it(config: dict[str, Any]) -> None:
    quotas = [
        {"name": "small", "document_bytes": 500_000},
        {"name": "all", "per": "tenant", "document_bytes": 10**6},
    ]
    async with Memory(config | {"quotas": quotas}) as memory:
        await memory.documents.put(USER, "k", "x" * 200_000)
        await memory.documents.put(USER, "large", b"y" * 280_000)
        for call in (
            memory.documents.put(USER, "more", b"z" * 280_000),
            memory.documents.put(USER, "k", "x" * 240_000),
            memory.documents.apply([DocumentPut(USER, "a", 1), DocumentPut(USER, "b", "x" * 250_000)]),
            memory.documents.put_many([DocumentPut(USER, "a", 1), DocumentPut(USER, "b", b"x" * 280_000)]),
        ):
            with pytest.raises(QuotaExceeded, match=r"small.*bytes of documents"):
                await call
        assert await keys_of(memory) == ["k", "large"]
        assert await stored(memory) == [2, 1], "a refused put leaves no chunks"
        await memory.documents.put(USER, "k", "v" * 200_000)
        await memory.documents.put(USER, "large", "small")
        await memory.documents.put(USER, "k", "x" * 240_000)
        await memory.documents.put(OTHER_USER, "k", b"y" * 400_000)
        with pytest.raises(QuotaExceeded, match="all"):
            await memory.documents.put(SESSION, "k", b"y" * 450_000)
        await memory.documents.delete(OTHER_USER, "k")
        await memory.documents.put(SESSION, "k", b"y" * 450_000)
        async with memory.for_tenant("another") as another:
            await another.documents.put(USER, "k", b"y" * 450_000)
    for wrong in ({"then": "evict"}, {"per": "tenant", "scope_kinds": ["user"]}, {"entries": 1}):
        with pytest.raises(InvalidInput):
            Quota(name="q", document_bytes=1, **wrong)


async def test_a_group_needs_room_only_for_what_it_adds_as_a_whole(config: dict[str, Any]) -> None:
    quotas = [{"name": "small", "document_bytes": 100_000}]
    async with Memory(config | {"quotas": quotas}) as memory:
        await memory.documents.put(USER, "a", "x" * 90_000)
        await memory.documents.apply([DocumentDelete(USER, "a"), DocumentPut(USER, "b", "y" * 90_000)])
        await memory.documents.apply([DocumentPut(USER, "b", 1), DocumentPut(USER, "c", "z" * 90_000)])
        with pytest.raises(QuotaExceeded):
            await memory.documents.apply([DocumentDelete(USER, "b"), DocumentPut(USER, "d", "y" * 90_000)])
        assert await keys_of(memory) == ["b", "c"]


async def test_dry_runs_of_erasures_count_documents(memory: Memory) -> None:
    await memory.write("tea", scope=USER)
    for key, value in (("a", 1), ("large", b"." * 300_000)):
        await memory.documents.put(USER, key, value)
    would = await memory.admin.erase(USER, dry_run=True)
    assert (would, would.documents) == (1, 2)
    assert (await memory.admin.erase_user(USER.id, dry_run=True)).documents == 2
    erased = await memory.admin.erase(USER)
    assert (erased, erased.documents) == (1, 2)
    await memory.documents.put(USER, "a", 1)
    assert (await memory.admin.erase_user(USER.id)).documents == 1


async def test_an_audit_finds_nothing_wrong_with_documents(memory: Memory, clock: Clock) -> None:
    for number in range(20):
        await memory.documents.put(USER, f"k{number}", number, expires_in=HOUR if number % 3 else None)
        await memory.documents.put(USER, f"k{number // 2}", b"y" * 1_000)
    await memory.documents.put(USER, "large", b"y" * 300_000)
    await memory.documents.delete_many(USER, prefix="k1")
    clock.advance(3 * DAY)
    await memory.admin.sweep()
    for audit in await memory.admin.audit():
        assert audit.ok, audit


@pytest.mark.parametrize("large", [False, True])
async def test_a_group_that_is_cut_off_at_any_call_is_kept_whole_or_not_at_all(
    memory: Memory, clock: Clock, large: bool
) -> None:
    """The process stops before or after each call of a store; sweeps leave no chunks."""
    placement = engine_of(memory).placement
    write = placement.write
    value = "v" * 300_000 if large else "v"
    seen: dict[tuple[int, bool], Any] = {}
    for after in (False, True):
        for at in range(1, 20):
            calls = 0

            async def cut_off(*args: Any, after: bool = after, at: int = at, **options: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == at and not after:
                    raise asyncio.CancelledError
                outcomes = await write(*args, **options)
                if calls == at:
                    raise asyncio.CancelledError
                return outcomes

            changes = [DocumentPut(USER, key, [value, at, after]) for key in ("a", "b")]
            with patch.object(placement, "write", cut_off), suppress(asyncio.CancelledError):
                await memory.documents.apply(changes)
            a, b = await memory.documents.get_many(USER, ["a", "b"])
            assert (a and a.value) == (b and b.value)
            seen[at, after] = a and a.value[1:] == [at, after]
            if calls < at:
                break
    assert True in seen.values()
    assert set(seen.values()) - {True}, "some calls were cut off before the group was stored"
    for _ in range(4):
        clock.advance(2 * HOUR)
        await memory.admin.sweep()
    assert await stored(memory) == [2, 2 * large]
    assert [one and one.value[0] for one in await memory.documents.get_many(USER, ["a", "b"])] == [value] * 2


@pytest.mark.nightly
async def test_thousands_of_keys_are_listed_in_order(memory: Memory) -> None:
    count, engine = drawn(20_000, proof=100_000), engine_of(memory)
    keys = [f"key/{number * 7_919 % count:06}" for number in range(count)]
    for start in range(0, count, 50):
        some = [
            documents.PutRequest(USER.text, key, domain.check_value(key), {})
            for key in keys[start : start + 50]
        ]
        await engine.documents.apply(memory.tenant, some)
    found, cursor = list[str](), None
    while True:
        page = await memory.documents.list(USER, limit=1_000, cursor=cursor)
        found += [one.key for one in page.documents]
        if (cursor := page.cursor) is None:
            break
    assert found == sorted(keys)
    assert await keys_of(memory, prefix="key/0050", reverse=True) == sorted(keys)[5_000:5_100][::-1]


async def test_counts_include_documents(memory: Memory) -> None:
    assert (await memory.admin.stats()).documents == 0
    await memory.documents.put(USER, "k", "x" * 1_000)
    await memory.documents.put(USER, "large", b"y" * 300_000)
    counted = await memory.admin.stats()
    assert counted.documents == 2
    assert counted.document_bytes >= 300_000
    async with memory.for_tenant("another") as another:
        assert (await another.admin.stats()).documents == 0


async def test_a_read_keeps_a_document_that_is_refreshed_on_read(memory: Memory, clock: Clock) -> None:
    for key, value in (("k", 1), ("large", "y" * 300_000)):
        await memory.documents.put(USER, key, value, expires_in=2 * HOUR, refresh_on_read=True)
    other = await memory.documents.put(USER, "other", 1, expires_in=2 * HOUR)
    assert other.lifetime is None
    for _ in range(3):
        clock.advance(HOUR)
        before = await memory.documents.get(USER, "k")
        assert before is not None
        await memory.documents.get_many(USER, ["large", "none"])
        again = await memory.documents.get(USER, "k")
        assert again is not None
        assert (again.version, again.expires_at) == (before.version, before.expires_at)
        assert again.lifetime == 2 * HOUR
        assert again.expires_at is not None
        assert again.expires_at - clock.moment > HOUR
    assert await keys_of(memory) == ["k", "large"]
    await memory.documents.put(USER, "k", 2)
    clock.advance(HOUR)
    lines = [line async for line in memory.admin.export()]
    async with memory.for_tenant("another") as another:
        await another.admin.import_(lines)
        found = await another.documents.get(USER, "large")
        assert found is not None
        assert found.lifetime == 2 * HOUR
    clock.advance(3 * HOUR)
    assert await keys_of(memory) == ["k"]


async def listed(memory: Memory, scope: Any, *, limit: int, **asked: Any) -> list[str]:
    found, cursor = list[str](), None
    while True:
        page = await memory.documents.list(scope, order="updated", limit=limit, cursor=cursor, **asked)
        found += [one.key for one in page.documents]
        if (cursor := page.cursor) is None:
            return found


async def test_documents_are_listed_by_their_last_put(memory: Memory, clock: Clock) -> None:
    threads = Scope.path("threads")
    for number in range(12):
        clock.advance(timedelta(seconds=1))
        where = threads if number % 2 else Scope.path("threads", "one")
        await memory.documents.put(where, f"{(number * 5) % 12:02}", number, metadata={"n": number})
    clock.advance(timedelta(seconds=1))
    await memory.documents.put(threads, "05", "again", metadata={"n": 1})
    order = [f"{(number * 5) % 12:02}" for number in range(12) if number != 1] + ["05"]
    whole = threads.subtree()
    for limit in (1, 5, 100):
        assert await listed(memory, whole, limit=limit) == order
        assert await listed(memory, whole, limit=limit, reverse=True) == order[::-1]
        assert await listed(memory, whole, limit=limit, values=True) == order
        assert await listed(memory, threads, limit=limit) == [*order[2::2], "05"]
        few = [key for key in order if "03" <= key < "08"]
        assert await listed(memory, whole, limit=limit, start="03", stop="08") == few
        passing = await listed(memory, whole, limit=limit, reverse=True, filter={"metadata.n": {"$gte": 6}})
        assert passing == [f"{(number * 5) % 12:02}" for number in range(11, 5, -1)]
    iterated = memory.documents.iterate(threads, order="updated", reverse=True)
    assert [one.key async for one in iterated] == ["05", *order[2::2][::-1]]
    page = await memory.documents.list(whole, limit=2)
    with pytest.raises(InvalidInput, match="cursor"):
        await memory.documents.list(whole, order="updated", limit=2, cursor=page.cursor)
    page = await memory.documents.list(whole, order="updated", limit=2)
    with pytest.raises(InvalidInput, match="cursor"):
        await memory.documents.list(whole, limit=2, cursor=page.cursor)
    with pytest.raises(InvalidInput, match="order"):
        await memory.documents.list(whole, order="created")  # type: ignore[arg-type]
