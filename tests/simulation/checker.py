"""Whether what the clients saw could have happened to a single register: Wing and
Gong's search, with unknown outcomes.

Every register is checked alone, which is enough: linearizability is local (Herlihy and
Wing, 1990); what several have promised together is said by `tests.simulation.promises`.
A read may be excused for showing what was true up to `stale` seconds before it began,
which is what a cache promises.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

from tests.simulation.history import (
    ANY,
    LOOKS,
    NEVER,
    REMOVALS,
    Act,
    Event,
    History,
    KnownAt,
    Moments,
    Violation,
)
from tests.simulation.promises import Promises


class State(NamedTuple):
    """What a register says, hidden from its expiry on, and from the end of its window
    on.
    """

    value: str
    expires: Moments = NEVER
    ends: Moments = NEVER
    first: str = ""
    """What was first written, where that was under a key; kept when it is deleted."""

    @property
    def live(self) -> bool:
        return self.value not in (NOTHING.value, GONE.value)

    @property
    def gone(self) -> State:
        return GONE._replace(first=self.first)

    def may_be_seen(self, clock: Moments) -> bool:
        return self.live and clock[0] < self.expires[1] and clock[0] < self.ends[1]

    def may_be_hidden(self, clock: Moments) -> bool:
        hides_from = min(self.expires[0], self.ends[0])
        return not self.live or (hides_from < inf and clock[1] >= hides_from)

    def says(self, value: str | None) -> bool:
        return value is None or self.value in (value, ANY)


NOTHING, GONE = State(""), State("\0gone")
"""The states of a register besides its values: never written, and deleted."""


def after(state: State, event: Event) -> tuple[State, ...]:
    """The states after this event took effect in `state`; none where it could not."""
    act, value = event.act, event.value
    if act in LOOKS:
        return _sighted(state, event)
    if act is Act.CREATE:
        new = State(value or ANY, event.hides, first=value or "" if event.keyed else "")
        if state == NOTHING:
            return (new,)
        if not state.live:
            return (new,) if event.keyed and event.forgotten else ()
        return (state,) if event.keyed and state.first == value else ()
    if act is Act.PROMOTE:
        if not state.live:
            return (State(value or ANY, event.hides, first=value or "" if event.keyed else ""),)
        return (state,) if not event.keyed or state.first == value else ()
    if act is Act.UPDATE:
        edited = state._replace(
            value=value or ANY, expires=state.expires if event.expires is None else event.expires
        )
        return (edited,) if state.may_be_seen(event.clock) else ()
    if act is Act.RETIRE:
        return (
            (state._replace(ends=event.hides),)
            if state.ends == NEVER and state.may_be_seen(event.clock)
            else ()
        )
    if act is Act.DROP:
        if not state.live or not state.says(value):
            return (state,)
        return (state.gone,) if state.value == value and state.ends == NEVER else (state.gone, state)
    if act is Act.FORBID:
        return (state.gone,)
    return (state.gone,) if state.live else (state,) if act is Act.WIPE else ()


def _sighted(state: State, event: Event) -> tuple[State, ...]:
    """The state as it was, or with its value known, where this can have been seen in
    it.
    """
    if event.act is Act.READ and event.value is not None:
        fits = state.says(event.value) and state.may_be_seen(event.clock)
        return () if not fits else (state._replace(value=event.value),) if state.value == ANY else (state,)
    if event.act is Act.ABSENT:
        return () if state.live else (state,)
    if event.act is Act.TAKEN:
        return (state,) if state.first not in ("", event.value) else ()
    closed = event.act is Act.CLOSED and state.ends != NEVER
    return (state,) if closed or state.may_be_hidden(event.clock) else ()


class _Search:
    """One register's events, in order of their start."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events
        self.certain = sum(1 << i for i, e in enumerate(events) if not e.maybe)
        self.closed = [
            sum(1 << j for j, f in enumerate(events) if f.start > e.end) if e.maybe and e.end < inf else 0
            for e in events
        ]
        self.closes = [
            sum(1 << j for j, mask in enumerate(self.closed) if mask >> i & 1) for i in range(len(events))
        ]
        self.dead: set[tuple[int, State]] = set()
        self.furthest = (0, 0, NOTHING)

    def possible(self) -> bool:
        """Depth first, without recursion: is there an order in which every certain
        event took effect?
        """
        stack = [(0, NOTHING)]
        while stack:
            done, state = self._read_all(*stack.pop())
            if done & self.certain == self.certain:
                return True
            if (done, state) in self.dead:
                continue
            self.dead.add((done, state))
            self.furthest = max(self.furthest, ((done & self.certain).bit_count(), done, state))
            for i in self._next(done):
                stack += [(done | 1 << i, follows) for follows in after(state, self.events[i])]
        return False

    def _next(self, done: int) -> list[int]:
        """The events that may come next: none that is still to come ended before they
        began.
        """
        found: list[int] = []
        bound = inf
        for i, event in enumerate(self.events):
            if done >> i & 1:
                continue
            if event.start > bound:
                break
            bound = min(bound, event.end if not event.maybe else inf)
            found.append(i)
        return [i for i in found if self.events[i].start <= bound and not done & self.closed[i]]

    def _read_all(self, done: int, state: State) -> tuple[int, State]:
        """Take every read that agrees at once: it changes nothing, so taking it now is
        wrong only where something that may have happened before it could not come after
        it any more.
        """
        again = state.value != ANY
        while again:
            again = False
            for i in self._next(done):
                event = self.events[i]
                if (
                    event.act in LOOKS
                    and not event.maybe
                    and not self.closes[i] & ~done
                    and after(state, event)
                ):
                    done |= 1 << i
                    again = True
        return done, state

    def stuck(self) -> tuple[State, list[Event]]:
        """The best that could be done: the state it ends in, and the events that cannot
        follow.
        """
        _, done, state = self.furthest
        return state, [self.events[i] for i in self._next(done) if not self.events[i].maybe]


def check_register(name: str, events: Iterable[Event], stale: float = 0.0) -> Violation | None:
    """The violation that this register's history shows, if any."""
    eased = [replace(e, start=e.start - stale) if stale and e.cached else e for e in events]
    search = _Search(sorted(eased, key=lambda e: (e.start, e.end)))
    if search.possible():
        return None
    state, stuck = search.stuck()
    story = "\n    ".join(str(e) for e in search.events)
    what = "; ".join(str(e) for e in stuck)
    shown = "never written" if state == NOTHING else state.value if state.live else "deleted"
    if state.expires != NEVER or state.ends != NEVER:
        shown += f" (expires {state.expires}, ends {state.ends}, clocks {[e.clock for e in stuck]})"
    return Violation(
        _kind(state, stuck, search.events),
        name,
        f"no order explains this; at best it is {shown} and then comes {what}\n    {story}",
    )


def _kind(state: State, stuck: list[Event], events: list[Event]) -> str:
    """A name for what went wrong, from the first event that could not follow. A help to
    the reader, no more.
    """
    for event in stuck:
        if event.act in LOOKS:
            if event.value is None:
                return (
                    "lost"
                    if event is events[-1]
                    or all(e.value is None for e in events if e.start > event.start and e.act is Act.READ)
                    else "missing"
                )
            if state.says(event.value) and state.live:
                return "shown too long"
            return "stale" if state.live or state == NOTHING else "resurrected"
    return "order"


def check(
    history: History, stale: float = 0.0, *, strict: bool = False, moved: bool = False
) -> list[Violation]:
    """Everything that is wrong with this history. `strict`: nothing failed in it, so
    cached reads must show what was acknowledged before them.

    `moved`: no move failed either, so that they must name the tier.
    """
    found = list(history.violations)
    spanning = Promises(history, strict=moved)
    found += spanning.check()
    for register in history.registers.values():
        violation = check_register(register.name, spanning.events_of(register.name), stale)
        if violation is None and strict and stale:
            violation = check_fresh(register.events)
        if violation is not None:
            found.append(violation)
    for sight in history.known_at:
        register = history.registers[sight.register]
        if sight.value is None and register.edits_its_expiry:
            continue
        if (violation := check_known_at(sight, register.events, register.hidden_from)) is not None:
            found.append(violation)
    return found


def check_fresh(events: Sequence[Event]) -> Violation | None:
    """No read may show what was replaced, removed or hidden, as its writer was told,
    before the read began.
    """
    again = {
        e.value for e in events if e.act is Act.PROMOTE
    }  # what a later life says as well tells nothing of the cache
    written = {
        e.value: e
        for e in events
        if e.act in (Act.CREATE, Act.UPDATE) and not e.maybe and e.value not in again
    }
    for read in events:
        if not read.cached or read.value not in written:
            continue
        source = written[read.value]
        for event in events:
            over = event.act in (Act.UPDATE, Act.DELETE, Act.WIPE) or (
                event.act is Act.RETIRE and read.clock[0] >= event.hides[1]
            )
            if over and not event.maybe and event.start > source.end and event.end < read.start:
                return Violation(
                    "stale", read.register, f"a cache showed what was replaced before: {read} after {event}"
                )
    return None


def check_known_at(sight: KnownAt, events: Iterable[Event], hidden_from: float = inf) -> Violation | None:
    """Whether the register may have said this at that moment: written by then, and not
    known to be replaced before. What has expired is hidden.
    """
    early, late = sight.at - sight.slack, sight.at + sight.slack
    writes = [e for e in events if e.act in (Act.CREATE, Act.PROMOTE, Act.UPDATE)]
    if sight.value is not None and sight.clock[0] >= hidden_from:
        return Violation(
            "shown too long",
            sight.register,
            f"known at {sight.at:.3f} it said {sight.value}, but it has expired since",
        )
    if sight.value is None:
        hidden = sight.clock[1] >= hidden_from or any(
            e.act in REMOVALS or e.act is Act.RETIRE for e in events
        )
        if hidden or not any(e.end < early and not e.maybe for e in writes):
            return None
        return Violation(
            "missing",
            sight.register,
            f"known at {sight.at:.3f} there was nothing, but it had been written by then",
        )
    for write in writes:
        if write.value in (sight.value, None) and write.start <= late:
            replaced = any(
                e.act is Act.UPDATE and not e.maybe and e.start > write.end and e.end < early for e in writes
            )
            if not replaced:
                return None
    story = "\n    ".join(str(e) for e in writes)
    return Violation(
        "stale", sight.register, f"known at {sight.at:.3f} it is told to have said {sight.value}\n    {story}"
    )
