"""Rebuild of passages after a store was restored to an earlier state.

Passages are derived data, and may be in another store than their texts. A text without
some of its passages gets the pending step again, so that a process with the embedder
makes them: `doctor` has none. Passages without a text, or without such a part of it,
are deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf

from memory.orchestrator.conversations.log.passages import EMBED, Passages
from memory.orchestrator.embeddings.embeddings import Embeddings
from memory.orchestrator.embeddings.passages import PassageBuilder
from memory.orchestrator.retrieval.long_texts import LongTexts
from memory.orchestrator.storage.collections import MODEL
from memory.orchestrator.storage.outbox import MAKE_PASSAGES, Outbox, OutboxRecord
from memory.orchestrator.storage.placement import Placement, raise_if_rejected
from memory.ports.query import Everywhere, Head, IsNull, Not, Query
from memory.ports.record import Corrupt, Key, PendingStep, Record, Role
from memory.ports.store import Store
from memory.ports.writes import AtVersion, Delete, Put

AT_ONCE = 100
"""How many texts are read at once; each may have a hundred passages."""
LACKS = "texts without some of their passages"
OF_NOTHING = "passages without a text"


class VectorRebuild:
    """Compares passages with their texts."""

    def __init__(
        self,
        placement: Placement,
        *,
        embeddings: Embeddings,
        outbox: Outbox,
        long_texts: LongTexts,
        passages: Passages,
    ) -> None:
        self._placement = placement
        self._embeddings = embeddings
        self._outbox = outbox
        self._long_texts = long_texts
        self._passages = passages

    async def compare(self, *, repair: bool) -> Counter[str]:
        """Return how many passages or texts differ, by kind.

        With `repair`, they are repaired. Raises if a store fails or refuses a write;
        the call may be repeated.
        """
        found = Counter[str]()
        if await self._embeddings.read_note() is not None:  # otherwise no process would make any
            for making, store, owed in self._apart():
                found[LACKS] += await self._find_missing_passages(making, store, owed, repair=repair)
                found[OF_NOTHING] += await self._of_nothing(making, store, repair=repair)
        return +found

    def _apart(self) -> Iterator[tuple[PassageBuilder, Store, str]]:
        """Yield the builders of passages that may be in another store than their texts.

        Each comes with that store, and with the step that makes its passages.
        """
        for making in self._long_texts.making.values():
            yield making, self._long_texts.store, MAKE_PASSAGES
        if self._passages.tier == "long":
            yield self._passages.making, self._placement.topology.home("long"), EMBED

    async def _find_missing_passages(
        self, making: PassageBuilder, where: Store, owed: str, *, repair: bool
    ) -> int:
        of, differ = making.form.of, 0
        meant = making.form.which or Not(IsNull(MODEL))
        for store in self._placement.topology.homes:
            async for page in self._placement.pages(
                "remake.find", store, Query(of, Everywhere(), meant, limit=AT_ONCE)
            ):
                rows = [
                    row
                    for row in page.records
                    if isinstance(row, Record) and all(each.step != owed for each in row.owed)
                ]
                lacking = await making.records_missing_passages(where, rows)
                differ += len(lacking)
                if repair and lacking:
                    owing = [replace(row, owed=(*row.owed, PendingStep(owed, owed))) for row in lacking]
                    puts = [
                        Put(of, row, AtVersion(row.version, Role.HOME, row.tier)) for row in owing
                    ]  # a concurrent edit has the pending step itself
                    put = await self._apply_writes(store, puts)
                    await self._outbox.finish_all(
                        [
                            OutboxRecord(of, store, row)
                            for row, applied in zip(owing, put, strict=True)
                            if applied
                        ]
                    )
        return differ

    async def _of_nothing(self, making: PassageBuilder, where: Store, *, repair: bool) -> int:
        form, differ = making.form, 0
        query = Query(
            form.collection,
            Everywhere(),
            limit=self._placement.settings.page,
            select=frozenset({form.named, "part"}),
        )
        async for page in self._placement.pages("remake.find", where, query):
            left = await self._orphan_passages(
                making, page.heads
            )  # a concurrent write has another version, so it is not deleted
            differ += len(left)
            if repair and left:
                until = self._placement.tombstone_until()
                ends = [
                    Delete(
                        form.collection, head.key, head.version + 1, AtVersion(head.version), discard_at=until
                    )
                    for head in left
                ]
                await self._apply_writes(where, ends)
        return differ

    async def _orphan_passages(self, making: PassageBuilder, passages: Sequence[Head]) -> list[Head]:
        """Return the passages whose owner is in no store, or has no such part.

        Stores are read in the direction of moves. Passages of a damaged owner are not
        returned.
        """
        form = making.form
        owners = {
            passage.key: Key(passage.key.tenant, str(passage.fields[form.named])) for passage in passages
        }
        parts: dict[Key, float] = dict.fromkeys(owners.values(), 0)
        for store in self._placement.topology.homes if parts else ():
            rows = await self._placement.read("remake.look", store, form.of, list(parts))
            for key, row in zip(parts, rows, strict=True):
                if isinstance(row, Record | Corrupt):
                    parts[key] = max(parts[key], len(form.parts(row)) if isinstance(row, Record) else inf)
        return [
            passage for passage in passages if int(str(passage.fields["part"])) >= parts[owners[passage.key]]
        ]

    async def _apply_writes(self, store: Store, writes: list[Put] | list[Delete]) -> list[bool]:
        outcomes = await self._placement.write("remake.write", store, *writes)
        raise_if_rejected(store, *outcomes)
        return [outcome.applied for outcome in outcomes]
