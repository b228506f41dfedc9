"""Runs of recordings from the command line: many seeds, or one again, in full.

python -m tests.simulation.extracting --seeds 2000
python -m tests.simulation.extracting --seed 1234
"""

from __future__ import annotations

import argparse
import logging
import os
import sys

from tests.simulation.extracting.many import one, some


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tests.simulation.extracting",
        description="What is said is told to stores that learn, under faults.",
    )
    parser.add_argument("--seeds", type=int, default=1_000, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="run this one seed, and print its trace")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if options.seed is not None:
        told = one(options.seed)
        print("\n".join([*told.run.trace, "", *told.broken, "", "failed" if told.broken else "passed"]))
        return 1 if told.broken else 0
    total = some(range(options.first, options.first + options.seeds))
    print(
        f"{total.seeds} seeds of recordings: {total.sure} acknowledged messages, {total.struck} faults;"
        f" {len(total.failures)} failed"
    )
    for failure in total.failures[:5]:
        print(f"\nseed {failure.seed}: " + "\n  ".join(failure.violations[:3]))
    return 1 if total.failures else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets of strings are walked in the same order every time
        os.execve(  # noqa: S606
            sys.executable,
            [sys.executable, "-m", "tests.simulation.extracting", *sys.argv[1:]],
            os.environ | {"PYTHONHASHSEED": "0"},
        )
    sys.exit(main())
