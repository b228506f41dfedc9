"""What the operator of a run has written: rules, quotas and lengths of time; and, in
plain Python, what they come to for a record.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from memory.domain.scope import Scope, ScopeKind
from memory.policies.promotion import PromotionRule
from memory.policies.quotas import Quota
from memory.policies.retention import RetentionRule
from memory.ports.record import Record
from tests.simulation.setup import SETTINGS

TENANTS = ("acme", "zeta")
WITH_ADA, ALONE = "s1", "s2"
"""A session with a user, and one with nobody."""
SESSIONS = (Scope.session(WITH_ADA), Scope.session(ALONE))
USER, WORKSPACE, TICKET, ORG = (
    Scope.user("ada"),
    Scope.workspace("w1"),
    Scope.object("ticket", "t1"),
    Scope.org("o1"),
)
SCOPES = (*SESSIONS, USER, WORKSPACE, TICKET)
"""Where entries are written."""

PINNED, FACT = "pinned", "fact"
OLD, UNSURE, SURE = timedelta(hours=3), timedelta(hours=2), 0.4
CROWD = 4
QUIET = timedelta(minutes=90)
NEWEST, PAST = 1, timedelta(hours=2)
RETENTION: tuple[dict[str, Any], ...] = (
    {"name": "pinned", "then": "keep", "when": {"tag": PINNED}},
    {"name": "old", "types": ["feedback"], "when": {"older_than": OLD}},
    {
        "name": "unsure",
        "tenants": ["zeta"],
        "tiers": ["short", "mid"],
        "when": {"idle_for": UNSURE, "not": {"confidence_at_least": SURE}},
    },
    {"name": "quiet", "what": "sessions", "then": "end", "when": {"idle_for": QUIET}},
    {"name": "newest", "what": "versions", "tenants": ["acme"], "keep_versions": NEWEST},
    {"name": "past", "what": "versions", "tenants": ["zeta"], "versions_for": PAST},
)
CROWDED = {"name": "crowd", "scope_kinds": ["workspace"], "when": {"scope_over": {"count": CROWD}}}
"""A rule of some runs: stores are gone through for it, and asked for what rules take
where there is none of its kind.
"""

SETTLED, SHARED = timedelta(hours=4), 0.5
PROMOTION = [
    PromotionRule(name="facts", on="session_end", source="short", target="long", tags=(FACT,)),
    PromotionRule(name="rest", on="session_end", source="short", target="mid"),
    PromotionRule.model_validate(
        {"name": "known", "on": "session_end", "to_scope": "user", "when": {"not": {"tag": FACT}}}
    ),
    PromotionRule.model_validate(
        {"name": "shared", "on": "session_end", "to_scope": ORG.text, "when": {"confidence_at_least": SHARED}}
    ),
    PromotionRule.model_validate(
        {
            "name": "settled",
            "on": "sweep",
            "source": "mid",
            "target": "long",
            "tenants": ["acme"],
            "when": {"older_than": SETTLED, "not": {"confidence_at_least": SHARED}},
        }
    ),
]

MOST_OF_A_TICKET, MOST_OF_A_USER = 4, 5
QUOTAS = (
    Quota(name="tickets", scope_kinds=(ScopeKind.OBJECT,), entries=MOST_OF_A_TICKET),
    Quota(name="users", scope_kinds=(ScopeKind.USER,), entries=MOST_OF_A_USER, then="evict"),
)
"""Below sixteen, so exact but for what several processes have under way; see decision
047.
"""

GRACE = timedelta(hours=1)
RULED = replace(SETTINGS, expired_grace=GRACE)


def retention_of(seed: int) -> tuple[RetentionRule, ...]:
    """The rules of a run."""
    return tuple(
        RetentionRule.model_validate(rule) for rule in (*RETENTION, *([CROWDED] if crowded(seed) else []))
    )


def crowded(seed: int) -> bool:
    return seed % 3 == 0


def confidence_of(record: Record) -> float | None:
    given = record.fields.get("confidence")
    return float(given) if isinstance(given, int | float) else None


def is_pinned(record: Record) -> bool:
    return PINNED in tags_of(record)


def tags_of(record: Record) -> tuple[str, ...]:
    given: Any = record.fields.get("tags") or ()
    return tuple(given)


def deletes(record: Record, now: datetime) -> bool:
    """Whether a rule deletes an entry at that moment, by what it says itself."""
    if is_pinned(record):
        return False
    if record.fields["type"] == "feedback" and now - record.created_at >= OLD:
        return True
    unsure = (confidence_of(record) or 0) < SURE and record.tier != "long"
    return (
        record.key.tenant == "zeta" and unsure and now - max(record.created_at, record.updated_at) >= UNSURE
    )


def expires(record: Record, now: datetime) -> bool:
    """Whether the grace is over of an entry that has expired."""
    return record.expires_at is not None and now - GRACE >= record.expires_at


def settles(record: Record, now: datetime) -> bool:
    """Whether a sweep moves an entry of the middle tier on."""
    return (
        record.key.tenant == "acme"
        and (confidence_of(record) or 0) < SHARED
        and now - record.created_at >= SETTLED
    )


def copies_of(record: Record) -> set[str]:
    """The scopes into which the end of its session copies an entry."""
    known = (
        {USER.text} if FACT not in tags_of(record) and record.scope == f"session:{WITH_ADA}" else set[str]()
    )
    return known | ({ORG.text} if (confidence_of(record) or 0) >= SHARED else set())
