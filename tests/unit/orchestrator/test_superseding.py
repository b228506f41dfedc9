"""Superseding: stored, linked and retired together, whatever fails on the way."""

from __future__ import annotations

import pytest

from memory.domain.entry import EntryDraft
from memory.orchestrator.collections import RELATIONS
from tests.unit.orchestrator.world import TENANT, USER, World


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("fails", ["relate.home", "update.home", "owed.settle", "version.keep"])
@pytest.mark.behaviour("D111")
async def test_what_a_failure_leaves_is_done_by_a_sweep(world: World, fails: str, when: str) -> None:
    old, other = await world.write("Ada lives in Lisbon", USER), await world.write("Ada lives in Porto", USER)
    for store in world.stores:
        (store.fails_before if when == "before" else store.fails_after).add(fails)
    new = await world.engine.derivation.supersede(TENANT, [old.id, other.id], EntryDraft(scope=USER, content="Ada lives in Faro"))
    world.heal()
    other_process = await world.another_process()
    await other_process.maintenance.sweep()
    await other_process.deliveries.flush()
    assert await world.browse(USER) == ["Ada lives in Faro"]
    rows = await world.rows(world.mid, RELATIONS)
    assert sorted(str(row.fields["target_id"]) for row in rows) == sorted([old.id, other.id])
    assert {row.fields["source_id"] for row in rows} == {new.id}
    assert await world.owed() == 0


async def test_what_was_deleted_meanwhile_is_neither_linked_nor_missed(world: World) -> None:
    old, other = await world.write("Ada lives in Lisbon", USER), await world.write("Ada lives in Porto", USER)
    world.mid.fails_before.add("relate.home")
    new = await world.engine.derivation.supersede(TENANT, [old.id, other.id], EntryDraft(scope=USER, content="Ada lives in Faro"))
    world.heal()
    await world.delete(old)
    await world.update(new, content="Ada lives in Faro, by the sea")
    await world.engine.maintenance.sweep()
    assert await world.browse(USER) == ["Ada lives in Faro, by the sea"]
    assert [row.fields["target_id"] for row in await world.rows(world.mid, RELATIONS)] == [other.id]


async def test_an_entry_that_was_deleted_supersedes_nothing_more(world: World) -> None:
    old = await world.write("Ada lives in Lisbon", USER)
    world.mid.fails_before.add("relate.home")
    new = await world.engine.derivation.supersede(TENANT, [old.id], EntryDraft(scope=USER, content="Ada lives in Faro"))
    world.heal()
    await world.delete(new)
    await world.engine.maintenance.sweep()
    assert await world.browse(USER) == ["Ada lives in Lisbon"]
    assert await world.rows(world.mid, RELATIONS) == []
    assert await world.owed() == 0
