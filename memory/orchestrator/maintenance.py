"""Sweeps: finish what crashes left, end moves that were broken off, forget marks and tombstones that have served, apply sweep rules.

Everything here may run twice at once; a lease only saves the work of doing so. A sweep is made of jobs, most of them a store's: what goes wrong in
one costs that job, and is told in the report. A store that does not answer stops its own jobs and what needs it.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from memory.domain import ids
from memory.domain.errors import StoreError, StoreUnavailable
from memory.domain.shown import Shown
from memory.orchestrator.accesses import Accesses
from memory.orchestrator.collections import LEASES
from memory.orchestrator.dangling import Dangling
from memory.orchestrator.erasure import Erasure
from memory.orchestrator.generations import SYSTEM_TENANT, Generations
from memory.orchestrator.outbox import Outbox, Pending
from memory.orchestrator.placement import Placement
from memory.orchestrator.promotion import Promotion
from memory.orchestrator.steps import step
from memory.orchestrator.tiering import MoveResult, Tiering
from memory.orchestrator.topology import leaves_of
from memory.ports.collections import Collection
from memory.ports.query import And, Eq, Everywhere, Head, Lt, Not, Query, RowType
from memory.ports.record import Corrupt, FieldValue, Key, Mark, Record, Role, Standing, Stored, Tombstone
from memory.ports.store import Store
from memory.ports.writes import Absent, Annotate, AtVersion, Purge, Put

log = logging.getLogger(__name__)

GRAVES = frozenset({RowType.MARK, RowType.TOMBSTONE})
LEASE_SCOPE = "leases"
EXPIRED_GRACE = timedelta(days=1)
"""How long an expired entry stays in a store of the capability `ttl`, whose operators expect it to forget what expired."""


@dataclass(slots=True, repr=False)
class SweepReport(Shown):
    """What one sweep did. `ran` is false where another process holds the lease.

    `waiting` names what could not be done because a store did not answer; `stays` what somebody has to look at: records that a tier refuses, steps
    that a store refuses or that a newer version of the library left. `healed` counts scopes in which a store was behind the others.
    """

    ran: bool = True
    finished: int = 0
    still_owed: int = 0
    removed_copies: int = 0
    purged: int = 0
    dropped_relations: int = 0
    moved: int = 0
    expired: int = 0
    repeated_erasures: int = 0
    forgotten_scopes: int = 0
    healed: int = 0
    waiting: tuple[str, ...] = ()
    stays: tuple[str, ...] = ()


class Maintenance:
    """Carries out sweeps."""

    def __init__(
        self,
        placement: Placement,
        *,
        outbox: Outbox,
        erasure: Erasure,
        generations: Generations,
        tiering: Tiering,
        promotion: Promotion,
        accesses: Accesses,
        dangling: Dangling,
    ) -> None:
        self._placement = placement
        self._outbox = outbox
        self._erasure = erasure
        self._generations = generations
        self._tiering = tiering
        self._promotion = promotion
        self._accesses = accesses
        self._dangling = dangling
        self._holder = f"{secrets.token_hex(8)}"

    async def sweep(self) -> SweepReport:
        """One pass over every store, if nobody else is at it. What this process has to tell it tells in any case."""
        report = SweepReport()
        await self._job(report, self._tell_accesses)
        lease = await self._take_lease()
        if lease is None:
            report.ran = False
            return report
        before = len(self._generations.healed)
        try:
            away: set[str] = set()
            answering = [store for store in self._placement.topology.homes if await self._jobs_of(store, report, away)]
            for leaf in dict.fromkeys(leaf for store in answering for leaf in leaves_of(store)):  # once every mark has told what it can
                await self._job(report, self._purge, leaf, GRAVES, report)
            await self._job(report, self._watch, report)
            await self._job(report, self._forget_scopes, report)
            for leaf in self._placement.topology.leaves:
                await self._job(report, self._forget_idle, leaf, report)
            await self._job(report, self._clear_cache, report)
            await self._job(report, self._drop_relations, report)
            await self._job(report, self._apply_rules, report, away)
        finally:
            await self._give_back(lease)
        report.healed = len(self._generations.healed) - before
        report.stays += tuple(f"{p.step} of {p.record_id}: {p.said}" for p in await self._outbox.still_owed() if not p.waits)
        return report

    async def _jobs_of(self, store: Store, report: SweepReport, away: set[str]) -> bool:
        """What is to be done for one store. When it does not answer once it is not asked again: false."""
        jobs: Sequence[Callable[[], Awaitable[None]]] = (
            lambda: self._finish_owed(store, report, away),
            lambda: self._settle_arriving(store, report, away),
            lambda: self._delete_expired(store, report),
        )
        for job in jobs:
            failure = await self._job(report, job)
            if isinstance(failure, StoreUnavailable) and failure.store == store.name:
                return False
        return True

    async def _job(self, report: SweepReport, job: Callable[..., Awaitable[None]], *about: Any) -> Exception | None:
        """Do one job; what it raises is told in the report and returned."""
        try:
            await job(*about)
        except StoreError as error:
            log.warning("maintenance leaves out a job: %s", error)
            if str(error) not in report.waiting:
                report.waiting += (str(error),)
            return error
        except Exception as error:
            log.exception("maintenance leaves out a job that failed")
            report.stays += (f"a job of maintenance failed: {type(error).__name__}: {error}",)
            return error
        return None

    async def _tell_accesses(self) -> None:
        await self._accesses.tell()

    async def _watch(self, report: SweepReport) -> None:
        report.repeated_erasures += await self._erasure.watch()

    async def _forget_scopes(self, report: SweepReport) -> None:
        report.forgotten_scopes += await self._erasure.forget()

    async def _forget_idle(self, leaf: Store, report: SweepReport) -> None:
        report.forgotten_scopes += await self._erasure.forget_idle(leaf)

    async def _drop_relations(self, report: SweepReport) -> None:
        report.dropped_relations += await self._dangling.drop()

    async def _apply_rules(self, report: SweepReport, away: set[str]) -> None:
        promoted = await self._promotion.by_sweep(away)
        report.moved += len(promoted.moved)
        report.waiting += tuple(w for w in promoted.waiting if w not in report.waiting)
        report.stays += tuple(f"{kept.entry_id} stays in '{kept.tier}': {kept.because}" for kept in promoted.kept)

    async def owed(self) -> int:
        """How many records, marks and tombstones owe a step. Raises where a store does not answer."""
        return sum([await self.owed_in(store) for store in self._placement.topology.homes])

    async def owed_in(self, store: Store) -> int:
        """How many in one store."""
        return sum([len([row async for row in self._holders(store, collection)]) for collection in self._placement.kinds.collections])

    async def overdue(self, most: int = 20) -> list[str]:
        """What is owed and cannot be done, a sentence each: steps are tried again, as a sweep would, to tell why."""
        report, away = SweepReport(), set[str]()
        for store in self._placement.topology.homes:
            await self._job(report, self._finish_owed, store, report, away, most)
        said = [f"{p.step} of {p.record_id} of tenant '{p.tenant}': {p.said}" for p in await self._outbox.still_owed()]
        return [*report.waiting, *report.stays, *said][:most]

    # -- owed work ----------------------------------------------------------------------------------------------------

    async def _finish_owed(self, store: Store, report: SweepReport, away: set[str], most: int | None = None) -> None:
        """Finish what is owed here, at most so many of each collection's. What one record cannot be rid of costs that record."""
        for collection in self._placement.kinds.collections:
            holders = [row async for row in self._holders(store, collection)]
            for debt in [Pending(collection, store, holder) for holder in holders[:most]]:
                failure = await self._job(report, self._finish_one, debt, report, away)
                if isinstance(failure, StoreUnavailable):
                    raise failure

    async def _finish_one(self, debt: Pending, report: SweepReport, away: set[str]) -> None:
        if await self._outbox.finish(debt, away):
            report.still_owed += 1
        else:
            report.finished += 1

    async def _holders(self, store: Store, collection: Collection) -> AsyncIterator[Standing]:
        roles = frozenset({Role.HOME, Role.ARRIVING})
        for kinds in (frozenset({RowType.RECORD}), GRAVES):
            query = Query(collection, Everywhere(), Eq("owing", True), limit=self._placement.settings.page, roles=roles, types=kinds)
            async for row in self._rows("sweep.owed", store, query):
                yield row

    async def _rows(self, name: str, store: Store, query: Query) -> AsyncIterator[Any]:
        async for page in self._placement.pages(name, store, query):
            for row in page.records:
                yield row

    # -- moves that were broken off -----------------------------------------------------------------------------------

    async def _settle_arriving(self, store: Store, report: SweepReport, away: set[str]) -> None:
        """An arriving copy whose source holds neither the record nor a mark goes; one whose source still lives is moved to the end, and one to which
        the source shows a mark has arrived.

        It may not be rolled back while its source lives: a frozen mover may yet release the source.
        """
        for collection in [kind.collection for kind in self._placement.kinds.movable]:
            query = Query(collection, Everywhere(), limit=self._placement.settings.page, roles=frozenset({Role.ARRIVING}), select=frozenset())
            for copy in [head async for page in self._placement.pages("sweep.arriving", store, query) for head in page.heads]:
                failure = await self._job(report, self._settle_one, collection, copy, store, report, away)
                if isinstance(failure, StoreUnavailable):
                    return

    async def _settle_one(self, collection: Collection, copy: Head, store: Store, report: SweepReport, away: set[str]) -> None:
        source = await self._source(collection, copy, store)
        if isinstance(source, Record):
            report.moved += await self._tiering.move(collection, copy.key, copy.tier, away) is MoveResult.MOVED
        elif isinstance(source, Mark) and source.version >= copy.version:  # a store restored to the middle of a move: its source has let go of it
            clear = Annotate(collection, copy.key, at=copy.version, role_is=Role.ARRIVING, role=Role.HOME)
            await self._placement.write_one("move.arrive", store, clear)
        elif isinstance(source, Corrupt):
            report.stays += (f"the move of {copy.key.id} to '{copy.tier}' cannot go on: its record in an earlier tier is corrupt",)
        elif source is None or isinstance(source, Tombstone):
            report.removed_copies += await self._tiering.drop_arriving(collection, copy.key, copy.version, store)

    async def _source(self, collection: Collection, copy: Head, store: Store) -> Stored | None:
        """What stands for the copy in the stores before this one."""
        for source in self._placement.topology.homes:
            if source is store:
                return None
            with step("sweep.source"):
                stands = (await source.get(collection, [copy.key]))[0]
            elsewhere = isinstance(stands, Mark) and self._placement.topology.home(stands.to) is not store
            if stands is not None and not elsewhere:
                return stands
        return None

    async def _delete_expired(self, store: Store, report: SweepReport) -> None:
        """Records in a store that is asked to forget what expired, with all that hangs on them in other stores."""
        if not store.capabilities.ttl:
            return
        over = Lt("expires_at", self._placement.now() - EXPIRED_GRACE)
        for collection in [kind.collection for kind in self._placement.kinds.expiring]:
            query = Query(collection, Everywhere(), over, limit=self._placement.settings.page, select=frozenset())
            for head in [head async for page in self._placement.pages("sweep.expired", store, query) for head in page.heads]:
                failure = await self._job(report, self._delete_one, collection, head, report)
                if isinstance(failure, StoreUnavailable):
                    return

    async def _delete_one(self, collection: Collection, head: Head, report: SweepReport) -> None:
        report.expired += await self._erasure.delete(collection, head.key, at=head.version)

    # -- forgetting ---------------------------------------------------------------------------------------------------

    async def _purge(self, store: Store, kinds: frozenset[RowType], report: SweepReport) -> None:
        """Marks and tombstones whose time is over and which owe nothing. Parts of split stores are asked each: a record in one hides another's."""
        over = And((Lt("discard_at", self._placement.now()), Not(Eq("owing", True))))
        for collection in self._placement.kinds.collections:
            query = Query(collection, Everywhere(), over, limit=self._placement.settings.page, types=kinds)
            rows = [row async for row in self._rows("sweep.purge", store, query)]
            await self._forget(store, collection, rows, report)

    async def _clear_cache(self, report: SweepReport) -> None:
        store = self._placement.topology.cache
        if store is None:
            return
        try:
            await self._purge(store, GRAVES, report)
            oldest = self._placement.now() - 2 * self._placement.settings.cache_max_age
            for collection in [kind.collection for kind in self._placement.kinds.scoped]:
                query = Query(collection, Everywhere(), limit=self._placement.settings.page, roles=frozenset({Role.CACHED}))
                rows = [r async for r in self._rows("sweep.cache", store, query)]
                await self._forget(store, collection, [r for r in rows if r.cached_at is None or r.cached_at < oldest], report)
        except StoreError as error:
            log.warning("maintenance leaves out the cache '%s': %s", store.name, error)

    async def _forget(self, store: Store, collection: Collection, rows: list[Mark | Tombstone | Record], report: SweepReport) -> None:
        size = self._placement.settings.batch
        for start in range(0, len(rows), size):
            purges = [Purge(collection, row.key, at=row.version) for row in rows[start : start + size]]
            outcomes = await self._placement.write("sweep.purge", store, *purges)
            report.purged += sum(outcome.applied for outcome in outcomes)

    # -- the lease ----------------------------------------------------------------------------------------------------

    async def _take_lease(self) -> Record | None:
        """The lease, when nobody holds it or its time is over."""
        archive, now = self._placement.topology.archive, self._placement.now()
        key = Key(SYSTEM_TENANT, ids.derived_id(SYSTEM_TENANT, LEASE_SCOPE, "maintenance"))
        with step("lease.read"):
            stands = (await archive.get(LEASES, [key]))[0]
        if isinstance(stands, Record) and now < stands.fields["until"] <= now + 2 * self._placement.settings.lease:  # type: ignore[operator]
            return None
        version = self._placement.next_version(getattr(stands, "version", 0))
        fields: dict[str, FieldValue] = {"holder": self._holder, "until": now + self._placement.settings.lease}
        lease = Record(key, LEASE_SCOPE, version, now, now, fields=fields, tier="mid")
        when = Absent() if stands is None else AtVersion(getattr(stands, "version", 0))
        outcome = await self._placement.write_one("lease.take", archive, Put(LEASES, lease, when))
        return lease if outcome.applied else None

    async def _give_back(self, lease: Record) -> None:
        ended = replace(lease, version=self._placement.next_version(lease.version), fields={**lease.fields, "until": lease.created_at})
        put = Put(LEASES, ended, AtVersion(lease.version))
        try:
            await self._placement.write_one("lease.return", self._placement.topology.archive, put)
        except StoreError as error:
            log.warning("the maintenance lease runs out by itself: %s", error)
