"""Conditions that each check one fact of a record."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar

from memory.domain import validation
from memory.domain.corrections import explain_arguments
from memory.domain.entry import EntryType
from memory.domain.errors import InvalidInput
from memory.domain.scope import ScopeKind
from memory.domain.time import LONGEST, in_words, parse_duration, show_duration
from memory.policies.conditions import EVERYTHING, RuleCondition
from memory.policies.record_facts import MEASURES, Fields, Measure, RecordFacts
from memory.policies.routing import TIERS
from memory.ports.query import And, Condition, Ge, Has, In, Le, Not, Or


class SingleCondition(RuleCondition):
    """A condition on one fact of a record. `key` is its name in a TOML table."""

    __slots__ = ()
    key: ClassVar[str]
    fact: ClassVar[str]
    words: ClassVar[str] = ""

    def filter(self, now: datetime, known: Fields) -> Condition:
        return self._field_filter(known[self.fact], now) if self.fact in known else EVERYTHING

    def rest(self, now: datetime, known: Fields) -> Condition:
        return Not(self._field_filter(known[self.fact], now)) if self.fact in known else EVERYTHING

    def table(self) -> dict[str, Any]:
        return {self.key: self._table_value()}

    @abstractmethod
    def _field_filter(self, field: str, now: datetime) -> Condition:
        """Return a store filter that matches the same records as this condition."""

    @abstractmethod
    def _table_value(self) -> Any: ...


@explain_arguments
@dataclass(frozen=True, slots=True)
class _Since(SingleCondition):
    """True once a length of time has passed since a moment of the record."""

    length: timedelta

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", _length(self.key, self.length))

    def evaluate(self, facts: RecordFacts, now: datetime) -> tuple[bool, str]:
        holds = now - self._since(facts) >= self.length
        return holds, self.describe() if holds else f"not {self.describe()}"

    def turns(self, facts: RecordFacts) -> Iterator[datetime]:
        yield self._since(facts) + self.length

    def describe(self) -> str:
        return f"{self.words} {in_words(self.length)}"

    def _since(self, facts: RecordFacts) -> datetime:
        return facts.created_at

    def _field_filter(self, field: str, now: datetime) -> Condition:
        return Le(field, now - self.length)

    def _table_value(self) -> str:
        return show_duration(self.length)


class OlderThan(_Since):
    """True of records that were created `length` ago or earlier.

    `length` is a timedelta, or text such as "30d", "5m" or "1h30m". It is longer than
    zero and at most 100 years.

    Raises:
        InvalidInput: `length` is not a duration in this range.
    """

    __slots__ = ()
    key, fact, words = "older_than", "created_at", "older than"


class IdleFor(_Since):
    """True of records that were created and last changed `length` ago or earlier.

    Reads are not changes, so a read does not restart the length. `length` is given as
    for `OlderThan`.

    Raises:
        InvalidInput: `length` is not a duration in this range.
    """

    __slots__ = ()
    key, fact, words = "idle_for", "updated_at", "unchanged for"

    def filter(self, now: datetime, known: Fields) -> Condition:
        """Filter by the creation time too, because stores have an index on it."""
        return And(
            tuple(Le(known[fact], now - self.length) for fact in ("created_at", self.fact) if fact in known)
        )

    def rest(self, now: datetime, known: Fields) -> Condition:
        return Not(self.filter(now, known)) if {"created_at", self.fact} <= known.keys() else EVERYTHING

    def _since(self, facts: RecordFacts) -> datetime:
        return max(facts.created_at, facts.updated_at)


@explain_arguments
@dataclass(frozen=True, slots=True)
class AccessCountAtLeast(SingleCondition):
    """True of records that were read at least `times` times.

    `memory.orchestrator.entries.accesses` counts the reads.

    Raises:
        InvalidInput: `times` is not a whole number of 1 or more.
    """

    key, fact = "read_at_least", "accesses"
    times: int

    def __post_init__(self) -> None:
        _whole(self.key, self.times)

    def evaluate(self, facts: RecordFacts, now: datetime) -> tuple[bool, str]:
        return facts.accesses >= self.times, f"read {facts.accesses} times"

    def describe(self) -> str:
        return f"read at least {self.times} times"

    def depends(self) -> frozenset[str]:
        return frozenset({"how often it is read"})

    def _field_filter(self, field: str, now: datetime) -> Condition:
        return Ge(field, self.times)

    def _table_value(self) -> int:
        return self.times


@explain_arguments
@dataclass(frozen=True, slots=True)
class ConfidenceAtLeast(SingleCondition):
    """True of records with a confidence of at least `least`.

    It is false of records without a confidence.

    Raises:
        InvalidInput: `least` is not a number from 0 to 1.
    """

    key, fact = "confidence_at_least", "confidence"
    least: float

    def __post_init__(self) -> None:
        if (
            isinstance(self.least, bool)
            or not isinstance(self.least, int | float)
            or not 0 <= self.least <= 1
        ):
            raise InvalidInput(self.key, "should be a number from 0 to 1")
        object.__setattr__(self, "least", float(self.least))

    def evaluate(self, facts: RecordFacts, now: datetime) -> tuple[bool, str]:
        if facts.confidence is None:
            return False, "without a confidence"
        holds = facts.confidence >= self.least
        return holds, f"confidence {facts.confidence:g} is {'at least' if holds else 'under'} {self.least:g}"

    def describe(self) -> str:
        return f"confidence at least {self.least:g}"

    def _field_filter(self, field: str, now: datetime) -> Condition:
        return Ge(field, self.least)

    def _table_value(self) -> float:
        return self.least


@explain_arguments
@dataclass(frozen=True, slots=True)
class _OneOf(SingleCondition):
    """True of records with a fact that is one of `names` (one or more)."""

    choices: ClassVar[Iterable[str]] = ()
    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        if not names:
            raise InvalidInput(self.key, "should name one or more")
        object.__setattr__(self, "names", tuple(dict.fromkeys(self._check_name(name) for name in names)))

    def evaluate(self, facts: RecordFacts, now: datetime) -> tuple[bool, str]:
        said = getattr(facts, self.fact)
        return said in self.names, self.words.format(said or "no")

    def describe(self) -> str:
        return self.words.format(" or ".join(self.names))

    def _field_filter(self, field: str, now: datetime) -> Condition:
        return In(field, self.names)

    def _table_value(self) -> list[str]:
        return list(self.names)

    @classmethod
    def _check_name(cls, name: object) -> str:
        return str(validation.one_of(cls.key, name, cls.choices))


class HasTag(_OneOf):
    """True of records with at least one of these tags. Case counts."""

    __slots__ = ()
    key, fact, words = "tag", "tags", "tagged {}"

    def evaluate(self, facts: RecordFacts, now: datetime) -> tuple[bool, str]:
        shared = [tag for tag in facts.tags if tag in self.names]
        return (
            (True, f"tagged '{shared[0]}'")
            if shared
            else (False, "not tagged " + " or ".join(f"'{tag}'" for tag in self.names))
        )

    def _field_filter(self, field: str, now: datetime) -> Condition:
        return Or(tuple(Has(field, tag) for tag in self.names))

    @classmethod
    def _check_name(cls, name: object) -> str:
        return validation.text(cls.key, name, max_chars=validation.MAX_TAG_CHARS, min_chars=1)


class TypeIs(_OneOf):
    """True of records of one of these types."""

    __slots__ = ()
    key, fact, words = "type", "type", "of type {}"
    choices = EntryType


class TierIs(_OneOf):
    """True of records whose primary store serves one of these tiers."""

    __slots__ = ()
    key, fact, words = "tier", "tier", "in tier {}"
    choices = TIERS


class ScopeKindIs(_OneOf):
    """True of records in a scope of one of these kinds."""

    __slots__ = ()
    key, fact, words = "scope_kind", "scope_kind", "of a scope of kind {}"
    choices = ScopeKind


class TenantIs(_OneOf):
    """True of records of one of these tenants.

    The tenant is not a field of a record. A query to a store passes `tenants` instead.
    """

    __slots__ = ()
    key, fact, words = "tenant", "tenant", "of tenant {}"

    def tenants(self) -> frozenset[str] | None:
        return frozenset(self.names)

    @classmethod
    def _check_name(cls, name: object) -> str:
        return validation.identifier(cls.key, name)


@explain_arguments
@dataclass(frozen=True, slots=True)
class ScopeExceeds(RuleCondition):
    """True of records beyond the newest `count`, `bytes` or `tokens` of their scope.

    It is false of the newest records that fit in the limit.

    Raises:
        InvalidInput: not exactly one of the three is given, or it is not a whole number
            of 0 or more.
    """

    measure: Measure
    most: int

    def __init__(
        self,
        *,
        count: int | None = None,
        bytes: int | None = None,  # noqa: A002
        tokens: int | None = None,
    ) -> None:
        given: dict[Measure, int | None] = {"count": count, "bytes": bytes, "tokens": tokens}
        said = [(measure, most) for measure, most in given.items() if most is not None]
        if len(said) != 1:
            raise InvalidInput(
                "scope_over",
                f"takes one of {', '.join(MEASURES)}; for several, give several under any or all",
            )
        [(measure, most)] = said
        object.__setattr__(self, "measure", measure)
        object.__setattr__(self, "most", _whole(f"scope_over.{measure}", most, least=0))

    def evaluate(self, facts: RecordFacts, now: datetime) -> tuple[bool, str]:
        if facts.rank is None:
            return False, f"{self.describe()}: not checked"
        holds = getattr(facts.rank, self.measure) > self.most
        return holds, self.describe() if holds else f"among {self._newest()}"

    def filter(self, now: datetime, known: Fields) -> Condition:
        return EVERYTHING

    def rest(self, now: datetime, known: Fields) -> Condition:
        return EVERYTHING

    def describe(self) -> str:
        return f"beyond {self._newest()}"

    def _newest(self) -> str:
        return f"the newest {self.most:,}{'' if self.measure == 'count' else f' {self.measure}'} of its scope"

    def table(self) -> dict[str, Any]:
        return {"scope_over": {self.measure: self.most}}

    def measures(self) -> frozenset[Measure]:
        return frozenset({self.measure})

    def from_rank(self) -> int:
        return self.most + 1 if self.measure == "count" else 0

    def depends(self) -> frozenset[str]:
        return frozenset({"what its scope holds"})


def _length(name: str, given: object) -> timedelta:
    try:
        length = parse_duration(given)
    except ValueError as error:
        raise InvalidInput(name, str(error)) from None
    if isinstance(length, int | float):
        length = timedelta(seconds=length) if 0 < length <= LONGEST.total_seconds() else LONGEST * 2
    if not isinstance(length, timedelta):
        raise InvalidInput(name, "should be a duration such as '30d', '5m' or '1h30m'")
    if not timedelta() < length <= LONGEST:
        raise InvalidInput(name, "should be longer than zero and at most 100 years")
    return length


def _whole(name: str, given: object, *, least: int = 1) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not least <= given < validation.INT64:
        raise InvalidInput(name, f"should be a whole number, {least} or more")
    return given
