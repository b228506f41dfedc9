"""Data: JSON that belongs to the content of an entry."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from memory import CompactionError, Conflict, Entry, Filter, InvalidInput, Memory, QuotaExceeded
from tests.acceptance.support import HOUR, ORG, SESSION, USER, WORKSPACE, Clock

RECIPE: dict[str, Any] = {
    "name": "Chai",
    "steps": ["boil", {"wait": 3, "then": None}],
    "price": 2.5,
    "hot": True,
    "none": None,
    "deep": {"a.b": "ü\n😀", "": []},
}


class Drink(Enum):
    TEA = "tea"


@dataclass
class Cup:
    size: int


class Order(BaseModel):
    at: datetime
    cups: list[Cup]


async def test_data_is_returned_by_every_read(memory: Memory, clock: Clock) -> None:
    written = await memory.write("tea", scope=USER, key="recipe", data=RECIPE)
    assert written.data == RECIPE
    read: list[Entry | None] = [
        await memory.get(written.id),
        await memory.get(scope=USER, key="recipe"),
        *await memory.get_many([written.id]),
        *await memory.retrieve(USER),
        *await memory.browse(),
        *[hit.entry for hit in await memory.search("tea", scope=USER)],
        *await memory.write_many([{"content": "tea", "scope": USER, "key": "recipe", "data": RECIPE}]),
    ]
    assert read == [written] * len(read)
    written.data["name"] = "changed in the caller's copy"
    again = await memory.get(written.id)
    assert again is not None
    assert again.data == RECIPE


async def test_data_carries_an_entry_without_text(memory: Memory) -> None:
    for data in ({}, [], {"a": 1}, [1]):
        entry = await memory.write(scope=USER, data=data)
        assert (entry.content, entry.data) == ("", data)
    with pytest.raises(InvalidInput, match="title or data"):
        await memory.write(scope=USER, metadata={"a": 1})
    assert (await memory.update(entry.id, data=None)).data is None


async def test_values_that_json_lacks_are_stored_as_json(memory: Memory) -> None:
    at = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
    given = {
        "at": at,
        "day": date(2026, 1, 31),
        "id": UUID(int=1),
        "price": Decimal("2.50"),
        "drink": Drink.TEA,
        "cup": Cup(2),
        "order": Order(at=at, cups=[Cup(1)]),
        "pair": (1, 2),
    }
    said = {
        "at": "2026-01-31T09:30:00Z",
        "day": "2026-01-31",
        "id": "00000000-0000-0000-0000-000000000001",
        "price": "2.50",
        "drink": "tea",
        "cup": {"size": 2},
        "order": {"at": "2026-01-31T09:30:00Z", "cups": [{"size": 1}]},
        "pair": [1, 2],
    }
    entry = await memory.write("tea", scope=USER, data=given, metadata=given)
    assert (entry.data, entry.metadata) == (said, said)
    assert (await memory.update(entry.id, data=Cup(3))).data == {"size": 3}
    assert (await memory.update(entry.id, data=(Drink.TEA, Cup(1)))).data == ["tea", {"size": 1}]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("text", "data: must be a dict, a list"),
        (b"bytes", "data: must be a dict, a list"),
        (3, "data: must be a dict, a list"),
        ({"deep": [{"socket": object()}]}, r"data\.deep\[0\]\.socket: has the type object"),
        ({"n": float("nan")}, r"data\.n: must be a finite number"),
        ([2**63], r"data\[0\]: holds an integer outside 64 bits"),
        ({"set": {1}}, r"data\.set: has the type set"),
        ({"large": "x" * 65_536}, r"data: exceeds 65536 bytes\. Store larger values with memory\.documents"),
    ],
)
async def test_other_values_are_refused_by_their_path(memory: Memory, data: Any, problem: str) -> None:
    entry = await memory.write("tea", scope=USER)
    for refused in (
        memory.write("tea", scope=USER, data=data),
        memory.update(entry.id, data=data),
        memory.promote(entry.id, WORKSPACE, data=data),
        memory.compact([entry.id], lambda entries: "tea", data=data),
    ):
        with pytest.raises(InvalidInput, match=problem):
            await refused
    assert [one.id for one in await memory.browse()] == [entry.id]


async def test_an_update_replaces_data_as_a_whole_and_keeps_the_version_before(memory: Memory) -> None:
    entry = await memory.write("tea", scope=USER, data={"a": 1, "b": 2})
    assert (await memory.update(entry.id, data={"a": 3})).data == {"a": 3}
    assert (await memory.update(entry.id, metadata={"m": 1})).data == {"a": 3}
    assert (await memory.update(entry.id, data=None)).data is None
    said = [{"a": 1, "b": 2}, {"a": 3}, {"a": 3}, None]
    assert [one.data for one in await memory.entries.history(entry.id)] == said


async def test_keyed_writes_compare_data(memory: Memory) -> None:
    async def write(if_exists: Any = "error", **given: Any) -> Entry:
        return await memory.write("tea", scope=USER, key="k", if_exists=if_exists, **given)

    first = await write(data={"a": 1})
    assert await write(data={"a": 1}) == first
    for other in ({"a": 2}, {"a": True}, None):
        with pytest.raises(Conflict):
            await write(data=other)
    assert (await write("replace", data={"a": 1})).version == first.version
    changed = await write("replace", data={"a": True})
    assert (changed.data, changed.version != first.version) == ({"a": True}, True)
    assert (await write("update", tags=["t"])).data == {"a": True}
    assert (await write("update", data={"b": 1})).data == {"b": 1}
    assert (await write("update", data=None)).data is None
    assert (await write("replace", data=[1])).data == [1]
    assert (await write("replace")).data is None


async def test_copies_carry_data(memory: Memory) -> None:
    entry = await memory.write("tea", scope=SESSION, data=RECIPE)
    copy = await memory.promote(entry.id, WORKSPACE)
    assert copy.data == RECIPE
    assert (await memory.promote(entry.id, ORG, data={"a": 1})).data == {"a": 1}
    await memory.admin.move([copy.id], "long")
    moved = await memory.get(copy.id)
    assert moved is not None
    assert (moved.tier, moved.data) == ("long", RECIPE)


async def test_a_compaction_keeps_data_that_its_sources_share(memory: Memory) -> None:
    def write(data: Any) -> Any:
        return memory.write("tea", scope=USER, data=data)

    same = [await write({"a": 1}), await write(None), await write({"a": 1.0})]
    made = await memory.compact([one.id for one in same], lambda entries: "made")
    assert made.data == {"a": 1}
    called: list[Any] = []

    def call(entries: list[Entry]) -> str:
        called.append(entries)
        return "made"

    other = [same[0].id, (await write({"a": True})).id]
    with pytest.raises(CompactionError, match=r"different data: give data=.*The callback was not called"):
        await memory.compact(other, call)
    assert not called
    assert (await memory.compact(other, lambda entries: "both", data=None)).data is None
    assert (await memory.compact(other, lambda entries: "both", data={"b": 2})).data == {"b": 2}


async def test_a_revert_takes_back_the_data_of_a_source(memory: Memory, clock: Clock) -> None:
    entry = await memory.write("tea", scope=USER, data={"a": 1}, source="good")
    clock.advance(HOUR)
    await memory.update(entry.id, data={"a": 2}, source="bad")
    await memory.admin.block_source(source="bad", reason="wrong")
    await memory.admin.revert_source(source="bad")
    now = await memory.get(entry.id)
    assert now is not None
    assert now.data == {"a": 1}


async def test_exports_carry_data(memory: Memory, clock: Clock) -> None:
    entry = await memory.write("tea", scope=USER, data={"n": 1})
    await memory.update(entry.id, data=RECIPE)
    other = await memory.write(scope=USER, data=[None])
    lines = [line async for line in memory.admin.export()]
    assert [line.get("data") for line in lines] == [RECIPE, {"n": 1}, [None]]
    there = memory.for_tenant("there")
    await there.admin.import_(lines)
    assert [one.data for one in await there.retrieve(USER, order="oldest")] == [RECIPE, [None]]
    async with Memory("memory://", embedder="none", clock=clock) as exact:
        await exact.admin.import_(lines, same_ids=True)
        assert [line async for line in exact.admin.export()] == lines
        assert {one["id"] for one in lines} == {entry.id, other.id}


async def test_bytes_of_data_count_towards_a_quota(config: dict[str, Any], clock: Clock) -> None:
    quota = {"name": "small", "bytes": 20_000, "per": "scope", "then": "refuse"}
    async with Memory({**config, "quotas": [quota]}, clock=clock) as memory:
        with pytest.raises(QuotaExceeded):
            await memory.write("tea", scope=USER, data={"large": "x" * 20_000})
        await memory.write("tea", scope=USER, data={"small": "x" * 2_000})


async def test_filters_compare_paths_into_data(memory: Memory) -> None:
    hot = {"price": 2.5, "kind": {"of": "tea"}, "tags": ["hot"]}
    tea = await memory.write("a drink", scope=USER, data=hot)
    gin = await memory.write("a drink", scope=USER, data={"price": 4})
    plain = await memory.write("a drink", scope=USER, metadata={"price": 2.5})
    for given, wanted in (
        (Filter.data("price") > 3, {gin.id}),
        ({"data.price": {"$gt": 3}}, {gin.id}),
        ({"data": {"price": {"$lte": 2.5}}}, {tea.id}),
        ({"data.kind.of": "tea"}, {tea.id}),
        ({"data": {"kind": {"$eq": {"of": "tea"}}}}, {tea.id}),
        (Filter.data("tags").contains("hot"), {tea.id}),
        (~Filter.data("price").exists(), {plain.id}),
        ({"data.price": {"$ne": 4}}, {tea.id, plain.id}),
    ):
        assert {one.id for one in await memory.browse(filter=given)} == wanted, given
        assert {hit.id for hit in await memory.search("drink", scope=USER, filter=given)} == wanted, given
    with pytest.raises(InvalidInput, match=r"filter\.data: must be a dict"):
        await memory.browse(filter={"data": 3})
    with pytest.raises(InvalidInput, match=r"Name a key, such as Filter\.data"):
        Filter.data()
