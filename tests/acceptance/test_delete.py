"""Deleting one entry, or exactly one scope."""

from __future__ import annotations

import pytest

from memory import NotFound, Scope
from memory.domain.session import ErasedTenant
from memory.facade.memory import Memory
from tests.acceptance.support import (
    EVERY_KIND,
    HOUR,
    OBJECT,
    OTHER_USER,
    SESSION,
    USER,
    Clock,
    contents,
    everything_stored,
)

SCOPES = pytest.mark.parametrize("scope", [USER, SESSION, OBJECT], ids=str)


@pytest.mark.behaviour("A55", "D29", "AC-A31", "AC-D01")
@SCOPES
async def test_deleting_twice_succeeds_and_says_which_time_there_was_one(
    memory: Memory, scope: Scope
) -> None:
    entry = await memory.write("gone", scope=scope)
    assert await memory.delete(entry.id)
    assert not await memory.delete(entry.id)
    assert await memory.get(entry.id) is None
    assert await memory.retrieve(scope) == []
    assert await memory.search("gone", scope=scope) == []
    assert [e async for e in memory.entries.iterate()] == []
    with pytest.raises(NotFound):
        await memory.entries.history(entry.id)


@pytest.mark.behaviour("A55")
async def test_deleting_an_unknown_id_succeeds(memory: Memory) -> None:
    assert not await memory.delete("nothing")
    assert not await memory.delete("00000000-0000-8000-8000-000000000000")


@pytest.mark.behaviour("A36", "D29")
async def test_expired_and_retired_entries_can_be_deleted(memory: Memory, clock: Clock) -> None:
    expired = await memory.write("expired", scope=USER, expires_at=clock.moment - HOUR)
    retired = await memory.write("retired", scope=USER)
    clock.advance()
    await memory.entries.invalidate(retired.id)
    assert await memory.delete(expired.id)
    assert await memory.delete(retired.id)
    assert await memory.get(retired.id, as_of=retired.valid_from) is None


@pytest.mark.behaviour("D29", "D34")
@SCOPES
async def test_nothing_an_entry_ever_said_outlives_it(memory: Memory, clock: Clock, scope: Scope) -> None:
    entry = await memory.write("first secret", scope=scope)
    written = clock.moment
    clock.advance()
    await memory.update(entry.id, content="second secret")
    clock.advance()
    await memory.update(entry.id, content="third secret")
    await memory.delete(entry.id)
    for past in (written, clock.moment):
        assert await memory.get(entry.id, known_at=past) is None
        assert await memory.get(entry.id, as_of=past) is None
        assert await memory.retrieve(scope, known_at=past) == []
        assert await memory.search("secret", scope=scope, known_at=past) == []
        assert await memory.search("secret", scope=scope, as_of=past) == []


@pytest.mark.behaviour("A56")
@pytest.mark.parametrize("scope", EVERY_KIND, ids=str)
async def test_deleting_a_scope_counts_and_takes_exactly_that_scope(memory: Memory, scope: Scope) -> None:
    for each in (*EVERY_KIND, OTHER_USER, Scope.object("doc", "t1")):
        await memory.write_many([{"content": f"{n} in {each}", "scope": each} for n in range(3)])
    assert await memory.admin.erase(scope) == 3
    assert await memory.retrieve(scope) == []
    assert await memory.admin.erase(scope) == 0
    assert len([e async for e in memory.entries.iterate()]) == 3 * 6


@pytest.mark.behaviour("A56")
async def test_deleting_an_empty_scope_counts_nothing(memory: Memory) -> None:
    assert await memory.admin.erase("user:nobody") == 0


@pytest.mark.behaviour("A57")
@SCOPES
async def test_deleting_a_scope_takes_expired_and_retired_entries_too(
    memory: Memory, clock: Clock, scope: Scope
) -> None:
    await memory.write("expired", scope=scope, expires_at=clock.moment - HOUR)
    retired = await memory.write("retired", scope=scope)
    edited = await memory.write("edited once", scope=scope)
    clock.advance()
    await memory.entries.invalidate(retired.id)
    await memory.update(edited.id, content="edited twice")
    assert await memory.admin.erase(scope) == 3
    assert await memory.get(retired.id, as_of=retired.valid_from) is None
    assert await memory.get(edited.id, known_at=edited.created_at) is None
    assert await memory.retrieve(scope, known_at=clock.moment) == []


@pytest.mark.behaviour("A58")
async def test_deleting_a_user_leaves_that_users_sessions(memory: Memory) -> None:
    await memory.write("of the user", scope=USER)
    await memory.write("of the session", scope=SESSION, metadata={"userId": "u1"})
    assert await memory.admin.erase(USER) == 1
    assert contents(await memory.retrieve(SESSION)) == ["of the session"]


@pytest.mark.behaviour("A56")
async def test_a_scope_can_be_written_again_after_its_deletion(memory: Memory) -> None:
    for n in range(3):
        await memory.write(f"life {n}", scope=USER)
        assert contents(await memory.retrieve(USER)) == [f"life {n}"]
        assert len(await memory.search("life", scope=USER)) == 1
        assert await memory.admin.erase(USER) == 1


@pytest.mark.behaviour("A56")
async def test_an_entry_that_moved_onward_is_counted_once(memory: Memory) -> None:
    fact = await memory.write("a fact", scope=SESSION, tags=["fact"])
    await memory.write("chatter", scope=SESSION)
    report = await memory.sessions.end("sess-1")
    assert [m.entry_id for m in report.moved] == [fact.id]
    assert await memory.admin.erase(SESSION) == 2
    assert await memory.get(fact.id) is None
    assert await memory.retrieve(SESSION) == []


@pytest.mark.behaviour("D35")
async def test_a_tenants_end_takes_everything_of_it_and_nothing_of_others(
    memory: Memory, clock: Clock
) -> None:
    other = memory.for_tenant("other")
    for whose in (memory, other):
        first = await whose.write("the sea is rough", scope=USER)
        second = await whose.write("the sea is calm", scope=SESSION)
        await whose.write("the sea was here", scope=OBJECT, expires_at=clock.moment - HOUR)
        await whose.update(first.id, content="the sea is rough today")
        await whose.relations.relate(first.id, "refines", second.id)
        await whose.entries.invalidate(second.id)
        await whose.session("chat", user="ada").append({"role": "user", "content": "how is the sea"})
        await whose.admin.sweep()
    before = await everything_stored(other)
    assert (await memory.admin.erase_tenant()).scopes == 4
    assert [line async for line in memory.admin.export()] == []
    assert (await memory.admin.stats()).to_dict()["by_type"] == {}
    assert await memory.sessions.get("chat") is None
    assert await memory.search("sea", scope=[USER, SESSION, OBJECT], messages=True) == []
    assert await memory.search_messages("sea") == []
    assert await everything_stored(other) == before
    assert len(await other.search_messages("sea")) == 1
    assert all(not audit.problems for audit in await memory.admin.audit())
    assert await memory.admin.erase_tenant() == ErasedTenant(0)
    assert (await memory.write("begun again", scope=USER)).content == "begun again"
