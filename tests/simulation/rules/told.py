"""What the workers of a run asked for and were told, and what was seen of the stores
meanwhile.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from memory.domain.legal_hold import Over
from memory.ports.record import Key, Partition, Record
from tests.simulation.faults import LATEST

LATE = 2 * LATEST + 1
"""Seconds after which nothing of a call that has failed is on the network any more."""


class Kind(StrEnum):
    WRITE = "write"
    UPDATE = "update"
    RELATE = "relate"
    DELETE = "delete"
    ERASE = "erase"
    SWEEP = "sweep"
    END = "end"
    HOLD = "hold"
    RELEASE = "release"


class Came(StrEnum):
    OPEN = "nobody knows"
    DONE = "done"
    HELD = "refused: it is held"
    FULL = "refused: there is no room"
    REFUSED = "refused, and nothing was done"


@dataclass(slots=True)
class Call:
    """Something that a process asked for. `ended` where it came back, failed, or its
    process died.
    """

    kind: Kind
    by: str
    tenant: str
    begun: float
    about: str = ""
    """The id or the scope that it is about."""
    many: int = 1
    """How many entries it writes."""
    ended: float = inf
    came: Came = Came.OPEN

    @property
    def over(self) -> float:
        """From when on nothing more comes of it. An erasure that failed is owed until
        nothing is.
        """
        if self.came is not Came.OPEN:
            return self.ended
        return inf if self.kind is Kind.ERASE else self.ended + LATE

    def meets(self, since: float, until: float) -> bool:
        """Whether it may have done something in that time."""
        return self.begun <= until and self.over >= since


@dataclass(slots=True)
class Hold:
    """A legal hold that was asked for, and each time that its end was."""

    name: str
    tenant: str
    over: Over
    of: str
    placed: Call
    releases: list[Call] = field(default_factory=list)

    @property
    def until(self) -> float:
        """Up to when it certainly stands once it was placed."""
        return min((release.begun for release in self.releases), default=inf)

    def certain(self, since: float, until: float) -> bool:
        """Whether it stood for all of that time."""
        return self.placed.came is Came.DONE and self.placed.ended <= since and self.until >= until

    def possible(self, since: float, until: float) -> bool:
        """Whether it may have stood at some moment of it."""
        gone = any(
            release.came is Came.DONE and self.placed.over <= release.begun and release.ended < since
            for release in self.releases
        )
        return self.placed.begun <= until and not gone

    def holds(self, record: Record) -> bool:
        """Whether what is held takes in an entry, or what is kept of it."""
        if record.key.tenant != self.tenant:
            return False
        named = {record.key.id, record.fields.get("entry_id")}
        return (
            self.over == "tenant"
            or (self.over == "entry" and self.of in named)
            or self.takes_in(record.scope)
        )

    def takes_in(self, scope: str) -> bool:
        """Whether all of a scope is held."""
        return (
            self.over == "tenant"
            or (self.over == "scope" and scope == self.of)
            or (self.over == "user" and scope in ("user:ada", "session:s1"))
        )


@dataclass(slots=True)
class Seen:
    """A record as it was seen last, when first and last, and when it was first missed."""

    record: Record
    first: float
    last: float
    gone: float = inf

    def stood(self, since: float, until: float) -> bool:
        """Whether it may have stood at some moment of that time."""
        return self.first <= until and self.gone >= since


@dataclass(frozen=True, slots=True)
class Moved:
    """An entry that was seen in a later tier than before."""

    before: Record
    tier: str
    since: float
    by: float


@dataclass(frozen=True, slots=True)
class EndTold:
    """What somebody was told of the end of a session: the entries of which it says
    something, and the copies that were made.
    """

    call: Call
    stood: tuple[Record, ...]
    """The entries that were in the first tier when it began."""
    kept: frozenset[str]
    copied: frozenset[tuple[str, str]]


@dataclass(slots=True)
class Told:
    """Everything of one run."""

    now: Callable[[], float]
    calls: list[Call] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    entries: dict[Key, Seen] = field(default_factory=dict)
    versions: dict[Key, Seen] = field(default_factory=dict)
    relations: dict[Key, Seen] = field(default_factory=dict)
    moved: list[Moved] = field(default_factory=list)
    ends: list[EndTold] = field(default_factory=list)
    acknowledged: dict[Key, tuple[str, float]] = field(default_factory=dict)
    """The entries that somebody was told are written, in which scope, and when."""
    counts: dict[Partition, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))
    """How many entries were seen in a scope, and when."""
    rounds: int = 0
    broken: list[str] = field(default_factory=list)
