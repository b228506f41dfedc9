"""A run of many operations, in parts: after each part the stores are closed and put
away with its state, and it can be taken up again from there.
"""

from __future__ import annotations

import asyncio
import pickle
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from tests.model.generate import Generator
from tests.model.operations import Operation, perform
from tests.model.run import WHOLE_EVERY, Run
from tests.model.topologies import Topology

PART = 1_000
PUT_AWAY = KEPT, BEFORE, FRESH = "kept", "kept.before", "kept.new"
STATE = "model.pickle"
LOG = "operations.jsonl"

Progress = Callable[[int, float], None]


@dataclass
class Failed:
    """A run that ended with something wrong, and all that was done until then."""

    seed: int
    error: Exception
    operations: list[Operation] = field(default_factory=list)
    run: Run | None = None


def run_model(
    topology: Topology,
    folder: Path,
    seed: int,
    operations: int,
    progress: Progress = lambda done, seconds: None,
) -> Failed | None:
    """Carry out so many operations in all, in that folder; None where everything was as
    promised.
    """
    return asyncio.run(_month(topology, folder, seed, operations, progress))


async def _month(
    topology: Topology, folder: Path, seed: int, operations: int, progress: Progress
) -> Failed | None:
    run, generator = _taken_up(topology, folder, seed)
    started = time.monotonic()
    try:
        while generator.number < operations:
            with (folder / LOG).open("a") as log:
                async with run:
                    await _part(
                        run,
                        generator,
                        operations,
                        log,
                        lambda done: progress(done, time.monotonic() - started),
                    )
            if topology.resumable:
                _put_away(folder, run, generator)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is reported with the seed
        done = [Operation.of_json(line) for line in (folder / LOG).read_text().splitlines()]
        return Failed(generator.seed, error, done, run)
    return None


async def _part(
    run: Run, generator: Generator, operations: int, log: TextIO, progress: Callable[[int], None]
) -> None:
    """Up to the end of a part, where the run can be put away, or of the run."""
    while generator.number < operations:
        op = generator.next(run)
        log.write(op.as_json() + "\n")
        await perform(run, op)
        if op.number == operations:
            await perform(run, Operation(op.number, "months", args={"days": 45}))
        if op.number % WHOLE_EVERY == 0 or op.number == operations:
            await perform(run, Operation(op.number, "whole"))
            progress(op.number)
        if op.number % PART == 0 and run.topology.resumable:
            return


def _taken_up(topology: Topology, folder: Path, seed: int) -> tuple[Run, Generator]:
    """As it was put away last, the stores too: what was done since, before it was
    broken off, is done again.
    """
    if not resumable(folder):
        (folder / LOG).write_text("")
        return Run(topology, topology.config(folder), folder), Generator(seed)
    if not (folder / KEPT).exists():
        (folder / BEFORE).rename(folder / KEPT)
    for path in folder.iterdir():
        if path.name != KEPT:
            _clear(path)
    shutil.copytree(folder / KEPT, folder, dirs_exist_ok=True)
    run, generator = pickle.loads((folder / STATE).read_bytes())  # noqa: S301 - our own file
    return run, generator


def _clear(path: Path) -> None:
    """Take it away; where it is a link to a folder elsewhere, what is in that."""
    if path.is_symlink():
        path.resolve().mkdir(exist_ok=True)
        for one in path.iterdir():
            _clear(one)
    elif path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _put_away(folder: Path, run: Run, generator: Generator) -> None:
    """Beside the stores, which are closed: a copy of them and the state of the run."""
    fresh = folder / FRESH
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(folder, fresh, ignore=lambda where, _names: PUT_AWAY if Path(where) == folder else ())
    (fresh / STATE).write_bytes(pickle.dumps((run, generator)))
    if (folder / KEPT).exists():
        (folder / KEPT).rename(folder / BEFORE)
    fresh.rename(folder / KEPT)
    shutil.rmtree(folder / BEFORE, ignore_errors=True)


def seed_of(folder: Path, otherwise: int) -> int:
    """Of the run that was put away in this folder, if one was."""
    for kept in (KEPT, BEFORE):
        if (folder / kept).exists():
            generator: Generator = pickle.loads((folder / kept / STATE).read_bytes())[1]  # noqa: S301 - our own file
            return generator.seed
    return otherwise


def resumable(folder: Path) -> bool:
    """Whether a run was put away in this folder. Broken off between two names, it
    stands under the one or the other.
    """
    return (folder / KEPT).exists() or (folder / BEFORE).exists()
