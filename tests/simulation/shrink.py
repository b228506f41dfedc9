"""Making a failing run small: operations and faults are dropped while it still fails in
the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.simulation.workload import Scenario
from tests.simulation.world import Result


@dataclass(frozen=True, slots=True)
class Variant:
    """A scenario with some of it left out, in one of its interleavings."""

    dropped: frozenset[int] = frozenset()
    spared: frozenset[tuple[int, int]] = frozenset()
    schedule: int = 0


Runner = Callable[[Variant], Result]

SCHEDULES = 6
"""How many interleavings are tried before an operation or fault is taken to be needed."""


def shrink(scenario: Scenario, run: Runner, failing: Variant | None = None) -> Variant:
    """The smallest failing variant that dropping one thing, or half of them, at a time
    finds. `failing` must fail.
    """
    best = failing or Variant()
    kinds = {v.kind for v in run(best).violations[:1]}
    improved = True
    while improved:
        improved = False
        for candidate in _smaller(scenario, run, best):
            if (failed := _fails(run, candidate, kinds)) is not None:
                best, improved = failed, True
                break
    return best


def _fails(run: Runner, variant: Variant, kinds: set[str]) -> Variant | None:
    schedules = [variant.schedule, *(s for s in range(SCHEDULES) if s != variant.schedule)]
    for schedule in schedules:
        tried = Variant(variant.dropped, variant.spared, schedule)
        if kinds & {v.kind for v in run(tried).violations}:
            return tried
    return None


def _smaller(scenario: Scenario, run: Runner, best: Variant) -> list[Variant]:
    """Variants with less in them, the boldest first."""
    left = [o.number for o in scenario.operations if o.number not in best.dropped]
    faults = [s.where for s in run(best).struck]
    found = [Variant(best.dropped, best.spared | frozenset(faults), best.schedule)] if faults else []
    size = len(left) // 2
    while size >= 1:
        found += [
            Variant(best.dropped | frozenset(left[i : i + size]), best.spared, best.schedule)
            for i in range(0, len(left), size)
        ]
        size //= 2
    found += [Variant(best.dropped, best.spared | {fault}, best.schedule) for fault in faults]
    return found
