"""Documents under simulation; and the proof that a mutation would be noticed."""

from __future__ import annotations

import pytest

from tests.simulation.keeping.mutations import MUTATIONS
from tests.simulation.keeping.run import played
from tests.simulation.lives import ENOUGH, assert_noticed, assert_repeats, unbroken
from tests.support import noticed

SEEDS = noticed.sound_seeds("keeping", quick=15, nightly=500)


@pytest.mark.drawn
def test_nothing_is_broken_under_faults(capsys: pytest.CaptureFixture[str]) -> None:
    worlds = unbroken("keeping", SEEDS, played, capsys)
    if len(SEEDS) < ENOUGH:
        return
    assert sum(world.acknowledged for world in worlds) > 10 * len(SEEDS)
    acts = [act for world in worlds for act in world.acts.values()]
    assert sum(act.outcome == "refused" for act in acts) > len(SEEDS) / 2, "refused changes"
    assert sum(act.expected not in (None, "") for act in acts) > len(SEEDS) / 2, "changes of versions"
    assert sum(len(act.keys) > 1 and act.outcome == "done" for act in acts) > len(SEEDS), "groups"


def test_a_seed_is_the_same_run_again() -> None:
    assert_repeats(played, lambda world: (world.plan.struck, world.seen))


@pytest.mark.parametrize("mutation", noticed.cases("keeping/", sorted(MUTATIONS)))
def test_a_mutation_in_documents_is_noticed(mutation: str) -> None:
    assert_noticed(f"keeping/{mutation}", MUTATIONS[mutation], played)
