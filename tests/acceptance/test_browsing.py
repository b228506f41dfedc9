"""Browsing page by page, and the filters that browsing has: by any tag, by metadata,
from one moment until before another.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from memory import BlockingMemory, InvalidInput
from memory.domain.search_results import EntryPage
from memory.facade.memory import Memory
from memory.ports.contract.cells import cells
from tests.acceptance.support import HOUR, MICROSECOND, OTHER_USER, SESSION, START, USER, Clock, contents


async def _pages(memory: Memory, **asked: Any) -> AsyncIterator[EntryPage]:
    """One page after the other, until there is no cursor."""
    page = await memory.retrieve(USER, **asked)
    yield page
    while page.cursor is not None:
        page = await memory.retrieve(USER, cursor=page.cursor, **asked)
        yield page


async def _paged(memory: Memory, **asked: Any) -> list[str]:
    return [content async for page in _pages(memory, **asked) for content in contents(page)]


async def _tied(memory: Memory, count: int, **more: Any) -> list[str]:
    """Entries of three moments, many of each; their texts, oldest first."""
    drafts = [
        {"content": f"n{n:02}", "scope": USER, "created_at": START + HOUR * (n // (count // 3 + 1)), **more}
        for n in range(count)
    ]
    await memory.write_many(drafts)
    return contents(await memory.retrieve(USER, limit=count, order="oldest"))


@pytest.mark.behaviour("D52")
@pytest.mark.parametrize("order", ["oldest", "newest"])
async def test_pages_hold_every_entry_once_in_order_also_of_one_moment(
    memory: Memory, clock: Clock, order: Any
) -> None:
    clock.advance(4 * HOUR)
    texts = await _tied(memory, 20)
    await memory.write("another's", scope=OTHER_USER)
    for limit, sizes in ((1, [1] * 20), (3, [3] * 6 + [2]), (5, [5] * 4), (20, [20]), (1_000, [20])):
        pages = [page async for page in _pages(memory, order=order, limit=limit)]
        assert [text for page in pages for text in contents(page)] == (
            texts if order == "oldest" else texts[::-1]
        )
        assert [len(page) for page in pages] == sizes


@pytest.mark.behaviour("D52")
@pytest.mark.parametrize("order", ["oldest", "newest"])
async def test_pages_lose_and_repeat_nothing_while_others_write_edit_and_delete(
    memory: Memory, clock: Clock, order: Any
) -> None:
    clock.advance(4 * HOUR)
    texts = await _tied(memory, 18)
    seen, written = list[str](), 0
    async for page in _pages(memory, order=order, limit=4):
        seen += contents(page)
        for at in (START, START + HOUR, START + 2 * HOUR, None):
            await memory.write(f"later {written}", scope=USER, created_at=at)
            written += 1
        await memory.update(page[0].id, tags=["edited"])
        await memory.delete(page[-1].id)
    assert [text for text in seen if not text.startswith("later")] == (
        texts if order == "oldest" else texts[::-1]
    )
    assert len(set(seen)) == len(seen)


@pytest.mark.behaviour("D52")
async def test_pages_go_over_several_scopes_and_go_on_while_entries_move_onward(
    memory: Memory, clock: Clock
) -> None:
    clock.advance(HOUR)
    entries = await memory.write_many(
        {
            "content": f"n{n:02}",
            "scope": SESSION if n % 3 else USER,
            "created_at": START + MICROSECOND * (n // 4),
        }
        for n in range(20)
    )
    both: dict[str, Any] = {"include_narrower": True, "session_id": SESSION.id}
    whole = contents(await memory.retrieve(USER, **both))
    assert len(whole) == 20
    seen, moving = list[str](), [entry.id for entry in entries]
    async for page in _pages(memory, limit=3, **both):
        seen += contents(page)
        await memory.admin.move(moving[:4], "mid")
        await memory.admin.move(moving[2:6], "long")
        moving = moving[2:]
    assert seen == whole


@pytest.mark.behaviour("D52")
async def test_the_past_has_pages_too(memory: Memory, clock: Clock) -> None:
    clock.advance(4 * HOUR)
    texts = await _tied(memory, 11)
    known = clock.advance()
    for entry in (await memory.retrieve(USER))[::2]:
        await memory.update(entry.id, content="edited since")
    assert await _paged(memory, limit=3, known_at=known) == texts[::-1]
    assert await _paged(memory, limit=3, known_at=known, order="oldest") == texts


@pytest.mark.behaviour("D52")
async def test_a_cursor_goes_on_with_its_own_question_only(memory: Memory, clock: Clock) -> None:
    clock.advance(4 * HOUR)
    await _tied(memory, 9, tags=["a"], metadata={"n": 1})
    asked: dict[str, Any] = {"limit": 2, "tags": ["a"], "metadata": {"n": 1}}
    cursor = (await memory.retrieve(USER, **asked)).cursor
    assert cursor is not None
    assert len(await memory.retrieve(USER, cursor=cursor, **(asked | {"limit": 5}))) == 5
    changes: list[dict[str, Any]] = [
        {"tags": ["b"]},
        {"any_tags": ["a"]},
        {"metadata": {"n": 1.5}},
        {"types": ["user"]},
        {"order": "oldest"},
    ]
    changes += [{name: START} for name in ("since", "before", "as_of", "known_at")]
    for change in changes:
        with pytest.raises(InvalidInput, match="another query"):
            await memory.retrieve(USER, cursor=cursor, **(asked | change))
    for stranger, scope in ((memory, OTHER_USER), (memory.for_tenant("other"), USER)):
        with pytest.raises(InvalidInput, match="another query"):
            await stranger.retrieve(scope, cursor=cursor, **asked)


@pytest.mark.behaviour("D52")
@pytest.mark.parametrize("call", ["retrieve", "browse"])
async def test_a_damaged_cursor_is_refused(plain: Memory, call: str) -> None:
    ask = getattr(plain, call)
    await plain.write_many({"content": "x", "scope": USER} for _ in range(3))
    cursor = (await ask(USER, limit=1)).cursor
    assert cursor is not None
    damaged = [
        cursor[:at] + ("A" if cursor[at] != "A" else "B") + cursor[at + 1 :] for at in range(len(cursor))
    ]
    damaged += [
        cursor[:-1],
        cursor + "A",
        cursor + "=",
        " " + cursor,
        cursor + "!",
        "W10",
        "bnVsbA",
        "W1tdLCJ4Il0",
        "é",
        "x" * 600,
    ]
    for one in damaged:
        with pytest.raises(InvalidInput) as caught:
            await ask(USER, cursor=one)
        assert caught.value.field == "cursor"


async def test_any_of_the_tags_and_all_of_the_tags_are_asked_together(memory: Memory) -> None:
    for tags in (["a"], ["b"], ["a", "c"], ["b", "c"], ["c"], []):
        await memory.write("+".join(tags) or "none", scope=USER, tags=tags)
    assert sorted(await _paged(memory, any_tags=["a", "b"])) == ["a", "a+c", "b", "b+c"]
    assert sorted(await _paged(memory, any_tags=["a", "b"], tags=["c"], limit=1)) == ["a+c", "b+c"]
    assert await _paged(memory, any_tags=["nobody's"]) == []
    assert len(await _paged(memory, any_tags=[])) == 6


async def test_what_was_created_before_a_moment_and_since_another(memory: Memory, clock: Clock) -> None:
    clock.advance(4 * HOUR)
    for n in range(4):
        await memory.write(f"n{n}", scope=USER, created_at=START + n * HOUR)
    assert await _paged(memory, before=START + 2 * HOUR) == ["n1", "n0"]
    assert await _paged(memory, before=START + 2 * HOUR + MICROSECOND, since=START + HOUR, limit=1) == [
        "n2",
        "n1",
    ]
    assert await _paged(memory, before=START) == []


SCALARS: dict[str, Any] = {
    "one": 1,
    "true": True,
    "text": "1",
    "nought": 0,
    "false": False,
    "null": None,
    "empty": "",
    "half": 0.5,
}
NESTED: dict[str, Any] = {"list": [1], "object": {"a": 1}}


async def test_metadata_are_compared_exactly(memory: Memory) -> None:
    for name, value in (SCALARS | NESTED).items():
        await memory.write(name, scope=USER, metadata={"v": value, "n": name})
    await memory.write("absent", scope=USER)
    for name, value in SCALARS.items():
        assert await _paged(memory, metadata={"v": value}) == [name]
    assert await _paged(memory, metadata={"v": 1.0}) == ["one"]
    assert await _paged(memory, metadata={"v": 1, "n": "one"}) == ["one"]
    assert await _paged(memory, metadata={"v": 1, "n": "true"}) == []
    assert await _paged(memory, metadata={"v": "2"}) == []
    assert len(await _paged(memory, metadata={})) == len(SCALARS | NESTED) + 1


@cells("value", [[1], {"a": 1}, {}, (1,), b"x", float("nan"), 2**63], shared=True)
async def test_metadata_that_cannot_be_compared_are_refused_by_name(plain: Memory, value: Any) -> None:
    with pytest.raises(InvalidInput, match="metadata") as caught:
        await plain.retrieve(USER, metadata={"v": value})
    assert caught.value.field == "metadata.v"


async def test_what_is_rare_by_its_metadata_is_found_behind_all_that_is_not_it(
    memory: Memory, clock: Clock
) -> None:
    clock.advance(HOUR)
    drafts = [
        {
            "content": f"n{n:03}",
            "scope": USER,
            "created_at": START + MICROSECOND * n,
            "metadata": {"third": n % 3 == 0},
        }
        for n in range(700)
    ]
    await memory.write_many(drafts)
    wanted = [f"n{n:03}" for n in range(0, 700, 3)]
    assert (
        contents(await memory.retrieve(USER, metadata={"third": True}, limit=200, order="oldest"))
        == wanted[:200]
    )
    assert await _paged(memory, metadata={"third": True}, limit=100, order="oldest") == wanted
    assert await _paged(memory, metadata={"third": True}, limit=100) == wanted[::-1]


def test_a_blocking_memory_and_its_view_page_alike() -> None:
    with BlockingMemory(
        {"tiers": dict.fromkeys(("short", "mid", "long"), "memory://"), "embedder": "none"}
    ) as memory:
        ada = memory.scoped("user:ada")
        for n in range(3):
            ada.write(f"n{n}", tags=["a"], metadata={"n": n})
        first = ada.retrieve(limit=2, any_tags=["a"])
        assert contents(first) == ["n2", "n1"]
        rest = memory.retrieve("user:ada", limit=2, any_tags=["a"], cursor=first.cursor)
        assert (contents(rest), rest.cursor) == (["n0"], None)
        assert first.to_dict()["cursor"] == first.cursor
        assert contents(ada.retrieve(metadata={"n": 1}, before=first[0].created_at)) == ["n1"]
