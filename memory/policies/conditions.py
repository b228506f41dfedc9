"""Conditions: what rules ask of a record, combined with `&`, `|` and `~`. Pure.

    when = OlderThan(timedelta(days=7)) & ~Tagged("pinned")

A condition is judged over `RecordFacts`, and asked of a store as a filter, which may let too
much through and never too little. Those on one fact each are in `single_conditions`,
tables of TOML in `condition_tables`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memory.domain.errors import InvalidInput
from memory.policies.facts import Fields, Measure, RecordFacts
from memory.ports.query import And, Condition, Or

EVERYTHING: Condition = And(())


class RuleCondition(ABC):
    """Something that holds of a record at a moment, or does not."""

    __slots__ = ()

    def reason(self, facts: RecordFacts, now: datetime) -> str | None:
        """Why it holds, in words; None where it does not."""
        holds, said = self.evaluate(facts, now)
        return said if holds else None

    @abstractmethod
    def evaluate(self, facts: RecordFacts, now: datetime) -> tuple[bool, str]:
        """Whether it holds, and why or why not."""

    @abstractmethod
    def filter(self, now: datetime, known: Fields) -> Condition:
        """Lets through every record of which it holds, by the fields that a store
        knows, and perhaps others.
        """

    @abstractmethod
    def rest(self, now: datetime, known: Fields) -> Condition:
        """Lets through every record of which it does not hold, and perhaps others."""

    @abstractmethod
    def describe(self) -> str:
        """In words, for people."""

    @abstractmethod
    def table(self) -> dict[str, Any]:
        """As `condition_of` reads it."""

    def parts(self) -> tuple[RuleCondition, ...]:
        """The conditions it is made of."""
        return ()

    def turns(self, facts: RecordFacts) -> Iterator[datetime]:
        """The moments at which it may begin or cease to hold of a record that stays as
        it is.
        """
        for part in self.parts():
            yield from part.turns(facts)

    def measures(self) -> frozenset[Measure]:
        """What has to be known of a record's `rank` to judge it."""
        return frozenset().union(*(part.measures() for part in self.parts()))

    def from_rank(self) -> int:
        """The least count of a record's `rank` with which it can hold."""
        return 0

    def depends(self) -> frozenset[str]:
        """What else than time and edits may make it hold or cease to."""
        return frozenset().union(*(part.depends() for part in self.parts()))

    def tenants(self) -> frozenset[str] | None:
        """The tenants of whose records alone it can hold; None where it may of
        anybody's.
        """
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
    """The first moment from now on at which it holds of a record that stays as it is;
    None where there is none.
    """
    later = sorted({turn for turn in condition.turns(facts) if turn > now})
    return next((at for at in (now, *later) if condition.evaluate(facts, at)[0]), None)


def walk_conditions(condition: RuleCondition) -> Iterator[RuleCondition]:
    """The condition and all it is made of."""
    yield condition
    for part in condition.parts():
        yield from walk_conditions(part)


@dataclass(frozen=True, slots=True)
class AllOf(RuleCondition):
    """All of these hold. There is at least one."""

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


@dataclass(frozen=True, slots=True)
class AnyOf(RuleCondition):
    """At least one of these holds."""

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


@dataclass(frozen=True, slots=True)
class NoneOf(RuleCondition):
    """This does not hold."""

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
