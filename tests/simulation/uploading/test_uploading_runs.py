"""Artifacts under simulation; and the proof that a mutation would be noticed."""

from __future__ import annotations

from functools import partial

import pytest

from tests.simulation.lives import assert_noticed, assert_repeats, assert_shown, unbroken
from tests.simulation.uploading.mutations import MUTATIONS
from tests.simulation.uploading.run import World, played
from tests.simulation.uploading.saying import is_in
from tests.support import noticed

ENOUGH = 60
"""Of fewer seeds too few show what a fifth of them shows."""
SEEDS = noticed.sound_seeds("uploading", quick=15, nightly=250)


@pytest.mark.drawn
def test_nothing_is_broken_under_faults(capsys: pytest.CaptureFixture[str]) -> None:
    worlds = unbroken("uploading", SEEDS, played, capsys)
    if len(SEEDS) < ENOUGH:
        return
    assert sum(world.acknowledged for world in worlds) > 10 * len(SEEDS)
    assert {len(world.servers) for world in worlds} == {1, 2, 3}
    uploads = [upload for world in worlds for upload in world.uploads.values()]
    assert sum(upload.came is not None for upload in uploads) > 3 * len(SEEDS)
    assert sum(upload.outcome == "refused" for upload in uploads) > len(SEEDS) / 2, (
        "uploads for which there is no room"
    )
    saying = [world for world in worlds if is_in(world.seed)]
    assert_shown(saying, 0.7, partial(came_to, "done"), "messages with large texts")
    assert_shown(saying, 0.5, partial(came_to, "refused"), "such for which there is no room")
    assert sum(len(world.died) for world in worlds) > len(SEEDS) / 2, "artifacts that were deleted"
    assert_shown(worlds, 0.27, lambda world: world.let_go(), "entries that pointed to one of them")


def came_to(outcome: str, world: World) -> bool:
    """Whether that became of anything that was said."""
    return any(said.outcome == outcome for said in world.said.values())


def test_a_seed_is_the_same_run_again_to_the_letter() -> None:
    assert_repeats(played, lambda world: (world.trace, world.shown))


@pytest.mark.parametrize("mutation", noticed.cases("uploading/", sorted(MUTATIONS)))
def test_a_mutation_in_artifacts_is_noticed(mutation: str) -> None:
    assert_noticed(f"uploading/{mutation}", MUTATIONS[mutation], played)
