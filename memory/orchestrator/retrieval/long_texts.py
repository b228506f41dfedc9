"""Search by meaning in long texts.

A single vector of an entry with twelve thousand characters says little about the
sentence at its end. So such an entry has passages beside its own vector, and is as near
to a query as the nearest of them.

All passages are in one store, independently of the tier of the entry, so that moves do
not affect them. It is the store of the last tier with search by meaning, which is
searched anyway. If there is none, it is the archive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf

from memory.orchestrator.embeddings.embeddings import Embeddings
from memory.orchestrator.embeddings.partition_indexes import PartitionIndexes
from memory.orchestrator.embeddings.passages import (
    LOOKED_FOR,
    FoundPassage,
    PassageBuilder,
    PassageSpec,
    by_record,
)
from memory.orchestrator.storage.collections import SAID
from memory.orchestrator.storage.entry_records import parts_before, parts_in, said_at
from memory.orchestrator.storage.outbox import (
    FORGET_PASSAGES,
    MAKE_PASSAGES,
    Came,
    Item,
    Outbox,
    OutboxRecord,
    StepLifetime,
)
from memory.orchestrator.storage.partial_answers import AnswerGaps
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.steps import step
from memory.ports.candidates import CandidateColumns, Candidates, with_vectors
from memory.ports.collections import Collection
from memory.ports.query import MAX_LIMIT, Where
from memory.ports.record import PendingStep
from memory.ports.store import Store
from memory.ports.vector_scan import exact_cosines

DEPTH = 3
"""How many times as many passages as entries are requested, since one entry may have
many near passages.
"""
LATER_TIERS = ("long", "mid")
"""The tiers whose stores may have passages, the later first."""


class LongTexts:
    """The passages of all kinds that have passages."""

    def __init__(
        self,
        placement: Placement,
        *,
        embeddings: Embeddings,
        outbox: Outbox,
        partition_indexes: PartitionIndexes,
    ) -> None:
        self._placement = placement
        self._embeddings = embeddings
        self._partition_indexes = partition_indexes
        self.making = {
            kind.collection: PassageBuilder(
                PassageSpec(kind.collection, kind.passages, "part_of", parts_in, parts_before, said_at),
                placement,
                embeddings=embeddings,
                outbox=outbox,
            )
            for kind in placement.kinds
            if kind.passages is not None
        }
        outbox.register_together(MAKE_PASSAGES, self._make, StepLifetime.DELETED)
        outbox.register(FORGET_PASSAGES, self._forget)

    @property
    def tier(self) -> str:
        """The tier whose store has the passages."""
        return next(
            (tier for tier in LATER_TIERS if self._placement.topology.home(tier).capabilities.semantic), "mid"
        )

    @property
    def store(self) -> Store:
        return self._placement.topology.home(self.tier)

    async def _make(self, items: Sequence[Item]) -> Sequence[Came]:
        if not self._embeddings.on:  # a process with an embedder will do it
            return [False] * len(items)
        return await self.making[items[0][0].collection].make(items, self.tier)

    async def _forget(self, pending: OutboxRecord, owed: PendingStep) -> bool:
        """End the passages of a record in every store that may have some.

        In the store in use, all parts that ever existed are ended. In a store that was
        used before, the existing ones are. For an unreadable record, `LOOKED_FOR` more
        are ended, because some may still be on their way.
        """
        making, parts = self.making[pending.collection], owed.data["parts"]
        if parts is None:
            parts = await making.count_parts(self.store, pending.owner.key) + LOOKED_FOR
        stores = [self._placement.topology.home(tier) for tier in LATER_TIERS]
        return await making.end(pending, {one: parts if one is self.store else None for one in stores})

    # -- found -------------------------------------------------------------------------

    async def nearest(
        self, collection: Collection, where: Where, near: bytes, limit: int, lacking: AnswerGaps
    ) -> dict[str, list[FoundPassage]]:
        """Return the nearest passages of at most `limit` records, by record.

        Records and passages are sorted by similarity. A store that fails is named in
        `lacking`.
        """
        form, store = self.making[collection].form, self.store
        wanted = min(DEPTH * limit, MAX_LIMIT)
        asked = Candidates(
            form.collection,
            where,
            near=near,
            limit=wanted,
            filter=self._embeddings.own,
            select=frozenset({form.named, "part"}),
            statistics=False,
        )
        with step("passages.search"):
            found = await lacking.try_call(
                self._placement, store, self._partition_indexes.candidates(store, asked, lacking), shows=False
            )
        parts = {} if found is None else by_record(near, found, form.named)
        return dict([(i, nearest) for i, nearest in parts.items() if nearest[0].cosine > 0][:limit])


def nearer(
    found: CandidateColumns, near: bytes, parts: Mapping[str, Sequence[FoundPassage]]
) -> tuple[CandidateColumns, dict[str, int]]:
    """Return the columns without the field `SAID`, each record with its nearest vector.

    That is the vector of a passage if it is nearer than the record's own. The second
    result has the numbers of those parts. Passages of an earlier text do not count.
    """
    said = [said or version for said, version in zip(found.fields[SAID], found.versions, strict=True)]
    best = {
        row: part
        for row, i in enumerate(found.ids)
        if (part := next((p for p in parts.get(i, ()) if p.said_at == said[row]), None))
    }
    own = exact_cosines(near, [found.vectors[row].tobytes() for row in best]) if best else []
    best = {
        row: part
        for (row, part), cosine in zip(best.items(), own, strict=True)
        if not part.cosine <= cosine < inf
    }
    columns = replace(found, fields={name: values for name, values in found.fields.items() if name != SAID})
    return with_vectors(columns, {row: part.vector for row, part in best.items()}), {
        found.ids[row]: part.number for row, part in best.items()
    }
