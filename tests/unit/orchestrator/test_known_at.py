"""What was known at a moment, where copies are cached, versions are on their way, and
stores are down.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from memory.policies.entry_query import EntryQuery
from memory.policies.visibility import PRESENT
from tests.unit.orchestrator.world import DURABLE, HOUR, SESSION, TENANT, USER, VOLATILE, World


async def test_a_version_on_its_way_is_known_also_where_the_entry_is_cached() -> None:
    async with World(short=VOLATILE, mid=replace(DURABLE, atomic=False)) as world:
        entry = await world.write("first")
        world.mid.fails_before.add("version.keep")
        await world.update(entry, content="second")
        assert await world.get(entry) is not None  # fills the cache
        for _ in range(2):
            known = await world.get(entry, known_at=entry.updated_at)
            assert known is not None
            assert known.content == "first"


async def test_what_was_written_after_the_moment_asked_about_was_not_known_however_soon_after(
    world: World,
) -> None:
    """Only what a clock ahead of ours wrote counts as present: not what is written
    while the stores are asked.
    """
    entry = await world.write("first", scope=USER)
    known = world.clock()
    original, edited = world.short.on_call, [False]

    async def call(method: str, *args: object, **kwargs: object) -> object:
        if not edited[0]:
            edited[0] = True
            await world.update(entry, content="second")
        return await original(method, *args, **kwargs)

    for read in (world.browse(USER, known_at=known), world.search("first second", USER, known_at=known)):
        edited[0] = False
        world.short.on_call = call  # type: ignore[method-assign]
        assert await read == ["first"]


@pytest.mark.parametrize("ago", [PRESENT / 2, 2 * PRESENT], ids=["just now", "before"])
async def test_a_version_ahead_of_the_clock_is_known_only_to_who_asks_about_the_present(
    world: World, ago: object
) -> None:
    assert isinstance(ago, type(PRESENT))
    entry = await world.write("first")
    world.clock.advance(HOUR)
    there = world.clock.moment
    world.clock.advance(HOUR)
    await world.update(entry, content="second")
    world.clock.moment = there
    expected = ["second"] if ago < PRESENT else ["first"]
    asked = world.clock.moment - ago
    assert await world.browse(known_at=asked) == expected
    assert await world.search("first second", known_at=asked) == expected
    known = await world.get(entry, known_at=asked)
    assert known is not None
    assert [known.content] == expected


async def test_a_store_that_is_down_hides_only_the_past_it_must_be_asked_about(world: World) -> None:
    moved, stays = await world.write("text moved"), await world.write("text stays")
    await world.move(moved, "mid")
    known = world.clock.advance()
    for entry in (moved, stays):
        await world.update(entry, content="edited")
    world.long.down = True
    for answer in (
        await world.engine.browser.browse(EntryQuery(TENANT, (SESSION,), known_at=known)),
        await world.engine.entry_search.search(EntryQuery(TENANT, (SESSION,), known_at=known), "text"),
    ):
        assert len(answer) == 2
        assert all(note.startswith("store 'long'") for note in answer.degraded)


async def test_a_replica_that_missed_what_became_of_its_entry_does_not_tell_what_was_known(
    world: World,
) -> None:
    deleted, edited = [await world.write(f"text {word}", scope=USER) for word in ("deleted", "edited")]
    world.long.down = True
    await world.delete(deleted)
    await world.update(edited, content="other words")
    world.heal()
    assert (await world.stands(deleted))[2] == "replica"
    assert (await world.stands(edited))[2] == "replica"
    assert await world.search("text", USER, known_at=world.clock()) == []
