"""How much a run of the contract draws. What it asks is the same at every depth: each
test runs for each harness it concerns.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Depth:
    """What is drawn, where a test draws."""

    seeds: int
    """Of the seeds that a test goes through, so many."""
    examples: int
    """Random questions and values, beside those that are listed by hand."""
    many: int
    """How many records the volumes are, at most."""
    rounds: int
    """How often calls are cut off, each time at other moments."""


FULL = Depth(seeds=3, examples=100, many=10_050, rounds=8)
QUICK = Depth(seeds=1, examples=20, many=1_050, rounds=2)

DEPTHS = {"full": FULL, "quick": QUICK}
"""By the names that `--contract-depth` takes."""
