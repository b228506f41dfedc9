"""Many seeds of sessions on several processes, and one seed exactly; what mutations are
noticed by.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from tests.simulation.faults import Coverage, Fault
from tests.simulation.runner import Failure, silence, sum_up
from tests.simulation.sessions.mutations import MUTATIONS
from tests.simulation.sessions.run import Run, run_sessions
from tests.simulation.steps import session_pairs
from tests.support.repeatable import repeatable


@dataclass(slots=True)
class Summary:
    """What many seeds came to."""

    seeds: int = 0
    acknowledged: int = 0
    struck: int = 0
    coverage: Coverage = field(default_factory=Coverage)
    limits: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: Summary) -> None:
        self.seeds += other.seeds
        self.acknowledged += other.acknowledged
        self.struck += other.struck
        self.coverage.add(other.coverage)
        self.limits.update(other.limits)
        self.failures += other.failures

    def never(self) -> list[tuple[str, Fault]]:
        """The pairs of step and fault that never met."""
        return [pair for pair in session_pairs() if not self.coverage.hits[pair]]


def one(seed: int) -> Run:
    with silence(), repeatable(seed):
        return run_sessions(seed)


def some(seeds: Sequence[int]) -> Summary:
    """These seeds one after the other, in this process."""
    summary = Summary(len(seeds))
    for seed in seeds:
        world = one(seed)
        summary.acknowledged += sum(said.done for said in world.told.said)
        summary.struck += len(world.plan.struck)
        summary.coverage.add(world.plan.coverage)
        summary.limits.update(world.told.limits)
        if world.told.broken:
            summary.failures.append(Failure(seed, tuple(world.told.broken)))
    return summary


def many(seeds: Sequence[int], *, jobs: int = 1) -> Iterator[Summary]:
    """What these seeds have come to so far, again and again."""
    return sum_up(some, Summary(), seeds, jobs)


def mutated(name: str) -> AbstractContextManager[None]:
    """The library with this mutation in it."""
    return MUTATIONS[name].applied()
