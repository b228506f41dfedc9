"""The engine that is simulated: its settings, its embedder, and what it may show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from hashlib import blake2b

from memory.adapters.wrappers.retry import Retry
from memory.adapters.wrappers.timeout import Timeout
from memory.domain.scope import ScopeKind
from memory.orchestrator.engine import Engine
from memory.orchestrator.storage.settings import EngineSettings
from memory.orchestrator.storage.split import Share, SplitStore
from memory.orchestrator.storage.topology import Topology
from memory.policies.promotion import DEFAULT_RULES, PromotionRule
from memory.policies.single_conditions import OlderThan, ScopeExceeds
from memory.ports.embedder import Fingerprint
from memory.ports.record import pack_vector
from memory.ports.store import Store
from tests.simulation.faults import Process
from tests.simulation.faulty_store import FaultyStore
from tests.simulation.workload import Layout
from tests.simulation.world import World

SETTINGS = EngineSettings(batch=3, page=4, queued_records=4, copied_window=0, embedding=timedelta(0))
"""As delivered, but for small pages, batches and queues, so that runs go through more
than one and meet full ones; without copies of windows, which have runs of their own
(`tests.simulation.sessions.copies`); and without a limit for the embedder, whose timers
would change what seeds draw.
"""

RULES = (
    *DEFAULT_RULES,
    PromotionRule(name="sessions-end", on="session_end", source="short", target="mid"),
    PromotionRule(name="sessions-end-again", on="session_end", source="mid", target="long"),
    PromotionRule(
        name="crowded",
        on="sweep",
        source="short",
        target="mid",
        when=ScopeExceeds(tokens=20) & OlderThan(timedelta(days=7)),
    ),
)
"""As delivered, one that takes what the end of a session would leave, one whose moves
find replicas in their way: of what ended before, and one that measures scopes, of what
is so old that it may move by itself.
"""


def staleness(world: World) -> float:
    """By how much a read through a cache may be behind: nothing where there is none."""
    return (
        SETTINGS.cache_max_age.total_seconds() + 2 * world.widest
        if world.scenario.layout is Layout.CACHE
        else 0.0
    )


def vector_of(text: str) -> bytes:
    return pack_vector([byte + 1.0 for byte in blake2b(text.encode(), digest_size=4).digest()])


class TextEmbedder:
    """Four numbers that follow from the text."""

    async def fingerprint(self) -> Fingerprint:
        return Fingerprint("simulated", 4)

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        return [vector_of(text) for text in texts]


_SHARES: tuple[Callable[[Store], Share], ...] = (
    lambda store: Share(store, scope_kinds=frozenset({ScopeKind.USER})),
    lambda store: Share(store, tenants=frozenset({"zeta"})),
    lambda store: Share(store, collections=frozenset({"entry_versions", "relations"})),
)
"""How a tier is split: by what kind of scope, by tenant, or by collection."""


def _wrapped(store: Store) -> Store:
    return Retry(Timeout(store, 8.0), attempts=3, backoff=0.1)


def build_engine(world: World, process: Process, stores: dict[str, FaultyStore]) -> Engine:
    """An engine of this process's own, which draws its ids from the seed."""
    clients: dict[FaultyStore, Store] = {
        store: _wrapped(store) if world.scenario.wrapped else store for store in stores.values()
    }
    serving = {tier: clients[store] for tier, store in stores.items()}
    if (other := serving.get("mid-2")) is not None:
        serving["mid"] = SplitStore(
            "mid", [_SHARES[world.scenario.seed // 7 % len(_SHARES)](other)], serving["mid"]
        )
    topology = Topology(short=serving["short"], mid=serving["mid"], long=serving["long"])
    settings = SETTINGS if world.history.forgets else replace(SETTINGS, expired_grace=timedelta(0))
    return Engine(
        topology,
        embedder=TextEmbedder(),
        clock=process.clock,
        settings=settings,
        rules=RULES,
        random_bits=process.random_bits(world.scenario.seed),
    )
