"""Faulty adapters of a third round, of forty-five, that the contract let pass, and
their like.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar

from memory.adapters.in_memory import InMemoryStore
from memory.ports.collections import Collection
from memory.ports.query import Count, Everywhere, Page, Query, RowType
from memory.ports.record import Key, Partition, Record, Role, Stored
from memory.ports.writes import Annotate, Delete, Outcome, Purge, Put, RaiseGeneration, Status, Write
from tests.contract.faulty.registry import PerWrite, faulty_adapter
from tests.contract.harnesses import InMemoryServer

CUT_OFF = "test_a_call_that_is_cut_off_is_kept_whole_or_not_at_all"
DUE_ALONE = "test_one_thing_alone_is_told_whatever_it_is_due_for"
GENERATION_STAYS = "test_a_generation_stays_when_the_last_that_stood_in_its_partition_goes"
AFTER_A_DEATH = "test_everything_stands_after_the_death_of_a_durable_store_as_it_stood_before"


def _characters(record: Record) -> int:
    said = [dict(record.fields), dict(record.body), dict(record.texts)]
    return len(json.dumps(said, ensure_ascii=False, separators=(",", ":"), default=str)) + len(
        record.vector or b""
    )


class _CountsCharacters(InMemoryStore):
    """As LENGTH of a text column does."""

    async def _count(self, query: Query) -> Count:
        matching = [s for s in self._find_matches(query)[0] if isinstance(s, Record)]
        return Count(len(matching), sum(map(_characters, matching)))


@faulty_adapter("test_sizes_follow_every_kind_of_write")
class CountsCharacters(_CountsCharacters):
    pass


@faulty_adapter("test_sizes_follow_every_kind_of_write")
class ForeseesCharactersToo(_CountsCharacters):
    def counted_bytes(self, collection: Collection, record: Record) -> int:
        return _characters(record)


# -- annotations -----------------------------------------------------------------------


@faulty_adapter("test_an_annotation_keeps_all_other_bookkeeping")
class TakesAnAccessForAChange(PerWrite):
    """As a column that is set whenever its row is written."""

    def lie(self, write: Write) -> Outcome:
        outcome = super().lie(write)
        if isinstance(write, Annotate) and write.accessed_at is not None and outcome.applied:
            stands = self.state.fetch_stored(write.collection.name, write.key)
            if isinstance(stands, Record):
                later = max(stands.updated_at, write.accessed_at)
                self.state.place(write.collection.name, write.key, replace(stands, updated_at=later))
        return outcome


class _ListsByPuts(PerWrite):
    """Keeps a list of what may be due, which annotations are not told to."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._put: dict[tuple[str, Key], Record] = {}

    def lie(self, write: Write) -> Outcome:
        outcome = super().lie(write)
        if isinstance(write, Put) and outcome.applied:
            self._put[write.collection.name, write.key] = write.record
        return outcome

    def lists(self, query: Query, put: Record) -> bool:
        raise NotImplementedError

    async def _query(self, query: Query) -> Page:
        page = await super()._query(query)
        if not isinstance(query.where, Everywhere) or query.select is None or query.types != {RowType.RECORD}:
            return page
        return replace(
            page,
            records=tuple(
                r for r in page.records if self.lists(query, self._put[query.collection.name, r.key])
            ),
        )


@faulty_adapter(DUE_ALONE)
class ListsArrivalsByPuts(_ListsByPuts):
    def lists(self, query: Query, put: Record) -> bool:
        return query.filter is not None or put.role is Role.ARRIVING


@faulty_adapter(DUE_ALONE)
class ListsHomesByPuts(_ListsByPuts):
    def lists(self, query: Query, put: Record) -> bool:
        return Role.HOME not in query.roles or put.role in query.roles


# -- generations -----------------------------------------------------------------------


class _ForgetsWithTheLast(InMemoryStore):
    """The row of a partition goes with the last that stood in it, its generation too."""

    def forget(self, partition: Partition) -> None:
        if not any(live.get(partition) for live in self.state.by_partition.values()):
            self.state.generations.pop(partition, None)


class _ForgetsByWrite(_ForgetsWithTheLast, PerWrite):
    kind: ClassVar[type[Purge | Delete]]

    def lie(self, write: Write) -> Outcome:
        stands = (
            self.state.fetch_stored(write.collection.name, write.key)
            if isinstance(write, self.kind)
            else None
        )
        outcome = super().lie(write)
        if isinstance(stands, Record) and outcome.applied:
            self.forget(stands.partition)
        return outcome


@faulty_adapter(GENERATION_STAYS)
class PurgesTheGeneration(_ForgetsByWrite):
    kind = Purge


@faulty_adapter(GENERATION_STAYS)
class DeletesTheGeneration(_ForgetsByWrite):
    kind = Delete


@faulty_adapter(GENERATION_STAYS)
class ErasesTheGeneration(_ForgetsWithTheLast):
    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        partitions = {s.partition for s in self._find_matches(query)[0] if isinstance(s, Record)}
        count = await super()._delete_matching(query, version, discard_at, carry)
        for partition in partitions:
            self.forget(partition)
        return count


# -- what is put off -------------------------------------------------------------------


class _InPortions(InMemoryStore):
    portion: ClassVar[int]

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for start in range(0, len(writes), self.portion):
            outcomes += await super()._apply(writes[start : start + self.portion], together)
            await asyncio.sleep(0)
        return outcomes


@faulty_adapter(CUT_OFF)
class CommitsFiftyAtATime(_InPortions):
    portion = 50


@faulty_adapter(CUT_OFF)
class CommitsFiveHundredAtATime(_InPortions):
    portion = 500


class _WritesBehind(InMemoryStore):
    """Acknowledges a write of some kind at once, and carries it out with the next call;
    a death comes before that.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._waiting: list[Write] = []

    def waits(self, write: Write) -> bool:
        raise NotImplementedError

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        waiting, self._waiting = self._waiting, []
        await super()._apply(waiting, False)
        if len(writes) > 1 or not self.waits(writes[0]):
            return await super()._apply(writes, together)
        self._waiting = list(writes)
        return [Outcome(Status.APPLIED)]

    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        await self._apply([RaiseGeneration(Partition("", ""), 0)], False)
        return await super()._get(collection, keys)


@faulty_adapter(AFTER_A_DEATH, InMemoryServer)
class NotesAccessesBehind(_WritesBehind):
    def waits(self, write: Write) -> bool:
        return isinstance(write, Annotate) and write.accessed_at is not None


@faulty_adapter(AFTER_A_DEATH, InMemoryServer)
class SettlesBehind(_WritesBehind):
    def waits(self, write: Write) -> bool:
        return isinstance(write, Annotate) and write.settle != ()


@faulty_adapter("test_what_was_acknowledged_survives_the_death_of_a_durable_store", InMemoryServer)
class RaisesBehind(_WritesBehind):
    def waits(self, write: Write) -> bool:
        return isinstance(write, RaiseGeneration) and write.to != 0
