"""Writes under a key happen once, however often and from wherever they are repeated
(decision A5).
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from memory import Conflict, Entry, InvalidInput, PartialWrite, Scope
from memory.facade.memory import Memory
from tests.acceptance.support import DAY, HOUR, SCOPES, SESSION, USER, Clock

BODY: dict[str, Any] = {
    "content": "once",
    "tags": ["a"],
    "metadata": {"n": 1, "deep": [1.5, None]},
    "type": "user",
    "key": "k",
}


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
    [
        {"content": "twice"},
        {"tags": ["b"]},
        {"metadata": {"n": 2}},
        {"type": "project"},
        {"title": "T"},
        {"source": "s"},
        {"created_at": 10**9},
    ],
    ids=str,
)
async def test_another_body_under_a_used_key_is_a_conflict_that_names_the_first(
    memory: Memory, other: dict[str, Any]
) -> None:
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
async def test_a_repeat_after_edits_returns_the_first_result_and_undoes_nothing(
    memory: Memory, clock: Clock, scope: Scope
) -> None:
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
@pytest.mark.parametrize("content", ["once", "another"])
async def test_a_key_whose_entry_was_deleted_is_a_conflict_that_says_when(
    memory: Memory, clock: Clock, scope: Scope, content: str
) -> None:
    first = await memory.write(scope=scope, **BODY)
    await memory.update(first.id, content="edited")
    deleted = clock.advance()
    await memory.delete(first.id)
    clock.advance()
    with pytest.raises(Conflict, match=r"'k' was deleted at 2126-.*revive=True") as caught:
        await memory.write(scope=scope, **(BODY | {"content": content}))
    assert caught.value.existing_id == first.id
    assert caught.value.deleted_at is not None
    assert deleted <= caught.value.deleted_at < clock.moment
    assert await memory.get(first.id) is None
    assert await memory.retrieve(scope) == []


@pytest.mark.behaviour("A5", "A57")
@SCOPES
async def test_a_key_of_an_erased_scope_is_a_conflict_that_says_when(
    memory: Memory, clock: Clock, scope: Scope
) -> None:
    first = await memory.write(scope=scope, **BODY)
    erased = clock.advance()
    assert await memory.admin.erase(scope) == 1
    for content in ("once", "another"):
        with pytest.raises(Conflict, match="'k' was deleted") as caught:
            await memory.write(scope=scope, **(BODY | {"content": content}))
        assert caught.value.existing_id == first.id
        assert caught.value.deleted_at is not None
        assert erased <= caught.value.deleted_at < clock.moment
    assert await memory.retrieve(scope) == []


@pytest.mark.behaviour("A5", "D34")
@SCOPES
@pytest.mark.parametrize("whole_scope", [False, True], ids=["entry", "scope"])
async def test_a_key_revived_begins_a_life_that_knows_nothing_of_the_first(
    memory: Memory, clock: Clock, scope: Scope, whole_scope: bool
) -> None:
    moments = [clock.advance()]
    for life in range(3):
        entry = await memory.write(f"life {life}", scope=scope, key="k", revive=True)
        assert await memory.entries.history(entry.id) == [entry]
        for n in range(2):
            await memory.update(entry.id, content=f"life {life}, edit {n}")
        moments.append(clock.advance())
        assert [e.content for e in await memory.entries.history(entry.id)] == [
            f"life {life}",
            f"life {life}, edit 0",
            f"life {life}, edit 1",
        ]
        assert await memory.write(f"life {life}", scope=scope, key="k", revive=True) == entry
        for earlier in moments[:-1]:
            assert await memory.get(entry.id, known_at=earlier, as_of=clock.moment) is None
            assert await memory.retrieve(scope, known_at=earlier, as_of=clock.moment) == []
            assert await memory.search("life", scope=scope, known_at=earlier, as_of=clock.moment) == []
        if whole_scope:
            await memory.admin.erase(scope)
        else:
            await memory.delete(entry.id)
    assert await memory.retrieve(scope) == []


@pytest.mark.behaviour("A5")
async def test_reviving_what_was_never_deleted_is_a_keyed_write_like_any(memory: Memory) -> None:
    first = await memory.write(scope=USER, revive=True, **BODY)
    assert await memory.write(scope=USER, revive=True, **BODY) == first
    with pytest.raises(Conflict, match="another entry"):
        await memory.write(scope=USER, revive=True, **(BODY | {"content": "another"}))
    with pytest.raises(InvalidInput, match="revive"):
        await memory.write(scope=USER, revive="yes", **BODY)  # type: ignore[arg-type]


@pytest.mark.behaviour("A5")
@SCOPES
async def test_twenty_who_revive_at_once_make_one_entry(memory: Memory, scope: Scope) -> None:
    first = await memory.write(scope=scope, **BODY)
    await memory.delete(first.id)
    revived = await asyncio.gather(*(memory.write(scope=scope, revive=True, **BODY) for _ in range(20)))
    assert all(entry == revived[0] for entry in revived)
    assert revived[0].version > first.version
    assert await memory.retrieve(scope) == [revived[0]]


@pytest.mark.behaviour("A5")
async def test_drafts_in_conflict_keep_no_other_from_being_stored_and_are_named(memory: Memory) -> None:
    taken = await memory.write("first", scope=USER, key="taken")
    gone = await memory.write("gone", scope=SESSION, key="gone")
    await memory.delete(gone.id)
    drafts: list[dict[str, Any]] = [
        {"content": "a", "scope": USER},
        {"content": "other", "scope": USER, "key": "taken"},
        {"content": "b", "scope": SESSION, "key": "b"},
        {"content": "gone", "scope": SESSION, "key": "gone"},
        {"content": "c", "scope": USER},
    ]
    with pytest.raises(PartialWrite, match=r"2 of 5 drafts were not stored, at position 1, 3") as caught:
        await memory.write_many(drafts)
    assert isinstance(caught.value, Conflict)
    assert "all others are stored" in str(caught.value)
    with pytest.raises(PartialWrite, match=r"1 of 1 drafts were not stored, at position 0\. Position 0"):
        await memory.write_many([drafts[1]])
    assert {position: entry.content for position, entry in caught.value.written.items()} == {
        0: "a",
        2: "b",
        4: "c",
    }
    assert {position: conflict.existing_id for position, conflict in caught.value.conflicts.items()} == {
        1: taken.id,
        3: gone.id,
    }
    assert caught.value.conflicts[1].deleted_at is None
    assert caught.value.conflicts[3].deleted_at is not None
    assert [e.content for e in await memory.retrieve(USER)] == ["c", "a", "first"]
    assert await memory.retrieve(SESSION) == [caught.value.written[2]]
    revived = await memory.write_many(drafts[2:4], revive=True)
    assert revived[0] == caught.value.written[2]
    assert {e.content for e in await memory.retrieve(SESSION)} == {"b", "gone"}


@pytest.mark.behaviour("A5")
async def test_conflicts_are_counted_through_the_batches_of_a_call(memory: Memory) -> None:
    await memory.write("first", scope=USER, key="k")
    drafts = [
        {"content": f"{n}", "scope": USER, "key": "k" if n in (3, 502) else f"k{n}"} for n in range(504)
    ]
    with pytest.raises(PartialWrite) as caught:
        await memory.write_many(drafts)
    assert sorted(caught.value.conflicts) == [3, 502]
    assert {position: entry.content for position, entry in caught.value.written.items()} == {
        n: f"{n}" for n in range(504) if n not in (3, 502)
    }


@pytest.mark.behaviour("A5")
async def test_a_repeat_after_the_entry_moved_onward_finds_it_there(memory: Memory) -> None:
    first = await memory.write(scope=SESSION, **(BODY | {"tags": ["fact"]}))
    await memory.sessions.end("sess-1")
    again = await memory.write(scope=SESSION, **(BODY | {"tags": ["fact"]}))
    assert (again.id, again.version) == (first.id, first.version)
    assert len(await memory.retrieve(SESSION)) == 1


@pytest.mark.behaviour("A5")
async def test_a_repeat_of_a_retired_entry_returns_the_first_result(memory: Memory, clock: Clock) -> None:
    retired = await memory.write(scope=USER, **BODY)
    clock.advance(DAY)
    await memory.entries.invalidate(retired.id)
    assert await memory.write(scope=USER, **BODY) == retired
    assert await memory.retrieve(USER) == []


@SCOPES
@pytest.mark.parametrize("is_swept", [False, True], ids=["hidden", "swept"])
async def test_an_expired_key_counts_as_absent(
    memory: Memory, clock: Clock, scope: Scope, is_swept: bool
) -> None:
    first = await memory.write(scope=scope, **BODY, expires_at=HOUR)
    await memory.update(first.id, content="edited")
    clock.advance(2 * DAY)
    if is_swept:
        await memory.maintain()
    again = await memory.write(scope=scope, **(BODY | {"content": "afresh"}))
    assert (again.id, again.content, again.expires_at) == (first.id, "afresh", None)
    assert again.created_at > first.created_at
    assert await memory.entries.history(again.id) == [again]
    assert await memory.retrieve(scope) == [again]
    assert await memory.write(scope=scope, **(BODY | {"content": "afresh"})) == again


@pytest.mark.behaviour("A5")
async def test_a_key_repeated_within_one_batch_is_written_once(memory: Memory) -> None:
    drafts = [{"scope": USER, **BODY}, {"content": "between", "scope": USER}, {"scope": USER, **BODY}]
    one, _, three = await memory.write_many(drafts)
    assert one == three
    assert len(await memory.retrieve(USER)) == 2


@pytest.mark.behaviour("A5")
async def test_a_whole_batch_with_keys_can_be_repeated(memory: Memory) -> None:
    drafts = [
        {"content": f"line {n}", "scope": USER if n % 2 else SESSION, "key": f"chat:{n}"} for n in range(40)
    ]
    first = await memory.write_many(drafts[:25])
    again = await memory.write_many(drafts)
    assert again[:25] == first
    assert len([e async for e in memory.entries.iterate()]) == 40


@pytest.mark.behaviour("A5")
async def test_keys_are_opaque_and_told_apart_to_the_letter(memory: Memory) -> None:
    keys = ["k", "K", "k ", " k", "ķ", "k\n", "k:1", "%", "x" * 512]
    written = [await memory.write(f"under {key!r}", scope=USER, key=key) for key in keys]
    assert len({entry.id for entry in written}) == len(keys)


@pytest.mark.behaviour("A5")
@pytest.mark.parametrize(
    "key", ["", "\x00", "\ud800", "x" * 513, 5], ids=["empty", "nul", "surrogate", "long", "number"]
)
async def test_a_key_that_cannot_be_is_refused(memory: Memory, key: str) -> None:
    with pytest.raises(InvalidInput, match="key"):
        await memory.write("once", scope=USER, key=key)
    assert await memory.retrieve(USER) == []
