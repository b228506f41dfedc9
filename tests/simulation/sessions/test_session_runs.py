"""Sessions under simulation: as long as a build may take, and longer with MEMORY_THOROUGH; and the proof that a slip would be noticed."""

from __future__ import annotations

import os
import secrets
import sys
from contextlib import ExitStack
from unittest.mock import patch

import pytest

from tests.simulation.runner import _repeatable, silence
from tests.simulation.sessions.run import Run, run_sessions
from tests.simulation.sessions.slips import SLIPS
from tests.simulation.slips import Slip

SEEDS = 2_000 if os.environ.get("MEMORY_THOROUGH") else 60
FIRST = int(os.environ.get("SIMULATION_FIRST", secrets.randbelow(10**9)))
NOTICED_WITHIN = 1_000
SOON_NOTICED = {"a-place-is-taken-whoever-has-it", "what-is-true-after-a-lost-place-is-copied", "a-summary-of-others-rows"}
"""The slips that everyone's run tries."""


def one(seed: int) -> Run:
    with silence(), _repeatable(seed):
        return run_sessions(seed)


def noticed(slip: Slip, seeds: int) -> int | None:
    """The first seed whose run is broken with the slip."""
    owner, name, slipped = slip.patch()
    original = getattr(owner, name)
    importers = [m for n, m in sys.modules.items() if n.startswith("memory.") and m.__dict__.get(name) is original]
    with ExitStack() as stack:
        for each in {id(target): target for target in (owner, *importers)}.values():
            stack.enter_context(patch.object(each, name, slipped))
        return next((seed for seed in range(seeds) if one(seed).told.broken), None)


def test_no_invariant_of_sessions_is_broken_under_faults(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\nsessions: {SEEDS} seeds from {FIRST}")
    broken, struck, said = {}, 0, 0
    for seed in range(FIRST, FIRST + SEEDS):
        world = one(seed)
        struck, said = struck + len(world.plan.struck), said + sum(s.acknowledged is not None for s in world.told.said)
        if world.told.broken:
            broken[seed] = world.told.broken[0]
    assert not broken
    assert struck > SEEDS
    assert said > 3 * SEEDS


@pytest.mark.parametrize("slip", [pytest.param(name, marks=[] if name in SOON_NOTICED else pytest.mark.thorough) for name in sorted(SLIPS)])
def test_a_slip_in_conversations_is_noticed(slip: str) -> None:
    seed = noticed(SLIPS[slip], NOTICED_WITHIN)
    assert seed is not None, f"'{slip}' is not noticed"
    assert not one(seed).told.broken, f"seed {seed} fails without '{slip}' too"


def test_a_slip_that_changes_nothing_is_refused() -> None:
    with pytest.raises(LookupError, match="0 times"):
        Slip(SLIPS["a-summary-of-others-rows"].module, "Compacting.compact", "what is not there", "").patch()


def test_a_run_of_sessions_is_replayed_to_the_letter() -> None:
    assert [one(seed).trace for seed in (1, 3, 4)] == [one(seed).trace for seed in (1, 3, 4)]
