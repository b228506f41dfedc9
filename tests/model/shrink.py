"""A failing run made small: operations are taken out while it still fails in the same
way.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from tests.model.operations import Operation
from tests.model.run import Run
from tests.model.said import Wrong
from tests.model.topologies import Topology, scratch

TAILS = (50, 200, 1_000, 5_000)
"""How many of the last operations are tried alone before the whole run."""

Fails = Callable[[Sequence[Operation]], bool]


def failure_of(
    topology: Topology, operations: Sequence[Operation], *, alone: bool = False
) -> tuple[Exception | None, Run]:
    """What these operations come to on fresh stores."""
    with scratch() as folder:
        return asyncio.run(_failure(Run(topology, topology.config(folder), folder, alone=alone), operations))


async def _failure(run: Run, operations: Sequence[Operation]) -> tuple[Exception | None, Run]:
    try:
        async with run:
            await run.perform(operations)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what the run failed with
        return error, run
    return None, run


def label_of(error: Exception | None) -> str | None:
    return error.label if isinstance(error, Wrong) else None if error is None else type(error).__name__


def shrink(
    topology: Topology, operations: Sequence[Operation], label: str, seconds: float = 120
) -> list[Operation]:
    """The fewest operations that were found in that time to fail alike; all of them
    where they do not fail again.
    """
    until = time.monotonic() + seconds

    def fails(some: Sequence[Operation], alone: bool) -> bool:
        return time.monotonic() < until and label_of(failure_of(topology, some, alone=alone)[0]) == label

    tails = [operations[-length:] for length in TAILS if length < len(operations)]
    for some, alone in ((some, alone) for alone in (True, False) for some in (*tails, operations)):
        if fails(some, alone):
            return smallest(some, lambda fewer, alone=alone: fails(fewer, alone))  # type: ignore[misc]
    return list(operations)


def smallest(operations: Sequence[Operation], fails: Fails) -> list[Operation]:
    """Delta debugging: parts are taken out, ever smaller ones, until none can be."""
    left, size = list(operations), max(1, len(operations) // 2)
    while True:
        place, shorter = 0, False
        while place < len(left):
            without = left[:place] + left[place + size :]
            if without and fails(without):
                left, shorter = without, True
            else:
                place += size
        if size == 1 and not shorter:
            return left
        size = max(1, size // 2) if not shorter or size > 1 else 1
