"""What happened, as the clients saw it: per register, each effect and each observation
with the moments it began and ended.

A register is one entry as its users know it, by the name its writer gave it; values are
markers, unique to each write. Whatever the stores did in between is not in here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf

from memory.domain.entry import Entry
from tests.simulation.links import Links
from tests.simulation.workload import EXPIRY_EDITED

ANY = "*"
"""The value of a write whose content nobody saw: it may be any."""

Moments = tuple[float, float]
"""From the earliest to the latest, in microseconds, as records keep moments."""

ANY_TIME = (-inf, inf)
NEVER = (inf, inf)


class Act(StrEnum):
    CREATE = "create"  # nothing -> value; under a key, on anything else: unchanged
    PROMOTE = "promote"  # nothing or gone -> value; on something live: unchanged
    UPDATE = "update"  # live -> value
    DELETE = "delete"  # live -> gone
    WIPE = "wipe"  # live -> gone; anything else: unchanged
    DROP = "drop"  # this value -> gone; anything else: unchanged
    RETIRE = "retire"  # live -> the same, hidden from the end of its window on
    READ = "read"  # saw the value; None: saw nothing
    REFUSED = "refused"  # was told there is nothing to be seen: a read of nothing
    CLOSED = "closed"  # was told there is nothing to be seen whose window has no end yet
    ABSENT = "absent"  # was told there is nothing at all, hidden or not
    TAKEN = "taken"  # was told that its key was used for another text
    FORBID = "forbid"  # anything -> gone: what was still on its way to be created may not come any more


LOOKS = frozenset({Act.READ, Act.REFUSED, Act.CLOSED, Act.ABSENT, Act.TAKEN})
"""What changes nothing."""
REMOVALS = frozenset({Act.DELETE, Act.WIPE, Act.DROP, Act.FORBID})
"""What may leave nothing."""


@dataclass(frozen=True, slots=True)
class Event:
    """One operation's effect on, or sight of, one register, taking place at one moment
    between `start` and `end`.

    `maybe`: the client never learned whether it took effect; it may at any time after
    `start` (and before `end`), or never. `cached`: a read by id, which a cache may have
    answered. `clock`: what the clock showed by which it was decided what is hidden.
    `hides`: of a write, when it hides the register: from a creation's expiry on, or
    from the end of its window on.
    """

    register: str
    act: Act
    value: str | None
    start: float
    end: float = inf
    maybe: bool = False
    keyed: bool = False
    cached: bool = False
    by: str = ""
    clock: Moments = ANY_TIME
    hides: Moments = NEVER
    forgotten: bool = False
    """Of a write under a key: an earlier life may have been forgotten by now, and then
    this begins another.
    """
    expires: Moments | None = None
    """Of an update that edits the expiry: from when on it hides the register."""

    def __str__(self) -> str:
        until = "..." if self.end == inf else f"{self.end:.3f}"
        return (
            f"[{self.start:8.3f} {until:>8}] {self.by:<12} {self.act}"
            f" {self.value or '-'}{' (outcome unknown)' if self.maybe else ''}"
        )


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant broken: `kind` is one of lost, missing, doubled, resurrected, stale,
    foreign, leftover, order, torn, wrong past, went back, miscounted, refused.
    """

    kind: str
    register: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.register}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Seen:
    """One entry of an answer: which register it claims to be, what it says, and where
    it says it lives.
    """

    register: str
    value: str
    id: str
    tenant: str
    scope: str


@dataclass(frozen=True, slots=True)
class KnownAt:
    """What somebody was told that a register had said at an earlier moment, give or
    take `slack` seconds.
    """

    register: str
    value: str | None
    at: float
    slack: float
    asked: float
    clock: Moments


@dataclass(frozen=True, slots=True)
class Told:
    """What somebody was told of a register beside what it says: the versions of its
    past, oldest first, or the tier it lives in.
    """

    register: str
    start: float
    end: float
    by: str
    values: tuple[str, ...] = ()
    tier: str = ""
    cached: bool = False
    """Whether a cache may have told it."""


@dataclass(frozen=True, slots=True)
class Derived:
    """An entry made of others by one call, which deletes them once it is stored where
    they go `away`: its register and theirs.
    """

    register: str
    sources: tuple[str, ...]
    by: str
    start: float
    away: bool = True


@dataclass(frozen=True, slots=True)
class Erased:
    """How many entries an acknowledged erasure of a scope says that there were."""

    tenant: str
    scope: str
    number: int
    start: float
    end: float
    by: str


@dataclass(slots=True)
class Register:
    """One entry as its users know it, and where it was written."""

    name: str
    tenant: str
    scope: str
    hidden_from: float = inf
    """The first moment at which its expiry hides it, in microseconds."""
    damaged: bool = False
    """Whether a disk damaged what it says: then it may be refused by name, and left out
    of answers over scopes.
    """
    ids: set[str] = field(default_factory=set)
    unknown: set[int] = field(default_factory=set)
    """Versions of it that were on their way to being kept when a disk damaged what said
    so.
    """
    events: list[Event] = field(default_factory=list)

    @property
    def edits_its_expiry(self) -> bool:
        """Whether its expiry is edited: then `History.expiries` tells it, text by text."""
        return self.name.startswith(EXPIRY_EDITED)

    @property
    def may_expire(self) -> bool:
        return self.hidden_from < inf or self.edits_its_expiry


class History:
    """Records a run. `now` is the run's true time; moments handed out are distinct and
    grow.
    """

    def __init__(
        self, now: Callable[[], float], is_down: Callable[[float], bool] = lambda since: False
    ) -> None:
        self._now = now
        self.is_down = is_down
        """Whether any store was down at a moment or since."""
        self._last = -1.0
        self.registers: dict[str, Register] = {}
        self.markers: dict[str, str] = {}
        self.expiries: dict[str, float] = {}
        """The first moment at which what says this text is hidden by its expiry, where
        that is edited.
        """
        self.names: dict[str, str] = {}
        """The registers that ids stand for, as far as anybody was told."""
        self.known_at: list[KnownAt] = []
        self.pasts: list[Told] = []
        self.tiers: list[Told] = []
        self.derived: list[Derived] = []
        self.erased: list[Erased] = []
        self.firsts: dict[str, Entry] = {}
        """What was answered first to a write under a key, by its register."""
        self.revived: set[str] = set()
        """Keys under which somebody asked for a new life."""
        self.moving: list[tuple[float, float]] = []
        """When something may have moved."""
        self.links = Links()
        self.begun = 0
        """How many calls were begun so far."""
        self.running = 0
        self.leaving: set[str] = set()
        """The registers, and the scopes of tenants, that some call was begun to delete,
        whatever came of it.
        """
        self.retiring: set[str] = set()
        """The registers that some call was begun to retire, whatever came of it."""
        self.forgets = False
        """Whether what has expired is deleted by and by."""
        self.sent_on: set[str] = set()
        """The registers, and the scopes of tenants, that some call was begun to move
        onward.
        """
        self.refuses = False
        """Whether a store refuses some records for what they are."""
        self.violations: list[Violation] = []
        self._owed: list[Event] = []
        self._hanging: list[tuple[str, str, float, str]] = []

    def moment(self) -> float:
        self._last = max(self._now(), self._last + 1e-6)
        return self._last

    def register(self, name: str, tenant: str, scope: str, hidden_from: float = inf) -> Register:
        return self.registers.setdefault(name, Register(name, tenant, scope, hidden_from))

    def marker(self, register: str, value: str) -> str:
        """Remember whose text this is, before it is written anywhere."""
        self.markers[value] = register
        return value

    def note(self, event: Event) -> None:
        self.registers[event.register].events.append(event)

    def broken(self, kind: str, register: str, detail: str) -> None:
        self.violations.append(Violation(kind, register, detail))

    def note_owed(self, event: Event) -> None:
        """An effect that the engine promised to bring about by and by: certain once
        nothing is owed any more.
        """
        self._owed.append(event)

    def copied_from(self, tenant: str, scope: str) -> list[str]:
        """The copies elsewhere of what was in a scope: an erasure of it reaches them."""
        inside = {r.name for r in self.registers.values() if (r.tenant, r.scope) == (tenant, scope)}
        made = {d.register for d in self.derived if inside.intersection(d.sources)}
        return [
            name
            for name in self.registers
            if name not in inside
            and (
                name in made
                or any(name[:at] in inside | made for at, letter in enumerate(name) if letter == ">")
            )
        ]

    def note_hanging_wipe(self, tenant: str, scope: str, start: float, by: str) -> None:
        """A scope deletion whose outcome nobody learned: until nothing is owed it may
        take effect, also on what was written after it.
        """
        self._hanging.append((tenant, scope, start, by))

    def note_watched(self, tenant: str, scope: str, start: float, end: float, by: str) -> None:
        """An erasure that is repeated for a while, as what was sent before it may yet
        come to stand: it goes again then, and that nobody is told.
        """
        for register in self.registers.values():
            if (register.tenant, register.scope) == (tenant, scope) and any(
                e.start < end and e.act not in LOOKS for e in register.events
            ):
                self.note(Event(register.name, Act.WIPE, None, start, maybe=True, by=by))

    def settled(self) -> None:
        """Nothing is owed any more: what was promised has happened by now, and what was
        under way has happened or never will.
        """
        now = self.moment()
        for tenant, scope, start, by in self._hanging:
            for register in self.registers.values():
                if (register.tenant, register.scope) == (tenant, scope):
                    self.note(Event(register.name, Act.WIPE, None, start, now, maybe=True, by=by))
            for copy in self.copied_from(tenant, scope):
                self.note(Event(copy, Act.WIPE, None, start, now, maybe=True, by=by))
        self._hanging.clear()
        for event in self._owed:
            self.note(replace(event, end=now))
        self._owed.clear()

    def certainly_hidden(self, register: str, clock: float) -> bool:
        """Whether by now it is certain that it is gone for good, or hidden from
        whoever's clock shows this moment or a later one.
        """
        found = self.registers[register]
        if found.hidden_from <= clock:
            return True
        if found.edits_its_expiry or ">" in register or any(e.keyed for e in found.events):
            return False
        over = [
            e
            for e in found.events
            if not e.maybe and (e.act is Act.DELETE or (e.act is Act.RETIRE and e.hides[1] <= clock))
        ]
        return bool(over)

    def may_have_gone(self, register: str) -> bool:
        """Whether anything was begun so far that may have deleted or retired it."""
        return register in self.retiring or self.may_be_deleted(register)

    def may_have_been_deleted_by(self, register: str, moment: float) -> bool:
        """Whether any call that may have deleted it began before the moment."""
        found = self.registers[register]
        hanging = any(
            (tenant, scope) == (found.tenant, found.scope) and start < moment
            for tenant, scope, start, _ in self._hanging
        )
        return hanging or any(
            e.act in REMOVALS and e.start < moment
            for e in (*found.events, *(o for o in self._owed if o.register == register))
        )

    def may_be_deleted(self, register: str) -> bool:
        """Whether anything was begun so far that may have deleted it."""
        found = self.registers[register]
        left = register in self.leaving or f"{found.tenant}/{found.scope}" in self.leaving
        return left or self.may_have_been_deleted_by(register, inf)

    # -- answers -----------------------------------------------------------------------

    def saw(self, seen: Seen, tenant: str, by: str) -> bool:
        """Check one entry of an answer for whose it is; whether it may be taken as a
        sight of its register.
        """
        register = self.registers.get(seen.register)
        if (
            register is None
            or register.tenant != tenant
            or seen.tenant != tenant
            or register.scope != seen.scope
        ):
            self.broken("foreign", seen.register, f"{by} for tenant {tenant} saw {seen}")
            return False
        if (owner := self.markers.get(seen.value)) != seen.register.partition(">")[0]:
            self.broken("foreign", seen.register, f"{by} saw text there that was written for {owner}: {seen}")
        register.ids.add(seen.id)
        self.names[seen.id] = seen.register
        if len(register.ids) > 1:
            self.broken("doubled", seen.register, f"{by} saw it under the ids {sorted(register.ids)}")
        return True

    def answered(
        self,
        found: Iterable[Seen],
        tenant: str,
        scopes: frozenset[str],
        start: float,
        end: float,
        by: str,
        *,
        complete: bool = True,
        clock: Moments = ANY_TIME,
    ) -> None:
        """An answer over whole scopes: a sight of every register in them. Where not
        `complete`, absence says nothing.
        """
        sights: dict[str, str] = {}
        for seen in found:
            if not self.saw(seen, tenant, by):
                continue
            if seen.scope not in scopes:
                self.broken("foreign", seen.register, f"{by} asked {sorted(scopes)} and saw {seen}")
            elif seen.register in sights:
                self.broken("doubled", seen.register, f"{by} saw it twice in one answer")
            sights[seen.register] = seen.value
        for register in self.registers.values():
            if register.tenant != tenant or register.scope not in scopes:
                continue
            value = sights.get(register.name)
            if value is not None or (complete and register.events and not register.damaged):
                self.note(Event(register.name, Act.READ, value, start, end, by=by, clock=clock))
