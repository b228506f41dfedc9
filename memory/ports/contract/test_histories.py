"""Long histories of single writes, compared step by step with the specification.

The adapter's thresholds are normal, and all tiny. `--contract-history 1500`, or
MEMORY_HISTORY=1500, plays so many writes from a fresh seed, for at most 20 seconds.
Without it, a short history is played, the same each time, as at the depth `quick`.
`--contract-seed` plays a certain one again.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from importlib.metadata import entry_points

import pytest

from memory.ports.contract.capability_tests import needs_tiny
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import DECLARED
from memory.ports.contract.depth import FULL, Depth
from memory.ports.contract.harness import Harness
from memory.ports.contract.histories import Play, Step, history, script, shrunk
from memory.ports.store import Store

SECONDS = 20
SHORT = 150
SHRINKING = 60


def _length_and_seed(config: pytest.Config, depth: Depth) -> tuple[int, int]:
    writes = int(config.getoption("contract_history") or SHORT) if depth == FULL else SHORT
    seed = config.getoption("contract_seed")
    return writes, int(seed) if seed else 1 if writes <= SHORT else random.SystemRandom().randrange(10**9)


async def _specification() -> Store:
    (point,) = entry_points(group="memory.adapters", name="memory")
    made: Store = point.load().build("specification", "memory://", {})
    await made.open(DECLARED)
    return made


async def _holds(harness: Harness, store: Store, request: pytest.FixtureRequest, *, with_tiny: bool) -> None:
    writes, seed = _length_and_seed(request.config, harness.depth)
    # A server takes seconds to restart, and other tests kill it. The store that
    # `restart` returns has no tiny thresholds.
    request.node.user_properties.append(
        ("memory_history_seed", f"{harness.name}{' (tiny)' if with_tiny else ''}: {seed}, {writes} writes")
    )
    steps: list[Step] = list(
        history(
            seed,
            store.capabilities,
            writes,
            revives=harness.revives,
            restarts=not with_tiny and not harness.remote,
        )
    )
    play = Play(harness, store, await _specification())
    parted = await play.run(steps, SECONDS)
    for stale in (*play.died, play.store):
        if stale is not store:
            await stale.close()
    if parted is None:
        return
    folders = iter(range(10**6))

    async def fails(some: Sequence[Step]) -> bool:
        folder = harness.folder / f"again-{next(folders)}"
        folder.mkdir(parents=True)
        again = type(harness)(folder)
        made = await (again.tiny() if with_tiny else again.make())
        try:
            await made.open(DECLARED)
            replay = Play(again, made, await _specification())
            parted = await replay.run(some)
            for stale in (*replay.died, replay.store):
                await stale.close()
            return parted is not None
        finally:
            await again.dispose(made)

    await store.close()
    left = await shrunk(steps[: parted + 1], fails, SHRINKING)
    pytest.fail(
        f"seed {seed}: the store and the specification part at step {parted}; of the steps until there these"
        f" are enough:\n{script(left)}"
    )


@clause("specification", "upkeep.audit")
@pytest.mark.asyncio
async def test_a_long_history_of_single_writes_leaves_what_the_specification_has(
    harness: Harness, store: Store, request: pytest.FixtureRequest
) -> None:
    await _holds(harness, store, request, with_tiny=False)


@clause("specification", "upkeep.audit")
@needs_tiny
@pytest.mark.asyncio
async def test_so_does_one_with_every_threshold_tiny(
    harness: Harness, request: pytest.FixtureRequest
) -> None:
    store = await harness.tiny()
    try:
        await store.open(DECLARED)
        await _holds(harness, store, request, with_tiny=True)
    finally:
        await harness.dispose(store)
