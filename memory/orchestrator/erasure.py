"""Deleting: one record with all that hangs on it, or a whole scope, in every store.

A tombstone at home is the moment a record is gone; what remains (replicas, kept versions, relations) is owed by the tombstone. A scope is
erased by an operation record that owes one step a store: raise the scope's generation, so that late copies are refused whoever brings them,
then leave tombstones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memory.domain.errors import CorruptRecord, StoreUnavailable
from memory.domain.scope import Scope
from memory.orchestrator.cache import Cache
from memory.orchestrator.owed import DELETE, ERASE, KEEP, UNKEEP, UNPLACE, UNRELATE, Debt, OwedWork, carried_over
from memory.orchestrator.placement import Placement, refused
from memory.orchestrator.steps import step
from memory.ports.collections import ENTRIES, ENTRY_VERSIONS, OPERATIONS, RELATIONS, Collection
from memory.ports.query import Eq, Lt, Query, Tenant, within
from memory.ports.record import Key, Mark, Owed, Partition, Record, Role, Tombstone
from memory.ports.store import Store
from memory.ports.writes import Absent, AtVersion, Delete, Newer, Put, RaiseGeneration

SYSTEM_TENANT = "~memory"
"""Owner of the records that serve the engine itself; no caller's tenant may have this name."""
SCOPED = (ENTRIES, ENTRY_VERSIONS, RELATIONS)
"""The collections whose records belong to callers' scopes; the others are the engine's own and hold no caller's text beyond an operation's life."""
DIGEST = "request_digest"
"""The field, and the entry of a tombstone's note, that tells a repeated keyed write from another under the same key."""
OTHER_ROLES = frozenset(Role) - {Role.HOME}


class Erasure:
    """Carries out deletions."""

    def __init__(self, placement: Placement, owed: OwedWork, cache: Cache) -> None:
        self._placement = placement
        self._owed = owed
        self._cache = cache
        owed.register(DELETE, self._delete_noted)
        owed.register(ERASE, self._erase_noted)

    # -- one record ---------------------------------------------------------------------------------------------------

    async def delete(self, collection: Collection, key: Key, *, at: int | None = None) -> bool:
        """Delete a record wherever it is; false where nothing was. With `at`, only if that is its version still."""
        for _ in range(self._placement.settings.attempts):
            try:
                located = await self._placement.locate(collection, key)
            except CorruptRecord as unreadable:
                return await self._delete_unreadable(collection, key, unreadable.store)
            home = located.home()
            if home is None or (at is not None and home[0].version != at):
                return False
            record, store = home
            await self._cache.invalidate(collection, key)
            grave = self._grave(collection, record, store)
            outcome = await self._placement.write_one("delete.home", store, grave)
            if outcome.applied:
                await self._cache.invalidate(collection, key)
                fallen = Tombstone(key, grave.version, grave.owed, grave.note)
                await self._owed.try_finish(Debt(collection, store, fallen))
                return True
            if (error := refused(store, outcome)) is not None:
                raise error
        raise StoreUnavailable(self._placement.topology.archive.name, f"record {key.id} keeps changing; try again")

    def _grave(self, collection: Collection, record: Record, store: Store) -> Delete:
        owed: list[Owed] = [o for o in carried_over(record) if o.kind != KEEP]
        if self._placement.topology.later(store):
            owed.append(Owed(UNPLACE))
        if collection is ENTRIES:
            unfinished = [o.data["record"] for o in record.owed if o.kind == KEEP]
            versions = [record.previous, *(v for kept in unfinished for v in (kept["version"], kept["previous"]))]
            known = sorted({v for v in versions if v is not None})
            owed += [Owed(UNKEEP, {"versions": known})] if known else []
            owed.append(Owed(UNRELATE))
        return Delete(
            collection,
            record.key,
            version=self._placement.next_version(record.version),
            when=AtVersion(record.version),
            owed=tuple(owed),
            note=self._note(record),
            discard_at=None if owed else self._placement.tombstone_until(),
        )

    @staticmethod
    def _note(record: Record) -> dict[str, Any]:
        """What a repeated keyed write needs to know of a deleted record: a digest, dates and the version; no text."""
        digest = record.fields.get(DIGEST)
        return {} if digest is None else {DIGEST: digest, "version": record.version, "created_at": record.created_at.isoformat()}

    async def _delete_unreadable(self, collection: Collection, key: Key, where: str) -> bool:
        """What cannot be read can still be erased: a tombstone in its place, which owes what hangs on it, as far as that can be read."""
        store = next(s for s in self._placement.topology.homes if s.name == where)
        await self._cache.invalidate(collection, key)
        owed = await self._owed_blindly(key) if collection is ENTRIES else ()
        if self._placement.topology.later(store):
            owed = (Owed(UNPLACE), *owed)
        fallen = await self._bury(collection, key, store, owed)
        await self._cache.invalidate(collection, key)
        await self._owed.try_finish(Debt(collection, store, fallen))
        return True

    async def _owed_blindly(self, key: Key) -> tuple[Owed, ...]:
        """What the tombstone of an entry owes whose record cannot say which versions of it were kept."""
        query = Query(ENTRY_VERSIONS, Tenant(key.tenant), Eq("entry_id", key.id))
        with step("version.find"):
            page = await self._placement.topology.archive.query(query)
        versions = [row.version for row in page.records if isinstance(row, Record)]
        return (Owed(UNKEEP, {"versions": versions}), Owed(UNRELATE))

    async def _bury(self, collection: Collection, key: Key, store: Store, owed: tuple[Owed, ...]) -> Tombstone:
        """A tombstone over whatever stands there, however new it says it is."""
        stands = 0
        for _ in range(self._placement.settings.attempts):
            version = self._placement.next_version(stands)
            discard_at = None if owed else self._placement.tombstone_until()
            grave = Delete(collection, key, version=version, when=Newer(), owed=owed, discard_at=discard_at)
            outcome = await self._placement.write_one("delete.unreadable", store, grave)
            if outcome.applied:
                return Tombstone(key, version, owed)
            if (error := refused(store, outcome)) is not None:
                raise error
            stands = outcome.version or stands
        raise StoreUnavailable(store.name, f"record {key.id} keeps changing; try again")

    async def _delete_noted(self, debt: Debt, owed: Owed) -> bool:
        """Delete the records noted, each only at the version noted: one that changed since is left alone."""
        for record_id, version in owed.data["records"]:
            await self.delete(ENTRIES, Key(debt.holder.key.tenant, record_id), at=version)
        return True

    # -- a scope ------------------------------------------------------------------------------------------------------

    async def erase_scope(self, tenant: str, scope: Scope) -> int:
        """Delete every record of exactly this scope, in every store; how many entries there were (A56-A58).

        When a store fails on the way the call fails, and maintenance finishes what it began.
        """
        partition = Partition(tenant, scope.text)
        archive = self._placement.topology.archive
        current = await self._placement.write_one("erase.read", archive, RaiseGeneration(partition, to=0))
        generation = (current.number or 0) + 1
        operation = self._operation(partition, generation)
        begun = await self._placement.write_one("erase.begin", archive, Put(OPERATIONS, operation, Absent()))
        if (error := refused(archive, begun)) is not None:
            raise error
        erased = 0
        for store in self._stores():
            erased += await self._erase_in(store, partition, generation)
        await self._end(operation, archive)
        return erased

    def _operation(self, partition: Partition, generation: int) -> Record:
        now = self._placement.now()
        home = Partition(SYSTEM_TENANT, "operations")
        data = {"tenant": partition.tenant, "scope": partition.scope, "generation": generation}
        return Record(
            key=Key(SYSTEM_TENANT, self._placement.new_id(home.tenant, home.scope)),
            scope=home.scope,
            version=self._placement.next_version(),
            created_at=now,
            updated_at=now,
            fields={"kind": ERASE},
            tier="mid",
            owed=(Owed(ERASE, data),),
        )

    def _stores(self) -> Sequence[Store]:
        """Every store, the archive first: no store's generation may run ahead of the one that the next erasure reads."""
        return tuple(dict.fromkeys((self._placement.topology.archive, *self._placement.topology.stores)))

    async def _erase_in(self, store: Store, partition: Partition, generation: int) -> int:
        """Raise the generation in one store, then leave tombstones for what is older; how many entries had their home there."""
        await self._placement.write_one("erase.raise", store, RaiseGeneration(partition, to=generation))
        entries = 0
        older = None if store is self._placement.topology.cache else Lt("generation", generation)  # a cache may lose anything
        for collection in SCOPED:
            keep = (DIGEST,) if collection is ENTRIES else ()
            arriving = await self._arrivals(store, collection, partition, older) if collection is ENTRIES else 0
            for roles in (frozenset({Role.HOME}), OTHER_ROLES):
                query = Query(collection, within(partition), filter=older, roles=roles)
                with step("erase.delete"):
                    discard_at = self._placement.tombstone_until()
                    gone = await store.delete_matching(query, self._placement.next_version(), discard_at, keep)
                entries += gone if collection is ENTRIES and Role.HOME in roles else 0
            entries += arriving
        return entries

    async def _arrivals(self, store: Store, collection: Collection, partition: Partition, older: Lt | None) -> int:
        """How many arriving copies here are homes already, their source having let go."""
        if store is self._placement.topology.cache:
            return 0
        with step("erase.count"):
            page = await store.query(Query(collection, within(partition), filter=older, roles=frozenset({Role.ARRIVING})))
        keys = [row.key for row in page.records]
        marked: set[Key] = set()
        for source in self._placement.topology.homes:
            if keys and source is not store:
                with step("erase.count"):
                    rows = await source.get(collection, keys)
                marked |= {row.key for row in rows if isinstance(row, Mark)}
        return len(marked)

    async def _erase_noted(self, debt: Debt, owed: Owed) -> bool:
        """An erasure that a crash cut short."""
        partition = Partition(owed.data["tenant"], owed.data["scope"])
        for store in self._stores():
            await self._erase_in(store, partition, owed.data["generation"])
        if isinstance(debt.holder, Record):
            await self._end(debt.holder, debt.store)
        return True

    async def _end(self, operation: Record, store: Store) -> None:
        grave = Delete(
            OPERATIONS,
            operation.key,
            version=self._placement.next_version(operation.version),
            when=AtVersion(operation.version),
            discard_at=self._placement.tombstone_until(),
        )
        await self._placement.write_one("erase.end", store, grave)
