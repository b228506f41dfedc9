"""The simulation from the command line: many seeds, or one again, in full and then as
small as it gets.

python -m tests.simulation --seeds 20000 --jobs 2
python -m tests.simulation --seed 1234
python -m tests.simulation --sessions --seeds 2000
python -m tests.simulation --rules --seeds 2000
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence

from tests.simulation.mutants import MUTANTS, applied
from tests.simulation.report import seldomest, table, verdict
from tests.simulation.rules import many as rules
from tests.simulation.rules.run import Run as RulesRun
from tests.simulation.runner import (
    Failure,
    Summary,
    run_many,
    run_seed,
    run_variant,
    scenario_of,
    shrink_seed,
)
from tests.simulation.sessions import many as sessions
from tests.simulation.sessions.run import Run as SessionsRun
from tests.simulation.shrink import Variant
from tests.simulation.steps import session_pairs
from tests.simulation.workload import Scenario
from tests.simulation.world import Result


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="tests.simulation", description="The engine on simulated stores, time and faults."
    )
    parser.add_argument("--seeds", type=int, default=2000, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument(
        "--seed", type=int, help="run this one seed, print its trace, and shrink it if it fails"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many processes to use")
    parser.add_argument(
        "--mutant", choices=sorted(MUTANTS), help="patch this safeguard out, and stop at the first failure"
    )
    parser.add_argument("--stop", type=int, help="end after so many failures")
    parser.add_argument("--whole", action="store_true", help="with --seed: do not shrink")
    parser.add_argument(
        "--sessions",
        action="store_true",
        help="play sessions instead; with --seed: one run, in full, which is not shrunk",
    )
    parser.add_argument(
        "--rules", action="store_true", help="play rules of retention, quotas and holds instead, likewise"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    if options.sessions:
        return _sessions(options) if options.seed is None else _show_run(sessions.one(options.seed))
    if options.rules:
        return _rules(options) if options.seed is None else _show_run(rules.one(options.seed, traced=True))
    if options.seed is None:
        return _many(options)
    if options.mutant is None:
        return _one(options.seed, shrinking=not options.whole)
    with applied(options.mutant):
        return _one(options.seed, shrinking=not options.whole)


def _many(options: argparse.Namespace) -> int:
    def progress(so_far: Summary) -> None:
        rate = so_far.seeds / so_far.seconds if so_far.seconds else 0
        print(
            f"\r{so_far.seeds}/{options.seeds} seeds, {rate:.0f}/s, {len(so_far.failures)} failed",
            end="",
            file=sys.stderr,
            flush=True,
        )

    stop = 1 if options.mutant else options.stop
    total = run_many(
        range(options.first, options.first + options.seeds),
        jobs=options.jobs,
        mutant=options.mutant,
        stop=stop,
        progress=progress,
    )
    print(file=sys.stderr)
    least, step, fault = seldomest(total.coverage)
    told = verdict(total.coverage, total.seeds)
    judged = options.mutant is None and options.stop is None
    if options.json:
        report = {
            "seeds": total.seeds,
            "seconds": round(total.seconds, 1),
            "fewest_operations": total.fewest,
            "seldom": {f"{s} x {f}": n for n, (s, f) in told.seldom},
            "undeclared": [f"{s} x {f}" for s, f in told.undeclared],
            "least": {"hits": least, "step": step, "fault": fault},
            "hits": {f"{s} x {f}": n for (s, f), n in sorted(total.coverage.hits.items())},
            "failures": [{"seed": f.seed, "violations": f.violations} for f in total.failures],
        }
        print(json.dumps(report, indent=2))
    else:
        print(table(total.coverage))
        if judged:
            print(told)
        print(
            f"{total.seeds} seeds in {total.seconds:.1f} s; at least {total.fewest} operations each;"
            f" {len(total.failures)} failed"
        )
        for failure in total.failures[:5]:
            print(f"\nseed {failure.seed}: " + "\n  ".join(failure.violations[:3]))
        if total.failures:
            again = f"python -m tests.simulation --seed {total.failures[0].seed}" + (
                f" --mutant {options.mutant}" if options.mutant else ""
            )
            print(f"\nto see one again, as small as it gets: {again}")
    return 1 if total.failures or (judged and told.failed) else 0


def _one(seed: int, *, shrinking: bool) -> int:
    plan = scenario_of(seed)
    result = run_seed(seed, traced=True)
    if result.violations and shrinking:
        print(f"seed {seed} fails; shrinking ...", file=sys.stderr)
        plan, variant = shrink_seed(seed)
        result = run_variant(plan, variant, traced=True)
        _show(plan, variant, result)
    else:
        _show(plan, Variant(), result)
    return 1 if result.violations else 0


def _sessions(options: argparse.Namespace) -> int:
    total = sessions.Summary()
    for total in sessions.many(range(options.first, options.first + options.seeds), jobs=options.jobs):
        print(
            f"\r{total.seeds}/{options.seeds} seeds of sessions, {len(total.failures)} failed",
            end="",
            file=sys.stderr,
            flush=True,
        )
        if options.stop is not None and len(total.failures) >= options.stop:
            break
    print(file=sys.stderr)
    never = total.never()
    print(
        f"{total.seeds} seeds of sessions: {total.acknowledged} acknowledged appends, {total.struck} faults;"
        f" {len(total.failures)} failed"
    )
    print(
        f"of {len(session_pairs())} pairs of step and fault {len(never)} never met: "
        + ", ".join(f"{step} x {fault}" for step, fault in never[:20])
    )
    for limit, often in total.limits.items():
        print(f"known not to hold, seen {often} times: {limit}")
    return _tell_failures(total.failures, "--sessions")


def _show_run(world: SessionsRun | RulesRun) -> int:
    print("\n".join(world.trace))
    print("faults: " + ", ".join(f"{struck.fault} at {struck.step}" for struck in world.plan.struck))
    print("\n".join(["", *world.told.broken, "", "failed" if world.told.broken else "passed"]))
    return 1 if world.told.broken else 0


def _rules(options: argparse.Namespace) -> int:
    total = rules.Summary()
    for total in rules.many(range(options.first, options.first + options.seeds), jobs=options.jobs):
        print(
            f"\r{total.seeds}/{options.seeds} seeds of rules, {len(total.failures)} failed",
            end="",
            file=sys.stderr,
            flush=True,
        )
        if options.stop is not None and len(total.failures) >= options.stop:
            break
    print(file=sys.stderr)
    print(
        f"{total.seeds} seeds of rules: {total.gone} entries went, {total.rounds} rounds ended early,"
        f" {total.struck} faults"
    )
    print("\n".join(f"{often:>7}  {said}" for said, often in sorted(total.came.items())))
    print(
        f"never met of the steps aimed at: {', '.join(total.never()) or 'none'}; {len(total.failures)} failed"
    )
    return _tell_failures(total.failures, "--rules")


def _tell_failures(failures: Sequence[Failure], played: str) -> int:
    for failure in failures[:5]:
        print(f"\nseed {failure.seed}: " + "\n  ".join(failure.violations[:3]))
    if failures:
        print(f"\nto see one again: python -m tests.simulation {played} --seed {failures[0].seed}")
    return 1 if failures else 0


_QUIET = ("  auditor ", "  embedder.")
"""What a trace is shorter without: the sweeps after the last fault, and what every
process does first.
"""


def _show(plan: Scenario, variant: Variant, result: Result) -> None:
    print(
        f"seed {plan.seed}: {plan.layout}, atomic={plan.atomic}, {plan.workers} workers, interleaving"
        f" {variant.schedule}"
    )
    print(f"focus: {plan.focus[1]} at {plan.focus[0]}; faults at {plan.rate:.0%} of calls")
    for operation in plan.operations:
        if operation.number not in variant.dropped:
            print(f"  {operation}")
    print(
        "\n".join(line for line in result.trace if "***" in line or not any(word in line for word in _QUIET))
    )
    print("faults: " + ", ".join(f"{s.fault} at {s.step}" for s in result.struck))
    for violation in result.violations:
        print(f"\n{violation}")
    print("\nfailed" if result.violations else "\npassed")


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets of strings are walked in the same order every time
        os.execve(  # noqa: S606
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],
            os.environ | {"PYTHONHASHSEED": "0"},
        )
    sys.exit(main())
