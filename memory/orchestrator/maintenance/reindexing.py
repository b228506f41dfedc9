"""Reindex: makes all vectors again with another embedder, without downtime.

Each record gets its new vector in place, under its version and on condition that this
is still its version. So no write is lost, nothing erased returns, and no past version
is kept for it. The embedder of each vector is stored beside it. So a process that
continues after a crash, or beside another, sees the remaining work. The notes that
allow two embedders at once belong to `Embeddings`. Stores are visited in the direction
of moves, and again until nothing is left in any.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from memory.domain.errors import StoreError
from memory.domain.maintenance_reports import ReindexReport
from memory.orchestrator.conversations.log.passages import Passages
from memory.orchestrator.embeddings.embeddings import Embeddings
from memory.orchestrator.embeddings.passages import PassageBuilder
from memory.orchestrator.retrieval.long_texts import LongTexts
from memory.orchestrator.storage.collections import MODEL
from memory.orchestrator.storage.entry_records import own_vector, without_own_vector
from memory.orchestrator.storage.lease import LeaseCheck
from memory.orchestrator.storage.outbox import DELIVER, Outbox, OutboxRecord
from memory.orchestrator.storage.placement import Placement, rejection_error
from memory.ports.collections import Collection
from memory.ports.embedder import Fingerprint
from memory.ports.query import Condition, Eq, Everywhere, Not, Or, Query
from memory.ports.record import Record, Role
from memory.ports.store import Store
from memory.ports.writes import AtVersion, Put, Status

log = logging.getLogger(__name__)

COPIES = frozenset({Role.HOME, Role.ARRIVING, Role.REPLICA})
"""The roles whose vectors are compared with queries, now or after their arrival."""

Progress: TypeAlias = Callable[[int, int], None]


@dataclass(slots=True)
class _Work:
    """The progress of one call, and the failures of its current round."""

    model: Fingerprint
    total: int
    progress: Progress | None
    made: int = 0
    overtaken: int = 0
    waiting: dict[str, None] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)

    def tell(self) -> None:
        if self.progress is not None:
            self.progress(self.made, max(self.made, self.total))


class Reindexer:
    """Makes all vectors again with another embedder."""

    def __init__(
        self,
        placement: Placement,
        *,
        embeddings: Embeddings,
        outbox: Outbox,
        passages: Passages,
        long_texts: LongTexts,
    ) -> None:
        self._placement = placement
        self._embeddings = embeddings
        self._outbox = outbox
        self._passages = passages
        self._long_texts = long_texts
        self._makes = {
            making.form.collection: making for making in (passages.making, *long_texts.making.values())
        }
        self._collections = [
            collection for collection in placement.kinds.collections if collection.field(MODEL) is not None
        ]

    async def run(self, progress: Progress | None = None) -> ReindexReport:
        """Make all vectors of every tenant again with the current embedder.

        It is safe to repeat, to run concurrently, and to interrupt. Raises if a store
        does not answer before anything is noted, or does not accept such vectors.
        """
        model = await self._embeddings.begin()
        work = _Work(model, await self.count_remaining(model), progress)
        for number in range(self._placement.settings.attempts):
            before, work.overtaken, work.waiting = work.made, 0, {}
            await self._round(work, missing=not number)
            changed = work.made > before or work.overtaken
            if not changed and not work.waiting and await self._embeddings.end():
                return ReindexReport(str(model), True, work.made)
            if not changed or work.away:
                break
        left = await self.count_remaining(model) if not work.away else 0
        return ReindexReport(
            str(model),
            False,
            work.made,
            left,
            tuple(work.waiting) or ("other processes still write with another embedder",),
        )

    async def catch_up(self, hold: LeaseCheck) -> int:
        """Renew vectors that late writes brought after the reindex ended.

        Returns how many there were. These writes had read the earlier vector before.
        They may take as long as a mark is kept. Later ones come from a process that
        still has the earlier embedder.
        """
        ended = self._embeddings.reindexed_at
        if (
            ended is None
            or self._placement.now()
            > ended + self._placement.settings.mark_life + self._placement.settings.sweep_every
        ):
            return 0
        model = await self._embeddings.fingerprint()
        work = _Work(model, await self.count_remaining(model), None)
        if work.total:
            await hold(work.total)
            await self._round(work, missing=False)
        return work.made

    async def count_remaining(self, model: Fingerprint) -> int:
        """Return how many records, including copies, have no vector of this embedder.

        Raises if a store does not answer.
        """
        queries = [
            Query(collection, Everywhere(), _not_of(model), roles=COPIES) for collection in self._collections
        ]
        return sum(
            [
                (await store.count(query)).records
                for store in self._placement.topology.homes
                for query in queries
            ]
        )

    async def _round(self, work: _Work, *, missing: bool) -> None:
        """Visit every store once, and note those that fail.

        With `missing`, missing passages are made too.
        """
        for store in self._placement.topology.homes:
            for collection in self._collections:
                try:
                    await self._go_through(store, collection, work)
                except StoreError as error:
                    _note_failure(store, error, work)
        for making, tier in self._makings() if missing else ():
            for store in self._placement.topology.homes:
                try:
                    await self._missing_passages(making, tier, store, work)
                except StoreError as error:
                    _note_failure(store, error, work)

    async def _go_through(self, store: Store, collection: Collection, work: _Work) -> None:
        """Renew the vectors of other embedders, and deliver pending copies.

        Otherwise a pending copy would bring an old vector.
        """
        query = Query(
            collection,
            Everywhere(),
            Or((_not_of(work.model), Eq("owing", True))),
            limit=self._placement.settings.page,
            roles=COPIES,
        )
        async for page in self._placement.pages("reindex.find", store, query):
            rows = [row for row in page.records if isinstance(row, Record)]
            await self._deliver(store, collection, rows, work)
            others = [row for row in rows if row.fields.get(MODEL) != work.model.digest]
            making = self._makes.get(collection)
            if making is not None and others:
                await self._put(store, await making.passage_renewals(store, others), work)
            elif others:
                made = await self._embeddings.embed_records(others)
                await self._renew(store, collection, made, work)
                await self._renew_copies(store, collection, made, work)
            work.tell()

    async def _deliver(
        self, store: Store, collection: Collection, rows: Sequence[Record], work: _Work
    ) -> None:
        owing = [OutboxRecord(collection, store, row) for row in rows if row.owed and row.role is Role.HOME]
        for left in await self._outbox.finish_all(owing, work.away) if owing else ():
            if any(owed.step.startswith(DELIVER) for owed in left):
                work.waiting["copies to a store are still pending; `memory doctor` says why"] = None

    async def _renew(self, store: Store, collection: Collection, made: Sequence[Record], work: _Work) -> None:
        """Put these vectors on the records of a store.

        The records are read again first: embedding takes time, and concurrent counts
        must stay.
        """
        there = await self._placement.read("reindex.read", store, collection, [record.key for record in made])
        puts: list[Put] = []
        for new, row in zip(made, there, strict=True):
            if not isinstance(row, Record) or row.version != new.version:
                work.overtaken += 1
            elif row.fields.get(MODEL) != work.model.digest and row.role in COPIES:
                kept = row if own_vector(new) is not None else without_own_vector(row)
                renewed = replace(kept, vector=new.vector, fields={**row.fields, MODEL: work.model.digest})
                puts.append(Put(collection, renewed, AtVersion(row.version, row.role, row.tier)))
        await self._put(store, puts, work)

    async def _renew_copies(
        self, store: Store, collection: Collection, made: Sequence[Record], work: _Work
    ) -> None:
        """Put the same vectors on copies in other stores.

        So no text is embedded twice. A copy that fails is found again in its own store.
        """
        home, kind = self._placement.topology.home, self._placement.kinds.of(collection)
        having: dict[Store, list[Record]] = {}
        for record in made:
            for tier in kind.replicas(record.tier) if record.role is Role.HOME else ():
                if home(tier) is not store:
                    having.setdefault(home(tier), []).append(record)
        for other, records in having.items():
            if other.name not in work.away:
                try:
                    await self._renew(other, collection, records, work)
                except StoreError as error:
                    _note_failure(other, error, work)

    # -- passages ----------------------------------------------------------------------

    def _makings(self) -> list[tuple[PassageBuilder, str]]:
        """Return the builders of passages, each with the tier of its store."""
        of_messages = (
            [(self._passages.making, self._passages.tier)] if self._passages.store is not None else []
        )
        return [
            *of_messages,
            *((making, self._long_texts.tier) for making in self._long_texts.making.values()),
        ]

    async def _missing_passages(self, making: PassageBuilder, tier: str, homes: Store, work: _Work) -> None:
        """Make passages that are missing for the texts of a store.

        Such texts had no meaning for the earlier embedder, or were written without
        passages.
        """
        form, store = making.form, self._placement.topology.home(tier)
        query = Query(form.of, Everywhere(), form.which, limit=self._placement.settings.page)
        async for page in self._placement.pages("reindex.texts", homes, query):
            records = [row for row in page.records if isinstance(row, Record)]
            await self._put(store, await making.renewals(store, records, tier), work)

    # -- writing -----------------------------------------------------------------------

    async def _put(self, store: Store, puts: Sequence[Put], work: _Work) -> None:
        for outcome in await self._placement.write("reindex.put", store, *puts) if puts else ():
            if (error := rejection_error(store, outcome)) is not None:
                work.waiting[str(error)] = None
            work.made += outcome.applied
            work.overtaken += outcome.status is Status.CONFLICT


def _not_of(model: Fingerprint) -> Condition:
    return Not(Eq(MODEL, model.digest))


def _note_failure(store: Store, error: StoreError, work: _Work) -> None:
    log.warning("reindex skips store '%s': %s", store.name, error)
    work.waiting[str(error)] = None
    work.away.add(store.name)
