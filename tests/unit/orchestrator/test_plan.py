"""The plan of a sweep is what the sweep then does, exactly; what stays is told with
why, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from memory.domain.entry import EntryDraft
from memory.domain.legal_hold import LegalHold
from memory.domain.message import Message, Role
from memory.domain.plan import Plan
from memory.domain.scope import Scope
from memory.domain.time import micros
from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.conversations.sessions import SessionDraft
from memory.orchestrator.enrichment.enrichment import ENRICH
from memory.orchestrator.storage.collections import ENTRIES, SESSIONS
from memory.orchestrator.tiering import plan as planned
from memory.orchestrator.tiering.dry_run import DryRunState
from memory.orchestrator.trust.gates import Gates
from memory.policies.promotion import PromotionRule
from memory.policies.quotas import Quota
from memory.policies.retention import RetentionRule
from memory.policies.single_conditions import HasTag, IdleFor, OlderThan, ScopeExceeds
from memory.ports.query import Count, Query, Tenant
from memory.ports.record import PendingStep, Record
from tests.support import noticed
from tests.support.depth import drawn
from tests.unit.orchestrator.plan_mutations import MUTATIONS, SHOWN_BY_ONE_TEST
from tests.unit.orchestrator.planning import compared, counts_otherwise, history, homes
from tests.unit.orchestrator.world import DAY, HOUR, SESSION, TENANT, USER, World

IDLE = RetentionRule(name="idle", what="sessions", then="end", when=IdleFor(2 * DAY))
OVER = RetentionRule(name="over", what="sessions", when=IdleFor(4 * DAY), statuses=("ended",))
OLD = RetentionRule(name="old", when=OlderThan(3 * DAY))
TWO = PromotionRule(name="two", on="sweep", when=ScopeExceeds(count=2))
KNOWN = PromotionRule(name="known", to_scope="user")


@pytest.mark.parametrize("seed", range(drawn(200, 12)))
@pytest.mark.thorough
async def test_the_plan_is_what_the_sweep_then_does(seed: int) -> None:
    assert await history(seed) == []


@pytest.mark.parametrize("name", noticed.cases("plan: ", MUTATIONS))
def test_a_mutation_shows_in_a_drawn_life(name: str) -> None:
    assert MUTATIONS[name].seen_in(history, 300, f"plan: {name}"), "nobody noticed"


def told(plan: Plan) -> list[tuple[str, str]]:
    return [(one.action, one.rule) for one in plan.planned]


async def begun(world: World, session_id: str = "s1", **more: Any) -> Conversation:
    return await world.engine.conversations.create(TENANT, SessionDraft(session_id, user="ada", **more))


# -- rules, one after the other --------------------------------------------------------


async def test_a_plan_names_once_what_two_rules_copy_into_one_scope_and_not_what_was_copied_before() -> None:
    rules = (KNOWN, PromotionRule(name="hers", to_scope="user:ada"))
    async with World(rules=rules, retention=[IDLE]) as world:
        session = await begun(world)
        await world.write("text", SESSION)
        world.clock.advance(3 * DAY)
        assert told(await world.engine.plan()) == [("copy", "known"), ("end", "idle")]
        await world.engine.maintenance.sweep()
        [copy] = await world.homes_in(USER)
        for _ in range(2):
            await session.resume()
            world.clock.advance(3 * DAY)
            assert told(await world.engine.plan()) == [("end", "idle")]
            await world.engine.deletion.delete(TENANT, copy)


async def test_a_copy_that_was_deleted_so_long_ago_that_nothing_is_left_of_it_is_planned_again() -> None:
    async with World(rules=[KNOWN], retention=[IDLE]) as world:
        session = await begun(world)
        await world.write("text", SESSION)
        world.clock.advance(3 * DAY)
        await world.engine.maintenance.sweep()
        [copy] = await world.homes_in(USER)
        await world.engine.deletion.delete(TENANT, copy)
        world.clock.advance(31 * DAY)
        await session.resume()
        world.clock.advance(3 * DAY)
        assert told(await world.engine.plan()) == [("copy", "known"), ("end", "idle")]
        assert await compared(world) == []


async def test_what_one_rule_deletes_leaves_room_for_others_in_the_plan_too() -> None:
    rules = [
        RetentionRule(name="facts", when=HasTag("fact")),
        RetentionRule(name="many", when=ScopeExceeds(count=2)),
    ]
    async with World(rules=(), retention=rules) as world:
        fact = await world.write_hourly("f", scope=USER, tags=["fact"])
        others = await world.write_hourly("a", "b", "c", scope=USER)
        plan = await world.engine.plan()
        assert [(one.id, one.rule) for one in plan.planned] == [(fact[0].id, "facts"), (others[0].id, "many")]
        assert (await world.engine.maintenance.sweep()).deleted == 2
        assert set(await homes(world)) == {entry.id for entry in others[1:]}


async def test_a_plan_writes_nothing_and_asks_what_it_needs() -> None:
    async with World(rules=(TWO,)) as world:
        await world.write_hourly("a", "b", "c")
        for store in world.stores:
            store.steps.clear()
        assert len((await world.engine.plan()).planned) == 1
        asked = {step for store in world.stores for step in store.steps}
        assert asked == {
            "plan.archive",
            "sweep.due",
            "session.expired",
            "promotion.scan",
            "read.home",
            "plan.target",
        }


async def test_a_plan_changes_nothing_of_whose_turn_it_is() -> None:
    async with World(rules=(), retention=[OLD]) as world:
        world.engine.placement.settings = replace(world.engine.settings, page=1)
        await world.write_hourly("a", "b", "c", scope=USER)
        world.clock.advance(4 * DAY)
        assert len((await world.engine.plan()).planned) == 3
        assert world.engine.retention._served == {}


async def test_kept_versions_wait_for_the_sweep_that_comes_round_to_them_and_are_counted_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with World(retention=[RetentionRule(name="few", what="versions", keep_versions=1)]) as world:
        entry = await world.write("text", USER)
        for n in range(4):
            await world.update(entry, content=f"text {n}")
        assert [one.depends for one in (await world.engine.plan()).planned] == [()] * 3
        world.engine.placement.settings = replace(world.engine.settings, page=3)
        depends = ("when a sweep reaches it: each sweep checks 3",)
        archive, counts = world.engine.topology.archive, list[Query]()
        count = archive.count

        async def counted(query: Query) -> Count:
            counts.append(query)
            return await count(query)

        monkeypatch.setattr(archive, "count", counted)
        assert [one.depends for one in (await world.engine.plan()).planned] == [depends] * 3
        assert len(counts) == 1


# -- quotas ----------------------------------------------------------------------------


async def test_a_plan_names_whom_a_quota_has_go_for_a_copy() -> None:
    quota = Quota(name="few", scope_kinds=("user",), entries=2, then="evict")
    async with World(rules=[KNOWN], retention=[IDLE], quotas=[quota]) as world:
        await begun(world)
        first, second = await world.write_hourly("first", "second", scope=USER)
        [entry] = await world.write_hourly("text")
        world.clock.advance(3 * DAY)
        plan = await world.engine.plan()
        assert [(one.action, one.id, one.rule) for one in plan.planned[:2]] == [
            ("copy", entry.id, "known"),
            ("evict", first.id, "few"),
        ]
        assert (
            plan.planned[1].because
            == "at most 2 entries per scope (user); beyond it the oldest entries are evicted"
        )
        assert (plan.planned[0].depends, plan.stays) == ((), [])
        await world.engine.maintenance.sweep()
        assert second.id in await homes(world)
        assert first.id not in await homes(world)


async def test_a_copy_that_goes_for_the_next_copy_is_named_as_both() -> None:
    quota = Quota(name="one", scope_kinds=("user",), entries=1, then="evict")
    async with World(rules=[KNOWN], retention=[IDLE], quotas=[quota]) as world:
        await begun(world)
        await world.write_hourly("a", "b")
        world.clock.advance(3 * DAY)
        assert told(await world.engine.plan()) == [
            ("copy", "known"),
            ("copy", "known"),
            ("evict", "one"),
            ("end", "idle"),
        ]
        assert await compared(world) == []


async def test_what_a_quota_refuses_stays_and_its_name_is_told() -> None:
    quota = Quota(name="few", scope_kinds=("user",), entries=1)
    async with World(rules=[KNOWN], retention=[IDLE], quotas=[quota]) as world:
        await begun(world)
        entries = await world.write_hourly("a", "b")
        world.clock.advance(3 * DAY)
        plan = await world.engine.plan()
        assert told(plan) == [("copy", "known"), ("end", "idle")]
        [stays] = plan.stays
        assert (stays.action, stays.id, stays.rule, stays.quota, stays.to) == (
            "copy",
            entries[1].id,
            "known",
            "few",
            "user",
        )
        assert "holds 1 of at most 1 entries" in stays.because
        assert await compared(world) == []


async def test_a_quota_of_bytes_counts_what_the_store_counts_that_a_record_moves_to() -> None:
    """In the last tier what is long takes twice as much: once it has moved there is no
    room for the copy.
    """
    rules = (
        PromotionRule(name="far", target="long", when=HasTag("long")),
        PromotionRule(name="known", to_scope="user", when=HasTag("fact")),
    )
    for room, acts in ((2_000, ["move", "end", "copy", "end"]), (500, ["move", "end", "end"])):
        async with World(rules=rules, retention=[IDLE]) as world:
            counts_otherwise(world.long)
            for name, content, tag in (("s1", "x" * 1_000, "long"), ("s2", "text", "fact")):
                await begun(world, name)
                await world.write_hourly(content, scope=Scope.session(name), tags=[tag])
            there = sum([(await store.count(Query(ENTRIES, Tenant(TENANT)))).bytes for store in world.stores])
            world.engine.quotas.quotas = (Quota(name="small", per="tenant", bytes=there + room),)
            world.clock.advance(3 * DAY)
            plan = await world.engine.plan()
            assert [one.action for one in plan.planned] == acts
            assert [one.quota for one in plan.stays] == ([] if "copy" in acts else ["small"])
            assert await compared(world) == []


# -- what expires ----------------------------------------------------------------------


async def test_what_expires_in_that_sweep_is_told_and_leaves_room() -> None:
    quota = Quota(name="few", scope_kinds=("user",), entries=1)
    async with World(rules=[KNOWN], retention=[IDLE], quotas=[quota]) as world:
        await begun(world)
        passing = await world.write("passing", USER, expires_at=world.clock() + DAY)
        await world.write_hourly("text")
        world.clock.advance(3 * DAY)
        plan = await world.engine.plan()
        first = plan.planned[0]
        assert (first.action, first.id, first.because) == (
            "expire",
            passing.id,
            "it expired more than 1 day ago",
        )
        assert told(plan)[1:] == [("copy", "known"), ("end", "idle")]
        assert await compared(world) == []


async def test_a_plan_keeps_no_more_of_what_goes_and_of_what_moves_at_last_than_their_keys() -> None:
    made: list[DryRunState] = []

    class Kept(DryRunState):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

    async with World(rules=(TWO, KNOWN), retention=[OLD, IDLE]) as world:
        await begun(world)
        world.clock.advance(3 * DAY)
        await world.write_hourly("a", "b", expires_at=world.clock() + 4 * HOUR)
        await world.write_hourly("c", scope=USER)
        world.clock.advance(4 * DAY)
        await world.write_hourly("d", "e", "f")
        with patch.object(planned, "DryRunState", Kept):
            plan = await world.engine.plan()
        assert sorted(one.action for one in plan.planned) == [
            "copy",
            "copy",
            "copy",
            "delete",
            "end",
            "expire",
            "expire",
            "move",
        ]
        [ahead] = made
        kept = [row for row in ahead._known.values() if row is not None]
        assert len(kept) == 3, "the copies"
        assert not any(isinstance(row, Record) for row in kept), "no rule asks what they say"
        assert not ahead._changes
        assert not ahead._counted, "there are no quotas"


async def test_a_plan_lists_a_scope_once_however_many_copies_have_others_go() -> None:
    quota = Quota(name="few", entries=40, then="evict", scope_kinds=("user",))
    async with World(rules=(KNOWN,), retention=[IDLE], quotas=[quota]) as world:
        await begun(world)
        await world.write_hourly(*[f"old {number}" for number in range(40)], scope=USER)
        await world.write_hourly(*[f"new {number}" for number in range(12)])
        world.clock.advance(3 * DAY)
        world.mid.steps.clear()
        plan = await world.engine.plan()
        assert [action for action, _ in told(plan)].count("evict") == 12
        assert world.mid.steps.count("quota.first") <= 3, "40 entries, 21 a page"
        assert await compared(world) == []


async def test_what_is_held_is_told_to_stay() -> None:
    async with World(rules=(), retention=[OLD]) as world:
        passing, old = (
            await world.write("passing", USER, expires_at=world.clock() + DAY),
            await world.write("old", USER),
        )
        for entry in (passing, old):
            await world.hold(entry)
        world.clock.advance(4 * DAY)
        plan = await world.engine.plan()
        assert plan.planned == []
        assert [(one.action, one.id, one.because) for one in plan.stays] == [
            ("expire", passing.id, "it is under legal hold"),
            ("delete", passing.id, "it is under legal hold"),
            ("delete", old.id, "it is under legal hold"),
        ]


async def test_sessions_that_expire_are_told_and_all_go_though_a_store_is_away() -> None:
    async with World() as world:
        for name in ("s1", "s2"):
            await begun(world, name, expires_at=world.clock() + DAY)
        world.clock.advance(3 * DAY)
        world.long.down = True
        assert [(one.action, one.scope) for one in (await world.engine.plan()).planned] == [
            ("expire", "conversation:s1"),
            ("expire", "conversation:s2"),
        ]
        report = await world.engine.maintenance.sweep()
        assert any("'long'" in said for said in report.waiting)
        assert await world.rows(world.mid, SESSIONS) == []


# -- what goes onward ------------------------------------------------------------------


async def said(world: World, session: Conversation) -> None:
    """Something is said, and the session ends."""
    await session.append([Message(id="m1", role=Role.USER, content="tea")])
    await session.close("ended")


async def answered(world: World, makes: Sequence[str]) -> None:
    """What a callback made of it is noted, and not stored yet."""
    world.on_window_exit = lambda leaving: list(makes)
    engine = await world.another_process()
    for store in world.stores:
        store.fails_before.add("onward.home")
    record = await engine.conversations.find(TENANT, "s1")
    assert record is not None
    await engine.conversations.window_exit.of_session(record)
    world.heal()


async def test_a_session_stays_while_messages_of_it_have_yet_to_go_onward() -> None:
    async with World(retention=[OVER], on_window_exit="elsewhere") as world:
        await said(world, await begun(world))
        world.clock.advance(5 * DAY)
        plan = await world.engine.plan()
        assert plan.planned == []
        assert [(one.action, one.rule, one.because) for one in plan.stays] == [
            ("delete", "over", "its messages or entries are still to be processed")
        ]
        assert (await world.engine.maintenance.sweep()).deleted == 0


async def test_what_was_answered_is_made_in_that_sweep_and_the_session_goes() -> None:
    quota = Quota(name="few", scope_kinds=("user",), entries=2, then="evict")
    async with World(retention=[OVER], quotas=[quota], on_window_exit="elsewhere") as world:
        await said(world, await begun(world))
        [before] = await world.write_hourly("before", scope=USER)
        await answered(world, ["tea", "milk"])
        world.clock.advance(5 * DAY)
        plan = await world.engine.plan()
        assert [one.action for one in plan.planned] == ["make", "make", "evict", "delete"]
        assert plan.planned[2].id == before.id
        assert plan.planned[0].because == "it was derived from messages of session 's1'"
        assert await compared(world) == []
        assert sorted(await world.browse(USER)) == ["milk", "tea"]


async def test_what_was_answered_and_has_no_room_stays_as_a_whole_and_so_does_the_session() -> None:
    quota = Quota(name="few", scope_kinds=("user",), entries=1)
    async with World(retention=[OVER], quotas=[quota], on_window_exit="elsewhere") as world:
        await said(world, await begun(world))
        await answered(world, ["tea", "milk"])
        world.clock.advance(5 * DAY)
        plan = await world.engine.plan()
        assert plan.planned == []
        assert [(one.action, one.quota) for one in plan.stays] == [
            ("make", "few"),
            ("make", "few"),
            ("delete", ""),
        ]
        assert await compared(world) == []


async def test_a_plan_says_that_a_callback_will_be_asked() -> None:
    async with World(on_window_exit=lambda leaving: "tea") as world:
        await said(world, await begun(world))
        plan = await world.engine.plan()
        assert plan.planned == []
        assert plan.waiting == [
            "on_window_exit is called for messages of session 's1'; the plan cannot predict its entries"
        ]


async def test_what_was_made_of_a_session_goes_when_that_has_expired_and_the_plan_says_so() -> None:
    async with World(on_window_exit=lambda leaving: ["tea", "milk"]) as world:
        await said(world, await begun(world, expires_at=world.clock() + 3 * DAY))
        await world.engine.maintain()
        made = await world.browse(USER)
        assert sorted(made) == ["milk", "tea"]
        await world.write_hourly("coffee", scope=USER)
        [other] = [
            entry
            for entry in await world.homes_in(USER)
            if (await world.engine.entries.live_record(TENANT, entry)).texts["content"] == "milk"
        ]
        hold = LegalHold("case", "entry", other, "r", None, world.clock())
        await world.engine.erasure.holds.place(TENANT, hold, USER.text)
        world.clock.advance(5 * DAY)
        plan = await world.engine.plan()
        assert [(one.action, one.collection) for one in plan.planned] == [
            ("expire", "sessions"),
            ("expire", "entries"),
        ]
        assert plan.planned[1].because == "it was derived from messages of session 's1', which has expired"
        assert [(one.id, one.because) for one in plan.stays] == [(other, "it is under legal hold")]
        assert await compared(world) == []
        assert sorted(await world.browse(USER)) == ["coffee", "milk"]


# -- stores that are away --------------------------------------------------------------


async def test_without_the_archive_a_sweep_does_nothing_and_the_plan_says_so() -> None:
    async with World(rules=(TWO,)) as world:
        await world.write_hourly("a", "b", "c")
        world.mid.down = True
        plan = await world.engine.plan()
        assert (plan.planned, plan.stays) == ([], [])
        assert plan.waiting == ["store 'mid': fails before plan.archive"]
        assert (await world.engine.maintenance.sweep()).moved == 0


async def test_what_was_to_go_to_a_store_that_is_away_stays_and_is_told() -> None:
    rule = PromotionRule(name="far", on="sweep", target="long", when=ScopeExceeds(count=2))
    async with World(rules=(rule,)) as world:
        entries = await world.write_hourly("a", "b", "c")
        world.long.down = True
        plan = await world.engine.plan()
        assert plan.planned == []
        assert [(one.action, one.id, one.to) for one in plan.stays] == [("move", entries[0].id, "long")]
        assert "'long'" in plan.stays[0].because
        assert await compared(world) == []


async def test_a_plan_does_not_end_a_session_whose_entries_cannot_go() -> None:
    async with World(rules=(PromotionRule(name="far", target="long"),), retention=[IDLE]) as world:
        await begun(world)
        await world.write_hourly("text")
        world.clock.advance(3 * DAY)
        world.long.down = True
        plan = await world.engine.plan()
        assert plan.planned == []
        assert [(one.action, one.rule) for one in plan.stays] == [("move", "far"), ("end", "idle")]
        assert any("'long'" in said for said in plan.waiting)
        assert await compared(world) == []


async def test_an_entry_that_waits_for_an_advisor_stays_and_so_does_its_session() -> None:
    soon = RetentionRule(name="soon", what="sessions", then="end", when=IdleFor(HOUR))
    async with World(rules=(PromotionRule(name="far", target="long"),), retention=[soon]) as world:
        await begun(world)
        owed = PendingStep(ENRICH, ENRICH, {"wanted": ["auto_tag"], "until": micros(world.clock() + DAY)})
        entry = await world.engine.entries.write(
            TENANT, EntryDraft(scope=SESSION, content="text"), steps=[owed]
        )
        world.clock.advance(2 * HOUR)
        plan = await world.engine.plan()
        assert plan.planned == []
        assert [(one.action, one.id == entry.id) for one in plan.stays] == [("move", True), ("end", False)]
        assert plan.stays[0].because == "it has a pending step, and can move after that step"
        assert await compared(world) == []


async def test_what_is_in_a_store_that_is_away_is_not_judged() -> None:
    async with World(rules=(TWO,)) as world:
        await world.write_hourly("a", "b", "c")
        world.short.down = True
        plan = await world.engine.plan()
        assert plan.planned == []
        assert any("'short'" in said for said in plan.waiting)


# -- the write gate --------------------------------------------------------------------


async def test_the_write_gate_is_named_and_the_copy_is_taken_to_be_made() -> None:
    async with World(rules=[KNOWN], retention=[IDLE]) as world:
        await begun(world)
        await world.write_hourly("text")
        world.engine.trust.gates = Gates(world.engine.placement, write=lambda draft, provenance: None)
        world.clock.advance(3 * DAY)
        copy, end = (await world.engine.plan()).planned
        assert (copy.action, copy.depends) == ("copy", ("if the write gate accepts it",))
        assert (end.action, end.depends) == ("end", ())


# -- the tests themselves --------------------------------------------------------------

SHOWS = {
    "what was answered still leaves": test_what_was_answered_is_made_in_that_sweep_and_the_session_goes,
    "what is new is kept with its texts": (
        test_a_plan_keeps_no_more_of_what_goes_and_of_what_moves_at_last_than_their_keys
    ),
    "what moves at last is kept": (
        test_a_plan_keeps_no_more_of_what_goes_and_of_what_moves_at_last_than_their_keys
    ),
    "a scope is listed for each copy": test_a_plan_lists_a_scope_once_however_many_copies_have_others_go,
    "what moved takes what it took": (
        test_a_quota_of_bytes_counts_what_the_store_counts_that_a_record_moves_to
    ),
    "a sweep needs no archive": test_without_the_archive_a_sweep_does_nothing_and_the_plan_says_so,
    "what waits for an advisor moves": test_an_entry_that_waits_for_an_advisor_stays_and_so_does_its_session,
}


@pytest.mark.parametrize("name", SHOWN_BY_ONE_TEST)
async def test_a_mutation_is_shown_by_its_test(name: str) -> None:
    with SHOWN_BY_ONE_TEST[name].applied(), pytest.raises(AssertionError):
        await SHOWS[name]()
