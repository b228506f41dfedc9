"""Many seeds of rules on several processes, and one seed exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.simulation.faults import Coverage
from tests.simulation.rules.run import AIMED, Run, run_rules
from tests.simulation.rules.told import Call
from tests.simulation.runner import Failure, silence, sum_up
from tests.support.repeatable import repeatable


@dataclass(slots=True)
class Summary:
    """What many seeds came to."""

    seeds: int = 0
    struck: int = 0
    gone: int = 0
    """Entries that went."""
    rounds: int = 0
    """Rounds of maintenance that had more to do than they might."""
    had_more: int = 0
    """Seeds that had such a round."""
    came: Counter[str] = field(default_factory=Counter)
    """What came of calls, by their kind."""
    coverage: Coverage = field(default_factory=Coverage)
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: Summary) -> None:
        self.seeds += other.seeds
        self.struck += other.struck
        self.gone += other.gone
        self.rounds += other.rounds
        self.had_more += other.had_more
        self.came.update(other.came)
        self.coverage.add(other.coverage)
        self.failures += other.failures

    def never(self) -> list[str]:
        """The steps aimed at that nothing struck."""
        met = {step for step, _ in self.coverage.hits}
        return [step for step in AIMED if step not in met]


def one(seed: int, *, traced: bool = False) -> Run:
    with silence(), repeatable(seed):
        return run_rules(seed, traced=traced)


def some(seeds: Sequence[int]) -> Summary:
    """These seeds one after the other, in this process."""
    summary = Summary(len(seeds))
    for seed in seeds:
        world = one(seed)
        summary.struck += len(world.plan.struck)
        summary.gone += sum(seen.gone < float("inf") for seen in world.told.entries.values())
        summary.rounds += world.told.rounds
        summary.had_more += world.told.rounds > 0
        summary.came.update(map(_said, world.told.calls))
        summary.coverage.add(world.plan.coverage)
        if world.told.broken:
            summary.failures.append(Failure(seed, tuple(world.told.broken)))
    return summary


def _said(call: Call) -> str:
    return f"{call.kind}, {call.came}"


def many(seeds: Sequence[int], *, jobs: int = 1) -> Iterator[Summary]:
    """What these seeds have come to so far, again and again."""
    return sum_up(some, Summary(), seeds, jobs)
