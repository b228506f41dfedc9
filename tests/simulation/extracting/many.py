"""Many seeds of recordings, and one seed exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.simulation.extracting.run import run_recordings
from tests.simulation.extracting.told import Told
from tests.simulation.runner import Failure, silence
from tests.support.repeatable import repeatable


@dataclass(slots=True)
class Summary:
    """What many seeds came to."""

    seeds: int = 0
    sure: int = 0
    """Messages that were acknowledged."""
    struck: int = 0
    failures: list[Failure] = field(default_factory=list)


def one(seed: int) -> Told:
    with silence(), repeatable(seed):
        return run_recordings(seed)


def some(seeds: Sequence[int]) -> Summary:
    """These seeds one after the other, in this process."""
    summary = Summary(len(seeds))
    for seed in seeds:
        told = one(seed)
        summary.sure += sum(said.sure for said in told.said.values())
        summary.struck += len(told.run.plan.struck)
        if told.broken:
            summary.failures.append(Failure(seed, tuple(told.broken)))
    return summary
