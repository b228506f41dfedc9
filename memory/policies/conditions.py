"""Conditions of rules, which combine with `&`, `|` and `~`. Pure functions.

    when = OlderThan(timedelta(days=7)) & ~HasTag("pinned")

A condition is evaluated over `RecordFacts`. A store gets it as a filter, which may let
too many records through, and never too few. `single_conditions` holds the conditions on
one fact each, and `condition_tables` reads conditions from TOML tables.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memory.domain.corrections import explain_arguments
from memory.domain.errors import InvalidInput
from memory.policies.record_facts import Fields, Measure, RecordFacts
from memory.ports.query import And, Condition, Or

EVERYTHING: Condition = And(())


class RuleCondition(ABC):
    """A condition that is true or false of a record at a moment."""

    __slots__ = ()

    def reason(self, facts: RecordFacts, now: datetime) -> str | None:
        """Return in words why the condition is true; None if it is false."""
        holds, said = self.evaluate(facts, now)
        return said if holds else None

    @abstractmethod
    def evaluate(self, facts: RecordFacts, now: datetime) -> tuple[bool, str]:
        """Return whether the condition is true, and the reason in words."""

    @abstractmethod
    def filter(self, now: datetime, known: Fields) -> Condition:
        """Return a filter that lets every record through of which this is true.

        It uses the fields that a store knows, and may let other records through.
        """

    @abstractmethod
    def rest(self, now: datetime, known: Fields) -> Condition:
        """Return a filter that lets every record through of which this is false.

        It may let other records through.
        """

    @abstractmethod
    def describe(self) -> str:
        """Return the condition in words, for people."""

    @abstractmethod
    def table(self) -> dict[str, Any]:
        """Return the table that `condition_of` reads."""

    def parts(self) -> tuple[RuleCondition, ...]:
        """Return the conditions that this one is made of."""
        return ()

    def turns(self, facts: RecordFacts) -> Iterator[datetime]:
        """Yield the moments at which its result may change for an unchanged record."""
        for part in self.parts():
            yield from part.turns(facts)

    def measures(self) -> frozenset[Measure]:
        """Return the measures of a record's `rank` that evaluation needs."""
        return frozenset().union(*(part.measures() for part in self.parts()))

    def from_rank(self) -> int:
        """Return the least count of a record's `rank` with which it can be true."""
        return 0

    def depends(self) -> frozenset[str]:
        """Return in words what can change its result, besides time and edits."""
        return frozenset().union(*(part.depends() for part in self.parts()))

    def tenants(self) -> frozenset[str] | None:
        """Return the only tenants for whose records it can be true; None for any."""
        return None

    def __and__(self, other: RuleCondition) -> RuleCondition:
        return AllOf((*_within(AllOf, self), *_within(AllOf, other)))

    def __or__(self, other: RuleCondition) -> RuleCondition:
        return AnyOf((*_within(AnyOf, self), *_within(AnyOf, other)))

    def __invert__(self) -> RuleCondition:
        return NoneOf(self)


def _within(kind: type[AllOf | AnyOf], condition: RuleCondition) -> tuple[RuleCondition, ...]:
    return condition.parts() if isinstance(condition, kind) else (condition,)


def first_moment(condition: RuleCondition, facts: RecordFacts, now: datetime) -> datetime | None:
    """Return the first moment from now on at which it is true of an unchanged record.

    None means that there is no such moment.
    """
    later = sorted({turn for turn in condition.turns(facts) if turn > now})
    return next((at for at in (now, *later) if condition.evaluate(facts, at)[0]), None)


def walk_conditions(condition: RuleCondition) -> Iterator[RuleCondition]:
    """Yield the condition and all conditions inside of it."""
    yield condition
    for part in condition.parts():
        yield from walk_conditions(part)


@explain_arguments
@dataclass(frozen=True, slots=True)
class AllOf(RuleCondition):
    """True if all conditions in `of` are true. `of` has at least one."""

    of: tuple[RuleCondition, ...]

    def __post_init__(self) -> None:
        _conditions("all", self.of)

    def evaluate(self, facts: RecordFacts, now: datetime) -> tuple[bool, str]:
        judged = [part.evaluate(facts, now) for part in self.of]
        against = [said for holds, said in judged if not holds]
        return not against, " and ".join(against or [said for _, said in judged])

    def filter(self, now: datetime, known: Fields) -> Condition:
        return And(tuple(part.filter(now, known) for part in self.of))

    def rest(self, now: datetime, known: Fields) -> Condition:
        return Or(tuple(part.rest(now, known) for part in self.of))

    def tenants(self) -> frozenset[str] | None:
        named = [names for part in self.of if (names := part.tenants()) is not None]
        return frozenset.intersection(*named) if named else None

    def from_rank(self) -> int:
        return max(part.from_rank() for part in self.of)

    def describe(self) -> str:
        return " and ".join(_parenthesize(part, AnyOf) for part in self.of)

    def table(self) -> dict[str, Any]:
        return {"all": [part.table() for part in self.of]}

    def parts(self) -> tuple[RuleCondition, ...]:
        return self.of


@explain_arguments
@dataclass(frozen=True, slots=True)
class AnyOf(RuleCondition):
    """True if at least one condition in `of` is true. `of` has at least one."""

    of: tuple[RuleCondition, ...]

    def __post_init__(self) -> None:
        _conditions("any", self.of)

    def evaluate(self, facts: RecordFacts, now: datetime) -> tuple[bool, str]:
        judged = [part.evaluate(facts, now) for part in self.of]
        first = next((said for holds, said in judged if holds), None)
        return (True, first) if first is not None else (False, " and ".join(said for _, said in judged))

    def filter(self, now: datetime, known: Fields) -> Condition:
        return Or(tuple(part.filter(now, known) for part in self.of))

    def rest(self, now: datetime, known: Fields) -> Condition:
        return And(tuple(part.rest(now, known) for part in self.of))

    def tenants(self) -> frozenset[str] | None:
        named = [part.tenants() for part in self.of]
        return None if None in named else frozenset().union(*(names for names in named if names is not None))

    def from_rank(self) -> int:
        return min(part.from_rank() for part in self.of)

    def describe(self) -> str:
        return " or ".join(_parenthesize(part, AllOf) for part in self.of)

    def table(self) -> dict[str, Any]:
        return {"any": [part.table() for part in self.of]}

    def parts(self) -> tuple[RuleCondition, ...]:
        return self.of


@explain_arguments
@dataclass(frozen=True, slots=True)
class NoneOf(RuleCondition):
    """True if the condition in `part` is false."""

    part: RuleCondition

    def __post_init__(self) -> None:
        _conditions("not", (self.part,))

    def evaluate(self, facts: RecordFacts, now: datetime) -> tuple[bool, str]:
        holds, said = self.part.evaluate(facts, now)
        return not holds, said

    def filter(self, now: datetime, known: Fields) -> Condition:
        return self.part.rest(now, known)

    def rest(self, now: datetime, known: Fields) -> Condition:
        return self.part.filter(now, known)

    def describe(self) -> str:
        return f"not {_parenthesize(self.part, AllOf, AnyOf)}"

    def table(self) -> dict[str, Any]:
        return {"not": self.part.table()}

    def parts(self) -> tuple[RuleCondition, ...]:
        return (self.part,)


def _parenthesize(part: RuleCondition, *kinds: type[RuleCondition]) -> str:
    return f"({part.describe()})" if isinstance(part, kinds) else part.describe()


def _conditions(name: str, given: object) -> None:
    if not isinstance(given, tuple) or not given or not all(isinstance(one, RuleCondition) for one in given):
        raise InvalidInput(name, "needs at least one condition")
