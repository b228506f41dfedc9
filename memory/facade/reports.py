"""Reports of the facade: locations of copies, counts, sizes, health of the stores."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from memory.domain.errors import ConfigError, StoreError
from memory.domain.ids import is_id
from memory.domain.maintenance_reports import RolledBackStore
from memory.domain.store_reports import (
    CopyLocation,
    Examination,
    Stats,
    StoreAudit,
    StoreReport,
    TierStats,
    VacuumReport,
)
from memory.domain.versions import version_text
from memory.orchestrator.engine import Engine
from memory.orchestrator.maintenance.repair import Progress
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.storage.generations import Disagreement
from memory.policies.routing import TIERS
from memory.ports.capabilities import FLAGS, LIMITS
from memory.ports.query import And, Count, Eq, Query, Tenant
from memory.ports.record import Key, Mark, Record, Role, Tombstone
from memory.ports.store import MOST_NAMED, Store


async def audit(engine: Engine, *, repair: bool) -> list[StoreAudit]:
    """Audit every store; failures are reported, not raised."""
    audits = {one.name: await _audit_store(one, repair) for one in engine.topology.leaves}
    for home in engine.topology.documents.stores:
        named = audits.get(home.name, StoreAudit(home.name, 0, ()))
        try:
            lost = [
                f"documents {key.id} of tenant {key.tenant}: a chunk is missing"
                for key in await engine.documents.incomplete(home, MOST_NAMED)
            ]
            named = replace(named, damaged=(*named.damaged, *lost)[:MOST_NAMED])
        except StoreError as error:
            named = replace(named, error=named.error or str(error))
        if home.name in audits or not named.ok:
            audits[home.name] = named
    return list(audits.values())


async def _audit_store(store: Store, repair: bool) -> StoreAudit:
    try:
        found = await store.audit(repair=repair)
    except (ConfigError, StoreError) as error:
        return StoreAudit(store.name, 0, (), error=str(error))
    return StoreAudit(store.name, found.checked, found.problems, repaired=repair, damaged=found.damaged)


async def vacuum(engine: Engine) -> list[VacuumReport]:
    """Let every store release the space of deleted content.

    Failures are reported, not raised.
    """
    given_back = []
    for store in engine.topology.leaves:
        try:
            given_back.append(VacuumReport(store.name, await store.vacuum()))
        except (ConfigError, StoreError) as error:
            given_back.append(VacuumReport(store.name, 0, str(error)))
    return given_back


async def where(engine: Engine, tenant: str, entry_id: str) -> list[CopyLocation]:
    """Return every copy, mark and tombstone of an entry, store by store."""
    found: list[CopyLocation] = []
    if not is_id(entry_id):
        return found
    for store in engine.topology.leaves:
        row = (await store.get(ENTRIES, [Key(tenant, entry_id)]))[0]
        tiers = engine.topology.tiers_of(store)
        if isinstance(row, Record):
            found.append(CopyLocation(row.tier, store.name, row.role.value, version_text(row.version)))
        elif isinstance(row, Mark):
            found.append(CopyLocation(tiers[0], store.name, f"mark to {row.to}", version_text(row.version)))
        elif isinstance(row, Tombstone):
            found.append(CopyLocation(tiers[0], store.name, "tombstone", version_text(row.version)))
    return found


async def stats(engine: Engine, tenant: str, types: list[str]) -> Stats:
    """Return counts and sizes of one tenant, tier by tier.

    A store that does not answer is left out and named.
    """
    tiers, by_type, pending, degraded = list[TierStats](), dict.fromkeys(types, 0), 0, list[str]()
    in_quarantine: dict[str, int] = {}
    for store in engine.topology.homes:
        try:
            for tier in TIERS:
                if engine.topology.home(tier) is store:
                    homes = await store.count(Query(ENTRIES, Tenant(tenant), Eq("tier", tier)))
                    copies = await store.count(
                        Query(ENTRIES, Tenant(tenant), Eq("tier", tier), roles=frozenset({Role.REPLICA}))
                    )
                    owing = await _count_pending(engine, tenant, tier)
                    behind = engine.deliveries.behind(tier, tenant)
                    counted = (homes.records, homes.bytes, copies.records, owing)
                    tiers.append(
                        TierStats(tier, store.name, *counted, behind.records, round(behind.seconds, 3))
                    )
            for name in types:
                by_type[name] += (await store.count(Query(ENTRIES, Tenant(tenant), Eq("type", name)))).records
            pending += await engine.maintenance.count_pending_in(store)
            in_quarantine |= {store.name: count} if (count := (await store.check()).quarantined) else {}
        except StoreError as error:
            degraded.append(str(error))
    documents = Count(0, 0)
    with suppress(StoreError):  # it is among `degraded` already
        documents = await engine.documents.count(tenant)
    tiers.sort(key=lambda t: TIERS.index(t.tier))
    evicted = {quota: count for (owner, quota), count in engine.quotas.evicted.items() if owner == tenant}
    counts, rolled_back_stores = (
        {name: n for name, n in by_type.items() if n},
        tuple(str(one) for one in (await engine.rollback_detector.look()).values()),
    )
    return Stats(
        tiers,
        counts,
        pending,
        await stuck_work(engine, tenant),
        tuple(degraded),
        evicted,
        rolled_back_stores,
        in_quarantine,
        documents.records,
        documents.bytes,
    )


async def _count_pending(engine: Engine, tenant: str, tier: str) -> int:
    """Count the entries with a pending step whose replica is in this tier."""
    kinds, home = engine.placement.kinds, engine.topology.home
    sources = [
        source
        for source in TIERS
        if tier in kinds.of(ENTRIES).replicas(source) and home(source) is not home(tier)
    ]
    counts = [
        await home(source).count(Query(ENTRIES, Tenant(tenant), And((Eq("tier", source), Eq("owing", True)))))
        for source in sources
    ]
    return sum(count.records for count in counts)


async def stuck_work(engine: Engine, tenant: str) -> tuple[str, ...]:
    """Return a sentence for each failed step or move of the tenant in this process."""
    steps = [
        f"{p.step} of {p.record_id}: {p.said}"
        for p in await engine.outbox.remaining_failures()
        if p.tenant == tenant
    ]
    moves = [
        f"move of {key.id}: {said}"
        for key, said in engine.tier_mover.refusals.items()
        if key.tenant == tenant
    ]
    return (*steps, *moves)


async def check(engine: Engine) -> list[StoreReport]:
    """Check every store; failures are reported, not raised."""
    return [await _check_store(engine, store) for store in engine.topology.leaves]


async def examine(
    engine: Engine,
    *,
    audited: bool = False,
    repair: bool = False,
    absent: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Examination:
    """Open every store of a closed engine, check it, run pending steps, and close it.

    The stores are opened alone and then together. Stores in `absent` are not opened,
    because that would create them. Their reports contain the given texts.
    """
    absent = absent or {}
    stores, problems, audits = (
        [s for s in engine.topology.leaves if s.name not in absent],
        list[str](),
        list[StoreAudit](),
    )
    pending, overdue, moved, reindex, compared, rolled_back_stores = (
        0,
        list[str](),
        list[str](),
        None,
        None,
        list[RolledBackStore](),
    )
    try:
        reports = [await _check_store(engine, store, opens=True) for store in stores]
        reports += [
            _not_there(engine, store, absent[store.name])
            for store in engine.topology.leaves
            if store.name in absent
        ]
        if audited or repair:
            there = [report.store for report in reports if report.ok and report.store not in absent]
            audits = [await _audit_store(store, repair) for store in stores if store.name in there]
        if all(report.ok for report in reports):
            try:
                engine.topology.settle()
                rolled_back_stores = list((await engine.rollback_detector.look(absent)).values())
                if not absent:
                    await engine.embeddings.check()
                    if audited or repair:
                        compared = await engine.repair.compare(repair=repair, progress=progress)
                        rolled_back_stores = list(engine.rollback_detector.known.values())
                        if repair and not rolled_back_stores:
                            await engine.store_notes.forget_healed()
                    moved = await engine.documents.relocation.relocate() if repair else []
                    overdue = await engine.maintenance.overdue()
                    pending = await engine.maintenance.count_pending()
                    reindex = await _reindex(engine)
                problems += await engine.store_notes.look(absent)
                problems += await engine.documents.relocation.look(absent, thorough=audited or repair)
            except (ConfigError, StoreError) as error:
                problems.append(str(error))
    finally:
        for store in stores:
            await store.close()
    healed = [*map(_disagreement_text, engine.generations.healed), *moved]
    return Examination(
        reports, problems, audits, pending, overdue, reindex, healed, rolled_back_stores, compared
    )


async def _reindex(engine: Engine) -> str | None:
    noted = await engine.embeddings.read_note()
    if noted is None or noted.to is None:
        return None
    left = await engine.reindexing.count_remaining(noted.to)
    return (
        f"a reindex to {noted.to} is not complete: {left:,} vectors are left. "
        "Run `memory reindex` with that embedder to continue"
    )


def _disagreement_text(found: Disagreement) -> str:
    became = f"{found.restamped} of its records are kept, {found.erased} are erased"
    return (
        f"store '{found.store}' was behind the others in one scope, as after a restore (generation"
        f" {found.was} of {found.now}): {became}"
    )


def _not_there(engine: Engine, store: Store, said: str) -> StoreReport:
    claims = {name: getattr(store.capabilities, name) for name in (*FLAGS, *LIMITS)}
    return StoreReport(
        store.name, engine.topology.tiers_of(store), True, said, "", 0.0, store.capabilities.durable, claims
    )


async def _check_store(engine: Engine, store: Store, *, opens: bool = False) -> StoreReport:
    embedder = None
    started = time.perf_counter()
    try:
        if opens:
            await store.open(engine.placement.kinds.collections)
            started = time.perf_counter()
        health = await store.check()
        ok, detail, version, facts, in_quarantine = (
            health.ok,
            health.detail,
            health.version,
            dict(health.facts),
            health.quarantined,
        )
        if ok and (noted := await engine.embeddings.read_note_in(store)) is not None:
            embedder = str(noted)
    except (ConfigError, StoreError) as error:
        ok, detail, version, facts, in_quarantine = False, str(error), "", {}, 0
    claims = store.capabilities
    return StoreReport(
        store=store.name,
        tiers=engine.topology.tiers_of(store),
        ok=ok,
        detail=detail,
        version=version,
        latency_ms=round((time.perf_counter() - started) * 1000, 3),
        durable=claims.durable,
        capabilities={name: getattr(claims, name) for name in (*FLAGS, *LIMITS)},
        embedder=embedder,
        facts=facts,
        quarantined=in_quarantine,
    )
