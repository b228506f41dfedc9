"""Writes under a key happen once, however often and from wherever they are repeated (decision A5)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from memory import Conflict, Entry, InvalidInput, Scope
from memory.facade.memory import Memory
from tests.acceptance.support import DAY, HOUR, SESSION, USER, Clock

SCOPES = pytest.mark.parametrize("scope", [USER, SESSION], ids=str)
BODY: dict[str, Any] = {"content": "once", "tags": ["a"], "metadata": {"n": 1, "deep": [1.5, None]}, "type": "user", "key": "k"}


@pytest.mark.behaviour("A5")
@SCOPES
async def test_fifty_concurrent_repeats_make_one_entry_and_all_get_it(memory: Memory, scope: Scope) -> None:
    written = await asyncio.gather(*(memory.write(scope=scope, **BODY) for _ in range(50)))
    assert len({entry.id for entry in written}) == 1
    assert all(entry == written[0] for entry in written)
    assert await memory.retrieve(scope) == [written[0]]


@pytest.mark.behaviour("A5")
@SCOPES
async def test_fifty_concurrent_different_bodies_leave_one_winner(memory: Memory, scope: Scope) -> None:
    calls = (memory.write(f"body {n % 10}", scope=scope, key="k") for n in range(50))
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    stored = await memory.retrieve(scope)
    assert len(stored) == 1
    winners = [o for o in outcomes if isinstance(o, Entry)]
    losers = [o for o in outcomes if isinstance(o, Conflict)]
    assert (len(winners), len(losers)) == (5, 45)
    assert all(w == stored[0] for w in winners)
    assert {loser.existing_id for loser in losers} == {stored[0].id}


@pytest.mark.behaviour("A5")
@pytest.mark.parametrize(
    "other",
    [{"content": "twice"}, {"tags": ["b"]}, {"metadata": {"n": 2}}, {"type": "project"}, {"title": "T"}, {"source": "s"}, {"created_at": 1}],
    ids=str,
)
async def test_another_body_under_a_used_key_is_a_conflict_that_names_the_first(memory: Memory, other: dict[str, Any]) -> None:
    first = await memory.write(scope=USER, **BODY)
    with pytest.raises(Conflict, match="'k'") as caught:
        await memory.write(scope=USER, **(BODY | other))
    assert caught.value.existing_id == first.id
    assert await memory.retrieve(USER) == [first]


@pytest.mark.behaviour("A5")
async def test_the_same_key_in_another_scope_is_another_entry(memory: Memory) -> None:
    first = await memory.write(scope=USER, **BODY)
    second = await memory.write(scope=SESSION, **(BODY | {"content": "another"}))
    assert first.id != second.id


@pytest.mark.behaviour("A5")
@SCOPES
async def test_a_repeat_after_edits_returns_the_first_result_and_undoes_nothing(memory: Memory, clock: Clock, scope: Scope) -> None:
    first = await memory.write(scope=scope, **BODY)
    for n in range(3):
        clock.advance()
        await memory.update(first.id, content=f"edited {n}")
    again = await memory.write(scope=scope, **BODY)
    assert again == first
    assert [e.content for e in await memory.retrieve(scope)] == ["edited 2"]
    with pytest.raises(Conflict):
        await memory.write(scope=scope, **(BODY | {"content": "edited 2"}))


@pytest.mark.behaviour("A5")
@SCOPES
async def test_a_repeat_after_deletion_returns_the_first_result_and_brings_nothing_back(memory: Memory, clock: Clock, scope: Scope) -> None:
    first = await memory.write(scope=scope, **BODY)
    clock.advance()
    await memory.delete(first.id)
    clock.advance()
    again = await memory.write(scope=scope, **BODY)
    assert again == first
    assert await memory.get(first.id) is None
    assert await memory.retrieve(scope) == []
    with pytest.raises(Conflict) as caught:
        await memory.write(scope=scope, **(BODY | {"content": "another"}))
    assert caught.value.existing_id == first.id


@pytest.mark.behaviour("A5")
@SCOPES
async def test_a_repeat_after_the_scope_was_erased_brings_nothing_back(memory: Memory, scope: Scope) -> None:
    first = await memory.write(scope=scope, **BODY)
    await memory.delete_scope(scope)
    again = await memory.write(scope=scope, **BODY)
    assert (again.id, again.content) == (first.id, first.content)
    assert await memory.retrieve(scope) == []


@pytest.mark.behaviour("A5")
async def test_a_repeat_after_the_entry_moved_onward_finds_it_there(memory: Memory) -> None:
    first = await memory.write(scope=SESSION, **(BODY | {"tags": ["fact"]}))
    await memory.end_session("sess-1")
    again = await memory.write(scope=SESSION, **(BODY | {"tags": ["fact"]}))
    assert (again.id, again.version) == (first.id, first.version)
    assert len(await memory.retrieve(SESSION)) == 1


@pytest.mark.behaviour("A5")
async def test_a_repeat_of_an_expired_or_retired_entry_returns_the_first_result(memory: Memory, clock: Clock) -> None:
    expiring = BODY | {"expires_at": clock.moment + HOUR}
    first = await memory.write(scope=USER, **expiring)
    retired = await memory.write(scope=USER, **(BODY | {"key": "r"}))
    clock.advance(DAY)
    await memory.invalidate(retired.id)
    assert await memory.write(scope=USER, **expiring) == first
    assert await memory.write(scope=USER, **(BODY | {"key": "r"})) == retired
    assert await memory.retrieve(USER) == []


@pytest.mark.behaviour("A5")
async def test_a_key_repeated_within_one_batch_is_written_once(memory: Memory) -> None:
    drafts = [{"scope": USER, **BODY}, {"content": "between", "scope": USER}, {"scope": USER, **BODY}]
    one, _, three = await memory.write_many(drafts)
    assert one == three
    assert len(await memory.retrieve(USER)) == 2


@pytest.mark.behaviour("A5")
async def test_a_whole_batch_with_keys_can_be_repeated(memory: Memory) -> None:
    drafts = [{"content": f"line {n}", "scope": USER if n % 2 else SESSION, "key": f"chat:{n}"} for n in range(40)]
    first = await memory.write_many(drafts[:25])
    again = await memory.write_many(drafts)
    assert again[:25] == first
    assert len([e async for e in memory.entries()]) == 40


@pytest.mark.behaviour("A5")
async def test_keys_are_opaque_and_told_apart_to_the_letter(memory: Memory) -> None:
    keys = ["k", "K", "k ", " k", "ķ", "k\n", "k:1", "%", "x" * 512]
    written = [await memory.write(f"under {key!r}", scope=USER, key=key) for key in keys]
    assert len({entry.id for entry in written}) == len(keys)


@pytest.mark.behaviour("A5")
@pytest.mark.parametrize("key", ["", "\x00", "\ud800", "x" * 513, 5], ids=["empty", "nul", "surrogate", "long", "number"])
async def test_a_key_that_cannot_be_is_refused(memory: Memory, key: str) -> None:
    with pytest.raises(InvalidInput, match="key"):
        await memory.write("once", scope=USER, key=key)
    assert await memory.retrieve(USER) == []


@pytest.mark.behaviour("A57")
async def test_a_key_of_an_erased_scope_brings_nothing_back_and_takes_no_other_content(memory: Memory) -> None:
    first = await memory.write("a", scope=USER, key="k")
    assert await memory.delete_scope(USER) == 1
    assert (await memory.write("a", scope=USER, key="k")).id == first.id
    with pytest.raises(Conflict, match="'k'"):
        await memory.write("b", scope=USER, key="k")
    assert await memory.retrieve(USER) == []
