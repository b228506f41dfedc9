"""Filters on documents: drawn ones against plain Python, pages, deletion, refusals."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from memory import DocumentInfo, Filter, InvalidInput, LegalHoldActive
from memory.domain.filters import Comparison, holds, value_at
from memory.facade.memory import Memory
from memory.facade.runtime.access import engine_of
from memory.orchestrator.documents import documents
from memory.ports.contract.cells import cells
from tests.acceptance.conftest import keeping_bytes
from tests.acceptance.support import OTHER_USER, USER, Clock
from tests.support.depth import FIRST_SEED, drawn

config = keeping_bytes()

SCALARS: list[Any] = [
    *[
        0,
        1,
        1.0,
        -1,
        2.5,
        2**53 + 1,
        True,
        False,
        None,
        "",
        "a",
        "A",
        "b",
        "10",
        "\x00",
        "a\x00b",
        "\U0001f600",
    ]
]
FILTERS = drawn(500, quick=60, proof=2_000)


class Draw:
    def __init__(self) -> None:
        self.random = random.Random(f"documents {FIRST_SEED}")  # noqa: S311

    def value(self) -> Any:
        draw = self.random
        chance = draw.random()
        if chance < 0.1:
            return draw.choice([[1], "text", b"bytes", None, 3, "x" * 300_000])
        value = {name: draw.choice(SCALARS) for name in draw.sample("nmk", draw.randrange(4))}
        if chance < 0.2:
            value["large"] = "x" * 300_000
        return value | draw.choice([{}, {"o": {"k": draw.choice(SCALARS)}}, {"o": [draw.choice(SCALARS)]}])

    def filter(self, depth: int = 2) -> tuple[Filter, Callable[[Any, str], bool]]:
        draw = self.random
        if depth and draw.random() < 0.4:
            (one, first), (two, second) = self.filter(depth - 1), self.filter(depth - 1)
            if draw.random() < 0.5:
                return one & two, lambda value, key: first(value, key) and second(value, key)
            return one | two, lambda value, key: first(value, key) or second(value, key)
        if depth and draw.random() < 0.25:
            inner, holds_inner = self.filter(depth - 1)
            return ~inner, lambda value, key: not holds_inner(value, key)
        if draw.random() < 0.1:
            return Filter.field("key") > "k2", lambda value, key: key > "k2"
        root, path = draw.choice(["value", "metadata"]), draw.choice([("n",), ("m",), ("o",), ("o", "k")])
        sign: Any = draw.choice(["==", "<", ">=", "in", "exists", "contains"])
        other: Any = draw.choice([0, 1, 2.5, "a", "b", ""] if sign in ("<", ">=") else SCALARS[:14])
        other = (other, 1, "a") if sign == "in" else None if sign == "exists" else other

        def holds_here(value: Any, key: str) -> bool:
            whole = {"n": len(key)} if root == "metadata" else value
            return holds(value_at(whole, path), sign, other)

        return Comparison((root, *path), sign, other), holds_here


async def pages(memory: Memory, **asked: Any) -> list[DocumentInfo]:
    found: list[DocumentInfo] = []
    while True:
        page = await memory.documents.list(USER, **asked)
        assert len(page.documents) <= asked.get("limit", 100)
        found += page.documents
        if page.cursor is None:
            return found
        asked["cursor"] = page.cursor


async def test_drawn_filters_mean_what_plain_python_says(memory: Memory) -> None:
    draw, said = Draw(), dict[str, Any]()
    for number in range(60):
        key = f"k{number % 7}{number}"
        said[key] = draw.value()
        await memory.documents.put(USER, key, said[key], metadata={"n": len(key)})
    await memory.documents.put(OTHER_USER, "other", {"n": 1})
    for number in range(FILTERS):
        wanted, passes = draw.filter()
        keys = sorted(key for key, value in said.items() if passes(value, key))
        limit, reverse = draw.random.choice([(100, False), (7, False), (7, True)])
        found = await pages(memory, filter=wanted, limit=limit, reverse=reverse)
        assert [one.key for one in found] == (keys[::-1] if reverse else keys), wanted
        if number % 10 == 0:
            whole = await pages(memory, filter=wanted, values=True)
            assert [(one.key, one.value) for one in whole] == [(key, said[key]) for key in keys]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "given",
    [
        Filter.value("step") > 3,
        {"value.step": {"$gt": 3}},
        {"value": {"step": {"$gt": 3}}},
        {"$and": [{"metadata.kind": "run"}, {"value.step": {"$gte": 4}}], "key": {"$gt": "a"}},
    ],
    ids=str,
)
async def test_both_forms_choose_documents(memory: Memory, given: Any) -> None:
    for step in range(6):
        await memory.documents.put(USER, f"s{step}", {"step": step}, metadata={"kind": "run"})
    assert [one.key for one in await pages(memory, filter=given)] == ["s4", "s5"]
    assert [one.key for one in await pages(memory, filter=given, prefix="s5")] == ["s5"]
    assert await memory.documents.delete_many(USER, filter=given, stop="s5") == 1
    assert await memory.documents.delete_many(USER, filter=given) == 1
    assert [one.key for one in await pages(memory)] == ["s0", "s1", "s2", "s3"]
    assert len(await pages(memory, filter={})) == 4


@pytest.mark.parametrize(
    "given", [{}, {"$and": [{}, {}]}, {"metadata": None}, {"$or": [{"key": "a"}, {}]}], ids=str
)
async def test_an_empty_filter_deletes_nothing(memory: Memory, given: Any) -> None:
    """A program that builds a filter of no conditions has not asked to delete all."""
    await memory.documents.put(USER, "k", 1)
    await memory.write("tea", scope=USER)
    with pytest.raises(InvalidInput, match="filter: is empty, and would delete everything"):
        await memory.entries.delete_many(given)
    assert len(await memory.browse()) == 1
    with pytest.raises(InvalidInput, match="filter: is empty, and would delete everything"):
        await memory.documents.delete_many(USER, filter=given)
    assert len(await pages(memory)) == 1
    assert await memory.documents.delete_many(USER, filter=None) == 1


@pytest.mark.parametrize("given", [{"$not": {}}, {"$nor": [{}]}, {"$and": [{"$not": {}}]}], ids=str)
async def test_the_opposite_of_an_empty_filter_chooses_nothing(memory: Memory, given: Any) -> None:
    await memory.documents.put(USER, "k", 1)
    await memory.write("tea", scope=USER)
    assert await pages(memory, filter=given) == []
    assert await memory.documents.delete_many(USER, filter=given) == 0
    assert len(await pages(memory)) == 1
    assert list(await memory.browse(filter=given)) == []
    assert list(await memory.search("tea", scope=USER, filter=given)) == []


async def test_a_page_of_few_among_many_ends_early_and_says_so(memory: Memory) -> None:
    for number in range(120):
        await memory.documents.put(USER, f"k{number:03}", {"o": [number % 60]})
    placement = engine_of(memory).placement
    placement.settings = replace(placement.settings, filter_rows=10)
    rare = Filter.value("o").contains(7)
    page = await memory.documents.list(USER, filter=rare)
    assert page.cursor is not None
    assert "the filter was checked on" in page.degraded[0]
    assert [one.key for one in await pages(memory, filter=rare)] == ["k007", "k067"]


async def test_a_document_that_changes_before_it_is_deleted_is_checked_again(memory: Memory) -> None:
    for key in ("a", "b"):
        await memory.documents.put(USER, key, {"old": True})
    original, changed = documents.Documents._passing_row, list[str]()

    async def change(self: Any, row: Any, passing: Any) -> Any:
        one = await original(self, row, passing)
        if row.fields["key"] not in changed:
            changed.append(row.fields["key"])
            await memory.documents.put(USER, row.fields["key"], {"old": row.fields["key"] == "b"})
        return one

    with patch.object(documents.Documents, "_passing_row", change):
        assert await memory.documents.delete_many(USER, filter={"value.old": True}) == 1
    assert [one.key for one in await pages(memory)] == ["a"]


async def test_a_legal_hold_stops_deletion_by_a_filter(memory: Memory, clock: Clock) -> None:
    await memory.documents.put(USER, "a", {"n": 1})
    await memory.admin.legal_holds.add("case", reason="a lawsuit", scope=USER)
    with pytest.raises(LegalHoldActive):
        await memory.documents.delete_many(USER, filter={"value.n": 1})
    assert len(await pages(memory)) == 1


@cells(
    "given, problem",
    [
        ({"data.n": 1}, r"filter\.data: is not a field of a document. Accepted: metadata, value, key"),
        ({"types": ["user"]}, r"filter\.type: is not a field of a document"),
        ({"title": "a"}, r"filter\.title: is not a field of a document"),
        ({"value": 1}, r"filter\.value: must be a dict"),
        ({"value.n": {"$gtt": 1}}, r"\$gtt: is not an operator"),
        (3, "filter: must be a Filter or a dict"),
    ],
    shared=True,
)
async def test_other_filters_are_refused(memory: Memory, given: Any, problem: str) -> None:
    for refused in (
        memory.documents.list(USER, filter=given),
        memory.documents.delete_many(USER, filter=given),
    ):
        with pytest.raises(InvalidInput, match=problem):
            await refused
    for wrong in (Filter.value("n") == 1, {"value.n": 1}):
        with pytest.raises(InvalidInput, match=r"filter\.value: is not a field of an entry"):
            await memory.browse(filter=wrong)
        with pytest.raises(InvalidInput, match=r"filter\.value: is not a field of an entry"):
            await memory.search("tea", scope=USER, filter=wrong)
        with pytest.raises(InvalidInput, match=r"filter\.value: is not a field of an entry"):
            await memory.entries.delete_many(wrong)
