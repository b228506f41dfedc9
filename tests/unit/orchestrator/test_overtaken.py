"""A call that is overtaken while it is under way: what comes late brings nothing back,
takes nothing back, and repeats nothing.
"""

from __future__ import annotations

import pytest

from memory.domain.errors import NotFound
from memory.domain.versions import stored_version
from memory.orchestrator.storage.collections import ENTRIES, ENTRY_VERSIONS
from memory.orchestrator.tiering.moves import MoveResult
from memory.ports.record import Key, Role
from memory.ports.writes import Annotate
from tests.unit.orchestrator.world import DAY, HOUR, SESSION, TENANT, USER, World

# -- by a deletion or an erasure -------------------------------------------------------


@pytest.mark.parametrize("swept", [False, True])
async def test_a_replica_that_comes_after_its_scope_was_erased_is_refused(world: World, swept: bool) -> None:
    """By a store that holds nothing of the scope, so that a sweep might take it for one
    that nobody uses.
    """

    async def erased() -> None:
        await world.engine.erasure.erase_scope(TENANT, USER)
        if swept:
            assert (await world.engine.maintenance.sweep()).waiting == ()

    world.long.before["replica.deliver"] = erased
    entry = await world.write(scope=USER, consistency="replicated")
    assert await world.seen(entry) == []
    assert await world.rows(world.long, ENTRIES) == []


async def test_a_version_that_comes_to_be_kept_after_its_entry_was_deleted_is_refused(world: World) -> None:
    entry, other = await world.write("secret"), await world.another_process()
    world.mid.before["version.keep"] = lambda: other.deletion.delete(TENANT, entry.id)
    await world.update(entry, content="text, edited")
    await world.engine.maintenance.sweep()
    assert await world.seen(entry) == []
    assert await world.rows(world.mid, ENTRY_VERSIONS) == []
    assert await world.owed() == 0


async def test_an_edit_that_comes_after_the_end_of_its_entry_is_not_made(world: World) -> None:
    entry, other = await world.write(), await world.another_process()
    world.short.before["update.home"] = lambda: other.entries.invalidate(TENANT, entry.id, None)
    with pytest.raises(NotFound):
        await world.update(entry, content="text, edited")
    history = await world.engine.entries.history(TENANT, entry.id)
    assert [(version.content, version.valid_to is None) for version in history] == [
        ("text", True),
        ("text", False),
    ]


# -- by an edit or a later life --------------------------------------------------------


async def test_an_original_that_is_edited_before_it_is_deleted_for_its_copy_stays(world: World) -> None:
    source, other = await world.write(), await world.another_process()
    promoted = await world.engine.derivation.promote(TENANT, source.id, USER)
    world.mid.after["read.home"] = lambda: other.entries.update(
        TENANT, source.id, {"content": "text, edited"}
    )
    again = await world.engine.derivation.promote(TENANT, source.id, USER, delete_original=True)
    assert (again.id, again.content) == (promoted.id, "text")
    assert await world.seen(source) == ["text, edited"]
    await world.engine.erasure.erase_scope(TENANT, SESSION)
    assert await world.seen(promoted) == [], (
        "its source stayed, so the erasure of the source's scope reaches it"
    )


@pytest.mark.parametrize("interrupted", [False, True])
async def test_an_original_that_is_edited_after_its_copy_was_confirmed_stays_its_source(
    world: World, interrupted: bool
) -> None:
    """The call was to delete the original, or a sweep, if the original's store failed."""
    source, other = await world.write(), await world.another_process()
    derivation, text = world.engine.derivation, "text, edited"

    async def edit() -> None:
        await other.entries.update(TENANT, source.id, {"content": text})

    if interrupted:
        world.short.fails_before.add("delete.home")
    else:
        world.mid.after["owed.settle"] = edit
    promoted = await derivation.promote(TENANT, source.id, USER, delete_original=True)
    if interrupted:
        world.heal()
        await edit()
    await world.engine.maintenance.sweep()
    assert (await world.seen(source), await world.seen(promoted)) == ([text], ["text"])
    assert await world.owed() == 0
    await world.engine.erasure.erase_scope(TENANT, SESSION)
    assert await world.seen(promoted) == []


async def test_an_original_that_was_born_again_is_no_source_of_a_moved_copy(world: World) -> None:
    source = await world.write(key="k")
    world.short.fails_before.add("delete.home")
    promoted = await world.engine.derivation.promote(TENANT, source.id, USER, delete_original=True)
    world.heal()
    await world.delete(source)
    await world.write("text again", key="k", revive=True)
    await world.engine.maintenance.sweep()
    assert (await world.seen(source), await world.seen(promoted)) == (["text again"], ["text"])
    await world.engine.erasure.erase_scope(TENANT, SESSION)
    assert await world.seen(promoted) == ["text"]


async def test_an_entry_born_again_after_a_sweep_found_it_expired_stays() -> None:
    async with World() as world:
        entry = await world.write("text", key="k", expires_at=world.clock() + HOUR)
        world.clock.advance(2 * DAY)

        async def born_again() -> None:
            await world.delete(entry)
            await world.write("text again", key="k", revive=True)

        world.short.before["delete.read"] = born_again
        report = await world.engine.maintenance.sweep()
        assert await world.seen(entry) == ["text again"]
        assert report.expired == 0


# -- by a move -------------------------------------------------------------------------


async def test_an_entry_that_moves_while_all_are_exported_is_exported_once(world: World) -> None:
    entry, exported = await world.write(), list[str]()
    async for each in world.engine.browser.everything(TENANT):
        exported.append(each.id)
        await world.move(entry, "mid")
    assert await world.stands(entry) == ["mark", "home", "replica"]
    assert exported == [entry.id]


async def test_an_entry_that_moves_while_its_store_is_brought_up_to_the_others_has_moved() -> None:
    """The store was replaced after its scope was erased, serves two tiers, and is found
    out by the move of another entry.
    """
    async with World().in_one_store("short", "mid") as world:
        await world.engine.erasure.erase_scope(TENANT, SESSION)
        world.mid.state.wipe()
        entry, another = await world.write(), await world.write("text of another")
        world.mid.after["generation.restamp"] = lambda: world.move(entry, "mid")
        assert await world.move(another, "long") == MoveResult.MOVED
        assert world.mid.after == {}
        moved = await world.get(entry)
        assert moved is not None
        assert moved.tier == "mid"


async def test_a_copy_that_arrives_while_its_store_is_brought_up_to_the_others_has_arrived(
    world: World,
) -> None:
    await world.engine.erasure.erase_scope(TENANT, SESSION)
    for replaced in (world.short, world.mid):
        replaced.state.wipe()
    entry, another = await world.write(), await world.write("text of another")
    world.mid.fails_before.add("move.arrive")
    assert await world.move(entry, "mid") == MoveResult.MOVED
    world.heal()
    assert await world.stands(entry) == ["mark", "arriving", "-"]
    arrives = Annotate(
        ENTRIES,
        Key(TENANT, entry.id),
        at=stored_version(entry.version),
        role_is=Role.ARRIVING,
        role=Role.HOME,
    )
    world.mid.after["generation.restamp"] = lambda: world.mid.apply([arrives])
    await world.move(another, "mid")  # whose replica long refuses: so they are found to disagree
    assert world.mid.after == {}
    assert (await world.stands(entry))[1] == "home"


@pytest.mark.parametrize("fate", ["retired", "expired", "deleted"])
async def test_what_was_found_is_shown_only_as_it_is_when_its_home_is_read(world: World, fate: str) -> None:
    """Found, then overtaken before it is shown."""
    found = await world.write("harbour of Bern", scope=USER, expires_at=world.clock() + HOUR)
    await world.write("harbour of Basel", scope=USER)

    async def overtaken() -> None:
        if fate == "retired":
            await (await world.another_process()).entries.invalidate(TENANT, found.id, None)
        elif fate == "expired":
            world.clock.advance(2 * HOUR)
        else:
            await (await world.another_process()).deletion.delete(TENANT, found.id)

    assert set(await world.search("harbour", USER)) == {"harbour of Bern", "harbour of Basel"}
    world.mid.before["read.home"] = overtaken
    assert await world.search("harbour", USER) == ["harbour of Basel"]
    assert not world.mid.before, "it was overtaken"
