"""Superseding: stored, linked and retired together, whatever fails on the way; in one
batch, or by an operation.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from memory.domain.entry import Entry, EntryDraft
from memory.domain.errors import Conflict, CorruptRecord, InvalidInput, QuotaExceeded, StoreUnavailable
from memory.domain.scope import Scope
from memory.domain.versions import stored_version
from memory.orchestrator.engine import Engine
from memory.orchestrator.enrichment.superseding import SupersedeRequest
from memory.orchestrator.storage.collections import ENTRIES, ENTRY_VERSIONS, RELATIONS
from memory.policies.quotas import Quota
from memory.ports.record import Key
from tests.unit.orchestrator.world import DURABLE, HOUR, ORG, SESSION, TENANT, USER, World

AT_ONCE, OPERATION = USER, SESSION
"""In a world of three stores what a user has is in one atomic store with its relations,
what a session has is not.
"""


async def supersede(
    world: World,
    content: str,
    *others: Entry | str,
    scope: Scope = USER,
    engine: Engine | None = None,
    **more: Any,
) -> Entry:
    """Write an entry in the place of others."""
    revive, within = more.pop("revive", False), more.pop("within", None)
    asked = SupersedeRequest(
        [one if isinstance(one, str) else one.id for one in others], within, more.pop("versions", None)
    )
    draft = EntryDraft(scope=scope, content=content, **more)
    return (await (engine or world.engine).supersede_writer.write(TENANT, draft, asked, revive=revive))[0]


async def links(world: World) -> set[tuple[str, str]]:
    return {
        (str(row.fields["source_id"]), str(row.fields["target_id"]))
        for row in await world.rows(world.mid, RELATIONS)
    }


@pytest.fixture
async def in_one() -> AsyncIterator[World]:
    """Two tiers in one store."""
    async with World().in_one_store("mid", "short") as opened:
        yield opened


async def test_in_one_atomic_store_it_is_one_read_and_one_batch(world: World) -> None:
    old, other = await world.write("Ada lives in Lisbon", USER), await world.write("Ada lives in Porto", USER)
    await world.flush()
    world.mid.steps.clear()
    await supersede(world, "Ada lives in Faro", old, other)
    assert world.mid.steps == ["read.home", "supersede.home"]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_where_the_one_batch_fails_all_of_it_is_there_or_nothing(world: World, when: str) -> None:
    old = await world.write("Ada lives in Lisbon", USER)
    (world.mid.fails_before if when == "before" else world.mid.fails_after).add("supersede.home")
    with pytest.raises(StoreUnavailable):
        await supersede(world, "Ada lives in Faro", old)
    world.heal()
    assert await world.browse(USER) == (
        ["Ada lives in Lisbon"] if when == "before" else ["Ada lives in Faro"]
    )
    assert len(await links(world)) == (when == "after")
    await world.settled()
    assert len(await world.browse(USER)) == 1


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("fails", ["relate.home", "update.home", "owed.settle", "version.keep"])
@pytest.mark.behaviour("D111")
async def test_what_a_failure_leaves_of_an_operation_is_done_by_a_sweep(
    world: World, fails: str, when: str
) -> None:
    old, other = await world.write("Ada lives in Lisbon"), await world.write("Ada lives in Porto")
    for store in world.stores:
        (store.fails_before if when == "before" else store.fails_after).add(fails)
    new = await supersede(world, "Ada lives in Faro", old, other, scope=SESSION)
    world.heal()
    other_process = await world.another_process()
    await other_process.maintenance.sweep()
    await other_process.deliveries.flush()
    assert await world.browse() == ["Ada lives in Faro"]
    assert await links(world) == {(new.id, old.id), (new.id, other.id)}
    assert {(await world.record_of(one)).fields["valid_to"] for one in (old, other)} == {new.valid_from}
    assert await world.owed() == 0


async def test_of_an_operation_the_entry_comes_first_then_its_link_then_the_end_of_the_other(
    world: World,
) -> None:
    old = await world.write("Ada lives in Lisbon")
    order: list[str] = []
    for store in world.stores:
        for name in ("write.home", "relate.home", "update.home"):

            async def note(name: str = name) -> None:
                order.append(name)

            store.before[name] = note
    await supersede(world, "Ada lives in Faro", old, scope=SESSION)
    assert order == ["write.home", "relate.home", "update.home"]


async def test_what_was_deleted_meanwhile_is_neither_linked_nor_missed(world: World) -> None:
    old, other = await world.write("Ada lives in Lisbon"), await world.write("Ada lives in Porto")
    world.mid.fails_before.add("relate.home")
    new = await supersede(world, "Ada lives in Faro", old, other, scope=SESSION)
    world.heal()
    await world.delete(old)
    await world.update(new, content="Ada lives in Faro, by the sea")
    await world.engine.maintenance.sweep()
    assert await world.browse() == ["Ada lives in Faro, by the sea"]
    assert await links(world) == {(new.id, other.id)}


async def test_what_was_retired_meanwhile_has_given_way_already(world: World) -> None:
    old, other = await world.write("Ada lives in Lisbon"), await world.write("Ada lives in Porto")
    world.mid.fails_before.add("relate.home")
    new = await supersede(world, "Ada lives in Faro", old, other, scope=SESSION)
    world.heal()
    await world.engine.entries.invalidate(TENANT, old.id, None)
    ended = (await world.record_of(old)).fields["valid_to"]
    await world.engine.maintenance.sweep()
    assert await links(world) == {(new.id, other.id)}
    assert (await world.record_of(old)).fields["valid_to"] == ended
    assert await world.owed() == 0


async def test_an_entry_that_was_deleted_supersedes_nothing_more(world: World) -> None:
    old = await world.write("Ada lives in Lisbon")
    world.mid.fails_before.add("relate.home")
    new = await supersede(world, "Ada lives in Faro", old, scope=SESSION)
    world.heal()
    await world.delete(new)
    await world.engine.maintenance.sweep()
    assert await world.browse() == ["Ada lives in Lisbon"]
    assert await links(world) == set()
    assert await world.owed() == 0


async def test_an_entry_that_was_itself_superseded_still_ends_what_it_took_the_place_of(world: World) -> None:
    first = await world.write("Ada lives in Lisbon")
    world.mid.fails_before.add("relate.home")
    second = await supersede(world, "Ada lives in Porto", first, scope=SESSION)
    await world.engine.entries.invalidate(TENANT, second.id, None)
    world.heal()
    await world.engine.maintenance.sweep()
    assert await world.browse() == []
    assert await links(world) == {(second.id, first.id)}
    assert (await world.record_of(first)).fields["valid_to"] == second.valid_from


async def test_an_entry_that_has_expired_still_ends_what_it_took_the_place_of(world: World) -> None:
    first = await world.write("Ada lives in Lisbon")
    world.mid.fails_before.add("relate.home")
    second = await supersede(world, "Ada lives in Porto", first, scope=SESSION, expires_at=HOUR)
    world.heal()
    world.clock.advance(2 * HOUR)
    await world.engine.maintenance.sweep()
    assert await world.browse() == []
    assert await links(world) == {(second.id, first.id)}, "as where all of it is one batch"
    assert await world.owed() == 0


# -- what is refused -------------------------------------------------------------------


@pytest.mark.behaviour("D33")
async def test_an_entry_is_not_older_than_what_gives_way_to_it(world: World) -> None:
    old = await world.write("Ada lives in Lisbon", USER)
    with pytest.raises(InvalidInput, match=r"created_at.*valid_from"):
        await supersede(world, "Ada lives in Faro", old, created_at=old.valid_from)
    with pytest.raises(InvalidInput, match="created_at: lies in the future"):
        await supersede(world, "Ada lives in Faro", old, created_at=world.clock() + HOUR)
    assert await world.browse(USER) == ["Ada lives in Lisbon"]


async def test_a_damaged_entry_is_named(world: World) -> None:
    old = await world.write("Ada lives in Lisbon", USER)
    world.mid.state.damage(ENTRIES.name, Key(TENANT, old.id))
    with pytest.raises(CorruptRecord, match=old.id):
        await supersede(world, "Ada lives in Faro", old)


# -- others meanwhile ------------------------------------------------------------------


async def test_what_is_retired_between_check_and_write_is_a_conflict_and_nothing_is_written(
    world: World,
) -> None:
    old, other = await world.write("Ada lives in Lisbon", USER), await world.write("Ada lives in Porto", USER)
    engine = await world.another_process()

    async def retire() -> None:
        await engine.entries.invalidate(TENANT, old.id, None)

    world.mid.before["supersede.home"] = retire
    with pytest.raises(Conflict, match=f"{old.id}.*was retired meanwhile: nothing was written"):
        await supersede(world, "Ada lives in Faro", other, old)
    assert await world.browse(USER) == ["Ada lives in Porto"]
    assert await links(world) == set()


async def test_what_is_edited_between_check_and_write_gives_way_with_its_edit(world: World) -> None:
    old = await world.write("Ada lives in Lisbon", USER)
    engine = await world.another_process()

    async def edit() -> None:
        await engine.entries.update(TENANT, old.id, {"content": "Ada lives in Lisboa"})

    world.mid.before["supersede.home"] = edit
    new = await supersede(world, "Ada lives in Faro", old)
    assert await world.browse(USER) == ["Ada lives in Faro"]
    assert await links(world) == {(new.id, old.id)}
    history = await world.engine.entries.history(TENANT, old.id)
    assert [(one.content, one.valid_to) for one in history][-1] == ("Ada lives in Lisboa", new.valid_from)


async def test_of_several_that_supersede_the_same_at_once_one_does(world: World) -> None:
    old = await world.write("Ada lives in Lisbon", USER)
    engines = [await world.another_process() for _ in range(4)]
    came = await asyncio.gather(
        *(supersede(world, f"{n}", old, engine=engine) for n, engine in enumerate(engines)),
        return_exceptions=True,
    )
    new = [one for one in came if isinstance(one, Entry)]
    assert len(new) == 1
    assert {type(one) for one in came if not isinstance(one, Entry)} <= {Conflict, InvalidInput}
    assert await world.browse(USER) == [new[0].content]
    assert await links(world) == {(new[0].id, old.id)}


async def test_a_batch_that_arrived_though_its_answer_was_lost_is_known_again(world: World) -> None:
    """As a wrapper that tries again sends it: its second try meets what the first
    stored.
    """
    old = await world.write("Ada lives in Lisbon", USER)
    store = world.mid
    apply = store.apply

    async def twice(*args: Any, **kwargs: Any) -> Any:
        store.apply = apply  # type: ignore[method-assign]
        await apply(*args, **kwargs)
        return await apply(*args, **kwargs)

    store.apply = twice  # type: ignore[method-assign]
    new = await supersede(world, "Ada lives in Faro", old)
    assert await world.browse(USER) == ["Ada lives in Faro"]
    assert await links(world) == {(new.id, old.id)}


async def test_what_is_erased_meanwhile_is_a_conflict(world: World) -> None:
    old = await world.write("Ada lives in Lisbon", USER)
    engine = await world.another_process()

    async def erase() -> None:
        await engine.erasure.erase_scope(TENANT, USER)

    world.mid.before["supersede.home"] = erase
    with pytest.raises(Conflict, match="was retired meanwhile"):
        await supersede(world, "Ada lives in Faro", old, scope=ORG)
    assert await world.rows(world.mid, ENTRIES) == []
    assert await world.rows(world.mid, ENTRY_VERSIONS) == []


async def test_a_store_without_transactions_has_the_operation() -> None:
    async with World(mid=replace(DURABLE, atomic=False)) as world:
        old = await world.write("Ada lives in Lisbon", USER)
        world.mid.steps.clear()
        new = await supersede(world, "Ada lives in Faro", old)
        assert "supersede.home" not in world.mid.steps
        assert await world.browse(USER) == ["Ada lives in Faro"]
        assert await links(world) == {(new.id, old.id)}


async def test_tiers_in_one_store_are_one_batch(in_one: World) -> None:
    old = await in_one.write("Ada is on the phone")
    new = await supersede(in_one, "Ada hung up", old)
    assert await in_one.browse() == []
    assert await in_one.browse(USER) == ["Ada hung up"]
    assert await links(in_one) == {(new.id, old.id)}
    assert "supersede.home" in in_one.mid.steps


# -- keys ------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", [AT_ONCE, OPERATION], ids=["at once", "operation"])
async def test_two_at_once_under_one_key_are_one(world: World, scope: Scope) -> None:
    old = await world.write("Ada lives in Lisbon", scope)
    engines = [await world.another_process() for _ in range(3)]
    came = await asyncio.gather(
        *(
            supersede(world, "Ada lives in Faro", old, scope=scope, key="home", engine=engine)
            for engine in engines
        )
    )
    assert len({one.id for one in came}) == 1
    assert await world.browse(scope) == ["Ada lives in Faro"]
    await world.settled()
    assert await links(world) == {(came[0].id, old.id)}


async def test_an_entry_does_not_supersede_itself(world: World) -> None:
    new = await world.write("Ada lives in Lisbon", USER, key="home")
    with pytest.raises(Conflict, match="another entry"):
        await supersede(world, "Ada lives in Faro", new, key="home")
    await world.delete(new)
    with pytest.raises(InvalidInput, match="there is no active entry"):
        await supersede(world, "Ada lives in Faro", new, key="home", revive=True)


# -- what was shown --------------------------------------------------------------------


@pytest.mark.parametrize("scope", [AT_ONCE, OPERATION], ids=["at once", "operation"])
async def test_what_was_shown_gives_way_at_the_version_that_was_shown(world: World, scope: Scope) -> None:
    old, other, gone = [
        await world.write(text, scope)
        for text in ("Ada lives in Lisbon", "Ada lives in Porto", "Ada lives in Beja")
    ]
    shown = {one.id: one.version for one in (old, other, gone)}
    await world.update(other, content="Ada works in Porto")
    await world.delete(gone)
    draft, asked = (
        EntryDraft(scope=scope, content="Ada lives in Faro"),
        SupersedeRequest(list(shown), None, {name: stored_version(said) for name, said in shown.items()}),
    )
    new, gave_way = await world.engine.supersede_writer.write(TENANT, draft, asked)
    assert gave_way == [old.id]
    assert sorted(await world.browse(scope)) == ["Ada lives in Faro", "Ada works in Porto"]
    assert await links(world) == {(new.id, old.id)}


@pytest.mark.parametrize("when", ["before", "after"])
async def test_what_is_edited_before_an_operation_comes_to_it_stays(world: World, when: str) -> None:
    old = await world.write("Ada lives in Lisbon")
    engine = await world.another_process()

    async def edit() -> None:
        await engine.entries.update(TENANT, old.id, {"content": "Ada works in Lisbon"})

    getattr(world.mid, when)["relate.home"] = edit
    await supersede(
        world, "Ada lives in Faro", old, scope=SESSION, versions={old.id: stored_version(old.version)}
    )
    assert sorted(await world.browse()) == ["Ada lives in Faro", "Ada works in Lisbon"]
    assert await links(world) == set()
    await world.settled()
    assert await links(world) == set()


async def test_what_was_edited_before_a_sweep_comes_to_it_stays(world: World) -> None:
    old = await world.write("Ada lives in Lisbon")
    world.mid.fails_before.add("relate.home")
    await supersede(
        world, "Ada lives in Faro", old, scope=SESSION, versions={old.id: stored_version(old.version)}
    )
    world.heal()
    await world.update(old, content="Ada works in Lisbon")
    await world.engine.maintenance.sweep()
    assert sorted(await world.browse()) == ["Ada lives in Faro", "Ada works in Lisbon"]
    assert await links(world) == set()


# -- quotas ----------------------------------------------------------------------------


async def test_a_quota_is_asked_before_anything_is_written() -> None:
    async with World(quotas=[Quota(name="few", entries=1)]) as world:
        old = await world.write("Ada lives in Lisbon", USER)
        with pytest.raises(QuotaExceeded, match="few"):
            await supersede(world, "Ada lives in Faro", old)
        assert await world.browse(USER) == ["Ada lives in Lisbon"]


async def test_one_that_cannot_be_read_any_more_keeps_no_other_from_giving_way(world: World) -> None:
    first, second = (
        await world.write("Ada lives in Lisbon", OPERATION),
        await world.write("Ada's home is Lisbon", OPERATION),
    )

    async def damage() -> None:
        world.short.state.damage("entries", Key(TENANT, first.id))

    world.short.before["write.home"] = damage
    entry = await supersede(world, "Ada lives in Porto", first, second, scope=OPERATION)
    world.clock.advance(HOUR)
    await world.engine.maintenance.sweep()
    assert await world.browse(OPERATION) == ["Ada lives in Porto"]
    assert [one.target_id for one in await world.engine.relations.find(TENANT, source_id=entry.id)] == [
        second.id
    ]
    assert any("supersede" in one for one in (await world.engine.maintenance.sweep()).stays), (
        "somebody has to look at it"
    )
    await world.delete(first)
    world.clock.advance(HOUR)
    report = await world.engine.maintenance.sweep()
    assert (report.pending_steps, report.stays) == (0, ())
