"""Writes of records whose id others may derive as well.

Such a record is born where no record is stored, or over the tombstone of an earlier
life of its id.

Only the tombstone knows the pending steps of its deletion. So those steps are completed
before the tombstone is replaced. Otherwise nobody would erase the rest of the earlier
life, and it would show as the past of the new one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from memory.domain.errors import StoreUnavailable
from memory.domain.time import moment
from memory.orchestrator.storage.cache import Cache
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.storage.entry_records import DELETED_BY, REQUEST
from memory.orchestrator.storage.outbox import Outbox, OutboxRecord
from memory.orchestrator.storage.past_versions import BORN_IN, LIFE
from memory.orchestrator.storage.placement import LocatedRecord, Placement
from memory.orchestrator.storage.requests import CREATED_OVER, UNDONE
from memory.ports.record import Record, Role, Tombstone
from memory.ports.store import Store
from memory.ports.writes import Absent, AtVersion


@dataclass(frozen=True, slots=True)
class PreparedPut:
    """A record, the store that takes it, and the condition of the put."""

    record: Record
    store: Store
    when: Absent | AtVersion


class IdReuse:
    """Prepares records whose id may have a tombstone of an earlier life."""

    def __init__(self, placement: Placement, *, outbox: Outbox, cache: Cache) -> None:
        self._placement = placement
        self._outbox = outbox
        self._cache = cache

    async def prepare(self, record: Record, store: Store, there: LocatedRecord) -> PreparedPut | None:
        """Prepare the put of a record that is to be born in `store`.

        If a tombstone is stored elsewhere, the record is born there. The prepared
        record is newer than anything under its key. Times that the caller left to the
        memory are no earlier than its version.

        Returns:
            None if another life began since `there` was read: locate the id again.

        Raises:
            StoreUnavailable: The deletion of an earlier life cannot be completed now.
        """
        tombstone, home = there.tombstone, there.store
        if tombstone is None or home is None:
            return PreparedPut(record, store, Absent())
        highest = await self._laid_to_rest(tombstone, store, home)
        if highest is None:
            return None
        version = max(record.version, highest + 1)
        await self._cache.invalidate(ENTRIES, record.key)
        tier = record.tier if home is store else self._placement.topology.tiers_of(home)[0]
        reborn = replace(
            _at_version(record, version),
            body={
                **record.body,
                LIFE: version,
                **({} if UNDONE in tombstone.note else {CREATED_OVER: tombstone.version}),
                **({BORN_IN: tier} if tier != record.tier else {}),
                **({DELETED_BY: tombstone.note[REQUEST]} if REQUEST in tombstone.note else {}),
            },
            tier=tier,
        )
        return PreparedPut(reborn, home, AtVersion(tombstone.version))

    async def _laid_to_rest(self, tombstone: Tombstone, born_in: Store, home: Store) -> int | None:
        """Complete the deletions of earlier lives under the key.

        Returns:
            The highest version under the key in any store. None if a record has come
            since the tombstone in `home` was found, or another tombstone before it: a
            process that stood still between two reads would begin a second life.
        """
        key, highest, is_before = tombstone.key, 0, True
        for store in self._placement.topology.since(born_in):
            row = await self._placement.read_one("life.tombstones", store, ENTRIES, key)
            is_before = is_before and store is not home
            if is_before and isinstance(row, Tombstone):
                return None
            if isinstance(row, Record) and row.role is Role.HOME and row.version > tombstone.version:
                return None
            highest = max(highest, getattr(row, "version", 0))
            if (
                isinstance(row, Tombstone)
                and row.owed
                and (left := await self._outbox.finish(OutboxRecord(ENTRIES, store, row)))
            ):
                undone = ", ".join(owed.step for owed in left)
                raise StoreUnavailable(
                    store.name,
                    f"the deletion of entry {key.id} is not complete ({undone}). Its id is free after that;"
                    " try again",
                )
        await self._outbox.erase_children(
            ENTRIES, key
        )  # an erasure of a scope leaves relations in other scopes until a sweep
        return highest


def _at_version(record: Record, version: int) -> Record:
    """Return the record as if it had been made at the moment of the version.

    Times that a caller or a file gave stay.
    """
    made, now = moment(record.version), moment(version)
    if record.updated_at != made:
        return replace(record, version=version)
    fields = record.fields
    if fields["valid_from"] == made:
        fields = {**fields, "valid_from": now}
    created_at = now if record.created_at == made else record.created_at
    return replace(record, version=version, created_at=created_at, updated_at=now, fields=fields)
