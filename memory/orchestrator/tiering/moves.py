"""Moves: records go onward to a later tier, in four steps, each conditional and
repeatable.

1. copy: put into the target when newer, flagged ARRIVING
2. verify: read it back and compare
3. release: the source lets go at exactly that version and leaves a mark. This is the
   moment the home changes
4. arrive: clear the flag, then let the mark expire

Updated or deleted meanwhile? The release conflicts, and the move begins again or its
copy is removed. Where source and target share a store a move is one conditional write.

Many records take each step together, in one call of the store's: each passes the same
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
from memory.orchestrator.storage.steps import step
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
"""How many records take a step together, and how much they hold: all of it is in
memory.
"""


class MoveResult(StrEnum):
    MOVED = "moved"
    ALREADY = "already"  # it is in that tier or a later one
    GONE = "gone"  # nothing lives under this key
    POSTPONED = "postponed"  # it still owes a step, or a tombstone of an earlier life stands in the target
    REFUSED = (
        "refused"  # the target does not take this record, whatever stands there; see `TierMover.refusals`
    )


@dataclass(frozen=True, slots=True)
class Step:
    """What one attempt came to, or why it could not be made; None of `result` means:
    look again and start over.
    """

    result: MoveResult | StoreError | None


AGAIN = Step(None)
Steps: TypeAlias = dict[Key, Step]


class TierMover:
    """Carries out moves."""

    def __init__(self, placement: Placement, outbox: Outbox, cache: Cache, generations: Generations) -> None:
        self._placement = placement
        self._outbox = outbox
        self._cache = cache
        self._generations = generations
        self.refusals: dict[Key, str] = {}
        """Why a target refused a record when this process last tried to move it; the
        last thousand.
        """

    async def move(
        self, collection: Collection, key: Key, to: str, away: set[str] | None = None
    ) -> MoveResult:
        """Move one record onward. Safe to repeat, to run twice at once, and to leave in
        the middle. See `move_many`.
        """
        result = (await self.move_many(collection, [key], to, away))[key]
        if isinstance(result, StoreError):
            raise result
        return result

    async def move_many(
        self, collection: Collection, keys: Sequence[Key], to: str, away: set[str] | None = None
    ) -> dict[Key, MoveResult | StoreError]:
        """Move these records onward, as many at once as may be in memory (see
        `portions`). What goes wrong with one is said of that one.

        Who moves more gives one `away` to all: the names of stores that did not answer,
        which are not asked again; it learns of more.
        """
        if to not in TIERS:
            raise InvalidInput("tier", f"must be one of {', '.join(TIERS)}")
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
        """Each record for itself as far as the move; then all from one store together."""
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
        """What is to be done before a record can move. None when it can."""
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
            )  # an earlier move has yet to arrive
            if record.role is Role.ARRIVING:
                return AGAIN
        if record.owed:
            left = await self._outbox.finish(OutboxRecord(collection, source, record), away)
            return Step(MoveResult.POSTPONED) if left else AGAIN
        return None

    async def _together(
        self, collection: Collection, records: Sequence[Record], source: Store, to: str, away: set[str]
    ) -> Steps:
        """Move records that have one home. Where the store fails otherwise than by not
        answering, each is tried alone: it may be one's fault.
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
        """Within one store the tier is a field; the same version, so that what was
        stored when stays true.
        """
        moved = [
            replace(record, tier=to, owed=replicas(self._placement, collection, store, to))
            for record in records
        ]
        # A mover to a later tier may have been faster: moves go onward only.
        puts = [
            Put(collection, m, AtVersion(record.version, Role.HOME, record.tier))
            for m, record in zip(moved, records, strict=True)
        ]
        outcomes = await self._placement.write("move.relabel", store, *puts)
        there = [m for m, outcome in zip(moved, outcomes, strict=True) if outcome.applied]
        if there:
            await self._cache.invalidate(
                collection, *[m.key for m in there]
            )  # a reader in between may have filled it with the tier before
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
        with step("move.verify"):
            found = await target.get(collection, [record.key for record in arriving])
        sound = [record for record, copy in zip(arriving, found, strict=True) if _has_come(copy, record)]
        released = await self._release(collection, sound, copies, source, target, away) if sound else {}
        return dict.fromkeys([record.key for record in arriving], AGAIN) | steps | released

    async def _copy(
        self, collection: Collection, copies: Mapping[Key, Record], source: Store, target: Store, to: str
    ) -> Steps:
        """Step 1. What of it cannot go on; of all others an arriving copy of this
        version stands in the target.
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
        """What came of putting a copy: None when it stands there, or how what stands
        there becomes it.
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
        ):  # its scope was erased, or the source is behind: looking again will show it
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
        """What to do about what already stands in the target."""
        stands = outcome.stored
        if isinstance(stands, Record) and stands.version == copy.version:
            if stands.role is Role.ARRIVING:
                return self._take_over(collection, stands, to)
            if stands.role is Role.REPLICA:
                return Annotate(
                    collection, copy.key, at=copy.version, role_is=Role.REPLICA, role=Role.ARRIVING, tier=to
                )
            return AGAIN  # it has arrived: looking again will show it
        if isinstance(stands, Tombstone | Mark):
            return await self._still_there(collection, copy)
        return AGAIN

    def _take_over(self, collection: Collection, copy: Record, to: str) -> Annotate | None:
        """Another mover brought the copy, perhaps for a tier that comes before this one
        in the same store.
        """
        if not is_later_tier(copy.tier, to):
            return None
        return Annotate(collection, copy.key, at=copy.version, role_is=Role.ARRIVING, tier=to)

    async def _still_there(self, collection: Collection, copy: Record) -> Step:
        """A tombstone of an earlier life stands in the target: the move waits until it
        is purged, or the record is gone by now.
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
        """Steps 3 and 4; then what the copies owe from their new home. Once a source
        has let go, what fails is left to maintenance.
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
        """Remove an arriving copy whose source neither holds the record nor a mark;
        true when this was carried out.

        It leaves no tombstone: the record may live on in another tier, which a
        tombstone here would hide.
        """
        if released is not None and isinstance(released.stored, Mark):
            return False  # another mover released it: the copy is home
        forget = Purge(
            collection,
            key,
            at=version,
            role_is=Role.ARRIVING,
            settles=self._outbox.completed_steps(StepLifetime.EDITED),
        )
        return (await self._placement.write_one("move.abort", target, forget)).applied


def _is_derived(record: Record) -> bool:
    """Whether its id follows from a key or a source, so that a slow writer may yet put
    it where nothing stands.
    """
    fields, body = record.fields, record.body
    return (
        any(fields.get(name) is not None for name in (DIGEST, "promoted_from_id"))
        or body.get("compacted_from_ids") is not None
    )


def portions(records: Sequence[Record]) -> Iterator[list[Record]]:
    """The records in order, as many together as take a step together."""
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
    """A record whose move failed stays where it is; a store that did not answer is not
    asked again.
    """
    if isinstance(error, StoreUnavailable):
        away.add(error.store)
    return Step(error)


def _has_come(copy: Stored | None, record: Record) -> bool:
    """Step 2: whether what was read back is an arriving copy that says the same. A
    vector may have been made anew meanwhile, of either.
    """
    if not isinstance(copy, Record) or copy.role is not Role.ARRIVING:
        return False
    if (model := record.fields.get(MODEL)) != copy.fields.get(MODEL):
        copy = replace(copy, vector=record.vector, fields={**copy.fields, MODEL: model})
    return copy.same_content(record)
