"""A tenant's erasure under simulation; and the proof that a mutation would be noticed."""

from __future__ import annotations

from functools import partial
from math import inf

import pytest

from memory.orchestrator.storage.collections import ENTRIES, SESSIONS
from tests.simulation.erasing.mutations import MUTATIONS
from tests.simulation.erasing.run import played
from tests.simulation.erasing.told import ERASED, Life, Run
from tests.simulation.lives import assert_noticed, assert_repeats, assert_shown, unbroken
from tests.support import noticed

ENOUGH = 60
"""Of fewer seeds too few show what a fifth of them shows."""
SEEDS = noticed.sound_seeds("erasing", quick=15, nightly=250)


@pytest.mark.drawn
def test_nothing_is_broken_under_faults(capsys: pytest.CaptureFixture[str]) -> None:
    worlds = unbroken("erasing", SEEDS, played, capsys)
    if len(SEEDS) < ENOUGH:
        return
    assert sum(world.acknowledged for world in worlds) > 10 * len(SEEDS)
    assert_shown(worlds, 0.35, lambda world: world.receipts, "that an erasure was told to have ended")
    assert_shown(worlds, 0.19, lambda world: len(world.moments) > 1, "two erasures")
    for of in (ENTRIES.name, SESSIONS.name):
        assert_shown(worlds, 0.4, partial(went, of=of), f"that {of} went")
        assert_shown(worlds, 0.25, partial(stand, of=of), f"{of} that stand")


def went(world: Run, of: str) -> list[Life]:
    return [life for life in of_erased(world, of) if life.ended < inf]


def stand(world: Run, of: str) -> list[Life]:
    return [life for life in of_erased(world, of) if life.ended == inf]


def of_erased(world: Run, of: str) -> list[Life]:
    """What there was of this collection, where the tenant was erased."""
    lives = [life for lives in world.lives.values() for life in lives]
    return [life for life in lives if world.moments and life.of == of and life.key.tenant == ERASED]


def test_a_seed_is_the_same_run_again() -> None:
    assert_repeats(played, lambda world: (world.plan.struck, world.moments, world.lives.keys()))


@pytest.mark.parametrize("mutation", noticed.cases("erasing/", sorted(MUTATIONS)))
def test_a_mutation_in_the_erasure_of_a_tenant_is_noticed(mutation: str) -> None:
    assert_noticed(f"erasing/{mutation}", MUTATIONS[mutation], played)
