"""Generations over all stores: which one an erasure takes, and what is done about
stores that disagree.

An erasure raises the scope's generation in every store, so stores agree, but for one
that was restored from a backup or replaced by an empty one, or that an erasure under
way has not reached yet. A record born in a store that is behind is refused by the
others as if it had been erased. The operation records of erasures (see `erasure`) tell
which it is: while the erasure is under way the record is erased; else the store is
behind, and is brought up to the others. What stands in it from before an erasure that
is still remembered is erased then; everything else is of after it and gets the
generation. In a store that is known to have been set back (see `setbacks`) whatever it
held before is of before the erasure, whether that is remembered or not: it would have
the generation otherwise.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import datetime

from memory.domain import ids
from memory.domain.errors import StoreError, StoreUnavailable
from memory.domain.time import micros, moment
from memory.orchestrator.storage.collections import OPERATIONS, SYSTEM_TENANT
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.rollback_detection import RollbackDetector, RolledBackStore
from memory.orchestrator.storage.steps import step
from memory.ports.query import And, Condition, Ge, Gt, Lt, Query, within
from memory.ports.record import Key, Partition, Record, Role
from memory.ports.store import Store
from memory.ports.writes import AtVersion, Put, RaiseGeneration, Status

log = logging.getLogger(__name__)

OPERATIONS_SCOPE = "operations"
UNDER_WAY = "erase"
"""The kind of an erasure's operation record while it is being carried out; its later
kinds are `erasure`'s business.
"""
BEFORE = "before"
"""In the body of the operation of an erasure that takes only what is older than this
version: what was written since lives on (see `tenants`).
"""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A store that was behind the others for one partition, and what became of what
    stood in it.
    """

    store: str
    was: int
    now: int
    restamped: int
    erased: int


class Generations:
    """Reads, compares and heals generations."""

    def __init__(self, placement: Placement, setbacks: RollbackDetector) -> None:
        self._placement = placement
        self._setbacks = setbacks
        self.healed: list[Disagreement] = []
        """What was healed by this process, the newest last; at most a thousand."""
        self.carried: frozenset[str] = frozenset()
        """The steps that an erased record goes on owing. See `Outbox.register`."""

    async def by_store(self, partition: Partition) -> dict[Store, int]:
        """The partition's generation in each store, split ones as a whole. Raises where
        one does not answer.
        """
        stores = self._placement.topology.stores
        return {store: await self.of(store, partition) for store in stores}

    async def highest(self, partition: Partition) -> int:
        """The highest generation of the partition in the stores that answer, or of a
        record in them. Raises where the archive does not.

        A store that has forgotten the partition, or was replaced, takes records of a
        generation above its own.
        """
        highest = 0
        for store in self._placement.topology.stores:
            try:
                highest = max(highest, await self.of(store, partition))
                highest = await self._highest_born(store, partition, highest)
            except StoreError:
                if store is self._placement.topology.archive:
                    raise
        return highest

    async def _highest_born(self, store: Store, partition: Partition, highest: int) -> int:
        """The highest generation of any record of the partition in a store, if it is
        above `highest`.
        """
        for kind in self._placement.kinds.within(partition):
            found = True
            while found:
                above = Query(
                    kind.collection,
                    within(partition),
                    Gt("generation", highest),
                    limit=1,
                    roles=frozenset(Role),
                    select=frozenset(),
                )
                with step("erase.find"):
                    page = await store.query(above)
                found = bool(page.heads)
                highest = max([highest, *(head.generation for head in page.heads)])
        return highest

    async def of(self, store: Store, partition: Partition) -> int:
        outcome = await self._placement.write_one("erase.read", store, RaiseGeneration(partition, to=0))
        return outcome.number or 0

    async def operation(self, partition: Partition, generation: int) -> Record | None:
        """The operation record of the erasure that raised the partition to this
        generation, while it is remembered.
        """
        with step("erase.find"):
            row = (
                await self._placement.topology.archive.get(OPERATIONS, [operation_key(partition, generation)])
            )[0]
        return row if isinstance(row, Record) else None

    async def lives_on(self, record: Record, home: Store) -> bool:
        """Whether a record that another store refused for its generation lives on; then
        its store has been brought up to the others.

        False where its scope is being erased, or was and the record was not.
        """
        ended, since = await self._level(record.partition, home)
        return ended and (since is None or record.version >= micros(since))

    async def level(self, partition: Partition) -> bool:
        """Bring every store that is behind up to the others, unless an erasure is under
        way; whether they are level now.
        """
        return (await self._level(partition))[0]

    async def are_level(self, partition: Partition) -> bool:
        """Whether every home store has the same generation of a partition, or will have
        once an erasure that is under way has ended.
        """
        generations = {await self.of(store, partition) for store in self._placement.topology.homes}
        if len(generations) == 1:
            return True
        operation = await self.operation(partition, max(generations))
        return operation is not None and operation.fields["kind"] == UNDER_WAY

    async def _level(self, partition: Partition, home: Store | None = None) -> tuple[bool, datetime | None]:
        """Bring up what is behind, and in `home` what a healer before left in the
        middle. False and nothing done where an erasure is under way, but for one that
        spares what was written since; the moment that what lives on in `home` is not
        older than.
        """
        by_store = await self.by_store(partition)
        highest = max(by_store.values())
        operation = await self.operation(partition, highest)
        under_way = operation is not None and operation.fields["kind"] == UNDER_WAY
        if operation is not None and under_way and BEFORE not in operation.body:
            return False, None
        of_home = since = None if operation is None else spares_since(operation)
        behind = [store for store, generation in by_store.items() if generation < highest]
        for store in dict.fromkeys((*behind, *([] if home is None else [home]))):
            back = await self._setbacks.of(store)
            await self._bring_up(
                store, partition, by_store[store], highest, operation, back, told=not under_way
            )
            of_home = _later(since, back) if store is home else of_home
        return True, of_home

    async def level_if_behind(
        self, store: Store, partition: Partition, generation: int, operation: Record
    ) -> bool:
        """Whether a store was behind the erasure that raised the partition so far,
        restored or replaced since; then it is level now.
        """
        was = await self.of(store, partition)
        if was < generation:
            await self._bring_up(store, partition, was, generation, operation)
        return was < generation

    async def bring_up_the_rest(self, store: Store, partition: Partition) -> None:
        """What a healer left in the middle that died once it had raised the store: what
        is of after the last erasure lives on, and nothing else.
        """
        stands = await self.of(store, partition)
        operation = await self.operation(partition, stands)
        if operation is None or operation.fields["kind"] != UNDER_WAY:
            await self._bring_up(store, partition, stands, stands, operation)

    async def _bring_up(
        self,
        store: Store,
        partition: Partition,
        was: int,
        to: int,
        operation: Record | None,
        back: RolledBackStore | None = None,
        *,
        told: bool = True,
    ) -> None:
        """What stands in a store that is behind is of after the erasure, but for what
        that does not spare, or of before it was set `back`; then the store is level.
        `told`: that it was not.
        """
        before, erased = _later(None if operation is None else spares_since(operation), back), 0
        if before is not None:
            version = (
                micros(operation.created_at) if operation is not None else back.to if back is not None else 0
            )
            erased = await self._erase_older(store, partition, to, before, version)
        restamped = 0
        if store is not self._placement.topology.cache:
            restamped = await self._restamp(store, partition, to)
        await self._placement.write_one("generation.raise", store, RaiseGeneration(partition, to=to))
        if store is not self._placement.topology.cache:
            restamped += await self._restamp(store, partition, to)  # what was born in between
        if (
            told and was < to and restamped + erased
        ):  # with nothing in it, it may only have forgotten the scope
            log.warning(
                "store '%s' was behind in one scope (generation %d of %d), as after a restore. It is up to date now",
                store.name,
                was,
                to,
            )
            self.healed = [*self.healed[-999:], Disagreement(store.name, was, to, restamped, erased)]

    async def _erase_older(
        self, store: Store, partition: Partition, generation: int, before: datetime, version: int
    ) -> int:
        """`version`: that of the erasure. Where it is forgotten, one that is not later:
        what was born again after it outdoes the tombstones.
        """
        older, erased = And((Lt("generation", generation), Lt("version", micros(before)))), 0
        for kind in self._placement.kinds.within(partition):
            query = Query(kind.collection, within(partition), filter=older, roles=frozenset(Role))
            erased += await self._placement.delete_matching(
                "erase.delete", store, query, version, self.carried
            )
        return erased

    async def spare(self, store: Store, partition: Partition, generation: int, since: int) -> None:
        """Give what is not older than this version, in whatever role, the generation;
        again where others were faster.
        """
        asked = And((Lt("generation", generation), Ge("version", since)))
        for _ in range(self._placement.settings.attempts):
            if not (await self._stamp(store, partition, generation, asked, frozenset(Role)))[1]:
                return
        raise StoreUnavailable(store.name, "entries written since the erasure began keep changing; try again")

    async def _restamp(self, store: Store, partition: Partition, generation: int) -> int:
        return (
            await self._stamp(
                store,
                partition,
                generation,
                Lt("generation", generation),
                frozenset({Role.HOME, Role.ARRIVING}),
            )
        )[0]

    async def _stamp(
        self, store: Store, partition: Partition, generation: int, asked: Condition, roles: frozenset[Role]
    ) -> tuple[int, int]:
        """Give the records here the generation, each as it stands: the same version, so
        that what was stored when stays true. How many have it now, and how many others
        were faster with.
        """
        done = overtaken = 0
        for collection in [kind.collection for kind in self._placement.kinds.within(partition)]:
            query = Query(
                collection, within(partition), filter=asked, limit=self._placement.settings.page, roles=roles
            )
            async for page in self._placement.pages("generation.restamp", store, query):
                rows = [row for row in page.records if isinstance(row, Record)]
                puts = [
                    Put(
                        collection,
                        replace(row, generation=generation),
                        AtVersion(row.version, row.role, row.tier),
                    )
                    for row in rows
                ]
                if puts:
                    outcomes = await self._placement.write("generation.restamp", store, *puts)
                    done += sum(outcome.applied for outcome in outcomes)
                    overtaken += sum(outcome.status is Status.CONFLICT for outcome in outcomes)
        return done, overtaken


def spares_since(operation: Record) -> datetime:
    """The moment that nothing which lives on after an erasure is older than. Where that
    takes only what was before a moment it is that one, which may be ahead of the clock
    by which the erasure began.
    """
    before: int | None = operation.body.get(BEFORE)
    return operation.created_at if before is None else moment(before)


def _later(since: datetime | None, back: RolledBackStore | None) -> datetime | None:
    """The later of two moments, either of which may be unknown: that of an erasure, and
    until when a store had not been set back yet.
    """
    until = None if back is None else moment(back.seen)
    return max((when for when in (since, until) if when is not None), default=None)


def operation_key(partition: Partition, generation: int) -> Key:
    """The key of one erasure's operation record: the same for whoever raises that
    partition to that generation.
    """
    return Key(
        SYSTEM_TENANT,
        ids.derived_id(
            SYSTEM_TENANT, OPERATIONS_SCOPE, "erase", partition.tenant, partition.scope, str(generation)
        ),
    )
