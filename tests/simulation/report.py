"""The table of steps and faults, and which pairs were hit too seldom for a run to count
as a proof.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.faults import Coverage, Fault
from tests.simulation.steps import BESIDE, declared_pairs

LEAST, SEEDS = 100, 20_000
"""Every pair must be hit so often in so many seeds. A shorter run is held to its share,
for information only.
"""

Pair = tuple[str, Fault]

_SHORT = {
    Fault.CRASH_BEFORE: "crash<",
    Fault.CRASH_AFTER: "crash>",
    Fault.ERROR_BEFORE: "error<",
    Fault.ERROR_AFTER: "error>",
    Fault.TIMEOUT: "timeout",
    Fault.DELAY: "delay",
    Fault.REORDER: "reorder",
    Fault.DUPLICATE: "twice",
    Fault.PARTIAL: "partial",
    Fault.DOWN: "down",
    Fault.EMPTIED: "emptied",
    Fault.ROLLED_BACK: "rolled",
    Fault.CLOCK: "clock",
    Fault.FROZEN: "frozen",
    Fault.CANCELLED: "given up",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which declared pairs were hit too seldom, the seldomest first, and which met
    though they are not declared.
    """

    pairs: int
    least: float
    binding: bool
    seldom: tuple[tuple[int, Pair], ...]
    undeclared: tuple[Pair, ...]

    @property
    def failed(self) -> bool:
        return self.binding and bool(self.seldom or self.undeclared)

    def __str__(self) -> str:
        lines = [f"{hits:>6}  {step}, {fault}" for hits, (step, fault) in self.seldom]
        lines += [f"     ?  {step}, {fault}: met, but not declared" for step, fault in self.undeclared]
        wanted = f"{self.least:g} hits" + (
            "" if self.binding else f", their share of {LEAST} in {SEEDS:,} seeds (for information)"
        )
        return "\n".join(
            [
                (
                    f"of {self.pairs} pairs of step and fault {len(lines)} stay under"
                    f" {wanted}{':' if lines else ''}"
                ),
                *lines,
            ]
        )


def verdict(coverage: Coverage, seeds: int) -> Verdict:
    declared, least = declared_pairs(), LEAST * min(1.0, seeds / SEEDS)
    seldom = sorted((coverage.hits[pair], pair) for pair in declared if coverage.hits[pair] < least)
    return Verdict(
        len(declared),
        least,
        seeds >= SEEDS,
        tuple(seldom),
        tuple(sorted(pair for pair in coverage.pairs - declared if pair[0] not in BESIDE)),
    )


def seldomest(coverage: Coverage) -> tuple[int, str, str]:
    """The declared pair that was hit least."""
    return min((coverage.hits[pair], *pair) for pair in declared_pairs())


def table(coverage: Coverage) -> str:
    """One line a step, one column a fault; a dash where the fault cannot strike there,
    see `tests.simulation.steps.can_meet`.
    """
    pairs = coverage.pairs | declared_pairs()
    steps = sorted({step for step, _ in pairs})
    width = max((len(s) for s in steps), default=4)
    lines = [" " * width + "".join(f"{_SHORT[f]:>8}" for f in Fault)]
    for step in steps:
        cells = (str(coverage.hits[step, f]) if (step, f) in pairs else "-" for f in Fault)
        lines.append(f"{step:<{width}}" + "".join(f"{c:>8}" for c in cells))
    least, step, fault = seldomest(coverage)
    lines.append(
        f"least: {least} ({step}, {fault}); {sum(coverage.hits.values())} faults in {len(pairs)} pairs"
    )
    return "\n".join(lines)
