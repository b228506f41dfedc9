"""Rules, quotas, holds and workers under simulation: the same seeds on every run, and
fresh ones in `make nightly`; and proof of the judge.
"""

from __future__ import annotations

import pytest

from tests.simulation.faults import Fault
from tests.simulation.lives import least
from tests.simulation.rules.crashes import CUT, cut_off
from tests.simulation.rules.many import one, some
from tests.simulation.rules.mutations import MUTATIONS
from tests.simulation.rules.run import AIMED
from tests.simulation.rules.told import Came, Kind
from tests.simulation.runner import silence
from tests.support import noticed
from tests.support.depth import THOROUGH, beyond, drawn
from tests.support.repeatable import repeatable

SEEDS = noticed.sound_seeds("rules", quick=8, nightly=60)
NOTICED_WITHIN = 3_000


@pytest.mark.drawn
def test_no_promise_of_rules_is_broken_under_faults(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\nrules: {SEEDS}")
    total = some(SEEDS)
    assert not {failure.seed: failure.violations[0] for failure in total.failures}, (
        "make simulate RULES=1 SEED=… shows one again"
    )
    assert total.struck > len(SEEDS)
    assert total.gone > len(SEEDS)
    assert total.had_more >= least(len(SEEDS), 0.6)


@pytest.mark.nightly
def test_a_run_meets_what_it_is_about() -> None:
    total = some(range(60))
    never = {f"{kind}, {came}" for kind, came in _EXPECTED} - total.came.keys()
    assert not never
    assert len(total.never()) < len(AIMED) / 4


@pytest.mark.parametrize(
    "act", [pytest.param(act, marks=beyond(act, ("hold", "release"), ("end",))) for act in CUT]
)
@pytest.mark.thorough
def test_an_act_that_is_cut_off_at_any_call_leaves_nothing_broken(act: str) -> None:
    with silence(), repeatable(1):
        worlds = list(cut_off(act, Fault.CRASH_AFTER))
    assert not {str(world.plan.struck): world.told.broken[0] for world in worlds if world.told.broken}
    assert [len(world.plan.struck) for world in worlds] == [*[1] * (len(worlds) - 1), 0]
    assert len(worlds) > 2


_EXPECTED = [
    *((Kind.WRITE, came) for came in (Came.DONE, Came.FULL, Came.OPEN)),
    *((kind, Came.HELD) for kind in (Kind.DELETE, Kind.ERASE)),
    *((kind, Came.OPEN) for kind in (Kind.DELETE, Kind.ERASE, Kind.SWEEP)),
    *((kind, Came.DONE) for kind in Kind),
]


@pytest.mark.parametrize("mutation", noticed.cases("rules/", sorted(MUTATIONS)))
def test_a_mutation_in_what_acts_by_rules_is_noticed(mutation: str) -> None:
    noticed.assert_shows(
        f"rules/{mutation}",
        MUTATIONS[mutation].applied,
        lambda seed: bool(one(seed).told.broken),
        range(NOTICED_WITHIN),
        sound_elsewhere=THOROUGH,
    )


def test_a_run_of_rules_is_replayed_to_the_letter_traced_or_not() -> None:
    for seed in (1, 3, 5)[: drawn(3, quick=1)]:
        first, second, plain = one(seed, traced=True), one(seed, traced=True), one(seed)
        assert first.trace == second.trace
        assert first.plan.struck == second.plan.struck == plain.plan.struck
        assert first.told.entries == plain.told.entries
