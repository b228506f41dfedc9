"""What remains to be done for a record: written with the record's first step, taken away when done, finished by whoever finds it.

Every step is repeatable and conditional on versions, so that the writer, a sweep and a second sweep may all carry it out. A step that cannot be done,
because a store is away, refuses it, or nobody here knows its kind, stays owed and costs nothing but itself.
"""

from __future__ import annotations

import contextlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeAlias

from memory.domain.errors import MemoryTiersError, StoreError, StoreUnavailable
from memory.orchestrator.collections import ENTRY_VERSIONS, RELATIONS
from memory.orchestrator.generations import Generations
from memory.orchestrator.placement import Placement, refused
from memory.orchestrator.steps import step
from memory.orchestrator.topology import refuse_away
from memory.orchestrator.versions import version_key
from memory.ports import codec
from memory.ports.collections import Collection
from memory.ports.query import And, Eq, Lt, Or, Query, Tenant
from memory.ports.record import Corrupt, Key, Mark, Owed, Record, Role, Tombstone
from memory.ports.store import Store
from memory.ports.writes import Absent, Annotate, AtVersion, Delete, Newer, Outcome, Put, Status

log = logging.getLogger(__name__)

REPLICATE = "replicate"  # put a whole copy into a later tier
KEEP = "keep"  # store the version that an edit replaced
DELETE = "delete"  # delete other records, each at the version noted
UNPLACE = "unplace"  # leave tombstones in the later stores
UNCACHE = "uncache"  # take a deleted record out of the cache
UNKEEP = "unkeep"  # erase the kept versions of a deleted entry
UNRELATE = "unrelate"  # delete the relations of a deleted entry
ARRIVE = "arrive"  # clear the flag of a copy whose source has let go
ERASE = "erase"  # erase a scope in one store

HOLDS_PLACE = "holds_place"
"""Said by the debt of a mark under an id that another writer derives as well, from a key or a source."""

MOST_VERSIONS_OWED = 16
MOST_BYTES_OWED = 1_000_000
"""How much of its own past a record carries while the archive is away: then it is edited no more until the archive is back."""

PROBLEMS_REMEMBERED = 1_000

Holder: TypeAlias = Record | Mark | Tombstone
Finisher: TypeAlias = Callable[["Debt", Owed], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class Debt:
    """A holder that owes, where it stands."""

    collection: Collection
    store: Store
    holder: Holder


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a step could not be done when it was last tried here. `waits` where trying again may help; else somebody must do something."""

    step: str
    tenant: str
    record_id: str
    said: str
    waits: bool


class OwedWork:
    """Carries out owed steps. Who stands above this module registers the steps it finishes."""

    def __init__(self, placement: Placement, generations: Generations) -> None:
        self._placement = placement
        self._generations = generations
        self._problems: OrderedDict[tuple[str, Key, str], tuple[Debt, Problem]] = OrderedDict()
        self._finishers: dict[str, Finisher] = {
            REPLICATE: self._replicate,
            KEEP: self._keep,
            UNPLACE: self._unplace,
            UNKEEP: self._unkeep,
            UNRELATE: self._unrelate,
            ARRIVE: self._arrive,
        }

    def register(self, kind: str, finisher: Finisher) -> None:
        """Who finishes this kind of step: true when done or no longer due, false to leave it for later; it raises where it is refused."""
        self._finishers[kind] = finisher

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What this process tried last and could not do, the newest last; at most a thousand."""
        return tuple(problem for _, problem in self._problems.values())

    async def still_owed(self) -> tuple[Problem, ...]:
        """`problems`, once those are forgotten whose step has been done since, or is not due any more: by another process, or for a deletion."""
        by_place: dict[tuple[Store, Collection], list[Key]] = {}
        for debt, _ in self._problems.values():
            by_place.setdefault((debt.store, debt.collection), []).append(debt.holder.key)
        for (store, collection), keys in by_place.items():
            with contextlib.suppress(StoreError), step("owed.look"):
                rows = await store.get(collection, list(dict.fromkeys(keys)))
                owing = {(row.key, owed.kind) for row in rows if isinstance(row, Record | Mark | Tombstone) for owed in row.owed}
                damaged = {row.key for row in rows if isinstance(row, Corrupt)}
                for place, (debt, problem) in list(self._problems.items()):
                    key = debt.holder.key
                    if (debt.store, debt.collection) == (store, collection) and key not in damaged and (key, problem.step) not in owing:
                        del self._problems[place]
        return self.problems

    async def finish(self, debt: Debt, away: set[str] | None = None) -> tuple[Owed, ...]:
        """Do what the holder owes and take it away; what could not be done stays owed and is returned.

        `away` names stores that did not answer lately: steps that would wait for one of them again are left, and it learns of more.
        """
        away = set() if away is None else away
        done = [owed for owed in debt.holder.owed if await self._tried(debt, owed, away)]
        left = tuple(o for o in debt.holder.owed if o not in done)
        if done:
            await self._settle(debt.store, [(debt, tuple(done))])
        return left

    async def _tried(self, debt: Debt, owed: Owed, away: set[str]) -> bool:
        """Whether the step is done. Whatever goes wrong is this step's alone."""
        key = debt.holder.key
        try:
            if owed.kind not in self._finishers:
                raise MemoryTiersError("this version of the library does not know the step; a newer one left it")
            if (target := self._target(owed)) is not None:
                refuse_away(target, away)
            done = await self._finishers[owed.kind](debt, owed)
        except Exception as error:  # noqa: BLE001 - of one step; the record's other steps, and other records, go on
            waits = bool(getattr(error, "retryable", False))
            if isinstance(error, StoreUnavailable):
                away.add(error.store)
            log.warning("%s of %s %s: %s", owed.kind, key.id, "waits" if waits else "cannot be done", error)
            self._problems[debt.collection.name, key, owed.kind] = debt, Problem(owed.kind, key.tenant, key.id, str(error), waits)
            self._problems.move_to_end((debt.collection.name, key, owed.kind))
            if len(self._problems) > PROBLEMS_REMEMBERED:
                self._problems.popitem(last=False)
            return False
        if done:
            self._problems.pop((debt.collection.name, key, owed.kind), None)
        return done

    def _target(self, owed: Owed) -> Store | None:
        """The one store a step needs, where it is known beforehand."""
        topology = self._placement.topology
        if owed.kind in (REPLICATE, ARRIVE):
            return topology.home(owed.data["to"])
        return topology.archive if owed.kind in (KEEP, UNKEEP, UNRELATE) else None

    async def try_finish(self, debt: Debt, away: set[str] | None = None) -> bool:
        """`finish` after an acknowledged write: a failure leaves the rest to maintenance and does not fail the write. True when nothing is left."""
        try:
            return not debt.holder.owed or not await self.finish(debt, away)
        except StoreError as error:
            log.warning("owed work of %s waits: %s", debt.holder.key.id, error)
            return False

    async def deliver(self, debts: Sequence[Debt], away: set[str] | None = None) -> None:
        """Deliver the replicas that these records owe, in batches; failures are left to maintenance. `away`: see `finish`."""
        away = set() if away is None else away
        by_route: dict[tuple[str, Store, str], list[tuple[Debt, Owed]]] = {}
        for debt in debts:
            for owed in debt.holder.owed:
                if owed.kind == REPLICATE:
                    by_route.setdefault((debt.collection.name, debt.store, owed.data["to"]), []).append((debt, owed))
        for (_, source, tier), group in by_route.items():
            target = self._placement.topology.home(tier)
            try:
                refuse_away(target, away)
                outcomes = await self._placement.write("replica.deliver", target, *[self._replica(debt, owed) for debt, owed in group])
                done = [(debt, (owed,)) for (debt, owed), outcome in zip(group, outcomes, strict=True) if outcome.applied]
                await self._settle(source, done)
            except StoreError as error:
                log.warning("%d replicas wait: %s", len(group), error)
                if isinstance(error, StoreUnavailable):
                    away.add(error.store)
                continue
            for (debt, _), outcome in zip(group, outcomes, strict=True):
                if not outcome.applied:
                    await self.try_finish(debt, away)

    async def arrive(self, marks: Sequence[Debt], away: set[str]) -> list[Debt]:
        """Clear the flags of the copies that marks of one source point to, and settle the marks: which. Failures are left to maintenance."""
        arrived: list[Debt] = []
        by_tier: dict[str, list[Debt]] = {}
        for debt in marks:
            assert isinstance(debt.holder, Mark)  # noqa: S101 - nothing else owes an arrival
            by_tier.setdefault(debt.holder.to, []).append(debt)
        for tier, group in by_tier.items():
            target = self._placement.topology.home(tier)
            try:
                refuse_away(target, away)
                outcomes = await self._placement.write("move.arrive", target, *[_flag_cleared(debt) for debt in group])
                here = [debt for debt, outcome in zip(group, outcomes, strict=True) if _is_there(outcome)]
                await self._settle(group[0].store, [(debt, debt.holder.owed) for debt in here])
                arrived += here
            except StoreError as error:
                log.warning("%d arrivals wait: %s", len(group), error)
                if isinstance(error, StoreUnavailable):
                    away.add(error.store)
        return arrived

    async def _settle(self, store: Store, done: Sequence[tuple[Debt, tuple[Owed, ...]]]) -> None:
        """Take the steps away from what owes them in this store."""
        if done:
            await self._placement.write("owed.settle", store, *[self._settled(debt, steps) for debt, steps in done])

    def _settled(self, debt: Debt, steps: tuple[Owed, ...]) -> Annotate:
        """Marks and tombstones get their time each time: others may do the other steps, and nobody knows who is last."""
        discard_at = None
        if isinstance(debt.holder, Mark):
            discard_at = self._placement.now() + self._mark_life(debt.holder)
        elif isinstance(debt.holder, Tombstone):
            discard_at = self._placement.tombstone_until()
        return Annotate(debt.collection, debt.holder.key, at=debt.holder.version, settle=steps, discard_at=discard_at)

    def _mark_life(self, mark: Mark) -> timedelta:
        """A mark that holds a place that others may yet write to is kept as long as a tombstone there would be."""
        settings = self._placement.settings
        return settings.tombstone_life if any(HOLDS_PLACE in o.data for o in mark.owed) else settings.mark_life

    # -- finishers ----------------------------------------------------------------------------------------------------

    async def _done(self, store: Store, outcome: Outcome, about: Record, home: Store) -> bool:
        """Whether a copy has arrived where it was sent, or is not due any more. Raises where it was refused."""
        if (error := refused(store, outcome)) is not None:
            raise error
        if outcome.status is Status.REJECTED:  # its scope was erased there: with this record, or before the record was born here
            return not await self._generations.lives_on(about, home)
        if outcome.applied or not isinstance(outcome.stored, Corrupt):
            return True  # there, or something newer is
        raise StoreError(store.name, f"a damaged record stands where the copy of {about.key.id} belongs")

    def _replica(self, debt: Debt, owed: Owed) -> Put:
        assert isinstance(debt.holder, Record)  # noqa: S101 - only live records owe replicas
        return Put(debt.collection, replace(debt.holder, role=Role.REPLICA, tier=owed.data["to"], owed=()), Newer())

    async def _replicate(self, debt: Debt, owed: Owed) -> bool:
        if not isinstance(debt.holder, Record) or debt.holder.role is not Role.HOME:
            return False  # an arriving copy owes its replica only once it is home
        target = self._placement.topology.home(owed.data["to"])
        outcome = await self._placement.write_one("replica.deliver", target, self._replica(debt, owed))
        return await self._done(target, outcome, debt.holder, debt.store)

    async def _keep(self, debt: Debt, owed: Owed) -> bool:
        if not isinstance(debt.holder, Record):
            return True  # deleted meanwhile
        archive = self._placement.topology.archive
        kept = replace(codec.record_from_json(ENTRY_VERSIONS, owed.data["record"]), generation=debt.holder.generation)  # of the same life
        outcome = await self._placement.write_one("version.keep", archive, Put(ENTRY_VERSIONS, kept, Absent()))
        return await self._done(archive, outcome, debt.holder, debt.store)

    async def _unplace(self, debt: Debt, owed: Owed) -> bool:
        for store in self._placement.topology.later(debt.store):
            tombstone = Delete(
                debt.collection,
                debt.holder.key,
                version=debt.holder.version,
                when=Newer(),
                discard_at=self._placement.tombstone_until(),
            )
            await self._placement.write_one("delete.elsewhere", store, tombstone)
        return True

    async def _unkeep(self, debt: Debt, owed: Owed) -> bool:
        """Leave a tombstone for each kept version: those the archive has, and those that a slow writer has yet to bring.

        Both by asking for the entry's and by walking the chain of versions back: a damaged one breaks the chain, and may not be found by its entry.
        Only what is older than the tombstone goes: a later life's versions are its own.
        """
        archive, key, end = self._placement.topology.archive, debt.holder.key, debt.holder.version
        chain = {version for version in owed.data["versions"] if version < end}
        of_entry = And((Eq("entry_id", key.id), Lt("stored_version", end)))
        query = Query(ENTRY_VERSIONS, Tenant(key.tenant), filter=of_entry, limit=self._placement.settings.page)
        async for page in self._placement.pages("version.find", archive, query):
            chain |= {row.version for row in page.records if isinstance(row, Record)}
        walked: set[int] = set()
        while ahead := sorted(chain - walked, reverse=True):
            walked.add(ahead[0])
            before = await self._erase_version(archive, version_key(key.tenant, key.id, ahead[0]), ahead[0])
            chain |= set() if before is None else {before}
        return True

    async def _erase_version(self, archive: Store, key: Key, version: int) -> int | None:
        """A tombstone for one kept version; the version that this one replaced, where that can still be told."""
        with step("version.walk"):
            row = (await archive.get(ENTRY_VERSIONS, [key]))[0]
        before: int | None = row.previous if isinstance(row, Record) else row.note.get("previous") if isinstance(row, Tombstone) else None
        if not isinstance(row, Tombstone):
            tombstone = Delete(
                ENTRY_VERSIONS,
                key,
                version=self._placement.next_version(version),
                when=Newer(),
                note={"previous": before},
                discard_at=self._placement.tombstone_until(),
            )
            outcome = await self._placement.write_one("version.erase", archive, tombstone)
            if not outcome.applied and not isinstance(outcome.stored, Tombstone):
                raise StoreError(archive.name, f"kept version {key.id} is not erased: {outcome.reason or 'it changed meanwhile'}")
        return before

    async def _unrelate(self, debt: Debt, owed: Owed) -> bool:
        await self.unrelate(debt.holder.key)
        return True

    async def unrelate(self, key: Key) -> None:
        """Delete the relations of an entry, whichever end it is."""
        archive = self._placement.topology.archive
        ends = Or((Eq("source_id", key.id), Eq("target_id", key.id)))
        query = Query(RELATIONS, Tenant(key.tenant), filter=ends, limit=self._placement.settings.page)
        async for page in self._placement.pages("relation.find", archive, query):
            tombstones = [
                Delete(
                    RELATIONS,
                    row.key,
                    version=self._placement.next_version(row.version),
                    when=AtVersion(row.version),
                    discard_at=self._placement.tombstone_until(),
                )
                for row in page.records
                if isinstance(row, Record)
            ]
            if tombstones:
                await self._placement.write("relation.erase", archive, *tombstones)

    async def _arrive(self, debt: Debt, owed: Owed) -> bool:
        target = self._placement.topology.home(owed.data["to"])
        return _is_there(await self._placement.write_one("move.arrive", target, _flag_cleared(debt)))


def _flag_cleared(debt: Debt) -> Annotate:
    """What makes an arriving copy the home that a mark says it is."""
    return Annotate(debt.collection, debt.holder.key, at=debt.holder.version, role_is=Role.ARRIVING, role=Role.HOME)


def _is_there(outcome: Outcome) -> bool:
    """Whether a copy has arrived.

    Home already, newer, moved on or deleted, perhaps so long ago that nothing is left of it: all mean it did, as it stood there before the source
    let go.
    """
    return outcome.status is not Status.REJECTED


def carried_over(record: Record) -> tuple[Owed, ...]:
    """What a record's next version still owes of this one's debts: all but replicas, which the new version brings itself."""
    return tuple(o for o in record.owed if o.kind != REPLICATE)


def no_room(owed: Sequence[Owed], archive: Store) -> StoreUnavailable | None:
    """The refusal of an edit whose record would carry too much of its own past, which the archive has not taken yet; None where there is room."""
    kept = [o for o in owed if o.kind == KEEP]
    if len(kept) <= MOST_VERSIONS_OWED and (len(kept) < 2 or sum(_size(o) for o in kept) <= MOST_BYTES_OWED):
        return None
    earlier = f"{len(kept) - 1} earlier version{'s' if len(kept) > 2 else ''}"
    return StoreUnavailable(
        archive.name, f"has not taken {earlier} of this entry yet, and the entry can carry no more of them; edit it again when it does"
    )


def _size(owed: Owed) -> int:
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in owed.data["record"]["texts"].values())
