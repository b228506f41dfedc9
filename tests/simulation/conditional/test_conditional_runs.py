"""Changes that expect a version, under simulation; and the proof that a mutation would be
noticed.
"""

from __future__ import annotations

import pytest

from memory.ports.contract.cells import cells
from tests.simulation.conditional.mutations import MUTATIONS
from tests.simulation.conditional.run import played
from tests.simulation.lives import ENOUGH, assert_noticed, one, unbroken
from tests.support import noticed
from tests.support.depth import seeds

SEEDS = seeds(ci=ENOUGH, quick=15, nightly=500)


@pytest.mark.drawn
def test_nothing_is_broken_under_faults(capsys: pytest.CaptureFixture[str]) -> None:
    worlds = unbroken("conditional", SEEDS, played, capsys)
    if len(SEEDS) < ENOUGH:
        return
    assert sum(len(world.plan.struck) for world in worlds) > len(SEEDS)
    outcomes = {(call.kind, call.outcome) for world in worlds for call in world.calls}
    kinds = {"create", "replace", "merge", "update", "delete"}
    assert outcomes >= {(kind, outcome) for kind in kinds for outcome in ("won", "lost")}
    assert {len(world.servers) for world in worlds} == {1, 2, 3}


def test_a_seed_is_the_same_run_again() -> None:
    for seed in (0, 9):
        first, second = one(played, seed), one(played, seed)
        assert (first.plan.struck, first.seen, first.ended) == (second.plan.struck, second.seen, second.ended)


@pytest.mark.parametrize("mutation", noticed.cases("conditional/", sorted(MUTATIONS)))
def test_a_mutation_of_conditional_changes_is_noticed(mutation: str) -> None:
    assert_noticed(f"conditional/{mutation}", MUTATIONS[mutation], played)


@cells("mutation", sorted(MUTATIONS), shared=True)
def test_a_mutation_still_finds_what_it_changes(mutation: str) -> None:
    with MUTATIONS[mutation].applied():
        pass
