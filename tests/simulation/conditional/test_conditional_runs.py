"""Changes that expect a version, under simulation; and the proof that a mutation would be
noticed.
"""

from __future__ import annotations

import pytest

from tests.simulation.conditional.mutations import MUTATIONS
from tests.simulation.conditional.run import played
from tests.simulation.lives import ENOUGH, assert_noticed, assert_repeats, unbroken
from tests.support import noticed

SEEDS = noticed.sound_seeds("conditional", quick=15, nightly=500)


@pytest.mark.drawn
def test_nothing_is_broken_under_faults(capsys: pytest.CaptureFixture[str]) -> None:
    worlds = unbroken("conditional", SEEDS, played, capsys)
    if len(SEEDS) < ENOUGH:
        return
    outcomes = {(call.kind, call.outcome) for world in worlds for call in world.calls}
    kinds = {"create", "replace", "merge", "update", "delete"}
    assert outcomes >= {(kind, outcome) for kind in kinds for outcome in ("won", "lost")}
    assert {len(world.servers) for world in worlds} == {1, 2, 3}


def test_a_seed_is_the_same_run_again() -> None:
    assert_repeats(played, lambda world: (world.plan.struck, world.seen, world.ended))


@pytest.mark.parametrize("mutation", noticed.cases("conditional/", sorted(MUTATIONS)))
def test_a_mutation_of_conditional_changes_is_noticed(mutation: str) -> None:
    assert_noticed(f"conditional/{mutation}", MUTATIONS[mutation], played)
