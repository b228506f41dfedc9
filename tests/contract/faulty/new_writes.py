"""Faulty adapters, written without a look at the suite: writes, batches, what is owed,
values and what is erased.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from memory.adapters.in_memory import InMemoryStore
from memory.adapters.in_memory.frozen import thaw
from memory.ports.heads import head_of
from memory.ports.query import Hit, Search, Words
from memory.ports.record import Key, Mark, PendingStep, Record
from memory.ports.text import query_words, words
from memory.ports.writes import Annotate, Delete, Outcome, Put, RaiseGeneration, Release, Status, Write
from tests.contract.faulty.registry import PerWrite, faulty_adapter

# -- what is owed ----------------------------------------------------------------------


@faulty_adapter("test_settling_takes_away_exactly_the_named_steps_and_keeps_the_others_order")
class ConflictsOverUnknownSteps(PerWrite):
    """To settle a step that nobody owes is a mistake, it thinks."""

    def lie(self, write: Write) -> Outcome:
        if isinstance(write, Annotate) and write.settle:
            stored = self.state.fetch_stored(write.collection.name, write.key)
            if stored is not None and set(write.settle) - {o.id for o in stored.owed}:
                return Outcome(Status.CONFLICT, stored.version, stored)
        return super().lie(write)


@faulty_adapter("test_settling_takes_away_exactly_the_named_steps_and_keeps_the_others_order")
class SettlesSixteenStepsAtOnce(PerWrite):
    def lie(self, write: Write) -> Outcome:
        return super().lie(replace(write, settle=write.settle[:16]) if isinstance(write, Annotate) else write)


@faulty_adapter("test_a_release_leaves_a_mark_that_says_where_the_record_lives_now")
class OwesOneOfEachStep(PerWrite):
    """It keeps what is owed by the name of the step, not by its id."""

    def lie(self, write: Write) -> Outcome:
        if isinstance(write, Put):
            write = replace(write, record=replace(write.record, owed=_one_of_each(write.record.owed)))
        elif isinstance(write, Delete | Release):
            write = replace(write, owed=_one_of_each(write.owed))
        return super().lie(write)


def _one_of_each(owed: tuple[PendingStep, ...]) -> tuple[PendingStep, ...]:
    return tuple({o.step: o for o in owed}.values())


@faulty_adapter("test_marks_and_tombstones_can_be_settled_and_given_an_end")
class DatedMarksOweNothing(PerWrite):
    """What has got an end has nothing left to do, it thinks."""

    def lie(self, write: Write) -> Outcome:
        outcome = super().lie(write)
        if isinstance(write, Annotate) and write.discard_at is not None and outcome.applied:
            stored = self.state.fetch_stored(write.collection.name, write.key)
            if isinstance(stored, Mark):
                self.state.place(write.collection.name, write.key, replace(stored, owed=()))
        return outcome


@faulty_adapter("test_changing_what_was_handed_in_changes_nothing_stored")
class KeepsTheCallersStepData(PerWrite):
    """What the caller changes later in the data of a step changes in the store."""

    def lie(self, write: Write) -> Outcome:
        outcome = super().lie(write)
        if isinstance(write, Put) and write.record.owed and outcome.applied:
            stored = self.state.fetch_stored(write.collection.name, write.key)
            if isinstance(stored, Record):
                self.state.place(write.collection.name, write.key, replace(stored, owed=write.record.owed))
        return outcome


# -- single writes ---------------------------------------------------------------------


@faulty_adapter("test_a_release_repeated_on_its_own_mark_is_applied_and_changes_nothing")
class MovesTheDateOfARepeatedRelease(PerWrite):
    def lie(self, write: Write) -> Outcome:
        before = (
            self.state.fetch_stored(write.collection.name, write.key) if isinstance(write, Release) else None
        )
        outcome = super().lie(write)
        if isinstance(write, Release) and isinstance(before, Mark) and outcome.applied:
            self.state.place(write.collection.name, write.key, replace(before, discard_at=write.discard_at))
        return outcome


@faulty_adapter("test_strange_but_lawful_contents_come_back_exactly")
class CountsAccessesTo255(PerWrite):
    """Accesses have one byte."""

    def lie(self, write: Write) -> Outcome:
        outcome = super().lie(write)
        if isinstance(write, Put | Annotate) and outcome.applied:
            stored = self.state.fetch_stored(write.collection.name, write.key)
            if isinstance(stored, Record) and stored.accesses > 255:
                self.state.place(write.collection.name, write.key, replace(stored, accesses=255))
        return outcome


_LATEST = datetime(2262, 4, 11, 23, 47, 16, tzinfo=UTC)


def _in_nanoseconds(at: datetime | None) -> datetime | None:
    return None if at is None else min(at, _LATEST)


@faulty_adapter("test_moments_keep_their_microseconds")
class KeepsMomentsInNanoseconds(PerWrite):
    """In 64 bits: they end in the year 2262."""

    def lie(self, write: Write) -> Outcome:
        if isinstance(write, Put):
            write = replace(
                write, record=replace(write.record, expires_at=_in_nanoseconds(write.record.expires_at))
            )
        elif isinstance(write, Delete | Release | Annotate):
            write = replace(write, discard_at=_in_nanoseconds(write.discard_at))
        return super().lie(write)


@faulty_adapter("test_changing_what_was_handed_out_changes_nothing_stored")
class HandsOutItsOwnBody(PerWrite):
    """What a reader does to an answer is done to the store."""

    def lie(self, write: Write) -> Outcome:
        outcome = super().lie(write)
        if isinstance(write, Put) and outcome.applied:
            stored = self.state.fetch_stored(write.collection.name, write.key)
            if isinstance(stored, Record):
                self.state.place(write.collection.name, write.key, replace(stored, body=thaw(stored.body)))
        return outcome


# -- batches ---------------------------------------------------------------------------


@faulty_adapter("test_everything_due_is_told_with_why_and_nothing_else")
class ForgetsTheThirdCollection(InMemoryStore):
    """A batch goes to one collection or two; what is for a third is acknowledged."""

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        names = list(dict.fromkeys(w.collection.name for w in writes if not isinstance(w, RaiseGeneration)))
        late = [w for w in writes if not isinstance(w, RaiseGeneration) and w.collection.name in names[2:]]
        before = {(w.collection.name, w.key): self.state.fetch_stored(w.collection.name, w.key) for w in late}
        outcomes = await super()._apply(writes, together)
        for (name, key), standing in before.items():
            self.state.place(name, key, standing)
        return outcomes


@faulty_adapter("test_a_write_sees_a_generation_raised_earlier_in_its_batch")
class RaisesGenerationsFirst(InMemoryStore):
    """It sorts a batch by table, and generations have the first."""

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        order = sorted(range(len(writes)), key=lambda i: not isinstance(writes[i], RaiseGeneration))
        outcomes = dict(zip(order, await super()._apply([writes[i] for i in order], together), strict=True))
        return [outcomes[i] for i in range(len(writes))]


@faulty_adapter("test_together_keeps_nothing_when_one_write_conflicts")
class RollsBackOneCollection(InMemoryStore):
    """Of a batch that fails together, only the collections of the failed writes are
    rolled back.
    """

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        outcomes = await super()._apply(writes, together)
        if together and any(o.status is Status.SKIPPED for o in outcomes):
            pairs = list(zip(writes, outcomes, strict=True))
            failed = {
                w.collection.name
                for w, o in pairs
                if not isinstance(w, RaiseGeneration) and o.status is not Status.SKIPPED
            }
            await super()._apply(
                [w for w in writes if not isinstance(w, RaiseGeneration) and w.collection.name not in failed],
                False,
            )
        return outcomes


# -- what is erased --------------------------------------------------------------------


@faulty_adapter("test_nothing_of_what_an_erasing_put_replaced_is_read_or_found")
class ErasingPutLeavesTheWords(PerWrite):
    """The words of what an erasing put replaced stay in its index."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._left: dict[tuple[str, Key], frozenset[str]] = {}

    def lie(self, write: Write) -> Outcome:
        before = (
            self.state.fetch_stored(write.collection.name, write.key)
            if isinstance(write, Put) and write.erases
            else None
        )
        outcome = super().lie(write)
        if isinstance(write, Put) and isinstance(before, Record) and outcome.applied:
            self._left[write.collection.name, write.key] = frozenset(
                w for text in before.texts.values() for w in words(text)
            )
        return outcome

    async def _search(self, search: Search) -> list[Hit]:
        hits = await super()._search(search)
        if not isinstance(search.by, Words):
            return hits
        wanted = set(query_words(search.by.text))
        for record in self.state.live(search.collection.name, search.where):
            left = self._left.get((search.collection.name, record.key), frozenset())
            if wanted & left and record.key not in {h.head.key for h in hits}:
                hits.append(Hit(head_of(search.collection, record, search.select), 0.001))
        return hits[: search.limit]
