"""The outbox: pending steps of records.

A pending step is written together with the first step of its record, and removed when
done. Any process that finds it carries it out.

Every step is repeatable and conditional on versions, so that the writer and several
sweeps may all carry it out. A step stays pending if a store is away or refuses it, or
if nobody here knows it. It blocks nothing but itself.

Two steps are built in: `deliver` writes to the store of a tier or to the cache, and
`erase` leaves tombstones for records that refer to a deleted one. The suffix after a
point is the purpose of a step (`deliver.replica`). It decides how long the step lasts
(`StepLifetime`). A process that knows `deliver` can carry out all of its purposes.
"""

from __future__ import annotations

import contextlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import IntEnum
from typing import Any, TypeAlias, TypeVar

from memory.domain.errors import MemoryTiersError, StoreError, StoreUnavailable
from memory.orchestrator.storage.cache import Cache
from memory.orchestrator.storage.collections import MODEL, SAID
from memory.orchestrator.storage.entry_records import has_parts, parts_before, parts_in
from memory.orchestrator.storage.generations import Generations
from memory.orchestrator.storage.kinds import Kind
from memory.orchestrator.storage.placement import Placement, raise_if_rejected
from memory.orchestrator.storage.steps import step
from memory.orchestrator.storage.topology import refuse_away
from memory.orchestrator.storage.versions import version_key
from memory.ports import codec
from memory.ports.collections import Collection
from memory.ports.query import Eq, In, Lt, Or, Query, Tenant, all_of
from memory.ports.record import Corrupt, JsonValue, Key, Mark, PendingStep, Record, Role, Standing, Tombstone
from memory.ports.store import Store
from memory.ports.writes import Absent, Annotate, AtVersion, Delete, Newer, Outcome, Put, Status

log = logging.getLogger(__name__)

DELIVER, ERASE = "deliver", "erase"
MAKE_PASSAGES, FORGET_PASSAGES = "make_passages", "forget_passages"
REPLICA = "deliver.replica"
KEPT_VERSION = "deliver.version"
TOMBSTONE = "deliver.tombstone"
ARRIVAL = "deliver.arrival"
UNCACHE = "deliver.stamp"

CACHE = "cache"
"""The target of a delivery that goes to no tier."""
SELF = "self"
"""As the data of a write: the owner itself, so that no text is stored twice."""
HOLDS_PLACE = "holds_place"
"""In the arrival step of a mark whose id another writer derives as well, from a key or
a source.
"""

DELIVERIES = {
    REPLICA: "replica.deliver",
    KEPT_VERSION: "version.keep",
    TOMBSTONE: "delete.elsewhere",
    ARRIVAL: "move.arrive",
}
"""The names of these deliveries in traces."""

MOST_VERSIONS_OWED = 16
MOST_BYTES_OWED = 1_000_000
"""How much of its own past a record carries while the archive is away. Beyond that, it
cannot be edited until the archive is back.
"""
PROBLEMS_REMEMBERED = 1_000


class StepLifetime(IntEnum):
    """The event that ends a pending step, even one that was not carried out.

    That is the next version of its record, the record's deletion or the erasure of its
    scope. A step with `DONE` ends only once it is carried out.
    """

    EDITED = 1
    DELETED = 2
    ERASED = 3  # the default: their data may contain the record's text
    DONE = 4


@dataclass(frozen=True, slots=True, eq=False)
class OutboxRecord:
    """A record with pending steps, and the store and collection that hold it."""

    collection: Collection
    store: Store
    owner: Standing


@dataclass(frozen=True, slots=True)
class StepFailure:
    """Why this process could not do a step at its last attempt.

    `waits` is true if another attempt may succeed. Otherwise somebody must act.
    """

    step: str
    tenant: str
    record_id: str
    said: str
    waits: bool


Item: TypeAlias = tuple[OutboxRecord, PendingStep]
Idle: TypeAlias = tuple[OutboxRecord, str]
"""An owner, and the id of its step that has nothing to do."""
T = TypeVar("T")
Came: TypeAlias = "bool | Exception"
"""The result of a step. True: done, or no longer due. False: not yet; another attempt
will show. An exception: the reason why it cannot be done.
"""
Handler: TypeAlias = Callable[[OutboxRecord, PendingStep], Awaitable[bool]]
RecordHandler: TypeAlias = Callable[[Record, Store, PendingStep], Awaitable[bool]]
Together: TypeAlias = Callable[[Sequence[Item]], Awaitable[Sequence[Came]]]
"""Carries out a step of several owners in one call."""
FindIdle: TypeAlias = Callable[[Sequence[Item]], Awaitable[Sequence[Item]]]
"""Returns the items whose step has nothing to do, by few calls for all of them."""
Delivery: TypeAlias = Put | Delete | Annotate


class Outbox:
    """Carries out pending steps. Higher modules register the steps they handle."""

    def __init__(self, placement: Placement, generations: Generations, cache: Cache) -> None:
        self._placement = placement
        self._generations = generations
        self._cache = cache
        self._problems: OrderedDict[tuple[str, Key, str], tuple[OutboxRecord, StepFailure]] = OrderedDict()
        self._handlers: dict[str, Handler] = {}
        self._together: dict[str, Together] = {}
        self._find_idle: dict[str, FindIdle] = {}
        self._last: set[str] = set()
        self._until = {
            REPLICA: StepLifetime.EDITED,
            KEPT_VERSION: StepLifetime.DELETED,
            ARRIVAL: StepLifetime.DELETED,
        }
        self.register(ERASE, self._erase)
        self.register_find_idle(ERASE, self._without_children)

    def register(self, name: str, handler: Handler, until: StepLifetime = StepLifetime.ERASED) -> None:
        """Register the handler of the steps with this name, and their lifetime.

        A handler returns true when the step is done or no longer due, and false to
        leave it for later. It raises if the step is refused. A step that outlasts the
        erasure of its owner's scope must carry none of the owner's data.
        """
        self._handlers[name] = handler
        self._until[name] = until
        if until is StepLifetime.DONE:
            self._generations.carried |= {name}

    def register_for_records(
        self, name: str, handler: RecordHandler, until: StepLifetime = StepLifetime.ERASED
    ) -> None:
        """Register a handler of steps that are done where their record is gone."""

        async def handle(pending: OutboxRecord, owed: PendingStep) -> bool:
            return not isinstance(pending.owner, Record) or await handler(pending.owner, pending.store, owed)

        self.register(name, handle, until)

    def register_together(
        self,
        name: str,
        handler: Together,
        until: StepLifetime = StepLifetime.ERASED,
        *,
        is_last: bool = False,
    ) -> None:
        """Register a handler that carries out a step for several owners in one call.

        All owners are of one collection. The handler returns one result for each. With
        `is_last`, it runs after the other steps of these owners were tried and the done
        ones removed.
        """
        if is_last:
            self._last.add(name)
        self._together[name] = handler
        self._until[name] = until

    def register_find_idle(self, name: str, find_idle: FindIdle) -> None:
        """Register how to find steps with nothing to do; see `finish_all`."""
        self._find_idle[name] = find_idle

    def remaining_steps(self, owner: Standing, past: StepLifetime) -> tuple[PendingStep, ...]:
        """Return the steps that are still pending after this event of the owner."""
        return tuple(owed for owed in owner.owed if self._until.get(owed.step, StepLifetime.ERASED) > past)

    def completed_steps(self, by: StepLifetime) -> frozenset[str]:
        """Return the names of the steps that end with this event."""
        return frozenset(name for name, until in self._until.items() if until <= by)

    # -- what could not be done --------------------------------------------------------

    @property
    def problems(self) -> tuple[StepFailure, ...]:
        """The steps that this process tried last and could not do, the newest last.

        At most a thousand are remembered.
        """
        return tuple(problem for _, problem in self._problems.values())

    async def remaining_failures(self) -> tuple[StepFailure, ...]:
        """Return `problems`, without those whose step is no longer pending.

        Another process may have carried out the step, or a deletion may have ended it.
        """
        by_table: dict[tuple[Store, Collection], list[Key]] = {}
        for pending, _ in self._problems.values():
            by_table.setdefault((pending.store, pending.collection), []).append(pending.owner.key)
        for (store, collection), keys in by_table.items():
            with contextlib.suppress(StoreError), step("owed.look"):
                rows = await store.get(collection, list(dict.fromkeys(keys)))
                owing = {
                    (row.key, owed.id)
                    for row in rows
                    if isinstance(row, Record | Mark | Tombstone)
                    for owed in row.owed
                }
                damaged = {row.key for row in rows if isinstance(row, Corrupt)}
                for about, (pending, _) in list(self._problems.items()):
                    key = pending.owner.key
                    if (
                        (pending.store, pending.collection) == (store, collection)
                        and key not in damaged
                        and (key, about[2]) not in owing
                    ):
                        del self._problems[about]
        return self.problems

    def _note(self, pending: OutboxRecord, owed: PendingStep, came: Came) -> None:
        key = pending.owner.key
        about = (pending.collection.name, key, owed.id)
        if came is not False:
            self._problems.pop(about, None)
        if isinstance(came, Exception):
            waits = bool(getattr(came, "retryable", False))
            log.warning("%s of %s %s: %s", owed.step, key.id, "waits" if waits else "cannot be done", came)
            self._problems[about] = pending, StepFailure(owed.step, key.tenant, key.id, str(came), waits)
            if len(self._problems) > PROBLEMS_REMEMBERED:
                self._problems.popitem(last=False)

    # -- carrying out ------------------------------------------------------------------

    async def finish(
        self, pending: OutboxRecord, away: set[str] | None = None, *, only: str | None = None
    ) -> tuple[PendingStep, ...]:
        """Carry out the pending steps of one owner. See `finish_all`."""
        return (await self.finish_all([pending], away, only=only))[0]

    async def settle(self, pending: OutboxRecord, *steps: PendingStep) -> None:
        """Remove steps from their owner because they were done by other means."""
        await self._settle([(pending, steps)], set())

    async def finish_all(
        self,
        pending: Sequence[OutboxRecord],
        away: set[str] | None = None,
        *,
        only: str | None = None,
        mostly_idle: bool = False,
    ) -> list[tuple[PendingStep, ...]]:
        """Carry out the pending steps of these owners, and remove the done ones.

        Deliveries to the same target are one call. Nothing is raised: `problems` holds
        the reasons of the steps that could not be done.

        Args:
            away: Stores that did not answer lately. Steps that would wait for one of
                them again are left. Stores that fail now are added.
            only: Carry out only the steps of this name.
            mostly_idle: Look first, for all owners at once, which steps have nothing to
                do.

        Returns:
            For each owner, the steps that stay pending.
        """
        away = set() if away is None else away
        items = [(one, owed) for one in pending for owed in one.owner.owed if only in (None, owed.step)]
        idle = await self._idle_items(items, away) if mostly_idle and len(pending) > 1 else frozenset[Idle]()
        done = await self._finish_some([item for item in items if item[1].step not in self._last], away, idle)
        for one, steps in (
            await self._finish_some([item for item in items if item[1].step in self._last], away, idle)
        ).items():
            done.setdefault(one, []).extend(steps)
        return [tuple(owed for owed in one.owner.owed if owed not in done.get(one, ())) for one in pending]

    async def _idle_items(self, items: Sequence[Item], away: set[str]) -> frozenset[Idle]:
        """Return the items whose step has nothing to do, as far as that is known."""
        idle: set[Idle] = set()
        for name, find in self._find_idle.items():
            some = [item for item in items if item[1].step == name]
            try:
                idle |= {(one, owed.id) for one, owed in (await find(some) if some else ())}
            except StoreUnavailable as error:
                away.add(error.store)
            except StoreError as error:
                log.info("steps of %s are tried one by one: %s", name, error)
        return frozenset(idle)

    async def _finish_some(
        self, some: Sequence[Item], away: set[str], idle: frozenset[Idle]
    ) -> dict[OutboxRecord, list[PendingStep]]:
        """Return the steps that were carried out and removed.

        Those that are `idle` are only removed.
        """
        routes: dict[object, list[Item]] = {}
        done: dict[OutboxRecord, list[PendingStep]] = {}
        for one, owed in some:
            if (one, owed.id) in idle:
                self._note(one, owed, True)
                done.setdefault(one, []).append(owed)
            else:
                routes.setdefault(self._route(one, owed), []).append((one, owed))
        for items in routes.values():
            for (one, owed), came in zip(items, await self._each(items, self._carry_out, away), strict=True):
                self._note(one, owed, came)
                if came is True:
                    done.setdefault(one, []).append(owed)
        for store in dict.fromkeys(one.store for one in done):
            owners = [(one, tuple(steps)) for one, steps in done.items() if one.store is store]
            for (one, steps), came in zip(owners, await self._each(owners, self._settle, away), strict=True):
                if isinstance(came, Exception):
                    del done[one]
                    for owed in steps:
                        self._note(one, owed, came)
        return done

    def _route(self, pending: OutboxRecord, owed: PendingStep) -> object:
        """Return the key under which steps can be carried out by one call."""
        if owed.step in self._together:
            return owed.step, pending.collection
        return (
            (owed.step, owed.data.get("to")) if owed.step.partition(".")[0] == DELIVER else (pending, owed.id)
        )

    async def _each(
        self, items: list[T], call: Callable[[list[T], set[str]], Awaitable[Sequence[Came]]], away: set[str]
    ) -> Sequence[Came]:
        """Return the result of each item, all done in one call.

        If the call fails for another reason than a store that does not answer, each
        item is tried alone.
        """
        try:
            return await call(items, away)
        except Exception as error:  # noqa: BLE001 - of these steps; other steps and other records go on
            if isinstance(error, StoreUnavailable):
                away.add(error.store)
            elif len(items) > 1:
                return [came for item in items for came in await self._each([item], call, away)]
            return [error] * len(items)

    async def _carry_out(self, items: list[Item], away: set[str]) -> Sequence[Came]:
        pending, owed = items[0]
        if owed.step in self._together:
            return await self._together[owed.step](items)
        handler = self._handlers.get(owed.step) or self._handlers.get(owed.step.partition(".")[0])
        if handler is not None:
            return [await handler(pending, owed)]
        if owed.step.partition(".")[0] == DELIVER:
            return await self._deliver(owed.step, owed.data["to"], items, away)
        raise MemoryTiersError(
            "a newer version of the library left this step. Upgrade memory-tiers to run it"
        )

    async def _settle(
        self, done: list[tuple[OutboxRecord, tuple[PendingStep, ...]]], away: set[str]
    ) -> Sequence[Came]:
        """Remove the steps from their owners, which are all in one store."""
        await self._placement.write(
            "owed.settle", done[0][0].store, *[self._completion(pending, steps) for pending, steps in done]
        )
        return [True] * len(done)

    def _completion(self, pending: OutboxRecord, steps: tuple[PendingStep, ...]) -> Annotate:
        """Return the write that removes steps from their owner.

        Marks and tombstones get their remaining time each time: others may do the other
        steps, and nobody knows which step is last.
        """
        discard_at, owner = None, pending.owner
        if isinstance(owner, Mark):
            discard_at = self._placement.now() + self._mark_life(owner)
        elif isinstance(owner, Tombstone):
            discard_at = self._placement.tombstone_until()
        return Annotate(
            pending.collection,
            owner.key,
            at=owner.version,
            settle=tuple(o.id for o in steps),
            discard_at=discard_at,
        )

    def _mark_life(self, mark: Mark) -> timedelta:
        """Return how long a mark is kept.

        A mark that holds a place to which others may write is kept as long as a
        tombstone would be.
        """
        settings = self._placement.settings
        return (
            settings.tombstone_life if any(HOLDS_PLACE in o.data for o in mark.owed) else settings.mark_life
        )

    # -- deliveries --------------------------------------------------------------------

    async def _deliver(self, name: str, to: str, items: list[Item], away: set[str]) -> Sequence[Came]:
        if to == CACHE:  # the cache remembers its own failures: see `Cache`
            return [
                await self._cache.invalidate(pending.collection, pending.owner.key) for pending, _ in items
            ]
        target = self._placement.topology.home(to)
        refuse_away(target, away)
        writes = [self._write(pending, owed) for pending, owed in items]
        sent = [write for write in writes if not isinstance(write, bool)]
        outcomes = iter(
            await self._placement.write(DELIVERIES.get(name, DELIVER), target, *sent) if sent else ()
        )
        came: list[Came] = []
        for (pending, owed), write in zip(items, writes, strict=True):
            try:
                if isinstance(write, bool):
                    came.append(write)
                    continue
                outcome = next(outcomes)
                done = await self.is_settled(pending, target, write, outcome, away)
                if not done and outcome.status is Status.REJECTED:
                    done = await self._deliver_restamped(name, target, pending, owed, away)
                came.append(done)
            except Exception as error:  # noqa: BLE001 - of one delivery
                came.append(error)
        return came

    async def _deliver_restamped(
        self, name: str, target: Store, pending: OutboxRecord, owed: PendingStep, away: set[str]
    ) -> bool:
        """Deliver once more, if the owner has got the generation of the target since.

        Otherwise a search would miss the entry until a sweep delivers it.
        """
        if (owner := await self.with_new_generation(pending)) is None:
            return False
        again = replace(pending, owner=owner)
        write = self._write(again, owed)
        if isinstance(write, bool):
            return write
        (outcome,) = await self._placement.write(DELIVERIES.get(name, DELIVER), target, write)
        return outcome.status is not Status.REJECTED and await self.is_settled(
            again, target, write, outcome, away
        )

    async def with_new_generation(self, pending: OutboxRecord) -> Record | None:
        """Return the owner if it got another generation since, else None."""
        now = (await self._placement.locate(pending.collection, pending.owner.key)).record
        owner = pending.owner
        if not isinstance(owner, Record) or now is None or now.version != owner.version:
            return None
        return None if now.generation == owner.generation else replace(owner, generation=now.generation)

    def _write(self, pending: OutboxRecord, owed: PendingStep) -> Delivery | bool:
        """Return the write of a delivery.

        The result is true if the delivery is no longer due, and false if it is not due
        yet.
        """
        owner, said = pending.owner, owed.data["write"]
        match said:
            case {"put": _}:
                if isinstance(owner, Record) and owner.role is Role.HOME:
                    return self._copy(pending.collection, owner, owed)
                return not isinstance(
                    owner, Record
                )  # deleted since, and done; or an arriving copy, which sends nothing until it is home
            case {"delete": "self"}:
                until, drops = self._placement.tombstone_until(), self.completed_steps(StepLifetime.DELETED)
                return Delete(
                    pending.collection,
                    owner.key,
                    version=owner.version,
                    when=Newer(),
                    discard_at=until,
                    settles=drops,
                )
            case {"home": "self"}:  # turns an arriving copy into the home to which a mark points
                return Annotate(
                    pending.collection, owner.key, at=owner.version, role_is=Role.ARRIVING, role=Role.HOME
                )
        raise MemoryTiersError(
            "a newer version of the library left this write. Upgrade memory-tiers to run it"
        )

    def _copy(self, collection: Collection, owner: Record, owed: PendingStep) -> Put:
        """Return the owner as a replica, or another record that its step carries.

        The other record belongs to the same life of the owner.
        """
        if owed.data["write"]["put"] == SELF:
            return Put(collection, replace(owner, role=Role.REPLICA, tier=owed.data["to"], owed=()), Newer())
        other = self._placement.kinds.by_name(owed.data["write"]["in"])
        return Put(
            other,
            replace(codec.record_from_json(other, owed.data["write"]["put"]), generation=owner.generation),
            Absent(),
        )

    async def is_settled(
        self, pending: OutboxRecord, store: Store, write: Delivery, outcome: Outcome, away: set[str]
    ) -> bool:
        """Return whether the write of a step has reached its goal.

        True if it was applied, or if the same or a newer record is stored there. Always
        true of a write that makes an arrived copy the home: the copy was stored there
        before the source released it. Since then it may have moved on, been deleted or
        damaged, or left no trace.

        Raises:
            StoreError: The store refused the write.
        """
        raise_if_rejected(store, outcome)
        if (
            outcome.status is Status.REJECTED
        ):  # the scope was erased there: with the owner, or before the owner was born
            return not (
                isinstance(pending.owner, Record)
                and await self._generations.lives_on(pending.owner, pending.store)
            )
        if isinstance(outcome.stored, Corrupt) and not isinstance(write, Annotate):
            raise StoreError(store.name, f"a damaged record blocks a write for {pending.owner.key.id}")
        if (older := in_the_way(outcome, _version(write))) is not None:
            await self.finish(
                OutboxRecord(write.collection, store, older), away
            )  # the next attempt finds it gone
            return False
        return True

    # -- erasing -----------------------------------------------------------------------

    async def _erase(self, pending: OutboxRecord, owed: PendingStep) -> bool:
        return await self.erase(pending, owed.data)

    async def _without_children(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return the items whose owners have no records that refer to them."""
        groups: dict[tuple[Store, str, str, tuple[str, ...]], list[Item]] = {}
        for one, owed in items:
            if not owed.data.get("versions"):  # otherwise the chain of versions is followed
                store = self._store_of_children(one, owed.data)
                name = store, one.owner.key.tenant, owed.data["collection"], tuple(owed.data["fields"])
                groups.setdefault(name, []).append((one, owed))
        idle: list[Item] = []
        for (store, tenant, collection, fields), some in groups.items():
            owners = tuple(one.owner.key.id for one, _ in some)
            query = Query(
                self._placement.kinds.by_name(collection),
                Tenant(tenant),
                filter=Or(tuple(In(field, owners) for field in fields)),
                limit=1,
                select=frozenset(),
            )
            page = await self._placement.page("hanging.find", store, query)
            idle += [] if page.heads or page.corrupt else some
        return idle

    async def erase_children(self, collection: Collection, key: Key) -> None:
        """Delete the children of a record, by all fields that refer to it."""
        gone = OutboxRecord(
            collection, self._placement.topology.archive, Tombstone(key, self._placement.next_version())
        )
        for owed in deletion_steps(self._placement.kinds.of(collection), None):
            await self.erase(gone, owed.data)

    async def erase(self, pending: OutboxRecord, data: Mapping[str, JsonValue]) -> bool:
        """Leave a tombstone for all records that refer to the owner by these fields.

        The records are in one collection of one store. With `versions`, they are kept
        versions of the owner: those older than the owner, and the named ones, which a
        slow writer may still bring. The versions are found by a query, and the chain of
        earlier versions is followed too, because the query may miss a damaged version.
        A damaged one ends the chain. With `older`, records that are newer than the
        owner stay.
        """
        key, end = pending.owner.key, pending.owner.version
        store = self._store_of_children(pending, data)
        collection, versions = self._placement.kinds.by_name(data["collection"]), data.get("versions")
        naming = all_of(
            Or(tuple(Eq(field, key.id) for field in data["fields"])),
            None if versions is None else Lt("stored_version", end),
            Lt("version", end) if data.get("older") else None,
        )
        query = Query(
            collection,
            Tenant(key.tenant),
            filter=naming,
            limit=self._placement.settings.page,
            select=frozenset(),
        )
        walked: set[Key] = set()
        chain = [version for version in versions or () if version < end]
        async for page in self._placement.pages("hanging.find", store, query):
            chain += await self._leave_tombstones(
                pending, store, collection, {head.key: head.version for head in page.heads}, walked
            )
        while ahead := {
            there: v for v in chain if (there := version_key(key.tenant, key.id, v)) not in walked
        }:
            chain = await self._leave_tombstones(pending, store, collection, ahead, walked)
        return True

    def _store_of_children(self, pending: OutboxRecord, data: Mapping[str, JsonValue]) -> Store:
        """Return the archive, or the record's own store if its parts are meant."""
        return pending.store if data.get("older") else self._placement.topology.archive

    async def _leave_tombstones(
        self,
        pending: OutboxRecord,
        store: Store,
        collection: Collection,
        found: Mapping[Key, int],
        walked: set[Key],
    ) -> list[int]:
        """Leave a tombstone for each, and return the versions that these had replaced.

        Versions whose row does not name its predecessor are left out.
        """
        walked |= found.keys()
        rows = await self._placement.read("hanging.walk", store, collection, list(found)) if found else []
        deletes: list[Delete] = []
        before: list[int] = []
        for (key, version), row in zip(found.items(), rows, strict=True):
            previous = (
                row.previous
                if isinstance(row, Record)
                else row.note.get("previous")
                if isinstance(row, Tombstone)
                else None
            )
            before += [] if previous is None else [previous]
            if not isinstance(row, Tombstone):
                when = AtVersion(row.version) if isinstance(row, Record) else Newer()
                note: dict[str, Any] = {} if previous is None else {"previous": previous}
                over, until = self._placement.next_version(version), self._placement.tombstone_until()
                drops = self.completed_steps(StepLifetime.DELETED)
                deletes.append(
                    Delete(collection, key, over, when, note=note, discard_at=until, settles=drops)
                )
        if not deletes:
            return before
        outcomes = await self._placement.write("hanging.erase", store, *deletes)
        for delete, outcome in zip(deletes, outcomes, strict=True):
            await self.is_settled(pending, store, delete, outcome, set())
        return before


def _version(write: Delivery) -> int:
    return (
        write.record.version
        if isinstance(write, Put)
        else write.version
        if isinstance(write, Delete)
        else write.at
    )


def in_the_way(outcome: Outcome, version: int) -> Standing | None:
    """Return the stored row that blocks a write only because of its pending steps.

    The row is older than `version`. None if there is no such row.
    """
    there = outcome.stored
    if outcome.status is not Status.CONFLICT or there is None or isinstance(there, Corrupt):
        return None
    return there if there.owed and there.version < version else None


# -- what is owed ----------------------------------------------------------------------


def replicas(placement: Placement, collection: Collection, home: Store, tier: str) -> tuple[PendingStep, ...]:
    """Return the replica steps of a record while `tier` is its home.

    A tier that shares the home's store needs no replica.
    """
    tiers = [
        t for t in placement.kinds.of(collection).replicas(tier) if placement.topology.home(t) is not home
    ]
    return tuple(PendingStep(f"{REPLICA}:{t}", REPLICA, {"to": t, "write": {"put": SELF}}) for t in tiers)


def write_steps(
    placement: Placement, collection: Collection, record: Record, home: Store
) -> tuple[PendingStep, ...]:
    """Return the pending steps of a record that is written to its home store.

    They are its replicas and, for a new text that has a vector, its passages if it is
    or was long.
    """
    owed = replicas(placement, collection, home, record.tier)
    if (
        placement.kinds.of(collection).passages is None
        or record.fields.get(SAID) is not None
        or record.fields.get(MODEL) is None
    ):
        return owed
    return (
        (*owed, PendingStep(MAKE_PASSAGES, MAKE_PASSAGES))
        if parts_before(record) or has_parts(record)
        else owed
    )


def keep_version_step(version: Record, collection: Collection) -> PendingStep:
    """Return the step that delivers a replaced version to the archive."""
    return PendingStep(
        f"{KEPT_VERSION}:{version.version}",
        KEPT_VERSION,
        {"to": "mid", "write": {"put": codec.to_json(version), "in": collection.name}},
    )


def pending_versions(owner: Standing) -> list[Mapping[str, JsonValue]]:
    """Return the versions whose delivery to the archive is pending.

    Each has the form that `keep_version_step` gave it.
    """
    return [owed.data["write"]["put"] for owed in owner.owed if owed.step == KEPT_VERSION]


def arrival(to: str, *, holds_place: bool) -> PendingStep:
    """Return the step that makes the copy to which a mark points the home."""
    return PendingStep(
        f"{ARRIVAL}:{to}",
        ARRIVAL,
        {"to": to, "write": {"home": SELF}} | ({HOLDS_PLACE: True} if holds_place else {}),
    )


def elsewhere(placement: Placement, store: Store) -> tuple[PendingStep, ...]:
    """Return the steps of a deletion in the stores other than the record's home."""
    topology = placement.topology
    places = [(UNCACHE, CACHE)] if topology.cache is not None else []
    places += [(TOMBSTONE, topology.tiers_of(later)[0]) for later in topology.later(store)]
    return tuple(
        PendingStep(f"{name}:{to}", name, {"to": to, "write": {"delete": SELF}}) for name, to in places
    )


def deletion_steps(kind: Kind, versions: Sequence[int] | None) -> tuple[PendingStep, ...]:
    """Return the steps that delete a record's children and its kept versions.

    With `versions` of None, the record has no kept versions.
    """
    owed: dict[str, dict[str, JsonValue]] = {
        c.name: {"collection": c.name, "fields": list(fields)} for c, fields in kind.named_by.items()
    }
    for part, field in kind.parts:
        owed[part.name] = {"collection": part.name, "fields": [field], "older": True}
    if kind.versions is not None and versions is not None:
        owed[kind.versions.name] = {
            "collection": kind.versions.name,
            "fields": ["entry_id"],
            "versions": list(versions),
        }
    return tuple(PendingStep(f"{ERASE}:{name}", ERASE, data) for name, data in owed.items())


def passages_left(kind: Kind, record: Record | None) -> tuple[PendingStep, ...]:
    """Return the step of a deletion that ends the passages of the record.

    There is none if the record had no passages. The step covers all passages that the
    record ever had, and those that another process is about to bring. The number of
    passages of an unreadable record is unknown.
    """
    if kind.passages is None:
        return ()
    parts = None if record is None else max(parts_before(record), len(parts_in(record)))
    return () if parts == 0 else (PendingStep(FORGET_PASSAGES, FORGET_PASSAGES, {"parts": parts}),)


def no_room(owner: Standing, archive: Store) -> StoreUnavailable | None:
    """Return the error of an edit that would make the record carry too much past.

    That is the past which the archive has not taken yet. None if there is room.
    """
    carried = pending_versions(owner)
    size = sum(
        len(text.encode("utf-8", "surrogatepass"))
        for version in carried
        for text in version["texts"].values()
    )
    if len(carried) <= MOST_VERSIONS_OWED and (len(carried) < 2 or size <= MOST_BYTES_OWED):
        return None
    earlier = f"{len(carried) - 1} earlier version{'s' if len(carried) > 2 else ''}"
    return StoreUnavailable(
        archive.name,
        f"has not stored {earlier} of this entry yet, and the entry can carry no more. Edit it again once the"
        " store works",
    )
