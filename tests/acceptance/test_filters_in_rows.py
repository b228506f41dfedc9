"""Filters that few entries pass: pages end early, lose nothing, and say so."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from memory import Entry, Filter, InvalidInput, Memory
from memory.facade.runtime.access import engine_of
from tests.acceptance.support import OTHER_USER, START, USER, Clock

RARE = Filter.metadata("kind") == {"of": "rare"}
"""No store compares objects."""


async def _written(memory: Memory, clock: Clock, moments: int) -> list[Entry]:
    """Sixty entries at so many moments, some of them rare, in two tiers."""
    written = []
    for number in range(60):
        entry = await memory.write(
            f"tea {number}",
            scope=USER,
            metadata={"kind": {"of": "rare" if number % 13 == 5 else "usual"}},
            created_at=START - timedelta(days=1) + timedelta(seconds=number * moments // 60),
        )
        written.append(entry)
        if number % 4 == 1:
            await memory.admin.move([entry.id], "long")
    return written


def _check_at_most(memory: Memory, rows: int, page: int) -> None:
    placement = engine_of(memory).placement
    placement.settings = replace(placement.settings, filter_rows=rows, page=page)


@pytest.mark.parametrize("moments", [1, 4, 60])
@pytest.mark.parametrize(("rows", "page"), [(1, 1), (7, 3), (20, 50)])
@pytest.mark.parametrize("order", ["newest", "oldest"])
async def test_pages_that_end_early_show_every_entry_once(
    memory: Memory, clock: Clock, moments: int, rows: int, page: int, order: Any
) -> None:
    written = await _written(memory, clock, moments)
    _check_at_most(memory, rows, page)
    wanted = [entry.id for entry in written if RARE.matches(entry)]
    for limit in (1, 2, 100):
        found, cursor, early = list[str](), None, 0
        while True:
            got = await memory.retrieve(USER, filter=RARE, limit=limit, cursor=cursor, order=order)
            assert len(got) <= limit
            is_early = len(got) < limit and got.cursor is not None
            assert bool(got.degraded) == is_early
            early += is_early
            found += [entry.id for entry in got]
            if (cursor := got.cursor) is None:
                break
        assert found == (wanted if order == "oldest" else wanted[::-1])
        assert early or rows == 20 or limit != 2


async def test_a_page_that_ends_early_names_how_many_it_checked(memory: Memory, clock: Clock) -> None:
    await _written(memory, clock, 60)
    _check_at_most(memory, 20, 10)
    page = await memory.browse(filter=Filter.metadata("kind") == {"of": "none"}, limit=5)
    assert page == []
    assert page.cursor is not None
    assert page.degraded == (
        "the filter was checked on 20 entries; the page ends early, its cursor continues",
    )


async def test_a_filter_that_stores_apply_ends_no_page_early(memory: Memory, clock: Clock) -> None:
    await _written(memory, clock, 60)
    _check_at_most(memory, 1, 1)
    page = await memory.browse(filter={"created_at": {"$lt": START}, "$not": {"tags": ["none"]}}, limit=60)
    assert (len(page), page.cursor, page.degraded) == (60, None, ())


async def test_a_cursor_belongs_to_its_filter(memory: Memory, clock: Clock) -> None:
    await _written(memory, clock, 60)
    usual = {"metadata": {"kind": {"of": "usual"}}}
    page = await memory.browse(filter=usual, limit=2)
    assert await memory.browse(filter=usual, limit=2, cursor=page.cursor)
    for other in (None, {"metadata": {"kind": {"of": "rare"}}}, {"metadata.kind.of": {"$ne": "usual"}}):
        with pytest.raises(InvalidInput, match="belongs to another query"):
            await memory.browse(filter=other, cursor=page.cursor)


async def test_a_search_that_checks_its_last_candidate_says_so(
    memory: Memory, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _written(memory, clock, 60)
    monkeypatch.setattr("memory.orchestrator.retrieval.choosing.MAX_LIMIT", 10)
    monkeypatch.setattr("memory.orchestrator.retrieval.search.MAX_LIMIT", 10)
    hits = await memory.search("tea", scope=USER, filter=Filter.metadata("kind") == {"of": "none"})
    assert hits == []
    assert [note.partition(",")[0] for note in hits.degraded] == [
        "the filter was checked on the best 10 candidates"
    ]
    assert (await memory.search("tea", scope=OTHER_USER, filter=RARE)).degraded == ()


async def test_a_search_finds_rare_entries_behind_usual_ones(memory: Memory, clock: Clock) -> None:
    written = await _written(memory, clock, 60)
    hits = await memory.search("tea", scope=USER, filter=RARE, limit=3, explain=True)
    assert len(hits) == 3
    assert hits.degraded == ()
    assert all(RARE.matches(hit.entry) for hit in hits)
    assert {hit.id for hit in await memory.search("tea", scope=USER, filter=RARE, limit=100)} == {
        entry.id for entry in written if RARE.matches(entry)
    }
