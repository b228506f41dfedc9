"""Pure decisions: where records are born, what moves onward by which rule, how rankings
become one.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory
from memory.domain.errors import InvalidInput
from memory.domain.scope import ScopeKind
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.storage.kinds import KINDS
from memory.policies.promotion import DEFAULT_RULES, PromotionRule, decide
from memory.policies.ranking import fuse
from memory.policies.record_facts import RecordFacts
from memory.policies.routing import TIERS, is_later_tier
from memory.ports.contract.cells import cells
from memory.ports.heads import head_of
from memory.ports.lexical_scan import rank_by_words
from memory.ports.query import WORDS
from memory.ports.record import Key, Record

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)
PLAIN = RecordFacts(
    tier="short",
    type="context",
    tags=(),
    confidence=None,
    created_at=NOW - 10 * DAY,
    updated_at=NOW - 2 * DAY,
)


def rule(**conditions: Any) -> PromotionRule:
    return PromotionRule(name="r", **conditions)


@cells(
    "conditions, facts, because",
    [
        ({}, {}, "the rule takes every entry"),
        ({"tags": ("fact", "rule")}, {"tags": ("x", "rule")}, "tagged 'rule'"),
        ({"tags": ("fact",)}, {"tags": ("Fact",)}, None),
        ({"types": ("learning",)}, {"type": "learning"}, "of type learning"),
        ({"types": ("learning",)}, {}, None),
        ({"min_confidence": 0.8}, {"confidence": 0.8}, "confidence 0.8 is at least 0.8"),
        ({"min_confidence": 0.8}, {"confidence": 0.79}, None),
        ({"min_confidence": 0.8}, {}, None),
        ({"min_accesses": 3}, {"accesses": 3}, "read 3 times"),
        ({"min_accesses": 3}, {"accesses": 2}, None),
        ({"idle_for": 2 * DAY}, {}, "unchanged for 2 days"),
        ({"idle_for": 3 * DAY}, {}, None),
        ({"older_than": 10 * DAY}, {}, "older than 10 days"),
        ({"older_than": 11 * DAY}, {}, None),
        ({"tags": ("fact",), "min_confidence": 0.5}, {"confidence": 0.6}, "confidence 0.6 is at least 0.5"),
    ],
    ids=str,
    shared=True,
)
def test_a_rule_takes_an_entry_when_any_of_its_conditions_holds(
    conditions: dict[str, Any], facts: dict[str, Any], because: str | None
) -> None:
    assert rule(**conditions).reason(replace(PLAIN, **facts), NOW) == because


def test_the_first_rule_that_takes_the_entry_wins() -> None:
    rules = (
        rule(source="mid", target="long"),
        PromotionRule(name="swept", on="sweep"),
        PromotionRule(name="tagged", tags=("fact",), target="long"),
        PromotionRule(name="all", target="mid"),
    )
    assert decide(rules, "session_end", PLAIN, NOW).rule == "all"
    decision = decide(rules, "session_end", replace(PLAIN, tags=("fact",)), NOW)
    assert (decision.target, decision.rule, decision.because) == ("long", "tagged", "tagged 'fact'")
    assert decide(rules, "sweep", PLAIN, NOW).rule == "swept"
    kept = decide((), "sweep", PLAIN, NOW)
    assert (kept.target, kept.because) == (None, "no sweep rule takes it from 'short'")


def test_by_default_facts_outlive_their_session_and_idle_ones_leave_the_short_tier() -> None:
    assert decide(DEFAULT_RULES, "session_end", replace(PLAIN, confidence=0.8), NOW).target == "long"
    assert decide(DEFAULT_RULES, "session_end", PLAIN, NOW).target is None
    assert decide(DEFAULT_RULES, "sweep", replace(PLAIN, updated_at=NOW - 7 * DAY), NOW).target == "mid"
    assert decide(DEFAULT_RULES, "sweep", PLAIN, NOW).target is None


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        ({"source": "attic"}, "source"),
        ({"target": "attic"}, "target"),
        ({"source": "mid", "target": "short"}, "target"),
        ({"target": "short"}, "target"),
    ],
)
def test_a_rule_moves_onward_between_tiers_only(wrong: dict[str, str], names: str) -> None:
    with pytest.raises(ValueError, match=names):
        rule(**wrong)


def test_a_rule_tells_itself_in_words() -> None:
    full = rule(
        tags=("fact",),
        types=("user",),
        min_confidence=0.8,
        min_accesses=2,
        idle_for=DAY,
        older_than=2 * DAY,
        target="long",
    )
    assert (
        full.describe()
        == "on session end, short → long: tagged fact or of type user or confidence at least 0.8 or read at"
        " least 2 times or unchanged for 1 day or older than 2 days"
    )
    assert rule().describe() == "on session end, short → mid: every entry"


@cells("kind", list(ScopeKind), shared=True)
def test_entries_of_a_session_start_short_and_all_others_in_the_middle(kind: ScopeKind) -> None:
    entries = KINDS.of(ENTRIES)
    chosen = entries.route(kind)
    assert chosen.tier == ("short" if kind is ScopeKind.SESSION else "mid")
    assert chosen.replicas == entries.replicas(chosen.tier) == (() if chosen.tier == "short" else ("long",))
    assert chosen.because


def test_everything_else_is_kept_in_the_middle_without_replicas() -> None:
    for kind in KINDS:
        if kind.collection is not ENTRIES:
            assert (kind.route().tier, kind.route().replicas, kind.replicas("mid")) == ("mid", (), ())


def test_onward_is_one_direction() -> None:
    assert [(a, b) for a in TIERS for b in TIERS if is_later_tier(a, b)] == [
        ("short", "mid"),
        ("short", "long"),
        ("mid", "long"),
    ]


@settings(deadline=None)
@given(st.lists(st.uuids().map(str), unique=True, max_size=20))
def test_one_ranking_alone_keeps_its_order(ranking: list[str]) -> None:
    assert [i for i, _ in fuse({"words": ranking})] == ranking


@pytest.mark.behaviour("D86")
def test_ranks_of_several_rankings_add_up_and_ties_go_by_id() -> None:
    fused = fuse({"words": ["b", "a"], "meaning": ["a", "b"]})
    assert [i for i, _ in fused] == ["a", "b"]
    assert fused[0][1] == pytest.approx(1 / 61 + 1 / 62)
    assert [i for i, _ in fuse({"one": ["a", "b"], "two": ["c", "b"]})] == ["b", "a", "c"]
    assert fuse({}) == fuse({"words": []}) == []


@pytest.mark.behaviour("D81", "D86")
def test_ids_that_three_rankings_give_the_same_ranks_are_a_tie() -> None:
    """1/61 + 1/62 + 1/70 is not the same number in every order of adding."""
    ranked = {"1": ("a", "b", "c"), "2": ("c", "a", "b"), "3": ("b", "c", "a")}
    rankings = {
        name: [first, second, *[f"{name}-{n}" for n in range(7)], tenth]
        for name, (first, second, tenth) in ranked.items()
    }
    fused = fuse(rankings)
    assert [i for i, _ in fused[:3]] == ["a", "b", "c"]
    assert len({score for _, score in fused[:3]}) == 1


@pytest.mark.behaviour("D81", "D86")
def test_an_id_counts_once_in_a_ranking_where_it_stands_first() -> None:
    assert fuse({"words": ["b", "a", "b"]}) == fuse({"words": ["b", "a"]}) == [("b", 1 / 61), ("a", 1 / 62)]
    assert [i for i, _ in fuse({"words": ["b", "a"]}, {"words": 0.0})] == ["b", "a"]


@pytest.mark.behaviour("D86")
def test_a_heavier_ranking_counts_for_more() -> None:
    rankings = {"words": ["a", "b"], "meaning": ["b", "a"]}
    assert [i for i, _ in fuse(rankings, {"meaning": 2.0})] == ["b", "a"]
    assert [i for i, _ in fuse(rankings, {"words": 2.0})] == ["a", "b"]


@pytest.mark.behaviour("D86")
def test_wrong_rankings_and_weights_are_refused_by_name() -> None:
    assert memory.fuse is fuse
    wrong: list[tuple[Any, Any, str]] = [
        (["a"], None, "rankings"),
        (None, None, "rankings"),
        ({"words": ["a"]}, [2.0], "weights"),
        ({"words": "ab"}, None, "rankings.words"),
        ({"words": ["a"]}, {"meaning": 1.0}, "weights.meaning"),
        ({"words": ["a"]}, {"words": -1.0}, "weights.words"),
        ({"words": ["a"]}, {"words": float("nan")}, "weights.words"),
    ]
    for rankings, weights, field in wrong:
        with pytest.raises(InvalidInput) as refusal:
            fuse(rankings, weights)
        assert refusal.value.field == field


def _record(name: str, **texts: str) -> Record:
    return Record(Key("t", name), "user:u", 1, NOW, NOW, texts=texts)


async def test_records_without_an_index_are_ranked_by_words_all_the_same() -> None:
    records = [
        _record("1", title="Generic notes", content="mention kubernetes once among many other words"),
        _record("2", title="Kubernetes deployment runbook", content="steps"),
        _record("3", content="nothing of the kind"),
    ]
    heads = [head_of(ENTRIES, record, {WORDS}) for record in records]
    assert [h.head.key.id for h in await rank_by_words(heads, ENTRIES, "kubernetes", 10)] == ["2", "1"]
    assert [h.head.key.id for h in await rank_by_words(heads, ENTRIES, "kubernetes", 1)] == ["2"]
    assert await rank_by_words(heads, ENTRIES, "alpaca", 10) == []
    assert await rank_by_words([], ENTRIES, "alpaca", 10) == []
    assert await rank_by_words(heads, ENTRIES, " ?! ", 10) == []


def test_a_rule_wrong_in_its_tier_says_so_as_bad_input() -> None:
    with pytest.raises(InvalidInput, match=r"r\.target"):
        rule(target="attic")
