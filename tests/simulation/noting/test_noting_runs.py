"""Scratchpads under simulation; and the proof that a mutation would be noticed."""

from __future__ import annotations

import pytest

from tests.simulation.lives import ENOUGH, assert_noticed, assert_repeats, unbroken
from tests.simulation.noting.mutations import MUTATIONS
from tests.simulation.noting.run import played
from tests.support import noticed

SEEDS = noticed.sound_seeds("noting", quick=15, nightly=500)


@pytest.mark.drawn
def test_nothing_is_broken_under_faults(capsys: pytest.CaptureFixture[str]) -> None:
    worlds = unbroken("noting", SEEDS, played, capsys)
    if len(SEEDS) < ENOUGH:
        return
    assert sum(world.acknowledged for world in worlds) > 10 * len(SEEDS)
    rows = [row for world in worlds for row in world.seen.values()]
    assert sum(row.length == 0 for row in rows) > len(SEEDS) / 2, "clearings"
    assert sum(row.parts > 1 for row in rows) > len(SEEDS), "appends in parts"
    assert sum(act.outcome == "refused" for world in worlds for act in world.acts) > len(SEEDS) / 2, (
        "appends for which there is no room"
    )


def test_a_seed_is_the_same_run_again() -> None:
    assert_repeats(played, lambda world: (world.plan.struck, world.seen))


@pytest.mark.parametrize("mutation", noticed.cases("noting/", sorted(MUTATIONS)))
def test_a_mutation_in_scratchpads_is_noticed(mutation: str) -> None:
    assert_noticed(f"noting/{mutation}", MUTATIONS[mutation], played)
