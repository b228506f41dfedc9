"""What is promised of several records together: what `tests.simulation.checker` cannot
tell of one register alone.

- Sources that a derivation deleted are gone only once what was made of them is there,
  and it says what they said.
- What was made of sources that an erasure took dies with them.
- An entry's past is all that was acknowledged of this life, in order, and nothing of
  another.
- Tiers only go onward; an erasure counts what was there; relations are as
  `tests.simulation.links` says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf

from memory.policies.routing import TIERS
from tests.simulation.history import (
    ANY,
    LOOKS,
    REMOVALS,
    Act,
    Derived,
    Erased,
    Event,
    History,
    Told,
    Violation,
)

IDLE = 5 * 86_400.0
"""Seconds after which a sweep may move what nobody touched."""
BIRTHS = frozenset({Act.CREATE, Act.PROMOTE})


class Promises:
    """Judges one history, once it is complete."""

    def __init__(self, history: History, *, strict: bool = False) -> None:
        self._history = history
        self._tiers = [told for told in history.tiers if strict or not told.cached]
        self._births = {d.register: self._born_before(d) for d in history.derived if d.away}

    def events_of(self, register: str) -> list[Event]:
        """A register's events, with what those of others prove of them: by when a
        derived entry must have been stored.
        """
        events = self._history.registers[register].events
        proven = self._births.get(register)
        if proven is None:
            return events
        by, before = proven
        return [
            replace(e, maybe=False, end=min(e.end, before)) if e.act in BIRTHS and e.by == by else e
            for e in events
        ]

    def check(self) -> list[Violation]:
        history = self._history
        found = [v for told in history.pasts if (v := self._past(told)) is not None]
        found += [
            v for derived in history.derived if derived.away and (v := self._copied(derived)) is not None
        ]
        found += [
            v
            for register in {t.register: None for t in self._tiers}
            if (v := self._onward(register)) is not None
        ]
        found += [
            v
            for register in {t.register: None for t in self._tiers}
            if (v := self._stays(register)) is not None
        ]
        found += [v for erased in history.erased if (v := self._counted(erased)) is not None]
        found += [
            Violation(kind, str(link), why)
            for kind, link, why in history.links.check(self._removals_of_id, self._active, self._gone)
        ]
        return found

    # -- when an entry was there -------------------------------------------------------

    def _removals(self, register: str) -> Iterator[Event]:
        return (e for e in self._history.registers[register].events if e.act in REMOVALS)

    def _removals_of_id(self, entry_id: str) -> Iterator[tuple[float, float]]:
        name = self._history.names.get(entry_id)
        if name is None:
            yield 0.0, inf
            return
        for event in self._removals(name):
            yield event.start, inf if event.maybe or event.act is Act.DROP else event.end
        register = self._history.registers[name]
        if register.may_expire and self._history.forgets:
            yield 0.0, inf

    def _seen_before(self, register: str, moment: float) -> float | None:
        """When it was certainly there last, of all that is known before the moment;
        None where that is never.
        """
        sighting = self._sighting_before(register, moment)
        return None if sighting is None else sighting.start

    def _sighting_before(self, register: str, moment: float) -> Event | None:
        """What it was certainly there for last: from the end of that event on, at the
        latest.
        """
        events = self._history.registers[register].events
        sure = [
            e
            for e in events
            if not e.maybe
            and e.end < moment
            and (e.act in BIRTHS or e.act is Act.UPDATE or (e.act is Act.READ and e.value))
        ]
        return max(
            (e for e in sure if not e.cached and not (e.act is Act.CREATE and e.keyed)),
            key=lambda e: e.start,
            default=None,
        )

    def _active(self, entry_id: str, start: float, end: float) -> bool:
        """Whether the entry of this id was certainly there, and not hidden, for all of
        a span.
        """
        name = self._history.names.get(entry_id)
        if name is None:
            return False
        register = self._history.registers[name]
        since = self._seen_before(name, start)
        if since is None or register.damaged or register.may_expire:
            return False
        if any(e.act is Act.RETIRE and e.start < end for e in register.events):
            return False
        return not any(
            e.start < end and (e.maybe or e.end > since) for e in register.events if e.act in REMOVALS
        )

    def _gone(self, entry_id: str, before: float, clock: float) -> bool:
        """Whether the entry of this id was certainly deleted before the moment and not
        born again, or is hidden by that clock.
        """
        name = self._history.names.get(entry_id)
        if name is None:
            return False
        register = self._history.registers[name]
        if register.hidden_from < clock < inf:
            return True
        born = [e for e in register.events if e.act in BIRTHS]
        gone = [e for e in self._removals(name) if e.act is not Act.DROP]
        gone += [e for e in register.events if e.act is Act.RETIRE and e.hides[1] < clock < inf]
        return any(
            not g.maybe and g.end < before and all(not b.maybe and b.end < g.start for b in born)
            for g in gone
        )

    # -- derivations -------------------------------------------------------------------

    def _born_before(self, derived: Derived) -> tuple[str, float] | None:
        """By when the derived entry was stored, as the absence of a source proves that
        only this derivation can have deleted.
        """
        proofs = [
            moment for source in derived.sources if (moment := self._taken_by(derived, source)) is not None
        ]
        return (derived.by, min(proofs)) if proofs else None

    def _taken_by(self, derived: Derived, source: str) -> float | None:
        """When somebody was told first that this source is gone, where nothing else can
        have made it so.
        """
        register = self._history.registers[source]
        if register.damaged or register.may_expire or any(e.act is Act.RETIRE for e in register.events):
            return None
        sighting = self._sighting_before(source, derived.start)
        if sighting is None:
            return None
        since = sighting.start
        looks = (
            e
            for e in register.events
            if e.act in LOOKS and e.value is None and not e.maybe and e.start > sighting.end
        )
        for look in sorted(looks, key=lambda e: e.end):
            others = (
                e for e in register.events if e.act in REMOVALS and e.start < look.end and e.by != derived.by
            )
            return None if any(e.maybe or e.end > since or e.act is Act.DROP for e in others) else look.end
        return None

    def _copied(self, derived: Derived) -> Violation | None:
        """Where a promotion took its source away, the copy must say what the source
        said last.
        """
        said = self._said_first(derived.register)
        if said is None or ">" not in derived.register:
            return None
        source = derived.sources[0]
        taken = self._taken_by(derived, source)
        if taken is None:
            return None
        removals = list(self._removals(source))
        ends = [r for r in removals if not r.maybe and r.act is not Act.DROP]

        events = self._history.registers[source].events
        texts = [e for e in events if e.act in (Act.CREATE, Act.UPDATE)]

        def may_be_born(event: Event) -> bool:
            """Whether a write under its key may have found nothing, and is no repeat:
            on what is live nothing changes.
            """
            known = any(
                not o.maybe and o.end < event.start for o in events if o.act in BIRTHS and o is not event
            )
            return event.act is Act.PROMOTE and (not known or any(r.start < event.end for r in removals))

        writes = [e for e in [*texts, *filter(may_be_born, events)] if e.start < taken]
        repeats = [
            w
            for w in writes
            if w.keyed and w.act is Act.CREATE and any(not o.maybe and o.end < w.start for o in writes)
        ]
        changes = [w for w in writes if w not in repeats]
        later = [*(o for o in changes if o.act is not Act.PROMOTE and not o.maybe), *ends]
        last = [w for w in changes if not any(o.start > w.end and o.end < inf for o in later)]
        if not last or any(w.value in (said, ANY, None) for w in last):
            return None
        return Violation(
            "lost",
            source,
            f"{derived.by} deleted it though it said {[w.value for w in last]} and the copy said {said}"
            " first",
        )

    def _said_first(self, copy: str) -> str | None:
        """What a copy said before it was edited; None where nobody saw that, and where
        it had more than one life.
        """
        events = self._history.registers[copy].events
        if any(e.act in REMOVALS for e in events):
            return None
        edits = {e.value for e in events if e.act is Act.UPDATE}
        shown = {e.value for e in events if e.act is Act.READ} | {
            value for told in self._history.pasts if told.register == copy for value in told.values
        }
        said = shown - edits - {None}
        return said.pop() if len(said) == 1 else None

    # -- the past ----------------------------------------------------------------------

    def _past(self, told: Told) -> Violation | None:
        """The versions of an entry as `history()` told them: every acknowledged text of
        this life in order, none of another life.
        """
        register = self._history.registers[told.register]
        at = {value: n for n, value in reversed(list(enumerate(told.values)))}
        changes = [
            e for e in register.events if e.act in (Act.CREATE, Act.UPDATE) and e.value not in (None, ANY)
        ]
        removals = list(self._removals(told.register))

        def of_this_life(write: Event) -> bool:
            return not any(r.start < told.end and (r.maybe or r.end > write.start) for r in removals)

        known = [
            e for e in changes if not e.maybe and e.end < told.start and not (e.keyed and e.act is Act.CREATE)
        ]
        for write in known:
            if write.value not in at and of_this_life(write):
                return self._wrong_past(told, f"{write.value} is not in it, which was acknowledged: {write}")
        for earlier in known:
            for later in known:
                misplaced = (
                    earlier.end < later.start
                    and earlier.value in at
                    and later.value in at
                    and at[earlier.value] > at[later.value]
                )
                if misplaced and of_this_life(earlier):
                    return self._wrong_past(
                        told, f"{later.value} comes before {earlier.value}, which was written before it"
                    )
        retired = [
            e
            for e in register.events
            if e.act is Act.RETIRE and not e.maybe and e.end < told.start and of_this_life(e)
        ]
        if len(told.values) < len({e.value for e in known if of_this_life(e)}) + len(retired):
            return self._wrong_past(
                told, f"it has too few versions: {len(retired)} times the window was ended as well"
            )
        for write in (e for e in changes if e.act is Act.UPDATE and e.value in at and not e.maybe):
            for removal in removals:
                certain = not removal.maybe and removal.act is not Act.DROP
                if certain and removal.start > write.end and removal.end < told.start:
                    return self._wrong_past(told, f"{write.value} is of a life that ended: {removal}")
        return None

    @staticmethod
    def _wrong_past(told: Told, why: str) -> Violation:
        return Violation(
            "wrong past",
            told.register,
            f"{told.by} [{told.start:.3f} {told.end:.3f}] was told {list(told.values)}: {why}",
        )

    # -- tiers -------------------------------------------------------------------------

    def _onward(self, register: str) -> Violation | None:
        removals = list(self._removals(register))
        sights = sorted((t for t in self._tiers if t.register == register), key=lambda t: t.end)
        for later in sights:
            for earlier in sights:
                if earlier.end >= later.start or TIERS.index(earlier.tier) <= TIERS.index(later.tier):
                    continue
                if not any(r.start < later.end and (r.maybe or r.end > earlier.start) for r in removals):
                    told = f"{later.by} [{later.start:.3f} {later.end:.3f}] met it in {later.tier}"
                    return Violation(
                        "went back",
                        register,
                        f"{told}, where {earlier.by} [{earlier.start:.3f} {earlier.end:.3f}] met it in"
                        f" {earlier.tier}",
                    )
        return None

    def _stays(self, register: str) -> Violation | None:
        """What nobody moved is in one tier, in its later lives as in the first."""
        found = self._history.registers[register]
        if self._history.sent_on & {register, f"{found.tenant}/{found.scope}"}:
            return None
        sights = [t for t in self._tiers if t.register == register and t.end < IDLE]
        other = next((t for t in sights if t.tier != sights[0].tier), None)
        return (
            None
            if other is None
            else Violation("went back", register, f"nobody moved it: {sights[0]}, {other}")
        )

    # -- counts ------------------------------------------------------------------------

    def _counted(self, erased: Erased) -> Violation | None:
        """As many entries as were certainly there at least, and as may have been there
        at most.
        """
        inside = [
            r
            for r in self._history.registers.values()
            if (r.tenant, r.scope) == (erased.tenant, erased.scope)
        ]
        still = not any(start < erased.end and end > erased.start for start, end in self._history.moving)
        least = [r.name for r in inside if still and self._surely_in(r.name, erased)]
        most = [r.name for r in inside if self._maybe_in(r.name, erased)]
        if len(least) <= erased.number <= len(most):
            return None
        told = f"{erased.by} [{erased.start:.3f} {erased.end:.3f}] says that there were {erased.number}"
        return Violation(
            "miscounted",
            f"{erased.tenant}/{erased.scope}",
            f"{told}; surely there were {least}, at most {most}",
        )

    def _surely_in(self, name: str, erased: Erased) -> bool:
        register = self._history.registers[name]
        since = self._seen_before(name, erased.start)
        if since is None or register.damaged or (register.may_expire and self._history.forgets):
            return False
        for event in register.events:
            if (
                event.by == erased.by
                or event.start >= erased.end
                or (event.act is Act.READ and event.value is not None)
            ):
                continue
            if event.act in REMOVALS and (event.maybe or event.end > since or event.act is Act.DROP):
                return False
            if event.end > erased.start:
                return False  # something was about it meanwhile, and may have helped the erasure along
        return True

    def _maybe_in(self, name: str, erased: Erased) -> bool:
        events = self._history.registers[name].events
        if not any(e.act in BIRTHS for e in events) and any(
            d.register == name for d in self._history.derived
        ):
            # refused in the end, and perhaps there for a while: a guard around the
            # store sent it twice
            return True
        births = [e for e in events if e.act in BIRTHS and e.start < erased.end]
        gone = [
            e
            for e in events
            if e.act in REMOVALS
            and not e.maybe
            and e.act is not Act.DROP
            and e.end < erased.start
            and e.by != erased.by
        ]
        return any(not any(b.end < g.start and not b.maybe for g in gone) for b in births)
