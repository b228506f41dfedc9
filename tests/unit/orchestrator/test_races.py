"""What happens when somebody else was faster: made certain by acting in the middle of a
call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from memory.domain.entry import Entry, EntryDraft
from memory.domain.errors import Conflict, InvalidInput, NotFound, StoreError, TooMuchContention
from memory.orchestrator.storage.collections import RELATIONS
from memory.orchestrator.storage.settings import EngineSettings
from memory.orchestrator.storage.steps import current_step
from memory.policies.entry_query import EntryQuery
from memory.ports.record import Key
from memory.ports.writes import Outcome, Status, Write
from tests.unit.orchestrator.world import DURABLE, HOUR, SESSION, TENANT, USER, Flaky, World


def before_step(store: Flaky, step: str, act: Callable[[], Awaitable[Any]], times: int = 1) -> None:
    """Act just before the store carries out this step, so many times."""
    original, left = store.on_call, [times]

    async def call(method: str, *args: Any, **kwargs: Any) -> Any:
        if current_step.get() == step and left[0]:
            left[0] -= 1
            await act()
        return await original(method, *args, **kwargs)

    store.on_call = call  # type: ignore[method-assign]


async def test_two_edits_at_once_both_count(world: World) -> None:
    entry, other = await world.write(metadata={"a": 0}), await world.another_process()
    before_step(
        world.short, "update.home", lambda: other.entries.update(TENANT, entry.id, {"metadata": {"b": 1}})
    )
    await world.update(entry, metadata={"a": 1})
    got = await world.get(entry)
    assert got is not None
    assert got.metadata == {"a": 1, "b": 1}
    assert len(await world.engine.entries.history(TENANT, entry.id)) == 3


async def test_twenty_edits_at_once_all_count(world: World) -> None:
    entry = await world.write(scope=USER)
    await asyncio.gather(*(world.update(entry, metadata={f"k{n}": n}) for n in range(20)))
    got = await world.get(entry)
    assert got is not None
    assert got.metadata == {f"k{n}": n for n in range(20)}


async def test_an_entry_that_never_holds_still_is_given_up_on() -> None:
    async with World(settings=EngineSettings(attempts=3, deadline=timedelta(milliseconds=30))) as world:
        entry, other = await world.write(), await world.another_process()
        count, busy = iter(range(10_000)), [True]

        async def meddle() -> None:
            if busy[0]:
                busy[0] = False
                await other.entries.update(TENANT, entry.id, {"metadata": {"n": next(count)}})
                busy[0] = True

        before_step(world.short, "update.home", meddle, times=10_000)
        with pytest.raises(TooMuchContention, match=entry.id) as caught:
            await world.update(entry, content="x")
        assert "store" not in str(caught.value)
        assert caught.value.retryable
        assert [e.content for e in await other.entries.history(TENANT, entry.id)] == ["text"] * (
            next(count) + 1
        )
        before_step(
            world.short,
            "delete.home",
            lambda: other.entries.update(TENANT, entry.id, {"metadata": {"m": next(count)}}),
            times=10_000,
        )
        busy[0] = False
        with pytest.raises(TooMuchContention, match=entry.id):
            await world.delete(entry)


async def test_an_entry_deleted_under_an_edit_is_not_found(world: World) -> None:
    entry, other = await world.write(), await world.another_process()
    before_step(world.short, "update.home", lambda: other.deletion.delete(TENANT, entry.id))
    with pytest.raises(NotFound):
        await world.update(entry, content="x")
    assert await world.seen(entry) == []


async def test_an_edit_under_a_delete_does_not_save_the_entry(world: World) -> None:
    entry, other = await world.write(), await world.another_process()
    before_step(
        world.short,
        "delete.home",
        lambda: other.entries.update(TENANT, entry.id, {"content": "text, edited"}),
    )
    assert await world.delete(entry) is True
    assert await world.seen(entry) == []


@pytest.mark.parametrize("step", ["move.copy", "move.verify", "move.release"])
async def test_an_edit_in_the_middle_of_a_move_is_what_arrives(world: World, step: str) -> None:
    entry = await world.write()
    for store in world.stores:
        before_step(store, step, lambda: world.update(entry, content="text, edited"))
    await world.move(entry, "long")
    assert await world.seen(entry) == ["text, edited"]
    assert (await world.stands(entry))[2] == "home"


@pytest.mark.parametrize("step", ["move.copy", "move.verify", "move.release", "move.arrive"])
async def test_a_deletion_in_the_middle_of_a_move_holds(world: World, step: str) -> None:
    entry = await world.write()
    for store in world.stores:
        before_step(store, step, lambda: world.delete(entry))
    await world.move(entry, "long")
    assert await world.seen(entry) == []
    world.clock.advance(HOUR)
    await world.engine.maintenance.sweep()
    assert await world.seen(entry) == []


@pytest.mark.parametrize("step", ["move.copy", "move.verify", "move.release", "move.arrive"])
async def test_two_movers_at_once_move_it_once(world: World, step: str) -> None:
    entry = await world.write()
    for store in world.stores:
        before_step(store, step, lambda: world.move(entry, "long"))
    await world.move(entry, "long")
    assert await world.stands(entry) == ["mark", "-", "home"]
    assert await world.seen(entry) == ["text"]


@pytest.mark.parametrize("step", ["move.copy", "move.release"])
async def test_a_scope_erased_in_the_middle_of_a_move_stays_erased(world: World, step: str) -> None:
    entry = await world.write()
    for store in world.stores:
        before_step(store, step, lambda: world.engine.erasure.erase_scope(TENANT, SESSION))
    await world.move(entry, "long")
    assert await world.seen(entry) == []


async def test_a_scope_erased_in_the_middle_of_an_edit_stays_erased(world: World) -> None:
    entry = await world.write()
    before_step(world.short, "update.home", lambda: world.engine.erasure.erase_scope(TENANT, SESSION))
    with pytest.raises(NotFound):
        await world.update(entry, content="x")
    assert await world.browse() == []


async def test_a_keyed_write_that_another_finishes_first_returns_the_first(world: World) -> None:
    first = []

    async def other() -> None:
        first.append(await world.write("text", key="k"))

    before_step(world.short, "write.home", other)
    assert await world.write("text", key="k") == first[0]
    assert await world.browse() == ["text"]


async def test_a_keyed_write_that_took_longer_than_a_marks_life_returns_the_first(world: World) -> None:
    """A crash right after such a write would leave a second home for ever: so its place
    is held as long as a tombstone would hold it.
    """
    first = []

    async def other() -> None:
        first.append(await world.write("text", key="k"))
        await world.move(first[0], "long")
        world.clock.advance(2 * HOUR)
        await world.engine.maintenance.sweep()
        assert await world.stands(first[0]) == ["mark", "-", "home"]

    before_step(world.short, "write.home", other)
    assert await world.write("text", key="k") == first[0]
    assert await world.browse() == ["text"]
    assert await world.stands(first[0]) == ["mark", "-", "home"]


async def test_the_mark_under_a_key_goes_when_a_tombstone_would_and_the_key_stays_taken(world: World) -> None:
    entry = await world.write("text", key="k")
    await world.move(entry, "long")
    world.clock.advance(world.engine.settings.tombstone_life + HOUR)
    await world.engine.maintenance.sweep()
    assert await world.stands(entry) == ["-", "-", "home"]
    assert await world.write("text", key="k") == entry
    assert await world.browse() == ["text"]


async def test_a_promotion_that_took_longer_than_a_marks_life_returns_the_first(world: World) -> None:
    source = await world.write()
    first = []

    async def other() -> None:
        first.append(await world.engine.derivation.promote(TENANT, source.id, USER))
        await world.move(first[0], "long")
        world.clock.advance(2 * HOUR)
        await world.engine.maintenance.sweep()

    before_step(world.mid, "derive.home", other)
    assert (await world.engine.derivation.promote(TENANT, source.id, USER)).id == first[0].id
    assert await world.browse(USER) == ["text"]
    assert await world.stands(first[0]) == ["-", "mark", "home"]


async def _source_of_unconfirmed_copy(world: World) -> Entry:
    """An entry of which a process made a copy that it did not live to confirm."""
    source = await world.write()
    world.mid.fails_before.add("owed.settle")
    with pytest.raises(StoreError):
        await world.engine.derivation.promote(TENANT, source.id, USER)
    world.heal()
    return source


async def test_a_copy_that_was_not_confirmed_before_its_source_was_deleted_is_no_answer(world: World) -> None:
    """The sweep deletes such a copy: a repeated promotion must not acknowledge it."""
    source = await _source_of_unconfirmed_copy(world)
    await world.delete(source)
    for _ in range(2):
        with pytest.raises(NotFound, match=source.id):
            await world.engine.derivation.promote(TENANT, source.id, USER)
        await world.engine.maintain()


@pytest.mark.parametrize(
    ("changes", "left"), [({"tags": ["seen"]}, ["text"]), (None, ["text"]), ({"content": "other text"}, [])]
)
async def test_a_sweep_undoes_a_copy_only_if_its_source_says_something_else(
    world: World, changes: dict[str, Any] | None, left: list[str]
) -> None:
    """The process that copied it died. The source was retired or edited since."""
    source = await _source_of_unconfirmed_copy(world)
    if changes is None:
        await world.engine.entries.invalidate(TENANT, source.id, None)
    else:
        await world.update(source, **changes)
    await (await world.another_process()).maintain()
    assert await world.browse(USER) == left


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_an_edit_of_a_copy_that_is_not_confirmed_outlives_edits_of_its_source(
    world: World, is_deleted: bool
) -> None:
    """The process that copied it died. The deletion of the source takes the copy, so
    that no edit of it is acknowledged any more.
    """
    source = await _source_of_unconfirmed_copy(world)
    await (world.delete(source) if is_deleted else world.update(source, content="other text"))
    [copy] = await world.engine.browser.browse(EntryQuery(TENANT, (USER,)))
    with pytest.raises(NotFound) if is_deleted else nullcontext():
        await world.update(copy, content="mine")
    await (await world.another_process()).maintain()
    assert await world.browse(USER) == ([] if is_deleted else ["mine"])


async def test_a_rule_copies_again_what_was_undone_but_not_what_somebody_deleted(world: World) -> None:
    """It died while it copied, and its source was edited since: a sweep undid that."""
    source = await world.write()
    world.mid.fails_before.add("owed.settle")
    with pytest.raises(StoreError):
        await world.engine.derivation.promote(TENANT, source.id, USER, revive=False, automatic=True)
    world.heal()
    await world.update(source, content="other text")
    await (await world.another_process()).maintain()
    assert await world.browse(USER) == []
    copy = await world.engine.derivation.promote(TENANT, source.id, USER, revive=False, automatic=True)
    assert await world.browse(USER) == ["other text"]
    await world.delete(copy)
    with pytest.raises(Conflict):
        await world.engine.derivation.promote(TENANT, source.id, USER, revive=False, automatic=True)
    assert await world.browse(USER) == []


async def test_a_deletion_leaves_what_was_made_of_the_next_life_of_its_entry(world: World) -> None:
    """Somebody else does all of it between a look for copies and their deletion."""
    source = await world.write("text", key="k")
    await world.engine.derivation.promote(TENANT, source.id, USER, automatic=True)
    other = await world.another_process()

    async def others() -> None:
        await other.maintain()
        draft = EntryDraft(scope=SESSION, content="text", key="k")
        again = await other.entries.write(TENANT, draft, revive=True)
        await other.derivation.promote(TENANT, again.id, USER)

    before_step(world.mid, "delete.home", others)
    await world.delete(source)
    assert await world.browse(USER) == ["text"]


async def test_a_promotion_another_finishes_first_returns_the_first(world: World) -> None:
    source = await world.write()
    first = []

    async def other() -> None:
        first.append(await world.engine.derivation.promote(TENANT, source.id, USER))

    before_step(world.mid, "derive.home", other)
    assert await world.engine.derivation.promote(TENANT, source.id, USER) == first[0]
    assert await world.browse(USER) == ["text"]


async def test_a_promotion_that_never_comes_first_is_given_up_on() -> None:
    async with World(settings=EngineSettings(deadline=timedelta(milliseconds=30))) as world:
        source = await world.write()
        promoted = await world.engine.derivation.promote(TENANT, source.id, USER)
        busy = [False]

        async def come_and_go() -> None:
            if not busy[0]:
                busy[0] = True
                await world.delete(await world.engine.derivation.promote(TENANT, source.id, USER))
                busy[0] = False

        await world.delete(promoted)
        before_step(world.mid, "derive.home", come_and_go, times=10_000)
        with pytest.raises(TooMuchContention, match=promoted.id):
            await world.engine.derivation.promote(TENANT, source.id, USER)
        assert await world.browse(USER) == []


async def test_an_entry_deleted_while_it_is_linked_takes_the_link_with_it(world: World) -> None:
    a, b = await world.write("text a"), await world.write("text b")
    before_step(world.mid, "relate.home", lambda: world.delete(b))
    with pytest.raises(InvalidInput, match="relation"):
        await world.engine.relations.relate(TENANT, a.id, "supports", b.id)
    assert await world.rows(world.mid, RELATIONS) == []
    assert await world.engine.relations.find(TENANT) == []


async def test_a_fresh_id_that_is_taken_is_said_to_be(world: World) -> None:
    world.engine.placement.random_bits = lambda bits: 0
    world.clock.advance(timedelta(0))
    moment = world.clock.moment
    await world.write("text one")
    world.clock.moment = moment
    with pytest.raises(Conflict):
        await world.write("text two")
    assert await world.browse() == ["text one"]


@pytest.mark.parametrize(
    "step", ["write.home", "update.home", "delete.home", "derive.home", "relate.home", "erase.begin"]
)
async def test_a_rejection_by_a_store_is_an_error_that_tells_its_reason(world: World, step: str) -> None:
    a, b = await world.write("text a", scope=USER), await world.write("text b", scope=USER)
    original = world.mid.on_call

    async def call(method: str, *args: Any, **kwargs: Any) -> Any:
        if current_step.get() == step:
            return [Outcome(Status.REJECTED, reason="record: too large") for _ in args[0]]
        return await original(method, *args, **kwargs)

    world.mid.on_call = call  # type: ignore[method-assign]
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "write.home": lambda: world.write("text c", scope=USER),
        "update.home": lambda: world.update(a, content="x"),
        "delete.home": lambda: world.delete(a),
        "derive.home": lambda: world.engine.derivation.compact(TENANT, [a.id, b.id], lambda entries: "x"),
        "relate.home": lambda: world.engine.relations.relate(TENANT, a.id, "supports", b.id),
        "erase.begin": lambda: world.engine.erasure.erase_scope(TENANT, USER),
    }
    with pytest.raises(StoreError, match="store 'mid': record: too large"):
        await calls[step]()
    assert sorted(await world.browse(USER)) == ["text a", "text b"]


async def test_a_record_too_large_for_its_store_is_refused_with_the_limit() -> None:
    async with World(short=replace(DURABLE, max_record_bytes=400)) as world:
        with pytest.raises(StoreError, match="at most 400 bytes"):
            await world.write("x" * 500)
        assert await world.browse() == []


async def test_an_id_that_is_not_ours_is_never_looked_for(world: World) -> None:
    for store in world.stores:
        store.steps.clear()
    assert await world.engine.entries.get(TENANT, "nothing") is None
    assert not await world.engine.deletion.delete(TENANT, "nothing")
    assert await world.engine.relations.unrelate(TENANT, "nothing") is False
    assert [s for store in world.stores for s in store.steps] == []
    assert (
        await world.engine.placement.locate(RELATIONS, Key(TENANT, "00000000-0000-8000-8000-000000000000"))
    ).record is None


async def test_a_write_without_a_key_that_arrived_late_and_was_sent_again_is_answered_with_its_entry(
    world: World,
) -> None:
    apply = world.short.apply

    async def twice(writes: Sequence[Write], *, together: bool = False) -> list[Outcome]:
        await apply(writes, together=together)  # given up by the caller's guard, and carried out all the same
        outcomes: list[Outcome] = await apply(writes, together=together)
        return outcomes

    world.short.apply = twice  # type: ignore[method-assign]
    entry = await world.write("text")
    assert await world.seen(entry) == ["text"]
    assert await world.browse() == ["text"]
