"""Moves of records to a later tier, in four conditional and repeatable steps.

1. copy: put the record into the target if it is newer, with the flag ARRIVING 2.
verify: read the copy back and compare it 3. release: the source drops the record at
exactly that version and leaves a mark. This changes the record's home 4. arrive: clear
the flag, then let the mark expire

If the record is updated or deleted meanwhile, the release conflicts. The move then
starts again, or its copy is removed. If source and target are the same store, a move is
one conditional write.

Many records take each step together, in one call of the store. Each passes the same
states under the same conditions as alone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from memory.domain.errors import InvalidInput, StoreError, StoreUnavailable
from memory.orchestrator.storage.cache import Cache
from memory.orchestrator.storage.collections import DIGEST, MODEL
from memory.orchestrator.storage.generations import Generations
from memory.orchestrator.storage.outbox import (
    Outbox,
    OutboxRecord,
    StepLifetime,
    arrival,
    in_the_way,
    replicas,
)
from memory.orchestrator.storage.placement import LocatedRecord, Placement, rejection_error
from memory.orchestrator.storage.topology import refuse_away
from memory.policies.routing import TIERS, is_later_tier
from memory.ports.collections import Collection
from memory.ports.record import Key, Mark, Record, Role, Stored, Tombstone
from memory.ports.store import Store
from memory.ports.writes import Annotate, AtVersion, Newer, Outcome, Purge, Put, Release, Status

log = logging.getLogger(__name__)

REFUSALS_REMEMBERED = 1_000

MOST_AT_ONCE = 200
MOST_BYTES_AT_ONCE = 16 * 2**20
"""The most records, and the most bytes, that take a step together.

All of them are in memory at once.
"""


class MoveResult(StrEnum):
    MOVED = "moved"
    ALREADY = "already"  # It is in that tier or a later one.
    GONE = "gone"  # There is no record of this key.
    POSTPONED = "postponed"  # A step is pending, or the target has a tombstone of an earlier life.
    REFUSED = "refused"  # The target does not accept this record; see `refusals`.


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one attempt, or the error that prevented it.

    A `result` of None means: look again and start over.
    """

    result: MoveResult | StoreError | None


AGAIN = Step(None)
Steps: TypeAlias = dict[Key, Step]


class TierMover:
    """Moves records between tiers."""

    def __init__(self, placement: Placement, outbox: Outbox, cache: Cache, generations: Generations) -> None:
        self._placement = placement
        self._outbox = outbox
        self._cache = cache
        self._generations = generations
        self.refusals: dict[Key, str] = {}
        """Why a target refused a record in this process's last attempt to move it.

        Only the last thousand refusals are kept.
        """

    async def move(
        self, collection: Collection, key: Key, to: str, away: set[str] | None = None
    ) -> MoveResult:
        """Move one record to a later tier.

        It is safe to repeat, to run concurrently, and to interrupt. See `move_many`.
        """
        result = (await self.move_many(collection, [key], to, away))[key]
        if isinstance(result, StoreError):
            raise result
        return result

    async def move_many(
        self, collection: Collection, keys: Sequence[Key], to: str, away: set[str] | None = None
    ) -> dict[Key, MoveResult | StoreError]:
        """Move these records to a later tier, in portions that fit in memory.

        A failure affects only the result of its own record. See `portions`.

        Args:
            away: The names of stores that did not answer. They are not called again,
                and others are added. Pass one set to several calls.
        """
        if to not in TIERS:
            raise InvalidInput("tier", f"got {to!r}. Use one of {', '.join(TIERS)}")
        away = set() if away is None else away
        came: dict[Key, MoveResult | StoreError] = {}
        distinct = list(dict.fromkeys(keys))
        for start in range(0, len(distinct), MOST_AT_ONCE):
            left = distinct[start : start + MOST_AT_ONCE]
            for _ in range(self._placement.settings.attempts):
                if not left:
                    break
                steps = await self._attempt(collection, left, to, away)
                came |= {key: step.result for key, step in steps.items() if step.result is not None}
                left = [key for key in left if key not in came]
        return {key: came.get(key, MoveResult.POSTPONED) for key in distinct}

    async def _attempt(self, collection: Collection, keys: Sequence[Key], to: str, away: set[str]) -> Steps:
        """Prepare each record alone; then move all records of one store together."""
        steps: Steps = {}
        ready: dict[Store, list[Record]] = {}
        for located in await self._placement.locate_many(collection, keys, partial=True):
            try:
                waits = await self._prepare(collection, located, to, away)
            except StoreError as error:
                waits = _note_failure(error, away)
            if waits is not None:
                steps[located.key] = waits
            elif (home := located.home()) is not None:
                ready.setdefault(home[1], []).append(home[0])
        for source, records in ready.items():
            for portion in portions(records):
                steps |= await self._together(collection, portion, source, to, away)
        return steps

    async def _prepare(
        self, collection: Collection, located: LocatedRecord, to: str, away: set[str]
    ) -> Step | None:
        """Finish pending work that blocks a move; None if the record can move."""
        if (error := located.corrupt or located.unknown) is not None:
            raise error
        home = located.home()
        if home is None:
            return Step(MoveResult.GONE)
        record, source = home
        if not is_later_tier(record.tier, to):
            return Step(MoveResult.ALREADY)
        refuse_away(self._placement.topology.home(to), away)
        if located.mark is not None and located.marked_in is not None and located.mark.owed:
            await self._outbox.finish(
                OutboxRecord(collection, located.marked_in, located.mark), away
            )  # an earlier move has not arrived yet
            if record.role is Role.ARRIVING:
                return AGAIN
        if record.owed:
            left = await self._outbox.finish(OutboxRecord(collection, source, record), away)
            return Step(MoveResult.POSTPONED) if left else AGAIN
        return None

    async def _together(
        self, collection: Collection, records: Sequence[Record], source: Store, to: str, away: set[str]
    ) -> Steps:
        """Move records that have one home.

        If the store answers with an error, each record is tried alone, because one of
        them may be the cause.
        """
        target = self._placement.topology.home(to)
        try:
            await self._cache.invalidate(collection, *[record.key for record in records])
            if target is source:
                return await self._relabel(collection, records, source, to, away)
            return await self._carry(collection, records, source, target, to, away)
        except StoreError as error:
            if isinstance(error, StoreUnavailable) or len(records) == 1:
                return dict.fromkeys([record.key for record in records], _note_failure(error, away))
        steps: Steps = {}
        for record in records:
            steps |= await self._together(collection, [record], source, to, away)
        return steps

    async def _relabel(
        self, collection: Collection, records: Sequence[Record], store: Store, to: str, away: set[str]
    ) -> Steps:
        """Change the tier within one store.

        The version stays the same, so that times of storage stay correct.
        """
        moved = [
            replace(record, tier=to, owed=replicas(self._placement, collection, store, to))
            for record in records
        ]
        # Moves only go to later tiers: another mover may have been faster.
        puts = [
            Put(collection, m, AtVersion(record.version, Role.HOME, record.tier))
            for m, record in zip(moved, records, strict=True)
        ]
        outcomes = await self._placement.write("move.relabel", store, *puts)
        there = [m for m, outcome in zip(moved, outcomes, strict=True) if outcome.applied]
        if there:
            await self._cache.invalidate(
                collection, *[m.key for m in there]
            )  # a concurrent reader may have cached the earlier tier
            await self._outbox.finish_all([OutboxRecord(collection, store, m) for m in there], away)
        return dict.fromkeys([m.key for m in moved], AGAIN) | dict.fromkeys(
            [m.key for m in there], Step(MoveResult.MOVED)
        )

    async def _carry(
        self,
        collection: Collection,
        records: Sequence[Record],
        source: Store,
        target: Store,
        to: str,
        away: set[str],
    ) -> Steps:
        owed = replicas(self._placement, collection, target, to)
        copies = {record.key: replace(record, role=Role.ARRIVING, tier=to, owed=owed) for record in records}
        steps = await self._copy(collection, copies, source, target, to)
        arriving = [record for record in records if record.key not in steps]
        if not arriving:
            return steps
        found = await self._placement.read(
            "move.verify", target, collection, [record.key for record in arriving]
        )
        sound = [record for record, copy in zip(arriving, found, strict=True) if _has_come(copy, record)]
        released = await self._release(collection, sound, copies, source, target, away) if sound else {}
        return dict.fromkeys([record.key for record in arriving], AGAIN) | steps | released

    async def _copy(
        self, collection: Collection, copies: Mapping[Key, Record], source: Store, target: Store, to: str
    ) -> Steps:
        """Step 1: copy the records; return the results of those without a copy.

        For all others, the target has an arriving copy of this version.
        """
        puts = [
            Put(collection, copy, Newer(), settles=self._outbox.completed_steps(StepLifetime.EDITED))
            for copy in copies.values()
        ]
        outcomes = await self._placement.write("move.copy", target, *puts)
        steps: Steps = {}
        flags: list[Annotate] = []
        for copy, outcome in zip(copies.values(), outcomes, strict=True):
            met = await self._handle_outcome(collection, copy, source, target, to, outcome)
            if isinstance(met, Annotate):
                flags.append(met)
            elif met is not None:
                steps[copy.key] = met
        if flags:
            adopted = await self._placement.write("move.adopt", target, *flags)
            steps |= {
                flag.key: AGAIN for flag, outcome in zip(flags, adopted, strict=True) if not outcome.applied
            }
        return steps

    async def _handle_outcome(
        self, collection: Collection, copy: Record, source: Store, target: Store, to: str, outcome: Outcome
    ) -> Step | Annotate | None:
        """Return how to go on after a copy was put.

        None means that the copy is there. An `Annotate` makes the existing record the
        copy.
        """
        if outcome.applied:
            self.refusals.pop(copy.key, None)
            return None
        if (error := rejection_error(target, outcome)) is not None:
            log.warning("%s cannot move to '%s': %s", copy.key.id, to, error)
            self.refusals[copy.key] = str(error)
            if len(self.refusals) > REFUSALS_REMEMBERED:
                del self.refusals[next(iter(self.refusals))]
            return Step(MoveResult.REFUSED)
        if (
            outcome.status is Status.REJECTED
        ):  # the scope was erased, or the source is behind; the next attempt finds out
            await self._generations.lives_on(copy, source)
            return AGAIN
        if (older := in_the_way(outcome, copy.version)) is not None:
            return (
                Step(MoveResult.POSTPONED)
                if await self._outbox.finish(OutboxRecord(collection, target, older))
                else AGAIN
            )
        return await self._meet(collection, copy, to, outcome)

    async def _meet(
        self, collection: Collection, copy: Record, to: str, outcome: Outcome
    ) -> Step | Annotate | None:
        """Return how to go on if the target already has a record."""
        stands = outcome.stored
        if isinstance(stands, Record) and stands.version == copy.version:
            if stands.role is Role.ARRIVING:
                return self._take_over(collection, stands, copy)
            if stands.role is Role.REPLICA:
                return Annotate(
                    collection,
                    copy.key,
                    at=copy.version,
                    role_is=Role.REPLICA,
                    role=Role.ARRIVING,
                    tier=to,
                    expires_at=copy.expires_at,
                )
            return AGAIN  # it has arrived; the next attempt finds it
        if isinstance(stands, Tombstone | Mark):
            return await self._still_there(collection, copy)
        return AGAIN

    def _take_over(self, collection: Collection, there: Record, copy: Record) -> Annotate | None:
        """Take over the copy of another mover.

        It may have been meant for an earlier tier in the same store, and reads may have
        moved the expiry of the entry since.
        """
        if not is_later_tier(there.tier, copy.tier) and _lasts_as_long(there, copy):
            return None
        return Annotate(
            collection,
            copy.key,
            at=copy.version,
            role_is=Role.ARRIVING,
            tier=max(there.tier, copy.tier, key=TIERS.index),
            expires_at=copy.expires_at,
        )

    async def _still_there(self, collection: Collection, copy: Record) -> Step:
        """Decide on a move whose target has a tombstone of an earlier life.

        The move waits until the tombstone is purged, unless the record is gone by now.
        """
        located = await self._placement.locate(collection, copy.key)
        alive = located.record is not None and located.record.version == copy.version
        return Step(MoveResult.POSTPONED) if alive else AGAIN

    async def _release(
        self,
        collection: Collection,
        records: Sequence[Record],
        copies: Mapping[Key, Record],
        source: Store,
        target: Store,
        away: set[str],
    ) -> Steps:
        """Steps 3 and 4: release the sources, and deliver from the new homes.

        After a source's release, failures are left to maintenance.
        """
        marks = [
            Mark(r.key, r.scope, r.version, to, (arrival(to, holds_place=_is_derived(r)),))
            for r in records
            for to in [copies[r.key].tier]
        ]
        releases = [
            Release(collection, mark.key, at=mark.version, to=mark.to, owed=mark.owed) for mark in marks
        ]
        outcomes = await self._placement.write("move.release", source, *releases)
        steps: Steps = {}
        moved: list[Mark] = []
        for mark, outcome in zip(marks, outcomes, strict=True):
            steps[mark.key] = AGAIN
            if outcome.applied:
                steps[mark.key] = Step(MoveResult.MOVED)
                moved.append(mark)
            elif not isinstance(outcome.stored, Record):
                await self.drop_arriving(collection, mark.key, mark.version, target, outcome)
        if moved:
            await self._cache.invalidate(collection, *[mark.key for mark in moved])
            left = await self._outbox.finish_all(
                [OutboxRecord(collection, source, mark) for mark in moved], away
            )
            homes = [
                replace(copies[mark.key], role=Role.HOME)
                for mark, owed in zip(moved, left, strict=True)
                if not owed
            ]
            await self._outbox.finish_all([OutboxRecord(collection, target, home) for home in homes], away)
        return steps

    async def drop_arriving(
        self, collection: Collection, key: Key, version: int, target: Store, released: Outcome | None = None
    ) -> bool:
        """Remove an arriving copy whose source has neither the record nor a mark.

        Returns true if it was removed. No tombstone is left: the record may still exist
        in another tier, and a tombstone would hide it.
        """
        if released is not None and isinstance(released.stored, Mark):
            return False  # another mover released it: the copy is the home
        forget = Purge(
            collection,
            key,
            at=version,
            role_is=Role.ARRIVING,
            settles=self._outbox.completed_steps(StepLifetime.EDITED),
        )
        return (await self._placement.write_one("move.abort", target, forget)).applied


def _is_derived(record: Record) -> bool:
    """Return whether the record's id is computed from a key or a source.

    A slow writer may then still put it where no record exists.
    """
    fields, body = record.fields, record.body
    return (
        any(fields.get(name) is not None for name in (DIGEST, "promoted_from_id"))
        or body.get("compacted_from_ids") is not None
    )


def portions(records: Sequence[Record]) -> Iterator[list[Record]]:
    """Yield the records in order, in portions that take a step together."""
    portion: list[Record] = []
    held = 0
    for record in records:
        size = sum(map(len, record.texts.values())) + len(record.vector or b"") + len(str(record.body))
        if portion and (len(portion) == MOST_AT_ONCE or held + size > MOST_BYTES_AT_ONCE):
            yield portion
            portion, held = [], 0
        portion.append(record)
        held += size
    if portion:
        yield portion


def _note_failure(error: StoreError, away: set[str]) -> Step:
    """Return the failure of a record's move; note a store that did not answer.

    The record stays in its tier.
    """
    if isinstance(error, StoreUnavailable):
        away.add(error.store)
    return Step(error)


def _has_come(copy: Stored | None, record: Record) -> bool:
    """Step 2: return whether the copy is arriving and has the same content.

    The vector of either may have been computed again meanwhile, and a read may have
    moved the expiry of the copy.
    """
    if not isinstance(copy, Record) or copy.role is not Role.ARRIVING or not _lasts_as_long(copy, record):
        return False
    copy = replace(copy, expires_at=record.expires_at)
    if (model := record.fields.get(MODEL)) != copy.fields.get(MODEL):
        copy = replace(copy, vector=record.vector, fields={**copy.fields, MODEL: model})
    return copy.same_content(record)


def _lasts_as_long(copy: Record, record: Record) -> bool:
    """Return whether a copy expires no earlier than the record of the same version."""
    if copy.expires_at is None or record.expires_at is None:
        return copy.expires_at is record.expires_at
    return copy.expires_at >= record.expires_at
