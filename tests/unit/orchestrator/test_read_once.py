"""A question that is put again, for a word that is corrected, reads nothing twice, and
shows nothing that has changed meanwhile. A read by key asks no store in vain.
"""

from __future__ import annotations

from memory.domain.scope import ScopeKind
from tests.unit.orchestrator.world import TENANT, USER, World

ASKED = "torunament harbour"
TOURNAMENT, NIGHT = "the tournament in the harbour", "the harbour at night"


async def test_what_was_read_for_a_typo_is_not_read_again(world: World) -> None:
    for content in (TOURNAMENT, NIGHT):
        await world.write(content)
    world.short.steps.clear()
    assert await world.search(ASKED) == [TOURNAMENT, NIGHT]
    assert [step for step in world.short.steps if step in ("search", "read.home")] == [
        "search",
        "read.home",
        "search",
    ]
    await world.write("another tournament")
    world.short.steps.clear()
    assert set(await world.search(ASKED)) == {TOURNAMENT, NIGHT, "another tournament"}
    assert [step for step in world.short.steps if step in ("search", "read.home")] == [
        "search",
        "read.home",
        "search",
        "read.home",
    ]


async def test_what_is_edited_or_deleted_between_two_answers_is_shown_as_it_is(world: World) -> None:
    entry, gone = await world.write(TOURNAMENT), await world.write(NIGHT)

    async def change() -> None:
        await world.update(entry, content="the tournament in the harbour of Kiel")
        await world.delete(gone)

    world.short.after["read.home"] = change
    assert await world.search(ASKED) == ["the tournament in the harbour of Kiel"]


async def test_a_read_by_key_asks_no_tier_before_the_first_of_such_entries(world: World) -> None:
    entry = await world.write(TOURNAMENT, USER, key="k")
    for tier, asked in (("mid", [0, 1, 0]), ("long", [0, 1, 1])):
        await world.move(entry, tier)
        for store in world.stores:
            store.steps.clear()
        read = await world.engine.entries.get(TENANT, entry.id, kind=ScopeKind.USER)
        assert read is not None
        assert [store.steps.count("read.home") for store in world.stores] == asked
        assert list(await world.engine.entries.get_many(TENANT, [entry.id], kind=ScopeKind.USER)) == [
            entry.id
        ]
        assert [store.steps.count("read.home") for store in world.stores] == [2 * n for n in asked]
