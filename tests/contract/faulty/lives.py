"""Lying stores: what is forgotten, and what is kept while a store is closed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from memory.adapters.in_memory import InMemoryStore
from memory.ports.collections import Collection
from memory.ports.query import Hit, Query, Search, Tenant
from memory.ports.record import Key, Mark, Partition, Record, Role, Stored, Tombstone
from memory.ports.writes import Annotate, Outcome, Put, RaiseGeneration, Write
from tests.contract.faulty.registry import PerWrite, faulty_adapter
from tests.contract.harnesses import InMemoryServer


@faulty_adapter("test_nothing_works_before_open_and_after_close[AnswersNothingWhileClosed-get of nothing]")
class AnswersNothingWhileClosed(InMemoryStore):
    async def get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        return await super().get(collection, keys) if keys else []


@faulty_adapter("test_nothing_works_before_open_and_after_close[ForgetsWhileClosed-forget_partitions]")
class ForgetsWhileClosed(InMemoryStore):
    async def forget_partitions(self, idle: Sequence[tuple[Partition, int]]) -> int:
        return await super().forget_partitions(idle) if self._opened else 0


class _HasEndsOfItsOwn(PerWrite):
    """Has the engine forget: what ends when is told to it, and goes then, whatever
    became of it.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ends: dict[tuple[str, Key], datetime] = {}

    def _stands(self, write: Write) -> Any:
        return (
            None
            if isinstance(write, RaiseGeneration)
            else self.state.fetch_stored(write.collection.name, write.key)
        )

    def _forget(self) -> None:
        super()._forget()
        for (name, key), end in list(self._ends.items()):
            if end < datetime.now(UTC):
                del self._ends[name, key]
                self.state.place(name, key, None)


@faulty_adapter("test_what_an_annotation_made_of_it_is_what_is_forgotten_or_not", InMemoryServer)
class ForgetsWhatWasCached(_HasEndsOfItsOwn):
    def lie(self, write: Write) -> Outcome:
        before, outcome = self._stands(write), super().lie(write)
        if (
            isinstance(write, Annotate)
            and write.role is not None
            and isinstance(before, Record)
            and before.role is Role.CACHED
            and before.expires_at
        ):
            self._ends[write.collection.name, write.key] = before.expires_at
        return outcome


@faulty_adapter("test_what_an_annotation_made_of_it_is_what_is_forgotten_or_not", InMemoryServer)
class KeepsToTheEndBeforeTheAnnotation(_HasEndsOfItsOwn):
    def lie(self, write: Write) -> Outcome:
        before, outcome = self._stands(write), super().lie(write)
        if (
            isinstance(write, Annotate)
            and write.discard_at
            and isinstance(before, Mark | Tombstone)
            and before.discard_at
        ):
            self._ends[write.collection.name, write.key] = before.discard_at
        return outcome


@faulty_adapter("test_what_an_annotation_made_of_it_is_what_is_forgotten_or_not", InMemoryServer)
class TakesOneStepForAll(_HasEndsOfItsOwn):
    def lie(self, write: Write) -> Outcome:
        outcome, after = super().lie(write), self._stands(write)
        if (
            isinstance(write, Annotate)
            and write.settle
            and isinstance(after, Mark | Tombstone)
            and after.discard_at
        ):
            self._ends[write.collection.name, write.key] = after.discard_at
        return outcome


@faulty_adapter("test_a_record_does_not_inherit_the_end_of_what_stood_there", InMemoryServer)
class KeepsTheEndOfTheTombstone(_HasEndsOfItsOwn):
    """As a SET with KEEPTTL does."""

    def lie(self, write: Write) -> Outcome:
        before = self._stands(write)
        if isinstance(write, Put) and isinstance(before, Tombstone) and before.discard_at:
            self._ends[write.collection.name, write.key] = before.discard_at
        return super().lie(write)


@faulty_adapter("test_what_owes_a_step_is_not_forgotten_after_a_restart_either", InMemoryServer)
class ForgetsWhatOwesAfterARestart(InMemoryStore):
    def _forget(self) -> None:
        super()._forget()
        for s in list(self.state.everything("samples")) if self.state.runs > 1 else ():
            if isinstance(s, Mark) and s.discard_at and s.discard_at < datetime.now(UTC):
                self.state.place("samples", s.key, None)


@faulty_adapter("test_erasing_a_whole_tenant_reaches_its_corrupt_records_and_no_others", InMemoryServer)
class ErasesOnlySoundRecordsOfATenant(InMemoryStore):
    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        damaged = dict(self.state.damaged) if isinstance(query.where, Tenant) else {}
        held = {key: self.state.fetch_stored(name, key) for name, key in damaged}
        count = await super()._delete_matching(query, version, discard_at, carry)
        for (name, key), problem in damaged.items():
            self.state.place(name, key, held[key])
            self.state.damaged[name, key] = problem
        return count


@faulty_adapter("test_copies_in_every_role_are_found_again_after_reopening")
class FillsItsIndexWithHomesAlone(InMemoryStore):
    async def _close(self) -> None:
        self._filled = True

    async def _search(self, search: Search) -> list[Hit]:
        hits = await super()._search(search)
        return (
            [hit for hit in hits if hit.head.role is Role.HOME] if getattr(self, "_filled", False) else hits
        )
