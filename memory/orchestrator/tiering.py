"""Moves: a record goes onward to a later tier, in four steps, each conditional and repeatable.

1. copy: put into the target when newer, flagged ARRIVING
2. verify: read it back and compare
3. release: the source lets go at exactly that version and leaves a mark. This is the moment the home changes
4. arrive: clear the flag, then let the mark expire

Updated or deleted meanwhile? The release conflicts, and the move begins again or its copy is removed. Where source and target share a store
a move is one conditional write.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from enum import StrEnum

from memory.domain.errors import InvalidInput, StoreUnavailable
from memory.orchestrator.cache import Cache
from memory.orchestrator.collections import DIGEST
from memory.orchestrator.generations import Generations
from memory.orchestrator.owed import ARRIVE, HOLDS_PLACE, REPLICATE, Debt, OwedWork
from memory.orchestrator.placement import Placement, refused
from memory.orchestrator.steps import step
from memory.orchestrator.topology import refuse_away
from memory.policies.routing import TIERS, is_onward
from memory.ports.collections import Collection
from memory.ports.record import Key, Mark, Owed, Record, Role, Tombstone
from memory.ports.store import Store
from memory.ports.writes import Annotate, AtVersion, Newer, Outcome, Purge, Put, Release, Status

log = logging.getLogger(__name__)

REFUSALS_REMEMBERED = 1_000


class MoveResult(StrEnum):
    MOVED = "moved"
    ALREADY = "already"  # it is in that tier or a later one
    GONE = "gone"  # nothing lives under this key
    POSTPONED = "postponed"  # it still owes a step, or a tombstone of an earlier life stands in the target
    REFUSED = "refused"  # the target does not take this record, whatever stands there; see `Tiering.refusals`


@dataclass(frozen=True, slots=True)
class Step:
    """What one attempt came to; None of `result` means: look again and start over."""

    result: MoveResult | None


AGAIN = Step(None)


class Tiering:
    """Carries out moves."""

    def __init__(self, placement: Placement, owed: OwedWork, cache: Cache, generations: Generations) -> None:
        self._placement = placement
        self._owed = owed
        self._cache = cache
        self._generations = generations
        self.refusals: dict[Key, str] = {}
        """Why a target refused a record when this process last tried to move it; the last thousand."""

    async def move(self, collection: Collection, key: Key, to: str, away: set[str] | None = None) -> MoveResult:
        """Move one record onward. Safe to repeat, to run twice at once, and to leave in the middle.

        Who moves many gives one `away` to all: the names of stores that did not answer, which are not asked again; it learns of more.
        """
        if to not in TIERS:
            raise InvalidInput("tier", f"must be one of {', '.join(TIERS)}")
        away = set() if away is None else away
        for _ in range(self._placement.settings.attempts):
            try:
                outcome = await self._attempt(collection, key, to, away)
            except StoreUnavailable as error:
                away.add(error.store)
                raise
            if outcome.result is not None:
                return outcome.result
        return MoveResult.POSTPONED

    async def _attempt(self, collection: Collection, key: Key, to: str, away: set[str]) -> Step:
        located = await self._placement.locate(collection, key)
        home = located.home()
        if home is None:
            return Step(MoveResult.GONE)
        record, source = home
        if not is_onward(record.tier, to):
            return Step(MoveResult.ALREADY)
        target = self._placement.topology.home(to)
        refuse_away(target, away)
        if located.mark is not None and located.marked_in is not None and located.mark.owed:
            await self._owed.finish(Debt(collection, located.marked_in, located.mark), away)  # an earlier move has yet to arrive
            if record.role is Role.ARRIVING:
                return AGAIN
        if record.owed:
            left = await self._owed.finish(Debt(collection, source, record), away)
            return Step(MoveResult.POSTPONED) if left else AGAIN
        await self._cache.invalidate(collection, key)
        if target is source:
            return await self._relabel(collection, record, source, to, away)
        return await self._carry(collection, record, source, target, to, away)

    async def _relabel(self, collection: Collection, record: Record, store: Store, to: str, away: set[str]) -> Step:
        """Within one store the tier is a field; the same version, so that what was stored when stays true."""
        moved = replace(record, tier=to, owed=owed_replicas(self._placement, collection, store, to))
        there = AtVersion(record.version, Role.HOME, record.tier)  # a mover to a later tier may have been faster: moves go onward only
        outcome = await self._placement.write_one("move.relabel", store, Put(collection, moved, there))
        if not outcome.applied:
            return AGAIN
        await self._cache.invalidate(collection, record.key)  # a reader in between may have filled it with the tier before
        await self._owed.try_finish(Debt(collection, store, moved), away)
        return Step(MoveResult.MOVED)

    async def _carry(self, collection: Collection, record: Record, source: Store, target: Store, to: str, away: set[str]) -> Step:
        copy = replace(record, role=Role.ARRIVING, tier=to, owed=owed_replicas(self._placement, collection, target, to))
        copied = await self._copy(collection, copy, source, target, to)
        if copied is not None:
            return copied
        with step("move.verify"):
            arrived = (await target.get(collection, [record.key]))[0]
        if not isinstance(arrived, Record) or arrived.role is not Role.ARRIVING or not arrived.same_content(record):
            return AGAIN
        return await self._release(collection, record, copy, source, target, away)

    async def _copy(self, collection: Collection, copy: Record, source: Store, target: Store, to: str) -> Step | None:
        """Step 1. None when an arriving copy of this version stands in the target."""
        outcome = await self._placement.write_one("move.copy", target, Put(collection, copy, Newer()))
        if outcome.applied:
            self.refusals.pop(copy.key, None)
            return None
        if (error := refused(target, outcome)) is not None:
            log.warning("%s cannot move to '%s': %s", copy.key.id, to, error)
            self.refusals[copy.key] = str(error)
            if len(self.refusals) > REFUSALS_REMEMBERED:
                del self.refusals[next(iter(self.refusals))]
            return Step(MoveResult.REFUSED)
        if outcome.status is Status.REJECTED:  # its scope was erased, or the source is behind: looking again will show it
            await self._generations.lives_on(copy, source)
            return AGAIN
        return await self._meet(collection, copy, target, to, outcome)

    async def _meet(self, collection: Collection, copy: Record, target: Store, to: str, outcome: Outcome) -> Step | None:
        """What to do about what already stands in the target."""
        stands = outcome.stored
        if isinstance(stands, Record) and stands.version == copy.version:
            if stands.role is Role.ARRIVING:
                return await self._take_over(collection, stands, target, to)
            if stands.role is Role.REPLICA:
                flag = Annotate(collection, copy.key, at=copy.version, role_is=Role.REPLICA, role=Role.ARRIVING, tier=to)
                adopted = await self._placement.write_one("move.adopt", target, flag)
                return None if adopted.applied else AGAIN
            return AGAIN  # it has arrived: looking again will show it
        if isinstance(stands, Tombstone | Mark):
            return await self._still_there(collection, copy)
        return AGAIN

    async def _take_over(self, collection: Collection, copy: Record, target: Store, to: str) -> Step | None:
        """Another mover brought the copy, perhaps for a tier that comes before this one in the same store."""
        if not is_onward(copy.tier, to):
            return None
        flag = Annotate(collection, copy.key, at=copy.version, role_is=Role.ARRIVING, tier=to)
        return None if (await self._placement.write_one("move.adopt", target, flag)).applied else AGAIN

    async def _still_there(self, collection: Collection, copy: Record) -> Step:
        """A grave from an earlier life stands in the target: the move waits until it is purged, or the record is gone by now."""
        located = await self._placement.locate(collection, copy.key)
        alive = located.record is not None and located.record.version == copy.version
        return Step(MoveResult.POSTPONED) if alive else AGAIN

    async def _release(self, collection: Collection, record: Record, copy: Record, source: Store, target: Store, away: set[str]) -> Step:
        """Steps 3 and 4; then what the copy owes from its new home."""
        to = copy.tier
        owed = (Owed(ARRIVE, {"to": to} | ({HOLDS_PLACE: True} if _is_derived(record) else {})),)
        release = Release(collection, record.key, at=record.version, to=to, owed=owed)
        outcome = await self._placement.write_one("move.release", source, release)
        if outcome.applied:
            await self._cache.invalidate(collection, record.key)
            mark = Mark(record.key, record.scope, record.version, to, owed)
            if await self._owed.try_finish(Debt(collection, source, mark), away):
                await self._owed.try_finish(Debt(collection, target, replace(copy, role=Role.HOME)), away)
            return Step(MoveResult.MOVED)
        if not isinstance(outcome.stored, Record):
            await self.drop_arriving(collection, record.key, record.version, target, outcome)
        return AGAIN

    async def drop_arriving(self, collection: Collection, key: Key, version: int, target: Store, released: Outcome | None = None) -> bool:
        """Remove an arriving copy whose source neither holds the record nor a mark; true when this was carried out.

        It leaves no tombstone: the record may live on in another tier, which a tombstone here would hide.
        """
        if released is not None and isinstance(released.stored, Mark):
            return False  # another mover released it: the copy is home
        forget = Purge(collection, key, at=version, role_is=Role.ARRIVING)
        return (await self._placement.write_one("move.abort", target, forget)).applied


def _is_derived(record: Record) -> bool:
    """Whether its id follows from a key or a source, so that a slow writer may yet put it where nothing stands."""
    fields, body = record.fields, record.body
    return any(fields.get(name) is not None for name in (DIGEST, "promoted_from_id")) or body.get("compacted_from_ids") is not None


def owed_replicas(placement: Placement, collection: Collection, home: Store, tier: str) -> tuple[Owed, ...]:
    """The replicas a record owes while `tier` is its home; one that would stand in the home's own store is delivered already."""
    tiers = [t for t in placement.kinds.of(collection).replicas(tier) if placement.topology.home(t) is not home]
    return tuple(Owed(REPLICATE, {"to": t}) for t in tiers)
