"""Retention by rule: nothing goes that no rule names, everything goes that a rule
names, and nothing that is held.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from memory.domain.entry import Entry, EntryDraft, EntryType
from memory.domain.errors import NotFound
from memory.domain.message import Message, Role
from memory.domain.scope import Scope
from memory.domain.time import moment
from memory.orchestrator.conversations.sessions import SessionDraft
from memory.orchestrator.engine import Engine
from memory.orchestrator.storage.budgets import Allowance
from memory.orchestrator.storage.collections import ENTRIES, ENTRY_VERSIONS, MESSAGES, SESSIONS
from memory.orchestrator.storage.settings import EngineSettings
from memory.orchestrator.storage.topology import Topology
from memory.orchestrator.tiering.retention import RetentionReport
from memory.orchestrator.tiering.rules import facts_of
from memory.policies.promotion import DEFAULT_RULES, PromotionRule
from memory.policies.retention import RetentionRule, decide_retention, decide_version
from memory.policies.single_conditions import HasTag
from memory.policies.window_exit import ExitedMessages
from memory.ports.record import Record
from memory.ports.record import Role as CopyRole
from tests.support.depth import drawn
from tests.unit.orchestrator.conversations.meant import FILLING, Embedder
from tests.unit.orchestrator.world import DAY, HOUR, ORG, SESSION, TENANT, USER, World


def rule(name: str, **given: Any) -> RetentionRule:
    return RetentionRule(name=name, **given)


OLD = rule("old", when={"older_than": "90d"})


async def _homes(world: World) -> dict[str, Record]:
    return {
        row.key.id: row
        for store in world.stores
        for row in await world.rows(store, ENTRIES)
        if row.role is CopyRole.HOME
    }


async def test_what_is_kept_by_an_earlier_rule_or_held_stays() -> None:
    async with World(retention=[rule("pinned", then="keep", when={"tag": "pinned"}), OLD]) as world:
        pinned, held = (
            await world.write("text pinned", tags=["pinned"]),
            await world.write("text held", scope=USER),
        )
        await world.write("text", scope=ORG)
        await world.hold(held)
        world.clock.advance(91 * DAY)
        report = await world.engine.maintenance.sweep()
        assert (report.deleted, report.held) == (1, 1)
        assert (await _homes(world)).keys() == {pinned.id, held.id}
        assert [planned.id for planned in (await world.engine.plan()).planned] == []


async def test_what_lies_beyond_what_a_scope_may_hold_goes_oldest_first() -> None:
    async with World(
        retention=[rule("crowded", when={"scope_over": {"count": 3}}, scope_kinds=["user"])],
        settings=EngineSettings(page=2),
    ) as world:
        for n in range(7):
            await world.write(f"text {n}", scope=USER)
            await world.write(f"text {n}", scope=ORG)
        assert (await world.engine.maintenance.sweep()).deleted == 4
        assert sorted(await world.browse(USER)) == ["text 4", "text 5", "text 6"]
        assert len(await world.browse(ORG)) == 7


async def test_kept_versions_go_so_long_after_they_were_replaced() -> None:
    async with World(
        retention=[rule("month", what="versions", versions_for=timedelta(days=30))],
        settings=EngineSettings(page=2),
    ) as world:
        entries = [await world.write(f"text {n}", scope=USER) for n in range(5)]
        held = await world.write("text held", scope=USER)
        await world.hold(held)
        world.clock.advance(365 * DAY)
        for entry in (*entries, held):
            await world.update(entry, content="text, edited")
        world.clock.advance(29 * DAY)
        assert (await world.engine.maintenance.sweep()).dropped_versions == 0
        world.clock.advance(2 * DAY)
        report = await world.engine.maintenance.sweep()
        assert (report.dropped_versions, report.held) == (5, 1)
        assert [row.fields["entry_id"] for row in await world.rows(world.mid, ENTRY_VERSIONS)] == [held.id]


async def test_an_idle_session_is_ended_and_deleted_later_and_its_entries_have_rules_of_their_own() -> None:
    rules = [
        rule("idle", what="sessions", then="end", when={"idle_for": "90d"}),
        rule("over", what="sessions", statuses=["ended"], when={"idle_for": "30d"}),
    ]
    async with World(retention=rules) as world:
        conversations = world.engine.conversations
        session = await conversations.create(TENANT, SessionDraft("s1"))
        await session.append([Message(role=Role.USER, content="hello")])
        entry = await world.write(scope=SESSION)
        world.clock.advance(80 * DAY)
        await session.append([Message(role=Role.USER, content="again")])
        world.clock.advance(80 * DAY)
        assert (await world.engine.maintenance.sweep()).ended == 0
        world.clock.advance(11 * DAY)
        assert [
            (one.action, one.rule)
            for one in (await world.engine.plan()).planned
            if one.collection == "sessions"
        ] == [("end", "idle")]
        assert (await world.engine.maintenance.sweep()).ended == 1
        assert (await session.info()).status == "ended"
        world.clock.advance(29 * DAY)
        assert (await world.engine.maintenance.sweep()).deleted == 0
        world.clock.advance(2 * DAY)
        assert (await world.engine.maintenance.sweep()).deleted == 1
        with pytest.raises(NotFound):
            await conversations.open(TENANT, SessionDraft("s1"), create=False)
        assert [len(await world.rows(world.mid, collection)) for collection in (SESSIONS, MESSAGES)] == [0, 0]
        assert await world.seen(entry) == ["text"]


async def test_a_plan_and_a_sweep_name_once_what_several_rules_take() -> None:
    rules = [
        rule("old", when={"older_than": "90d", "tag": "red"}),
        rule("red", when={"tag": "red"}),
        rule("either", what="versions", keep_versions=1, versions_for=timedelta(days=30)),
    ]
    async with World(retention=rules) as world:
        held, _, edited = (
            await world.write(tags=["red"], scope=USER),
            await world.write(tags=["red"], scope=USER),
            await world.write(scope=ORG),
        )
        await world.hold(held)
        world.clock.advance(50 * DAY)
        for n in range(3):
            edited = await world.update(edited, content=f"text {n}")
        world.clock.advance(50 * DAY)
        await world.update(edited, tags=["kept"])
        planned = Counter((one.collection, one.rule) for one in (await world.engine.plan()).planned)
        assert planned == {("entries", "old"): 1, ("entry_versions", "either"): 3}
        report = await world.engine.maintenance.sweep()
        assert (report.held, report.deleted, report.dropped_versions) == (1, 1, 3)


async def test_a_session_that_a_sweep_ends_is_deleted_by_none_but_a_later_one() -> None:
    rules = [
        rule("idle", what="sessions", then="end", when={"idle_for": "90d"}),
        rule("over", what="sessions", when={"older_than": "90d"}),
    ]
    async with World(retention=rules) as world:
        await world.engine.conversations.create(TENANT, SessionDraft("s1"))
        world.clock.advance(91 * DAY)
        assert [(one.action, one.rule) for one in (await world.engine.plan()).planned] == [("end", "idle")]
        report = await world.engine.maintenance.sweep()
        assert (report.ended, report.deleted) == (1, 0)
        world.clock.advance(HOUR)
        assert [(one.action, one.rule) for one in (await world.engine.plan()).planned] == [("delete", "over")]
        report = await world.engine.maintenance.sweep()
        assert (report.ended, report.deleted) == (0, 1)


async def test_a_session_is_not_ended_by_rule_while_its_entries_cannot_be_asked_about() -> None:
    async with World(retention=[rule("idle", what="sessions", then="end", when={"idle_for": "1d"})]) as world:
        session = await world.engine.conversations.create(TENANT, SessionDraft("s1"))
        fact = await world.write(scope=SESSION, tags=["fact"])
        world.clock.advance(2 * DAY)
        world.short.down = True
        report = await world.engine.maintenance.sweep()
        assert (report.ended, (await session.info()).status) == (0, "active")
        assert any("short" in said for said in report.waiting)
        world.short.down = False
        assert (await world.engine.maintenance.sweep()).ended == 1
        assert (await world.stands(fact))[2] == "home"


@pytest.mark.parametrize("step", ["move.copy", "derive.home"])
async def test_a_session_is_not_ended_by_rule_while_its_entries_cannot_go_where_they_are_to(
    step: str,
) -> None:
    known = PromotionRule(name="known", on="session_end", to_scope="org:o1", when=HasTag("known"))
    ends = rule("idle", what="sessions", then="end", when={"idle_for": "1d"})
    async with World(retention=[ends], rules=(*DEFAULT_RULES, known)) as world:
        session = await world.engine.conversations.create(TENANT, SessionDraft("s1"))
        fact, shared = (
            await world.write(scope=SESSION, tags=["fact"]),
            await world.write(scope=SESSION, tags=["known"]),
        )
        world.clock.advance(2 * DAY)
        for store in world.stores:
            store.fails_before.add(step)
        report = await world.engine.maintenance.sweep()
        assert (report.ended, (await session.info()).status) == (0, "active")
        assert len(report.waiting) == 1
        world.heal()
        assert (await world.engine.maintenance.sweep()).ended == 1
        assert (await world.stands(fact))[2] == "home"
        assert [entry.promoted_from_id for entry in await _all(world) if entry.scope == ORG] == [shared.id]


async def test_a_session_is_not_ended_by_rule_while_an_entry_that_is_to_go_owes_a_step() -> None:
    """Here the passages of a long text: the rules for the end of a session are asked no
    more once it has ended.
    """
    goes = PromotionRule(name="goes", on="session_end", source="short", target="mid", tags=["fact"])
    ends = rule("idle", what="sessions", then="end", when={"idle_for": "1d"})
    async with World(retention=[ends], rules=[goes], embedder=Embedder()) as world:
        session = await world.engine.conversations.create(TENANT, SessionDraft("s1"))
        world.long.fails_before.add("passages.write")
        fact = await world.write(f"{FILLING * 60}In the end a ship crashed.", SESSION, tags=["fact"])
        world.clock.advance(2 * DAY)
        report = await world.engine.maintenance.sweep()
        assert (report.ended, (await session.info()).status) == (0, "active")
        assert len(report.waiting) == 1
        world.heal()
        assert (await world.engine.maintenance.sweep()).ended == 1
        assert (await world.stands(fact))[:2] == ["mark", "home"]


async def test_a_session_of_which_messages_are_still_to_go_onward_is_not_deleted_before() -> None:
    answers: list[bool] = []

    async def onward(leaving: ExitedMessages) -> list[str]:
        if not answers:
            raise RuntimeError("not now")
        return [message.text for message in leaving.messages]

    async with World() as world:
        topology = Topology(short=world.short, mid=world.mid, long=world.long)
        over = rule("over", what="sessions", when={"older_than": "90d"})
        engine = Engine(topology, clock=world.clock, on_window_exit=onward, retention=[over])
        await engine.open()
        session = await engine.conversations.create(TENANT, SessionDraft("s1", user="ada"))
        await session.append([Message(role=Role.USER, content="likes tea")])
        world.clock.advance(91 * DAY)
        assert (await engine.maintain()).ended == 1
        assert (await engine.maintain()).deleted == 0
        answers.append(True)
        world.clock.advance(DAY)
        await engine.maintain()
        world.clock.advance(DAY)
        await engine.maintain()
        assert await world.rows(world.mid, MESSAGES) == []
        assert [entry.content for entry in await _all(world)] == ["likes tea"]
        await engine.close()


async def test_no_tenants_backlog_keeps_anothers_waiting() -> None:
    async with World(retention=[OLD], settings=EngineSettings(page=3)) as world:
        for n in range(30):
            await world.engine.entries.write("big", EntryDraft(scope=USER, content=f"text {n}"))
        for n in range(2):
            await world.engine.entries.write("small", EntryDraft(scope=USER, content=f"text {n}"))
        world.clock.advance(91 * DAY)
        slices: list[int] = []

        async def hold(count: int = 1) -> None:
            slices.append(count)
            if len(slices) > 3:
                raise RuntimeError("the sweep ends here")

        with pytest.raises(RuntimeError):
            await world.engine.retention.by_sweep(set(), hold, RetentionReport())
        left = [row.key.tenant for row in await world.rows(world.mid, ENTRIES) if row.role is CopyRole.HOME]
        assert left.count("small") == 0
        assert left.count("big") > 20


async def test_a_store_that_is_away_keeps_its_own_and_no_others() -> None:
    async with World(retention=[OLD]) as world:
        away, there = await world.write("text", scope=USER), await world.write("text two", scope=USER)
        await world.move(away, "long")
        world.clock.advance(91 * DAY)
        world.long.down = True
        report = await world.engine.maintenance.sweep()
        assert report.deleted == 1
        assert any("'long'" in said for said in report.waiting)
        world.heal()
        assert (await world.engine.maintenance.sweep()).deleted == 1
        await world.engine.maintenance.sweep()
        assert await _homes(world) == {}
        assert await world.get(there) is None


# -- a long history --------------------------------------------------------------------

ALL = (
    rule("pinned", then="keep", when={"tag": "pinned"}),
    rule(
        "session scraps",
        tiers=["short"],
        when={"all": [{"older_than": "5d"}, {"not": {"confidence_at_least": 0.5}}]},
    ),
    rule(
        "idle",
        scope_kinds=["user", "org"],
        when={"any": [{"idle_for": "20d"}, {"all": [{"type": "feedback"}, {"older_than": "3d"}]}]},
    ),
    rule("facts", what="versions", then="keep", types=["learning"]),
    rule("versions", what="versions", keep_versions=3, versions_for=timedelta(days=10)),
)


async def _named(world: World, rules: Sequence[RetentionRule]) -> tuple[set[str], set[str]]:
    """The entries and the kept versions that the rules name now, by looking at
    everything that stands in the stores.
    """
    now = world.clock.moment
    entries = {
        key
        for key, row in (await _homes(world)).items()
        if decide_retention(rules, "entries", facts_of(row), now).then == "delete"
    }
    kept: dict[str, list[Record]] = {}
    for row in await world.rows(world.mid, ENTRY_VERSIONS):
        kept.setdefault(str(row.fields["entry_id"]), []).append(row)
    versions = set[str]()
    for rows in kept.values():
        for newer, row in enumerate(sorted(rows, key=lambda row: -row.version)):
            replaced: Any = row.fields["replaced_version"]
            if decide_version(rules, facts_of(row), newer, moment(replaced), now).then == "delete":
                versions.add(row.key.id)
    return entries, versions


@pytest.mark.parametrize("seed", range(drawn(3, 1)))
async def test_over_a_long_history_exactly_what_the_rules_name_goes_and_the_plan_says_so(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - to draw a history
    async with World(retention=ALL, settings=EngineSettings(page=200, batch=7)) as world:
        held, went = set[str](), Counter[str]()
        living: list[Entry] = []
        for day in range(40):
            for _ in range(chance.randrange(4)):
                draft: dict[str, Any] = {
                    "tags": chance.choice(([], ["pinned"])),
                    "type": chance.choice(list(EntryType)),
                }
                draft |= {"metadata": {"confidence": chance.random()}} if chance.random() < 0.5 else {}
                draft |= {"expires_at": world.clock() + 4 * DAY} if chance.random() < 0.1 else {}
                living.append(
                    await world.write(
                        f"text {day}", scope=chance.choice((SESSION, USER, ORG, Scope.session("s2"))), **draft
                    )
                )
            for entry in chance.sample(living, min(4, len(living))):
                try:
                    match chance.randrange(5):
                        case 0:
                            await world.move(entry, "long")
                        case 1 if len(held) < 4:
                            await world.hold(entry)
                            held.add(entry.id)
                        case _:
                            await world.update(entry, content=f"text {day}, edited")
                except NotFound:
                    living.remove(entry)
            world.clock.advance(chance.choice((HOUR, DAY, DAY)))
            went += await _sweep_and_check(world, held & (await _homes(world)).keys())
        assert min(went[name] for name in ("entries", "held", "versions", "expired")) > 0, (
            "all of it was tried"
        )


async def _sweep_and_check(world: World, held: set[str]) -> Counter[str]:
    """A sweep deletes what the rules name and is not held, and what has expired;
    nothing else; and its plan said so.
    """
    await world.flush()
    await world.engine.accesses.tell()
    before, kept_before = (
        await _homes(world),
        {row.key.id: row for row in await world.rows(world.mid, ENTRY_VERSIONS)},
    )
    entries, versions = await _named(world, ALL)
    over = {
        key
        for key, row in before.items()
        if row.expires_at is not None and row.expires_at < world.clock.moment - DAY
    }
    spared = {key for key, row in kept_before.items() if row.fields["entry_id"] in held}
    plan = [one for one in (await world.engine.plan()).planned if one.action == "delete"]
    assert {one.id for one in plan if one.collection == "entries"} == entries - held
    going = {key for key, row in kept_before.items() if row.fields["entry_id"] in (entries | over) - held}
    assert {one.id for one in plan if one.collection == "entry_versions"} == versions - spared - going
    report = await world.engine.maintenance.sweep(Allowance())
    assert (report.ran, report.waiting, report.stays) == (True, (), ())
    after, kept_after = (
        await _homes(world),
        {row.key.id for row in await world.rows(world.mid, ENTRY_VERSIONS)},
    )
    gone = before.keys() - after.keys()
    assert gone == (entries | over) - held
    with_them = {key for key, row in kept_before.items() if row.fields["entry_id"] in gone}
    assert kept_before.keys() - kept_after == (versions - spared) | with_them
    everything = {row.key.id for store in world.stores for row in await world.rows(store, ENTRIES)}
    assert everything == after.keys(), "no copy outlives its home"
    return Counter(
        entries=report.deleted, versions=report.dropped_versions, held=report.held, expired=report.expired
    )


async def _all(world: World) -> list[Entry]:
    return [entry async for entry in world.engine.browser.everything(TENANT)]
