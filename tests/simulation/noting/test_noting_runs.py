"""Scratchpads under simulation; and the proof that a mutation would be noticed."""

from __future__ import annotations

import pytest

from memory.ports.contract.cells import cells
from tests.simulation.lives import ENOUGH, assert_noticed, one, unbroken
from tests.simulation.noting.mutations import MUTATIONS
from tests.simulation.noting.run import played
from tests.support import noticed
from tests.support.depth import seeds

SEEDS = seeds(ci=ENOUGH, quick=15, nightly=500)


@pytest.mark.drawn
def test_nothing_is_broken_under_faults(capsys: pytest.CaptureFixture[str]) -> None:
    worlds = unbroken("noting", SEEDS, played, capsys)
    assert sum(len(world.plan.struck) for world in worlds) > len(SEEDS)
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
    for seed in (0, 9):
        first, second = one(played, seed), one(played, seed)
        assert (first.plan.struck, first.seen) == (second.plan.struck, second.seen)


@pytest.mark.parametrize("mutation", noticed.cases("noting/", sorted(MUTATIONS)))
def test_a_mutation_in_scratchpads_is_noticed(mutation: str) -> None:
    assert_noticed(f"noting/{mutation}", MUTATIONS[mutation], played)


@cells("mutation", sorted(MUTATIONS), shared=True)
def test_a_mutation_still_finds_what_it_changes(mutation: str) -> None:
    with MUTATIONS[mutation].applied():
        pass
