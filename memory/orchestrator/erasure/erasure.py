"""Deletion of one record with its dependents, or of a whole scope, in every store.

A record is gone at the moment its home has a tombstone. The rest is pending steps of
the tombstone: replicas, kept versions and relations.

A scope is erased by an operation record with a pending step. In every store the step
raises the scope's generation, so that late copies are refused from any writer. Then it
leaves tombstones. The operation record is kept as long as tombstones are.

For the first part of that time (`mark_life`, as long as an earlier call may still
arrive) the erasure is watched: it is repeated in stores that cannot refuse such a call
by themselves. In the end every store forgets the scope.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Literal, TypeAlias

from memory.domain.errors import (
    CorruptRecord,
    LegalHoldActive,
    MemoryTiersError,
    StoreError,
    StoreUnavailable,
    TooMuchContention,
)
from memory.domain.scope import Scope
from memory.domain.time import micros, moment
from memory.orchestrator.erasure.legal_holds import LegalHoldRecords
from memory.orchestrator.storage.cache import Cache
from memory.orchestrator.storage.collections import (
    ARTIFACTS,
    ENTRIES,
    ENTRY_VERSIONS,
    OPERATIONS,
)
from memory.orchestrator.storage.entry_records import REQUEST
from memory.orchestrator.storage.generations import (
    BEFORE,
    OPERATIONS_SCOPE,
    UNDER_WAY,
    Generations,
    operation_key,
    spares_since,
)
from memory.orchestrator.storage.key_locks import RetryDeadline
from memory.orchestrator.storage.kinds import Kind
from memory.orchestrator.storage.lease import LeaseCheck
from memory.orchestrator.storage.outbox import (
    Outbox,
    OutboxRecord,
    StepLifetime,
    deletion_steps,
    elsewhere,
    passages_left,
    pending_versions,
)
from memory.orchestrator.storage.placement import Placement, raise_if_rejected, rejection_error
from memory.orchestrator.storage.requests import MADE_BY
from memory.orchestrator.storage.sources import is_unconfirmed
from memory.orchestrator.storage.split import CONVERSATION
from memory.orchestrator.storage.steps import step
from memory.policies.visibility import is_expired
from memory.ports.collections import Collection
from memory.ports.query import HOMES, And, Condition, Eq, Everywhere, Ge, In, Lt, Query, within
from memory.ports.record import (
    Corrupt,
    JsonValue,
    Key,
    Mark,
    Partition,
    PendingStep,
    Record,
    Role,
    Stored,
    Tombstone,
)
from memory.ports.store import Store
from memory.ports.writes import Absent, AtVersion, Delete, Newer, Put, RaiseGeneration

log = logging.getLogger(__name__)

OTHER_ROLES = frozenset(Role) - HOMES
WATCHED, REMEMBERED = "watch", "erased"
"""The kinds of an erasure's operation record after the erasure: while it is repeated,
and until it is forgotten.
"""
DELETE, ERASE_SCOPE = "delete", "erase_scope"
"""The step that deletes other records, each at the noted version, and the step that
carries out an erasure.
"""
UNMAKE = "unmake"
"""The step that deletes entries derived from a deleted entry. See `derivatives.py`."""
OF_SCOPES = In("kind", (UNDER_WAY, WATCHED, REMEMBERED))
"""Selects erasures of scopes among other operations."""
REPEATED_AT = (1 / 60, 5 / 60, 15 / 60, 30 / 60, 45 / 60, 1.0)
"""The times at which a watched erasure is repeated, in parts of `mark_life`."""
REPEATED_TOGETHER = 100
"""The number of scopes of one tenant and generation that are erased again in one call.
"""
PREFIX = "prefix"
"""In the body of an operation record: see `prefix` of `Erasure.erase`."""
EXPIRED = "expired"
"""In the note of a tombstone: the record had expired before it was deleted."""
OfHeld: TypeAlias = Literal["refused", "left", "deleted"]
"""How a deletion treats a record under legal hold. It is deleted only if it should
never have been there, or if the record to which it belonged is gone.
"""
Unmakes: TypeAlias = Literal["all", "automatic"]
"""Which derived entries are deleted with an entry: all, or only those that no caller
asked for.
"""
HeldDerived: TypeAlias = "Callable[[str, Callable[[str], bool]], Awaitable[dict[str, LegalHoldActive]]]"
DeleteDerived: TypeAlias = "Callable[[Partition, int, int | None, str | None], Awaitable[None]]"
Came: TypeAlias = "bool | StoreError | LegalHoldActive"
Erased: TypeAlias = "Counter[tuple[str, str]]"
"""The number of records that had their home there, by collection and store name."""


class Erasure:
    """Carries out deletions."""

    def __init__(self, placement: Placement, outbox: Outbox, cache: Cache, generations: Generations) -> None:
        self._placement = placement
        self._outbox = outbox
        self._cache = cache
        self._generations = generations
        self.holds = LegalHoldRecords(placement)
        self.first: list[Callable[[Partition, datetime], Awaitable[None]]] = []
        """Called with a partition, and the time when its erasure began, before any of
        it is erased. Called again after the erasure.
        """
        self.also: list[Callable[[Partition, int], Awaitable[None]]] = []
        """Called with a partition and a generation, once all older records are erased
        in all stores. It may be called more than once. It erases further data of the
        partition.
        """
        self.delete_derived: DeleteDerived | None = None
        """Deletes entries derived from a partition's records, if they were older than a
        version. Those in scopes with a prefix are left to the caller of the erasure.
        """
        self.held_derived: HeldDerived | None = None
        """Returns the held entries that were derived from erased data of some scopes.

        See `Derivatives.held_derived`.
        """
        self.keep_sources: Callable[[Key, Mapping[str, int]], Awaitable[None]] | None = None
        """Called with a derived entry, and the noted versions of sources that were not
        deleted with it. Some of them may have been deleted before.
        """
        outbox.register(DELETE, self._delete_noted, StepLifetime.DONE)
        outbox.register_for_records(ERASE_SCOPE, self._erase_noted)

    # -- one record --------------------------------------------------------------------

    async def delete(
        self,
        collection: Collection,
        key: Key,
        *,
        at: int | None = None,
        held: OfHeld = "refused",
        unmake: Unmakes | None = None,
        drops: frozenset[str] = frozenset(),
        note: Mapping[str, JsonValue] | None = None,
        only_if: Callable[[Record], Awaitable[bool]] | None = None,
    ) -> bool:
        """Delete a record in every store. Returns false if there was none.

        Args:
            at: Delete the record only if this is still its version.
            only_if: Decides about the version that is deleted. It is called again if
                the record changes meanwhile. An unreadable record is deleted.
            held: How to treat a record under legal hold.
            unmake: Which derived entries are deleted with it.
            drops: Names of pending steps of the record that are not carried out.
            note: Added to the note of the tombstone.

        Raises:
            TooMuchContention: Other writers were faster until the deadline.
            LegalHoldActive: The record is under legal hold, and `held` is "refused".
        """
        try:
            return await self._delete(
                collection,
                key,
                at,
                despite_holds=held == "deleted",
                unmake=unmake,
                drops=drops,
                note=note,
                only_if=only_if,
            )
        except LegalHoldActive as error:
            if held == "refused":
                raise
            log.info("%s stays: %s", key.id, error)
            return False

    async def _delete(
        self,
        collection: Collection,
        key: Key,
        at: int | None,
        *,
        despite_holds: bool,
        unmake: Unmakes | None,
        drops: frozenset[str],
        note: Mapping[str, JsonValue] | None,
        only_if: Callable[[Record], Awaitable[bool]] | None,
    ) -> bool:
        patience = RetryDeadline(self._placement, key.id)
        while True:
            try:
                located = await self._placement.locate(collection, key)
            except CorruptRecord as unreadable:
                await self.holds.refuse_unreadable(key.tenant)
                return await self._delete_unreadable(collection, key, unreadable.store, unmakes(unmake))
            home = located.home()
            if home is None or (at is not None and home[0].version != at):
                return False
            record, store = home
            if only_if is not None and not await only_if(record):
                return False
            if not despite_holds:
                await self.holds.refuse([record])
            await self._cache.invalidate(collection, key)
            deletion = self.deletion(collection, record, store, self._placement.next_version(record.version))
            if note:
                deletion = replace(deletion, note={**deletion.note, **note})
            if unmake is not None or drops:
                owed = (*(one for one in deletion.owed if one.step not in drops), *unmakes(unmake))
                until = None if owed else self._placement.tombstone_until()
                deletion = replace(deletion, owed=owed, discard_at=until, settles=deletion.settles | drops)
            outcome = await self._placement.write_one("delete.home", store, deletion)
            if outcome.applied:
                await self._outbox.finish(
                    OutboxRecord(collection, store, Tombstone(key, deletion.version, deletion.owed))
                )
                return True
            raise_if_rejected(store, outcome)
            await patience.wait()

    async def delete_at(
        self,
        collection: Collection,
        at: Mapping[Key, int],
        store: Store,
        away: set[str],
        hold: LeaseCheck | None = None,
        *,
        unmake: Unmakes | None = None,
    ) -> dict[Key, Came]:
        """Delete records whose home is in this store, each only at the given version.

        They are deleted in one call. If the store fails in another way than by not
        answering, each is tried alone, because one record may be the cause.

        Args:
            away: As in `Outbox.finish_all`.
            hold: Awaited with the number of records to delete, even if it is 0.
            unmake: Which derived entries are deleted with each record.

        Returns:
            For each key, whether it was deleted, or the error: the store refused, or
            the record is under legal hold.
        """
        try:
            return await self._delete_at(collection, at, store, away, hold, unmake)
        except StoreError as error:
            if isinstance(error, StoreUnavailable):
                raise
            if len(at) == 1:
                return dict.fromkeys(at, error)
        came: dict[Key, Came] = {}
        for key, version in at.items():
            came |= await self.delete_at(collection, {key: version}, store, away, hold, unmake=unmake)
        return came

    async def _delete_at(
        self,
        collection: Collection,
        at: Mapping[Key, int],
        store: Store,
        away: set[str],
        hold: LeaseCheck | None,
        unmake: Unmakes | None,
    ) -> dict[Key, Came]:
        found = await self._placement.read("delete.read", store, collection, list(at))
        came: dict[Key, Came] = dict.fromkeys(at, False)
        came |= {
            row.key: CorruptRecord(store.name, row.key.id, row.problem)
            for row in found
            if isinstance(row, Corrupt)
        }
        going = [
            row
            for row in found
            if isinstance(row, Record) and row.role is Role.HOME and row.version == at[row.key]
        ]
        came |= (held := await self.holds.over(going))
        going = [record for record in going if record.key not in held]
        if hold is not None:
            await hold(len(going))
        if not going:
            return came
        await self._cache.invalidate(collection, *(record.key for record in going))
        deletions = [
            self.deletion(collection, record, store, self._placement.next_version(record.version))
            for record in going
        ]
        if unmake is not None:
            deletions = [
                replace(one, owed=(*one.owed, *unmakes(unmake)), discard_at=None) for one in deletions
            ]
        outcomes = await self._placement.write("delete.home", store, *deletions)
        gone = [deletion for deletion, outcome in zip(deletions, outcomes, strict=True) if outcome.applied]
        tombstones = [Tombstone(deletion.key, deletion.version, deletion.owed) for deletion in gone]
        await self._outbox.finish_all(
            [OutboxRecord(collection, store, tombstone) for tombstone in tombstones],
            away,
            mostly_idle=unmake is not None,
        )
        refusals = (
            (deletion.key, rejection_error(store, outcome))
            for deletion, outcome in zip(deletions, outcomes, strict=True)
        )
        return (
            came
            | {key: error for key, error in refusals if error is not None}
            | {tombstone.key: True for tombstone in tombstones}
        )

    async def delete_versions(self, at: Mapping[Key, int]) -> dict[Key, Came]:
        """Delete kept versions, by key and version.

        The chain of the remaining versions stays whole.

        Returns:
            For each key, whether it was deleted, or its legal hold.
        """
        archive = self._placement.topology.archive
        found = await self._placement.read("delete.read", archive, ENTRY_VERSIONS, list(at))
        there = [row for row in found if isinstance(row, Record) and row.version == at[row.key]]
        held = await self.holds.over(there)
        deletions = [
            Delete(
                ENTRY_VERSIONS,
                row.key,
                version=self._placement.next_version(row.version),
                when=AtVersion(row.version),
                note={} if row.previous is None else {"previous": row.previous},
                discard_at=self._placement.tombstone_until(),
            )
            for row in there
            if row.key not in held
        ]
        came: dict[Key, Came] = dict.fromkeys(at, False)
        came |= held
        outcomes = await self._placement.write("delete.versions", archive, *deletions) if deletions else []
        for deletion, outcome in zip(deletions, outcomes, strict=True):
            came[deletion.key] = rejection_error(archive, outcome) or outcome.applied
        return came

    def deletion(self, collection: Collection, record: Record, store: Store, version: int) -> Delete:
        """Return the write that deletes a record whose primary store this is.

        It is a tombstone of this version. Its pending steps delete the record's
        dependents.
        """
        versions = [
            record.previous,
            *(v for kept in pending_versions(record) for v in (kept["version"], kept["previous"])),
        ]
        known = sorted({v for v in versions if v is not None})
        kind = self._placement.kinds.of(collection)
        hanging = (*deletion_steps(kind, known or None), *passages_left(kind, record))
        owed = (
            *self._outbox.remaining_steps(record, past=StepLifetime.DELETED),
            *(() if kind.parts else elsewhere(self._placement, store)),
            *hanging,
        )
        return Delete(
            collection,
            record.key,
            version=version,
            when=AtVersion(record.version),
            owed=owed,
            discard_at=None if owed else self._placement.tombstone_until(),
            settles=self._outbox.completed_steps(StepLifetime.DELETED),
            note=_note_of(record) if is_expired(record, self._placement.now()) else {},
        )

    async def _delete_unreadable(
        self, collection: Collection, key: Key, where: str, also: tuple[PendingStep, ...] = ()
    ) -> bool:
        """Replace a record that cannot be read by a tombstone.

        The pending steps of the tombstone delete the record's dependents. Its kept
        versions are unknown, so they are searched for.
        """
        store = next(s for s in self._placement.topology.homes if s.name == where)
        await self._cache.invalidate(collection, key)
        hanging = deletion_steps(self._placement.kinds.of(collection), [])
        owed = (
            *elsewhere(self._placement, store),
            *hanging,
            *passages_left(self._placement.kinds.of(collection), None),
            *also,
        )
        await self._outbox.finish(
            OutboxRecord(collection, store, await self._overwrite(collection, key, store, owed))
        )
        return True

    async def _overwrite(
        self, collection: Collection, key: Key, store: Store, owed: tuple[PendingStep, ...]
    ) -> Tombstone:
        """Put a tombstone over any row, even one with a newer version."""
        stands = 0
        for _ in range(self._placement.settings.attempts):
            version = self._placement.next_version(stands)
            discard_at = None if owed else self._placement.tombstone_until()
            deletion = Delete(
                collection, key, version=version, when=Newer(), owed=owed, discard_at=discard_at
            )
            outcome = await self._placement.write_one("delete.unreadable", store, deletion)
            if outcome.applied:
                return Tombstone(key, version, owed)
            raise_if_rejected(store, outcome)
            stands = outcome.version or stands
        raise StoreUnavailable(store.name, f"record {key.id} keeps changing; try again")

    async def _delete_noted(self, pending: OutboxRecord, owed: PendingStep) -> bool:
        """Delete the noted records, each only at the noted version.

        A record that changed since, or is under legal hold, is left alone.
        """
        if is_unconfirmed(pending.owner):
            return False  # an entry derived from them may still be undone
        owner, left = pending.owner.key, dict[str, int]()
        for record_id, version in owed.data["records"]:
            key = Key(owner.tenant, record_id)
            if not await self.delete(pending.collection, key, at=version, held="left"):
                left[record_id] = version
        if left and self.keep_sources is not None:
            await self.keep_sources(owner, left)
        return True

    # -- a scope -----------------------------------------------------------------------

    async def erase_scope(self, tenant: str, scope: Scope) -> int:
        """Delete every record of exactly this scope, in every store.

        If a store fails, the others are erased, the rest is left to maintenance, and
        the call fails. The generation is one above the highest of all stores, because
        they may disagree (see `generations`).

        Returns:
            The number of deleted entries.
        """
        return count_of(await self.erase(Partition(tenant, scope.text)), ENTRIES)

    async def erase(
        self,
        partition: Partition,
        then: tuple[PendingStep, ...] = (),
        *,
        older_than: int | None = None,
        before: int | None = None,
        prefix: str | None = None,
        holdable: bool = True,
    ) -> Erased:
        """Delete every record of a partition, in every store. See `erase_scope`.

        An erasure that has begun already is carried out too.

        Args:
            then: Steps to carry out after the erasure.
            older_than: Delete only records of lower generations. Records that were born
                after this generation was raised stay.
            before: Delete only records older than this version. The others get the new
                generation and live on.
            prefix: With `before`: the caller erases all scopes that begin so. Entries
                derived from the partition's are deleted elsewhere only.
            holdable: Whether legal holds are checked. Records that no caller ever knew
                are deleted in any case.

        Returns:
            The number of deleted records.

        Raises:
            LegalHoldActive: The partition, or an entry in it, is under legal hold.
        """
        if holdable:
            await self.holds.refuse_partition(partition)
        if before is not None:
            return await self._begin_sparing(partition, before, then, prefix)
        return await self._begin(
            partition, older_than or 1 + await self._generations.highest(partition), then
        )

    async def _begin(
        self,
        partition: Partition,
        generation: int,
        then: tuple[PendingStep, ...] = (),
        before: int | None = None,
        prefix: str | None = None,
    ) -> Erased:
        """Begin an erasure and carry it out.

        A full erasure and an erasure that spares newer records never share a
        generation, because the latter gives the generation to the spared records.
        """
        operation = self._operation(partition, generation, then, before, prefix)
        there = await self._put_operation(operation, Absent())
        if isinstance(there, Record) and (before is not None or BEFORE in there.body):
            return await self._begin(partition, generation + 1, then, before, prefix)
        if there is not None:
            await self._put_operation(operation, Newer())
        return await self._carry_out(operation)

    async def _begin_sparing(
        self, partition: Partition, before: int, then: tuple[PendingStep, ...], prefix: str | None
    ) -> Erased:
        """Begin an erasure that spares newer records.

        It begins once all erasures under way have ended, so that it spares no record
        from them.
        """
        done, highest = Counter[tuple[str, str]](), await self._generations.highest(partition)
        while True:
            begun = await self._generations.operation(partition, highest)
            if begun is not None and begun.fields["kind"] == UNDER_WAY:
                done += await self._carry_out(begun)
                highest = max(highest, await self._generations.highest(partition))
                continue
            operation = self._operation(partition, highest + 1, then, before, prefix)
            there = await self._put_operation(operation, Absent())
            if isinstance(there, Tombstone):  # of a forgotten operation
                operation = replace(operation, version=self._placement.next_version(there.version))
                there = await self._put_operation(operation, AtVersion(there.version))
            if there is None:
                return done + await self._carry_out(operation)
            highest += 1

    async def _put_operation(self, operation: Record, when: Absent | Newer | AtVersion) -> Stored | None:
        """Put an operation record. Returns the row that blocks it, or None."""
        archive = self._placement.topology.archive
        begun = await self._placement.write_one("erase.begin", archive, Put(OPERATIONS, operation, when))
        raise_if_rejected(archive, begun)
        return None if begun.applied else begun.stored

    def _operation(
        self,
        partition: Partition,
        generation: int,
        then: tuple[PendingStep, ...],
        before: int | None,
        prefix: str | None,
    ) -> Record:
        now = self._placement.now()
        data = {
            "tenant": partition.tenant,
            "scope": partition.scope,
            "generation": generation,
            **({} if before is None else {BEFORE: before}),
            **({} if prefix is None else {PREFIX: prefix}),
        }
        return Record(
            key=operation_key(partition, generation),
            scope=OPERATIONS_SCOPE,
            version=self._placement.next_version(),
            created_at=now if before is None else min(now, moment(before)),
            updated_at=now,
            fields={"kind": UNDER_WAY},
            body=data,
            tier="mid",
            owed=(PendingStep(ERASE_SCOPE, ERASE_SCOPE, data), *then),
        )

    def _stores(self) -> Sequence[Store]:
        """Every store, the archive first."""
        return tuple(dict.fromkeys((self._placement.topology.archive, *self._placement.topology.stores)))

    async def _carry_out(self, operation: Record) -> Erased:
        """Erase in every store, even if one fails.

        A failure is raised at the end, and the operation stays pending. Spared records
        get the generation before it is raised in any store. Records that are written in
        between get it afterwards. So no store refuses them for long.
        """
        partition, generation = _asked_of(operation)
        before: int | None = operation.body.get(BEFORE)
        prefix: str | None = operation.body.get(PREFIX)
        erased, failures = Counter[tuple[str, str]](), list[MemoryTiersError]()
        for lets_go in self.first:
            try:
                await lets_go(partition, operation.created_at)
            except (StoreError, TooMuchContention) as error:
                failures.append(error)
        for store in self._stores() if before is not None else ():
            try:
                erased += await self._erase_in(store, operation)
            except StoreError as error:
                failures.append(error)
        for store in self._stores():
            try:
                raised = await self._placement.write_one(
                    "erase.raise", store, RaiseGeneration(partition, to=generation)
                )
                stands = raised.number or 0
                if stands > generation and await self._generations.operation(partition, stands) is None:
                    # a store that was away when the highest generation was read is
                    # ahead of the others
                    then = tuple(owed for owed in operation.owed if owed.step != ERASE_SCOPE)
                    again = await self._begin(partition, stands + 1, then, before, prefix)
                    await self._end(operation)
                    return erased + again
                erased += await self._erase_in(store, operation)
            except StoreError as error:
                failures.append(error)
        if failures:
            raise failures[0]
        is_nobodys = before is not None and partition.scope.startswith(
            f"{CONVERSATION}:"
        )  # a session created since has no older data
        for goes_along in () if is_nobodys else self.also:
            await goes_along(partition, generation)
        if not is_nobodys and prefix != "" and self.delete_derived is not None:
            await self.delete_derived(partition, generation, before, prefix)
        for lets_go in self.first:
            await lets_go(partition, operation.created_at)
        await self._end(operation)
        return erased

    async def _erase_in(self, store: Store, operation: Record) -> Erased:
        """Leave tombstones for older records in one store, and spare the others.

        An arriving copy whose source has released it is a home. It may become one by
        role during the erasure, so homes are searched for again at the end.

        Returns:
            The number of deleted homes, by collection and store.
        """
        (partition, generation), version = _asked_of(operation), micros(operation.created_at)
        cache, erased = store is self._placement.topology.cache, Counter[tuple[str, str]]()
        older: Condition | None = None if cache else Lt("generation", generation)  # a cache may lose anything
        before: int | None = operation.body.get(BEFORE)
        if older is not None and before is not None:
            older = And((older, Lt("version", before)))
        for kind in self._placement.kinds.within(partition):
            collection = kind.collection
            arriving = (
                await self._arriving_keys(store, collection, partition, older)
                if kind.movable and not cache
                else []
            )
            has_copies = (  # in other kinds every row is a home
                kind.movable
                or kind.replicated
                or (collection is ARTIFACTS and self._placement.holds_window_copies(store))
            )
            at_home = await self._leave_tombstones(
                store, kind, [partition], older, HOMES if has_copies else frozenset(Role), version
            )
            copies = await self._still_there(store, collection, arriving)
            if has_copies:
                await self._leave_tombstones(store, kind, [partition], older, OTHER_ROLES, version)
            arrived = await self._still_there(store, collection, copies)
            if kind.movable:
                at_home += await self._leave_tombstones(store, kind, [partition], older, HOMES, version)
            erased[collection.name, store.name] = at_home + len(copies) - len(arrived)
        if cache:
            return Counter()  # a damaged copy there has no role
        if before is not None:
            await self._generations.spare(store, partition, generation, before)
        return erased

    async def _leave_tombstones(
        self,
        store: Store,
        kind: Kind,
        partitions: Sequence[Partition],
        older: Condition | None,
        roles: frozenset[Role],
        version: int,
    ) -> int:
        """Leave tombstones of one version for the matching records.

        An erasure uses the same version for all records in every store. So a record
        that is created over one of its tombstones also wins over the others: those of
        copies and passages, which may be left later.
        """
        query = Query(kind.collection, within(*partitions), filter=older, roles=roles)
        return await self._placement.delete_matching(
            "erase.delete", store, query, version, self._generations.carried
        )

    async def _arriving_keys(
        self, store: Store, collection: Collection, partition: Partition, older: Condition | None
    ) -> list[Key]:
        """Return the arriving copies here whose source has released them.

        The source has a mark that points to this store.
        """
        roles = frozenset({Role.ARRIVING})
        query = Query(
            collection,
            within(partition),
            filter=older,
            limit=self._placement.settings.page,
            roles=roles,
            select=frozenset(),
        )
        keys = [
            head.key
            async for page in self._placement.pages("erase.count", store, query)
            for head in page.heads
        ]
        marked: set[Key] = set()
        for source in self._placement.topology.homes:
            if keys and source is not store:
                rows = await self._placement.read("erase.count", source, collection, keys)
                marked |= {
                    row.key
                    for row in rows
                    if isinstance(row, Mark) and self._placement.topology.home(row.to) is store
                }
        return list(marked)

    async def _still_there(self, store: Store, collection: Collection, keys: Sequence[Key]) -> list[Key]:
        if not keys:
            return []
        rows = await self._placement.read("erase.count", store, collection, keys)
        return [row.key for row in rows if isinstance(row, Record)]

    async def _erase_noted(self, operation: Record, store: Store, owed: PendingStep) -> bool:
        """Complete an erasure that a crash interrupted."""
        await self._carry_out(operation)
        return True  # the end of the operation removed the step

    async def _end(self, operation: Record) -> None:
        """Note that the erasure has been carried out, and complete its other steps.

        If a store cannot refuse late writes by itself, the record stays WATCHED for a
        while. After that it is REMEMBERED.
        """
        needs_watch = any(not store.capabilities.fenced for store in self._placement.topology.stores)
        ended = await self._becomes(
            operation, WATCHED if needs_watch else REMEMBERED, ended=micros(self._placement.now())
        )
        if ended.owed:
            await self._outbox.finish(OutboxRecord(OPERATIONS, self._placement.topology.archive, ended))

    async def _becomes(self, operation: Record, kind: str, **noted: int) -> Record:
        version = self._placement.next_version(operation.version)
        new = replace(
            operation,
            version=version,
            updated_at=self._placement.now(),
            fields={"kind": kind},
            body={**operation.body, **noted},
            owed=tuple(owed for owed in operation.owed if owed.step != ERASE_SCOPE),
            previous=None,
        )
        ended = Put(OPERATIONS, new, AtVersion(operation.version), settles=frozenset({ERASE_SCOPE}))
        await self._placement.write_one("erase.end", self._placement.topology.archive, ended)
        return new

    # -- after an erasure --------------------------------------------------------------

    async def watch(self, hold: LeaseCheck) -> int:
        """Repeat watched erasures that are due, in the stores that need it.

        Returns the number of repeated erasures.
        """
        due: dict[tuple[str, int], list[tuple[Record, int]]] = {}
        for operation in await self._operations(Eq("kind", WATCHED)):
            age = self._placement.now() - _ended_at(operation)
            repeats = sum(age >= part * self._placement.settings.mark_life for part in REPEATED_AT)
            if repeats > int(operation.body.get("repeats", 0)):
                partition, generation = _asked_of(operation)
                due.setdefault((partition.tenant, generation), []).append((operation, repeats))
        for (_, generation), operations in due.items():
            for start in range(0, len(operations), REPEATED_TOGETHER):
                some = operations[start : start + REPEATED_TOGETHER]
                await hold(len(some))
                for store in self._stores():
                    if not store.capabilities.fenced:
                        await self._repeat_in(store, [operation for operation, _ in some], generation)
                for operation, repeats in some:
                    await self._becomes(
                        operation, REMEMBERED if repeats == len(REPEATED_AT) else WATCHED, repeats=repeats
                    )
        return sum(map(len, due.values()))

    async def _repeat_in(self, store: Store, operations: Sequence[Record], generation: int) -> None:
        """Leave tombstones again for older records in one store.

        The partitions are of one tenant. A repair that brought the store up may have
        been interrupted. Records that were born there in between still have a lower
        generation, and live on.
        """
        begun = {_asked_of(operation)[0]: operation for operation in operations}
        for partition in await self._born_since(
            store, {p: spares_since(operation) for p, operation in begun.items()}, generation
        ):
            await self._generations.bring_up_the_rest(store, partition)
        again = [
            p
            for p, operation in begun.items()
            if not await self._generations.level_if_behind(store, p, generation, operation)
        ]
        older = None if store is self._placement.topology.cache else Lt("generation", generation)
        version = min(micros(operation.created_at) for operation in operations)
        for kind in self._placement.kinds.within(*again):
            await self._leave_tombstones(store, kind, again, older, frozenset(Role), version)

    async def _born_since(
        self, store: Store, since: Mapping[Partition, datetime], generation: int
    ) -> set[Partition]:
        """Return the partitions with records that were created after their erasure.

        Only records of a lower generation count.
        """
        asked = And((Lt("generation", generation), Ge("version", micros(min(since.values())))))
        found: set[Partition] = set()
        for kind in self._placement.kinds.within(*since):
            query = Query(
                kind.collection,
                within(*since),
                asked,
                limit=self._placement.settings.page,
                roles=HOMES,
                select=frozenset(),
            )
            async for page in self._placement.pages("erase.count", store, query):
                heads = [(Partition(head.key.tenant, head.scope), head.version) for head in page.heads]
                found |= {
                    partition
                    for partition, version in heads
                    if partition in since and version >= micros(since[partition])
                }
        return found

    async def forget(self, hold: LeaseCheck) -> int:
        """Forget, in every store, scopes whose tombstones were deleted long ago.

        Returns the number of forgotten operations.
        """
        forgotten = 0
        long_ago = self._placement.now() - self._placement.settings.tombstone_life
        for operation in await self._operations(And((Eq("kind", REMEMBERED), Lt("created_at", long_ago)))):
            if _ended_at(operation) >= long_ago:
                continue
            await hold()
            partition, generation = _asked_of(operation)
            for store in self._placement.topology.leaves:
                with step("partition.forget"):
                    await store.forget_partitions([(partition, generation)])
            gone = Delete(
                OPERATIONS,
                operation.key,
                version=self._placement.next_version(operation.version),
                when=AtVersion(operation.version),
                discard_at=self._placement.now(),
            )
            forgotten += (
                await self._placement.write_one("erase.forget", self._placement.topology.archive, gone)
            ).applied
        return forgotten

    async def forget_idle(self, leaf: Store, hold: LeaseCheck) -> int:
        """Forget empty partitions of one store that no remembered erasure names.

        Returns their number.
        """
        idle = await self._idle_in(leaf, page := self._placement.settings.page)
        if len(idle) == page:
            with step("erase.count"):
                held_back = (
                    await self._placement.topology.archive.count(Query(OPERATIONS, Everywhere()))
                ).records
            idle = await self._idle_in(leaf, page + held_back)  # those remembered would hide the others
        remembered = (
            {_asked_of(operation) for operation in await self._operations(OF_SCOPES)} if idle else set()
        )  # read last, so that no erasure has begun since
        free = [
            (partition, generation)
            for partition, generation in idle
            if (partition, generation) not in remembered
        ]
        if not free:
            return 0
        await hold(len(free))
        with step("partition.forget"):
            return await leaf.forget_partitions(free)

    async def _idle_in(self, leaf: Store, limit: int) -> list[tuple[Partition, int]]:
        with step("partition.idle"):
            return await leaf.idle_partitions(limit)

    async def _operations(self, condition: Eq | And | In) -> list[Record]:
        query = Query(OPERATIONS, Everywhere(), condition, limit=self._placement.settings.page)
        pages = self._placement.pages("erase.remembered", self._placement.topology.archive, query)
        return [row async for page in pages for row in page.records if isinstance(row, Record)]


def _note_of(expired: Record) -> dict[str, JsonValue]:
    """Return the note of the tombstone of an expired record."""
    return {EXPIRED: True} | ({MADE_BY: expired.body[REQUEST]} if REQUEST in expired.body else {})


def unmakes(mode: Unmakes | None) -> tuple[PendingStep, ...]:
    """Return the step of a deletion that deletes entries derived from the record."""
    return () if mode is None else (PendingStep(UNMAKE, UNMAKE, {"mode": mode}),)


def count_of(erased: Erased, collection: Collection) -> int:
    """Return how many records of a collection an erasure has deleted at their homes."""
    return sum(count for (name, _), count in erased.items() if name == collection.name)


def _asked_of(operation: Record) -> tuple[Partition, int]:
    """Return the partition that an operation record erases, and its new generation."""
    return Partition(operation.body["tenant"], operation.body["scope"]), int(operation.body["generation"])


def _ended_at(operation: Record) -> datetime:
    """Return when an erasure was complete in the last store.

    That store may have been away for long after the erasure began.
    """
    return moment(operation.body["ended"]) if "ended" in operation.body else operation.created_at
