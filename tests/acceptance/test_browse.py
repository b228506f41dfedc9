"""Browsing by the last change, page by page, over the whole tenant or some of its
scopes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from memory import BlockingMemory, InvalidInput
from memory.domain.search_results import EntryPage
from memory.facade.memory import Memory
from memory.ports.contract.cells import cells
from tests.acceptance.support import (
    HOUR,
    MICROSECOND,
    OTHER_USER,
    SESSION,
    START,
    USER,
    WORKSPACE,
    Clock,
    contents,
)


async def _pages(memory: Memory, scope: Any = None, **asked: Any) -> AsyncIterator[EntryPage]:
    page = await memory.browse(scope, **asked)
    yield page
    while page.cursor is not None:
        page = await memory.browse(scope, cursor=page.cursor, **asked)
        yield page


async def _paged(memory: Memory, scope: Any = None, **asked: Any) -> list[str]:
    return [content async for page in _pages(memory, scope, **asked) for content in contents(page)]


async def _tied(memory: Memory, count: int) -> list[str]:
    """Entries of several scopes, changed last at one of three moments, many at each;
    their texts, the newest first.
    """
    scopes = (USER, SESSION, WORKSPACE, OTHER_USER)
    drafts = [
        {"content": f"n{n:02}", "scope": scopes[n % 4], "created_at": START + HOUR * (n // (count // 3 + 1))}
        for n in range(count)
    ]
    entries = await memory.write_many(drafts)
    return contents(sorted(entries, key=lambda entry: entry.updated_at)[::-1])


@pytest.mark.behaviour("D47", "D49", "D50", "D52", "AC-D05")
async def test_what_changed_last_comes_first_and_every_filter_is_hard(memory: Memory, clock: Clock) -> None:
    written = []
    for content, kind, tags in (
        ("A alpha", "project", ["red"]),
        ("B beta", "reference", ["red", "blue"]),
        ("C gamma", "project", ["blue"]),
    ):
        clock.advance()
        written.append(await memory.write(content, scope=USER, type=kind, tags=tags))
    a, b, c = (entry.content for entry in written)
    assert contents(await memory.browse()) == contents(await memory.browse(USER)) == [c, b, a]
    assert contents(await memory.browse(types=["project"])) == [c, a]
    assert contents(await memory.browse(types=["project", "reference"])) == [c, b, a]
    assert contents(await memory.browse(tags=["red"])) == [b, a]
    assert contents(await memory.browse(tags=["red", "blue"])) == [b]
    assert [hit.entry.content for hit in await memory.search("gamma", scope=USER)] == [c]
    assert contents(await memory.browse(updated_before=written[2].updated_at)) == [b, a]
    assert contents(await memory.browse(since=written[1].created_at)) == [c, b]
    assert contents(
        await memory.browse(since=written[1].created_at, updated_before=written[2].updated_at)
    ) == [b]
    first = await memory.browse(limit=1)
    assert contents(first) == [c]
    assert contents(await memory.browse(cursor=first.cursor)) == [b, a]


@pytest.mark.behaviour("D14", "D47", "D50")
async def test_an_edit_brings_to_the_front_and_since_goes_by_creation(memory: Memory, clock: Clock) -> None:
    entries = []
    for content in ("one", "two", "three"):
        clock.advance()
        entries.append(await memory.write(content, scope=USER))
    clock.advance()
    edited = await memory.update(entries[0].id, tags=["edited"])
    assert contents(await memory.browse()) == ["one", "three", "two"]
    assert contents(await memory.browse(since=entries[1].created_at)) == ["three", "two"]
    assert contents(await memory.browse(updated_before=edited.updated_at)) == ["three", "two"]
    assert contents(await memory.browse(updated_before=edited.updated_at + MICROSECOND)) == [
        "one",
        "three",
        "two",
    ]
    assert contents(await memory.retrieve(USER)) == ["three", "two", "one"]


@pytest.mark.behaviour("D47")
async def test_what_is_moved_or_read_keeps_its_place(memory: Memory, clock: Clock) -> None:
    entries = []
    for n in range(6):
        clock.advance()
        entries.append(await memory.write(f"word n{n}", scope=SESSION))
    there = contents(await memory.browse())
    clock.advance(HOUR)
    await memory.admin.move([entries[0].id, entries[3].id], "mid")
    await memory.admin.move([entries[3].id], "long")
    await memory.search("word", scope=SESSION)
    await memory.get(entries[1].id)
    await memory.admin.sweep()
    assert contents(await memory.browse()) == there == [f"word n{n}" for n in reversed(range(6))]


@pytest.mark.behaviour("D52", "AC-D07")
async def test_pages_hold_every_entry_of_the_tenant_once_also_of_one_moment(
    memory: Memory, clock: Clock
) -> None:
    clock.advance(4 * HOUR)
    texts = await _tied(memory, 20)
    await memory.for_tenant("other").write("another's", scope=USER)
    for limit, sizes in ((1, [1] * 20), (3, [3] * 6 + [2]), (5, [5] * 4), (20, [20]), (1_000, [20])):
        pages = [page async for page in _pages(memory, limit=limit)]
        assert [text for page in pages for text in contents(page)] == texts
        assert [len(page) for page in pages] == sizes
    assert await _paged(memory, [USER, SESSION], limit=3) == [text for text in texts if int(text[1:]) % 4 < 2]
    assert await _paged(memory.for_tenant("other"), limit=3) == ["another's"]


@pytest.mark.behaviour("D52")
async def test_ten_of_one_moment_in_pages_of_five_are_ten(memory: Memory, clock: Clock) -> None:
    clock.advance(HOUR)
    await memory.write_many(
        {"content": f"n{n}", "scope": USER, "created_at": START, "key": f"k{n}"} for n in range(10)
    )
    assert await _paged(memory, limit=5) == [f"n{n}" for n in range(9, -1, -1)]


@pytest.mark.behaviour("D52")
async def test_what_nobody_edits_is_shown_once_while_others_write_edit_retire_and_delete(
    memory: Memory, clock: Clock
) -> None:
    clock.advance(4 * HOUR)
    texts = await _tied(memory, 18)
    touched, seen = set[str](), list[str]()
    async for page in _pages(memory, limit=4):
        seen += contents(page)
        for n, at in enumerate((START, START + HOUR, START + 2 * HOUR, None)):
            await memory.write(f"later {len(seen)} {n}", scope=USER, created_at=at)
        ahead = [
            entry
            for entry in await memory.browse(limit=1_000)
            if entry.content in texts and entry.content not in seen
        ]
        for entry, act in zip(ahead[::-2], ("delete", "retire", "edit"), strict=False):
            touched.add(entry.content)
            if act == "edit":
                await memory.update(entry.id, tags=["edited"])
            else:
                await (memory.delete if act == "delete" else memory.entries.invalidate)(entry.id)
        if ahead:
            await memory.admin.move([ahead[0].id], "long")
    assert len(set(seen)) == len(seen)
    assert [text for text in seen if not text.startswith("later") and text not in touched] == [
        text for text in texts if text not in touched
    ]
    assert 0 < len(touched) < len(texts)


@pytest.mark.behaviour("D49", "AC-D07")
@cells("limit", [0, -5, 1001, 2.9, True, "5", 2**63], shared=True)
async def test_a_limit_out_of_range_is_refused(memory: Memory, limit: Any) -> None:
    with pytest.raises(InvalidInput, match="limit"):
        await memory.browse(limit=limit)


@pytest.mark.behaviour("D49", "AC-D07")
async def test_fifty_are_shown_unless_told_and_any_limit_up_to_a_thousand_exactly(memory: Memory) -> None:
    await memory.write_many([{"content": f"row {n}", "scope": USER} for n in range(230)])
    assert len(await memory.browse()) == len(await memory.browse(limit=None)) == 50
    for limit in (1, 200, 201, 229, 230, 231, 1_000):
        assert len(await memory.browse(limit=limit)) == min(limit, 230)


@pytest.mark.behaviour("D7", "D51")
async def test_of_a_conversation_is_what_is_pinned_to_it_or_to_none(memory: Memory, clock: Clock) -> None:
    for session in ("c1", "c2", "C1", "c_"):
        await memory.sessions.create(session)
    for content, conversation in (
        ("here", "c1"),
        ("free", None),
        ("elsewhere", "c2"),
        ("like it", "C1"),
        ("wild", "c_"),
    ):
        clock.advance()
        await memory.write(content, scope=USER, conversation_id=conversation)
    assert contents(await memory.browse(conversation="c1")) == ["free", "here"]
    assert contents(await memory.browse(conversation="c_")) == ["wild", "free"]
    assert contents(await memory.browse(conversation="nobody's")) == ["free"]
    assert await _paged(memory, USER, conversation="c1", limit=1) == ["free", "here"]
    assert contents(await memory.browse(SESSION, conversation="c1")) == []
    assert len(await memory.browse()) == 5


@pytest.mark.behaviour("D53")
async def test_tags_match_whole_and_to_the_letter(memory: Memory) -> None:
    await memory.write("tagged", scope=USER, tags=["a_b", "c", "aab-long"])
    for asked in ("A_B", "axb", "a_", "%", "a%", "a_b ", "a", "A_b", '"a_b"', "a_b,c"):
        assert await memory.browse(tags=[asked]) == [], asked
    assert contents(await memory.browse(tags=["a_b", "c"])) == ["tagged"]


@pytest.mark.behaviour("D13", "D21", "D22", "D29", "D35", "AC-D09")
async def test_only_what_is_active_is_shown_unless_a_moment_is_asked_about(
    memory: Memory, clock: Clock
) -> None:
    kept, retired, deleted, expiring = [
        await memory.write(text, scope=USER) for text in ("kept", "retired", "deleted", "expiring")
    ]
    await memory.update(expiring.id, expires_at=clock.moment + 100 * HOUR)
    before = clock.advance()
    clock.advance()
    await memory.entries.invalidate(retired.id)
    await memory.delete(deleted.id)
    await memory.update(kept.id, content="kept, edited")
    assert contents(await memory.browse()) == ["kept, edited", "expiring"]
    assert contents(await memory.browse(as_of=before)) == ["kept, edited", "retired", "expiring"]
    assert contents(await memory.browse(known_at=before)) == ["expiring", "retired", "kept"]
    assert await _paged(memory, known_at=before, limit=1) == ["expiring", "retired", "kept"]
    clock.advance(200 * HOUR)
    assert contents(await memory.browse()) == ["kept, edited"]
    await memory.write("another's", scope=WORKSPACE)
    await memory.admin.erase(USER)
    assert contents(await memory.browse()) == ["another's"]
    assert await memory.browse(USER) == []


@pytest.mark.behaviour("D47", "D54")
async def test_a_blank_query_browses_by_the_last_change(memory: Memory, clock: Clock) -> None:
    entries = []
    for text in ("one", "two", "three"):
        clock.advance()
        entries.append(await memory.write(text, scope=USER))
    assert (
        [hit.entry.content for hit in await memory.search(" \n", scope=USER)]
        == contents(await memory.browse(USER))
        == ["three", "two", "one"]
    )
    clock.advance()
    await memory.update(entries[0].id, title="edited")
    assert (
        [hit.entry.content for hit in await memory.search(" \n", scope=USER)]
        == contents(await memory.browse(USER))
        == ["one", "three", "two"]
    )
    assert [hit.entry.content for hit in await memory.search("", scope=USER, limit=1)] == ["one"]


@pytest.mark.behaviour("D48")
async def test_what_cannot_be_asked_is_refused_by_name_before_any_store_is_asked(plain: Memory) -> None:
    asked: list[tuple[str, dict[str, Any]]] = [
        ("types", {"types": ["note"]}),
        ("types", {"types": "project"}),
        ("tags", {"tags": "red"}),
        ("since", {"since": "yesterday"}),
        ("updated_before", {"updated_before": "2126-03-01"}),
        ("conversation", {"conversation": ""}),
        ("conversation", {"conversation": 5}),
        ("cursor", {"cursor": 5}),
        ("cursor", {"cursor": "x" * 600}),
        ("scope", {"scope": "nobody"}),
        ("scope", {"scope": []}),
        ("as_of", {"as_of": -1}),
    ]
    for field, options in asked:
        with pytest.raises(InvalidInput) as caught:
            await plain.browse(**options)
        assert caught.value.field == field, options


@pytest.mark.behaviour("D52")
async def test_a_cursor_goes_on_with_its_own_question_only(memory: Memory, clock: Clock) -> None:
    clock.advance(4 * HOUR)
    await memory.write_many({"content": f"n{n}", "scope": USER, "tags": ["a"]} for n in range(9))
    asked: dict[str, Any] = {"limit": 2, "tags": ["a"]}
    cursor = (await memory.browse(USER, **asked)).cursor
    assert cursor is not None
    assert len(await memory.browse(USER, cursor=cursor, **(asked | {"limit": 5}))) == 5
    changes: list[dict[str, Any]] = [{"tags": ["b"]}, {"types": ["user"]}, {"conversation": "c"}]
    changes += [{name: START} for name in ("since", "updated_before", "as_of", "known_at")]
    for change in changes:
        with pytest.raises(InvalidInput, match="another query"):
            await memory.browse(USER, cursor=cursor, **(asked | change))
    for stranger, scope in ((memory, None), (memory, OTHER_USER), (memory.for_tenant("other"), USER)):
        with pytest.raises(InvalidInput, match="another query"):
            await stranger.browse(scope, cursor=cursor, **asked)
    with pytest.raises(InvalidInput, match="another query"):
        await memory.retrieve(USER, cursor=cursor, **asked)
    aged = (await memory.retrieve(USER, **asked)).cursor
    with pytest.raises(InvalidInput, match="another query"):
        await memory.browse(USER, cursor=aged, **asked)


def test_a_blocking_memory_and_its_view_browse_alike() -> None:
    with BlockingMemory(
        {"tiers": dict.fromkeys(("short", "mid", "long"), "memory://"), "embedder": "none"}
    ) as memory:
        ada = memory.scoped("user:ada")
        for n in range(3):
            ada.write(f"n{n}", tags=["a"])
        memory.write("elsewhere", scope="user:bob")
        first = ada.browse(limit=2, tags=["a"])
        assert contents(first) == ["n2", "n1"]
        rest = memory.browse("user:ada", limit=2, tags=["a"], cursor=first.cursor)
        assert (contents(rest), rest.cursor) == (["n0"], None)
        assert contents(memory.browse()) == ["elsewhere", "n2", "n1", "n0"]


async def test_retired_entries_are_listed_on_request_in_the_same_order(memory: Memory, clock: Clock) -> None:
    written = []
    for n in range(5):
        clock.advance()
        written.append(await memory.write(f"n{n}", scope=(USER, SESSION)[n % 2]))
    clock.advance()
    for n in (1, 2):
        assert await memory.entries.invalidate(written[n].id)
    assert await _paged(memory) == ["n4", "n3", "n0"]
    every = await _paged(memory, include_retired=True)
    assert sorted(every[:2]) == ["n1", "n2"]
    assert every[2:] == ["n4", "n3", "n0"]
    assert await _paged(memory, include_retired=True, limit=1) == every
    assert {entry.content for entry in await memory.browse(include_retired=True) if entry.valid_to} == set(
        every[:2]
    )
    assert contents(await memory.scoped(USER).browse(include_retired=True)) == ["n2", "n4", "n0"]
    await memory.delete(written[1].id)
    assert await _paged(memory, include_retired=True) == ["n2", "n4", "n3", "n0"]


async def test_retired_entries_are_not_listed_as_of_a_moment_nor_by_anothers_cursor(
    memory: Memory, clock: Clock
) -> None:
    for n in range(3):
        await memory.write(f"n{n}", scope=USER)
    page = await memory.browse(limit=1)
    with pytest.raises(InvalidInput, match="cursor: is damaged, or belongs to another query"):
        await memory.browse(limit=1, cursor=page.cursor, include_retired=True)
    moments: tuple[dict[str, Any], ...] = ({"as_of": clock.moment}, {"known_at": clock.moment})
    for moment in moments:
        with pytest.raises(InvalidInput, match="include_retired: cannot be combined with as_of or known_at"):
            await memory.browse(include_retired=True, **moment)
    with pytest.raises(InvalidInput, match="include_retired"):
        await memory.browse(include_retired="yes")  # type: ignore[arg-type]


async def test_entries_of_a_blocked_source_are_iterated_and_not_browsed(memory: Memory) -> None:
    await memory.write("fine", scope=USER)
    await memory.write("poisoned", scope=USER, source="web:evil.example")
    await memory.admin.block_source(source="web:evil.example", reason="a poisoned page")
    assert await _paged(memory, include_retired=True) == ["fine"]
    assert sorted([one.content async for one in memory.entries.iterate()]) == ["fine", "poisoned"]
