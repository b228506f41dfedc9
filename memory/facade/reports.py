"""What the facade says about itself: where things are, how much there is, how the
stores are.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memory.domain.errors import ConfigError, StoreError
from memory.domain.ids import is_id
from memory.domain.results import ResultMixin
from memory.orchestrator.engine import Engine
from memory.orchestrator.maintenance.repair import Progress, StoreComparison
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.storage.generations import Disagreement
from memory.orchestrator.storage.rollback_detection import RolledBackStore
from memory.policies.routing import TIERS
from memory.ports.capabilities import FLAGS, LIMITS
from memory.ports.query import And, Eq, Query, Tenant
from memory.ports.record import Key, Mark, Record, Role, Tombstone
from memory.ports.store import Store


@dataclass(frozen=True, slots=True, repr=False)
class CopyLocation(ResultMixin):
    """One place where something stands for an entry: a live copy in its role, a mark or
    a tombstone.
    """

    tier: str
    store: str
    role: str
    version: int


@dataclass(frozen=True, slots=True, repr=False)
class TierStats(ResultMixin):
    """How many entries have their home in a tier, and how many bytes they take;
    `replicas` are copies kept there for searching.

    How far these are behind: `owed` counts the entries that owe a step and have their
    replica here; of them `queued` are about to be delivered by this process, the oldest
    of which has waited for `behind_seconds`. The others wait for the process that wrote
    them, or for a sweep.
    """

    tier: str
    store: str
    entries: int
    bytes: int
    replicas: int
    owed: int = 0
    queued: int = 0
    behind_seconds: float = 0.0


@dataclass(frozen=True, slots=True, repr=False)
class Stats(ResultMixin):
    """One tenant's numbers, expired and retired entries included.

    `owed` counts what waits for maintenance, of every tenant; `stuck` says what of it
    could not be done, and what could not be moved, when this process last tried, and
    why. `degraded` names stores that did not answer and are not counted. `evicted`: by
    quota, how many entries this process has evicted. `rolled_back_stores`
    names stores that were rolled back alone and not repaired since. `quarantined`: by store, how many damaged
    records of every tenant somebody has met there, until they are deleted; `memory
    doctor --audit` looks for others.
    """

    tiers: list[TierStats]
    by_type: dict[str, int]
    owed: int
    stuck: tuple[str, ...] = ()
    degraded: tuple[str, ...] = ()
    evicted: dict[str, int] = field(default_factory=dict)
    rolled_back_stores: tuple[str, ...] = ()
    quarantined: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, repr=False)
class StoreReport(ResultMixin):
    """How one store is: what `memory doctor` shows."""

    store: str
    tiers: tuple[str, ...]
    ok: bool
    detail: str
    version: str
    latency_ms: float
    durable: bool
    capabilities: dict[str, Any]
    embedder: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    quarantined: int = 0
    """Damaged records, of every tenant, that somebody has met in the store, until they
    are deleted.
    """


@dataclass(frozen=True, slots=True, repr=False)
class StoreAudit(ResultMixin):
    """What came of comparing what a store derives from its records with the records.
    `repaired`: what differed was made anew.

    `problems` says what differed, a sentence each; `damaged` names records that cannot
    be read, by collection, id and tenant, at most 100; `error` says why the store could
    not be looked through, empty when it was.
    """

    store: str
    checked: int
    problems: tuple[str, ...]
    repaired: bool = False
    error: str = ""
    damaged: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.error and not self.problems and not self.damaged


@dataclass(frozen=True, slots=True, repr=False)
class VacuumReport(ResultMixin):
    """The bytes that a store gave back; `error` says why it could not be asked, empty
    when it was.
    """

    store: str
    bytes: int
    error: str = ""


async def audit(engine: Engine, *, repair: bool) -> list[StoreAudit]:
    """Compare, store by store; one that fails is reported, not raised."""
    return [await _audit_store(store, repair) for store in engine.topology.leaves]


async def _audit_store(store: Store, repair: bool) -> StoreAudit:
    try:
        found = await store.audit(repair=repair)
    except (ConfigError, StoreError) as error:
        return StoreAudit(store.name, 0, (), error=str(error))
    return StoreAudit(store.name, found.checked, found.problems, repaired=repair, damaged=found.damaged)


async def vacuum(engine: Engine) -> list[VacuumReport]:
    """Have every store give back the room that deleted content takes; one that fails is
    reported, not raised.
    """
    given_back = []
    for store in engine.topology.leaves:
        try:
            given_back.append(VacuumReport(store.name, await store.vacuum()))
        except (ConfigError, StoreError) as error:
            given_back.append(VacuumReport(store.name, 0, str(error)))
    return given_back


async def where(engine: Engine, tenant: str, entry_id: str) -> list[CopyLocation]:
    """Everything that stands under an entry's id, store by store."""
    found: list[CopyLocation] = []
    if not is_id(entry_id):
        return found
    for store in engine.topology.leaves:
        row = (await store.get(ENTRIES, [Key(tenant, entry_id)]))[0]
        tiers = engine.topology.tiers_of(store)
        if isinstance(row, Record):
            found.append(CopyLocation(row.tier, store.name, row.role.value, row.version))
        elif isinstance(row, Mark):
            found.append(CopyLocation(tiers[0], store.name, f"mark to {row.to}", row.version))
        elif isinstance(row, Tombstone):
            found.append(CopyLocation(tiers[0], store.name, "tombstone", row.version))
    return found


async def stats(engine: Engine, tenant: str, types: list[str]) -> Stats:
    """Counts and sizes of one tenant, tier by tier. A store that does not answer is
    left out and named.
    """
    tiers, by_type, owed, degraded = list[TierStats](), dict.fromkeys(types, 0), 0, list[str]()
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
            owed += await engine.maintenance.count_pending_in(store)
            in_quarantine |= {store.name: count} if (count := (await store.check()).quarantined) else {}
        except StoreError as error:
            degraded.append(str(error))
    tiers.sort(key=lambda t: TIERS.index(t.tier))
    evicted = {quota: count for (owner, quota), count in engine.quotas.evicted.items() if owner == tenant}
    counts, rolled_back_stores = (
        {name: n for name, n in by_type.items() if n},
        tuple(str(one) for one in (await engine.rollback_detector.look()).values()),
    )
    return Stats(
        tiers,
        counts,
        owed,
        await stuck_work(engine, tenant),
        tuple(degraded),
        evicted,
        rolled_back_stores,
        in_quarantine,
    )


async def _count_pending(engine: Engine, tenant: str, tier: str) -> int:
    """How many entries owe a step whose replica stands in this tier."""
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
    """What this process tried for the tenant and could not do, a sentence each."""
    owed = [
        f"{p.step} of {p.record_id}: {p.said}" for p in await engine.outbox.still_owed() if p.tenant == tenant
    ]
    moves = [
        f"move of {key.id}: {said}"
        for key, said in engine.tier_mover.refusals.items()
        if key.tenant == tenant
    ]
    return (*owed, *moves)


@dataclass(frozen=True, slots=True, repr=False)
class Examination(ResultMixin):
    """Every store of a configuration, also those that do not open, and what keeps them
    from working together.
    """

    stores: list[StoreReport]
    problems: list[str]
    audits: list[StoreAudit] = field(default_factory=list)
    """Of the stores that open, where an audit was asked for."""
    owed: int = 0
    """How many records owe a step still, of every tenant, after what could be done was
    done; asked where every store is there.
    """
    overdue: list[str] = field(default_factory=list)
    """What could not be done, a sentence each with why; the first twenty."""
    reindex: str | None = None
    """That vectors are being made anew, and how many are left; None where they are not."""
    healed: list[str] = field(default_factory=list)
    """Stores that were found behind the others on the way, restored or replaced, and
    what became of what stood in them.
    """
    rolled_back_stores: list[RolledBackStore] = field(default_factory=list)
    """Stores that were set back alone, and are not healed."""
    compared: StoreComparison | None = None
    """What came of comparing the stores with each other, where an audit was asked for
    and every store is there.
    """

    @property
    def ok(self) -> bool:
        sound = all(store.ok for store in self.stores) and all(audit.ok for audit in self.audits)
        return (
            sound
            and not self.problems
            and not self.rolled_back_stores
            and (self.compared is None or self.compared.ok)
        )


async def check(engine: Engine) -> list[StoreReport]:
    """Ask every store how it is; one that fails is reported, not raised."""
    return [await _check_store(engine, store) for store in engine.topology.leaves]


async def examine(
    engine: Engine,
    *,
    audited: bool = False,
    repair: bool = False,
    absent: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Examination:
    """Open every store of an engine that is not open, alone and then together, ask how
    it is, try what is owed, and close it again.

    The stores in `absent` are not opened, which would make them: what is said there of
    each stands in its report.
    """
    absent = absent or {}
    stores, problems, audits = (
        [s for s in engine.topology.leaves if s.name not in absent],
        list[str](),
        list[StoreAudit](),
    )
    owed, overdue, reindex, compared, rolled_back_stores = 0, list[str](), None, None, list[RolledBackStore]()
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
                    overdue = await engine.maintenance.overdue()
                    owed = await engine.maintenance.count_pending()
                    reindex = await _reindex(engine)
                problems += await engine.store_notes.look(absent)
            except (ConfigError, StoreError) as error:
                problems.append(str(error))
    finally:
        for store in stores:
            await store.close()
    healed = [_disagreement_text(found) for found in engine.generations.healed]
    return Examination(
        reports, problems, audits, owed, overdue, reindex, healed, rolled_back_stores, compared
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
    return f"store '{found.store}' was behind the others in one scope, as after a restore (generation {found.was} of {found.now}): {became}"


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
