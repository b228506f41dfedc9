"""Many seeds on several processes, one seed exactly, and what they came to."""

from __future__ import annotations

import logging
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Protocol, Self, TypeVar

from memory.policies import passage_splitting
from tests.simulation.client import EngineClient
from tests.simulation.endings import ENDINGS
from tests.simulation.faults import Coverage
from tests.simulation.mutants import MUTANTS, applied
from tests.simulation.setup import staleness
from tests.simulation.shrink import Variant, shrink
from tests.simulation.steps import aim_at, focus_of
from tests.simulation.workload import Scenario, scenario
from tests.simulation.world import Result, simulate
from tests.support.repeatable import repeatable

CHUNK = 25
"""Seeds that a process takes at once."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A seed that broke an invariant."""

    seed: int
    violations: tuple[str, ...]


@dataclass(slots=True)
class Summary:
    """What many seeds came to."""

    seeds: int = 0
    seconds: float = 0.0
    fewest: int = sys.maxsize
    coverage: Coverage = field(default_factory=Coverage)
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: Summary) -> None:
        self.seeds += other.seeds
        self.fewest = min(self.fewest, other.fewest)
        self.coverage.add(other.coverage)
        self.failures += other.failures


def scenario_of(seed: int) -> Scenario:
    focus = focus_of(seed)
    return scenario(seed, focus, aim_at(*focus), ENDINGS)


@contextmanager
def long_texts(plan: Scenario) -> Iterator[None]:
    """In some runs, and in those aimed at passages, texts of a few characters count as
    long: all of them, or those longer than others.
    """
    ordinary = passage_splitting.PART, passage_splitting.FINE
    if plan.seed % 4 == 0 or focus_of(plan.seed)[0].startswith("passages."):
        passage_splitting.PART, passage_splitting.FINE = (6, 16)[plan.seed // 4 % 2], 6
    try:
        yield
    finally:
        passage_splitting.PART, passage_splitting.FINE = ordinary


def run_variant(plan: Scenario, variant: Variant | None = None, *, traced: bool = False) -> Result:
    """One run of one scenario. The same arguments give the same run, to the letter."""
    chosen = variant or Variant()
    with repeatable(plan.seed), long_texts(plan):
        return simulate(
            plan,
            EngineClient,
            dropped=chosen.dropped,
            spared=chosen.spared,
            schedule=chosen.schedule,
            traced=traced,
            stale=staleness,
        )


def run_seed(seed: int, *, traced: bool = False) -> Result:
    return run_variant(scenario_of(seed), traced=traced)


def shrink_seed(seed: int) -> tuple[Scenario, Variant]:
    """The smallest failing part of a failing seed."""
    plan = scenario_of(seed)
    return plan, shrink(plan, lambda variant: run_variant(plan, variant))


@contextmanager
def silence() -> Iterator[None]:
    """The engine logs what it meets, and meets thousands of faults on purpose."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def run_chunk(seeds: Sequence[int], mutant: str | None = None) -> Summary:
    """These seeds one after the other, in this process."""
    summary = Summary()
    with ExitStack() as stack:
        stack.enter_context(silence())
        if mutant is not None:
            stack.enter_context(applied(mutant))
        for seed in seeds:
            result = run_seed(seed)
            summary.seeds += 1
            summary.fewest = min(summary.fewest, result.performed)
            summary.coverage.add(result.coverage)
            if result.violations:
                summary.failures.append(Failure(seed, tuple(str(v) for v in result.violations)))
                if mutant is not None:
                    break
    return summary


def nearest_first(seeds: Sequence[int], near: tuple[str, ...]) -> Iterator[int]:
    """The same seeds, those first whose focus is at a step that begins with one of
    these, or that end with a scene of such a name.
    """
    ends = [seed for seed in seeds if scenario_of(seed).ending in near] if ENDINGS.keys() & set(near) else []
    first = set(ends)
    yield from sorted(seeds, key=lambda seed: not (seed in first or focus_of(seed)[0].startswith(near)))


def run_many(
    seeds: Sequence[int],
    *,
    jobs: int = 1,
    mutant: str | None = None,
    stop: int | None = None,
    progress: Callable[[Summary], None] | None = None,
) -> Summary:
    """These seeds. Ends early once `stop` have failed."""
    total, began = Summary(), time.monotonic()
    for part in _results(_chunks(seeds, mutant), jobs):
        total.add(part)
        total.seconds = time.monotonic() - began
        if progress is not None:
            progress(total)
        if stop is not None and len(total.failures) >= stop:
            break
    total.failures.sort(key=lambda f: f.seed)
    return total


def _chunks(seeds: Sequence[int], mutant: str | None) -> Iterator[tuple[list[int], str | None]]:
    """What a process takes at once. The seeds nearest to a mutant come first."""
    if mutant is not None:
        seeds = list(nearest_first(seeds, MUTANTS[mutant].near))
    for at in range(0, len(seeds), CHUNK):
        yield list(seeds[at : at + CHUNK]), mutant


def _untraced() -> None:
    """Tracing, such as coverage's, slows a simulation several times, and the other
    tests show the branches.
    """
    sys.settrace(None)


def _results(chunks: Iterator[tuple[list[int], str | None]], jobs: int) -> Iterator[Summary]:
    if jobs <= 1 and sys.gettrace() is None:
        yield from (run_chunk(*chunk) for chunk in chunks)
        return
    with multiprocessing.get_context("fork").Pool(max(jobs, 1), initializer=_untraced) as pool:
        yield from pool.imap_unordered(_run_packed, chunks)


def _run_packed(chunk: tuple[list[int], str | None]) -> Summary:
    return run_chunk(*chunk)


class _Adding(Protocol):
    def add(self, other: Self, /) -> None: ...


S = TypeVar("S", bound=_Adding)


def sum_up(some: Callable[[Sequence[int]], S], total: S, seeds: Sequence[int], jobs: int) -> Iterator[S]:
    """What `some` seeds have come to so far, again and again, on several processes."""
    chunks = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    with ExitStack() as stack:
        pool = stack.enter_context(multiprocessing.get_context("fork").Pool(jobs)) if jobs > 1 else None
        for part in map(some, chunks) if pool is None else pool.imap_unordered(some, chunks):
            total.add(part)
            yield total
