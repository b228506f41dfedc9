"""Faulty adapters of a fourth round: the note of the format, what a failed call leaves
behind, collections that are not declared, moments and numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from memory.adapters.in_memory import InMemoryStore
from memory.adapters.in_memory.state import State
from memory.ports.collections import Collection
from memory.ports.query import (
    And,
    Eq,
    Gt,
    In,
    Lt,
    Not,
    Page,
    Partitions,
    Query,
)
from memory.ports.query_evaluation import value_of
from memory.ports.record import Key, Partition, Record, Role, Stored
from memory.ports.writes import Annotate, Outcome, Put, Status, Write
from tests.contract.faulty.registry import PerWrite, faulty_adapter
from tests.contract.harnesses import InMemoryServer

NEWER = "test_a_store_of_a_newer_format_is_refused_until_it_can_be_read"
SWAPPED = "test_a_note_is_swapped_only_for_the_one_that_is_there"
AFTER_A_FAILURE = "test_what_follows_a_failed_call_survives_a_death"
UNDECLARED = "test_no_call_touches_collections_that_a_store_is_not_opened_with"
BESIDE_A_DELETION = "test_what_is_changed_beside_a_deletion_is_judged_as_it_is_then"
NUMBERS = "test_numbers_of_bookkeeping_keep_all_64_bits"

# -- the note of the format ------------------------------------------------------------


class _NotedState(State):
    note: str | None = None


class _Notes(InMemoryStore):
    """Keeps the note of its format beside its data."""

    notes_format: ClassVar[bool] = True

    def __init__(self, *args: Any, state: State | None = None, **kwargs: Any) -> None:
        super().__init__(*args, state=_NotedState() if state is None else state, **kwargs)

    @property
    def noted(self) -> _NotedState:
        assert isinstance(self.state, _NotedState)
        return self.state

    async def _open(self, collections: Sequence[Collection]) -> None:
        self._take_format(self.noted.note)

    async def _read_format(self) -> str | None:
        return self.noted.note

    async def _swap_format(self, before: str | None, after: str) -> bool:
        if self.noted.note != before:
            return False
        self.noted.note = after
        return True


@faulty_adapter(NEWER, InMemoryServer)
class TakesNoFormat(_Notes):
    """Does not tell at open what it found: a note stands, and nobody compares it."""

    async def _open(self, collections: Sequence[Collection]) -> None:
        pass


@faulty_adapter(NEWER, InMemoryServer)
class LosesItsNoteWhenClosed(_Notes):
    async def _close(self) -> None:
        self.noted.note = None


@faulty_adapter(AFTER_A_FAILURE, InMemoryServer)
class LosesItsNoteInADeath(_Notes):
    def restart(self, keep: bool) -> None:
        super().restart(keep)
        self.noted.note = None


@faulty_adapter(SWAPPED, InMemoryServer)
class NotesWhateverWasThere(_Notes):
    async def _swap_format(self, before: str | None, after: str) -> bool:
        self.noted.note = after
        return True


@faulty_adapter(SWAPPED, InMemoryServer)
class NotesAnewOverANote(_Notes):
    """As INSERT OR REPLACE does where there should be none."""

    async def _swap_format(self, before: str | None, after: str) -> bool:
        return await super()._swap_format(self.noted.note if before is None else before, after)


@faulty_adapter(SWAPPED, InMemoryServer)
class NotesTheNumberAlone(_Notes):
    async def _swap_format(self, before: str | None, after: str) -> bool:
        return await super()._swap_format(before, after.split()[0])


@faulty_adapter("test_of_many_that_swap_a_note_at_once_one_does", InMemoryServer)
class LooksThenNotes(_Notes):
    async def _swap_format(self, before: str | None, after: str) -> bool:
        if self.noted.note != before:
            return False
        await asyncio.sleep(0)
        self.noted.note = after
        return True


@faulty_adapter("test_of_many_that_swap_a_note_at_once_one_does", InMemoryServer)
class RemembersItsNote(_Notes):
    """Reads the note once, at open."""

    async def _read_format(self) -> str | None:
        return self._format or self.noted.note


# -- calls that fail, and collections that are not declared ----------------------------


class _LeavesATransactionOpen(InMemoryStore):
    """After a failure, what is written stays in memory until the next good close."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._open_since: Any = None

    def fails(self, outcomes: Sequence[Outcome], together: bool) -> bool:
        raise NotImplementedError

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        outcomes = await super()._apply(writes, together)
        if self._open_since is None and self.fails(outcomes, together):
            self._open_since = self.state.snapshot()
        return outcomes

    async def _close(self) -> None:
        self._open_since = None

    def restart(self, keep: bool) -> None:
        super().restart(keep)
        if self._open_since is not None:
            self.state.restore(self._open_since)


@faulty_adapter(AFTER_A_FAILURE, InMemoryServer)
class StaysInAFailedBatch(_LeavesATransactionOpen):
    def fails(self, outcomes: Sequence[Outcome], together: bool) -> bool:
        return together and any(o.status is Status.SKIPPED for o in outcomes)


@faulty_adapter(AFTER_A_FAILURE, InMemoryServer)
class StaysInARejectedWrite(_LeavesATransactionOpen):
    def fails(self, outcomes: Sequence[Outcome], together: bool) -> bool:
        return any(o.status is Status.REJECTED for o in outcomes)


@faulty_adapter(UNDECLARED)
class WritesBackWhatIsDeclared(InMemoryStore):
    """It keeps everything in one file, and reads the declared collections of it."""

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        outcomes = await super()._apply(writes, together)
        for name in ("samples", "more_samples", "plain"):
            if name not in self._collections:
                for standing in list(self.state.everything(name)):
                    self.state.place(name, standing.key, None)
        return outcomes


@faulty_adapter(UNDECLARED)
class CountsDeclaredRecordsForIdle(InMemoryStore):
    async def _forget_partitions(self, idle: Sequence[tuple[Partition, int]]) -> int:
        forgotten = 0
        for partition, generation in idle:
            names = list(self._collections)
            there = any(list(self.state.live(name, Partitions((partition,)))) for name in names)
            if not there and self.state.generation(partition) == generation:
                self.state.generations.pop(partition, None)
                forgotten += 1
        return forgotten


@faulty_adapter(BESIDE_A_DELETION)
class DeletesWhatMatchedBefore(InMemoryStore):
    """Reads what matches, and then replaces it, whatever has come meanwhile."""

    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        name = query.collection.name
        matched = {s.key: s for s in self._find_matches(query)[0] if isinstance(s, Record)}
        for _ in range(8):
            await asyncio.sleep(0)
        for key, stored in matched.items():
            self.state.place(name, key, stored)
        only = In("id", tuple(key.id for key in matched))
        parts = [only] if query.filter is None else [only, query.filter]
        asked = replace(query, filter=And(tuple(parts)))
        return await super()._delete_matching(asked, version, discard_at, carry)


# -- moments -------------------------------------------------------------------------


@faulty_adapter("test_moments_around_a_whole_second_compare_as_moments")
class ComparesMomentsAsTexts(InMemoryStore):
    """As texts of ISO 8601 with a Z: a whole second has no fraction, and sorts last."""

    async def _query(self, query: Query) -> Page:
        part = query.filter
        if not isinstance(part, Lt | Gt) or not isinstance(part.value, datetime):
            return await super()._query(query)
        asked, less = _iso(part.value), isinstance(part, Lt)
        page = await super()._query(replace(query, filter=Not(Eq(part.field, part.value))))
        records = [r for r in page.records if isinstance(r, Record)]
        return Page(tuple([r for r in records if (_iso(value_of(r, part.field)) < asked) == less]))


def _iso(at: Any) -> str:
    return str(at.replace(tzinfo=None).isoformat()) + "Z"


@faulty_adapter("test_moments_far_from_now_keep_their_microseconds_wherever_they_stand")
class KeepsSecondsAsDoubles(PerWrite):
    def lie(self, write: Write) -> Outcome:
        if isinstance(write, Put):
            at = write.record.created_at
            rounded = _EPOCH + timedelta(seconds=(at - _EPOCH) / timedelta(seconds=1))
            write = replace(write, record=replace(write.record, created_at=rounded))
        return super().lie(write)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@faulty_adapter("test_a_cached_copy_is_kept_to_the_end_that_an_annotation_moved", InMemoryServer)
class ForgetsByTheEndOfThePut(PerWrite):
    """Told the engine when the copy ends as it was put, and never again."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ends: dict[tuple[str, Key], datetime | None] = {}

    def lie(self, write: Write) -> Outcome:
        outcome = super().lie(write)
        if isinstance(write, Put) and outcome.applied:
            self._ends[write.collection.name, write.key] = write.record.expires_at
        return outcome

    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        for (name, key), end in self._ends.items():
            stored = self.state.fetch_stored(name, key)
            cached = isinstance(stored, Record) and stored.role is Role.CACHED and not stored.owed
            if cached and end is not None and end < datetime.now(UTC):
                self.state.place(name, key, None)
        return await super()._get(collection, keys)


# -- numbers ---------------------------------------------------------------------------


@faulty_adapter(NUMBERS)
class CountsAccessesIn32Bits(PerWrite):
    def lie(self, write: Write) -> Outcome:
        if isinstance(write, Put):
            write = replace(write, record=replace(write.record, accesses=write.record.accesses & 0x7FFFFFFF))
        return super().lie(write)


@faulty_adapter(NUMBERS)
class RemembersThePreviousVersionAsADouble(PerWrite):
    def lie(self, write: Write) -> Outcome:
        if isinstance(write, Put) and write.record.previous is not None:
            previous = int(float(write.record.previous))
            write = replace(write, record=replace(write.record, previous=previous))
        return super().lie(write)


@faulty_adapter(NUMBERS)
class AddsAccessesAsDoubles(PerWrite):
    def lie(self, write: Write) -> Outcome:
        outcome = super().lie(write)
        stored = (
            self.state.fetch_stored(write.collection.name, write.key) if isinstance(write, Annotate) else None
        )
        if isinstance(write, Annotate) and isinstance(stored, Record) and write.accessed_at is not None:
            accesses = int(float(stored.accesses))
            self.state.place(write.collection.name, write.key, replace(stored, accesses=accesses))
        return outcome
