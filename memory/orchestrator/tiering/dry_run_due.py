"""Plans the work that a sweep does before its rules run.

It deletes expired records, and makes entries from stored answers about messages.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from memory.domain.errors import QuotaExceeded, StoreError, StoreUnavailable
from memory.domain.time import in_words
from memory.orchestrator.conversations.redaction import ERASE_USER, REDACT
from memory.orchestrator.conversations.sessions import DELETE_DERIVED, END
from memory.orchestrator.conversations.window_exits import LEAVE, WindowExitHandler
from memory.orchestrator.enrichment.superseding import SUPERSEDE
from memory.orchestrator.entries.admission import NewEntry
from memory.orchestrator.erasure.erasure import DELETE, ERASE_SCOPE, Erasure
from memory.orchestrator.storage.collections import ENTRIES, SESSIONS
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.topology import leaves_of
from memory.orchestrator.tiering.plan import PlanBuilder
from memory.orchestrator.tiering.promotion import Promotion
from memory.orchestrator.tiering.session_ends import SessionClosing
from memory.ports.collections import Collection
from memory.ports.due import DuePage, DueReason, DueRow
from memory.ports.query import Everywhere, Lt, Query
from memory.ports.record import Corrupt, Mark, PendingStep, Record, Role, Tombstone
from memory.ports.store import Store

NOT_FORESEEN = frozenset({DELETE, ERASE_SCOPE, ERASE_USER, REDACT, SUPERSEDE})
"""Steps that delete or change other records.

A sweep completes those that are pending first.
"""
READ_AT_ONCE = 50


class DryRunDueWork:
    """Plans the due work, in the order of a sweep."""

    def __init__(
        self,
        placement: Placement,
        *,
        due: Callable[[Store], AsyncIterator[DuePage]],
        erasure: Erasure,
        window_exit: WindowExitHandler,
        session_closing: SessionClosing,
        promotion: Promotion,
        not_foreseen: frozenset[str],
    ) -> None:
        self._placement = placement
        self._due = due
        self._erasure = erasure
        self._window_exit = window_exit
        self._session_closing = session_closing
        self._promotion = promotion
        self._not_foreseen = NOT_FORESEEN | not_foreseen

    async def plan(self, planning: PlanBuilder) -> None:
        """Plan which records expire, and which are made, before the rules run."""
        for store in self._placement.topology.homes:
            for leaf in leaves_of(store):
                try:
                    async for found in self._due(leaf):
                        await self._plan_some(found.rows, store, planning)
                except StoreError as error:
                    planning.waits(str(error))
        await self._plan_sessions(planning)

    async def _plan_some(self, rows: Sequence[DueRow], store: Store, planning: PlanBuilder) -> None:
        for collection in dict.fromkeys(row.collection for row in rows if row.why is DueReason.OWES):
            owing = [row for row in rows if row.why is DueReason.OWES and row.collection is collection]
            await self._plan_owed(collection, owing, store, planning)
        for row in rows:
            if row.why is DueReason.ARRIVING:
                planning.waits(
                    f"{row.key.id} is on its way to '{row.tier}', where a sweep completes the move first;"
                    " what rules do there is not predicted"
                )
        for collection in dict.fromkeys(row.collection for row in rows if row.why is DueReason.EXPIRED):
            expired = [row for row in rows if row.why is DueReason.EXPIRED and row.collection is collection]
            for start in range(0, len(expired), READ_AT_ONCE):
                await self._plan_expired(collection, expired[start : start + READ_AT_ONCE], store, planning)

    # -- what is owed ------------------------------------------------------------------

    async def _plan_owed(
        self, collection: Collection, rows: Sequence[DueRow], store: Store, planning: PlanBuilder
    ) -> None:
        for start in range(0, len(rows), READ_AT_ONCE):
            found = await self._placement.read(
                "plan.owed", store, collection, [row.key for row in rows[start : start + READ_AT_ONCE]]
            )
            owners = [one for one in found if isinstance(one, Record | Mark | Tombstone)]
            for owner in owners:
                for owed in owner.owed:
                    if owed.step == LEAVE and isinstance(owner, Record):
                        await self._plan_leaving(owner, owed, planning)
                    elif owed.step == DELETE_DERIVED:
                        data = owed.data
                        direct = bool(data.get("expired"))
                        await self._plan_derived_deletion(
                            data["tenant"], data["session_id"], "delete", "is gone", planning, direct=direct
                        )
                    elif owed.step in self._not_foreseen:
                        planning.waits(
                            f"'{owed.step}' of {owner.key.id} is pending and runs first; the plan does not"
                            " predict its effects"
                        )
            await self._plan_ends(
                [(owner, owed) for owner in owners for owed in owner.owed if owed.step == END], planning
            )

    async def _plan_leaving(self, owner: Record, owed: PendingStep, planning: PlanBuilder) -> None:
        session = str(owner.fields["conversation_id"])
        try:
            fresh = await self._window_exit.plan_entries(owner, owed)
            if fresh is None:
                if self._window_exit.is_to_ask(owner):
                    planning.waits(
                        f"on_window_exit is called for messages of session '{session}'; the plan cannot"
                        " predict its entries"
                    )
                return
            async with planning.quotas.admit(
                owner.key.tenant, [NewEntry.of(record, derived=True) for record in fresh]
            ) as stay:
                for record in fresh:
                    stay.add(record.key)
                    planning.ahead.comes(ENTRIES, record)
                    planning.does(
                        "make", ENTRIES, record, "", f"it was derived from messages of session '{session}'"
                    )
            planning.ahead.settled.add((owner.key, LEAVE))
        except QuotaExceeded as error:
            for record in fresh or ():
                planning.leaves("make", ENTRIES, record, "", str(error), quota=error.quota)
        except StoreError as error:
            planning.waits(str(error))
        planning.evicts()

    async def _plan_ends(
        self, ends: Sequence[tuple[Record | Mark | Tombstone, PendingStep]], planning: PlanBuilder
    ) -> None:
        """Plan the pending session ends that a caller requested."""
        answers, silent = (
            all([await planning.answers(store) for store in self._placement.topology.homes]),
            set[str](),
        )
        for owner, owed in ends:
            ending = None
            try:
                ending = await self._session_closing.due_end(owner, owed)
                if not answers or silent:
                    away = ["a store does not answer"]
                elif ending is None:
                    away = []
                else:
                    away = await self._promotion.plan_end(
                        ending.tenant, ending.scope, planning, ending.until, silent
                    )
            except StoreError as error:
                away = [str(error)]
                silent |= {error.store} if isinstance(error, StoreUnavailable) else set()
            of_event = owner.fields.get("conversation_id") if isinstance(owner, Record) else None
            session = ending.scope.id if ending is not None else str(of_event or owed.data.get("session_id"))
            if not away:
                planning.ahead.settled.add((owner.key, END))
            planning.waits(*(f"pending steps of the end of session '{session}': {said}" for said in away))

    # -- what has expired --------------------------------------------------------------

    async def _plan_expired(
        self, collection: Collection, rows: Sequence[DueRow], store: Store, planning: PlanBuilder
    ) -> None:
        at = {row.key: row.version for row in rows if not planning.ahead.knows(collection, row.key)}
        try:
            found = await self._placement.read("plan.expired", store, collection, list(at))
            planning.waits(
                *(
                    f"{row.key.id} stays: its record in store '{store.name}' is corrupt"
                    for row in found
                    if isinstance(row, Corrupt)
                )
            )
            await self._goes(
                collection,
                [
                    r
                    for r in found
                    if isinstance(r, Record) and r.role is Role.HOME and r.version == at[r.key]
                ],
                planning,
            )
        except StoreError as error:
            planning.waits(str(error))

    async def _plan_sessions(self, planning: PlanBuilder) -> None:
        if not (grace := self._placement.settings.expired_grace):
            return
        query = Query(
            SESSIONS,
            Everywhere(),
            Lt("hidden_from", planning.now - grace),
            limit=self._placement.settings.page,
        )
        async for page in self._placement.pages("session.expired", self._placement.topology.archive, query):
            for record in await self._goes(
                SESSIONS, [record for record in page.records if isinstance(record, Record)], planning
            ):
                if all(
                    [await planning.answers(store) for store in self._placement.topology.stores]
                ):  # otherwise it is done once they answer
                    await self._plan_derived_deletion(
                        record.key.tenant, str(record.fields["session_id"]), "expire", "has expired", planning
                    )

    async def _plan_derived_deletion(
        self,
        tenant: str,
        session_id: str,
        action: str,
        why: str,
        planning: PlanBuilder,
        *,
        direct: bool = True,
    ) -> None:
        """Plan the deletion of entries derived from a session.

        With `direct`, copies of these entries stay.
        """
        try:
            async for entry in self._window_exit.derived.entries_of_past_incarnations(
                tenant, session_id, direct=direct
            ):
                if planning.ahead.knows(ENTRIES, entry.key):
                    continue
                if entry.key in await self._erasure.holds.over([entry]):
                    planning.leaves(action, ENTRIES, entry, "", "it is under legal hold")
                    continue
                planning.ahead.goes(ENTRIES, entry)
                planning.does(
                    action,
                    ENTRIES,
                    entry,
                    "",
                    f"it was derived from messages of session '{session_id}', which {why}",
                )
        except StoreError as error:
            planning.waits(str(error))

    async def _goes(
        self, collection: Collection, records: Sequence[Record], planning: PlanBuilder
    ) -> list[Record]:
        """Plan the expiry of these records; return those that will be deleted."""
        because = f"it expired more than {in_words(self._placement.settings.expired_grace)} ago"
        held = await self._erasure.holds.over(records)
        for record in records:
            if record.key in held:
                planning.leaves("expire", collection, record, "", "it is under legal hold")
                continue
            planning.ahead.goes(collection, record)
            planning.does("expire", collection, record, "", because)
        return [record for record in records if record.key not in held]
