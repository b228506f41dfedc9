"""The graph under simulation; and the proof that a mutation would be noticed."""

from __future__ import annotations

import pytest

from tests.simulation.linking.mutations import MUTATIONS
from tests.simulation.linking.run import played
from tests.simulation.lives import ENOUGH, assert_noticed, assert_repeats, assert_shown, unbroken
from tests.support import noticed

SEEDS = noticed.sound_seeds("linking", quick=15, nightly=500)


@pytest.mark.drawn
def test_nothing_is_broken_under_faults(capsys: pytest.CaptureFixture[str]) -> None:
    worlds = unbroken("linking", SEEDS, played, capsys)
    if len(SEEDS) < ENOUGH:
        return
    assert sum(world.acknowledged for world in worlds) > 10 * len(SEEDS)
    assert sum(world.asked for world in worlds) > 30 * len(SEEDS)
    assert_shown(worlds, 0.65, lambda world: len(world.linked) > 2, "more than two links")
    assert {len(world.servers) for world in worlds} == {1, 2, 3}


def test_a_seed_is_the_same_run_again() -> None:
    assert_repeats(played, lambda world: (world.plan.struck, world.linked, world.asked))


@pytest.mark.parametrize("mutation", noticed.cases("linking/", sorted(MUTATIONS)))
def test_a_mutation_in_the_graph_is_noticed(mutation: str) -> None:
    assert_noticed(f"linking/{mutation}", MUTATIONS[mutation], played)
