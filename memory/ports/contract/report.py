"""The report at the end of a run: for each harness, which clauses of the contract passed, by the capability they belong to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from memory.ports.contract.clauses import CLAUSES

PROPERTY = "memory_contract"
"""What a test proves for whom travels with its report: also from a worker of pytest-xdist to whoever tells it."""
SEED = "memory_history_seed"
EVERYONE = "every store"


@dataclass
class Verdicts:
    """What came of the clauses, by harness."""

    passed: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    failed: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    seeds: set[str] = field(default_factory=set)

    def take(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == PROPERTY and isinstance(value, list) and (report.when == "call" or report.failed):
                harness, *clauses = value
                (self.passed if report.passed else self.failed)[harness].update(clauses)

            if name == SEED and report.when == "call":
                self.seeds.add(str(value))

    def lines(self, whole: bool) -> Iterator[str]:
        for harness in sorted({*self.passed, *self.failed}):
            failed = self.failed[harness]
            passed = self.passed[harness] - failed
            yield f"{harness}: {len(passed)} clauses passed" + (f", {len(failed)} failed: {', '.join(sorted(failed))}" if failed else "")
            if whole:
                for needs in dict.fromkeys(c.needs for c in CLAUSES.values()):
                    mine = [c.id for c in CLAUSES.values() if c.needs == needs and c.id in passed]
                    if mine:
                        yield f"    {needs or EVERYONE}: {', '.join(mine)}"
        if self.seeds:
            yield f"histories, by seed: {'; '.join(sorted(self.seeds))}"
