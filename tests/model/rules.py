"""What the operator of a run has written: rules, quotas and a policy in Python; and,
in plain Python, what they come to for one entry or session.

Lengths of time end in an eighth of a second, so that they are met clearly or not at
all.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from memory import Decision, OlderThan
from memory.domain.entry import Entry

if TYPE_CHECKING:
    from tests.model.model import Life

FACT, SURE = "fact", 0.8
IDLE = timedelta(days=7)
CROWDED, SETTLED = 6, timedelta(days=20)
SHARED, SHARED_WITH = 0.3, "org:o"
PROMOTION: list[dict[str, Any]] = [
    {
        "name": "facts-last",
        "on": "session_end",
        "source": "short",
        "target": "long",
        "tags": [FACT],
        "min_confidence": SURE,
    },
    {"name": "idle-sessions", "on": "sweep", "source": "short", "target": "mid", "idle_for": "7d"},
    {
        "name": "crowded",
        "on": "write",
        "source": "short",
        "target": "mid",
        "when": {"scope_over": {"count": CROWDED}, "not": {"tag": FACT}},
    },
    {
        "name": "settled",
        "on": "sweep",
        "source": "mid",
        "target": "long",
        "scope_kinds": ["user", "org"],
        "tenants": ["acme"],
        "when": {"older_than": "20d", "any": [{"type": "context"}, {"not": {"confidence_at_least": 0.5}}]},
    },
    {"name": "known", "on": "session_end", "to_scope": "user", "when": {"not": {"tag": FACT}}},
    {"name": "shared", "on": "session_end", "to_scope": SHARED_WITH, "when": {"confidence_at_least": SHARED}},
]
"""The first two as delivered. Rules for writes are asked by sweeps here: nothing runs
by itself.
"""

PINNED, KEPT = "to do", "red"
OLD, UNSURE = timedelta(hours=31, milliseconds=125), timedelta(days=8, milliseconds=125)
QUIET, OVER = timedelta(hours=50, milliseconds=125), timedelta(days=11, milliseconds=125)
NEWEST, PAST = 2, timedelta(days=17, milliseconds=125)
RETENTION: list[dict[str, Any]] = [
    {"name": "pinned", "then": "keep", "when": {"tag": PINNED}},
    {"name": "old", "types": ["feedback"], "when": {"older_than": OLD}},
    {
        "name": "unsure",
        "tenants": ["globex"],
        "tiers": ["short", "mid"],
        "when": {"idle_for": UNSURE, "not": {"confidence_at_least": 0.4}},
    },
    {"name": "red", "what": "sessions", "then": "keep", "when": {"tag": KEPT}},
    {"name": "quiet", "what": "sessions", "then": "end", "when": {"idle_for": QUIET}},
    {"name": "over", "what": "sessions", "when": {"older_than": OVER}},
    {"name": "newest", "what": "versions", "tenants": ["acme"], "keep_versions": NEWEST},
    {"name": "past", "what": "versions", "versions_for": PAST},
]
TENANTS = ("acme", "globex")
QUOTAS: list[dict[str, Any]] = [
    {"name": "tickets", "scope_kinds": ["object"], "tenants": TENANTS, "entries": 14},
    {
        "name": "at work",
        "per": "tenant",
        "scope_kinds": ["object", "workspace"],
        "tenants": ["acme"],
        "entries": 21,
    },
    {"name": "shared", "scope_kinds": ["org"], "tenants": TENANTS, "entries": 11, "then": "evict"},
    {
        "name": "work",
        "scope_kinds": ["workspace"],
        "tenants": ["acme"],
        "entries": 12,
        "then": "evict",
        "evict": "least_confident",
    },
]
"""Those below 16 are exact for any number of processes; see 047."""

SEEN, REFUSED = "volcano", "chess"
STANDS = timedelta(hours=60, milliseconds=125)


class Seen:
    """A policy in Python: what speaks of a volcano goes on; of chess it cannot speak."""

    name, tier, when = "seen", "mid", OlderThan(STANDS)

    def decide(self, record: Entry, facts: object, now: datetime) -> Decision | None:
        if REFUSED in record.content.split():
            raise ValueError("no policy for games")
        return Decision("long", because="it was seen") if SEEN in record.content.split() else None


def is_sure(fields: Mapping[str, Any], least: float) -> bool:
    confidence = confidence_of(fields)
    return confidence is not None and confidence >= least


def confidence_of(fields: Mapping[str, Any]) -> float | None:
    confidence = fields["metadata"].get("confidence")
    return confidence if isinstance(confidence, int | float) and not isinstance(confidence, bool) else None


def idle_since(fields: Mapping[str, Any]) -> datetime:
    return max(fields["created_at"], fields["updated_at"])  # type: ignore[no-any-return]


def kept_by(fields: Mapping[str, Any]) -> bool:
    """Whether a rule keeps an entry from being deleted by others."""
    return PINNED in fields["tags"]


def deletes(tenant: str, life: Life, now: datetime) -> str | None:
    """The rule that deletes an entry."""
    fields = life.now.fields
    if kept_by(fields):
        return None
    if fields["type"] == "feedback" and now - fields["created_at"] >= OLD:
        return "old"
    if (
        tenant == "globex"
        and life.tier != "long"
        and now - idle_since(fields) >= UNSURE
        and not is_sure(fields, 0.4)
    ):
        return "unsure"
    return None


def lets_go(tenant: str, life: Life, now: datetime) -> int:
    """How many of the kept versions of an entry go, the oldest."""
    kept = life.versions[:-1]
    if tenant == "acme":
        return max(0, len(kept) - NEWEST)
    return sum(now - life.versions[n + 1].fields["updated_at"] >= PAST for n in range(len(kept)))
