"""Rules on what a scope holds, on tenants and scope kinds, behind a write, and into
broader scopes; policies in Python; the plan of a sweep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from memory.domain.entry import Entry, EntryDraft
from memory.orchestrator.conversations.sessions import SessionDraft
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.tiering.rules import EvaluationGaps
from memory.policies.conditions import RuleCondition
from memory.policies.promotion import CustomRule, Decision, PromotionRule
from memory.policies.record_facts import RecordFacts
from memory.policies.single_conditions import HasTag, ScopeExceeds
from tests.unit.orchestrator.world import HOUR, ORG, SESSION, TENANT, USER, World, held

TWO = PromotionRule(name="two", on="sweep", when=ScopeExceeds(count=2))


async def swept(world: World) -> list[tuple[str, str, str, str, str]]:
    """What a sweep moves: which entry, from where to where, by which rule and why."""
    report = await world.engine.promotion.by_sweep(set(), held)
    assert not report.waiting
    return [(m.entry_id, m.from_tier, m.to_tier, m.rule, m.because) for m in report.moved]


def ids(entries: Sequence[Entry]) -> list[str]:
    return [entry.id for entry in entries]


# -- what a scope holds ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("when", "stay"),
    [
        (ScopeExceeds(count=0), ""),
        (ScopeExceeds(count=3), "bcd"),
        (ScopeExceeds(bytes=9), "cd"),
        (ScopeExceeds(bytes=8), "d"),
        (ScopeExceeds(tokens=5), "bcd"),
        (ScopeExceeds(tokens=4), "cd"),
        (ScopeExceeds(count=2) & ~HasTag("a"), "acd"),
        (~ScopeExceeds(count=2), "ab"),
        (ScopeExceeds(count=3) | ScopeExceeds(bytes=5), "d"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.describe(),
)
async def test_a_scope_is_measured_by_count_by_bytes_and_by_tokens(when: RuleCondition, stay: str) -> None:
    """Of four texts, the last has five bytes and the others four; the last costs three
    tokens and the others one.
    """
    async with World(rules=(PromotionRule(name="measured", on="sweep", when=when),)) as world:
        for text in ("aaaa", "bbbb", "cccc", "dddé"):
            await world.write_hourly(text, tags=[text[0]])
        await swept(world)
        assert {str(row.fields["tags"])[2] for row in await world.rows(world.short, ENTRIES)} == set(stay)


async def test_ranks_hold_while_what_was_measured_is_moved_page_by_page() -> None:
    async with World(rules=(TWO,)) as world:
        world.engine.placement.settings = replace(world.engine.settings, page=3)
        entries = await world.write_hourly(*[f"text {n}" for n in range(11)])
        assert [moved[0] for moved in await swept(world)] == ids(entries[:9])


async def test_an_expired_entry_takes_its_place_in_the_scope_and_does_not_move() -> None:
    async with World(rules=(TWO,)) as world:
        await world.write_hourly("old", expires_at=world.clock() + 2 * HOUR)
        entries = await world.write_hourly("a", "b", "c")
        assert [moved[0] for moved in await swept(world)] == ids(entries[:1])


async def test_the_end_of_a_session_measures_what_each_tier_holds() -> None:
    rule = PromotionRule(name="two", on="session_end", when=ScopeExceeds(count=2))
    async with World(rules=(rule,)) as world:
        entries = await world.write_hourly("a", "b", "c", "d")
        await world.move(entries[3], "long")
        report = await world.engine.promotion.end_session(TENANT, SESSION)
        assert [moved.entry_id for moved in report.moved] == ids(entries[:1])


# -- whose -----------------------------------------------------------------------------


async def test_a_rule_for_tenants_and_scope_kinds_takes_theirs_alone() -> None:
    rule = PromotionRule(
        name="theirs", on="sweep", source="mid", target="long", tenants=("acme",), scope_kinds=("user",)
    )
    async with World(rules=(rule,)) as world:
        mine = await world.write("mine", USER)
        await world.write("ours", ORG)
        await world.engine.entries.write("other", EntryDraft(scope=USER, content="theirs"))
        before = world.mid.rows_read
        assert [moved[0] for moved in await swept(world)] == [mine.id]
        assert world.mid.rows_read - before < 10
        assert rule.describe() == "on sweep, mid → long: of tenant acme and of a scope of kind user"


async def test_a_sweep_for_one_tenant_reads_nothing_of_the_others() -> None:
    rule = PromotionRule(name="theirs", on="sweep", tenants=("nobody",), when=ScopeExceeds(count=1))
    async with World(rules=(rule,)) as world:
        await world.write_hourly(*[f"text {n}" for n in range(30)])
        before = world.short.rows_read
        assert await swept(world) == []
        assert world.short.rows_read == before


async def test_an_entry_goes_one_tier_in_a_sweep() -> None:
    rules = [
        PromotionRule(name=name, on="sweep", source=name, target=to)
        for name, to in (("short", "mid"), ("mid", "long"))
    ]
    async with World(rules=rules) as world:
        entry = await world.write()
        assert [moved[:3] for moved in await swept(world)] == [(entry.id, "short", "mid")]
        assert [moved[:3] for moved in await swept(world)] == [(entry.id, "mid", "long")]


# -- behind a write --------------------------------------------------------------------

BEHIND = PromotionRule(name="behind", on="write", when=ScopeExceeds(count=2))


async def test_rules_for_writes_are_asked_behind_them_and_by_sweeps() -> None:
    async with World(rules=(BEHIND,)) as world:
        told: list[None] = []
        world.engine.after_writes.on_waiting = lambda: told.append(None)
        entries = await world.write_hourly("a", "b", "c")
        await world.write("of nobody's rule", USER)
        assert len(told) == 3
        assert await world.stands(entries[0]) == ["home", "-", "-"]
        await world.engine.after_writes.catch_up()
        assert await world.stands(entries[0]) == ["mark", "home", "replica"]
        world.engine.after_writes.on_waiting = None
        more = await world.write_hourly("d")
        await world.engine.after_writes.catch_up()
        assert [moved[0] for moved in await swept(world)] == ids(entries[1:2])
        assert await world.stands(more[0]) == ["home", "-", "-"]


async def test_a_write_neither_fails_nor_waits_for_its_rules() -> None:
    async with World(rules=(BEHIND,)) as world:
        world.engine.after_writes.on_waiting = lambda: None
        entries = await world.write_hourly("a", "b", "c")
        world.mid.down = True
        await world.engine.after_writes.catch_up()
        world.short.fails_before.add("promotion.scan")
        await world.write("d")
        await world.engine.after_writes.catch_up()
        world.heal()
        assert [moved[0] for moved in await swept(world)] == ids(entries[:2])


async def test_a_scope_that_holds_little_is_not_gone_through() -> None:
    async with World(rules=(PromotionRule(name="many", on="write", when=ScopeExceeds(count=5)),)) as world:
        world.engine.after_writes.on_waiting = lambda: None
        entries = await world.write_hourly(*"abcde")
        before = world.short.rows_read
        await world.engine.after_writes.catch_up()
        assert world.short.rows_read == before
        await world.write_hourly("f")
        await world.engine.after_writes.catch_up()
        assert (await world.stands(entries[0]))[0] == "mark"


async def test_a_scope_is_gone_through_until_nothing_more_is_beyond() -> None:
    async with World(rules=(BEHIND,)) as world:
        world.engine.after_writes.on_waiting = lambda: None
        world.engine.placement.settings = replace(world.engine.settings, page=2)
        entries = await world.write_hourly(*"abcdefghi")
        before = world.short.rows_read
        await world.engine.after_writes.catch_up()
        assert [(await world.stands(entry))[0] for entry in entries] == ["mark"] * 7 + ["home"] * 2
        walked = [step for step in world.short.steps if step == "promotion.scan"]
        assert len(walked) == 4, "the fifth page is not asked for"
        assert world.short.rows_read > before


# -- into broader scopes ---------------------------------------------------------------

TO_USER = PromotionRule(name="known", on="session_end", to_scope="user", tags=("fact",))


async def test_the_end_of_a_session_copies_into_its_users_scope_once() -> None:
    moves = PromotionRule(name="all", on="session_end", target="long")
    async with World(rules=(moves, TO_USER)) as world:
        await world.engine.conversations.create(TENANT, SessionDraft("s1", user="ada"))
        fact, other = await world.write("a fact", tags=["fact"]), await world.write("chatter")
        report = await world.engine.promotion.end_session(TENANT, SESSION)
        [copied] = report.copied
        assert (copied.entry_id, copied.to_scope, copied.rule, copied.because) == (
            fact.id,
            "user:ada",
            "known",
            "tagged 'fact'",
        )
        assert {moved.entry_id for moved in report.moved} == {fact.id, other.id}
        assert await world.browse(USER) == ["a fact"]
        again = await world.write("another", tags=["fact"])
        report = await world.engine.promotion.end_session(TENANT, SESSION)
        assert [one.entry_id for one in report.copied] == [again.id]
        assert sorted(await world.browse(USER)) == ["a fact", "another"]


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


# -- policies --------------------------------------------------------------------------


class Loud:
    """Moves what is written in capitals."""

    name = "loud"

    def __init__(self, *fails_on: str) -> None:
        self.fails_on = fails_on
        self.asked: list[str] = []

    def decide(self, record: Entry, facts: RecordFacts, now: datetime) -> Decision | None:
        self.asked.append(record.content)
        if record.content in self.fails_on:
            raise ZeroDivisionError("oh")
        return Decision("mid", because="it is loud") if record.content.isupper() else None


async def test_a_policy_is_asked_after_the_rules_and_what_it_raises_costs_that_record_only() -> None:
    loud = Loud("BAD")
    async with World(
        rules=(PromotionRule(name="tagged", on="sweep", target="long", tags=("fact",)),),
        policies=(CustomRule.of(loud),),
    ) as world:
        fact = await world.write("FACT", tags=["fact"])
        bad, quiet, shout = [await world.write(text) for text in ("BAD", "quiet", "SHOUT")]
        await world.write("ELSEWHERE", USER)
        report = await world.engine.promotion.by_sweep(set(), held)
        assert sorted((m.entry_id, m.to_tier, m.rule, m.because) for m in report.moved) == sorted(
            [(fact.id, "long", "tagged", "tagged 'fact'"), (shout.id, "mid", "loud", "it is loud")]
        )
        assert [(kept.entry_id, kept.because) for kept in report.kept] == [
            (bad.id, "policy 'loud' failed: ZeroDivisionError: oh")
        ]
        assert sorted(loud.asked) == ["BAD", "SHOUT", "quiet"]
        assert (await world.stands(quiet))[0] == "home"
        swept_by_maintenance = await world.engine.maintenance.sweep()
        assert any("policy 'loud' failed" in said for said in swept_by_maintenance.stays)


@pytest.mark.parametrize(
    "answer", [Decision("short"), Decision("attic"), "mid", Decision("mid", to_scope="user")], ids=str
)
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
    loud.when = HasTag("ask")  # type: ignore[attr-defined]
    async with World(rules=(), policies=(CustomRule.of(loud),)) as world:
        await world.write("NOT", tags=["x"])
        asked = await world.write("YES", tags=["ask"])
        assert [moved[0] for moved in await swept(world)] == [asked.id]
        assert loud.asked == ["YES"]


async def test_a_walk_ends_where_a_store_fails_and_says_so() -> None:
    async with World(rules=(TWO,)) as world:
        await world.write_hourly("a", "b", "c")
        world.short.fails_before.add("promotion.scan")
        missed = EvaluationGaps([], [])
        assert [one async for one in world.engine.rule_evaluator.everywhere(world.clock(), missed)] == []
        assert len(missed.stores) == 1
