"""Lying stores: what writes leave, of bookkeeping above all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from memory.adapters.in_memory import InMemoryStore
from memory.ports.query import Query
from memory.ports.record import (
    Partition,
    PendingStep,
    Record,
    Standing,
    Tombstone,
    pack_vector,
    unpack_vector,
)
from memory.ports.writes import (
    Absent,
    Annotate,
    AtVersion,
    Delete,
    Newer,
    Outcome,
    Purge,
    Put,
    Release,
    Status,
    Write,
)
from tests.contract.faulty.registry import PerWrite, faulty_adapter
from tests.contract.harnesses import InMemoryServer


@faulty_adapter("test_the_longest_batches_are_carried_out_in_order_and_together_as_a_whole")
class DeletesLastInLongBatches(InMemoryStore):
    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        if together or len(writes) <= 1_000:
            return await super()._apply(writes, together)
        order = sorted(range(len(writes)), key=lambda n: isinstance(writes[n], Delete))
        outcomes = dict(zip(order, await super()._apply([writes[n] for n in order], together), strict=True))
        return [outcomes[n] for n in range(len(writes))]


@faulty_adapter("test_the_longest_batches_are_carried_out_in_order_and_together_as_a_whole")
class KeepsLongBatchesInPortions(InMemoryStore):
    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        portions = [writes[n : n + 500] for n in range(0, len(writes), 500)] if together else [writes]
        return [
            outcome
            for portion in portions
            for outcome in await super(KeepsLongBatchesInPortions, self)._apply(portion, together)
        ]


@faulty_adapter(
    "test_a_generation_another_client_raised_binds_one_that_does_nothing_but_create", InMemoryServer
)
class CreatesUnderTheGenerationItKnew(InMemoryStore):
    """Any other put looks the generation up."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._remembered: dict[Partition, int] = {}

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        places = {w.record.partition for w in writes if isinstance(w, Put) and isinstance(w.when, Absent)}
        if not places or not all(isinstance(w, Put) and isinstance(w.when, Absent) for w in writes):
            self._remembered.clear()
            return await super()._apply(writes, together)
        current = dict(self.state.generations)
        self._remembered = {place: self.state.generation(place) for place in places} | self._remembered
        self.state.generations |= self._remembered
        try:
            return await super()._apply(writes, together)
        finally:
            self.state.generations.clear()
            self.state.generations |= current


@faulty_adapter("test_json_is_the_same_text_after_an_annotation")
class WritesStepsBackWithoutEmptyLists(PerWrite):
    """As a script in Lua does."""

    def lie(self, write: Write) -> Outcome:
        outcome = super().lie(write)
        stands = (
            self.state.fetch_stored(write.collection.name, write.key)
            if isinstance(write, Annotate) and write.settle
            else None
        )
        if isinstance(write, Annotate) and stands is not None:
            owed = tuple(
                PendingStep(step.id, step.step, _without_empty_lists(step.data)) for step in stands.owed
            )
            self.state.place(write.collection.name, write.key, replace(stands, owed=owed))
        return outcome


def _without_empty_lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_empty_lists(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_without_empty_lists(v) for v in value] or {}
    return value


@faulty_adapter("test_json_is_the_same_text_after_an_annotation")
class WritesNotesBackThroughDoubles(PerWrite):
    def lie(self, write: Write) -> Outcome:
        outcome = super().lie(write)
        stands = (
            self.state.fetch_stored(write.collection.name, write.key) if isinstance(write, Annotate) else None
        )
        if isinstance(write, Annotate) and isinstance(stands, Tombstone):
            note = {k: int(float(v)) if type(v) is int else v for k, v in stands.note.items()}
            self.state.place(write.collection.name, write.key, replace(stands, note=note))
        return outcome


@faulty_adapter("test_every_text_comes_back_unchanged_in_bookkeeping_too")
class CutsNamesOfStepsOfReleases(PerWrite):
    """At 64 characters."""

    def lie(self, write: Write) -> Outcome:
        if isinstance(write, Release):
            write = replace(
                write, owed=tuple(PendingStep(step.id, step.step[:64], step.data) for step in write.owed)
            )
        return super().lie(write)


@faulty_adapter("test_every_text_comes_back_unchanged_in_bookkeeping_too")
class TrimsWhereMarksPoint(PerWrite):
    """As a CHAR column does."""

    def lie(self, write: Write) -> Outcome:
        return super().lie(replace(write, to=write.to.rstrip(" ")) if isinstance(write, Release) else write)


@faulty_adapter("test_every_text_comes_back_unchanged_in_bookkeeping_too")
class TakesTheEmptyTierForNone(PerWrite):
    def lie(self, write: Write) -> Outcome:
        return super().lie(replace(write, tier=write.tier or None) if isinstance(write, Annotate) else write)


@faulty_adapter("test_a_tier_in_a_condition_asks_for_exactly_that_tier")
class AsksForNoTierByTheEmptyOne(PerWrite):
    def lie(self, write: Write) -> Outcome:
        if isinstance(write, Put) and isinstance(write.when, AtVersion):
            write = replace(write, when=replace(write.when, tier=write.when.tier or None))
        return super().lie(write)


@faulty_adapter("test_each_recorded_access_counts_one")
class TakesOnlyLaterAccesses(PerWrite):
    """As GREATEST does."""

    def lie(self, write: Write) -> Outcome:
        stands = (
            self.state.fetch_stored(write.collection.name, write.key) if isinstance(write, Annotate) else None
        )
        if (
            isinstance(write, Annotate)
            and write.accessed_at
            and isinstance(stands, Record)
            and stands.accessed_at
        ):
            write = replace(write, accessed_at=max(write.accessed_at, stands.accessed_at))
        return super().lie(write)


@faulty_adapter("test_a_put_replaces_the_whole_record")
class KeepsTheAccessOfWhatItReplaces(PerWrite):
    """As COALESCE does."""

    def lie(self, write: Write) -> Outcome:
        stands = self.state.fetch_stored(write.collection.name, write.key) if isinstance(write, Put) else None
        if isinstance(write, Put) and isinstance(stands, Record) and write.record.accessed_at is None:
            write = replace(write, record=replace(write.record, accessed_at=stands.accessed_at))
        return super().lie(write)


@faulty_adapter("test_strange_but_lawful_contents_come_back_exactly")
class LosesTheSignOfNoughtInVectors(PerWrite):
    def lie(self, write: Write) -> Outcome:
        if isinstance(write, Put) and write.record.vector:
            write = replace(
                write,
                record=replace(
                    write.record, vector=pack_vector([v + 0.0 for v in unpack_vector(write.record.vector)])
                ),
            )
        return super().lie(write)


@faulty_adapter("test_together_tells_every_write_that_is_in_the_way")
class LooksNoFurtherThanTheFirstConflict(InMemoryStore):
    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        outcomes = await super()._apply(writes, together)
        first = next((n for n, o in enumerate(outcomes) if o.status is Status.CONFLICT), len(outcomes))
        return (
            [o if n <= first else Outcome(Status.SKIPPED) for n, o in enumerate(outcomes)]
            if together
            else outcomes
        )


@faulty_adapter("test_a_deletion_that_is_not_newer_is_refused_over_damage_as_such_a_put_is", InMemoryServer)
class DeletesWhateverIsDamaged(PerWrite):
    def lie(self, write: Write) -> Outcome:
        if (
            isinstance(write, Delete)
            and isinstance(write.when, Newer)
            and self.state.is_damaged(write.collection.name, write.key)
        ):
            self.state.place(write.collection.name, write.key, None)
        return super().lie(write)


@faulty_adapter("test_accesses_told_at_once_are_all_counted")
class ReadsTheCountAndWritesItBack(InMemoryStore):
    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        write = writes[0]
        if not isinstance(write, Annotate) or write.accessed_at is None:
            return await super()._apply(writes, together)
        read = self.state.fetch_stored(write.collection.name, write.key)
        await asyncio.sleep(0)
        outcomes = await super()._apply(writes, together)
        if outcomes[0].applied and isinstance(read, Record):
            now = self.state.fetch_stored(write.collection.name, write.key)
            assert isinstance(now, Record)
            self.state.place(write.collection.name, write.key, replace(now, accesses=read.accesses + 1))
        return outcomes


OWES = "test_what_owes_gives_way_only_to_who_carries_it_on_or_settles_it"


class _Overwrites(PerWrite):
    """Asks what is owed in its own manner."""

    def overlooks(self, write: Put | Delete | Release | Purge, stands: Standing) -> bool:
        raise NotImplementedError

    def lie(self, write: Write) -> Outcome:
        if isinstance(write, Put | Delete | Release | Purge):
            stands = self.state.fetch_stored(write.collection.name, write.key)
            if stands is not None and stands.owed and self.overlooks(write, stands):
                write = replace(write, settles=frozenset(step.step for step in stands.owed))
        return super().lie(write)


@faulty_adapter(OWES)
class OverwritesWhatTombstonesOwe(_Overwrites):
    def overlooks(self, write: Put | Delete | Release | Purge, stands: Standing) -> bool:
        return isinstance(stands, Tombstone)


@faulty_adapter(OWES)
class TellsStepsApartByTheirNamesAlone(_Overwrites):
    """A step is carried on, to it, where the write owes one of the same name."""

    def overlooks(self, write: Put | Delete | Release | Purge, stands: Standing) -> bool:
        owed = write.record.owed if isinstance(write, Put) else () if isinstance(write, Purge) else write.owed
        return {step.step for step in stands.owed} <= {step.step for step in owed} | write.settles


@faulty_adapter(OWES)
class SettlesNothingWithAWrite(PerWrite):
    def lie(self, write: Write) -> Outcome:
        return super().lie(
            replace(write, settles=frozenset())
            if isinstance(write, Put | Delete | Release | Purge)
            else write
        )


@faulty_adapter(OWES)
class SettlesByIdsWithAWrite(_Overwrites):
    def overlooks(self, write: Put | Delete | Release | Purge, stands: Standing) -> bool:
        return {step.id for step in stands.owed} <= write.settles


@faulty_adapter("test_tombstones_go_on_owing_the_steps_that_are_carried_and_nothing_else")
class CarriesNothing(InMemoryStore):
    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        return await super()._delete_matching(query, version, discard_at, frozenset())


@faulty_adapter("test_tombstones_go_on_owing_the_steps_that_are_carried_and_nothing_else")
class CarriesEverything(InMemoryStore):
    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        steps = {
            step.step for standing in self.state.everything(query.collection.name) for step in standing.owed
        }
        return await super()._delete_matching(query, version, discard_at, frozenset(steps))


@faulty_adapter(
    "test_every_part_of_a_records_content_and_what_it_owes_count_towards_its_size", InMemoryServer
)
class CountsNothingOfWhatIsOwed(InMemoryStore):
    def _record_refusal(self, record: Record) -> str:
        return super()._record_refusal(replace(record, owed=()))
