"""A history notices stores that are wrong where only histories look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from memory.adapters.in_memory import InMemoryStore
from memory.ports.collections import Collection
from memory.ports.contract.collections import DECLARED, MORE_SAMPLES
from memory.ports.contract.histories import Play, history
from memory.ports.due import DuePage, DueReason
from memory.ports.query import Everywhere, Page, Query, RowType, Tenant
from memory.ports.record import Partition
from memory.ports.writes import Annotate, Delete, Outcome, Release, Write
from tests.contract.harnesses import InMemory

pytestmark = pytest.mark.behaviour("B61")


class ForgetsWhatMayBeDiscarded(InMemoryStore):
    async def _due(
        self, now: datetime, limit: int, cursor: str | None, expired: Mapping[Collection, datetime]
    ) -> DuePage:
        found = await super()._due(now, limit, cursor, expired)
        return replace(found, rows=tuple(row for row in found.rows if row.why is not DueReason.DISCARD))


class TellsOnlyOfOneCollection(InMemoryStore):
    async def _due(
        self, now: datetime, limit: int, cursor: str | None, expired: Mapping[Collection, datetime]
    ) -> DuePage:
        found = await super()._due(now, limit, cursor, expired)
        return replace(found, rows=tuple(row for row in found.rows if row.collection != MORE_SAMPLES))


class NamesPartitionsWithoutTheirGeneration(InMemoryStore):
    async def _partitions(
        self, where: Tenant | Everywhere, prefix: str, after: Partition | None, limit: int
    ) -> list[tuple[Partition, int]]:
        return [(partition, 0) for partition, _ in await super()._partitions(where, prefix, after, limit)]


class LosesTheLastOfAPage(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        page = await super()._query(query)
        lost = (
            isinstance(query.where, Everywhere)
            and query.types != {RowType.RECORD}
            and page.cursor is not None
        )
        return replace(page, records=page.records[:-1]) if lost else page


class SettlesOneStepAtATime(InMemoryStore):
    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        less = [replace(w, settle=w.settle[:1]) if isinstance(w, Annotate) else w for w in writes]
        return await super()._apply(less, together)


class DiscardsOnlyToday(InMemoryStore):
    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        def dated(write: Write) -> Write:
            if (
                not isinstance(write, Delete | Release)
                or write.discard_at is None
                or write.discard_at.year <= 2262
            ):
                return write
            return replace(write, discard_at=write.discard_at.replace(year=2262))

        return await super()._apply([dated(w) for w in writes], together)


WRITES = 800
"""As many as one with `--contract-history` has; everyone's, of 150, may miss what only
one write in fifty shows.
"""

FAULTY = (
    ForgetsWhatMayBeDiscarded,
    TellsOnlyOfOneCollection,
    NamesPartitionsWithoutTheirGeneration,
    LosesTheLastOfAPage,
    SettlesOneStepAtATime,
    DiscardsOnlyToday,
)


@pytest.mark.parametrize("kind", [InMemoryStore, *FAULTY], ids=lambda kind: kind.__name__)
async def test_a_history_parts_from_a_faulty_store_alone(kind: type[InMemoryStore], tmp_path: Path) -> None:
    store, specification = (made("one", capabilities=InMemory.claims) for made in (kind, InMemoryStore))
    await store.open(DECLARED)
    await specification.open(DECLARED)
    parted = await Play(InMemory(tmp_path), store, specification).run(
        list(history(1, InMemory.claims, WRITES))
    )
    assert (parted is None) == (kind is InMemoryStore)
    await store.close()
    await specification.close()
