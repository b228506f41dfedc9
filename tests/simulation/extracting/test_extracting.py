"""Recordings under simulation: the same seeds on every run, and fresh ones in `make
nightly`; and the proof that a mutation would be noticed.
"""

from __future__ import annotations

import pytest

from tests.simulation.extracting.many import one, some
from tests.simulation.extracting.mutations import MUTATIONS
from tests.support import noticed
from tests.support.depth import THOROUGH

SEEDS = noticed.sound_seeds("extracting", quick=10, nightly=150)
NOTICED_WITHIN = 1_000


@pytest.mark.drawn
def test_what_was_said_comes_to_every_store_under_faults(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\nrecordings: {SEEDS}")
    total = some(SEEDS)
    assert not {failure.seed: failure.violations[0] for failure in total.failures}, (
        "python -m tests.simulation.extracting --seed … shows one again"
    )
    assert total.struck > len(SEEDS)
    assert total.sure > 3 * len(SEEDS)


@pytest.mark.parametrize("mutation", noticed.cases("extracting/", sorted(MUTATIONS)))
def test_a_mutation_in_recording_is_noticed(mutation: str) -> None:
    noticed.assert_shows(
        f"extracting/{mutation}",
        MUTATIONS[mutation].applied,
        lambda seed: bool(one(seed).broken),
        range(NOTICED_WITHIN),
        sound_elsewhere=THOROUGH,
    )


def test_a_run_of_recordings_is_replayed_to_the_letter() -> None:
    seeds = (1, 3, 4)
    assert [one(seed).run.trace for seed in seeds] == [one(seed).run.trace for seed in seeds]
