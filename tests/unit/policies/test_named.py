"""What is wrong with a rule or a quota that is made in Python is told by the library's
own error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memory.domain.errors import InvalidInput
from memory.policies.promotion import PromotionRule
from memory.policies.quotas import Quota
from memory.policies.retention import RetentionRule
from memory.policies.single_conditions import HasTag, TierIs
from memory.ports.contract.cells import cells


def made(kind: Callable[..., Any], **given: Any) -> Any:
    """What no type checker would let through."""
    return kind(**given)


@cells(
    "make, field, problem",
    [
        (
            lambda: made(PromotionRule, name="a", when={"older_than": "x"}),
            "promotion.a.when.older_than",
            "should be a duration",
        ),
        (
            lambda: made(PromotionRule, when={"older_than": "x"}),
            "promotion.when.older_than",
            "should be a duration",
        ),
        (lambda: made(PromotionRule, on="sweep"), "promotion.name", "is missing"),
        (
            lambda: made(PromotionRule, name="a", tag="x"),
            "tag",
            "is not an argument of PromotionRule()",
        ),
        (
            lambda: made(PromotionRule, name="a", tags=("x", 3)),
            "promotion.a.tags.2",
            "must be text",
        ),
        (lambda: PromotionRule(name="a", tags=("",)), "promotion.a.tags", "length must be 1..64"),
        (
            lambda: made(PromotionRule, name="a", idle_for="7x"),
            "promotion.a.idle_for",
            "should be a duration such as",
        ),
        (
            lambda: PromotionRule(name="a", to_scope="session:other"),
            "promotion.a.to_scope",
            "must be broader than a session",
        ),
        (
            lambda: PromotionRule(name="a", when=TierIs("mid")),
            "promotion.a.when",
            "'in tier mid' is never true of entries in source = 'short'",
        ),
        (
            lambda: PromotionRule(name="a", when=HasTag("x") & TierIs("mid", "long")),
            "promotion.a.when",
            "'in tier mid or long' is never true",
        ),
        (
            lambda: RetentionRule(name="a"),
            "retention.a.when",
            "is missing, so the rule would delete all entries",
        ),
        (
            lambda: Quota(name="a", entries=0),
            "quotas.a.entries",
            "must be at least 1",
        ),
        (
            lambda: Quota(name="a"),
            "quotas.a.entries",
            "exactly one of entries, bytes, artifact_bytes and document_bytes",
        ),
        (lambda: Quota(name=" ", entries=1), "quotas.name", "must not be blank"),
        (lambda: Quota(name="a\x1b[2J", entries=1), "quotas.name", "must not hold control characters"),
        (lambda: Quota(name="n" * 201, entries=1), "quotas.name", "length must be 1..200 chars"),
    ],
    shared=True,
)
def test_what_cannot_be_used_is_invalid_input_by_its_field(
    make: Callable[[], Any], field: str, problem: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        make()
    assert refused.value.field == field
    assert refused.value.problem.startswith(problem)
    assert "\n" not in str(refused.value)


def test_a_tier_that_may_hold_is_no_mistake() -> None:
    for when in (TierIs("short", "mid"), TierIs("mid") | HasTag("x"), ~TierIs("mid")):
        assert PromotionRule(name="a", when=when).when == when
    assert PromotionRule(name="n" * 200, source="mid", target="long", when=TierIs("mid")).name == "n" * 200
