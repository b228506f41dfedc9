"""Sweeps: finish work after crashes and interrupted moves, purge, and apply rules.

Each store returns its due work slice by slice. A sweep with nothing to do costs a few
queries, regardless of the amount of data. A sweep with much to do keeps little of it in
memory. Two sweeps may safely run at once; a lease only avoids duplicate work. A failure
affects only its own job, and is reported. A store that does not answer stops its own
jobs and those that need it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Protocol

from memory.domain.errors import LegalHoldActive, StoreError, StoreUnavailable
from memory.domain.maintenance_reports import SweepReport
from memory.domain.promotion_report import PromotionReport
from memory.orchestrator.conversations.sessions import SessionRecords
from memory.orchestrator.entries.orphans import OrphanCollector
from memory.orchestrator.erasure.erasure import Erasure
from memory.orchestrator.maintenance.reindexing import Reindexer
from memory.orchestrator.storage.budgets import UNLIMITED, Allowance, BudgetExhausted
from memory.orchestrator.storage.collections import ARTIFACTS, SESSIONS
from memory.orchestrator.storage.generations import Generations
from memory.orchestrator.storage.lease import Lease, LeaseCheck, LeaseNotHeld
from memory.orchestrator.storage.outbox import Outbox, OutboxRecord
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.rollback_detection import RollbackDetector
from memory.orchestrator.storage.rounds import Round
from memory.orchestrator.storage.steps import step
from memory.orchestrator.storage.topology import leaves_of, refuse_away
from memory.orchestrator.tiering.moves import MoveResult, TierMover
from memory.orchestrator.tiering.promotion import Promotion
from memory.orchestrator.tiering.retention import Retention, RetentionReport
from memory.ports.collections import Collection
from memory.ports.due import LEFT, DuePage, DueReason, DueRow
from memory.ports.query import Eq, Everywhere, Lt, Query
from memory.ports.record import Corrupt, Key, Mark, Record, Role, Stored, Tombstone
from memory.ports.store import Store
from memory.ports.writes import Annotate, Purge

log = logging.getLogger(__name__)

READ_AT_ONCE = 50
"""How many owners of steps are read at once.

Each may be large, and may carry as much of its past.
"""


class Watcher(Protocol):
    """Receives the results of sweeps and the numbers of damaged records.

    See `Telemetry`.
    """

    def on_sweep(self, outcome: str) -> None:
        """Handle the end of a sweep.

        `outcome` is that of `SweepReport.outcome`, or "failed" if the whole sweep
        failed. It is not called for a sweep that was cancelled.
        """
        ...

    def on_quarantine(self, store: str, records: int) -> None:
        """Handle the number of damaged records in a store's quarantine.

        It is called after a sweep that reached every store.
        """
        ...


class Maintenance:
    """Runs sweeps."""

    def __init__(
        self,
        placement: Placement,
        *,
        outbox: Outbox,
        erasure: Erasure,
        generations: Generations,
        tier_mover: TierMover,
        promotion: Promotion,
        retention: Retention,
        tells: Sequence[Callable[[], Awaitable[object]]],
        orphans: OrphanCollector,
        sessions: SessionRecords,
        reindexing: Reindexer,
        rollback_detector: RollbackDetector,
    ) -> None:
        self._placement = placement
        self._outbox = outbox
        self._erasure = erasure
        self._generations = generations
        self._tier_mover = tier_mover
        self._promotion = promotion
        self._retention = retention
        self._tells = tells
        self._orphans = orphans
        self._sessions = sessions
        self._reindexing = reindexing
        self._rollback_detector = rollback_detector
        self._cached = {kind.collection: Round(placement) for kind in placement.kinds.scoped}
        self._begins_with = 0
        """The job in which the last sweep used up its allowance."""
        self._reached: dict[str, str | None] = {}
        """The position in each store's due work that the last sweep reached."""
        self.watcher: Watcher | None = None

    async def sweep(self, allowance: Allowance = UNLIMITED) -> SweepReport:
        """Do the due work of every store, as far as the allowance goes.

        Nothing is done if another process is sweeping. Notes of this process are
        written in any case. Stores are asked for due work without a lease. The first
        job with work takes the lease.
        """
        try:
            report = await self._sweep_with_lease(allowance)
        except Exception:
            self._notify_watcher("failed")
            raise
        self._notify_watcher(report.outcome)
        if report.ran and not report.waiting:
            await self._count_damaged()
        return report

    async def _count_damaged(self) -> None:
        """Report the number of quarantined records in every store to the watcher."""
        if self.watcher is None:
            return
        for store in self._placement.topology.stores:
            with suppress(StoreError):
                health = await store.check()
                if health.ok:
                    self.watcher.on_quarantine(store.name, health.quarantined)

    def _notify_watcher(self, outcome: str) -> None:
        if self.watcher is not None:
            self.watcher.on_sweep(outcome)

    async def _sweep_with_lease(self, allowance: Allowance) -> SweepReport:
        report, lease, away = SweepReport(), Lease(self._placement), set[str]()
        before = len(self._generations.healed)
        for tell in self._tells:
            await self._job(report, tell)
        await self._job(report, self._note_setbacks, report)
        try:
            await self._sweep(report, allowance.over(lease.hold), away)
        except BudgetExhausted:
            report.more = True
        except LeaseNotHeld as error:
            report.ran = False
            if isinstance(error.__cause__, StoreError):
                _note_waiting(report, error.__cause__)
            return report
        finally:
            await lease.give_back()
        report.healed = len(self._generations.healed) - before
        report.stays += tuple(
            f"{p.step} of {p.record_id}: {p.said}"
            for p in await self._outbox.remaining_failures()
            if not p.waits
        )
        return report

    async def _sweep(self, report: SweepReport, hold: LeaseCheck, away: set[str]) -> None:
        """Run all jobs, beginning with the one in which the last sweep ended."""
        over: list[Store] = []
        jobs = self._jobs(report, hold, away, over)
        begin, self._begins_with = self._begins_with % len(jobs), 0
        for at in (*range(begin, len(jobs)), *range(begin)):
            job, *about = jobs[at]
            try:
                await self._job(report, job, *about)
            except BudgetExhausted:
                self._begins_with = at
                raise

    def _jobs(
        self, report: SweepReport, hold: LeaseCheck, away: set[str], over: list[Store]
    ) -> list[tuple[Any, ...]]:
        """Return the jobs, each with its arguments.

        `over` receives the stores in which records may be discarded. This happens once
        every mark has served its purpose.
        """
        leaves = self._placement.topology.leaves
        forgetting = [
            (self._purge_all, over, report, hold),
            (self._count, report, "forgotten_scopes", self._erasure.forget, hold),
            *(
                (self._count, report, "forgotten_scopes", self._erasure.forget_idle, leaf, hold)
                for leaf in leaves
            ),
            (self._count, report, "dropped_relations", self._orphans.drop, hold),
        ]
        due = [
            (self._do_due, leaf, store, over, report, hold, away)
            for store in self._placement.topology.homes
            for leaf in leaves_of(store)
        ]
        return [
            *due,
            (self._end_sessions, report, hold),
            (self._count, report, "repeated_erasures", self._erasure.watch, hold),
            *(
                [] if self._rollback_detector.known else forgetting
            ),  # marks and tombstones may show what a store has lost
            (self._clear_cache, report, hold),
            (self._count, report, "purged", self._sessions.copies.purge_expired, hold),
            (self._count, report, "reindexed", self._reindexing.catch_up, hold),
            (self._retain, report, hold, away),
            (self._apply_rules, report, hold, away),
        ]

    async def _job(
        self, report: SweepReport, job: Callable[..., Awaitable[object]], *about: Any
    ) -> Exception | None:
        """Do one job. Its error is reported and returned."""
        try:
            await job(*about)
        except (LeaseNotHeld, BudgetExhausted):
            raise
        except StoreError as error:
            log.warning("maintenance skips a job: %s", error)
            _note_waiting(report, error)
            return error
        except Exception as error:
            log.exception("maintenance skips a job that failed")
            report.stays += (f"a job of maintenance failed: {type(error).__name__}: {error}",)
            return error
        return None

    async def _count(
        self, report: SweepReport, name: str, job: Callable[..., Awaitable[int]], *about: Any
    ) -> None:
        """Add a job's result to the report."""
        setattr(report, name, getattr(report, name) + await job(*about))

    async def _note_setbacks(self, report: SweepReport) -> None:
        """Detect stores that were restored to an earlier state.

        Until such a store is repaired, records that may show its losses are not purged.
        """
        for found in (await self._rollback_detector.note()).values():
            report.stays += (
                f"{found}. Run `memory doctor --repair`; until then, sweeps remove no deletion records",
            )

    async def _retain(self, report: SweepReport, hold: LeaseCheck, away: set[str]) -> None:
        done = RetentionReport()
        try:
            await self._retention.by_sweep(away, hold, done)
        finally:
            report.deleted, report.ended, report.dropped_versions = (
                done.deleted,
                done.ended,
                done.dropped_versions,
            )
            report.held += done.held
            report.waiting += tuple(said for said in done.waiting if said not in report.waiting)

    async def _apply_rules(self, report: SweepReport, hold: LeaseCheck, away: set[str]) -> None:
        promoted = PromotionReport()
        try:
            await self._promotion.by_sweep(away, hold, promoted)
        finally:
            report.moved += len(promoted.moved)
            report.waiting += tuple(w for w in promoted.waiting if w not in report.waiting)
            report.stays += tuple(
                f"{kept.entry_id} stays in '{kept.tier}': {kept.because}" for kept in promoted.kept
            )

    async def count_pending(self) -> int:
        """Return how many records, marks and tombstones have a pending step.

        Raises if a store does not answer.
        """
        return sum([await self.count_pending_in(store) for store in self._placement.topology.homes])

    async def count_pending_in(self, store: Store) -> int:
        """Return the same number for one store."""
        owing, counted = Eq("owing", True), 0
        for collection in self._placement.kinds.collections:
            counted += (
                await store.count(
                    Query(collection, Everywhere(), owing, roles=frozenset({Role.HOME, Role.ARRIVING}))
                )
            ).records
            counted += (await store.count(Query(collection, Everywhere(), owing, types=LEFT))).records
        return counted

    async def overdue(self, most: int = 20) -> list[str]:
        """Return sentences on pending steps that cannot be done.

        The steps are tried again, as in a sweep, to find the reasons.
        """
        report, away = SweepReport(), set[str]()
        for store in self._placement.topology.homes:
            for leaf in leaves_of(store):
                await self._job(report, self._try_some, leaf, store, most, report, away)
        said = [
            f"{p.step} of {p.record_id} of tenant '{p.tenant}': {p.said}"
            for p in await self._outbox.remaining_failures()
        ]
        return [*report.waiting, *report.stays, *said][:most]

    # -- what is due -------------------------------------------------------------------

    async def _due_pages(self, leaf: Store, begin: str | None = None) -> AsyncIterator[DuePage]:
        """Yield the due work of a store, slice by slice.

        The parts of a split store are asked separately: a record in one would hide a
        tombstone in another.
        """
        now, cursor = self._placement.now(), begin
        grace = self._placement.settings.expired_grace
        expired = (
            dict.fromkeys((kind.collection for kind in self._placement.kinds.expiring_kinds), now - grace)
            if grace
            else None
        )
        while True:
            with step("sweep.due"):
                found = await leaf.due(now, self._placement.settings.page, cursor, expired=expired)
            yield found
            if (cursor := found.cursor) is None:
                return

    def due_pages(self, leaf: Store) -> AsyncIterator[DuePage]:
        """Yield the due work of a store, slice by slice, from the beginning."""
        return self._due_pages(leaf)

    async def _do_due(
        self,
        leaf: Store,
        store: Store,
        over: list[Store],
        report: SweepReport,
        hold: LeaseCheck,
        away: set[str],
    ) -> None:
        """Finish pending steps and moves in one store, and delete expired records.

        If records may be discarded, the store is added to `over`. A sweep that ends
        early is continued after its last attempt, so that failing work does not block
        the rest.
        """
        begin = self._reached.pop(leaf.name, None)
        async for found in self._due_pages(leaf, begin):
            if any(row.why is DueReason.DISCARD for row in found.rows) and leaf not in over:
                over.append(leaf)
            for why, job in (
                (DueReason.OWES, self._finish_owed),
                (DueReason.ARRIVING, self._settle_arriving),
                (DueReason.EXPIRED, self._delete_expired),
            ):
                for collection, some in _portions(found.rows, why):
                    asks = (
                        [hold] if why is DueReason.EXPIRED else []
                    )  # the job calls it once it knows the legal holds
                    try:
                        if not asks:
                            await hold(len(some))
                        failure = await self._job(report, job, collection, some, store, report, away, *asks)
                    except BudgetExhausted:
                        self._reached[leaf.name] = begin
                        raise
                    if isinstance(failure, StoreUnavailable) and failure.store in (leaf.name, store.name):
                        return  # the store is not called again
                    begin = found.cursor

    async def _try_some(
        self, leaf: Store, store: Store, most: int, report: SweepReport, away: set[str]
    ) -> None:
        async for found in self._due_pages(leaf):
            for collection, some in _portions(found.rows, DueReason.OWES):
                await self._finish_owed(collection, some[:most], store, report, away)
                most -= len(some)
                if most <= 0:
                    return

    async def _finish_owed(
        self,
        collection: Collection,
        rows: Sequence[DueRow],
        store: Store,
        report: SweepReport,
        away: set[str],
    ) -> None:
        found = await self._placement.read("sweep.owed", store, collection, [row.key for row in rows])
        owners = [owner for owner in found if isinstance(owner, Record | Mark | Tombstone) and owner.owed]
        for left in await self._outbox.finish_all(
            [OutboxRecord(collection, store, owner) for owner in owners], away
        ):
            report.pending_steps += bool(left)
            report.finished += not left

    # -- moves that were broken off ----------------------------------------------------

    async def _settle_arriving(
        self,
        collection: Collection,
        rows: Sequence[DueRow],
        store: Store,
        report: SweepReport,
        away: set[str],
    ) -> None:
        """Finish interrupted moves by the state of their sources.

        An arriving copy is removed if its source has neither the record nor a mark. If
        the source has the record, the move is completed. If it has a mark, the copy has
        arrived. A copy must not be rolled back while its source exists, because a
        frozen mover may still release the source.
        """
        sources = await self._sources(collection, rows, store, away)
        for tier in dict.fromkeys(row.tier for row in rows):
            moving = [
                row.key for row in rows if row.tier == tier and isinstance(sources.get(row.key), Record)
            ]
            for result in (await self._tier_mover.move_many(collection, moving, tier, away)).values():
                report.moved += result is MoveResult.MOVED
                if isinstance(result, StoreError):
                    _note_waiting(report, result)
        for row in rows:
            await self._job(report, self._settle_one, collection, row, sources.get(row.key), store, report)

    async def _settle_one(
        self, collection: Collection, copy: DueRow, source: Stored | None, store: Store, report: SweepReport
    ) -> None:
        if (
            isinstance(source, Mark) and source.version >= copy.version
        ):  # the store was restored to the middle of a move; its source has released the record
            clear = Annotate(collection, copy.key, at=copy.version, role_is=Role.ARRIVING, role=Role.HOME)
            await self._placement.write_one("move.arrive", store, clear)
        elif isinstance(source, Corrupt):
            report.stays += (
                (
                    f"the move of {copy.key.id} to '{copy.tier}' cannot go on: its record in an earlier tier"
                    " is corrupt"
                ),
            )
        elif isinstance(source, Tombstone) or (source is None and not self._rollback_detector.known):
            report.removed_copies += await self._tier_mover.drop_arriving(
                collection, copy.key, copy.version, store
            )

    async def _sources(
        self, collection: Collection, rows: Sequence[DueRow], store: Store, away: set[str]
    ) -> dict[Key, Stored]:
        """Return the rows of these copies in the stores before this one.

        Raises if one of these stores does not answer.
        """
        found: dict[Key, Stored] = {}
        for source in self._placement.topology.homes:
            if source is store:
                break
            looked_for = [row.key for row in rows if row.key not in found]
            refuse_away(source, away)
            standing = (
                await self._placement.read("sweep.source", source, collection, looked_for)
                if looked_for
                else []
            )
            for key, stands in zip(looked_for, standing, strict=True):
                elsewhere = isinstance(stands, Mark) and self._placement.topology.home(stands.to) is not store
                if stands is not None and not elsewhere:
                    found[key] = stands
        return found

    async def _delete_expired(
        self,
        collection: Collection,
        rows: Sequence[DueRow],
        store: Store,
        report: SweepReport,
        away: set[str],
        hold: LeaseCheck,
    ) -> None:
        """Delete records whose grace is over, with their dependents in other stores."""
        for came in (
            await self._erasure.delete_at(
                collection, {row.key: row.version for row in rows}, store, away, hold
            )
        ).values():
            report.expired += came is True
            report.held += isinstance(came, LegalHoldActive)
            if isinstance(came, StoreError):
                _note_waiting(report, came)

    async def _end_sessions(self, report: SweepReport, hold: LeaseCheck) -> None:
        """Erase sessions whose grace is over, with everything in them."""
        grace = self._placement.settings.expired_grace
        if not grace:
            return
        query = Query(
            SESSIONS,
            Everywhere(),
            Lt("hidden_from", self._placement.now() - grace),
            limit=self._placement.settings.page,
        )
        async for page in self._placement.pages("session.expired", self._placement.topology.archive, query):
            records = [record for record in page.records if isinstance(record, Record)]
            held = await self._erasure.holds.over(records)
            for record in records:
                await hold(0 if record.key in held else 1)
                try:
                    await self._sessions.erase_expired(record)
                except LegalHoldActive:
                    report.held += 1
                except (
                    StoreError
                ) as error:  # the parts that one store lacks stay pending; other sessions are erased
                    _note_waiting(report, error)
                else:
                    report.expired += 1

    # -- forgetting --------------------------------------------------------------------

    async def _purge_all(self, over: Sequence[Store], report: SweepReport, hold: LeaseCheck) -> None:
        for leaf in over:
            await self._job(report, self._purge, leaf, report, hold)

    async def _purge(self, leaf: Store, report: SweepReport, hold: LeaseCheck) -> None:
        """Purge marks and tombstones without pending steps whose time is over."""
        async for found in self._due_pages(leaf):
            await self._forget(
                leaf,
                [(row.collection, row) for row in found.rows if row.why is DueReason.DISCARD],
                report,
                hold,
            )

    async def _clear_cache(self, report: SweepReport, hold: LeaseCheck) -> None:
        store = self._placement.topology.cache
        if store is None:
            return
        try:
            for leaf in leaves_of(store):
                await self._purge(leaf, report, hold)
            for collection in self._cached:
                while await self._clear_some(store, collection, report, hold):
                    pass  # if there was something, there may be more
        except StoreError as error:
            log.warning("maintenance skips the cache '%s': %s", store.name, error)

    async def _clear_some(
        self, store: Store, collection: Collection, report: SweepReport, hold: LeaseCheck
    ) -> int:
        """Purge cached copies of a slice that are too old to serve; return how many."""
        oldest, purged = self._placement.now() - 2 * self._placement.settings.cache_max_age, 0
        query = Query(
            collection, Everywhere(), limit=self._placement.settings.page, roles=frozenset({Role.CACHED})
        )
        async for page in self._cached[collection].slice("sweep.cache", store, query):
            rows = [row for row in page.records if isinstance(row, Record)]
            old = [
                (collection, row)
                for row in rows
                if (row.cached_at is None or row.cached_at < oldest)
                and collection is not ARTIFACTS  # copies of windows have an expiry
            ]
            purged += await self._forget(store, old, report, hold)
        return purged

    async def _forget(
        self,
        store: Store,
        rows: Sequence[tuple[Collection, DueRow | Record]],
        report: SweepReport,
        hold: LeaseCheck,
    ) -> int:
        if not rows:
            return 0
        await hold(len(rows))
        purges = [Purge(collection, row.key, at=row.version) for collection, row in rows]
        outcomes = await self._placement.write("sweep.purge", store, *purges)
        purged = sum(outcome.applied for outcome in outcomes)
        report.purged += purged
        return purged


def _note_waiting(report: SweepReport, error: StoreError) -> None:
    report.waiting += () if str(error) in report.waiting else (str(error),)


def _portions(rows: Sequence[DueRow], why: DueReason) -> Iterator[tuple[Collection, list[DueRow]]]:
    """Yield the rows that are due for this reason, by collection.

    Each portion has at most `READ_AT_ONCE` rows.
    """
    for collection in dict.fromkeys(row.collection for row in rows if row.why is why):
        some = [row for row in rows if row.collection is collection and row.why is why]
        yield from (
            (collection, some[start : start + READ_AT_ONCE]) for start in range(0, len(some), READ_AT_ONCE)
        )
