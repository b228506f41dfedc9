"""Deletes entries: one by its id, or all that pass a filter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress

from memory.domain.errors import LegalHoldActive, VersionConflict
from memory.domain.filters import Filter
from memory.domain.ids import is_id
from memory.domain.scope import Scope, Subtree
from memory.domain.session import DeletedEntries, DeletedEntry
from memory.domain.time import micros
from memory.domain.versions import version_conflict
from memory.orchestrator.entries.browsing import EntryBrowser
from memory.orchestrator.entries.derivatives import Derivatives
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.storage.key_locks import KeyLocks, RetryDeadline
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.requests import RequestMark
from memory.policies.entry_filters import satisfies
from memory.policies.entry_query import where_of
from memory.policies.visibility import is_current
from memory.ports.record import Key, Record
from memory.ports.store import Store

DELETED_AT_ONCE = 100
"""Entries that `delete_many` deletes by one call of a store."""


class EntryDeletion:
    """Deletes one entry or many.

    Of many, each is deleted in the version that passed the filter.
    """

    def __init__(
        self,
        placement: Placement,
        *,
        browser: EntryBrowser,
        derivatives: Derivatives,
        key_locks: KeyLocks,
    ) -> None:
        self._placement = placement
        self._browser = browser
        self._derivatives = derivatives
        self.key_locks = key_locks

    async def was_deleted_by(self, tenant: str, entry_id: str, request: RequestMark) -> bool:
        """Return whether an earlier call of the request has deleted the entry."""
        return is_id(entry_id) and await self._derivatives.was_deleted_by(Key(tenant, entry_id), request)

    async def delete(
        self, tenant: str, entry_id: str, *, expected: int | None = None, request: RequestMark | None = None
    ) -> DeletedEntry:
        """Delete one entry. The result is false if there was none.

        Raises:
            LegalHoldActive: The entry is under legal hold.
            VersionConflict: Another version than the expected one is stored, or none.
        """
        if not is_id(entry_id):
            if expected is not None:
                raise version_conflict(f"entry {entry_id[:64]}", expected, None)
            return DeletedEntry(0)
        key = Key(tenant, entry_id)
        async with self.key_locks.take(ENTRIES, key, RetryDeadline(self._placement, entry_id)):
            return await self._derivatives.delete(key, expected, request)

    async def delete_many(
        self,
        tenant: str,
        scopes: Sequence[Scope | Subtree],
        passing: Filter,
        *,
        retired: bool = False,
        request: RequestMark | None = None,
    ) -> DeletedEntries:
        """Delete every entry that passes the filter when it is deleted.

        Without scopes, those of the whole tenant are deleted.

        A repeat of the request leaves entries that changed after the request began.
        """
        passes, where = satisfies(passing), where_of(tenant, scopes)
        until = micros(request.begun_at) if request is not None and request.repeats else None

        def goes(record: Record) -> bool:
            return (
                passes(record)
                and (retired or is_current(record, self._placement.now()))
                and (until is None or record.version <= until)
            )

        total, group = DeletedEntries(), list[Record]()
        async for record in self._browser.every_record(ENTRIES, where, passing=passing):
            group += [record] if goes(record) else []
            if len(group) == DELETED_AT_ONCE:
                total, group = _sum(total, await self._delete_group(group, goes)), []
        return _sum(total, await self._delete_group(group, goes))

    async def _delete_group(
        self, group: Sequence[Record], goes: Callable[[Record], bool]
    ) -> dict[Key, DeletedEntry | LegalHoldActive]:
        """Delete entries by few calls. Those that changed since are looked at again."""
        done: dict[Key, DeletedEntry | LegalHoldActive] = {}
        stores: dict[Store, dict[Key, int]] = {}
        for record in group:
            home = self._placement.topology.home(record.tier)
            stores.setdefault(home, {})[record.key] = record.version
        async with AsyncExitStack() as locks:
            for key in sorted(record.key for record in group):
                await locks.enter_async_context(
                    self.key_locks.take(ENTRIES, key, RetryDeadline(self._placement, key.id))
                )
            for store, at in stores.items():
                for key, came in (await self._derivatives.delete_at(at, store)).items():
                    if isinstance(came, DeletedEntry | LegalHoldActive):
                        done[key] = came
                    else:
                        raise came
        for record in group:
            if done[record.key] == 0:
                try:
                    done[record.key] = await self._delete_passing(record, goes)
                except LegalHoldActive as held:
                    done[record.key] = held
        return done

    async def _delete_passing(self, read: Record, goes: Callable[[Record], bool]) -> DeletedEntry:
        """Delete an entry at the version that was read, or at a later one."""
        key, patience = read.key, RetryDeadline(self._placement, read.key.id)
        record: Record | None = read
        while record is not None and goes(record):
            with suppress(VersionConflict):
                async with self.key_locks.take(ENTRIES, key, patience):
                    return await self._derivatives.delete(key, record.version)
            tried, record = record.version, (await self._placement.locate(ENTRIES, key)).record
            if record is not None and record.version == tried:  # it moves to another store
                await patience.wait()
        return DeletedEntry(0)


def _sum(total: DeletedEntries, group: Mapping[Key, DeletedEntry | LegalHoldActive]) -> DeletedEntries:
    """Return the result of deletions with that of one more group."""
    done = [one for one in group.values() if isinstance(one, DeletedEntry)]
    held = [key.id for key, one in group.items() if not isinstance(one, DeletedEntry)]
    kept = dict.fromkeys([*total.kept, *(entry_id for one in done for entry_id in one.kept)])
    return DeletedEntries(
        total.deleted + sum(map(int, done)),
        (*total.held, *held),
        tuple(kept),
        total.is_complete and all(one.is_complete for one in done),
    )
