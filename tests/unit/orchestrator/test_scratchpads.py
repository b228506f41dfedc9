"""Scratchpads where stores fail, others are first, and a clearing does not end: nothing
is lost, doubled, or above the cap.
"""

from __future__ import annotations

import asyncio
from unittest.mock import patch

import pytest

from memory.domain.errors import ScratchpadFull, StoreUnavailable
from memory.domain.legal_hold import LegalHold
from memory.orchestrator.entries import scratchpads
from memory.orchestrator.storage.collections import SCRATCHPADS
from memory.ports.query import Query, within
from memory.ports.record import Partition
from memory.ports.writes import Delete, Newer
from tests.unit.orchestrator.world import TENANT, Clock, World

AGENT = "builder"


async def noted(world: World) -> list[str]:
    """What stands there, without the headers; that the last row says how large it is."""
    found = await world.engine.scratchpads.read(TENANT, AGENT)
    rows = [row for row in await world.rows(world.mid, SCRATCHPADS) if "place" in row.fields]
    newest = max(rows, key=lambda row: int(str(row.fields["place"])), default=None)
    assert newest is None or newest.fields["size"] == found.size == len(found.content.encode())
    return [line for line in found.content.splitlines() if not line.startswith("## ")]


async def append(world: World, *texts: str) -> None:
    for text in texts:
        await world.engine.scratchpads.append(TENANT, AGENT, text)


@pytest.mark.behaviour("D130")
async def test_an_append_of_which_the_outcome_is_not_known_is_made_once(world: World) -> None:
    await append(world, "one")

    async def answers() -> None:
        world.mid.fails_after.clear()

    async def second_attempt() -> None:
        world.mid.before["scratchpad.put"] = answers

    world.mid.fails_after.add("scratchpad.put")
    world.mid.before["scratchpad.put"] = second_attempt
    await append(world, "two")
    assert await noted(world) == ["one", "two"]


@pytest.mark.behaviour("D130")
async def test_an_append_that_the_store_refuses_twice_says_so_and_can_be_repeated(world: World) -> None:
    world.mid.fails_before.add("scratchpad.put")
    with pytest.raises(StoreUnavailable):
        await append(world, "one")
    assert await noted(world) == []
    world.heal()
    await append(world, "one")
    assert await noted(world) == ["one"]


@pytest.mark.behaviour("D130")
async def test_who_is_overtaken_knows_what_the_other_wrote(world: World) -> None:
    """Another process appends between the look at the end and the put: of two that
    would each have had room one is refused.
    """
    other = await world.another_process()
    with patch.object(scratchpads, "CAP", 3 * 26):
        await append(world, "a")
        world.mid.before["scratchpad.put"] = lambda: other.scratchpads.append(TENANT, AGENT, "b")
        await append(world, "c")
        assert await noted(world) == ["a", "b", "c"]
        await other.scratchpads.clear(TENANT, AGENT)
        await append(world, "d", "e")
        world.mid.before["scratchpad.put"] = lambda: other.scratchpads.append(TENANT, AGENT, "f")
        with pytest.raises(ScratchpadFull):
            await append(world, "g")
        assert await noted(world) == ["d", "e", "f"]


@pytest.mark.behaviour("D130", "D132")
async def test_who_is_slow_does_not_append_where_a_clearing_has_deleted(world: World) -> None:
    """Between its look at the end and its put another process takes the place, clears
    it, and deletes the row: a seed of the simulation found it.
    """
    other = await world.another_process()
    await append(world, "one")

    async def is_faster() -> None:
        await other.scratchpads.append(TENANT, AGENT, "two")
        assert await other.scratchpads.clear(TENANT, AGENT)

    world.mid.before["scratchpad.put"] = is_faster
    await append(world, "three")
    assert await noted(world) == ["three"]
    await append(world, "four")
    assert await noted(world) == ["three", "four"]


async def test_of_a_long_text_for_which_there_is_no_room_nothing_is_stored(world: World) -> None:
    with patch.object(scratchpads, "CAP", 120), patch.object(scratchpads, "PART_BYTES", 30):
        await append(world, "a" * 40)
        before = await world.rows(world.mid, SCRATCHPADS)
        with pytest.raises(ScratchpadFull):
            await append(world, "b" * 60)
        assert await world.rows(world.mid, SCRATCHPADS) == before
        assert await noted(world) == ["a" * 40]


@pytest.mark.behaviour("D130")
@pytest.mark.parametrize("fails", [False, True])
async def test_where_another_takes_the_room_of_a_long_text_its_parts_go_at_once(
    world: World, fails: bool
) -> None:
    """What cannot be dropped then a sweep drops: that there is no room is what the
    caller is told.
    """
    other = await world.another_process()
    with patch.object(scratchpads, "CAP", 160), patch.object(scratchpads, "PART_BYTES", 30):
        world.mid.before["scratchpad.put"] = lambda: other.scratchpads.append(TENANT, AGENT, "a" * 40)
        if fails:
            world.mid.fails_before.add("scratchpad.drop")
        with pytest.raises(ScratchpadFull):
            await append(world, "b" * 90)
        assert await noted(world) == ["a" * 40]
        if fails:
            assert await world.owed() > 0
            world.heal()
            world.clock.advance(world.engine.settings.mark_life * 2)
            await world.engine.maintenance.sweep()
        assert [
            row.fields.get("parts")
            for row in await world.rows(world.mid, SCRATCHPADS)
            if "place" in row.fields
        ] == [3]
        assert len(await world.rows(world.mid, SCRATCHPADS)) == 1 + 3
        assert await world.owed() == 0


async def test_where_another_appends_first_no_part_is_left_of_what_was_to_be_restored(world: World) -> None:
    other = await world.another_process()
    with patch.object(scratchpads, "PART_BYTES", 30):
        world.mid.before["scratchpad.put"] = lambda: other.scratchpads.append(TENANT, AGENT, "a")
        assert not await world.engine.scratchpads.restore(TENANT, AGENT, "b" * 90)
    assert await noted(world) == ["a"]
    assert len(await world.rows(world.mid, SCRATCHPADS)) == 1


async def test_what_is_put_in_parts_within_one_microsecond_owes_nothing(world: World) -> None:
    with (
        patch.object(scratchpads, "PART_BYTES", 16),
        patch.object(Clock, "__call__", lambda clock: clock.moment),
    ):
        await append(world, "a text of some length, in parts")
    assert await world.owed() == 0
    assert await noted(world) == ["a text of some length, in parts"]


@pytest.mark.behaviour("D130")
async def test_a_clearing_takes_only_what_it_saw(world: World) -> None:
    other = await world.another_process()
    await append(world, "one", "two")
    world.mid.before["scratchpad.put"] = lambda: other.scratchpads.append(TENANT, AGENT, "meanwhile")
    assert await world.engine.scratchpads.clear(TENANT, AGENT)
    assert await noted(world) == ["meanwhile"]
    await append(world, "later")
    assert await noted(world) == ["meanwhile", "later"]
    assert await world.owed() == 0


@pytest.mark.behaviour("D130")
async def test_of_two_clearings_at_once_each_takes_what_it_saw(world: World) -> None:
    other = await world.another_process()
    await append(world, "one")

    async def another() -> None:
        await other.scratchpads.append(TENANT, AGENT, "two")
        await other.scratchpads.clear(TENANT, AGENT)
        await other.scratchpads.append(TENANT, AGENT, "three")

    world.mid.before["scratchpad.put"] = another
    await world.engine.scratchpads.clear(TENANT, AGENT)
    assert await noted(world) == ["three"], (
        "cleared by the other, not brought back by the one that had seen less"
    )


@pytest.mark.behaviour("D130")
async def test_what_a_clearing_left_standing_is_not_read_and_a_sweep_deletes_it(world: World) -> None:
    await append(world, "one", "two")
    world.mid.fails_before.add("scratchpad.drop")
    assert await world.engine.scratchpads.clear(TENANT, AGENT)
    await append(world, "three")
    assert await noted(world) == ["three"]
    assert len(await world.rows(world.mid, SCRATCHPADS)) == 4
    world.heal()
    await (await world.another_process()).maintenance.sweep()
    assert await noted(world) == ["three"]
    assert len(await world.rows(world.mid, SCRATCHPADS)) == 2
    assert await world.owed() == 0


@pytest.mark.behaviour("D130")
async def test_what_is_read_while_another_clears_is_the_one_or_the_other(world: World) -> None:
    other = await world.another_process()
    await append(world, "one", "two")

    async def cleared() -> None:
        await other.scratchpads.clear(TENANT, AGENT)
        await other.scratchpads.append(TENANT, AGENT, "three")

    world.mid.before["scratchpad.read"] = cleared
    assert await noted(world) == ["three"]


@pytest.mark.behaviour("D35", "D130")
async def test_what_a_tenants_end_left_is_not_in_the_way(world: World) -> None:
    await append(world, "one", "two")
    await world.engine.erasure.erase(Partition(TENANT, f"scratchpad:{AGENT}"))
    assert await noted(world) == []
    await append(world, "three")
    world.clock.moment = world.clock.moment.replace(year=2025)  # a clock that is behind what was written
    await append(world, "four")
    assert await noted(world) == ["three", "four"]


async def test_processes_that_append_and_clear_at_once_lose_nothing(world: World) -> None:
    """A long history: what stands in the end is what was acknowledged and not cleared,
    each once.
    """
    engines = [world.engine, *[await world.another_process() for _ in range(3)]]

    async def write(number: int) -> list[str]:
        said = []
        for turn in range(25):
            text = f"{number} says {turn}"
            await engines[number].scratchpads.append(TENANT, AGENT, text)
            said.append(text)
            if number == 0 and turn == 12:
                assert await engines[0].scratchpads.clear(TENANT, AGENT)
        return said

    told = await asyncio.gather(*map(write, range(4)))
    there = await noted(world)
    assert len(there) == len(set(there))
    for said in told:
        assert [text for text in there if text in said] == said[
            len(said) - len([text for text in there if text in said]) :
        ], "what is gone came first"
    assert told[0][13:] == [text for text in there if text in told[0]], "of who cleared, what came behind it"
    newest = await world.mid.query(Query(SCRATCHPADS, within(Partition(TENANT, f"scratchpad:{AGENT}"))))
    assert len(newest.records) == len(there) + 1


@pytest.mark.behaviour("D130")
@pytest.mark.parametrize("fails", ["scratchpad.part", "scratchpad.put"])
async def test_parts_of_which_no_row_came_go_and_those_of_a_row_stay(world: World, fails: str) -> None:
    with patch.object(scratchpads, "PART_BYTES", 16):
        await append(world, "a text of some length, in parts")
        stand = len(await world.rows(world.mid, SCRATCHPADS))
        world.mid.fails_before.add("scratchpad.put")
        if fails == "scratchpad.part":
            world.mid.fails_after.add(fails)
        with pytest.raises(StoreUnavailable):
            await append(world, "another text of some length")
        world.heal()
        assert len(await world.rows(world.mid, SCRATCHPADS)) > stand
        await world.engine.maintenance.sweep()
        assert len(await world.rows(world.mid, SCRATCHPADS)) > stand, "its row may come yet"
        world.clock.advance(world.engine.settings.mark_life * 2)
        await world.engine.maintenance.sweep()
        assert len(await world.rows(world.mid, SCRATCHPADS)) == stand
        assert await noted(world) == ["a text of some length, in parts"]
        await world.engine.scratchpads.clear(TENANT, AGENT)
        assert len(await world.rows(world.mid, SCRATCHPADS)) == 1
        assert await world.owed() == 0


@pytest.mark.behaviour("D130")
async def test_an_append_in_parts_of_which_one_is_lost_is_said_to_be_damaged(world: World) -> None:
    await append(world, "one")
    with patch.object(scratchpads, "PART_BYTES", 16):
        await append(world, "a text of some length, in parts")
    await append(world, "two")
    gone = next(row for row in await world.rows(world.mid, SCRATCHPADS) if "place" not in row.fields)
    await world.mid.apply([Delete(SCRATCHPADS, gone.key, gone.version + 1, Newer())])
    found = await world.engine.scratchpads.read(TENANT, AGENT)
    assert ([line for line in found.content.splitlines() if not line.startswith("## ")], found.damaged) == (
        ["one", "two"],
        1,
    )


@pytest.mark.behaviour("D130")
async def test_who_slept_so_long_that_a_sweep_took_the_parts_puts_them_again(world: World) -> None:
    async def sleeps() -> None:
        world.clock.advance(world.engine.settings.mark_life * 2)
        await (await world.another_process()).maintenance.sweep()

    with patch.object(scratchpads, "PART_BYTES", 16):
        world.mid.before["scratchpad.put"] = sleeps
        await append(world, "a text of some length, in parts")
        engine = await world.settled()
    found = await engine.scratchpads.read(TENANT, AGENT)
    assert (found.content.count("a text of some length, in parts"), found.damaged) == (1, 0)


@pytest.mark.behaviour("D130")
@pytest.mark.parametrize("how", ["lost", "unreadable"])
async def test_an_append_that_is_lost_or_cannot_be_read_is_told_of(world: World, how: str) -> None:
    await append(world, "one", "two", "three")
    gone = sorted(await world.rows(world.mid, SCRATCHPADS), key=lambda row: row.created_at)[1]
    if how == "lost":
        await world.mid.apply([Delete(SCRATCHPADS, gone.key, gone.version + 1, Newer())])
    else:
        world.mid.state.damage("scratchpads", gone.key)
    found = await world.engine.scratchpads.read(TENANT, AGENT)
    assert ([line for line in found.content.splitlines() if not line.startswith("## ")], found.damaged) == (
        ["one", "three"],
        1,
    )


@pytest.mark.behaviour("D130")
async def test_a_clearing_that_another_overtook_brings_nothing_back(world: World) -> None:
    other = await world.another_process()
    await append(world, "one")

    async def more_and_cleared() -> None:
        await other.scratchpads.append(TENANT, AGENT, "two")
        other_clears = other.scratchpads.clear(TENANT, AGENT)
        world.mid.fails_before.add("scratchpad.drop")  # so that what it took stands yet
        await other_clears
        world.heal()

    world.mid.before["scratchpad.put"] = more_and_cleared
    await world.engine.scratchpads.clear(TENANT, AGENT)
    assert await noted(world) == []
    await append(world, "three")
    assert await noted(world) == ["three"]


async def test_what_a_clearing_took_stays_while_the_tenant_is_held(world: World) -> None:
    """Held since the clearing was made: its rows are not read, and not deleted either."""
    await append(world, "one")
    world.mid.fails_before.add("scratchpad.drop")
    assert await world.engine.scratchpads.clear(TENANT, AGENT)
    world.heal()
    await world.engine.erasure.holds.place(
        TENANT, LegalHold("case", "tenant", TENANT, "r", None, world.clock())
    )
    await world.engine.maintenance.sweep()
    assert len(await world.rows(world.mid, SCRATCHPADS)) == 2
    assert await noted(world) == []
    await world.engine.erasure.holds.release(TENANT, "case")
    await world.engine.maintenance.sweep()
    assert len(await world.rows(world.mid, SCRATCHPADS)) == 1
