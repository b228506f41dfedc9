"""How much one round of maintenance may do, and where the next goes on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from memory.domain.legal_hold import LegalHold, Over
from memory.domain.maintenance_reports import SweepReport
from memory.orchestrator.conversations.sessions import SessionDraft
from memory.orchestrator.storage.budgets import Allowance, BudgetExhausted
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.storage.settings import EngineSettings
from memory.policies.promotion import PromotionRule
from memory.policies.retention import RetentionRule
from memory.policies.single_conditions import OlderThan
from memory.ports.record import PendingStep, Record
from memory.ports.writes import AtVersion, Put
from tests.simulation.loop import SimulatedLoop
from tests.unit.orchestrator.world import DAY, HOUR, ORG, TENANT, USER, World, held

WEEK_OLD = PromotionRule(name="idle", on="sweep", source="short", target="mid", idle_for=timedelta(days=7))


async def sweep_one_portion(world: World, monkeypatch: pytest.MonkeyPatch) -> SweepReport:
    """A sweep that is asked to stop once a portion of owed steps is tried."""
    stop = asyncio.Event()
    finish_all = world.engine.outbox.finish_all

    async def stopping(*args: Any) -> Any:
        stop.set()
        return await finish_all(*args)

    with monkeypatch.context() as patched:
        patched.setattr(world.engine.outbox, "finish_all", stopping)
        return await world.engine.maintenance.sweep(Allowance(stop=stop))


async def hold_over(world: World, over: Over, of: str, entry_scope: str | None = None) -> None:
    await world.engine.erasure.holds.place(
        TENANT, LegalHold("case", over, of, "a reason", None, world.clock()), entry_scope
    )


async def test_a_sweep_that_may_do_no_more_says_so_and_the_next_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with World(settings=EngineSettings(page=2)) as world:
        await world.write_undelivered(6)
        for left in (4, 2, 0):
            report = await sweep_one_portion(world, monkeypatch)
            assert (report.ran, report.more, report.finished) == (True, left > 0, 2)
            assert await world.owed() == left
        report = await world.engine.maintenance.sweep(Allowance())
        assert (report.more, report.finished) == (False, 0)
        assert await (await world.another_process()).maintenance.sweep() == SweepReport(), (
            "the lease was given back"
        )


async def test_what_cannot_be_done_keeps_nothing_from_being_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever end of what is due the store tells first."""
    for strange_first in (True, False):
        async with World(settings=EngineSettings(page=2)) as world:
            if not strange_first:
                await world.write_undelivered(1)
            for n in range(6):
                await owe_what_nobody_knows(world, f"strange {n}")
            if strange_first:
                await world.write_undelivered(1)
            finished = [(await sweep_one_portion(world, monkeypatch)).finished for _ in range(5)]
            assert sum(finished) == 1, finished


async def owe_what_nobody_knows(world: World, content: str) -> None:
    entry = await world.write(content, scope=USER)
    record = await world.standing(world.mid, entry.id)
    assert isinstance(record, Record)
    await world.mid.apply([Put(ENTRIES, record_owing(record), AtVersion(record.version))])


def record_owing(record: Record) -> Record:
    return replace(record, owed=(PendingStep("of-version-2", "of-version-2"),), version=record.version + 1)


async def test_the_job_in_which_a_sweep_ended_is_the_first_of_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rules come last. New debts, as many as each sweep can settle, never keep them
    from being asked.
    """
    async with World(settings=EngineSettings(page=2), rules=[WEEK_OLD]) as world:
        old = [await world.write(f"old {n}") for n in range(3)]
        world.clock.advance(8 * DAY)
        stop = asyncio.Event()
        move_many = world.engine.tier_mover.move_many

        async def moving(*args: Any) -> Any:
            stop.set()
            return await move_many(*args)

        with monkeypatch.context() as patched:
            patched.setattr(world.engine.tier_mover, "move_many", moving)
            assert (await world.engine.maintenance.sweep(Allowance(stop=stop))).more
        await world.write_undelivered(4)
        assert (await sweep_one_portion(world, monkeypatch)).more
        assert [(await world.stands(entry))[0] for entry in old] == ["mark"] * 3


def test_a_budget_ends_a_round_and_a_rate_slows_it() -> None:
    """On a clock of its own: nothing waits here."""

    async def holds(allowance: Allowance, count: int) -> list[float]:
        loop, moments = asyncio.get_running_loop(), list[float]()
        began, hold = loop.time(), allowance.over(held)
        try:
            for _ in range(5):
                await hold(count)
                moments.append(round(loop.time() - began, 1))
        except BudgetExhausted:
            moments.append(-1)
        return moments

    loop = SimulatedLoop(1)
    try:
        assert loop.run_until_complete(holds(Allowance(rate=10), 20)) == [0, 2, 4, 6, 8]
        assert loop.run_until_complete(holds(Allowance(timedelta(seconds=5), 10), 20)) == [0, 2, 4, -1]
        assert loop.run_until_complete(holds(Allowance(timedelta(seconds=5)), 20)) == [0, 0, 0, 0, 0]
    finally:
        loop.close()


async def test_who_waits_for_the_rate_stops_when_asked_to() -> None:
    stop = asyncio.Event()
    hold = Allowance(rate=0.001, stop=stop).over(held)
    await hold(1)
    waiting = asyncio.create_task(hold(1))
    await asyncio.sleep(0)
    stop.set()
    with pytest.raises(BudgetExhausted):
        await waiting


async def test_however_short_its_budget_a_round_gets_something_done() -> None:
    async with World(settings=EngineSettings(page=2)) as world:
        await world.write_undelivered(6)
        reports = [
            await world.engine.maintenance.sweep(Allowance(timedelta(microseconds=1))) for _ in range(3)
        ]
        assert [(report.finished, report.more) for report in reports] == [(2, True), (2, True), (2, False)]


async def test_what_is_under_legal_hold_is_not_more_to_be_done_and_takes_no_lease() -> None:
    """Entries, kept versions and sessions, by rule and by expiry, two of each: a round
    that may do one thing would go round them for ever.
    """
    rules = [
        RetentionRule(name="old", when=OlderThan(DAY), scope_kinds=["user"]),
        RetentionRule(name="versions", what="versions", versions_for=DAY),
        RetentionRule(name="over", what="sessions", statuses=["ended"], when=OlderThan(DAY)),
    ]
    async with World(retention=rules, settings=EngineSettings(page=1)) as world:
        over = world.clock() + 2 * DAY
        for n in (1, 2):
            await world.update(await world.write(f"text {n}", scope=USER), content=f"text {n}, edited")
            await world.write(f"text {n} that expires", scope=ORG, expires_at=over)
            await world.engine.conversations.create(TENANT, SessionDraft(f"expires {n}", expires_at=over))
            await (await world.engine.conversations.create(TENANT, SessionDraft(f"ended {n}"))).close("ended")
        await world.flush()
        for _ in range(3):  # what was written is known to all, and has been noted
            world.clock.advance(HOUR)
            await world.engine.maintenance.sweep()
        await world.engine.erasure.holds.place(
            TENANT, LegalHold("case", "tenant", TENANT, "r", None, world.clock())
        )
        world.clock.advance(4 * DAY)
        before = [len(store.steps) for store in world.stores]
        report = await world.engine.maintenance.sweep(Allowance(budget=timedelta(0)))
        assert (report.more, report.held, report.deleted, report.expired, report.dropped_versions) == (
            False,
            10,
            0,
            0,
            0,
        )
        steps = {
            step for store, since in zip(world.stores, before, strict=True) for step in store.steps[since:]
        }
        assert not {step for step in steps if step.startswith(("lease.", "delete.home", "erase.begin"))}
        await world.engine.erasure.holds.release(TENANT, "case")
        rounds = [await world.engine.maintenance.sweep(Allowance(budget=timedelta(0))) for _ in range(30)]
        assert rounds[0].more
        assert not rounds[-1].more
        assert sum(one.deleted + one.expired for one in rounds) == 8, "the versions went with their entries"


async def test_what_is_held_keeps_nothing_else_from_going_however_short_the_rounds() -> None:
    async with World(
        settings=EngineSettings(page=2), retention=[RetentionRule(name="old", when={"older_than": "90d"})]
    ) as world:
        entries = [await world.write(f"text {n}", scope=USER) for n in range(7)]
        for entry in entries[:4]:
            await hold_over(world, "entry", entry.id, entry.scope.text)
        world.clock.advance(91 * DAY)
        reports = [await world.engine.maintenance.sweep(Allowance(timedelta(0))) for _ in range(3)]
        assert [report.deleted for report in reports] == [2, 1, 0]
        assert not reports[-1].more
        assert reports[-1].held == 4
        assert len(await world.browse(USER)) == 4


async def test_sessions_that_are_held_keep_no_other_from_going_however_short_the_rounds() -> None:
    async with World() as world:
        for n in range(6):
            await world.engine.conversations.create(
                TENANT, SessionDraft(f"s{n}", expires_at=world.clock() + HOUR)
            )
            if n % 2:
                await hold_over(world, "scope", f"session:s{n}")
        world.clock.advance(2 * DAY)
        reports = [await world.engine.maintenance.sweep(Allowance(timedelta(0))) for _ in range(4)]
        assert [report.expired for report in reports] == [1, 1, 1, 0]
        assert (reports[-1].more, reports[-1].held) == (False, 3)


async def test_who_has_but_looked_stops_when_asked_to_and_does_not_wait_for_the_rate() -> None:
    stop = asyncio.Event()
    hold = Allowance(timedelta(0), rate=0.001, stop=stop).over(held)
    await hold(0)
    await hold(1)  # the first thing that is done
    with pytest.raises(BudgetExhausted):
        await hold(0)
    stop.set()
    with pytest.raises(BudgetExhausted):
        await Allowance(stop=stop).over(held)(0)


async def test_who_meets_but_what_is_held_stops_when_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Expired entries, slice by slice."""
    async with World(settings=EngineSettings(page=2)) as world:
        for n in range(6):
            await world.write(f"text {n}", scope=USER, expires_at=world.clock() + HOUR)
        await hold_over(world, "tenant", TENANT)
        world.clock.advance(3 * DAY)
        stop, over = asyncio.Event(), world.engine.erasure.holds.over

        async def asked(records: Any) -> Any:
            stop.set()
            return await over(records)

        monkeypatch.setattr(world.engine.erasure.holds, "over", asked)
        report = await world.engine.maintenance.sweep(Allowance(stop=stop))
        assert (report.more, report.held) == (True, 0)
        monkeypatch.undo()
        assert (await world.engine.maintenance.sweep()).held == 6
