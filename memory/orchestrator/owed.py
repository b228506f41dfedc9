"""What remains to be done for a record: written with the record's first step, taken away when done, finished by whoever finds it.

Every step is repeatable and conditional on versions, so that the writer, a sweep and a second sweep may all carry it out.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeAlias

from memory.domain.errors import StoreError
from memory.orchestrator.placement import Placement
from memory.orchestrator.steps import step
from memory.orchestrator.versions import version_key
from memory.ports import codec
from memory.ports.collections import ENTRY_VERSIONS, RELATIONS, Collection
from memory.ports.query import Eq, Or, Query, Tenant
from memory.ports.record import Mark, Owed, Record, Role, Tombstone
from memory.ports.store import Store
from memory.ports.writes import Absent, Annotate, AtVersion, Delete, Newer, Put

log = logging.getLogger(__name__)

REPLICATE = "replicate"  # put a whole copy into a later tier
KEEP = "keep"  # store the version that an edit replaced
DELETE = "delete"  # delete other records, each at the version noted
UNPLACE = "unplace"  # leave tombstones in the later stores
UNKEEP = "unkeep"  # erase the kept versions of a deleted entry
UNRELATE = "unrelate"  # delete the relations of a deleted entry
ARRIVE = "arrive"  # clear the flag of a copy whose source has let go
ERASE = "erase"  # erase a scope in one store

HOLDS_PLACE = "holds_place"
"""Said by the debt of a mark under an id that another writer derives as well, from a key or a source."""

Holder: TypeAlias = Record | Mark | Tombstone


@dataclass(frozen=True, slots=True)
class Debt:
    """A holder that owes, where it stands."""

    collection: Collection
    store: Store
    holder: Holder


class OwedWork:
    """Carries out owed steps. `deleter` and `eraser` are given by the erasure module, which stands above this one."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._finishers: dict[str, Callable[[Debt, Owed], Awaitable[bool]]] = {
            REPLICATE: self._replicate,
            KEEP: self._keep,
            UNPLACE: self._unplace,
            UNKEEP: self._unkeep,
            UNRELATE: self._unrelate,
            ARRIVE: self._arrive,
        }

    def register(self, kind: str, finisher: Callable[[Debt, Owed], Awaitable[bool]]) -> None:
        """Who finishes this kind of step: true when done or no longer due, false to leave it for later."""
        self._finishers[kind] = finisher

    async def finish(self, debt: Debt) -> tuple[Owed, ...]:
        """Do what the holder owes and take it away; what could not be done stays owed and is returned."""
        done: list[Owed] = []
        for owed in debt.holder.owed:
            try:
                if await self._finishers[owed.kind](debt, owed):
                    done.append(owed)
            except StoreError as error:
                log.warning("%s of %s waits: %s", owed.kind, debt.holder.key.id, error)
        left = tuple(o for o in debt.holder.owed if o not in done)
        if done:
            await self._settle(debt, tuple(done), all_done=not left)
        return left

    async def try_finish(self, debt: Debt) -> None:
        """`finish` after an acknowledged write: a failure leaves the rest to maintenance and does not fail the write."""
        if debt.holder.owed:
            try:
                await self.finish(debt)
            except StoreError as error:
                log.warning("owed work of %s waits: %s", debt.holder.key.id, error)

    async def replicate_many(self, debts: Sequence[Debt]) -> None:
        """Deliver the replicas of fresh records in batches; whatever else they owe, and failures, are left to maintenance."""
        by_route: dict[tuple[int, str], list[tuple[Debt, Owed]]] = {}
        for debt in debts:
            for owed in debt.holder.owed:
                if owed.kind == REPLICATE:
                    by_route.setdefault((id(debt.store), owed.data["to"]), []).append((debt, owed))
        for (_, tier), group in by_route.items():
            target, source = self._placement.topology.home(tier), group[0][0].store
            try:
                puts = [self._replica(debt, owed) for debt, owed in group]
                outcomes = await self._placement.write("replica.deliver", target, *puts)
                settled = [
                    Annotate(debt.collection, debt.holder.key, at=debt.holder.version, settle=(owed,))
                    for (debt, owed), outcome in zip(group, outcomes, strict=True)
                    if outcome.applied
                ]
                if settled:
                    await self._placement.write("owed.settle", source, *settled)
            except StoreError as error:
                log.warning("%d replicas wait: %s", len(group), error)

    async def _settle(self, debt: Debt, done: tuple[Owed, ...], *, all_done: bool) -> None:
        discard_at = None
        if all_done and isinstance(debt.holder, Mark):
            discard_at = self._placement.now() + self._mark_life(debt.holder)
        elif all_done and isinstance(debt.holder, Tombstone):
            discard_at = self._placement.tombstone_until()
        settle = Annotate(debt.collection, debt.holder.key, at=debt.holder.version, settle=done, discard_at=discard_at)
        await self._placement.write("owed.settle", debt.store, settle)

    def _mark_life(self, mark: Mark) -> timedelta:
        """A mark that holds a place that others may yet write to is kept as long as a tombstone there would be."""
        settings = self._placement.settings
        return settings.tombstone_life if any(HOLDS_PLACE in o.data for o in mark.owed) else settings.mark_life

    # -- finishers ----------------------------------------------------------------------------------------------------

    def _replica(self, debt: Debt, owed: Owed) -> Put:
        assert isinstance(debt.holder, Record)  # noqa: S101 - only live records owe replicas
        return Put(debt.collection, replace(debt.holder, role=Role.REPLICA, tier=owed.data["to"], owed=()), Newer())

    async def _replicate(self, debt: Debt, owed: Owed) -> bool:
        if not isinstance(debt.holder, Record) or debt.holder.role is not Role.HOME:
            return False  # an arriving copy owes its replica only once it is home
        target = self._placement.topology.home(owed.data["to"])
        await self._placement.write_one("replica.deliver", target, self._replica(debt, owed))
        return True  # applied, or something newer stands there, or the scope was erased

    async def _keep(self, debt: Debt, owed: Owed) -> bool:
        kept = codec.record_from_json(ENTRY_VERSIONS, owed.data["record"])
        await self._placement.write_one("version.keep", self._placement.topology.archive, Put(ENTRY_VERSIONS, kept, Absent()))
        return True  # applied, or kept already, or erased meanwhile

    async def _unplace(self, debt: Debt, owed: Owed) -> bool:
        for store in self._placement.topology.later(debt.store):
            grave = Delete(
                debt.collection,
                debt.holder.key,
                version=debt.holder.version,
                when=Newer(),
                discard_at=self._placement.tombstone_until(),
            )
            await self._placement.write_one("delete.elsewhere", store, grave)
        return True

    async def _unkeep(self, debt: Debt, owed: Owed) -> bool:
        """Walk the chain of kept versions back; each gets a tombstone, also one that a slow writer has yet to bring."""
        archive = self._placement.topology.archive
        tenant, entry_id = debt.holder.key.tenant, debt.holder.key.id
        chain: list[int] = list(owed.data["versions"])
        while chain:
            version = chain.pop()
            key = version_key(tenant, entry_id, version)
            with step("version.walk"):
                row = (await archive.get(ENTRY_VERSIONS, [key]))[0]
            before = row.previous if isinstance(row, Record) else row.note.get("previous") if isinstance(row, Tombstone) else None
            if before is not None:
                chain.append(before)
            if isinstance(row, Tombstone):
                continue
            grave = Delete(
                ENTRY_VERSIONS,
                key,
                version=self._placement.next_version(version),
                when=Newer(),
                note={"previous": before},
                discard_at=self._placement.tombstone_until(),
            )
            await self._placement.write_one("version.erase", archive, grave)
        return True

    async def _unrelate(self, debt: Debt, owed: Owed) -> bool:
        archive, key = self._placement.topology.archive, debt.holder.key
        ends = Or((Eq("source_id", key.id), Eq("target_id", key.id)))
        with step("relation.find"):
            page = await archive.query(Query(RELATIONS, Tenant(key.tenant), filter=ends))
        graves = [
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
        if graves:
            await self._placement.write("relation.erase", archive, *graves)
        return True

    async def _arrive(self, debt: Debt, owed: Owed) -> bool:
        target = self._placement.topology.home(owed.data["to"])
        clear = Annotate(debt.collection, debt.holder.key, at=debt.holder.version, role_is=Role.ARRIVING, role=Role.HOME)
        outcome = await self._placement.write_one("move.arrive", target, clear)
        return outcome.applied or outcome.stored is not None  # home already, newer, moved on or deleted: all mean it arrived


def carried_over(record: Record) -> tuple[Owed, ...]:
    """What a record's next version still owes of this one's debts: all but replicas, which the new version brings itself."""
    return tuple(o for o in record.owed if o.kind != REPLICATE)
