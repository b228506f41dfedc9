"""Many records that move together: as few calls as for one, and each still stands and
falls for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from memory.domain.entry import Entry
from memory.domain.errors import StoreError
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.storage.settings import EngineSettings
from memory.orchestrator.tiering.moves import MOST_AT_ONCE, MOST_BYTES_AT_ONCE, MoveResult, portions
from memory.policies.promotion import PromotionRule
from memory.ports.contract.support import record
from memory.ports.record import Key
from memory.ports.writes import Put, Write
from tests.unit.orchestrator.world import SESSION, TENANT, Flaky, World

TO_MID = PromotionRule(name="ended", on="session_end", source="short", target="mid")


async def _filled(world: World, count: int) -> list[Entry]:
    entries = [await world.write(f"text {n}") for n in range(count)]
    for store in world.stores:
        store.steps.clear()
    return entries


async def _calls_for(count: int) -> dict[str, list[str]]:
    async with World(rules=[TO_MID]) as world:
        entries = await _filled(world, count)
        report = await world.engine.promotion.end_session(TENANT, SESSION)
        assert [m.entry_id for m in report.moved] == [e.id for e in entries]
        calls = {store.name: list(store.steps) for store in world.stores}
        assert [await world.stands(e) for e in entries] == [["mark", "home", "replica"]] * count
        assert await world.owed() == 0
        return calls


async def test_fifty_entries_take_as_many_calls_as_one() -> None:
    one, fifty = await _calls_for(1), await _calls_for(50)
    assert one == fifty
    assert fifty["short"].count("move.release") == 1


async def test_moves_within_one_store_take_as_many_calls_as_one() -> None:
    async def calls(count: int) -> list[str]:
        async with World(rules=[TO_MID]).in_one_store("short", "mid") as world:
            entries = await _filled(world, count)
            report = await world.engine.promotion.end_session(TENANT, SESSION)
            assert len(report.moved) == count
            assert {(await world.standing(world.mid, e.id)).tier for e in entries} == {"mid"}  # type: ignore[union-attr]
            return list(world.short.steps)

    assert await calls(1) == await calls(30)


async def test_what_owes_or_was_edited_meanwhile_goes_its_own_way_and_the_others_go_on() -> None:
    async with World(rules=[TO_MID]) as world:
        world.long.down = True  # a mid-term entry owes its replica there
        entries = await _filled(world, 4)
        world.heal()

        async def edit() -> None:
            await world.update(entries[2], content="text, edited")
            await world.delete(entries[3])

        world.short.before["move.release"] = edit
        report = await world.engine.promotion.end_session(TENANT, SESSION)
        assert {m.entry_id for m in report.moved} == {e.id for e in entries[:3]}
        assert [k.because for k in report.kept] == ["there is no such entry"]
        assert [await world.seen(e) for e in entries] == [["text 0"], ["text 1"], ["text, edited"], []]
        assert await world.owed() == 0


async def test_what_the_target_refuses_stays_and_the_others_go() -> None:
    async with World(rules=[TO_MID]) as world:
        entries = await _filled(world, 3)
        heavy = await world.write("x" * 5_000)
        world.mid._capabilities = world.mid.claims.__class__(
            **{**_claims(world.mid), "max_record_bytes": 4_000}
        )
        report = await world.engine.promotion.end_session(TENANT, SESSION)
        assert {m.entry_id for m in report.moved} == {e.id for e in entries}
        assert [(k.entry_id, "4000 bytes" in k.because) for k in report.kept] == [(heavy.id, True)]
        assert await world.stands(heavy) == ["home", "-", "-"]


def _claims(store: Flaky) -> dict[str, Any]:
    can = store.capabilities
    return {name: getattr(can, name) for name in can.__slots__}


async def test_an_error_about_one_record_costs_that_record(monkeypatch: pytest.MonkeyPatch) -> None:
    async with World(rules=[TO_MID]) as world:
        entries = await _filled(world, 5)
        taken = world.mid.apply

        async def full_for_one(writes: Sequence[Write], **how: Any) -> Any:
            if any(isinstance(w, Put) and w.key.id == entries[1].id for w in writes):
                raise StoreError("mid", "no room for this one")
            return await taken(writes, **how)

        monkeypatch.setattr(world.mid, "apply", full_for_one)
        report = await world.engine.promotion.end_session(TENANT, SESSION)
        assert {m.entry_id for m in report.moved} == {e.id for e in entries} - {entries[1].id}
        assert [(k.entry_id, "no room for this one" in k.because) for k in report.kept] == [
            (entries[1].id, True)
        ]


async def test_a_target_that_does_not_answer_is_asked_once_for_all_of_them() -> None:
    async with World(rules=[TO_MID]) as world:
        entries = await _filled(world, 5)
        world.mid.fails_before.add("move.copy")
        report = await world.engine.promotion.end_session(TENANT, SESSION)
        assert len(report.kept) == len(entries)
        assert world.mid.steps.count("move.copy") == 1
        world.heal()
        assert len((await world.engine.promotion.end_session(TENANT, SESSION)).moved) == len(entries)


async def test_entries_that_do_not_exist_and_some_that_do_are_told_apart() -> None:
    async with World() as world:
        entry = await world.write()
        keys = [Key(TENANT, entry.id), Key(TENANT, "01900000-0000-8000-8000-000000000000")]
        results = await world.engine.tier_mover.move_many(ENTRIES, keys, "mid")
        assert list(results.values()) == [MoveResult.MOVED, MoveResult.GONE]


def test_a_portion_holds_no_more_than_memory_has_room_for() -> None:
    many = [record(n) for n in range(2 * MOST_AT_ONCE + 1)]
    assert [len(p) for p in portions(many)] == [MOST_AT_ONCE, MOST_AT_ONCE, 1]
    heavy = [record(n, texts={"content": "x" * (MOST_BYTES_AT_ONCE // 3)}) for n in range(4)]
    assert [len(p) for p in portions(heavy)] == [2, 2]
    assert [r for p in portions(many) for r in p] == many
    assert list(portions([])) == []


async def test_the_end_of_a_session_goes_page_by_page_and_takes_each_entry_one_step() -> None:
    on = PromotionRule(name="on", on="session_end", source="mid", target="long")
    async with World(rules=[TO_MID, on], settings=EngineSettings(page=3)) as world:
        entries = await _filled(world, 10)
        for entry in entries[:2]:
            await world.move(entry, "mid")
        report = await world.engine.promotion.end_session(TENANT, SESSION)
        assert len(report.moved) == len({m.entry_id for m in report.moved}) == 10
        assert [(await world.stands(e)).index("home") for e in entries] == [2] * 2 + [1] * 8
        assert report.kept == []
