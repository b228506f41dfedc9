"""Promotion: which entries go onward to a longer-lived tier, by which rule. Pure: facts in, decision out."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from memory.domain.entry import EntryType
from memory.domain.errors import InvalidInput
from memory.domain.time import in_words
from memory.policies.facts import Facts
from memory.policies.routing import TIERS, is_onward
from memory.ports.query import And, Filter, Ge, Has, In, Le, Or

Event = Literal["session_end", "sweep"]


class PromotionRule(BaseModel):
    """Move entries of tier `source` to `target` when the event happens and any of the conditions given holds; without conditions, always."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1)
    on: Event = "session_end"
    source: str = "short"
    target: str = "mid"
    tags: tuple[str, ...] = ()
    types: tuple[EntryType, ...] = ()
    min_confidence: float | None = Field(default=None, ge=0, le=1)
    min_accesses: int | None = Field(default=None, ge=1)
    idle_for: timedelta | None = None
    older_than: timedelta | None = None

    @model_validator(mode="after")
    def _goes_onward(self) -> PromotionRule:
        for field in ("source", "target"):
            if getattr(self, field) not in TIERS:
                raise InvalidInput(f"promotion.{self.name}.{field}", f"must be one of {', '.join(TIERS)}")
        if not is_onward(self.source, self.target):
            raise InvalidInput(f"promotion.{self.name}.target", f"must come after '{self.source}': records move onward only")
        return self

    def reason(self, facts: Facts, now: datetime) -> str | None:
        """Why this rule takes an entry with these facts; None where it does not."""
        reasons = [text for holds, text in self._conditions(facts, now) if holds]
        if reasons:
            return reasons[0]
        return None if any(True for _ in self._conditions(facts, now)) else "the rule takes every entry"

    def takes(self, now: datetime, known: Set[str]) -> Filter:
        """The filter for what this rule takes of records that have these fields."""
        parts: list[Filter] = [Has("tags", tag) for tag in self.tags if "tags" in known]
        parts += [In("type", tuple(self.types))] if self.types and "type" in known else []
        parts += [Ge("confidence", self.min_confidence)] if self.min_confidence is not None and "confidence" in known else []
        parts += [Ge("accesses", self.min_accesses)] if self.min_accesses is not None else []
        parts += [Le("updated_at", now - self.idle_for)] if self.idle_for is not None else []
        parts += [Le("created_at", now - self.older_than)] if self.older_than is not None else []
        conditional = self.tags or self.types or any(c is not None for c in (self.min_confidence, self.min_accesses, self.idle_for, self.older_than))
        return Or(tuple(parts)) if conditional else And(())

    def describe(self) -> str:
        """The rule in words, for people."""
        parts = []
        if self.tags:
            parts.append("tagged " + " or ".join(self.tags))
        if self.types:
            parts.append("of type " + " or ".join(self.types))
        if self.min_confidence is not None:
            parts.append(f"confidence at least {self.min_confidence:g}")
        if self.min_accesses is not None:
            parts.append(f"read at least {self.min_accesses} times")
        if self.idle_for is not None:
            parts.append(f"unchanged for {in_words(self.idle_for)}")
        if self.older_than is not None:
            parts.append(f"older than {in_words(self.older_than)}")
        return f"on {self.on.replace('_', ' ')}, {self.source} → {self.target}: " + (" or ".join(parts) if parts else "every entry")

    def _conditions(self, facts: Facts, now: datetime) -> list[tuple[bool, str]]:
        found: list[tuple[bool, str]] = []
        if self.tags:
            shared = [t for t in facts.tags if t in self.tags]
            found.append((bool(shared), f"tagged '{shared[0]}'" if shared else ""))
        if self.types:
            found.append((facts.type in self.types, f"of type {facts.type}"))
        if self.min_confidence is not None:
            high = facts.confidence is not None and facts.confidence >= self.min_confidence
            found.append((high, f"confidence {facts.confidence:g} is at least {self.min_confidence:g}" if high else ""))
        if self.min_accesses is not None:
            found.append((facts.accesses >= self.min_accesses, f"read {facts.accesses} times"))
        if self.idle_for is not None:
            found.append((now - facts.updated_at >= self.idle_for, f"unchanged for {in_words(self.idle_for)}"))
        if self.older_than is not None:
            found.append((now - facts.created_at >= self.older_than, f"older than {in_words(self.older_than)}"))
        return found


@dataclass(frozen=True, slots=True)
class Decision:
    """Where an entry goes and why; `target` of None keeps it."""

    target: str | None
    rule: str
    because: str


DEFAULT_RULES = (
    PromotionRule(name="facts-last", on="session_end", source="short", target="long", tags=("fact",), min_confidence=0.8),
    PromotionRule(name="idle-sessions", on="sweep", source="short", target="mid", idle_for=timedelta(days=7)),
)
"""Facts of a session outlive it; what nobody touched for a week leaves the short tier."""


def decide(rules: Sequence[PromotionRule], event: Event, facts: Facts, now: datetime) -> Decision:
    """The first rule, in order, that takes the entry wins."""
    for rule in rules:
        if rule.on == event and rule.source == facts.tier and (reason := rule.reason(facts, now)) is not None:
            return Decision(rule.target, rule.name, reason)
    return Decision(None, "", f"no {event.replace('_', ' ')} rule takes it from '{facts.tier}'")
