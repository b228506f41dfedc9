"""Clears references in entries to a deleted artifact or session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from memory.domain.errors import StoreUnavailable
from memory.domain.time import micros
from memory.orchestrator.conversations.derived_entries import SAID_IN
from memory.orchestrator.erasure.erasure import Erasure
from memory.orchestrator.storage.cache import Cache
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.storage.entry_records import PIN, UNPINNED, pinned_at
from memory.orchestrator.storage.key_locks import RetryDeadline
from memory.orchestrator.storage.outbox import REPLICA, Outbox, OutboxRecord
from memory.orchestrator.storage.placement import Placement, raise_if_rejected
from memory.orchestrator.storage.split import CONVERSATION
from memory.ports.query import Eq, Query, Tenant
from memory.ports.record import Partition, Record, Role
from memory.ports.store import Store
from memory.ports.writes import AtVersion, Put

COPIES = frozenset({Role.HOME, Role.ARRIVING, Role.REPLICA})


class ArtifactReferences:
    """Clears a field in all copies of entries, also of retired ones.

    This makes no new version: `updated_at` stays, and no past version is kept. A
    replica with the old value may still be pending, and has the same version. The
    cleared replica is therefore delivered first, while its home can still be found by
    the field: a late delivery then conflicts with it. A replica that arrived earlier is
    found, because the stores are searched until no reference is left.
    """

    def __init__(self, placement: Placement, *, cache: Cache, outbox: Outbox, erasure: Erasure) -> None:
        self._placement = placement
        self._cache = cache
        self._outbox = outbox
        erasure.first.append(self._unpin)

    async def clear(self, tenant: str, artifact_id: str) -> None:
        """Clear the references of the tenant's entries to the artifact.

        A concurrent edit or move may bring a reference back. It points to nothing, and
        reads show no artifact.
        """
        await self._let_go(tenant, ("artifact_id",), artifact_id, lambda row: True)

    async def _unpin(self, partition: Partition, begun: datetime) -> None:
        """Unpin all entries from a session whose deletion began at `begun`.

        Entries that were pinned later stay: they belong to a session that was created
        since under the same id. Entries that were derived from the session's messages
        keep its name. They are deleted with the session, and found by that name (see
        `derived_entries.py`).
        """
        kind, _, session_id = partition.scope.partition(":")
        if kind == CONVERSATION:
            until = micros(begun)
            await self._let_go(
                partition.tenant,
                PIN,
                session_id,
                lambda row: pinned_at(row) <= until and SAID_IN not in row.body,
            )

    async def _let_go(
        self, tenant: str, fields: tuple[str, ...], value: str, points: Callable[[Record], bool]
    ) -> None:
        """Clear the fields wherever the first has this value, until none is found."""
        asked = Query(
            ENTRIES, Tenant(tenant), Eq(fields[0], value), limit=self._placement.settings.page, roles=COPIES
        )
        patience = RetryDeadline(self._placement, value)
        while True:
            found = cleared = 0
            for store in self._placement.topology.homes:
                async for page in self._placement.pages("referrers.find", store, asked):
                    rows = [row for row in page.records if isinstance(row, Record) and points(row)]
                    found += len(rows)
                    cleared += await self._clear_in(store, rows, fields) if rows else 0
            if not found:
                return
            if not cleared:
                await patience.wait()

    async def _clear_in(self, store: Store, rows: list[Record], fields: tuple[str, ...]) -> int:
        await self._cache.invalidate(ENTRIES, *[row.key for row in rows])
        cleared = await self._bring(store, [_without(row, fields) for row in rows])
        puts = [Put(ENTRIES, row, AtVersion(row.version, row.role, row.tier)) for row in cleared]
        outcomes = await self._placement.write("referrers.clear", store, *puts)
        raise_if_rejected(store, *outcomes)
        await self._cache.invalidate(ENTRIES, *[row.key for row in rows])
        return sum(outcome.applied for outcome in outcomes)

    async def _bring(self, store: Store, rows: list[Record]) -> list[Record]:
        """Deliver the pending replicas of the homes among these rows.

        Returns the rows without the delivered steps.
        """
        homes = [row for row in rows if row.role is Role.HOME]
        left, away = [tuple(owed for owed in row.owed if owed.step == REPLICA) for row in homes], set[str]()
        for _ in range(2):  # the first round removes obstacles of the second
            owing = [
                OutboxRecord(ENTRIES, store, replace(row, owed=owed))
                for row, owed in zip(homes, left, strict=True)
            ]
            left = await self._outbox.finish_all(owing, away)
        if away:
            raise StoreUnavailable(
                min(away), "does not answer. A sweep clears the references to deleted records"
            )
        owed_by = {row.key: owed for row, owed in zip(homes, left, strict=True)}
        return [
            replace(
                row,
                owed=tuple(one for one in row.owed if one.step != REPLICA or one in owed_by.get(row.key, ())),
            )
            for row in rows
        ]


def _without(row: Record, fields: tuple[str, ...]) -> Record:
    body = {**row.body, UNPINNED: True} if fields is PIN else row.body
    return replace(
        row, fields={name: value for name, value in row.fields.items() if name not in fields}, body=body
    )
