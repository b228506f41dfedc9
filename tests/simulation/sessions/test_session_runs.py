"""Sessions under simulation: the same seeds on every run, and fresh ones in `make
nightly`; and the proof that a mutation would be noticed.
"""

from __future__ import annotations

from functools import partial
from itertools import islice

import pytest

from tests.simulation.faults import Fault
from tests.simulation.runner import silence
from tests.simulation.sessions.crashes import ALL, CUT, cut_off
from tests.simulation.sessions.many import mutated, one, some
from tests.simulation.sessions.mutations import MUTATIONS
from tests.simulation.steps import NOT_PLAYED, named_steps, session_steps
from tests.support import noticed
from tests.support.depth import FIRST_SEED, PROVING, THOROUGH, beyond
from tests.support.mutations import Mutation
from tests.support.repeatable import repeatable

SEEDS = noticed.sound_seeds("sessions", quick=15, nightly=200)
NOTICED_WITHIN = 1_000
EVERYONES, IN_CI = {"say", "compact", "state"}, {"batch", "roll_back", "end", "pop"}
"""The acts that are cut off in everyone's run."""
EVERY_WAY = (
    Fault.CRASH_BEFORE,
    Fault.CRASH_AFTER,
    Fault.ERROR_BEFORE,
    Fault.ERROR_AFTER,
    Fault.TIMEOUT,
    Fault.CANCELLED,
)


@pytest.mark.drawn
def test_no_invariant_of_sessions_is_broken_under_faults(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\nsessions: {SEEDS}")
    total = some(SEEDS)
    assert not {failure.seed: failure.violations[0] for failure in total.failures}, (
        "make simulate SESSIONS=1 SEED=… shows one again"
    )
    assert total.struck > len(SEEDS)
    assert total.acknowledged > 3 * len(SEEDS)


@pytest.mark.parametrize("act", [pytest.param(act, marks=beyond(act, EVERYONES, IN_CI)) for act in CUT])
def test_an_act_that_is_cut_off_at_any_call_leaves_nothing_broken(act: str) -> None:
    """Whoever dies before a call leaves what the call before left: `make nightly`."""
    _cut_off_everywhere(act, (Fault.CRASH_AFTER,), atomic=act != "batch")


@pytest.mark.nightly
@pytest.mark.parametrize("act", ALL)
def test_an_act_that_fails_at_any_call_leaves_nothing_broken(act: str) -> None:
    """Of stores with and without batches, each night takes one, and a proof both."""
    for atomic in (True, False) if PROVING else (FIRST_SEED % 2 == 0,):
        _cut_off_everywhere(act, EVERY_WAY, atomic=atomic)


def _cut_off_everywhere(act: str, faults: tuple[Fault, ...], *, atomic: bool) -> None:
    with silence(), repeatable(1):
        for fault in faults:
            worlds = list(cut_off(act, fault, atomic=atomic))
            assert not {
                (world.plan.struck[0].step, fault): world.told.broken[0]
                for world in worlds
                if world.told.broken
            }
            assert [len(world.plan.struck) for world in worlds] == [*[1] * (len(worlds) - 1), 0]
            assert len(worlds) > 1 or fault is Fault.ERROR_AFTER


@pytest.mark.parametrize("mutation", noticed.cases("sessions/", sorted(MUTATIONS)))
def test_a_mutation_in_conversations_is_noticed(mutation: str) -> None:
    noticed.assert_shows(
        f"sessions/{mutation}",
        partial(mutated, mutation),
        lambda seed: bool(one(seed).told.broken),
        range(NOTICED_WITHIN),
        sound_elsewhere=THOROUGH,
    )


def test_a_mutation_that_changes_nothing_is_refused() -> None:
    with pytest.raises(LookupError, match="0 times"):
        Mutation(
            MUTATIONS["a-summary-of-others-rows"].module, "WindowCompaction.compact", "what is not there", ""
        ).patch()


def test_a_run_of_sessions_is_replayed_to_the_letter() -> None:
    seeds = (1, 3, 4, 6)
    assert [one(seed).trace for seed in seeds] == [one(seed).trace for seed in seeds]
    with silence(), repeatable(1):
        assert [w.trace for w in islice(cut_off("end", Fault.CRASH_AFTER), 2)] != []


def test_the_steps_of_sessions_are_read_from_the_engine_and_are_not_those_of_entries() -> None:
    assert {"log.append", "onward.note", "redact.find", "user.begin", "session.create"} <= set(
        session_steps()
    )
    assert not {step for step in session_steps() if {step, step.partition(".")[0]} & NOT_PLAYED}
    assert "log.append" not in named_steps()
