"""Sweeps: finish what crashes left, end moves that were broken off, forget marks and
tombstones that have served, apply sweep rules.

Stores are asked what is due in them, and that is done slice by slice: a sweep with
nothing to do costs a few questions, however much is stored, and one with much to do
holds little of it. Everything here may run twice at once; a lease only saves the work
of doing so. What goes wrong in one job costs that job, and is told in the report. A
store that does not answer stops its own jobs and what needs it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from memory.domain.errors import LegalHoldActive, StoreError, StoreUnavailable
from memory.domain.results import ResultMixin
from memory.orchestrator.conversations.sessions import SessionRecords
from memory.orchestrator.entries.orphans import OrphanCollector
from memory.orchestrator.erasure.erasure import Erasure
from memory.orchestrator.maintenance.reindexing import Reindexer
from memory.orchestrator.storage.budgets import UNLIMITED, Allowance, BudgetExhausted
from memory.orchestrator.storage.collections import SESSIONS
from memory.orchestrator.storage.generations import Generations
from memory.orchestrator.storage.lease import Lease, LeaseCheck, LeaseNotHeld
from memory.orchestrator.storage.outbox import Outbox, OutboxRecord
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.rollback_detection import RollbackDetector
from memory.orchestrator.storage.rounds import Round
from memory.orchestrator.storage.steps import step
from memory.orchestrator.storage.topology import leaves_of, refuse_away
from memory.orchestrator.tiering.moves import MoveResult, TierMover
from memory.orchestrator.tiering.promotion import Promotion, PromotionReport
from memory.orchestrator.tiering.retention import Retention, RetentionReport
from memory.ports.collections import Collection
from memory.ports.due import LEFT, DuePage, DueReason, DueRow
from memory.ports.query import Eq, Everywhere, Lt, Query
from memory.ports.record import Corrupt, Key, Mark, Record, Role, Stored, Tombstone
from memory.ports.store import Store
from memory.ports.writes import Annotate, Purge

log = logging.getLogger(__name__)

READ_AT_ONCE = 50
"""How many owners of steps are read at once: each may be large, and carry as much of
its past.
"""


@dataclass(slots=True, repr=False)
class SweepReport(ResultMixin):
    """What one sweep did. `ran` is false where another process holds the lease, or the
    archive does not say whether.

    `more` says that there was more to do than its budget allowed: the next one goes on
    where this one ended. `waiting` names what could not be done because a store did not
    answer; `stays` what somebody has to look at: records that a tier refuses, steps
    that a store refuses or that a newer version of the library left. `healed` counts
    scopes in which a store was behind the others, `reindexed` vectors that were made
    anew behind a reindex. By rules of retention `deleted` counts entries and sessions,
    `ended` sessions, `dropped_versions` kept versions; `held` is what would have gone
    and is under legal hold.
    """

    ran: bool = True
    more: bool = False
    finished: int = 0
    still_owed: int = 0
    removed_copies: int = 0
    purged: int = 0
    dropped_relations: int = 0
    moved: int = 0
    expired: int = 0
    deleted: int = 0
    ended: int = 0
    dropped_versions: int = 0
    held: int = 0
    repeated_erasures: int = 0
    forgotten_scopes: int = 0
    healed: int = 0
    reindexed: int = 0
    waiting: tuple[str, ...] = ()
    stays: tuple[str, ...] = ()

    @property
    def outcome(self) -> str:
        """The worst of it in a word: "stays", "waiting", "elsewhere" (it did not run),
        "more" or "done".
        """
        if self.stays or self.waiting:
            return "stays" if self.stays else "waiting"
        return "elsewhere" if not self.ran else "more" if self.more else "done"


class Watcher(Protocol):
    """Hears how sweeps end, and how many damaged records there are then. See
    `Telemetry`.
    """

    def on_sweep(self, outcome: str) -> None:
        """One has ended so (see `SweepReport.outcome`), or "failed" as a whole; not one
        that was cut off.
        """
        ...

    def on_quarantine(self, store: str, records: int) -> None:
        """So many damaged records are in quarantine in a store, behind a sweep that
        reached every store.
        """
        ...


class Maintenance:
    """Carries out sweeps."""

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
        """The job in which the last sweep had done as much as it might."""
        self._reached: dict[str, str | None] = {}
        """How far it had come in what was due in a store."""
        self.watcher: Watcher | None = None

    async def sweep(self, allowance: Allowance = UNLIMITED) -> SweepReport:
        """Ask every store what is due, and do it, if nobody else is at it, as far as
        the allowance goes. What this process has to tell it tells in any case.

        What is due is asked for without a lease, which is taken by the first job that
        has something to do.
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
        """Tell the watcher, if there is one, what is in quarantine: every store is
        asked once more for it.
        """
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
            f"{p.step} of {p.record_id}: {p.said}" for p in await self._outbox.still_owed() if not p.waits
        )
        return report

    async def _sweep(self, report: SweepReport, hold: LeaseCheck, away: set[str]) -> None:
        """All jobs, beginning with the one in which the sweep before this one ended."""
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
        """Each with what it is about. `over`: the stores in which something may be
        discarded, once every mark has told what it can.
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
            ),  # what is left of moves, deletions and erasures may tell what is missing
            (self._clear_cache, report, hold),
            (self._count, report, "reindexed", self._reindexing.catch_up, hold),
            (self._retain, report, hold, away),
            (self._apply_rules, report, hold, away),
        ]

    async def _job(
        self, report: SweepReport, job: Callable[..., Awaitable[object]], *about: Any
    ) -> Exception | None:
        """Do one job; what it raises is told in the report and returned."""
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
        """Add what a job has done to the report."""
        setattr(report, name, getattr(report, name) + await job(*about))

    async def _note_setbacks(self, report: SweepReport) -> None:
        """See whether a store was set back. Until it is healed, nothing is forgotten
        that may tell what is missing from it.
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
        """How many records, marks and tombstones owe a step. Raises where a store does
        not answer.
        """
        return sum([await self.count_pending_in(store) for store in self._placement.topology.homes])

    async def count_pending_in(self, store: Store) -> int:
        """How many in one store."""
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
        """What is owed and cannot be done, a sentence each: steps are tried again, as a
        sweep would, to tell why.
        """
        report, away = SweepReport(), set[str]()
        for store in self._placement.topology.homes:
            for leaf in leaves_of(store):
                await self._job(report, self._try_some, leaf, store, most, report, away)
        said = [
            f"{p.step} of {p.record_id} of tenant '{p.tenant}': {p.said}"
            for p in await self._outbox.still_owed()
        ]
        return [*report.waiting, *report.stays, *said][:most]

    # -- what is due -------------------------------------------------------------------

    async def _due_pages(self, leaf: Store, begin: str | None = None) -> AsyncIterator[DuePage]:
        """What is due in a store, slice by slice. Parts of split stores are asked each:
        a record in one hides another's tombstone.
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
        """What is due in a store, slice by slice, from the beginning."""
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
        """Finish what is owed in one store, end moves, and delete what has expired.
        Where something may be discarded, that is noted for later.

        A sweep that ends in the middle is gone on with behind what it tried last: what
        cannot be done keeps nothing else from being reached.
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
                    )  # once it knows what of it is under legal hold
                    try:
                        if not asks:
                            await hold(len(some))
                        failure = await self._job(report, job, collection, some, store, report, away, *asks)
                    except BudgetExhausted:
                        self._reached[leaf.name] = begin
                        raise
                    if isinstance(failure, StoreUnavailable) and failure.store in (leaf.name, store.name):
                        return  # it is not asked again
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
        with step("sweep.owed"):
            found = await store.get(collection, [row.key for row in rows])
        owners = [owner for owner in found if isinstance(owner, Record | Mark | Tombstone) and owner.owed]
        for left in await self._outbox.finish_all(
            [OutboxRecord(collection, store, owner) for owner in owners], away
        ):
            report.still_owed += bool(left)
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
        """An arriving copy whose source holds neither the record nor a mark goes; one
        whose source still lives is moved to the end, and one to which the source shows
        a mark has arrived.

        It may not be rolled back while its source lives: a frozen mover may yet release
        the source.
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
        ):  # a store restored to the middle of a move: its source has let go of it
            clear = Annotate(collection, copy.key, at=copy.version, role_is=Role.ARRIVING, role=Role.HOME)
            await self._placement.write_one("move.arrive", store, clear)
        elif isinstance(source, Corrupt):
            report.stays += (
                f"the move of {copy.key.id} to '{copy.tier}' cannot go on: its record in an earlier tier is corrupt",
            )
        elif isinstance(source, Tombstone) or (source is None and not self._rollback_detector.known):
            report.removed_copies += await self._tier_mover.drop_arriving(
                collection, copy.key, copy.version, store
            )

    async def _sources(
        self, collection: Collection, rows: Sequence[DueRow], store: Store, away: set[str]
    ) -> dict[Key, Stored]:
        """What stands for the copies in the stores before this one. Raises where one of
        these does not answer.
        """
        found: dict[Key, Stored] = {}
        for source in self._placement.topology.homes:
            if source is store:
                break
            looked_for = [row.key for row in rows if row.key not in found]
            refuse_away(source, away)
            with step("sweep.source"):
                standing = await source.get(collection, looked_for) if looked_for else []
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
        """Records whose grace is over, with all that hangs on them in other stores."""
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
        """Erase the sessions whose grace is over: not their records alone, but all that
        was said in them.
        """
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
                ) as error:  # what one store lacks of it stays owed; the others go all the same
                    _note_waiting(report, error)
                else:
                    report.expired += 1

    # -- forgetting --------------------------------------------------------------------

    async def _purge_all(self, over: Sequence[Store], report: SweepReport, hold: LeaseCheck) -> None:
        for leaf in over:
            await self._job(report, self._purge, leaf, report, hold)

    async def _purge(self, leaf: Store, report: SweepReport, hold: LeaseCheck) -> None:
        """Marks and tombstones whose time is over and which owe nothing."""
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
                    pass  # where there was something there may be more
        except StoreError as error:
            log.warning("maintenance skips the cache '%s': %s", store.name, error)

    async def _clear_some(
        self, store: Store, collection: Collection, report: SweepReport, hold: LeaseCheck
    ) -> int:
        """Forget copies that are too old to be served, of a slice; how many."""
        oldest, purged = self._placement.now() - 2 * self._placement.settings.cache_max_age, 0
        query = Query(
            collection, Everywhere(), limit=self._placement.settings.page, roles=frozenset({Role.CACHED})
        )
        async for page in self._cached[collection].slice("sweep.cache", store, query):
            rows = [row for row in page.records if isinstance(row, Record)]
            old = [(collection, row) for row in rows if row.cached_at is None or row.cached_at < oldest]
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
    """The rows due for this reason, collection by collection, as many at once as may be
    read whole.
    """
    for collection in dict.fromkeys(row.collection for row in rows if row.why is why):
        some = [row for row in rows if row.collection is collection and row.why is why]
        yield from (
            (collection, some[start : start + READ_AT_ONCE]) for start in range(0, len(some), READ_AT_ONCE)
        )
