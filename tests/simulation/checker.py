"""Whether what the clients saw could have happened to a single register: Wing and Gong's search, with unknown outcomes.

Every register is checked alone, which is enough: linearizability is local (Herlihy and Wing, 1990). A read may be excused for showing what was
true up to `stale` seconds before it began, which is what a cache promises.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf

from tests.simulation.history import ANY, Act, Event, History, KnownAt, Violation

NOTHING, GONE = "", "\0gone"
"""The states of a register besides its values: never written, and deleted."""


def after(state: str, event: Event) -> tuple[str, ...]:
    """The states after this event took effect in `state`; none where it could not."""
    live = state not in (NOTHING, GONE)
    act, value = event.act, event.value
    if act is Act.READ or act is Act.REFUSED:
        if value is None:
            return () if live else (state,)
        return (value,) if live and state in (value, ANY) else ()
    if act is Act.CREATE:
        return (value or ANY,) if state == NOTHING else (state,) if event.keyed else ()
    if act is Act.PROMOTE:
        return (state,) if live else (value or ANY,)
    if act is Act.UPDATE:
        return (value or ANY,) if live else ()
    if act is Act.DROP:
        if not live or (value is not None and state not in (value, ANY)):
            return (state,)
        return (GONE,) if state == value else (GONE, state)
    return (GONE,) if live else (state,) if act is Act.WIPE else ()


class _Search:
    """One register's events, in order of their start."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events
        self.certain = sum(1 << i for i, e in enumerate(events) if not e.maybe)
        self.closed = [sum(1 << j for j, f in enumerate(events) if f.start > e.end) if e.maybe and e.end < inf else 0 for e in events]
        self.dead: set[tuple[int, str]] = set()
        self.furthest = (0, 0, NOTHING)

    def possible(self) -> bool:
        """Depth first, without recursion: is there an order in which every certain event took effect?"""
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
        """The events that may come next: none that is still to come ended before they began."""
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

    def _read_all(self, done: int, state: str) -> tuple[int, str]:
        """Take every read that agrees at once: it changes nothing, so taking it now is never wrong."""
        again = state != ANY
        while again:
            again = False
            for i in self._next(done):
                event = self.events[i]
                if event.act in (Act.READ, Act.REFUSED) and not event.maybe and after(state, event) == (state,):
                    done |= 1 << i
                    again = True
        return done, state

    def stuck(self) -> tuple[str, list[Event]]:
        """The best that could be done: the state it ends in, and the events that cannot follow."""
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
    shown = "never written" if state == NOTHING else "deleted" if state == GONE else state
    return Violation(_kind(state, stuck, search.events), name, f"no order explains this; at best it is {shown} and then comes {what}\n    {story}")


def _kind(state: str, stuck: list[Event], events: list[Event]) -> str:
    """A name for what went wrong, from the first event that could not follow. A help to the reader, no more."""
    for event in stuck:
        if event.act in (Act.READ, Act.REFUSED):
            if event.value is None:
                return (
                    "lost"
                    if event is events[-1] or all(e.value is None for e in events if e.start > event.start and e.act is Act.READ)
                    else "missing"
                )
            return "resurrected" if state == GONE else "stale"
    return "order"


def check(history: History, stale: float = 0.0, *, strict: bool = False) -> list[Violation]:
    """Everything that is wrong with this history. `strict`: nothing failed in it, so cached reads must show what was acknowledged before them."""
    found = list(history.violations)
    for register in history.registers.values():
        violation = check_register(register.name, register.events, stale)
        if violation is None and strict and stale:
            violation = check_fresh(register.events)
        if violation is not None:
            found.append(violation)
    found += [violation for sight in history.known_at if (violation := check_known_at(sight, history.registers[sight.register].events))]
    return found


def check_fresh(events: Sequence[Event]) -> Violation | None:
    """No read may show what an acknowledged write had replaced, or an acknowledged deletion removed, before the read began."""
    written = {e.value: e for e in events if e.act in (Act.CREATE, Act.UPDATE) and not e.maybe}
    for read in events:
        if not read.cached or read.value not in written:
            continue
        source = written[read.value]
        for event in events:
            if event.act in (Act.UPDATE, Act.DELETE) and not event.maybe and event.start > source.end and event.end < read.start:
                return Violation("stale", read.register, f"a cache showed what was replaced before: {read} after {event}")
    return None


def check_known_at(sight: KnownAt, events: Iterable[Event]) -> Violation | None:
    """Whether the register may have said this at that moment: written by then, and not known to be replaced before."""
    early, late = sight.at - sight.slack, sight.at + sight.slack
    writes = [e for e in events if e.act in (Act.CREATE, Act.PROMOTE, Act.UPDATE)]
    if sight.value is None:
        deleted = any(e.act in (Act.DELETE, Act.WIPE, Act.DROP) for e in events)
        if deleted or not any(e.end < early and not e.maybe for e in writes):
            return None
        return Violation("missing", sight.register, f"known at {sight.at:.3f} there was nothing, but it had been written by then")
    for write in writes:
        if write.value in (sight.value, None) and write.start <= late:
            replaced = any(e.act is Act.UPDATE and not e.maybe and e.start > write.end and e.end < early for e in writes)
            if not replaced:
                return None
    story = "\n    ".join(str(e) for e in writes)
    return Violation("stale", sight.register, f"known at {sight.at:.3f} it is told to have said {sight.value}\n    {story}")
