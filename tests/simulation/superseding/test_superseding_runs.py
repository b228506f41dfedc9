"""Entries that take the place of others, under simulation; and the proof that a mutation
would be noticed.
"""

from __future__ import annotations

import pytest

from memory.ports.contract.cells import cells
from tests.simulation.lives import ENOUGH, assert_noticed, one, unbroken
from tests.simulation.superseding.mutations import MUTATIONS
from tests.simulation.superseding.run import played
from tests.support import noticed
from tests.support.depth import seeds

SEEDS = seeds(ci=ENOUGH, quick=15, nightly=500)


@pytest.mark.drawn
def test_nothing_is_broken_under_faults(capsys: pytest.CaptureFixture[str]) -> None:
    worlds = unbroken("superseding", SEEDS, played, capsys)
    assert sum(len(world.plan.struck) for world in worlds) > len(SEEDS)
    if len(SEEDS) < ENOUGH:
        return
    assert sum(world.acknowledged for world in worlds) > 5 * len(SEEDS)
    assert {len(world.servers) for world in worlds} == {1, 2, 3}
    assert {world.at_once for world in worlds} == {True, False}


def test_a_seed_is_the_same_run_again() -> None:
    for seed in (0, 9):
        first, second = one(played, seed), one(played, seed)
        assert (first.plan.struck, first.ends, first.linked) == (
            second.plan.struck,
            second.ends,
            second.linked,
        )


@pytest.mark.parametrize("mutation", noticed.cases("superseding/", sorted(MUTATIONS)))
def test_a_mutation_in_superseding_is_noticed(mutation: str) -> None:
    assert_noticed(f"superseding/{mutation}", MUTATIONS[mutation], played)


@cells("mutation", sorted(MUTATIONS), shared=True)
def test_a_mutation_still_finds_what_it_changes(mutation: str) -> None:
    with MUTATIONS[mutation].applied():
        pass
