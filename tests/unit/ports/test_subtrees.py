"""Subtrees in groups of partitions answer as a store does that knows subtrees itself."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from memory.adapters.in_memory import InMemoryStore
from memory.ports import subtrees
from memory.ports.candidates import CandidateColumns, Candidates
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import apply_all, id_of, put
from memory.ports.contract.test_candidates import BESIDE, SELECT, random_record
from memory.ports.full_scan import scan
from memory.ports.query import Eq, Near, Order, Page, Partitions, Query, Search, Under, Where, Words
from memory.ports.record import Partition, Role, pack_vector

PLACES = [Partition("acme", f"path:tree/{n:02}/") for n in range(20)]
BESIDES = [Partition("acme", f"path:trees/{n}/") for n in range(4)]
WHERE = Under("acme", ("path:tree/",), (BESIDES[0].scope,))
EVERY = frozenset(Role)
ORDERS = ((), (Order("created_at", descending=True),), (Order("number"), Order("type", descending=True)))


class InGroups(InMemoryStore):
    """Knows no subtrees, and notes the places of its questions."""

    answers_under: ClassVar[bool] = False

    def __init__(self, inner: InMemoryStore) -> None:
        super().__init__("groups", capabilities=inner.capabilities, state=inner.state)
        self.asked: list[Where] = []

    async def _query(self, query: Query) -> Page:
        self.asked.append(query.where)
        return await super()._query(query)

    async def _candidates(self, asked: Candidates) -> CandidateColumns:
        self.asked.append(asked.where)
        return await super()._candidates(asked)


async def _stores(seed: int, **lacks: Any) -> tuple[InMemoryStore, InGroups]:
    chance = random.Random(seed)  # noqa: S311 - the same each time
    whole = InMemoryStore(capabilities=replace(InMemoryStore.claims, **lacks))
    await whole.open(DECLARED)
    await apply_all(
        whole, *[put(random_record(chance, n, at)) for at in (*PLACES, *BESIDES) for n in range(5)]
    )
    groups = InGroups(whole)
    await groups.open(DECLARED)
    return whole, groups


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subtrees, "ASKED_AT_ONCE", 3)


@pytest.mark.parametrize("seed", range(3))
async def test_pages_counts_and_deletions_are_the_same(seed: int) -> None:
    whole, groups = await _stores(seed)
    for order in ORDERS:
        for part in (None, Eq("type", "a")):
            query = Query(SAMPLES, WHERE, part, order, roles=EVERY)
            expected = [r.key.id async for page in scan(whole, query, 7) for r in page.records]
            assert [r.key.id async for page in scan(groups, query, 7) for r in page.records] == expected
            heads = replace(query, select=frozenset({"source"}))
            assert [h.key.id async for page in scan(groups, heads, 9) for h in page.heads] == expected
            assert await groups.count(query) == await whole.count(query)
    assert all(isinstance(where, Partitions) and len(where.partitions) <= 3 for where in groups.asked)
    some = Query(SAMPLES, WHERE, Eq("type", "a"), roles=EVERY)
    expected_count = (await whole.count(some)).records
    assert await groups.delete_matching(some, 50) == expected_count > 0
    assert (await whole.count(some)).records == 0
    assert (await whole.count(replace(some, where=Under("acme", ("path:trees/",))))).records > 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("lacks", [(), ("lexical",), ("semantic",), ("lexical", "semantic")])
async def test_searches_and_candidates_are_the_same(seed: int, lacks: tuple[str, ...]) -> None:
    """Scores come from the statistics of all groups."""
    whole, groups = await _stores(seed, **dict.fromkeys(lacks, False))
    near = pack_vector([1.0, 0.0, 0.0, 1.0])
    ways = [*([Words("lantern of the harbour"), Words("penguin")] if "lexical" not in lacks else [])]
    searches: list[Words | Near] = [*ways, *([Near(near)] if "semantic" not in lacks else [])]
    for by in searches:
        for roles in (frozenset({Role.HOME}), EVERY):
            for part in (None, Eq("type", "b")):
                search = Search(SAMPLES, WHERE, by, 9, part, roles, frozenset({"type"}))
                expected, found = await whole.search(search), await groups.search(search)
                assert [hit.head for hit in found] == [hit.head for hit in expected]
                assert [hit.score for hit in found] == pytest.approx([hit.score for hit in expected])
    asked = Candidates(
        SAMPLES,
        WHERE,
        "lantern harbour",
        near,
        6,
        among=tuple(id_of(n, at) for n, at in enumerate((*PLACES[:3], *BESIDES))),
        around=BESIDE,
        counted=("lantern", "penguin", "the"),
        select=SELECT,
    )
    for question in (
        asked,
        replace(asked, text=""),
        replace(asked, near=None, dimensions=4),
        replace(asked, statistics=False, among=(), around=None),
        replace(asked, filter=Eq("type", "a"), roles=EVERY),
        replace(asked, text="", near=None, among=()),
    ):
        expected_columns, columns = await whole.candidates(question), await groups.candidates(question)
        assert columns.statistics == expected_columns.statistics
        rows = {i: row for row, i in enumerate(columns.ids)}
        assert len(rows) == len(columns.ids)
        assert set(expected_columns.ids) <= rows.keys()
        for row, record_id in enumerate(expected_columns.ids):
            at = rows[record_id]
            assert columns.counts[at].tolist() == expected_columns.counts[row].tolist()
            assert columns.vectors[at].tolist() == expected_columns.vectors[row].tolist()
            assert columns.lengths[at] == expected_columns.lengths[row]


async def test_a_small_subtree_is_one_question() -> None:
    _, groups = await _stores(1)
    where = Under("acme", ("path:tree/03/",))
    await groups.candidates(Candidates(SAMPLES, where, "lantern"))
    assert groups.asked == [Partitions((PLACES[3],))]


def test_a_place_names_each_scope_once() -> None:
    where = Under("t", ("path:b/", "path:a/x/", "path:a/", "path:b/"), ("path:a/y/", "user:u", "user:u"))
    assert where.disjoint() == Under("t", ("path:a/", "path:b/"), ("user:u",))
