"""Rules of retention: the first that takes a record decides, and what cannot be meant
is refused by name.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memory.domain.errors import InvalidInput
from memory.policies.record_facts import RecordFacts
from memory.policies.retention import RetentionRule, decide_retention, decide_version
from memory.ports.contract.cells import cells

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)
FACTS = RecordFacts("long", "learning", ("t",), 0.5, NOW - 100 * DAY, NOW - 10 * DAY, 3, "acme", "user")


def rule(name: str, **given: Any) -> RetentionRule:
    return RetentionRule(name=name, **given)


def test_the_first_rule_in_order_that_takes_an_entry_decides() -> None:
    keep = rule("pinned", then="keep", when={"tag": "pinned"})
    old = rule("old", when={"older_than": "90d"})
    idle = rule("idle", when={"idle_for": "5d"})
    assert (
        decide_retention([keep, old, idle], "entries", FACTS, NOW).then,
        decide_retention([keep, old, idle], "entries", FACTS, NOW).rule,
    ) == ("delete", "old")
    assert decide_retention([idle, old], "entries", FACTS, NOW).rule == "idle"
    pinned = replace(FACTS, tags=("pinned",))
    assert (
        decide_retention([keep, old], "entries", pinned, NOW).then,
        decide_retention([old, keep], "entries", pinned, NOW).then,
    ) == ("keep", "delete")
    assert decide_retention([old], "entries", replace(FACTS, created_at=NOW), NOW).rule == ""
    assert (
        decide_retention([old], "versions", FACTS, NOW).then
        == decide_retention([old], "sessions", FACTS, NOW, "ended").then
        == "keep"
    )


@pytest.mark.parametrize(
    "asked",
    [{"tenants": ["other"]}, {"scope_kinds": ["org"]}, {"types": ["context"]}, {"tiers": ["short", "mid"]}],
    ids=lambda asked: next(iter(asked)),
)
def test_a_rule_takes_what_all_of_its_fields_ask_for(asked: dict[str, Any]) -> None:
    fits = {"tenants": ["acme"], "scope_kinds": ["user"], "types": ["learning"], "tiers": ["long"]}
    assert (
        decide_retention([rule("r", when={"older_than": "1d"}, **fits)], "entries", FACTS, NOW).then
        == "delete"
    )
    assert (
        decide_retention([rule("r", when={"older_than": "1d"}, **(fits | asked))], "entries", FACTS, NOW).then
        == "keep"
    )


def test_sessions_are_ended_while_they_are_active_and_deleted_in_the_status_asked() -> None:
    end = rule("idle", what="sessions", then="end", when={"idle_for": "5d"})
    delete = rule("over", what="sessions", statuses=["ended"], when={"idle_for": "2d"})
    decided = [
        decide_retention([end, delete], "sessions", FACTS, NOW, status)
        for status in ("active", "archived", "ended")
    ]
    assert [(one.then, one.rule) for one in decided] == [("end", "idle"), ("keep", ""), ("delete", "over")]


def test_of_kept_versions_the_newest_and_those_replaced_lately_stay() -> None:
    some = rule("some", what="versions", keep_versions=2)
    lately = rule("lately", what="versions", versions_for=timedelta(days=30))
    both = rule("both", what="versions", keep_versions=2, versions_for=timedelta(days=30))
    old, fresh = NOW - 31 * DAY, NOW - DAY
    for rules, wanted in ((some, "kkdd"), (lately, "kdkd"), (both, "kddd")):
        told = [
            decide_version([rules], FACTS, newer, at, NOW).then[0]
            for newer, at in ((0, fresh), (1, old), (2, fresh), (2, old))
        ]
        assert "".join(told) == wanted, rules.name
    keep = rule("facts", what="versions", then="keep", types=["learning"])
    assert decide_version([keep, both], FACTS, 5, old, NOW).then == "keep"
    assert decide_version([keep, both], replace(FACTS, type="context"), 5, old, NOW).then == "delete"


@cells(
    "given, says",
    [
        ({}, "retention.r.when: is missing, so the rule would delete all entries"),
        ({"types": ["learning"]}, "retention.r.when: is missing"),
        ({"what": "sessions", "then": "end"}, "retention.r.when: is missing"),
        ({"then": "end", "when": {"older_than": "1d"}}, "retention.r.then: 'end' is for sessions"),
        (
            {"what": "sessions", "when": {"type": "learning"}},
            "retention.r.when: 'of type learning' does not apply to sessions",
        ),
        ({"what": "sessions", "when": {"not": {"scope_over": {"count": 1}}}}, "does not apply to sessions"),
        (
            {"what": "sessions", "when": {"older_than": "1d"}, "tiers": ["mid"]},
            "retention.r.tiers: does not apply to sessions",
        ),
        ({"what": "versions"}, "retention.r.keep_versions: or versions_for is missing"),
        (
            {"what": "versions", "then": "keep", "keep_versions": 1},
            "retention.r.keep_versions: keeps all versions",
        ),
        ({"what": "versions", "versions_for": timedelta()}, "retention.r.versions_for: should be longer"),
        (
            {"what": "versions", "keep_versions": 1, "when": {"older_than": "1d"}},
            "retention.r.when: does not apply to versions",
        ),
        (
            {"keep_versions": 1, "when": {"older_than": "1d"}},
            "retention.r.keep_versions: does not apply to entries",
        ),
        ({"when": {"older_than": "1d"}, "tiers": ["attic"]}, "retention.r.tiers"),
        ({"when": {"older": "1d"}}, "retention.r.when.older: is not a condition"),
    ],
    shared=True,
)
def test_what_cannot_be_meant_is_refused_by_name(given: dict[str, Any], says: str) -> None:
    with pytest.raises((InvalidInput, ValueError), match=says.replace(".", r"\.")):
        rule("r", **given)


def test_a_rule_tells_itself_in_words() -> None:
    assert (
        rule("r", when={"older_than": "90d"}, tiers=["long"]).describe()
        == "delete entries: in tier long and older than 90 days"
    )
    assert (
        rule("r", what="sessions", then="end", when={"idle_for": "90d"}).describe()
        == "end sessions: unchanged for 90 days"
    )
    two = rule("r", what="versions", keep_versions=5, versions_for=timedelta(days=30))
    assert two.describe() == "delete kept versions: beyond the newest 5 or replaced more than 30 days ago"
