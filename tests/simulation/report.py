"""The table of steps and faults, and how seldom the seldomest was hit."""

from __future__ import annotations

from tests.simulation.faults import Coverage, Fault

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
}


def seldomest(coverage: Coverage) -> tuple[int, str, str]:
    """The pair that was hit least, of those that can occur at all."""
    return min(((coverage.hits[pair], *pair) for pair in coverage.pairs), default=(0, "-", "-"))


def table(coverage: Coverage) -> str:
    """One line a step, one column a fault; a dash where the fault cannot strike there (`partial` where nothing is written in batches)."""
    pairs = coverage.pairs
    steps = sorted({step for step, _ in pairs})
    width = max((len(s) for s in steps), default=4)
    lines = [" " * width + "".join(f"{_SHORT[f]:>8}" for f in Fault)]
    for step in steps:
        cells = (str(coverage.hits[step, f]) if (step, f) in pairs else "-" for f in Fault)
        lines.append(f"{step:<{width}}" + "".join(f"{c:>8}" for c in cells))
    least, step, fault = seldomest(coverage)
    lines.append(f"least: {least} ({step}, {fault}); {sum(coverage.hits.values())} faults in {len(pairs)} pairs")
    return "\n".join(lines)
