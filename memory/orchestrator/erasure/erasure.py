"""Deleting: one record with all that hangs on it, or a whole scope, in every store.

A tombstone at home is the moment a record is gone; what remains (replicas, kept
versions, relations) is owed by the tombstone. A scope is erased by an operation record
that owes the work: in every store raise the scope's generation, so that late copies are
refused whoever brings them, then leave tombstones. The operation record is kept as long
as tombstones are. For the first part of that time (`mark_life`: as long as a call from
before may still arrive) the erasure is watched: stores that cannot refuse such a call
by themselves are erased again and again. In the end every store forgets that there was
such a scope.
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
from memory.orchestrator.storage.collections import ENTRIES, ENTRY_VERSIONS, OPERATIONS
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
from memory.orchestrator.storage.placement import Placement, rejection_error
from memory.orchestrator.storage.sources import CONFIRM_SOURCES
from memory.orchestrator.storage.split import CONVERSATION
from memory.orchestrator.storage.steps import step
from memory.ports.collections import Collection
from memory.ports.query import And, Condition, Eq, Everywhere, Ge, In, Lt, Query, within
from memory.ports.record import Corrupt, Key, Mark, Partition, PendingStep, Record, Role, Stored, Tombstone
from memory.ports.store import Store
from memory.ports.writes import Absent, AtVersion, Delete, Newer, Put, RaiseGeneration

log = logging.getLogger(__name__)

HOMES = frozenset({Role.HOME})
OTHER_ROLES = frozenset(Role) - HOMES
WATCHED, REMEMBERED = "watch", "erased"
"""The kinds of an erasure's operation record once it has been carried out: while it is
repeated, and until it is forgotten.
"""
DELETE, ERASE_SCOPE = "delete", "erase_scope"
"""The steps that delete other records, each at the version noted, and that carry an
erasure out.
"""
UNMAKE = "unmake"
"""The step by which what was made of a deleted entry goes too: see `derivatives.py`."""
OF_SCOPES = In("kind", (UNDER_WAY, WATCHED, REMEMBERED))
"""Erasures of scopes, among other operations."""
REPEATED_AT = (1 / 60, 5 / 60, 15 / 60, 30 / 60, 45 / 60, 1.0)
"""When a watched erasure is repeated, in parts of `mark_life`."""
REPEATED_TOGETHER = 100
"""So many scopes of one tenant and generation are erased again in one call."""
OfHeld: TypeAlias = Literal["refused", "left", "deleted"]
"""What becomes of a deletion of what is under legal hold; it goes where it was never to
be, or what it belonged to is gone.
"""
Unmakes: TypeAlias = Literal["all", "automatic"]
"""What goes with a deleted entry: all that was made of it, or only what no caller asked
for.
"""
Came: TypeAlias = "bool | StoreError | LegalHoldActive"
Erased: TypeAlias = "Counter[tuple[str, str]]"
"""How many records had their home there, by the names of collection and store."""


class Erasure:
    """Carries out deletions."""

    def __init__(self, placement: Placement, outbox: Outbox, cache: Cache, generations: Generations) -> None:
        self._placement = placement
        self._outbox = outbox
        self._cache = cache
        self._generations = generations
        self.holds = LegalHoldRecords(placement)
        self.first: list[Callable[[Partition, datetime], Awaitable[None]]] = []
        """What lets go of a partition before any of it is erased, and once more behind
        that; it is told when the erasure began.
        """
        self.also: list[Callable[[Partition, int], Awaitable[None]]] = []
        """What else goes with a partition, once all stores have let go of what is older
        than this generation; it may be awaited more than once.
        """
        self.delete_derived: Callable[[Partition, int], Awaitable[None]] | None = None
        """Deletes what was made of what a partition had. An erasure that spares what is
        newer does without: it takes what was made of older records by the version that
        these carry (see `tenant_erasure.py`).
        """
        outbox.register(DELETE, self._delete_noted, StepLifetime.DONE)
        outbox.register(ERASE_SCOPE, self._erase_noted)

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
    ) -> bool:
        """Delete a record wherever it is; false where nothing was. With `at`, only if
        that is its version still.

        `unmake` says what goes with it of what was made of it. `drops` names steps that
        it owes and that are not to be done.

        Raises `TooMuchContention` where others were faster until the deadline, `LegalHoldActive` where it
        is under legal hold and `held` does not say otherwise.
        """
        try:
            return await self._delete(
                collection, key, at, despite_holds=held == "deleted", unmake=unmake, drops=drops
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
            if not despite_holds:
                await self.holds.refuse([record])
            await self._cache.invalidate(collection, key)
            deletion = self.deletion(collection, record, store, self._placement.next_version(record.version))
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
            if (error := rejection_error(store, outcome)) is not None:
                raise error
            await patience.wait()

    async def delete_at(
        self,
        collection: Collection,
        at: Mapping[Key, int],
        store: Store,
        away: set[str],
        hold: LeaseCheck | None = None,
    ) -> dict[Key, Came]:
        """Delete records that have their home in this store, each only if this is its
        version still; of each whether it was, or why it cannot be: the store refuses,
        or it is under legal hold.

        They are deleted in one call. Where the store fails otherwise than by not
        answering, each is tried alone: it may be one's fault. `away`: as
        `Outbox.finish_all` has it. `hold` is asked about those that are to go, also
        where none is.
        """
        try:
            return await self._delete_at(collection, at, store, away, hold)
        except StoreError as error:
            if isinstance(error, StoreUnavailable):
                raise
            if len(at) == 1:
                return dict.fromkeys(at, error)
        came: dict[Key, Came] = {}
        for key, version in at.items():
            came |= await self.delete_at(collection, {key: version}, store, away, hold)
        return came

    async def _delete_at(
        self,
        collection: Collection,
        at: Mapping[Key, int],
        store: Store,
        away: set[str],
        hold: LeaseCheck | None,
    ) -> dict[Key, Came]:
        with step("delete.read"):
            found = await store.get(collection, list(at))
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
        outcomes = await self._placement.write("delete.home", store, *deletions)
        gone = [deletion for deletion, outcome in zip(deletions, outcomes, strict=True) if outcome.applied]
        tombstones = [Tombstone(deletion.key, deletion.version, deletion.owed) for deletion in gone]
        await self._outbox.finish_all(
            [OutboxRecord(collection, store, tombstone) for tombstone in tombstones], away
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
        """Delete kept versions, by key and version; of each whether it was, or that it
        is under legal hold. The chain of the others stays whole.
        """
        archive = self._placement.topology.archive
        with step("delete.read"):
            found = await archive.get(ENTRY_VERSIONS, list(at))
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
        """The write that deletes a record at home in this store: a tombstone of this
        version, which owes what hangs on the record.
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
            *elsewhere(self._placement, store),
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
        )

    async def _delete_unreadable(
        self, collection: Collection, key: Key, where: str, also: tuple[PendingStep, ...] = ()
    ) -> bool:
        """What cannot be read can still be erased: a tombstone in its place, which owes
        what hangs on it.

        Which versions of it were kept nobody can say: they are looked for.
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
        """A tombstone over whatever stands there, however new it says it is."""
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
            if (error := rejection_error(store, outcome)) is not None:
                raise error
            stands = outcome.version or stands
        raise StoreUnavailable(store.name, f"record {key.id} keeps changing; try again")

    async def _delete_noted(self, pending: OutboxRecord, owed: PendingStep) -> bool:
        """Delete the records noted, each only at the version noted: one that changed
        since, or is held, is left alone.
        """
        if any(other.step == CONFIRM_SOURCES for other in pending.owner.owed):
            return False  # what was made of them may still be undone
        for record_id, version in owed.data["records"]:
            await self.delete(
                pending.collection, Key(pending.owner.key.tenant, record_id), at=version, held="left"
            )
        return True

    # -- a scope -----------------------------------------------------------------------

    async def erase_scope(self, tenant: str, scope: Scope) -> int:
        """Delete every record of exactly this scope, in every store; how many entries
        there were (A56-A58).

        A store that fails is left to maintenance, the others are erased, and the call
        fails. The generation is one above the highest of all stores: they may disagree
        (see `generations`).
        """
        return entries_of(await self.erase(Partition(tenant, scope.text)))

    async def erase(
        self,
        partition: Partition,
        then: tuple[PendingStep, ...] = (),
        *,
        older_than: int | None = None,
        before: int | None = None,
        holdable: bool = True,
    ) -> Erased:
        """Delete every record of a partition, in every store; how many there were (see
        `erase_scope`). `then` is done behind it.

        With `older_than` only those of lower generations: what was born since that was
        raised stays. With `before` only what is older than this version: the rest gets
        the generation and lives on. Raises `LegalHoldActive` where the partition, or an entry in
        it, is under legal hold. An erasure that had begun before is carried out. What
        is not `holdable`, since nobody was ever told of it, goes in any case.
        """
        if holdable:
            await self.holds.refuse_partition(partition)
        if before is not None:
            return await self._begin_sparing(partition, before, then)
        return await self._begin(
            partition, older_than or 1 + await self._generations.highest(partition), then
        )

    async def _begin(
        self,
        partition: Partition,
        generation: int,
        then: tuple[PendingStep, ...] = (),
        before: int | None = None,
    ) -> Erased:
        """An erasure of all never takes the generation of one that spares something,
        which has stamped that; nor the other way round.
        """
        operation = self._operation(partition, generation, then, before)
        there = await self._put_operation(operation, Absent())
        if isinstance(there, Record) and (before is not None or BEFORE in there.body):
            return await self._begin(partition, generation + 1, then, before)
        if there is not None:
            await self._put_operation(operation, Newer())
        return await self._carry_out(operation)

    async def _begin_sparing(
        self, partition: Partition, before: int, then: tuple[PendingStep, ...]
    ) -> Erased:
        """An erasure that spares what was written since: once those that had begun have
        ended, so that it spares nothing from them.
        """
        done, highest = Counter[tuple[str, str]](), await self._generations.highest(partition)
        while True:
            begun = await self._generations.operation(partition, highest)
            if begun is not None and begun.fields["kind"] == UNDER_WAY:
                done += await self._carry_out(begun)
                highest = max(highest, await self._generations.highest(partition))
                continue
            operation = self._operation(partition, highest + 1, then, before)
            there = await self._put_operation(operation, Absent())
            if isinstance(there, Tombstone):  # of one that is forgotten
                operation = replace(operation, version=self._placement.next_version(there.version))
                there = await self._put_operation(operation, AtVersion(there.version))
            if there is None:
                return done + await self._carry_out(operation)
            highest += 1

    async def _put_operation(self, operation: Record, when: Absent | Newer | AtVersion) -> Stored | None:
        """What stands in the way of an operation; None where it stands."""
        archive = self._placement.topology.archive
        begun = await self._placement.write_one("erase.begin", archive, Put(OPERATIONS, operation, when))
        if (error := rejection_error(archive, begun)) is not None:
            raise error
        return None if begun.applied else begun.stored

    def _operation(
        self, partition: Partition, generation: int, then: tuple[PendingStep, ...], before: int | None
    ) -> Record:
        now = self._placement.now()
        data = {
            "tenant": partition.tenant,
            "scope": partition.scope,
            "generation": generation,
            **({} if before is None else {BEFORE: before}),
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
        """Erase in every store, also where one fails: that is raised in the end, and
        the operation stays owed.

        What is to be spared gets the generation before it is raised anywhere, and what
        came in between behind that: no store refuses it for long.
        """
        partition, generation = _asked_of(operation)
        before: int | None = operation.body.get(BEFORE)
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
                    # a store that was away when the highest was asked for is ahead of
                    # the others
                    then = tuple(owed for owed in operation.owed if owed.step != ERASE_SCOPE)
                    again = await self._begin(partition, stands + 1, then, before)
                    await self._end(operation)
                    return erased + again
                erased += await self._erase_in(store, operation)
            except StoreError as error:
                failures.append(error)
        if failures:
            raise failures[0]
        is_nobodys = before is not None and partition.scope.startswith(
            f"{CONVERSATION}:"
        )  # what a session has that was created since is older
        for goes_along in () if is_nobodys else self.also:
            await goes_along(partition, generation)
        if before is None and self.delete_derived is not None:
            await self.delete_derived(partition, generation)
        for lets_go in self.first:
            await lets_go(partition, operation.created_at)
        await self._end(operation)
        return erased

    async def _erase_in(self, store: Store, operation: Record) -> Erased:
        """Leave tombstones for what is older in one store, and spare what is to live
        on; how many of each collection had their home there.

        An arriving copy whose source has let go is a home. It may be told so while this
        goes on, so that homes are looked for once more in the end.
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
            has_copies = kind.movable or kind.replicated  # of others all that stands is a home
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
            return Counter()  # a damaged copy there is of no role
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
        """`version`: one for all that an erasure takes, in every store, so that what is
        born over one of its tombstones outdoes the others too: those of its copies and
        of its passages, which may be left later.
        """
        query = Query(kind.collection, within(*partitions), filter=older, roles=roles)
        return await self._placement.delete_matching(
            "erase.delete", store, query, version, self._generations.carried
        )

    async def _arriving_keys(
        self, store: Store, collection: Collection, partition: Partition, older: Condition | None
    ) -> list[Key]:
        """The arriving copies here whose source has let go in favour of this store."""
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
                with step("erase.count"):
                    rows = await source.get(collection, keys)
                marked |= {
                    row.key
                    for row in rows
                    if isinstance(row, Mark) and self._placement.topology.home(row.to) is store
                }
        return list(marked)

    async def _still_there(self, store: Store, collection: Collection, keys: Sequence[Key]) -> list[Key]:
        if not keys:
            return []
        with step("erase.count"):
            rows = await store.get(collection, keys)
        return [row.key for row in rows if isinstance(row, Record)]

    async def _erase_noted(self, pending: OutboxRecord, owed: PendingStep) -> bool:
        """An erasure that a crash cut short."""
        if isinstance(pending.owner, Record):
            await self._carry_out(pending.owner)
        return True  # ending the operation took the debt away with it

    async def _end(self, operation: Record) -> None:
        """The erasure has been carried out: what it owes besides is done, it is watched
        where a store needs that, and remembered.
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
        """Repeat watched erasures whose time has come in the stores that need it; how
        many were repeated.
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
        """Leave tombstones once more for what is older in the partitions of one tenant,
        in one store.

        A store that is level may have been brought up by who died over it: what was
        born there in between has a lower generation still, and lives on.
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
        """The partitions in which a record of a lower generation is of after the moment
        of their erasure.
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
        """Forget scopes that were erased so long ago that their tombstones are gone, in
        every store; how many operations were forgotten.
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
        """Forget partitions of one store in which nothing stands and that no remembered
        erasure is about; how many.
        """
        idle = await self._idle_in(leaf, page := self._placement.settings.page)
        if len(idle) == page:
            with step("erase.count"):
                held_back = (
                    await self._placement.topology.archive.count(Query(OPERATIONS, Everywhere()))
                ).records
            idle = await self._idle_in(leaf, page + held_back)  # those held back would hide the others
        remembered = (
            {_asked_of(operation) for operation in await self._operations(OF_SCOPES)} if idle else set()
        )  # asked last: none has begun since
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


def unmakes(mode: Unmakes | None) -> tuple[PendingStep, ...]:
    """What a deletion owes what was made of the record."""
    return () if mode is None else (PendingStep(UNMAKE, UNMAKE, {"mode": mode}),)


def entries_of(erased: Erased) -> int:
    return sum(count for (collection, _), count in erased.items() if collection == ENTRIES.name)


def _asked_of(operation: Record) -> tuple[Partition, int]:
    """The partition an operation record erases, and the generation it raises it to."""
    return Partition(operation.body["tenant"], operation.body["scope"]), int(operation.body["generation"])


def _ended_at(operation: Record) -> datetime:
    """When an erasure had been carried out in the last store, which may have been away
    for long after it began.
    """
    return moment(operation.body["ended"]) if "ended" in operation.body else operation.created_at
