"""Lying stores: limits, room, upkeep and building."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from memory.adapters.in_memory import InMemoryStore, adapter
from memory.ports.record import Mark, Partition, Record
from memory.ports.store import Audit, Store
from memory.ports.text import words
from memory.ports.writes import Absent, Outcome, Put, RaiseGeneration, Write
from tests.contract.faulty.asking import FULL, HasADisk, HonestDisk, building
from tests.contract.faulty.registry import faulty_adapter
from tests.contract.harnesses import InMemoryServer


@faulty_adapter("test_an_audit_misses_nothing_of_records_that_have_nothing_to_be_found_by", InMemoryServer)
class MissesWordsThatAreNotThere(InMemoryStore):
    async def _audit(self, repair: bool) -> Audit:
        records = [r for r in self.state.everything("samples") if isinstance(r, Record)]
        without = [r for r in records if r.texts and not any(words(text) for text in r.texts.values())]
        return Audit(len(records), ("a record is missing in the index of words",) * len(without))


@faulty_adapter("test_a_mark_of_any_collection_is_something[SeesMarksOfSamplesAlone-plain]", InMemoryServer)
class SeesMarksOfSamplesAlone(InMemoryStore):
    async def _idle_partitions(self, limit: int) -> list[tuple[Partition, int]]:
        held = dict(self.state.slots)
        for name in held.keys() - {"samples"}:
            self.state.slots[name] = {key: s for key, s in held[name].items() if not isinstance(s, Mark)}
        try:
            return await super()._idle_partitions(limit)
        finally:
            self.state.slots.update(held)


@faulty_adapter("test_what_no_store_keeps_is_rejected_by_name_and_its_neighbours_are_applied")
class ReplacesVersionsBelowNought(InMemoryStore):
    def _refusal(self, write: Write) -> str:
        problem = super()._refusal(write)
        return "" if problem.startswith("previous: must be") else problem


BYTES = "test_a_record_of_the_largest_size_is_kept_and_one_byte_more_is_rejected_by_name"


def _creates(write: Write) -> bool:
    return isinstance(write, Put) and isinstance(write.when, Absent)


@faulty_adapter(BYTES, InMemoryServer)
class CreatesWithoutALimit(InMemoryStore):
    def _refusal(self, write: Write) -> str:
        problem = super()._refusal(write)
        return "" if _creates(write) and problem.startswith("record: store") else problem


@faulty_adapter(BYTES, InMemoryServer)
class CountsCharactersForBytes(InMemoryStore):
    def _record_refusal(self, record: Record) -> str:
        limit = self.capabilities.max_record_bytes or 0
        return super()._record_refusal(record) if len(str(record.body)) > limit else ""


@faulty_adapter("test_a_vector_of_most_dimensions_is_kept_and_one_more_is_rejected_by_name", InMemoryServer)
class CreatesVectorsOfAnyLength(InMemoryStore):
    def _refusal(self, write: Write) -> str:
        problem = super()._refusal(write)
        return "" if _creates(write) and problem.startswith("vector: store") else problem


@faulty_adapter("test_a_batch_of_the_largest_size_is_applied_and_one_write_more_is_refused", InMemoryServer)
class TakesAnyNumberTogether(InMemoryStore):
    async def apply(self, writes: Sequence[Write], *, together: bool = False) -> list[Outcome]:
        claimed = self._capabilities
        try:
            self._capabilities = replace(claimed, max_batch=None) if together else claimed
            return await super().apply(writes, together=together)
        finally:
            self._capabilities = claimed


@faulty_adapter(FULL, HonestDisk)
class RaisesGenerationsOnAFullDisk(HasADisk):
    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        if not self.room.left:
            await InMemoryStore._apply(self, [w for w in writes if isinstance(w, RaiseGeneration)], False)
        return await super()._apply(writes, together)


@faulty_adapter(FULL, HonestDisk)
class TakesAwayBeforeItWritesOnAFullDisk(HasADisk):
    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        for write in writes if not self.room.left else ():
            if isinstance(write, Put):
                self.state.place(write.collection.name, write.key, None)
        return await super()._apply(writes, together)


def _ignoring(name: str, url: str, options: Any) -> Store:
    """Ignores what follows a question mark, and options without a value."""
    return adapter.build(
        name, url.partition("?")[0], {option: value for option, value in options.items() if value is not None}
    )


building("IgnoresTheQueryOfAUrl", _ignoring)
