"""Lying stores of a fourth reading: about what outcomes tell, what stays of what stood
there, and names that are joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from memory.adapters.in_memory import InMemoryStore
from memory.adapters.in_memory.state import State
from memory.ports.query import (
    Query,
)
from memory.ports.record import Key, Mark, Partition, PendingStep, Record, Standing, Tombstone
from memory.ports.writes import Absent, Annotate, Delete, Outcome, Purge, Put, RaiseGeneration, Status, Write
from tests.contract.faulty.registry import PerWrite, faulty_adapter
from tests.contract.harnesses import InMemoryServer

SETTLED = "test_steps_are_told_apart_by_their_ids_alone"
TOLD = "test_every_kind_of_write_that_conflicts_tells_what_stands_there_and_leaves_it"
CARRIED = "test_every_kind_of_write_that_is_carried_out_tells_its_version_generation_and_number"
LATE = "test_what_is_rejected_for_its_generation_tells_the_version_that_stands_there_and_nothing_of_it"
BARE = "test_nothing_of_what_stood_there_is_left_in_what_comes_after"


# -- steps -----------------------------------------------------------------------------


class _Settles(PerWrite):
    """Takes owed steps away in its own manner."""

    def without(self, owed: tuple[PendingStep, ...], settled: tuple[str, ...]) -> tuple[PendingStep, ...]:
        raise NotImplementedError

    def lie(self, write: Write) -> Outcome:
        if not isinstance(write, Annotate) or not write.settle:
            return super().lie(write)
        before = self.state.fetch_stored(write.collection.name, write.key)
        outcome = super().lie(write)
        after = self.state.fetch_stored(write.collection.name, write.key)
        if outcome.applied and before is not None and after is not None:
            self.state.place(
                write.collection.name, write.key, replace(after, owed=self.without(before.owed, write.settle))
            )
        return outcome


@faulty_adapter(SETTLED)
class SettlesEveryStepOfTheName(_Settles):
    def without(self, owed: tuple[PendingStep, ...], settled: tuple[str, ...]) -> tuple[PendingStep, ...]:
        names = {step.step for step in owed if step.id in settled}
        return tuple(step for step in owed if step.step not in names)


@faulty_adapter(SETTLED)
class SettlesStepsWhoseIdsReadAlike(_Settles):
    def without(self, owed: tuple[PendingStep, ...], settled: tuple[str, ...]) -> tuple[PendingStep, ...]:
        alike = {step_id.strip().casefold() for step_id in settled}
        return tuple(step for step in owed if step.id.strip().casefold() not in alike)


@faulty_adapter(SETTLED)
class MakesStepsDistinctWhenOneIsSettled(_Settles):
    def without(self, owed: tuple[PendingStep, ...], settled: tuple[str, ...]) -> tuple[PendingStep, ...]:
        distinct = {repr((step.step, step.data)): step for step in reversed(owed) if step.id not in settled}
        return tuple(step for step in owed if step in distinct.values())


# -- what outcomes tell ----------------------------------------------------------------


@faulty_adapter(TOLD)
class SaysNothingOfATombstoneUnderACreation(PerWrite):
    def lie(self, write: Write) -> Outcome:
        outcome = super().lie(write)
        absent = isinstance(write, Put) and isinstance(write.when, Absent)
        over = absent and outcome.status is Status.CONFLICT and isinstance(outcome.stored, Tombstone)
        return Outcome(Status.CONFLICT) if over else outcome


@faulty_adapter(TOLD)
class TellsAConflictsVersionOnly(PerWrite):
    def lie(self, write: Write) -> Outcome:
        outcome = super().lie(write)
        return (
            replace(outcome, stored=None)
            if isinstance(write, Purge | Annotate) and not outcome.applied
            else outcome
        )


@faulty_adapter(TOLD)
class TellsAGenerationWithAConflict(PerWrite):
    def lie(self, write: Write) -> Outcome:
        outcome = super().lie(write)
        if (
            isinstance(write, Put)
            and outcome.status is Status.CONFLICT
            and isinstance(outcome.stored, Record)
        ):
            return replace(outcome, generation=outcome.stored.generation)
        return outcome


@faulty_adapter(CARRIED)
class TellsThePartitionsGenerationOfARecordThatBringsItsOwn(PerWrite):
    def lie(self, write: Write) -> Outcome:
        outcome = super().lie(write)
        if isinstance(write, Put) and outcome.applied:
            return replace(outcome, generation=self.state.generation(write.record.partition))
        return outcome


@faulty_adapter(CARRIED)
class TellsTheVersionOfWhatItPurged(PerWrite):
    def lie(self, write: Write) -> Outcome:
        outcome = super().lie(write)
        return replace(outcome, version=write.at) if isinstance(write, Purge) and outcome.applied else outcome


@faulty_adapter(LATE)
class TellsNoVersionOfWhatItRejects(PerWrite):
    def lie(self, write: Write) -> Outcome:
        outcome = super().lie(write)
        return replace(outcome, version=None) if outcome.status is Status.REJECTED else outcome


@faulty_adapter("test_one_key_in_several_collections_is_answered_for_each")
class AnswersByKeyAlone(InMemoryStore):
    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        outcomes = await super()._apply(writes, together)
        first: dict[Key, int] = {}
        for n, write in enumerate(writes):
            if not isinstance(write, RaiseGeneration):
                first.setdefault(write.key, n)
        wrote = [None if isinstance(w, RaiseGeneration) else w.collection.name for w in writes]
        at = [
            n if isinstance(w, RaiseGeneration) or wrote[first[w.key]] == wrote[n] else first[w.key]
            for n, w in enumerate(writes)
        ]
        return [outcomes[n] for n in at]


# -- what stays of what stood there ----------------------------------------------------


@faulty_adapter(BARE)
class KeepsWhatATombstoneOwed(PerWrite):
    def lie(self, write: Write) -> Outcome:
        before = self.state.fetch_stored(write.collection.name, write.key) if isinstance(write, Put) else None
        outcome = super().lie(write)
        if (
            isinstance(write, Put)
            and outcome.applied
            and isinstance(before, Tombstone)
            and not write.record.owed
        ):
            after = self.state.fetch_stored(write.collection.name, write.key)
            assert after is not None
            self.state.place(write.collection.name, write.key, replace(after, owed=before.owed))
        return outcome


@faulty_adapter(BARE)
class KeepsTheEndOfAnEarlierTombstone(PerWrite):
    """`SET discard_at = coalesce(new, old)`."""

    def lie(self, write: Write) -> Outcome:
        before = (
            None
            if isinstance(write, RaiseGeneration)
            else self.state.fetch_stored(write.collection.name, write.key)
        )
        outcome = super().lie(write)
        if (
            isinstance(write, Delete)
            and outcome.applied
            and isinstance(before, Tombstone | Mark)
            and write.discard_at is None
        ):
            after = self.state.fetch_stored(write.collection.name, write.key)
            assert isinstance(after, Tombstone)
            self.state.place(write.collection.name, write.key, replace(after, discard_at=before.discard_at))
        return outcome


@faulty_adapter(BARE)
class RemembersAccessesOfWhatWasPurged(PerWrite):
    """They are counted in a table of their own, by key."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._counted: dict[tuple[str, Key], int] = {}

    def lie(self, write: Write) -> Outcome:
        outcome = super().lie(write)
        if isinstance(write, Put) and outcome.applied:
            at, counted = (write.collection.name, write.key), write.record.accesses
            self._counted[at] = max(counted, self._counted.get(at, 0))
            stands = self.state.fetch_stored(*at)
            assert isinstance(stands, Record)
            self.state.place(*at, replace(stands, accesses=self._counted[at]))
        return outcome


class _Heals(PerWrite):
    """What is written over damage goes another way than what is written over something
    sound.
    """

    def healed(self, new: Standing) -> Standing:
        return new

    def lie(self, write: Write) -> Outcome:
        damaged = not isinstance(write, RaiseGeneration) and self.state.is_damaged(
            write.collection.name, write.key
        )
        outcome = super().lie(write)
        if damaged and outcome.applied and not isinstance(write, RaiseGeneration):
            after = self.state.fetch_stored(write.collection.name, write.key)
            assert after is not None
            self.state.place(write.collection.name, write.key, self.healed(after))
        return outcome


@faulty_adapter("test_a_new_put_heals", InMemoryServer)
class HealsWithoutBookkeeping(_Heals):
    def healed(self, new: Standing) -> Standing:
        return replace(new, accesses=0, accessed_at=None, previous=None) if isinstance(new, Record) else new


@faulty_adapter("test_a_delete_heals", InMemoryServer)
class BuriesDamageForGood(_Heals):
    def healed(self, new: Standing) -> Standing:
        return replace(new, discard_at=None) if isinstance(new, Tombstone) else new


@faulty_adapter("test_a_delete_heals", InMemoryServer)
class BuriesDamageWithoutWhatIsOwed(_Heals):
    def healed(self, new: Standing) -> Standing:
        return replace(new, owed=()) if isinstance(new, Tombstone) else new


@faulty_adapter("test_erasure_reaches_a_corrupt_record_of_the_asked_partitions_and_no_other", InMemoryServer)
class ErasesDamageForGood(InMemoryStore):
    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        _, corrupt = self._find_matches(query)
        erased = await super()._delete_matching(query, version, discard_at, carry)
        for key in corrupt:
            stands = self.state.fetch_stored(query.collection.name, key)
            assert isinstance(stands, Tombstone)
            self.state.place(query.collection.name, key, replace(stands, discard_at=None))
        return erased


# -- names that are joined -------------------------------------------------------------


class _JoinedGenerations(State):
    def generation(self, partition: Partition) -> int:
        joined = f"{partition.tenant}|{partition.scope}"
        return max((g for p, g in self.generations.items() if f"{p.tenant}|{p.scope}" == joined), default=0)


@faulty_adapter("test_every_partition_has_a_generation_of_its_own")
class KeepsGenerationsUnderJoinedNames(InMemoryStore):
    def __init__(self, *args: Any, state: State | None = None, **more: Any) -> None:
        super().__init__(*args, state=state or _JoinedGenerations(), **more)


class _ForgetsTwins(State):
    def forget_partition(self, partition: Partition) -> None:
        for twin in [p for p in self.generations if p.tenant + p.scope == partition.tenant + partition.scope]:
            super().forget_partition(twin)


@faulty_adapter("test_forgetting_partitions_leaves_every_twin")
class ForgetsPartitionsUnderJoinedNames(InMemoryStore):
    def __init__(self, *args: Any, state: State | None = None, **more: Any) -> None:
        super().__init__(*args, state=state or _ForgetsTwins(), **more)


class _ForgetsCases(State):
    def forget_partition(self, partition: Partition) -> None:
        for twin in [
            p
            for p in self.generations
            if p.scope.lower() == partition.scope.lower() and p.tenant == partition.tenant
        ]:
            super().forget_partition(twin)


@faulty_adapter("test_forgetting_partitions_leaves_every_twin")
class ForgetsPartitionsWhateverTheirCase(InMemoryStore):
    def __init__(self, *args: Any, state: State | None = None, **more: Any) -> None:
        super().__init__(*args, state=state or _ForgetsCases(), **more)
