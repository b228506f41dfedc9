"""Scratchpads under simulation; and the proof that a slip would be noticed."""

from __future__ import annotations

import os
import secrets

import pytest

from memory.ports.contract.cells import cells
from tests.simulation.lives import assert_noticed, one
from tests.simulation.noting.run import played
from tests.simulation.noting.slips import SLIPS

THOROUGH = bool(os.environ.get("MEMORY_THOROUGH"))
SEEDS = 2_000 if THOROUGH else 60
FIRST = int(os.environ.get("SIMULATION_FIRST", secrets.randbelow(10**9)))
SOON_NOTICED = {
    "the-cap-is-looked-at-before-the-append-only",
    "a-clearing-takes-what-it-did-not-see",
    "an-append-whose-answer-was-lost-is-made-twice",
    "parts-come-after-their-row",
    "who-is-slow-writes-where-a-clearing-deleted",
}
"""The slips that everyone's run tries."""


def test_nothing_is_broken_under_faults(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\nnoting: {SEEDS} seeds from {FIRST}")
    runs = {seed: one(played, seed) for seed in range(FIRST, FIRST + SEEDS)}
    assert not {seed: world.broken[0] for seed, world in runs.items() if world.broken}
    assert sum(len(world.plan.struck) for world in runs.values()) > SEEDS
    assert sum(world.acknowledged for world in runs.values()) > 10 * SEEDS
    rows = [row for world in runs.values() for row in world.seen.values()]
    assert sum(row.length == 0 for row in rows) > SEEDS / 2, "clearings"
    assert sum(row.parts > 1 for row in rows) > SEEDS, "appends in parts"
    assert sum(act.outcome == "refused" for world in runs.values() for act in world.acts) > SEEDS / 2, "appends for which there is no room"


def test_a_seed_is_the_same_run_again() -> None:
    for seed in range(0, 12, 3):
        first, second = one(played, seed), one(played, seed)
        assert (first.plan.struck, first.seen) == (second.plan.struck, second.seen)


@pytest.mark.turn
@pytest.mark.parametrize("slip", [pytest.param(name, marks=[] if name in SOON_NOTICED else pytest.mark.thorough) for name in sorted(SLIPS)])
def test_a_slip_in_scratchpads_is_noticed(slip: str) -> None:
    assert_noticed(f"noting/{slip}", SLIPS[slip], played)


@cells("slip", sorted(SLIPS), shared=True)
def test_a_slip_still_finds_what_it_changes(slip: str) -> None:
    with SLIPS[slip].applied():
        pass
