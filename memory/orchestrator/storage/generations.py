"""Generations over all stores: the one an erasure takes, and repair of disagreement.

An erasure raises the generation of its scope in every store, so the stores agree. A
store can be behind for three reasons: it was restored from a backup, it was replaced by
an empty one, or an erasure under way has not reached it yet. The other stores refuse a
record that is born in a store that is behind, as if it had been erased.

The operation records of erasures (see `erasure`) tell which case it is. While the
erasure is under way, the record is erased. Otherwise the store is behind, and is
brought up to the others: its records from before a remembered erasure are erased. All
its other records are newer than the erasure and get the generation.

Some stores are known to have been rolled back (see `rollback_detection`). All records
that such a store held before the rollback count as older than the erasure, even if the
erasure is forgotten. Otherwise they would have the generation.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import datetime

from memory.domain import ids
from memory.domain.errors import StoreError, StoreUnavailable
from memory.domain.maintenance_reports import RolledBackStore
from memory.domain.time import micros, moment
from memory.domain.validation import SYSTEM_TENANT
from memory.orchestrator.storage.collections import OPERATIONS
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.rollback_detection import RollbackDetector
from memory.orchestrator.storage.steps import step
from memory.ports.collections import Collection
from memory.ports.query import And, Condition, Ge, Gt, Lt, Query, within
from memory.ports.record import Key, Partition, Record, Role
from memory.ports.store import Store
from memory.ports.writes import AtVersion, Put, RaiseGeneration, Status

log = logging.getLogger(__name__)

OPERATIONS_SCOPE = "operations"
UNDER_WAY = "erase"
"""The kind of an erasure's operation record while it is being carried out. Its later
kinds belong to `erasure`.
"""
BEFORE = "before"
"""In the body of an erasure's operation record: the erasure deletes only records older
than this version. Later records live on (see `tenants`).
"""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A store that was behind the others in one partition, and what became of it.

    `restamped` and `erased` count its records that got the generation and those that
    were erased.
    """

    store: str
    was: int
    now: int
    restamped: int
    erased: int


class Generations:
    """Reads, compares and repairs generations."""

    def __init__(self, placement: Placement, rollback_detector: RollbackDetector) -> None:
        self._placement = placement
        self._rollback_detector = rollback_detector
        self.healed: list[Disagreement] = []
        """The repairs of this process, the newest last; at most a thousand."""
        self.carried: frozenset[str] = frozenset()
        """The steps that stay pending for an erased record. See `Outbox.register`."""

    async def by_store(self, partition: Partition) -> dict[Store, int]:
        """Return the partition's generation in each store; a split store counts as one.

        Raises:
            StoreError: A store does not answer.
        """
        stores = self._placement.topology.stores
        return {store: await self.of(store, partition) for store in stores}

    async def highest(self, partition: Partition) -> int:
        """Return the highest generation of the partition in any store that answers.

        The generations of the records in the stores count too: a store that has
        forgotten the partition, or was replaced, accepts records of a generation above
        its own.

        Raises:
            StoreError: The archive does not answer.
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
        """Return the highest generation of any record of the partition in a store.

        The result is `highest` if no record is above it.
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
        """Return the operation record of the erasure that raised it to this generation.

        The result is None once the erasure is forgotten.
        """
        row = await self._placement.read_one(
            "erase.find", self._placement.topology.archive, OPERATIONS, operation_key(partition, generation)
        )
        return row if isinstance(row, Record) else None

    async def lives_on(self, record: Record, home: Store) -> bool:
        """Return whether a record lives on after another store refused its generation.

        If it does, its store has been brought up to the others. The result is false if
        an erasure of its scope is under way, or erased the record.
        """
        ended, since = await self._level(record.partition, home)
        return ended and (since is None or record.version >= micros(since))

    async def level(self, partition: Partition) -> bool:
        """Bring every store that is behind up to the others.

        Does nothing while an erasure is under way. Returns whether the stores are level
        now.
        """
        return (await self._level(partition))[0]

    async def are_level(self, partition: Partition) -> bool:
        """Return whether every home store has the same generation of a partition.

        An erasure that is under way counts as level: the stores will agree once it has
        ended.
        """
        generations = {await self.of(store, partition) for store in self._placement.topology.homes}
        if len(generations) == 1:
            return True
        operation = await self.operation(partition, max(generations))
        return operation is not None and operation.fields["kind"] == UNDER_WAY

    async def _level(self, partition: Partition, home: Store | None = None) -> tuple[bool, datetime | None]:
        """Bring up the stores that are behind, and complete a broken repair of `home`.

        Does nothing and returns false while an erasure is under way, unless the erasure
        spares later records. The second result is a moment: the records that live on in
        `home` are not older than it.
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
            back = await self._rollback_detector.of(store)
            await self._bring_up(
                store, partition, by_store[store], highest, operation, back, told=not under_way
            )
            of_home = _later(since, back) if store is home else of_home
        return True, of_home

    async def level_if_behind(
        self, store: Store, partition: Partition, generation: int, operation: Record
    ) -> bool:
        """Bring a store up to an erasure if it is behind. Returns whether it was.

        A store is behind if it was restored or replaced since the erasure.
        """
        was = await self.of(store, partition)
        if was < generation:
            await self._bring_up(store, partition, was, generation, operation)
        return was < generation

    async def bring_up_the_rest(self, store: Store, partition: Partition) -> None:
        """Complete a repair that was interrupted after it had raised the store.

        Records from after the last erasure live on, and no others.
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
        """Bring one store up to the others.

        Its records count as newer than the erasure and stay, with two exceptions.
        Records that the erasure does not spare are erased, and so are records from
        before the store was rolled `back`. Afterwards the store is level. `told`
        decides whether a warning says that it was behind.
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
            restamped += await self._restamp(store, partition, to)  # records that were born in between
        if (
            told and was < to and restamped + erased
        ):  # a store without records may only have forgotten the scope
            log.warning(
                "store '%s' was behind in one scope (generation %d of %d), as after a restore. It is up to"
                " date now",
                store.name,
                was,
                to,
            )
            self.healed = [*self.healed[-999:], Disagreement(store.name, was, to, restamped, erased)]

    async def _erase_older(
        self, store: Store, partition: Partition, generation: int, before: datetime, version: int
    ) -> int:
        """Erase the records that are older than `before` and return their number.

        If a session is erased, all its messages are, later ones too. The session's own
        record is erased last: a repeat of an interrupted call finds by it that the rest
        of its messages belong to an erased session.

        `version` is the version of the erasure. If the erasure is forgotten, it is a
        version that is not later, so that records born again after the erasure win over
        the tombstones.
        """
        behind, erased = Lt("generation", generation), 0
        older: Condition = And((behind, Lt("version", micros(before))))
        kinds = self._placement.kinds.within(partition)
        heads = [kind for kind in kinds if kind.heads]
        for kind in heads:
            if await self._has_any(store, kind.collection, partition, older):
                older = behind  # the rest cannot be read without it
        for kind in (*(kind for kind in kinds if not kind.heads), *heads):
            query = Query(kind.collection, within(partition), filter=older, roles=frozenset(Role))
            erased += await self._placement.delete_matching(
                "erase.delete", store, query, version, self.carried
            )
        return erased

    async def _has_any(
        self, store: Store, collection: Collection, partition: Partition, asked: Condition
    ) -> bool:
        """Return whether a store has a record of the partition that matches.

        A damaged record matches, as it does in a deletion.
        """
        query = Query(
            collection, within(partition), asked, limit=1, roles=frozenset(Role), select=frozenset()
        )
        page = await self._placement.page("erase.find", store, query)
        return bool(page.heads or page.corrupt)

    async def spare(self, store: Store, partition: Partition, generation: int, since: int) -> None:
        """Give the generation to all records that are not older than version `since`.

        Records of every role get it. Repeats if another writer was faster.
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
        """Give the generation to the matching records and keep their versions.

        The version stays so that the time of storage stays true. Returns how many
        records have the generation now, and for how many another writer was faster.
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
    """Return the moment that no record which survives the erasure is older than.

    An erasure with a limit in its body uses that limit. The limit may be ahead of the
    clock by which the erasure began.
    """
    before: int | None = operation.body.get(BEFORE)
    return operation.created_at if before is None else moment(before)


def _later(since: datetime | None, back: RolledBackStore | None) -> datetime | None:
    """Return the later of two moments, each of which may be unknown.

    They are the moment of an erasure, and the last moment before a store was rolled
    back.
    """
    until = None if back is None else moment(back.seen)
    return max((when for when in (since, until) if when is not None), default=None)


def operation_key(partition: Partition, generation: int) -> Key:
    """Return the key of an erasure's operation record.

    It is the same for every process that raises the partition to that generation.
    """
    return Key(
        SYSTEM_TENANT,
        ids.derived_id(
            SYSTEM_TENANT, OPERATIONS_SCOPE, "erase", partition.tenant, partition.scope, str(generation)
        ),
    )
