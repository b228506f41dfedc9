"""Retention rules: they delete, end or keep records, and limit kept versions.

Pure functions: they take facts and return decisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from memory.domain import validation
from memory.domain.entry import EntryType
from memory.domain.scope import ScopeKind
from memory.domain.time import LONGEST, in_words, parse_duration
from memory.policies.conditional_rule import ConditionalRule
from memory.policies.conditions import AllOf, AnyOf, NoneOf, RuleCondition, walk_conditions
from memory.policies.record_facts import Fields, RecordFacts
from memory.policies.routing import TIERS
from memory.policies.single_conditions import (
    HasTag,
    IdleFor,
    OlderThan,
    ScopeKindIs,
    TenantIs,
    TierIs,
    TypeIs,
)
from memory.ports.query import Condition

What = Literal["entries", "sessions", "versions"]
Then = Literal["delete", "keep", "end"]
Status = Literal["active", "archived", "ended"]

_OF_SESSIONS = (AllOf, AnyOf, NoneOf, OlderThan, IdleFor, HasTag, TenantIs)
_BELONGS = {
    "entries": ("when", "tenants", "scope_kinds", "types", "tiers"),
    "sessions": ("when", "tenants", "statuses"),
    "versions": ("tenants", "scope_kinds", "types", "keep_versions", "versions_for"),
}
_ASKED = ("when", "tenants", "scope_kinds", "types", "tiers", "statuses", "keep_versions", "versions_for")


class RetentionRule(ConditionalRule):
    """A rule that deletes, ends or keeps entries, sessions or kept versions.

    `what` names the kind of record, and `then` the action. A record that matches a rule
    with `then="keep"` is exempt from the rules after that rule. `then="end"` is for
    sessions only.

    The rule takes the records of which `when` is true. `tenants`, `scope_kinds`,
    `types` and `tiers` limit the rule to records that have one of these values.
    `statuses` limits it to sessions that have one of these statuses. A rule that
    deletes or ends entries or sessions needs `when`.

    Rules for versions concern the versions that edits have replaced. An entry's newest
    `keep_versions` stay, or those that were replaced within `versions_for`; with both,
    a version beyond either limit is deleted. The current version always stays.

    Raises:
        InvalidInput: the rule cannot work. The message names the field.
    """

    setting = "retention"

    what: What = "entries"
    then: Then = "delete"
    when: Annotated[RuleCondition | None, PlainSerializer(lambda when: when and when.table())] = None
    tenants: tuple[str, ...] = ()
    scope_kinds: tuple[ScopeKind, ...] = ()
    types: tuple[EntryType, ...] = ()
    tiers: tuple[str, ...] = ()
    statuses: tuple[Status, ...] = ()
    keep_versions: int | None = Field(default=None, ge=0, strict=True)
    versions_for: Annotated[timedelta | None, BeforeValidator(parse_duration)] = None

    @model_validator(mode="after")
    def _can_be_carried_out(self) -> RetentionRule:
        for name in _ASKED:
            if getattr(self, name) not in (None, ()) and name not in _BELONGS[self.what]:
                raise self._field_error(
                    name, f"does not apply to {self.what}. Available: {', '.join(_BELONGS[self.what])}"
                )
        if self.then == "end" and self.what != "sessions":
            raise self._field_error("then", f"'end' is for sessions, not for {self.what}")
        if self.what == "versions":
            self._check_versions()
        elif self.then != "keep" and self.when is None:
            problem = (
                f"is missing, so the rule would {self.then} all {self.what}. Write a condition, as in {{"
                ' older_than = "90d" }'
            )
            raise self._field_error("when", problem)
        if self.what == "sessions" and self.when is not None:
            for part in walk_conditions(self.when):
                if not isinstance(part, _OF_SESSIONS):
                    there_are = "use older_than, idle_for, tag, tenant, all, any, not"
                    raise self._field_error(
                        "when", f"'{part.describe()}' does not apply to sessions; {there_are}"
                    )
        for tier in self.tiers:
            validation.one_of(f"retention.{self.name}.tiers", tier, TIERS)
        for tenant in self.tenants:
            validation.identifier(self.path(self.name, "tenants"), tenant)
        return self

    def _check_versions(self) -> None:
        limits = self.keep_versions is not None or self.versions_for is not None
        if limits is (self.then == "keep"):
            problem = (
                "keeps all versions, so it takes no limits"
                if limits
                else "or versions_for is missing. Set how many versions stay, or for how long"
            )
            raise self._field_error("keep_versions", problem)
        if self.versions_for is not None and not timedelta() < self.versions_for <= LONGEST:
            raise self._field_error("versions_for", "should be longer than zero and at most 100 years")

    @cached_property
    def condition(self) -> RuleCondition | None:
        """`when` and the limits to tenants, scope kinds, types and tiers, all combined.

        `statuses`, `keep_versions` and `versions_for` are not part of this condition.
        None means that every record of the rule's kind satisfies it.
        """
        asked: list[RuleCondition] = [TenantIs(*self.tenants)] if self.tenants else []
        asked += [ScopeKindIs(*map(str, self.scope_kinds))] if self.scope_kinds else []
        asked += [TypeIs(*map(str, self.types))] if self.types else []
        asked += [TierIs(*self.tiers)] if self.tiers else []
        asked += [self.when] if self.when is not None else []
        return None if not asked else asked[0] if len(asked) == 1 else AllOf(tuple(asked))

    @property
    def of_tenants(self) -> frozenset[str] | None:
        """The only tenants that the rule is for; None for all of them."""
        return None if self.condition is None else self.condition.tenants()

    def speaks_of(self, status: str | None) -> bool:
        """Return whether the rule is for this status; `end` is for active sessions."""
        if status is None:
            return True
        return status in (self.statuses or (("active",) if self.then == "end" else (status,))) and not (
            self.then == "end" and status != "active"
        )

    def evaluate(self, facts: RecordFacts, now: datetime) -> tuple[bool, str]:
        """Return whether the rule takes the record, and the reason in words."""
        return (
            (True, f"the rule is for all {self.what}")
            if self.condition is None
            else self.condition.evaluate(facts, now)
        )

    def leaves(self, now: datetime, known: Fields) -> Condition | None:
        """Return the filter for the records that it leaves; None if it takes all."""
        return None if self.condition is None else self.condition.rest(now, known)

    def beyond(self, newer: int, replaced_at: datetime, now: datetime) -> str | None:
        """Return why a kept version is deleted; None if it stays.

        Args:
            newer: How many newer versions are kept.
            replaced_at: When the version was replaced.
        """
        if self.keep_versions is not None and newer >= self.keep_versions:
            return f"beyond the newest {self.keep_versions} kept versions"
        if self.versions_for is not None and now - replaced_at >= self.versions_for:
            return f"replaced more than {in_words(self.versions_for)} ago"
        return None

    def describe(self) -> str:
        """Return the rule in words, for people."""
        limits = [f"beyond the newest {self.keep_versions}"] if self.keep_versions is not None else []
        limits += (
            [f"replaced more than {in_words(self.versions_for)} ago"] if self.versions_for is not None else []
        )
        asked = [] if self.condition is None else [self.condition.describe()]
        said = " and ".join(
            [
                *([f"{' or '.join(self.statuses)}"] if self.statuses else []),
                *asked,
                *([" or ".join(limits)] if limits else []),
            ]
        )
        return (
            f"{self.then}"
            f" {'kept versions' if self.what == 'versions' else self.what}{': ' + said if said else ''}"
        )


@dataclass(frozen=True, slots=True)
class RetentionDecision:
    """The decision about a record.

    `then="keep"` leaves it. An empty `rule` means that no rule takes it.
    """

    then: Then
    rule: str = ""
    because: str = ""


def decide_retention(
    rules: Sequence[RetentionRule], what: What, facts: RecordFacts, now: datetime, status: str | None = None
) -> RetentionDecision:
    """Return the decision of the first rule, in order, that takes the record."""
    for rule in rules:
        if rule.what == what and rule.speaks_of(status):
            holds, because = rule.evaluate(facts, now)
            if holds:
                return RetentionDecision(rule.then, rule.name, because)
    return RetentionDecision("keep", because=f"no rule takes it of {what}")


def decide_version(
    rules: Sequence[RetentionRule], facts: RecordFacts, newer: int, replaced_at: datetime, now: datetime
) -> RetentionDecision:
    """Return the decision of the first rule that is for a kept version.

    That rule decides whether the version is deleted or stays.
    """
    for rule in rules:
        if rule.what == "versions" and rule.evaluate(facts, now)[0]:
            why = None if rule.then == "keep" else rule.beyond(newer, replaced_at, now)
            return RetentionDecision(
                "keep" if why is None else "delete", rule.name, why or "the rule keeps it"
            )
    return RetentionDecision("keep", because="no rule takes it of versions")
