"""Copies of windows under simulation; and the proof that a mutation would be noticed."""

from __future__ import annotations

import pytest

from tests.simulation.sessions.copies import MUTATIONS, STEPS, one
from tests.support import noticed

SEEDS = noticed.sound_seeds("copies", quick=6, nightly=120)
NOTICED_WITHIN = 300


@pytest.mark.drawn
def test_no_window_is_shown_otherwise_because_of_its_copy(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\ncopies of windows: {SEEDS}")
    worlds = [one(seed) for seed in SEEDS]
    assert not {world.seed: world.told.broken[0] for world in worlds if world.told.broken}
    taken = [line for world in worlds for line in world.trace if " -> " in line]
    for step in STEPS:
        assert sum(step in line for line in taken) > len(SEEDS), step


def test_a_seed_is_the_same_run_again() -> None:
    assert one(3).trace == one(3).trace


@pytest.mark.parametrize("mutation", noticed.cases("copies/", sorted(MUTATIONS)))
def test_a_mutation_in_copies_of_windows_is_noticed(mutation: str) -> None:
    noticed.assert_shows(
        f"copies/{mutation}",
        MUTATIONS[mutation].applied,
        lambda seed: bool(one(seed).told.broken),
        range(NOTICED_WITHIN),
    )
