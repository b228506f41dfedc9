"""Promotion rules: they move entries to a later tier or copy them to a broader scope.

Pure functions: they take facts and return decisions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from inspect import iscoroutinefunction
from typing import Annotated, Any, Literal, Protocol, TypeAlias, get_args

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from memory.domain import validation
from memory.domain.corrections import explain_arguments
from memory.domain.entry import Entry, EntryType
from memory.domain.errors import InvalidInput
from memory.domain.scope import Scope, ScopeKind
from memory.domain.time import parse_duration
from memory.policies.condition_tables import condition_of
from memory.policies.conditional_rule import ConditionalRule
from memory.policies.conditions import EVERYTHING, AllOf, AnyOf, RuleCondition
from memory.policies.record_facts import Fields, Measure, RecordFacts
from memory.policies.routing import TIERS, is_later_tier
from memory.policies.single_conditions import (
    AccessCountAtLeast,
    ConfidenceAtLeast,
    HasTag,
    IdleFor,
    OlderThan,
    ScopeKindIs,
    TenantIs,
    TierIs,
    TypeIs,
)
from memory.ports.query import Condition

Event = Literal["session_end", "sweep", "write"]
"""When rules run. A sweep also runs the rules for `write` that did not run yet."""

USER = "user"
"""A target of copies: the scope of the user of the session."""

_FLAT: Mapping[str, Any] = {
    "tags": lambda tags: HasTag(*tags),
    "types": lambda types: TypeIs(*map(str, types)),
    "min_confidence": ConfidenceAtLeast,
    "min_accesses": AccessCountAtLeast,
    "idle_for": IdleFor,
    "older_than": OlderThan,
}


class PromotionRule(ConditionalRule):
    """A rule that moves entries from tier `source` to tier `target`.

    It runs on the event `on`, and takes the entries of which its condition is true;
    without a condition it takes all of them. The condition is `when`. In short form it
    is any of `tags`, `types`, `min_confidence`, `min_accesses`, `idle_for` and
    `older_than`: one that is true suffices. `when` cannot be combined with the short
    form. `tenants` and `scope_kinds` further limit the rule to entries of these tenants
    and in scopes of these kinds. Conditions on the size of a scope count what it holds
    in the source tier.

    With `to_scope` the entry stays in its tier, and a copy goes into that scope, as
    `promote` makes it. `to_scope` is `"user"`, for the user of the session, or a scope
    such as `"org:acme"`, and needs `on="session_end"`.

    Raises:
        InvalidInput: the rule cannot work. The message names the field.
    """

    setting = "promotion"

    on: Event = "session_end"
    source: str = "short"
    target: str = "mid"
    to_scope: str | None = None
    when: Annotated[RuleCondition | None, PlainSerializer(lambda when: when and when.table())] = None
    tenants: tuple[str, ...] = ()
    scope_kinds: tuple[ScopeKind, ...] = ()
    tags: tuple[str, ...] = ()
    types: tuple[EntryType, ...] = ()
    min_confidence: float | None = Field(default=None, ge=0, le=1, strict=True)
    min_accesses: int | None = Field(default=None, ge=1, strict=True)
    idle_for: Annotated[timedelta | None, BeforeValidator(parse_duration)] = None
    older_than: Annotated[timedelta | None, BeforeValidator(parse_duration)] = None

    @model_validator(mode="after")
    def _can_be_carried_out(self) -> PromotionRule:
        for field in ("source", "target"):
            if getattr(self, field) not in TIERS:
                raise self._field_error(field, f"must be one of {', '.join(TIERS)}")
        if self.to_scope is not None:
            self._check_copying(self.to_scope)
        elif not is_later_tier(self.source, self.target):
            raise self._field_error(
                "target", f"must be a later tier than '{self.source}'. Records never move back"
            )
        if self.when is not None and (
            beside := [name for name in _FLAT if getattr(self, name) not in (None, ())]
        ):
            raise self._field_error(
                beside[0], "cannot be combined with when. Write the condition inside of when"
            )
        for field, make in (*_FLAT.items(), ("tenants", lambda tenants: TenantIs(*tenants))):
            if (given := getattr(self, field)) not in (None, ()):
                try:
                    make(given)
                except InvalidInput as error:
                    raise self._field_error(field, error.problem) from None
        if self.when is not None and (never := _never_in(self.source, self.when)):
            raise self._field_error(
                "when",
                f"'{never.describe()}' is never true of entries in source = '{self.source}'. Change one of"
                " them",
            )
        return self

    def _check_copying(self, to_scope: str) -> None:
        if "target" in self.model_fields_set:
            raise self._field_error(
                "target", "applies to a move, and with to_scope the entry stays in its tier. Omit one of them"
            )
        if (
            self.on != "session_end"
        ):  # else each sweep would look for the earlier copies, and repeat deleted ones
            raise self._field_error("to_scope", f"entries are copied on session_end, not on {self.on}")
        if to_scope != USER:
            try:
                kind = Scope.parse(to_scope).kind
            except InvalidInput as error:
                raise self._field_error("to_scope", f"must be '{USER}' or a scope: {error}") from None
            if kind is ScopeKind.SESSION:
                raise self._field_error(
                    "to_scope",
                    f"must be broader than a session. Write '{USER}', or a scope such as org:acme",
                )

    @cached_property
    def condition(self) -> RuleCondition | None:
        """The whole condition of the rule; None if it takes every entry."""
        given = {name: getattr(self, name) for name in _FLAT}
        flat = [make(given[name]) for name, make in _FLAT.items() if given[name] not in (None, ())]
        asked: list[RuleCondition] = [TenantIs(*self.tenants)] if self.tenants else []
        asked += [ScopeKindIs(*map(str, self.scope_kinds))] if self.scope_kinds else []
        asked += (
            [self.when]
            if self.when is not None
            else [flat[0] if len(flat) == 1 else AnyOf(tuple(flat))]
            if flat
            else []
        )
        return None if not asked else asked[0] if len(asked) == 1 else AllOf(tuple(asked))

    @property
    def copies(self) -> bool:
        return self.to_scope is not None

    @property
    def from_rank(self) -> int:
        return 0 if self.condition is None else self.condition.from_rank()

    def answers(self, event: Event) -> bool:
        """Return whether the rule runs on this event."""
        return self.on == event or (event == "sweep" and self.on == "write")

    def reason(self, facts: RecordFacts, now: datetime) -> str | None:
        """Return why the rule takes an entry with these facts; None if it does not."""
        holds, said = self.evaluate(facts, now)
        return said if holds else None

    def evaluate(self, facts: RecordFacts, now: datetime) -> tuple[bool, str]:
        """Return whether the rule takes the entry, and the reason in words."""
        return (
            (True, "the rule takes every entry")
            if self.condition is None
            else self.condition.evaluate(facts, now)
        )

    def describe(self) -> str:
        """Return the rule in words, for people."""
        asked = "every entry" if self.condition is None else self.condition.describe()
        goes = (
            f"{self.source} → {self.target}"
            if self.to_scope is None
            else f"{self.source}, a copy → {self.to_scope}"
        )
        return f"on {self.on.replace('_', ' ')}, {goes}: {asked}"


@explain_arguments
@dataclass(frozen=True, slots=True)
class Decision:
    """The tier that an entry moves to, and why.

    A `target` of None keeps the entry. `to_scope` names the scope that it is copied
    into instead. `rule` is the name of the rule that decided, and `because` its reason.
    """

    target: str | None
    rule: str = ""
    because: str = ""
    to_scope: str | None = None


class Policy(Protocol):
    """A rule in Python, which runs on the entries of a tier after the configured rules.

    It must be pure: it decides from its arguments alone.

    Three more attributes are optional. `on` is the event, by default `sweep`. `tier` is
    the tier of the entries, by default `short`. `when` is a condition: with it, stores
    return only the entries that may match; without it, they return the whole tier.
    """

    @property
    def name(self) -> str: ...

    def decide(self, record: Entry, facts: RecordFacts, now: datetime) -> Decision | None:
        """Return where the entry moves and why; None if it stays."""
        ...


@dataclass(frozen=True, slots=True)
class CustomRule:
    """A policy with the defaults of its optional attributes filled in."""

    policy: Policy
    name: str
    on: Event
    source: str
    when: RuleCondition | None

    @classmethod
    def of(cls, policy: Policy) -> CustomRule:
        """Check a policy and return it as a rule.

        Raises:
            InvalidInput: it is not a policy. The message says what it lacks.
        """
        name = getattr(policy, "name", None)
        if not isinstance(name, str) or not name or not callable(getattr(policy, "decide", None)):
            raise InvalidInput(
                "policies",
                f"a policy needs a name and decide(record, facts, now), and {type(policy).__name__} lacks"
                " them",
            )
        if isinstance(policy, type):
            raise InvalidInput(
                f"policies.{name}", f"is a class. Pass an instance of it, {policy.__name__}(...)"
            )
        if iscoroutinefunction(policy.decide):
            raise InvalidInput(f"policies.{name}.decide", "must not be async: it returns a Decision, or None")
        on: Any = getattr(policy, "on", "sweep")
        source, when = getattr(policy, "tier", "short"), getattr(policy, "when", None)
        validation.one_of(f"policies.{name}.on", on, get_args(Event))
        validation.one_of(f"policies.{name}.tier", source, TIERS)
        return cls(
            policy, name, on, source, None if when is None else condition_of(when, f"policies.{name}.when")
        )

    def answers(self, event: Event) -> bool:
        return self.on == event or (event == "sweep" and self.on == "write")

    def takes(self, now: datetime, known: Fields) -> Condition:
        return EVERYTHING if self.when is None else self.when.filter(now, known)

    @property
    def measures(self) -> frozenset[Measure]:
        return frozenset() if self.when is None else self.when.measures()

    @property
    def from_rank(self) -> int:
        return 0 if self.when is None else self.when.from_rank()

    @property
    def condition(self) -> RuleCondition | None:
        return self.when

    def decide(self, entry: Entry, facts: RecordFacts, now: datetime) -> Decision | None:
        """Return the decision of the policy under its name; None if the entry stays.

        Errors of the policy are raised as they are.

        Raises:
            InvalidInput: the policy returned something other than a move to a later
                tier.
        """
        if self.when is not None and self.when.reason(facts, now) is None:
            return None
        decided = self.policy.decide(entry, facts, now)
        if decided is None or (isinstance(decided, Decision) and decided.target is None):
            return None
        if (
            not isinstance(decided, Decision)
            or decided.to_scope
            or decided.target not in TIERS
            or not is_later_tier(facts.tier, decided.target)
        ):
            raise InvalidInput("decide", f"must return None or a Decision for a tier after '{facts.tier}'")
        return Decision(decided.target, self.name, decided.because or "the policy says so")


def _never_in(tier: str, condition: RuleCondition) -> RuleCondition | None:
    """Return the part of a condition that makes it false of everything in a tier."""
    if isinstance(condition, AllOf):
        return next((never for part in condition.parts() if (never := _never_in(tier, part))), None)
    return condition if isinstance(condition, TierIs) and tier not in condition.names else None


Rule: TypeAlias = PromotionRule | CustomRule

DEFAULT_RULES = (
    PromotionRule(
        name="facts-last", on="session_end", source="short", target="long", tags=("fact",), min_confidence=0.8
    ),
    PromotionRule(name="idle-sessions", on="sweep", source="short", target="mid", idle_for=timedelta(days=7)),
)
"""Facts outlive their session; entries idle for a week leave the short tier."""


def decide(rules: Sequence[PromotionRule], event: Event, facts: RecordFacts, now: datetime) -> Decision:
    """Return the decision of the first rule, in order, that moves the entry."""
    for rule in rules:
        if (
            rule.answers(event)
            and not rule.copies
            and rule.source == facts.tier
            and (reason := rule.reason(facts, now)) is not None
        ):
            return Decision(rule.target, rule.name, reason)
    return Decision(None, because=f"no {event.replace('_', ' ')} rule takes it from '{facts.tier}'")


def decide_copies(
    rules: Sequence[PromotionRule], event: Event, facts: RecordFacts, now: datetime
) -> list[Decision]:
    """Return a decision for each scope that the rules copy the entry into.

    Every rule counts, and each scope appears once.
    """
    found: dict[str, Decision] = {}
    for rule in rules:
        if (
            rule.to_scope is None
            or not rule.answers(event)
            or rule.source != facts.tier
            or rule.to_scope in found
        ):
            continue
        if (reason := rule.reason(facts, now)) is not None:
            found[rule.to_scope] = Decision(None, rule.name, reason, rule.to_scope)
    return list(found.values())
