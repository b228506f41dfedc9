"""`write(supersedes=…)`: an entry in the place of others (D105-D111)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from memory import Conflict, Entry, InvalidInput, NotFound, Scope
from memory.facade.memory import Memory
from tests.acceptance.support import (
    HOUR,
    OTHER_USER,
    SCOPES,
    SESSION,
    USER,
    Clock,
    contents,
    everything_stored,
)

HOMES = pytest.mark.parametrize(
    ("old_in", "new_in"), [(USER, USER), (SESSION, SESSION), (SESSION, USER), (USER, SESSION)], ids=str
)


@pytest.mark.behaviour("D107", "D111", "AC-D41")
@HOMES
async def test_an_entry_that_supersedes_others_is_linked_to_them_and_retires_them_at_one_moment(
    memory: Memory, old_in: Scope, new_in: Scope
) -> None:
    lisbon, porto = (
        await memory.write("Ada lives in Lisbon", scope=old_in),
        await memory.write("Ada lives in Porto", scope=old_in),
    )
    new = await memory.write(
        "Ada lives in Faro",
        scope=new_in,
        type="user",
        tags=["home"],
        supersedes=[lisbon.id, porto.id, lisbon.id],
    )
    assert [(e.id, e.type, e.tags) for e in await memory.retrieve(new_in)] == [(new.id, "user", ["home"])]
    assert [hit.entry.id for hit in await memory.search("where Ada lives", scope=[old_in, new_in])] == [
        new.id
    ]
    links = await memory.relations.find(source_id=new.id)
    assert {(link.source_id, link.label, link.target_id) for link in links} == {
        (new.id, "supersedes", old.id) for old in (lisbon, porto)
    }
    assert {link.created_at for link in links} == {new.valid_from}
    for old in (lisbon, porto):
        assert await memory.get(old.id) is None
        assert [one.valid_to for one in await memory.entries.history(old.id)] == [None, new.valid_from]
    assert contents(await memory.retrieve(old_in, as_of=lisbon.valid_from)) == ["Ada lives in Lisbon"]


@pytest.mark.behaviour("D107", "AC-D41")
@SCOPES
async def test_nothing_is_written_where_one_of_them_is_not_there(
    memory: Memory, clock: Clock, scope: Scope
) -> None:
    old, retired, expired = (
        await memory.write("Ada lives in Lisbon", scope=scope),
        await memory.write("Ada lives in Porto", scope=scope),
        await memory.write("Ada lives in Tomar", scope=scope, expires_at=HOUR),
    )
    await memory.entries.invalidate(retired.id)
    clock.advance(2 * HOUR)
    foreign = await memory.for_tenant("another").write("Ada lives in Beja", scope=scope)
    before = await everything_stored(memory)
    for missing in (retired.id, expired.id, foreign.id, "00000000-0000-8000-8000-000000000000", "#42"):
        with pytest.raises(InvalidInput, match=r"supersedes.*nothing was written"):
            await memory.write("Ada lives in Faro", scope=scope, supersedes=[old.id, missing])
    assert await everything_stored(memory) == before
    assert await memory.relations.find(target_id=old.id) == []


@pytest.mark.behaviour("D107")
async def test_ids_that_no_entry_could_have_or_that_are_too_many_are_refused_by_name(memory: Memory) -> None:
    for wrong in ([7], "an id", [b"x"], ["x"] * 2000, [str(n) for n in range(33)], None):
        with pytest.raises(InvalidInput, match="supersedes"):
            await memory.write("Ada lives in Faro", scope=USER, supersedes=wrong)  # type: ignore[arg-type]
    assert await memory.retrieve(USER) == []


async def test_thirty_two_give_way_at_once(memory: Memory) -> None:
    old = [await memory.write(f"note {n}", scope=USER) for n in range(32)]
    new = await memory.write("all of it", scope=USER, supersedes=[one.id for one in old] * 2)
    assert await memory.retrieve(USER) == [new]
    assert len(await memory.relations.find(source_id=new.id)) == 32


@pytest.mark.behaviour("D13")
async def test_a_view_reaches_its_own_scope_only(memory: Memory) -> None:
    view, other = memory.scoped(USER), await memory.write("Bob lives in Lisbon", scope=OTHER_USER)
    own = await view.write("Ada lives in Lisbon")
    with pytest.raises(InvalidInput, match=f"there is no active entry {other.id}"):
        await view.write("Ada lives in Faro", supersedes=[own.id, other.id])
    new = await view.write("Ada lives in Faro", supersedes=[own.id])
    assert await view.retrieve() == [new]
    assert await memory.retrieve(OTHER_USER) == [other]


@SCOPES
async def test_an_end_that_lies_ahead_is_brought_forward_and_nothing_else_changes_one(
    memory: Memory, clock: Clock, scope: Scope
) -> None:
    old = await memory.write("Ada lives in Lisbon", scope=scope)
    assert await memory.entries.invalidate(old.id, clock() + HOUR)
    new = await memory.write("Ada lives in Faro", scope=scope, supersedes=[old.id])
    assert await memory.entries.invalidate(old.id) is False
    with pytest.raises(NotFound):
        await memory.update(old.id, content="Ada lives in Lisboa")
    assert (await memory.entries.history(old.id))[-1].valid_to == new.valid_from


@SCOPES
async def test_a_moment_of_ones_own_is_that_of_all_three(memory: Memory, clock: Clock, scope: Scope) -> None:
    old = await memory.write("Ada lives in Lisbon", scope=scope)
    moved = clock.advance()
    clock.advance()
    new = await memory.write("Ada lives in Faro", scope=scope, supersedes=[old.id], created_at=moved)
    assert contents(await memory.retrieve(scope, as_of=moved)) == ["Ada lives in Faro"]
    for before in (old.valid_from, moved - timedelta(minutes=1)):
        assert contents(await memory.retrieve(scope, as_of=before)) == ["Ada lives in Lisbon"]
    with pytest.raises(InvalidInput, match="created_at"):
        await memory.write("Ada lives in Beja", scope=scope, supersedes=[new.id], created_at=moved)


@pytest.mark.behaviour("A5")
@SCOPES
async def test_under_a_key_it_is_done_once(memory: Memory, scope: Scope) -> None:
    old, other = (
        await memory.write("Ada lives in Lisbon", scope=scope),
        await memory.write("Ada lives in Porto", scope=scope),
    )
    asked = {"scope": scope, "key": "home", "supersedes": [old.id]}
    new = await memory.write("Ada lives in Faro", **asked)  # type: ignore[arg-type]
    assert await memory.write("Ada lives in Faro", **asked) == new  # type: ignore[arg-type]
    with pytest.raises(Conflict, match="'home'"):
        await memory.write("Ada lives in Faro", **(asked | {"supersedes": [other.id]}))  # type: ignore[arg-type]
    with pytest.raises(Conflict, match="'home'"):
        await memory.write("Ada lives in Faro", scope=scope, key="home")
    await memory.delete(new.id)
    with pytest.raises(Conflict, match="was deleted at"):
        await memory.write("Ada lives in Faro", **(asked | {"supersedes": [other.id]}))  # type: ignore[arg-type]
    again = await memory.write("Ada lives in Faro", **(asked | {"supersedes": [other.id]}), revive=True)  # type: ignore[arg-type]
    assert await memory.retrieve(scope) == [again]


@SCOPES
async def test_of_writers_at_once_that_supersede_the_same_nobody_half_does(
    memory: Memory, scope: Scope
) -> None:
    old = await memory.write("Ada lives in Lisbon", scope=scope)
    calls = (memory.write(f"Ada lives in {n}", scope=scope, supersedes=[old.id]) for n in range(8))
    came = await asyncio.gather(*calls, return_exceptions=True)
    new = {one.id for one in came if isinstance(one, Entry)}
    assert {type(one) for one in came} <= {Entry, Conflict, InvalidInput}
    assert {one.id for one in await memory.retrieve(scope)} == new
    links = await memory.relations.find(target_id=old.id)
    assert links
    assert {link.source_id for link in links} <= new
    assert len(await memory.entries.history(old.id)) == 2


@pytest.mark.behaviour("D107", "D23")
async def test_a_history_follows_what_stood_in_its_place_before(memory: Memory) -> None:
    first = await memory.write("Ada works in Lisbon", scope=USER)
    second = await memory.write("Ada works in Porto", scope=USER, supersedes=[first.id])
    other = await memory.write("Ada works at sea", scope=USER)
    await memory.update(second.id, content="Ada works in Porto, on Mondays")
    last = await memory.write("Ada works in Faro", scope=USER, supersedes=[second.id, other.id])
    await memory.relations.relate(
        last.id, "refines", (await memory.write("Faro is in the south", scope=USER)).id
    )
    assert [one.content for one in await memory.entries.history(last.id)] == ["Ada works in Faro"]
    told = await memory.entries.history(last.id, superseded=True)
    named = list(dict.fromkeys(one.id for one in told))
    assert (named[0], set(named[1:3]), named[3:]) == (first.id, {second.id, other.id}, [last.id])
    assert told == [version for one in named for version in await memory.entries.history(one)]
    assert [one.content for one in told if one.id == second.id][-1] == "Ada works in Porto, on Mondays"
    async with memory.for_tenant("another") as another:
        with pytest.raises(NotFound):
            await another.entries.history(last.id, superseded=True)
