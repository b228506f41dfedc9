"""Upserts where others are at the same key."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from memory.domain.entry import Entry, EntryDraft
from memory.domain.errors import Conflict, StoreError
from memory.domain.legal_hold import LegalHold
from memory.orchestrator.engine import Engine
from memory.orchestrator.enrichment.superseding import SupersedeRequest
from memory.orchestrator.entries.upserts import UpsertCall
from tests.unit.orchestrator.world import DURABLE, HOUR, TENANT, USER, World


async def upsert(world: World, content: str, *, engine: Engine | None = None, **more: object) -> Entry:
    draft = EntryDraft(scope=USER, content=content, key="home", **more)
    return (await (engine or world.engine).upserts.upsert(TENANT, UpsertCall(draft)))[0]


async def said(world: World, entry: Entry) -> list[str]:
    return [one.content for one in await world.engine.entries.history(TENANT, entry.id)]


@pytest.mark.parametrize("step", ["write.home", "update.home"])
async def test_who_is_overtaken_comes_after(world: World, step: str) -> None:
    other = await world.another_process()
    before = [] if step == "write.home" else [(await upsert(world, "Lisbon")).content]

    async def first() -> None:
        await upsert(world, "Porto", engine=other)

    world.mid.before[step] = first
    entry = await upsert(world, "Faro")
    assert entry.content == "Faro"
    assert await said(world, entry) == [*before, "Porto", "Faro"]


async def test_who_is_overtaken_by_a_deletion_begins_a_new_life(world: World) -> None:
    other, first = await world.another_process(), await upsert(world, "Lisbon")

    async def deletes() -> None:
        await other.deletion.delete(TENANT, first.id)

    world.mid.before["update.home"] = deletes
    entry = await upsert(world, "Porto")
    assert await said(world, entry) == ["Porto"]
    assert entry.created_at > first.created_at
    await world.settled()
    assert await world.browse(USER) == ["Porto"]


async def test_who_is_overtaken_by_an_erasure_of_the_scope_begins_a_new_life(world: World) -> None:
    other, _ = await world.another_process(), await upsert(world, "Lisbon")

    async def erases() -> None:
        await other.erasure.erase_scope(TENANT, USER)

    world.mid.before["update.home"] = erases
    assert await said(world, await upsert(world, "Porto")) == ["Porto"]
    await world.settled()
    assert await world.browse(USER) == ["Porto"]


async def test_who_is_overtaken_by_the_end_of_its_validity_is_told(world: World) -> None:
    other, first = await world.another_process(), await upsert(world, "Lisbon")

    async def retires() -> None:
        await other.entries.invalidate(TENANT, first.id, None)

    world.mid.before["update.home"] = retires
    with pytest.raises(Conflict, match="'home' was retired"):
        await upsert(world, "Porto")
    assert await said(world, first) == ["Lisbon", "Lisbon"]


async def test_many_processes_at_once_lose_nothing(world: World) -> None:
    engines = [await world.another_process() for _ in range(4)]
    written = await asyncio.gather(
        *(upsert(world, f"{n}", engine=engine) for n, engine in enumerate(engines * 3))
    )
    assert sorted(await said(world, written[0])) == sorted(str(n) for n in range(12))


async def test_what_is_under_legal_hold_is_not_deleted_for_a_new_value(world: World) -> None:
    first = await upsert(world, "Lisbon", expires_at=HOUR)
    await world.engine.erasure.holds.place(
        TENANT, LegalHold("case", "entry", first.id, "r", None, world.clock()), USER.text
    )
    world.clock.advance(2 * HOUR)
    with pytest.raises(Conflict, match="has an expired entry under legal hold") as caught:
        await upsert(world, "Porto")
    assert caught.value.existing_id == first.id


async def test_what_a_store_refuses_is_told() -> None:
    async with World(mid=replace(DURABLE, max_record_bytes=2_000)) as narrow:
        first = await upsert(narrow, "Lisbon")
        with pytest.raises(StoreError, match=r"max_record_bytes|2,?000"):
            await upsert(narrow, "Lisbon" * 400)
        with pytest.raises(StoreError, match=r"max_record_bytes|2,?000"):
            await narrow.engine.supersede_writer.write(
                TENANT, EntryDraft(scope=USER, content="Lisbon" * 400), SupersedeRequest([first.id])
            )
        assert await narrow.browse(USER) == ["Lisbon"]
