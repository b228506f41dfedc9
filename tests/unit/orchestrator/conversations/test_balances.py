"""A balance that cannot be read, or is not what stands, is counted anew, whoever is in
the middle of what.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest

from memory.domain import validation
from memory.domain.errors import Conflict, QuotaExceeded, StoreUnavailable, TooMuchContention
from memory.domain.message import Message
from memory.orchestrator.conversations.blobs import balances, large_texts, manifests, reservations
from memory.orchestrator.conversations.blobs.balances import balance_key
from memory.orchestrator.engine import Engine
from memory.orchestrator.storage.collections import RESERVATIONS
from memory.orchestrator.storage.steps import current_step
from memory.ports.record import Record
from memory.ports.writes import Always, Put
from tests.support.mutations import Mutation
from tests.support.reserved import assert_reserved
from tests.unit.orchestrator.conversations.talking import opened, user
from tests.unit.orchestrator.conversations.test_manifests import (
    FILES,
    LAPSED,
    MOST,
    delete,
    put,
    session,
)
from tests.unit.orchestrator.conversations.test_parts import text
from tests.unit.orchestrator.world import DURABLE, TENANT, World

KEY = balance_key(TENANT)


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    """Chunks of ten bytes, two at a time; texts of more than ten bytes are large."""
    with ExitStack() as patches:
        for module, name, value in (
            (manifests, "CHUNK_BYTES", 10),
            (manifests, "PORTION", 2),
            (validation, "LARGE_TEXT_BYTES", 10),
            (large_texts, "CHUNK_CHARACTERS", 5),
        ):
            patches.enter_context(patch.object(module, name, value))
        yield


def new_world(atomic: bool) -> World:
    return World(mid=replace(DURABLE, atomic=atomic), quotas=[FILES])


@pytest.fixture(params=[True, False], ids=["atomic", "not-atomic"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async with new_world(request.param) as opened:
        await session(opened.engine)
        yield opened


def damage(world: World) -> None:
    world.mid.state.damage(RESERVATIONS.name, KEY)


async def misstate(world: World, total: int) -> None:
    """As in a store that was set back alone, in part."""
    (there,) = await world.mid.get(RESERVATIONS, [KEY])
    assert isinstance(there, Record)
    await world.mid.apply([Put(RESERVATIONS, replace(there, body={**there.body, "total": total}), Always())])


async def reserved(engine: Engine) -> int:
    await assert_reserved(engine, TENANT)
    return await engine.conversations.reservations.used_bytes(TENANT)


async def test_who_meets_a_damaged_balance_counts_it_anew(world: World) -> None:
    await put(world.engine, b"x" * 30)
    damage(world)
    await put(world.engine, b"y" * 20, "b")
    assert await reserved(world.engine) == 50
    damage(world)
    with pytest.raises(QuotaExceeded) as refused:
        await put(world.engine, b"z" * 60, "c")
    assert (refused.value.held, refused.value.asked) == (50, 60)
    damage(world)
    assert await delete(world.engine, "b")
    assert await reserved(world.engine) == 30
    damage(world)
    await world.engine.conversations.sessions.delete(TENANT, "s1")
    assert await reserved(world.engine) == 0


async def test_a_repair_names_a_balance_that_cannot_be_read_and_counts_it(world: World) -> None:
    await put(world.engine, b"x" * 30)
    damage(world)
    found = await world.engine.repair.compare()
    said = "the usage record of tenant 'acme' cannot be read, and its artifacts and large texts take 30"
    assert (found.ok, found.differs) == (False, {said: 1})
    repaired = await world.engine.repair.compare(repair=True)
    assert (repaired.ok, repaired.differs) == (True, {said: 1})
    assert (await world.engine.repair.compare()).differs == {}
    assert await reserved(world.engine) == 30


@pytest.mark.parametrize("total", [None, 0, 29, 1_000])
async def test_a_repair_names_a_balance_that_is_not_what_stands_and_counts_it(
    world: World, total: int | None
) -> None:
    """None: there is no balance."""
    await put(world.engine, b"x" * 30)
    if total is None:
        world.mid.state.place(RESERVATIONS.name, KEY, None)
    else:
        await misstate(world, total)
    said = (
        f"the usage record of tenant 'acme' says {total or 0:,} bytes, and its artifacts and large texts take"
        " 30"
    )
    assert (await world.engine.repair.compare()).differs == {said: 1}
    assert (await world.engine.repair.compare(repair=True)).differs == {said: 1}
    assert (await world.engine.repair.compare()).differs == {}
    assert await reserved(world.engine) == 30


async def test_a_balance_that_others_keep_changing_does_not_differ(world: World) -> None:
    await put(world.engine, b"x" * 30)
    other, numbers = await world.another_process(), iter(range(100))

    async def another() -> None:
        world.mid.before["artifacts.compare"] = another
        await put(other, b"y", f"p{next(numbers)}")

    world.mid.before["artifacts.compare"] = another
    assert (await world.engine.repair.compare()).differs == {}


@pytest.mark.parametrize("step", ["artifacts.balance", "artifacts.recount"])
@pytest.mark.parametrize("fails", ["fails_before", "fails_after"])
async def test_a_count_that_was_broken_off_is_taken_to_its_end(world: World, step: str, fails: str) -> None:
    await put(world.engine, b"x" * 30)
    damage(world)
    getattr(world.mid, fails).add(step)
    with pytest.raises(StoreUnavailable):
        await put(world.engine, b"y" * 20, "b")
    world.heal()
    engine = await world.settled(LAPSED)
    await put(engine, b"y" * 20, "b")
    assert await reserved(engine) == 50


async def test_a_count_that_was_broken_off_is_owed_and_done_by_a_sweep(world: World) -> None:
    await put(world.engine, b"x" * 30)
    await misstate(world, 40)
    world.mid.fails_before.add("artifacts.recount")
    assert "artifacts.recount" in (await world.engine.repair.compare(repair=True)).error
    engine = await world.settled(LAPSED)
    (there,) = await world.mid.get(RESERVATIONS, [KEY])
    assert isinstance(there, Record)
    assert there.body["total"] == 30
    assert await reserved(engine) == 30


async def test_two_that_count_at_once_count_once(world: World) -> None:
    await put(world.engine, b"x" * 30)
    other = await world.another_process()
    damage(world)
    world.mid.after["artifacts.recount"] = lambda: put(other, b"y" * 20, "b")
    await put(world.engine, b"z" * 10, "c")
    assert await reserved(world.engine) == 60


async def test_who_returns_room_and_sleeps_returns_it_once(world: World) -> None:
    """A sweep sets the balance right meanwhile, and cannot do what is owed besides."""
    await put(world.engine, b"x" * 30)
    other = await world.another_process()

    async def asleep() -> None:
        world.clock.advance(LAPSED)
        world.mid.fails_before.add("artifacts.drop")
        await other.maintenance.sweep()
        world.heal()

    world.mid.before["artifacts.return"] = asleep
    assert await delete(world.engine)
    engine = await world.settled(LAPSED)
    assert await reserved(engine) == 0


# -- in the middle of anything ---------------------------------------------------------


async def _puts(engine: Engine) -> None:
    await put(engine, b"new" * 11, "a")


async def _streams(engine: Engine) -> None:
    await put(engine, b"new" * 11, "a", known=False)


async def _deletes(engine: Engine) -> None:
    await delete(engine)


async def _says(engine: Engine) -> None:
    await (await opened(engine)).append(
        [user(text("b", 14), "u2"), Message(id="u3", role="user", content=text("c", 11))]
    )


async def _says_less(engine: Engine) -> None:
    await (await opened(engine)).update("u1", {"content": text("a", 24)[:12]})


async def _erases(engine: Engine) -> None:
    await engine.conversations.redaction.erase((await opened(engine)).log, "u1")


async def _ends(engine: Engine) -> None:
    await engine.conversations.sessions.delete(TENANT, "s1")


async def _breaks_off(engine: Engine) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"new" * 7
        raise StoreUnavailable("elsewhere", "what is put ends in the middle")

    await engine.conversations.manifests.put(TENANT, "s1", "a", "text/plain", pieces(), 33)


ACTS = (_puts, _streams, _deletes, _says, _says_less, _erases, _ends, _breaks_off)


class Before:
    """Has something done by others before the call of this number, of those that are
    about artifacts.
    """

    def __init__(self, world: World, at: int, meanwhile: Callable[[], Awaitable[object]]) -> None:
        self.calls, self.on_call, self._store = 0, type(world.mid).on_call, type(world.mid)
        self._at, self._meanwhile = at, meanwhile

    def __enter__(self) -> Before:
        async def counted(store: Any, method: str, *args: Any, **kwargs: Any) -> Any:
            about = current_step.get().startswith("artifacts.")
            number, self.calls = self.calls, self.calls + about
            if about and number == self._at:
                self._patch.stop()
                await self._meanwhile()
                self._patch.start()
            return await self.on_call(store, method, *args, **kwargs)

        self._patch = patch.object(self._store, "on_call", counted)
        self._patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.stop()


async def played(act: Callable[[Engine], Awaitable[None]], at: int, atomic: bool, slept: timedelta) -> bool:
    """The balance is damaged, and counted by others, before a call of the act, whose
    process sleeps then. Whether it made so many calls.
    """
    async with new_world(atomic) as world:
        await session(world.engine)
        await put(world.engine, b"old" * 7)
        await (await opened(world.engine)).append([user(text("a", 24), "u1")])
        other = await world.another_process()
        await session(other, "s2")

        async def meanwhile() -> None:
            damage(world)
            await put(other, b"z" * 7, "z", session_id="s2")
            if slept:
                world.clock.advance(slept)
                await other.maintenance.sweep()

        with (
            Before(world, at, meanwhile) as before,
            suppress(StoreUnavailable, Conflict, TooMuchContention, QuotaExceeded),
        ):
            await act(world.engine)
        await assert_reserved(world.engine, TENANT, settled=False, damaged=True)
        engine = await world.settled(LAPSED)
        assert await reserved(engine) <= MOST
        return before.calls > at


@pytest.mark.parametrize(
    ("atomic", "slept"), [(True, timedelta(0)), (False, LAPSED)], ids=["atomic-awake", "not-atomic-asleep"]
)
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.thorough
async def test_nothing_is_missed_that_is_in_the_middle_of_anything(
    act: Callable[[Engine], Awaitable[None]], atomic: bool, slept: timedelta
) -> None:
    assert await each(act, atomic, slept) > 1


_MUTATIONS = {
    "who returns room meanwhile is not made to look again": (
        Mutation(balances, "Balances._sum_reservations", "await self._put_later(rows)", "rows"),
        _deletes,
    ),
    "what was about to be put is missed by its writer": (
        Mutation(reservations, "Reservations.see", "if seen is balance or", "if True or"),
        _puts,
    ),
    "what was about to be put is missed when it is given up": (
        Mutation(balances, "Balance.with_leaving", "self.with_reservation(reservation, now)", "self"),
        _breaks_off,
    ),
    "what was about to be said is missed": (
        Mutation(reservations, "Reservations.hold_parts", "await self.see(tenant, uploads)", "pass"),
        _says,
    ),
}


async def each(act: Callable[[Engine], Awaitable[None]], atomic: bool, slept: timedelta) -> int:
    """Before every call of the act, one after the other; how many there were."""
    at = 0
    while await played(act, at, atomic, slept):
        at += 1
    return at


@pytest.mark.parametrize("mutation", sorted(_MUTATIONS))
async def test_a_mutation_in_counting_is_noticed(mutation: str) -> None:
    made, act = _MUTATIONS[mutation]
    with made.applied(), pytest.raises(AssertionError):
        await each(act, True, timedelta(0))
