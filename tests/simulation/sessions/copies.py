"""Runs of sessions whose windows are copied to the short tier: most acts are of a process
that has just begun, and reads what another one left.
"""

from __future__ import annotations

from unittest.mock import patch

from memory.orchestrator.conversations import redaction
from memory.orchestrator.conversations.log import folding, log, seen
from tests.simulation.faults import Fault, FaultPlan
from tests.simulation.loop import seeded
from tests.simulation.runner import silence
from tests.simulation.sessions.run import WORKERS, Run, played, world_of
from tests.support.mutations import Mutation
from tests.support.repeatable import repeatable

COPIED, NEWEST, BASE_EVERY = 3, 6, 4
"""From how many messages on windows are copied; how many events are read to find the
end of a log, and how many of them carry the window. As small as the logs are short:
otherwise the end of a log would be all of it.
"""
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
    with (
        silence(),
        repeatable(seed),
        patch.object(log, "NEWEST", NEWEST),
        patch.object(folding, "BASE_EVERY", BASE_EVERY),
    ):
        return run_copies(seed)


MUTATIONS: dict[str, Mutation] = {
    "a-copy-knows-of-no-edit": Mutation(
        seen, "LogSnapshot.current_of", "event.version >= self.edits.get(place, 0)", "True"
    ),
    "a-copy-outlives-what-was-erased": Mutation(
        redaction,
        "Redaction._redact_noted",
        "await self._sessions.copies.fence(log.life, (log.snapshot or await log.load()).state)",
        "pass",
    ),
}
