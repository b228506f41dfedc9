"""Ends of sessions that a caller requests.

If a store prevents some of the work, it stays pending, and a sweep does it once the
stores answer again. The event that ends a conversation has the pending step `end` from
its first put on, so that it also survives a crash. A session with only entries has no
log. If work waits, an operation record has the step, for the entries that existed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from memory.domain.errors import MemoryTiersError, NotFound, StoreError, StoreUnavailable
from memory.domain.promotion_report import PromotionReport
from memory.domain.scope import Scope
from memory.domain.time import micros, moment
from memory.orchestrator.conversations.log.events import EventType
from memory.orchestrator.conversations.sessions import END, SessionRecords
from memory.orchestrator.conversations.window_exits import LEAVE
from memory.orchestrator.storage.collections import LEASES, MESSAGES, OPERATIONS
from memory.orchestrator.storage.lease import lease_key
from memory.orchestrator.storage.operations import end_operation, new_operation
from memory.orchestrator.storage.outbox import Came, Item, Outbox
from memory.orchestrator.storage.placement import Placement, raise_if_rejected
from memory.orchestrator.storage.session_keys import scope_of
from memory.orchestrator.tiering.promotion import Promotion
from memory.ports.query import And, Eq, Gt, Query, within
from memory.ports.record import Corrupt, Partition, PendingStep, Record, Standing
from memory.ports.writes import Absent, Annotate, AtVersion, Newer, Put, When


@dataclass(frozen=True, slots=True)
class PendingSessionEnd:
    """A session end that is still to be carried out.

    It moves only entries written before `until`; None moves all entries of the session.
    """

    tenant: str
    scope: Scope
    until: datetime | None


class SessionClosing:
    """Ends sessions, and carries out the pending session ends."""

    def __init__(
        self, placement: Placement, *, outbox: Outbox, sessions: SessionRecords, promotion: Promotion
    ) -> None:
        self._placement = placement
        self._sessions = sessions
        self._promote: Callable[[str, Scope, datetime | None, set[str]], Awaitable[PromotionReport]] = (
            promotion.end_session
        )
        outbox.register_together(END, self._carry_out, is_last=True)  # entries made of messages exist by then

    async def end(self, tenant: str, scope: Scope, owing: Sequence[Record] | None = None) -> PromotionReport:
        """End a session, as `Promotion.end_session` does.

        Work that waits is pending when this returns. It raises if that cannot be
        stored. Only ends that were pending before any entry was read are completed. A
        later end of another process stays pending.

        Args:
            owing: The session's events with pending steps, if they were just read.
        """
        begun = self._placement.now()
        before = await self._pending_events(tenant, scope) if owing is None else owing
        report = await self._promote(tenant, scope, None, set())
        if report.waiting:
            if not _events_with_step(END, await self._pending_events(tenant, scope)):
                await self._note(tenant, scope, begun)
        elif not _events_with_step(LEAVE, before):
            with suppress(StoreError):  # a sweep finds nothing more to do
                await self._settle(_events_with_step(END, before))
        return report

    async def _pending_events(self, tenant: str, scope: Scope) -> list[Record]:
        """Return the events of the session with pending steps."""
        where = within(Partition(tenant, scope_of(scope.id)))
        query = Query(MESSAGES, where, Eq("owing", True), limit=self._placement.settings.page)
        pages = self._placement.pages("end.owed", self._placement.topology.archive, query)
        return [row async for page in pages for row in page.records if isinstance(row, Record)]

    async def _settle(self, owing: Sequence[Record]) -> None:
        if owing:
            done = [Annotate(MESSAGES, row.key, at=row.version, settle=(END,)) for row in owing]
            await self._placement.write("end.settle", self._placement.topology.archive, *done)

    async def _note(self, tenant: str, scope: Scope, until: datetime) -> None:
        """Store the pending end in an operation.

        An end that is pending already then also covers the later entries.
        """
        archive, data = (
            self._placement.topology.archive,
            {"tenant": tenant, "session_id": scope.id, "until": micros(until)},
        )
        operation = new_operation(self._placement, END, (tenant, scope.id), data)
        when: When = Absent()
        while True:
            noted = await self._placement.write_one("end.note", archive, Put(OPERATIONS, operation, when))
            if noted.applied:
                return
            raise_if_rejected(archive, noted)
            there = noted.stored
            if isinstance(there, Record) and any(
                other.data["until"] >= data["until"] for other in there.owed
            ):
                return  # another call stored a later moment
            when = (
                Absent()
                if there is None
                else Newer()
                if isinstance(there, Corrupt)
                else AtVersion(there.version)
            )
            # The clock of its writer may be ahead of this one.
            operation = replace(operation, version=self._placement.next_version(noted.version or 0))

    # -- what is owed ------------------------------------------------------------------

    async def _carry_out(self, items: Sequence[Item]) -> Sequence[Came]:
        """Carry out pending ends.

        None is carried out while a store does not answer. If one has to wait for a
        store, those after it wait too.
        """
        try:
            for store in self._placement.topology.homes:
                await self._placement.read("end.answers", store, LEASES, [lease_key()])
        except StoreError as error:
            return [error] * len(items)
        came: list[Came] = []
        for pending, owed in items:
            away = set[str]()
            try:
                came.append(await self._do(pending.owner, owed, away))
            except MemoryTiersError as error:
                came.append(error)
                if away or isinstance(error, StoreUnavailable):
                    return came + [error] * (len(items) - len(came))
        return came

    async def _do(self, owner: Standing, owed: PendingStep, away: set[str]) -> bool:
        """Carry out an end for the existing entries.

        The step stays pending for entries that are still to be made of messages. `away`
        receives the names of stores that did not answer.
        """
        if (ending := await self.due_end(owner, owed)) is not None:
            leaving = ending.until is None and _events_with_step(
                LEAVE, await self._pending_events(ending.tenant, ending.scope)
            )
            waiting = (await self._promote(ending.tenant, ending.scope, ending.until, away)).waiting
            waiting += ["messages that left its window are not handled yet"] if leaving else []
            if waiting:
                raise SessionEndDeferred("; ".join(waiting))
        if "tenant" in owed.data and isinstance(owner, Record):
            await end_operation("end.over", self._placement, owner, END)
        return True

    async def due_end(self, owner: Standing, owed: PendingStep) -> PendingSessionEnd | None:
        """Return the end that this step is for; None if it is no longer due.

        It is not due if the session was deleted, or resumed since; the next end then
        does all of it. It is due if the session has expired meanwhile: entries have an
        expiry of their own.
        """
        if not isinstance(owner, Record):
            return None
        if "tenant" in owed.data:
            return PendingSessionEnd(
                owed.data["tenant"], Scope.session(owed.data["session_id"]), moment(owed.data["until"])
            )
        tenant, scope = owner.key.tenant, Scope.session(str(owner.fields["conversation_id"]))
        if (record := await self._sessions.find_record(tenant, scope.id)) is None:
            return None
        log = self._sessions.log(record)
        if not (ended := log.events_of([owner])):
            return None
        with suppress(NotFound):  # the event that resumed it may be damaged; then later events decide
            resumed = And((Eq("event", EventType.RESUMED.value), Gt("place", ended[0].place)))
            if (await log.load()).state.after.status != "active" and await log.first(resumed) is None:
                return PendingSessionEnd(tenant, scope, None)
        return None


def _events_with_step(name: str, events: Sequence[Record]) -> list[Record]:
    return [event for event in events if any(owed.step == name for owed in event.owed)]


class SessionEndDeferred(MemoryTiersError):
    """A session end could not finish all its steps. It is tried again."""

    retryable = True
