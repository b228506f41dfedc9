"""A run of many operations, in parts: after each part it is put away beside its stores, and can be taken up again from there."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.month.generate import Generator
from tests.month.operations import Operation, perform
from tests.month.run import WHOLE_EVERY, Run
from tests.month.topologies import Topology

PART = 1_000
STATE = "month.pickle"
LOG = "operations.jsonl"

Progress = Callable[[int, float], None]


@dataclass
class Failed:
    """A run that ended with something wrong, and all that was done until then."""

    seed: int
    error: Exception
    operations: list[Operation] = field(default_factory=list)
    run: Run | None = None


def month(topology: Topology, folder: Path, seed: int, operations: int, progress: Progress = lambda done, seconds: None) -> Failed | None:
    """Carry out so many operations in all, in that folder; None where everything was as promised."""
    return asyncio.run(_month(topology, folder, seed, operations, progress))


async def _month(topology: Topology, folder: Path, seed: int, operations: int, progress: Progress) -> Failed | None:
    run, generator = _taken_up(topology, folder, seed)
    started = time.monotonic()
    try:
        with (folder / LOG).open("a") as log:
            async with run:
                while generator.number < operations:
                    op = generator.next(run)
                    log.write(op.as_json() + "\n")
                    await perform(run, op)
                    if op.number == operations:
                        await perform(run, Operation(op.number, "months", args={"days": 45}))
                    if op.number % WHOLE_EVERY == 0 or op.number == operations:
                        await perform(run, Operation(op.number, "whole"))
                        progress(op.number, time.monotonic() - started)
                    if op.number % PART == 0 and topology.resumable:
                        log.flush()
                        _put_away(folder, run, generator)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is reported with the seed
        done = [Operation.of_json(line) for line in (folder / LOG).read_text().splitlines()]
        return Failed(generator.seed, error, done, run)
    return None


def _taken_up(topology: Topology, folder: Path, seed: int) -> tuple[Run, Generator]:
    if not (folder / STATE).exists():
        (folder / LOG).write_text("")
        return Run(topology, topology.config(folder), folder), Generator(seed)
    run, generator = pickle.loads((folder / STATE).read_bytes())  # noqa: S301 - our own file
    lines = (folder / LOG).read_text().splitlines()[: generator.number]
    (folder / LOG).write_text("".join(line + "\n" for line in lines))
    return run, generator


def _put_away(folder: Path, run: Run, generator: Generator) -> None:
    fresh = folder / (STATE + ".new")
    fresh.write_bytes(pickle.dumps((run, generator)))
    fresh.replace(folder / STATE)
