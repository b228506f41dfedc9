"""The model test from the command line.

python -m tests.model                                            2,000 operations on every topology of this machine, with a fresh seed
python -m tests.model --topology default --seed 17               one seed again; a failure is made small and written down
python -m tests.model --topology default --operations 100000 --folder model-run --seed 17   a long run that may be interrupted and taken up again
python -m tests.model --topology default --replay failure.jsonl  operations that were written down, one JSON object a line
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
from pathlib import Path

from tests.model.long import Failed, resumable, run_model, seed_of
from tests.model.operations import Operation
from tests.model.shrink import failure_of, label_of, shrink
from tests.model.topologies import TOPOLOGIES, Topology, remove, scratch
from tests.support.backends import BACKENDS
from tests.support.placings import forget


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tests.model", description="Random everyday use of the facade against a model."
    )
    parser.add_argument("--topology", choices=sorted(TOPOLOGIES), help="this one only")
    parser.add_argument("--operations", type=int, default=2_000, help="how many in all")
    parser.add_argument("--seed", type=int, help="which run; a fresh one unless told")
    parser.add_argument(
        "--folder", type=Path, help="where the stores and the state of the run are kept, to be taken up again"
    )
    parser.add_argument("--replay", type=Path, help="carry out these operations instead of drawing some")
    parser.add_argument(
        "--shrink-for",
        type=float,
        default=120,
        help="seconds that a failure is made smaller for; 0: as it is",
    )
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if options.replay is not None:
        return _replay(TOPOLOGIES[options.topology or "default"], options.replay)
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    chosen = [TOPOLOGIES[options.topology]] if options.topology else list(TOPOLOGIES.values())
    return max(_one(topology, seed, options) for topology in chosen)


def _one(topology: Topology, seed: int, options: argparse.Namespace) -> int:
    if reasons := [reason for name in topology.placing.backends if (reason := BACKENDS[name].missing())]:
        print(f"{topology.name}: not run, {'; '.join(reasons)}")
        return 0

    def progress(done: int, seconds: float) -> None:
        print(
            f"\r{topology.name}: {done}/{options.operations}, {seconds:.0f} s",
            end="",
            file=sys.stderr,
            flush=True,
        )

    if options.folder is None:
        with scratch() as folder:
            failed = run_model(topology, folder, seed, options.operations, progress)
    else:
        folder = options.folder / topology.name
        if not resumable(folder):
            remove(folder)
            folder.mkdir(parents=True)
        seed = seed_of(folder, seed)
        failed = run_model(topology, folder, seed, options.operations, progress)
        if failed is None:
            forget(folder)  # what was put away stays: a run that has come to its end is not begun again
    print(file=sys.stderr)
    if failed is None:
        print(f"{topology.name}: {options.operations} operations of seed {seed}, all as promised", flush=True)
        return 0
    print(
        report(topology, failed, Path(tempfile.mkdtemp(prefix="memory-model-")), options.shrink_for),
        flush=True,
    )
    return 1


def report(topology: Topology, failed: Failed, folder: Path, seconds: float) -> str:
    """What went wrong, as small as it was found in that time, and where it is written
    down.
    """
    again = (
        f"python -m tests.model --topology {topology.name} --seed {failed.seed} --operations"
        f" {len(failed.operations)}"
    )
    told = (
        f"{topology.name}: operation {len(failed.operations)} of seed {failed.seed}:"
        f" {str(failed.error)[:2_000]}\nagain: {again}"
    )
    label = label_of(failed.error)
    if not seconds or label is None:
        return told
    small = shrink(topology, failed.operations, label, seconds)
    error, run = failure_of(topology, small)
    replay, script = folder / "failure.jsonl", folder / "failure.py"
    replay.write_text("".join(op.as_json() + "\n" for op in small))
    script.write_text(run.script.text(str(error or failed.error)[:1_000], run.config))
    first = "".join(f"  {op.as_json()}\n" for op in small[:12])
    replayed = f"replay: python -m tests.model --topology {topology.name} --replay {replay}\nscript: {script}"
    return f"{told}\n{len(small)} operations fail alike ({error}):\n{first}{replayed}"


def _replay(topology: Topology, file: Path) -> int:
    operations = [Operation.of_json(line) for line in file.read_text().splitlines()]
    error, run = failure_of(topology, operations)
    print(run.script.text(str(error)[:1_000], run.config))
    print(f"# {error}" if error else "# all as promised")
    return 1 if error else 0


if __name__ == "__main__":
    sys.exit(main())
