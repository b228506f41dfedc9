"""Lying stores: what becomes of records when a collection declares another field than
when they were written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memory.adapters.in_memory import InMemoryStore
from memory.ports.collections import Collection
from memory.ports.query import IsNull, Page, Query
from memory.ports.record import Corrupt, Key, Record, Stored
from memory.ports.writes import Annotate, Outcome, Write
from tests.contract.faulty.registry import faulty_adapter
from tests.contract.harnesses import InMemoryServer

MORE = "test_a_store_opened_with_fields_more_keeps_what_it_has_and_takes_them"
FEWER = "test_what_a_store_opened_with_fewer_fields_does_not_declare_stays_with_its_records"
BESIDE = "test_a_store_that_is_open_goes_on_beside_one_that_was_opened_with_fields_more"


@faulty_adapter(MORE)
class BeginsAnewForAnotherDeclaration(InMemoryStore):
    async def _open(self, collections: Sequence[Collection]) -> None:
        before = {c.name: c for c in self._collections.values()}
        if any(c.name in before and before[c.name] != c for c in collections):
            self.state.restart(keep=False)


@faulty_adapter(MORE)
class IndexesOnlyWhatIsWrittenFromNowOn(InMemoryStore):
    """What was there before a field was declared is in no index of those who lack it."""

    async def _query(self, query: Query) -> Page:
        if isinstance(query.filter, IsNull) and query.filter.field == "colour":
            return Page(())
        return await super()._query(query)


@faulty_adapter(FEWER)
class WritesBackOnlyWhatItDeclares(InMemoryStore):
    """As a store does that reads a record, changes a note about it, and lays it out
    anew.
    """

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        for write in writes:
            if isinstance(write, Annotate):
                standing = self.state.fetch_stored(write.collection.name, write.key)
                if isinstance(standing, Record):
                    kept = {
                        name: value
                        for name, value in standing.fields.items()
                        if write.collection.field(name) is not None
                    }
                    self.state.place(write.collection.name, write.key, replace(standing, fields=kept))
        return await super()._apply(writes, together)


@faulty_adapter(BESIDE, InMemoryServer)
class TakesAFieldItDoesNotDeclareForDamage(InMemoryStore):
    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        stored = await super()._get(collection, keys)
        unknown = [
            isinstance(s, Record) and any(collection.field(name) is None for name in s.fields) for s in stored
        ]
        return [
            Corrupt(key, "cannot be read") if odd else s
            for key, s, odd in zip(keys, stored, unknown, strict=True)
        ]
