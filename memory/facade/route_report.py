"""Explain where a record goes: its route, stores, and the rules that may move it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memory.domain import validation
from memory.domain.plan import RouteReport
from memory.domain.scope import Scope
from memory.facade.config.settings import MemoryConfig
from memory.facade.runtime.build import build_engine
from memory.facade.runtime.store_paths import not_there_yet
from memory.orchestrator.engine import Engine
from memory.orchestrator.storage.collections import DOCUMENT_CHUNKS, DOCUMENTS, ENTRIES, MESSAGES
from memory.orchestrator.storage.kinds import KINDS, Kind
from memory.orchestrator.storage.split import SplitStore
from memory.orchestrator.storage.topology import leaves_of, part_of
from memory.policies.promotion import PromotionRule
from memory.policies.routing import TIERS
from memory.ports.clock import system_clock
from memory.ports.collections import Collection
from memory.ports.record import Partition
from memory.ports.store import Store


def explain_route(
    engine: Engine, rules: Sequence[PromotionRule], tenant: str, scope: Scope, collection_name: str
) -> RouteReport:
    """Explain the decisions for a new record of this scope and collection."""
    kind = _kind(collection_name)
    collection = kind.collection
    partition = Partition(tenant, scope.text)
    decided = kind.route(scope.kind)
    if collection in (DOCUMENTS, DOCUMENT_CHUNKS) and engine.topology.documents.tier(partition) == "short":
        because_of = "documents.short names this scope, so its documents are kept in tier 'short'"
        decided = replace(decided, tier="short", because=because_of)
    home = part_of(engine.topology.home(decided.tier), partition, collection)
    because = [decided.because]
    cache = engine.topology.cache
    if decided.tier == "short" and cache is not None:
        because.append(
            f"'{cache.name}' of tier 'short' is not durable, so it keeps copies for reading and '{home.name}'"
            " of tier 'mid' is the home"
        )
    because += _split_reasons(engine.topology.home(decided.tier), home, decided.tier)
    replicas = {}
    for tier in decided.replicas:
        whole = engine.topology.home(tier)
        there = part_of(whole, partition, collection)
        replicas[tier] = there.name
        because += _split_reasons(whole, there, tier)
        if there is home:
            because.append(f"'{there.name}' serves tier '{tier}' too: its own row is the copy")
    because.append(_search_reason(collection, home, replicas, engine))
    because += [
        f"rule '{rule.name}' may {'copy' if rule.copies else 'move'} it: {rule.describe()}"
        for rule in rules
        if kind.movable and rule.source == decided.tier
    ]
    return RouteReport(collection.name, scope.text, decided.tier, home.name, replicas, tuple(because))


async def explain_unopened(config: MemoryConfig, scope: Scope, collection_name: str) -> RouteReport:
    """Explain the decisions for a memory that is not open.

    Existing stores are opened to read their capabilities. No store is created.
    """
    _kind(collection_name)  # raises before a store is touched
    engine, absent = (
        build_engine(config, embedder=None, clock=system_clock, prepared=False),
        not_there_yet(config),
    )
    there = [store for store in engine.topology.leaves if store.name not in absent]
    try:
        for store in there:
            await store.open(engine.placement.kinds.collections)
        engine.topology.settle()
        return explain_route(engine, config.promotion, config.tenant, scope, collection_name)
    finally:
        for store in there:
            await store.close()


def _kind(name: str) -> Kind:
    declared = {kind.collection.name: kind for kind in KINDS}
    return declared[validation.one_of("collection", name, declared)]


def _split_reasons(whole: Store, part: Store, tier: str) -> list[str]:
    if not isinstance(whole, SplitStore):
        return []
    return [
        f"tier '{tier}' is split over {', '.join(p.name for p in whole.parts)}: this tenant, scope kind and"
        f" collection go to '{part.name}'"
    ]


def _search_reason(collection: Collection, home: Store, replicas: dict[str, str], engine: Engine) -> str:
    """Explain how a search finds the record."""
    there = [
        home,
        *(leaf for leaf in engine.topology.leaves if leaf.name in replicas.values() and leaf is not home),
    ]
    by_words = [s.name for s in there if s.capabilities.lexical] or [f"{home.name} (read and ranked by us)"]
    meant = (
        messages_by_meaning(engine)
        if collection is MESSAGES
        else by_meaning([s for s in there if s.capabilities.semantic], home, engine)
    )
    return f"found by words in {', '.join(by_words)}; {meant}"


def messages_by_meaning(engine: Engine) -> str:
    """Return the store that serves semantic search of messages, or why none does."""
    passages = engine.conversations.passages
    return (
        f"not found by meaning: {passages.lexical_only_reason}"
        if passages.store is None
        else f"by meaning in {passages.store.name}"
    )


def by_meaning(indexed: Sequence[Store], home: Store, engine: Engine) -> str:
    """Return the stores that serve semantic search, or how it works without one."""
    if not engine.embeddings.on:
        return "not found by meaning: no embedder is configured"
    if indexed:
        return f"by meaning in {', '.join(s.name for s in indexed)}"
    return f"by meaning in '{home.name}', without an index: no configured store has a vector index"


def meaning_by_tier(engine: Engine) -> dict[str, str]:
    """Explain for each tier how its entries are found by meaning.

    The stores must be settled, not open.
    """
    said = {}
    for tier in TIERS:
        home = engine.topology.home(tier)
        whole = [home, *(engine.topology.home(copy) for copy in KINDS.of(ENTRIES).replicas(tier))]
        leaves = dict.fromkeys(leaf for store in whole for leaf in leaves_of(store))
        said[tier] = by_meaning([leaf for leaf in leaves if leaf.capabilities.semantic], home, engine)
    return said


def rules_by_kind(engine: Engine) -> dict[str, list[str]]:
    """Return the names of the automatic rules by kind, in the order they are asked."""
    return {
        "promotion": [rule.name for rule in engine.rule_evaluator.rules],
        "policies": [policy.name for policy in engine.rule_evaluator.policies],
        "retention": [rule.name for rule in engine.retention.rules],
        "quotas": [quota.name for quota in engine.quotas.quotas],
    }
