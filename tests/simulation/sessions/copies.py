"""Runs of sessions whose windows are copied to the short tier: most acts are of a process
that has just begun, and reads what another one left.
"""

from __future__ import annotations

from memory.orchestrator.conversations.log import log, seen, window_copies
from memory.orchestrator.conversations import redaction
from tests.simulation.faults import FaultPlan, Fault
from tests.simulation.loop import seeded
from tests.simulation.runner import silence
from tests.simulation.sessions.run import WORKERS, Run, played, world_of
from tests.support.mutations import Mutation
from tests.support.repeatable import repeatable

COPIED = 3
STEPS = {
    "copies.read": frozenset(Fault) - frozenset({Fault.PARTIAL}),
    "copies.write": frozenset(Fault) - frozenset({Fault.PARTIAL}),
    "copies.fence": frozenset(Fault) - frozenset({Fault.PARTIAL}),
}


def run_copies(seed: int) -> Run:
    """One run; the same seed is the same run."""
    random = seeded(seed, 6)
    step = random.choice(sorted(STEPS))
    plan = FaultPlan(seed=seed, focus=(step, random.choice(sorted(STEPS[step])).value))
    atomic, volatile = random.random() < 0.5, random.random() < 0.5
    world = world_of(seed, plan, atomic=atomic, servers=2, cache=volatile)
    world.copied = COPIED
    world.backups = [] if seed % 8 == 6 else None
    return played(world, [f"w{worker}" for worker in range(WORKERS)])


def one(seed: int) -> Run:
    with silence(), repeatable(seed):
        return run_copies(seed)


MUTATIONS: dict[str, Mutation] = {}
