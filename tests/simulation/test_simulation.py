"""The engine under simulation, the same seeds on every run, and fresh ones in `make
nightly`. And the proof that it would notice.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from functools import partial
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import pytest

from memory.orchestrator.tiering import moves as tiering
from memory.ports.contract.cells import cells
from tests.simulation.__main__ import main
from tests.simulation.endings import ENDINGS
from tests.simulation.faults import Coverage, Fault, FaultPlan
from tests.simulation.mutants import MUTANTS, Mutant, applied
from tests.simulation.rare_mutations import RARE_MUTATIONS
from tests.simulation.report import LEAST, table, verdict
from tests.simulation.report import SEEDS as SEEDS_OF_A_PROOF
from tests.simulation.runner import (
    nearest_first,
    run_many,
    run_seed,
    run_variant,
    scenario_of,
    shrink_seed,
    silence,
)
from tests.simulation.scenes import Kind
from tests.simulation.steps import can_meet, declared_pairs, focus_of, focuses, named_steps, stride
from tests.simulation.workload import Layout
from tests.support import noticed
from tests.support.depth import NIGHTLY, THOROUGH, drawn, seeds
from tests.support.mutations import Mutation

SEEDS = (
    list(seeds(0, nightly=200)) if NIGHTLY else noticed.noted_seeds("simulation")[: None if THOROUGH else 15]
)
"""Every seed that is noted for a mutant, so that none of them fails by itself; each
night fresh ones. `make simulate SEED=n` runs one again.
"""
NOTICED_WITHIN = 3_000
JOBS = 1 if "PYTEST_XDIST_WORKER" in os.environ else os.cpu_count() or 1
ROOT = Path(__file__).parents[2]


@pytest.mark.drawn
def test_no_invariant_is_broken_under_faults(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\nsimulation: {len(SEEDS)} seeds, the first is {SEEDS[0]}")
    total = run_many(SEEDS, jobs=JOBS)
    told = [f"seed {f.seed}: {f.violations[0]}" for f in total.failures]
    assert not told, "\n".join(
        [*told[:5], f"again, as small as it gets: make simulate SEED={total.failures[0].seed}"]
    )
    assert total.seeds == len(SEEDS)
    assert total.fewest >= 10, "a plan has 20 operations, and those of a worker that is killed may end early"
    assert len(table(total.coverage).splitlines()) > 40
    assert not verdict(total.coverage, len(SEEDS)).undeclared


@pytest.mark.parametrize("mutant", noticed.cases("simulation/", sorted(MUTANTS)))
def test_a_missing_safeguard_is_noticed(mutant: str) -> None:
    search = nearest_first(range(NOTICED_WITHIN), MUTANTS[mutant].near)
    noticed.assert_shows(
        f"simulation/{mutant}", partial(applied, mutant), breaks_something, search, sound_elsewhere=THOROUGH
    )


def breaks_something(seed: int) -> bool:
    with silence():
        violations = run_seed(seed).violations
    assert not any("TypeError" in str(v) or "NameError" in str(v) for v in violations), (
        f"a mistake, not a mutant: {violations}"
    )
    return bool(violations)


def test_a_mutant_whose_note_shows_nothing_fails_and_says_how_to_renew_it() -> None:
    with patch.object(noticed, "by", lambda _: 1), pytest.raises(AssertionError, match="make noticed"):
        noticed.assert_shows("a", nullcontext, lambda _: False, [1])
    with patch.object(noticed, "by", lambda _: 1), pytest.raises(AssertionError, match="without 'a' too"):
        noticed.assert_shows("a", nullcontext, lambda _: True, [1])


def test_a_mutant_that_changes_nothing_is_told_from_one_that_does() -> None:
    """Its patched name is never called; or, of a mutation, the text to be replaced is not
    there.
    """
    inert = Mutant(lambda: (tiering, "no_such_name", lambda: None), ())
    with patch.dict(MUTANTS, {"inert": inert}), pytest.raises(AttributeError), applied("inert"):
        pass
    with pytest.raises(LookupError, match="0 times"):
        Mutation(tiering, "TierMover.move", "what is not there", "").patch()


@cells("mutant", sorted(MUTANTS), shared=True)
def test_a_mutant_still_finds_what_it_changes(mutant: str) -> None:
    with applied(mutant):
        pass


def test_there_are_enough_mutants_and_each_is_named_by_what_goes_wrong() -> None:
    assert len(MUTANTS) >= 60
    assert all(len(name.split("-")) >= 3 for name in MUTANTS)


def test_a_seed_is_replayed_to_the_letter() -> None:
    for seed in range(0, drawn(60, quick=8), 7):
        first, second = run_seed(seed, traced=True), run_seed(seed, traced=True)
        assert not first.violations, "a run that is traced is judged like any other"
        assert first.trace == second.trace
        assert first.struck == second.struck


@pytest.mark.thorough
def test_a_seed_is_replayed_to_the_letter_by_another_process(capsys: pytest.CaptureFixture[str]) -> None:
    def ran() -> str:
        command = [sys.executable, "-m", "tests.simulation", "--seed", "3"]
        return subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300
        ).stdout

    def ran_here() -> str:
        with silence():
            assert main(["--seed", "3"]) == 0
        return capsys.readouterr().out

    walks_sets_alike = not sys.flags.hash_randomization  # as the workers of a run do
    assert ran() == (ran_here() if walks_sets_alike else ran())


@pytest.mark.thorough
def test_a_failure_shrinks_to_a_smaller_one_of_the_same_kind() -> None:
    with applied("deletion-leaves-kept-versions"):
        seed = next(s for s in range(200) if run_seed(s).violations)
        plan, variant = shrink_seed(seed)
        result = run_variant(plan, variant)
    assert result.violations[0].kind == "leftover"
    assert len(plan.operations) - len(variant.dropped) <= 6


def test_scenarios_cover_every_layout_and_every_operation() -> None:
    plans = [scenario_of(seed) for seed in range(600)]
    assert {p.layout for p in plans} == set(Layout)
    assert {p.atomic for p in plans} == {True, False}
    assert {o.kind for p in plans for o in p.operations} == set(Kind)
    assert all(p.workers >= 2 and len(p.operations) >= 20 for p in plans)


def test_every_scene_that_runs_end_with_is_drawn_and_mutations_name_no_other() -> None:
    plans = [scenario_of(seed) for seed in range(1500)]
    assert {p.ending for p in plans} == {"", *ENDINGS}
    assert all(p.layout in (ENDINGS[p.ending].layouts or tuple(Layout)) for p in plans if p.ending)
    assert {near for mutation in RARE_MUTATIONS.values() for near in mutation.near if " " in near} <= set(
        ENDINGS
    )


def test_what_a_scene_brings_can_strike_and_does_however_much_has_struck_before() -> None:
    brought = {turn.lure for ending in ENDINGS.values() for turn in ending.scene if turn.lure is not None}
    assert {
        (step, fault)
        for lure, fault in brought
        for step in [lure.partition(" of ")[0]]
        if not can_meet(step, fault)
    } == set()
    assert {step for lure, _ in brought for step in [lure.partition(" of ")[0]]} <= set(named_steps())
    plan = FaultPlan(0, rate=1.0, lures={7: ("read.home of short", Fault.DOWN)}, most=2)
    drawn = [
        plan.draw((operation, 1), "read.home", (Fault.DELAY, Fault.DOWN), store)
        for operation in (6, 6, 6, 7)
        for store in ("short", "mid")
    ]
    assert [fault is not None for fault in drawn] == [True, True, False, False, False, False, True, False]
    assert drawn[6] is Fault.DOWN


def test_every_named_step_is_aimed_at_with_every_fault_it_can_meet() -> None:
    aimed = set(focuses())
    assert (
        {(s, f.value) for s in named_steps() for f in Fault if can_meet(s, f)}
        == aimed
        == {(s, f.value) for s, f in declared_pairs()}
    )
    assert {focus_of(seed) for seed in range(len(focuses()))} == aimed
    partial = {s for s in named_steps() if can_meet(s, Fault.PARTIAL)}
    moves = {"move.copy", "move.adopt", "move.release", "move.arrive", "move.relabel", "cache.invalidate"}
    owed = {
        "replica.deliver",
        "version.keep",
        "delete.elsewhere",
        "owed.settle",
        "hanging.erase",
        "passages.write",
    }
    others = {
        "access.note",
        "delete.home",
        "write.home",
        "sweep.purge",
        "generation.restamp",
        "heal.write",
        "remake.write",
    }
    assert partial - moves - owed == others
    assert owed <= partial
    assert moves <= partial
    assert {"move.copy", "move.release", "replica.deliver", "erase.raise", "cache.fill"} <= set(named_steps())


def test_what_a_seed_is_about_comes_round_regularly() -> None:
    """Also to a pair that has few seeds. Where it did not, mutants that fall near one
    pair alone fell after some change to the engine, or not.
    """
    for length in (*range(4000, 4400, 50), len(focuses())):
        met = [seed for seed in range(2 * length) if seed * stride(length) % length < 8]
        assert max(after - before for before, after in pairwise(met)) < length / 3


def test_a_full_run_is_no_proof_while_a_pair_is_hit_too_seldom() -> None:
    coverage = Coverage()
    coverage.hits.update(dict.fromkeys(declared_pairs(), LEAST))
    assert not verdict(coverage, SEEDS_OF_A_PROOF).failed
    pair = ("move.abort", Fault.DOWN)
    coverage.hits[pair] -= 1
    told = verdict(coverage, SEEDS_OF_A_PROOF)
    assert told.failed
    assert told.seldom == ((LEAST - 1, pair),)
    assert "move.abort, down" in str(told)
    assert not verdict(coverage, SEEDS_OF_A_PROOF - 1000).seldom
    assert not verdict(Coverage(), 200).failed
    coverage.hits[pair] += 1
    coverage.chances.add(("nowhere", (Fault.DOWN,)))
    assert verdict(coverage, SEEDS_OF_A_PROOF).undeclared == (("nowhere", Fault.DOWN),)
    assert verdict(coverage, SEEDS_OF_A_PROOF).failed
