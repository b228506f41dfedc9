"""Rules on what a scope holds, on tenants and scope kinds, behind a write, and into broader scopes; policies in Python; the plan of a sweep."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from memory.domain.entry import Entry, EntryDraft
from memory.domain.scope import Scope
from memory.orchestrator.collections import ENTRIES
from memory.orchestrator.conversations.sessions import SessionDraft
from memory.orchestrator.judging import Missed
from memory.orchestrator.planned import Plan
from memory.orchestrator.promotion import PromotionReport
from memory.orchestrator.retention import RetentionReport
from memory.policies.conditions import Condition
from memory.policies.facts import Facts
from memory.policies.promotion import CustomRule, Decision, PromotionRule
from memory.policies.quotas import Quota
from memory.policies.retention import RetentionRule
from memory.policies.single_conditions import IdleFor, OfScopeKind, OlderThan, ScopeOver, Tagged
from memory.ports.record import Role
from tests.support.depth import drawn
from tests.unit.orchestrator.world import DAY, HOUR, ORG, SESSION, TENANT, USER, Flaky, World, held

TWO = PromotionRule(name="two", on="sweep", when=ScopeOver(count=2))


async def swept(world: World) -> list[tuple[str, str, str, str, str]]:
    """What a sweep moves: which entry, from where to where, by which rule and why."""
    report = await world.engine.promotion.by_sweep(set(), held)
    assert not report.waiting
    return [(m.entry_id, m.from_tier, m.to_tier, m.rule, m.because) for m in report.moved]


async def written(world: World, *contents: str, scope: Scope = SESSION, **more: Any) -> list[Entry]:
    entries = []
    for content in contents:
        world.clock.advance(HOUR)
        entries.append(await world.write(content, scope, **more))
    return entries


def ids(entries: Sequence[Entry]) -> list[str]:
    return [entry.id for entry in entries]


# -- what a scope holds -------------------------------------------------------------------------------------------------


async def test_the_newest_of_each_scope_stay() -> None:
    async with World(rules=(TWO,)) as world:
        first = await written(world, "a", "b", "c", "d")
        other = await written(world, "e", "f", scope=Scope.session("s2"))
        assert [(moved[0], moved[4]) for moved in await swept(world)] == [(i, "beyond the newest 2 of its scope") for i in ids(first[:2])]
        assert await swept(world) == []
        assert sorted(await world.browse()) == ["a", "b", "c", "d"]
        assert len(await world.browse(Scope.session("s2"))) == len(other)


@pytest.mark.parametrize(
    ("when", "stay"),
    [
        (ScopeOver(count=0), ""),
        (ScopeOver(count=3), "bcd"),
        (ScopeOver(bytes=9), "cd"),
        (ScopeOver(bytes=8), "d"),
        (ScopeOver(tokens=3), "bcd"),
        (ScopeOver(tokens=2), "cd"),
        (ScopeOver(count=2) & ~Tagged("a"), "acd"),
        (~ScopeOver(count=2), "ab"),
        (ScopeOver(count=3) | ScopeOver(bytes=5), "d"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.describe(),
)
async def test_a_scope_is_measured_by_count_by_bytes_and_by_tokens(when: Condition, stay: str) -> None:
    """Of four texts, the last has five bytes and the others four; each costs one token."""
    async with World(rules=(PromotionRule(name="measured", on="sweep", when=when),)) as world:
        for text in ("aaaa", "bbbb", "cccc", "dddé"):
            await written(world, text, tags=[text[0]])
        await swept(world)
        assert {str(row.fields["tags"])[2] for row in await world.rows(world.short, ENTRIES)} == set(stay)


async def test_ranks_hold_while_what_was_measured_is_moved_page_by_page() -> None:
    async with World(rules=(TWO,)) as world:
        world.engine.placement.settings = replace(world.engine.settings, page=3)
        entries = await written(world, *[f"text {n}" for n in range(11)])
        assert [moved[0] for moved in await swept(world)] == ids(entries[:9])


async def test_an_expired_entry_takes_its_place_in_the_scope_and_does_not_move() -> None:
    async with World(rules=(TWO,)) as world:
        await written(world, "old", expires_at=world.clock() + 2 * HOUR)
        entries = await written(world, "a", "b", "c")
        assert [moved[0] for moved in await swept(world)] == ids(entries[:1])


async def test_the_end_of_a_session_measures_what_each_tier_holds() -> None:
    rule = PromotionRule(name="two", on="session_end", when=ScopeOver(count=2))
    async with World(rules=(rule,)) as world:
        entries = await written(world, "a", "b", "c", "d")
        await world.move(entries[3], "long")
        report = await world.engine.promotion.end_session(TENANT, SESSION)
        assert [moved.entry_id for moved in report.moved] == ids(entries[:1])


# -- whose --------------------------------------------------------------------------------------------------------------


async def test_a_rule_for_tenants_and_scope_kinds_takes_theirs_alone() -> None:
    rule = PromotionRule(name="theirs", on="sweep", source="mid", target="long", tenants=("acme",), scope_kinds=("user",))
    async with World(rules=(rule,)) as world:
        mine = await world.write("mine", USER)
        await world.write("ours", ORG)
        await world.engine.entries.write("other", EntryDraft(scope=USER, content="theirs"))
        before = world.mid.rows_read
        assert [moved[0] for moved in await swept(world)] == [mine.id]
        assert world.mid.rows_read - before < 10
        assert rule.describe() == "on sweep, mid → long: of tenant acme and of a scope of kind user"


async def test_a_sweep_for_one_tenant_reads_nothing_of_the_others() -> None:
    rule = PromotionRule(name="theirs", on="sweep", tenants=("nobody",), when=ScopeOver(count=1))
    async with World(rules=(rule,)) as world:
        await written(world, *[f"text {n}" for n in range(30)])
        before = world.short.rows_read
        assert await swept(world) == []
        assert world.short.rows_read == before


async def test_an_entry_goes_one_tier_in_a_sweep() -> None:
    rules = [PromotionRule(name=name, on="sweep", source=name, target=to) for name, to in (("short", "mid"), ("mid", "long"))]
    async with World(rules=rules) as world:
        entry = await world.write()
        assert [moved[:3] for moved in await swept(world)] == [(entry.id, "short", "mid")]
        assert [moved[:3] for moved in await swept(world)] == [(entry.id, "mid", "long")]


# -- behind a write -----------------------------------------------------------------------------------------------------

BEHIND = PromotionRule(name="behind", on="write", when=ScopeOver(count=2))


async def test_rules_for_writes_are_asked_behind_them_and_by_sweeps() -> None:
    async with World(rules=(BEHIND,)) as world:
        told: list[None] = []
        world.engine.after_writes.on_waiting = lambda: told.append(None)
        entries = await written(world, "a", "b", "c")
        await world.write("of nobody's rule", USER)
        assert len(told) == 3
        assert await world.stands(entries[0]) == ["home", "-", "-"]
        await world.engine.after_writes.catch_up()
        assert await world.stands(entries[0]) == ["mark", "home", "replica"]
        world.engine.after_writes.on_waiting = None
        more = await written(world, "d")
        await world.engine.after_writes.catch_up()
        assert [moved[0] for moved in await swept(world)] == ids(entries[1:2])
        assert await world.stands(more[0]) == ["home", "-", "-"]


async def test_a_write_neither_fails_nor_waits_for_its_rules() -> None:
    async with World(rules=(BEHIND,)) as world:
        world.engine.after_writes.on_waiting = lambda: None
        entries = await written(world, "a", "b", "c")
        world.mid.down = True
        await world.engine.after_writes.catch_up()
        world.short.fails_before.add("promotion.scan")
        await world.write("d")
        await world.engine.after_writes.catch_up()
        world.heal()
        assert [moved[0] for moved in await swept(world)] == ids(entries[:2])


async def test_a_scope_that_holds_little_is_not_gone_through() -> None:
    async with World(rules=(PromotionRule(name="many", on="write", when=ScopeOver(count=5)),)) as world:
        world.engine.after_writes.on_waiting = lambda: None
        entries = await written(world, *"abcde")
        before = world.short.rows_read
        await world.engine.after_writes.catch_up()
        assert world.short.rows_read == before
        await written(world, "f")
        await world.engine.after_writes.catch_up()
        assert (await world.stands(entries[0]))[0] == "mark"


async def test_a_scope_is_gone_through_until_nothing_more_is_beyond() -> None:
    async with World(rules=(BEHIND,)) as world:
        world.engine.after_writes.on_waiting = lambda: None
        world.engine.placement.settings = replace(world.engine.settings, page=2)
        entries = await written(world, *"abcdefghi")
        before = world.short.rows_read
        await world.engine.after_writes.catch_up()
        assert [(await world.stands(entry))[0] for entry in entries] == ["mark"] * 7 + ["home"] * 2
        walked = [step for step in world.short.steps if step == "promotion.scan"]
        assert len(walked) == 4, "the fifth page is not asked for"
        assert world.short.rows_read > before


# -- into broader scopes ------------------------------------------------------------------------------------------------

TO_USER = PromotionRule(name="known", on="session_end", to_scope="user", tags=("fact",))


async def test_the_end_of_a_session_copies_into_its_users_scope_once() -> None:
    moves = PromotionRule(name="all", on="session_end", target="long")
    async with World(rules=(moves, TO_USER)) as world:
        await world.engine.conversations.create(TENANT, SessionDraft("s1", user="ada"))
        fact, other = await world.write("a fact", tags=["fact"]), await world.write("chatter")
        report = await world.engine.promotion.end_session(TENANT, SESSION)
        [copied] = report.copied
        assert (copied.entry_id, copied.to_scope, copied.rule, copied.because) == (fact.id, "user:ada", "known", "tagged 'fact'")
        assert {moved.entry_id for moved in report.moved} == {fact.id, other.id}
        assert await world.browse(USER) == ["a fact"]
        again = await world.write("another", tags=["fact"])
        report = await world.engine.promotion.end_session(TENANT, SESSION)
        assert [one.entry_id for one in report.copied] == [again.id]
        assert sorted(await world.browse(USER)) == ["a fact", "another"]


async def test_a_copy_that_was_deleted_is_not_made_again() -> None:
    async with World(rules=(TO_USER,)) as world:
        await world.engine.conversations.create(TENANT, SessionDraft("s1", user="ada"))
        await world.write("a fact", tags=["fact"])
        [copied] = (await world.engine.promotion.end_session(TENANT, SESSION)).copied
        await world.engine.delete(TENANT, copied.copy_id)
        report = await world.engine.promotion.end_session(TENANT, SESSION)
        assert report.copied == []
        assert any("was deleted since" in kept.because for kept in report.kept)
        assert await world.browse(USER) == []


async def test_a_rule_copies_from_its_own_tier_alone() -> None:
    async with World(rules=(TO_USER,)) as world:
        await world.engine.conversations.create(TENANT, SessionDraft("s1", user="ada"))
        await world.move(await world.write("a fact", tags=["fact"]), "mid")
        assert (await world.engine.promotion.end_session(TENANT, SESSION)).copied == []


async def test_what_cannot_be_copied_is_told() -> None:
    org = PromotionRule(name="ours", on="session_end", to_scope="org:o1")
    async with World(rules=(TO_USER, org)) as world:
        fact = await world.write("a fact", tags=["fact"])
        report = await world.engine.promotion.end_session(TENANT, SESSION)
        assert [(one.entry_id, one.to_scope) for one in report.copied] == [(fact.id, "org:o1")]
        assert any("session 's1' names no user" in kept.because for kept in report.kept)


# -- policies -----------------------------------------------------------------------------------------------------------


class Loud:
    """Moves what is written in capitals."""

    name = "loud"

    def __init__(self, *fails_on: str) -> None:
        self.fails_on = fails_on
        self.asked: list[str] = []

    def decide(self, record: Entry, facts: Facts, now: datetime) -> Decision | None:
        self.asked.append(record.content)
        if record.content in self.fails_on:
            raise ZeroDivisionError("oh")
        return Decision("mid", because="it is loud") if record.content.isupper() else None


async def test_a_policy_is_asked_after_the_rules_and_what_it_raises_costs_that_record_only() -> None:
    loud = Loud("BAD")
    async with World(rules=(PromotionRule(name="tagged", on="sweep", target="long", tags=("fact",)),), policies=(CustomRule.of(loud),)) as world:
        fact = await world.write("FACT", tags=["fact"])
        bad, quiet, shout = [await world.write(text) for text in ("BAD", "quiet", "SHOUT")]
        await world.write("ELSEWHERE", USER)
        report = await world.engine.promotion.by_sweep(set(), held)
        assert sorted((m.entry_id, m.to_tier, m.rule, m.because) for m in report.moved) == sorted(
            [(fact.id, "long", "tagged", "tagged 'fact'"), (shout.id, "mid", "loud", "it is loud")]
        )
        assert [(kept.entry_id, kept.because) for kept in report.kept] == [(bad.id, "policy 'loud' failed: ZeroDivisionError: oh")]
        assert sorted(loud.asked) == ["BAD", "SHOUT", "quiet"]
        assert (await world.stands(quiet))[0] == "home"
        swept_by_maintenance = await world.engine.maintenance.sweep()
        assert any("policy 'loud' failed" in said for said in swept_by_maintenance.stays)


@pytest.mark.parametrize("answer", [Decision("short"), Decision("attic"), "mid", Decision("mid", to_scope="user")], ids=str)
async def test_a_policy_that_answers_nonsense_has_failed(answer: Any) -> None:
    loud = Loud()
    loud.decide = lambda record, facts, now: answer  # type: ignore[method-assign]
    async with World(rules=(), policies=(CustomRule.of(loud),)) as world:
        await world.write("text")
        report = await world.engine.promotion.by_sweep(set(), held)
        assert report.moved == []
        assert "must return None or a Decision" in report.kept[0].because


async def test_a_policy_with_a_condition_is_asked_about_what_that_takes() -> None:
    loud = Loud()
    loud.when = Tagged("ask")  # type: ignore[attr-defined]
    async with World(rules=(), policies=(CustomRule.of(loud),)) as world:
        await world.write("NOT", tags=["x"])
        asked = await world.write("YES", tags=["ask"])
        assert [moved[0] for moved in await swept(world)] == [asked.id]
        assert loud.asked == ["YES"]


# -- the plan -----------------------------------------------------------------------------------------------------------

CONDITIONS = (
    None,
    ScopeOver(count=3),
    ScopeOver(bytes=60),
    ScopeOver(tokens=12),
    OlderThan(2 * DAY),
    Tagged("fact") | OlderThan(4 * DAY),
    ScopeOver(count=2) & ~Tagged("fact") & OfScopeKind("session"),
)


def rules_drawn(rng: random.Random) -> Sequence[PromotionRule]:
    return [
        PromotionRule(
            name=f"r{number}",
            on=rng.choice(["sweep", "write"]),
            source=source,
            target=rng.choice(["mid", "long"] if source == "short" else ["long"]),
            when=rng.choice(CONDITIONS),
            tenants=(TENANT,) if rng.random() < 0.2 else (),
        )
        for number, source in enumerate(rng.choice(["short", "mid"]) for _ in range(rng.randrange(1, 5)))
    ]


async def lived(world: World, rng: random.Random) -> None:
    """Some days of an ordinary life."""
    entries: list[Entry] = []
    for _ in range(rng.randrange(5, 40)):
        world.clock.advance(timedelta(hours=rng.randrange(1, 9)))
        act = rng.random()
        if act < 0.6 or not entries:
            scope = rng.choice([SESSION, Scope.session("s2"), USER, ORG])
            tags = ["fact"] if rng.random() < 0.3 else []
            expires = world.clock() + timedelta(days=rng.randrange(1, 5)) if rng.random() < 0.2 else None
            entries.append(await world.write("text " * rng.randrange(1, 8), scope, tags=tags, expires_at=expires))
        elif act < 0.75:
            world.engine.accesses.note(TENANT, [rng.choice(entries).id])
        elif act < 0.85:
            await world.delete(rng.choice(entries))
        elif act < 0.95:
            await world.move(rng.choice(entries), rng.choice(["mid", "long"]))
        else:
            await world.engine.maintenance.sweep()


@pytest.mark.parametrize("seed", range(drawn(60, 12)))
@pytest.mark.parametrize("shared", [False, True], ids=["three stores", "short and mid in one"])
async def test_the_plan_is_what_the_sweep_then_does(seed: int, shared: bool) -> None:
    rng = random.Random(seed)  # noqa: S311 - what is drawn is no secret
    policies = (CustomRule.of(Loud()),) if rng.random() < 0.3 else ()
    world = World(rules=rules_drawn(rng), policies=policies)
    if shared:
        world.in_one_store("short", "mid")
    async with world:
        world.engine.placement.settings = replace(world.engine.settings, page=rng.choice([2, 5, 500]))
        await lived(world, rng)
        plan = await world.engine.plan()
        assert plan.waiting == []
        did = await swept(world)
        assert [(one.id, one.tier, one.to, one.rule, one.because) for one in plan.planned] == did
        assert all(one.action == "move" and one.collection == "entries" and one.when == plan.at for one in plan.planned)


# -- the plan of what ends sessions --------------------------------------------------------------------------------------

ENDS = (
    RetentionRule(name="idle", what="sessions", then="end", when=IdleFor(2 * DAY)),
    RetentionRule(name="facts", when=Tagged("fact") & OlderThan(5 * DAY)),
    RetentionRule(name="many", when=ScopeOver(count=4) & ~Tagged("fact")),
)


def ending_rules_drawn(rng: random.Random) -> list[PromotionRule]:
    """Some for the end of a session, moves and copies, and some for sweeps, which meet what those have left."""

    def drawn_at_end(number: int) -> PromotionRule:
        copies = rng.random() < 0.5
        goes: dict[str, Any] = {"to_scope": rng.choice(["user", "user:ada", ORG.text])} if copies else {"target": rng.choice(["mid", "long"])}
        source = rng.choice(["short", "mid"]) if copies or goes["target"] == "long" else "short"
        return PromotionRule(name=f"e{number}", on="session_end", source=source, when=rng.choice(CONDITIONS), **goes)

    return [*(drawn_at_end(number) for number in range(rng.randrange(1, 4))), *rules_drawn(rng)]


async def _homes(world: World) -> set[str]:
    return {row.key.id for store in world.stores for row in await world.rows(store, ENTRIES) if row.role is Role.HOME}


async def _broader(world: World, store: Flaky) -> list[str]:
    """What may be a copy."""
    return [row.key.id for row in await world.rows(store, ENTRIES) if row.role is Role.HOME and row.scope in (USER.text, ORG.text)]


async def swept_whole(world: World) -> list[tuple[str, ...]]:
    """What a sweep does by rules, in its order: to what, from where to where, by which rule."""
    did: list[tuple[str, ...]] = []
    end, promotion = world.engine.promotion.end_session, world.engine.promotion

    def told(report: PromotionReport) -> None:
        did.extend(("copy", one.entry_id, one.to_scope, one.rule) for one in report.copied)
        did.extend(("move", one.entry_id, one.from_tier, one.to_tier, one.rule, one.because) for one in report.moved)

    async def ended(tenant: str, scope: Scope) -> PromotionReport:
        report = await end(tenant, scope)
        told(report)
        did.append(("end", scope.text))
        return report

    before = await _homes(world)
    world.engine.retention._end_session = ended  # to hear what it does
    await world.engine.retention.by_sweep(set(), held, done := RetentionReport())
    assert done.waiting == []
    gone = before - await _homes(world)
    told(await promotion.by_sweep(set(), held))
    return [*(("delete", entry_id) for entry_id in sorted(gone)), *did]


def as_done(plan: Plan) -> list[tuple[str, ...]]:
    gone = sorted(one.id for one in plan.planned if (one.action, one.collection) == ("delete", "entries"))
    done: list[tuple[str, ...]] = [("delete", entry_id) for entry_id in gone]
    for one in plan.planned:
        if one.action == "copy":
            done.append(("copy", one.id, one.to, one.rule))
        elif one.action == "move":
            done.append(("move", one.id, one.tier, one.to, one.rule, one.because))
        elif one.action == "end":
            done.append(("end", one.scope.replace("conversation:", "session:")))
    return done


def without_order_of_copies(did: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """A report names copies before moves, page after page: between two ends they come in any order."""
    whole: list[tuple[str, ...]] = []
    some: list[tuple[str, ...]] = []
    for one in [*did, ("end", "")]:
        if one[0] == "end":
            whole += [*sorted(x for x in some if x[0] == "copy"), *(x for x in some if x[0] != "copy"), one]
            some = []
        else:
            some.append(one)
    return whole


@pytest.mark.parametrize("seed", range(drawn(80, 16)))
@pytest.mark.parametrize("shared", [False, True], ids=["three stores", "short and mid in one"])
async def test_the_plan_foresees_what_the_end_of_sessions_does_and_what_comes_of_it(seed: int, shared: bool) -> None:
    rng = random.Random(seed)  # noqa: S311 - what is drawn is no secret
    policies = (CustomRule.of(Loud()),) if rng.random() < 0.3 else ()
    world = World(
        rules=ending_rules_drawn(rng), policies=policies, retention=[rule for rule in ENDS if rule.what == "sessions" or rng.random() < 0.5]
    )
    if shared:
        world.in_one_store("short", "mid")
    async with world:
        world.engine.placement.settings = replace(world.engine.settings, page=rng.choice([2, 5, 500]))
        for name in ("s1", "s2"):
            await world.engine.conversations.create(TENANT, SessionDraft(name, user="ada" if rng.random() < 0.8 else None))
        await lived(world, rng)
        for _ in range(rng.randrange(1, 4)):
            world.clock.advance(3 * DAY)
            plan = await world.engine.plan()
            assert plan.waiting == []
            assert without_order_of_copies(as_done(plan)) == without_order_of_copies(await swept_whole(world))
            for name in ("s1", "s2"):
                session = await world.engine.conversations.open(TENANT, SessionDraft(name), create=False)
                await session.resume()
            broader = sorted([*await _broader(world, world.mid), *await _broader(world, world.long)])
            for entry_id in rng.sample(broader, len(broader) // 3):
                await world.engine.delete(TENANT, entry_id)
            await lived(world, rng)


async def test_a_plan_names_what_decides_when_a_copy_is_made() -> None:
    rule, quota = PromotionRule(name="known", to_scope="user"), Quota(name="few", scope_kinds=("user",), entries=1)
    async with World(rules=(rule,), retention=ENDS[:1], quotas=(quota,)) as world:
        await world.engine.conversations.create(TENANT, SessionDraft("s1", user="ada"))
        entry = await world.write("text", SESSION)
        world.clock.advance(3 * DAY)
        copy, end = (await world.engine.plan()).planned
        assert (copy.action, copy.id, copy.to, copy.depends) == ("copy", entry.id, "user:ada", ("if quota 'few' has room for it",))
        assert (end.action, end.depends) == ("end", ())


async def test_a_plan_names_once_what_two_rules_copy_into_one_scope_and_not_what_was_copied_before() -> None:
    rules = (PromotionRule(name="known", to_scope="user"), PromotionRule(name="hers", to_scope="user:ada"))
    async with World(rules=rules, retention=ENDS[:1]) as world:
        session = await world.engine.conversations.create(TENANT, SessionDraft("s1", user="ada"))
        await world.write("text", SESSION)
        world.clock.advance(3 * DAY)
        assert [(one.action, one.rule) for one in (await world.engine.plan()).planned] == [("copy", "known"), ("end", "idle")]
        await world.engine.maintenance.sweep()
        [copy] = await _broader(world, world.mid)
        for _ in range(2):
            await session.resume()
            world.clock.advance(3 * DAY)
            assert [one.action for one in (await world.engine.plan()).planned] == ["end"]
            await world.engine.delete(TENANT, copy)


async def test_what_one_rule_deletes_leaves_room_for_others_in_the_plan_too() -> None:
    rules = [RetentionRule(name="facts", when=Tagged("fact")), RetentionRule(name="many", when=ScopeOver(count=2))]
    async with World(rules=(), retention=rules) as world:
        fact = await written(world, "f", scope=USER, tags=["fact"])
        others = await written(world, "a", "b", "c", scope=USER)
        plan = await world.engine.plan()
        assert [(one.id, one.rule) for one in plan.planned] == [(fact[0].id, "facts"), (others[0].id, "many")]
        assert (await world.engine.maintenance.sweep()).deleted == 2
        assert await _homes(world) == set(ids(others[1:]))


async def test_a_plan_does_not_end_a_session_whose_entries_cannot_be_asked_about() -> None:
    async with World(rules=(PromotionRule(name="all", to_scope="user"),), retention=ENDS[:1]) as world:
        await world.engine.conversations.create(TENANT, SessionDraft("s1", user="ada"))
        world.clock.advance(3 * DAY)
        world.long.down = True
        plan = await world.engine.plan()
        assert plan.planned == []
        assert any("'long'" in said for said in plan.waiting)


async def test_a_plan_writes_nothing_and_names_what_it_could_not_ask() -> None:
    async with World(rules=(TWO,)) as world:
        await written(world, "a", "b", "c")
        for store in world.stores:
            store.steps.clear()
        plan = await world.engine.plan()
        assert len(plan.planned) == 1
        assert {step for store in world.stores for step in store.steps} == {"promotion.scan"}
        world.short.down = True
        plan = await world.engine.plan()
        assert plan.planned == []
        assert ["'short'" in said for said in plan.waiting] == [True]


async def test_a_walk_ends_where_a_store_fails_and_says_so() -> None:
    async with World(rules=(TWO,)) as world:
        await written(world, "a", "b", "c")
        world.short.fails_before.add("promotion.scan")
        missed = Missed([], [])
        assert [one async for one in world.engine.judging.everywhere(world.clock(), missed)] == []
        assert len(missed.stores) == 1
