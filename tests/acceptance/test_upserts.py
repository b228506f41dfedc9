"""`write(key=…, if_exists="replace")`: the current value of something is remembered in
one call.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from memory import Conflict, InvalidInput, Scope
from memory.facade.memory import Memory
from tests.acceptance.support import DAY, HOUR, SCOPES, SESSION, USER, Clock, contents


@SCOPES
async def test_what_is_there_says_what_the_call_says_and_the_version_before_it_is_kept(
    memory: Memory, scope: Scope
) -> None:
    first = await memory.write(
        "Lisbon",
        scope=scope,
        key="home",
        if_exists="replace",
        title="Home",
        tags=["place"],
        metadata={"sure": True},
    )
    second = await memory.write(
        "Porto",
        scope=scope,
        key="home",
        if_exists="replace",
        type="user",
        metadata={"since": 2024},
        speaker="ada",
    )
    assert second.id == first.id
    assert await memory.retrieve(scope) == [second]
    assert (second.content, second.title, second.tags, second.metadata, second.type) == (
        "Porto",
        None,
        [],
        {"since": 2024},
        "user",
    )
    assert second.speaker == "ada"
    assert (second.created_at, second.valid_from) == (first.created_at, first.valid_from)
    assert second.updated_at > first.updated_at
    assert [
        (one.content, one.title, one.tags, one.version) for one in await memory.entries.history(first.id)
    ] == [(one.content, one.title, one.tags, one.version) for one in (first, second)]
    assert [hit.entry.id for hit in await memory.search("Porto", scope=scope, mode="lexical")] == [first.id]
    assert not await memory.search("Lisbon", scope=scope, mode="lexical")
    known = await memory.get(first.id, known_at=first.updated_at)
    assert known is not None
    assert (known.content, known.version) == ("Lisbon", first.version)


@SCOPES
async def test_what_says_the_same_already_gets_no_version(memory: Memory, scope: Scope) -> None:
    await memory.write("Lisbon", scope=scope, key="home", if_exists="replace", metadata={"n": 1})
    second = await memory.write("Porto", scope=scope, key="home", if_exists="replace", metadata={"n": 1})
    assert (
        await memory.write("Porto", scope=scope, key="home", if_exists="replace", metadata={"n": 1}) == second
    )
    assert len(await memory.entries.history(second.id)) == 2


async def test_an_expiry_counts_from_each_write_on(memory: Memory, clock: Clock) -> None:
    first = await memory.write("Lisbon", scope=USER, key="home", if_exists="replace", expires_at=HOUR)
    clock.advance(timedelta(minutes=30))
    second = await memory.write("Lisbon", scope=USER, key="home", if_exists="replace", expires_at=HOUR)
    assert first.expires_at is not None
    assert second.expires_at is not None
    assert second.expires_at > first.expires_at
    assert (await memory.write("Lisbon", scope=USER, key="home", if_exists="replace")).expires_at is None


@SCOPES
async def test_a_plain_write_under_the_key_is_refused_as_ever_and_repeats_are_answered_the_first(
    memory: Memory, scope: Scope
) -> None:
    first = await memory.write("Lisbon", scope=scope, key="home")
    await memory.write("Porto", scope=scope, key="home", if_exists="replace")
    assert await memory.write("Lisbon", scope=scope, key="home") == first
    with pytest.raises(Conflict, match="'home'"):
        await memory.write("Porto", scope=scope, key="home", if_exists="error")
    assert contents(await memory.retrieve(scope)) == ["Porto"]


@SCOPES
async def test_writers_at_once_all_succeed_one_after_the_other_and_none_is_lost(
    memory: Memory, scope: Scope
) -> None:
    written = await asyncio.gather(
        *(memory.write(f"value {n}", scope=scope, key="home", if_exists="replace") for n in range(12))
    )
    assert len({entry.id for entry in written}) == 1
    history = await memory.entries.history(written[0].id)
    assert sorted(contents(history)) == sorted(f"value {n}" for n in range(12))
    assert [entry.version for entry in history] == sorted({entry.version for entry in written})
    assert {entry.version: entry.content for entry in written} == {
        entry.version: entry.content for entry in history
    }
    assert await memory.retrieve(scope) == [history[-1]]


@SCOPES
async def test_a_key_whose_entry_was_deleted_begins_a_new_life_without_the_old_versions(
    memory: Memory, scope: Scope
) -> None:
    first = await memory.write("Lisbon", scope=scope, key="home", if_exists="replace")
    await memory.write("Porto", scope=scope, key="home", if_exists="replace")
    assert await memory.delete(first.id)
    with pytest.raises(Conflict, match="was deleted at"):
        await memory.write("Lisbon", scope=scope, key="home")
    new = await memory.write("Faro", scope=scope, key="home", if_exists="replace")
    assert new.id == first.id
    assert new.created_at > first.created_at
    assert await memory.retrieve(scope) == [new]
    assert await memory.entries.history(new.id) == [new]


@SCOPES
async def test_a_key_whose_entry_has_expired_begins_a_new_life(
    memory: Memory, clock: Clock, scope: Scope
) -> None:
    first = await memory.write("Lisbon", scope=scope, key="home", if_exists="replace", expires_at=HOUR)
    clock.advance(2 * HOUR)
    new = await memory.write("Porto", scope=scope, key="home", if_exists="replace")
    assert await memory.retrieve(scope) == [new]
    assert await memory.entries.history(first.id) == [new]
    assert new.created_at > first.created_at
    clock.advance(2 * DAY)
    await memory.maintain()
    assert await memory.retrieve(scope) == [new]


@pytest.mark.behaviour("D27", "D28")
@SCOPES
async def test_what_is_retired_stays_so(memory: Memory, scope: Scope) -> None:
    first = await memory.write("Lisbon", scope=scope, key="home", if_exists="replace")
    await memory.entries.invalidate(first.id)
    with pytest.raises(Conflict, match="'home' was retired") as caught:
        await memory.write("Porto", scope=scope, key="home", if_exists="replace")
    assert caught.value.existing_id == first.id
    assert await memory.retrieve(scope) == []
    assert await memory.delete(first.id)
    assert contents([await memory.write("Porto", scope=scope, key="home", if_exists="replace")]) == ["Porto"]


async def test_what_it_does_not_go_with_is_refused_by_name(memory: Memory, clock: Clock) -> None:
    entry = await memory.write("Lisbon", scope=USER)
    for named, given in {
        "if_exists": {"if_exists": "upsert", "key": "home"},
        "if_exists: 'replace' needs a key": {"if_exists": "replace"},
        "created_at": {"if_exists": "replace", "key": "home", "created_at": clock()},
        "supersedes": {"if_exists": "replace", "key": "home", "supersedes": [entry.id]},
    }.items():
        with pytest.raises(InvalidInput, match=named):
            await memory.write("Porto", scope=USER, **given)  # type: ignore[arg-type]
    assert await memory.retrieve(USER) == [entry]


async def test_a_view_updates_in_its_scope(memory: Memory) -> None:
    view = memory.scoped(USER)
    other = await memory.write("Beja", scope=SESSION, key="home", if_exists="replace")
    await view.write("Lisbon", key="home", if_exists="replace")
    now = await view.write("Porto", key="home", if_exists="replace")
    assert await view.retrieve() == [now]
    assert await memory.retrieve(SESSION) == [other]
