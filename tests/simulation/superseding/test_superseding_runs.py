"""Entries that take the place of others, under simulation; and the proof that a mutation
would be noticed.
"""

from __future__ import annotations

import pytest

from tests.simulation.lives import ENOUGH, assert_noticed, assert_repeats, unbroken
from tests.simulation.superseding.mutations import MUTATIONS
from tests.simulation.superseding.run import played
from tests.support import noticed

SEEDS = noticed.sound_seeds("superseding", quick=15, nightly=500)


@pytest.mark.drawn
def test_nothing_is_broken_under_faults(capsys: pytest.CaptureFixture[str]) -> None:
    worlds = unbroken("superseding", SEEDS, played, capsys)
    if len(SEEDS) < ENOUGH:
        return
    assert sum(world.acknowledged for world in worlds) > 5 * len(SEEDS)
    assert {len(world.servers) for world in worlds} == {1, 2, 3}
    assert {world.at_once for world in worlds} == {True, False}


def test_a_seed_is_the_same_run_again() -> None:
    assert_repeats(played, lambda world: (world.plan.struck, world.ends, world.linked))


@pytest.mark.parametrize("mutation", noticed.cases("superseding/", sorted(MUTATIONS)))
def test_a_mutation_in_superseding_is_noticed(mutation: str) -> None:
    assert_noticed(f"superseding/{mutation}", MUTATIONS[mutation], played)
