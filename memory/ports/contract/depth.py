"""How much a run of the contract draws.

The tests are the same at every depth: each runs for each harness that it fits.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Depth:
    """The amounts that a test draws."""

    seeds: int
    """The number of seeds of a test."""
    examples: int
    """Random questions and values, beside those that are listed by hand."""
    many: int
    """The most records of the volume tests."""
    rounds: int
    """How often calls are cut off, each time at other moments."""


FULL = Depth(seeds=3, examples=100, many=10_050, rounds=8)
QUICK = Depth(seeds=1, examples=20, many=1_050, rounds=2)

DEPTHS = {"full": FULL, "quick": QUICK}
"""The depths by their names in `--contract-depth`."""
