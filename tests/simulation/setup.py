"""The engine that is simulated: its settings, its embedder, and what it may show."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from memory.orchestrator.engine import Engine
from memory.orchestrator.settings import EngineSettings
from memory.orchestrator.topology import Topology
from memory.ports.embedder import Fingerprint
from memory.ports.record import pack_vector
from tests.simulation.faults import Process
from tests.simulation.faulty_store import FaultyStore
from tests.simulation.loop import seeded
from tests.simulation.workload import Layout
from tests.simulation.world import World

SETTINGS = EngineSettings(batch=3, page=4)
"""As delivered, but for small pages and batches, so that runs go through more than one."""


def staleness(world: World) -> float:
    """By how much a read through a cache may be behind: nothing where there is none."""
    return SETTINGS.cache_max_age.total_seconds() + 2 * world.widest if world.scenario.layout is Layout.CACHE else 0.0


class TextEmbedder:
    """Four numbers that follow from the text."""

    async def fingerprint(self) -> Fingerprint:
        return Fingerprint("simulated", 4)

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        return [pack_vector([byte + 1.0 for byte in blake2b(text.encode(), digest_size=4).digest()]) for text in texts]


def build_engine(world: World, process: Process, stores: dict[str, FaultyStore]) -> Engine:
    """An engine of this process's own, which draws its ids from the seed."""
    topology = Topology(short=stores["short"], mid=stores["mid"], long=stores["long"])
    random = seeded(world.scenario.seed, 5, *process.name.encode())
    return Engine(topology, embedder=TextEmbedder(), clock=process.clock, settings=SETTINGS, random_bits=random.getrandbits)
