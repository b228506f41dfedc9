"""Vectors for entries, and the check that a store's vectors were made by the embedder in use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memory.domain import ids
from memory.domain.errors import ConfigError, EmbedderMismatch
from memory.orchestrator.collections import SETTINGS
from memory.orchestrator.entry_records import meaning_of
from memory.orchestrator.generations import SYSTEM_TENANT
from memory.orchestrator.placement import Placement
from memory.orchestrator.steps import step
from memory.orchestrator.topology import leaves_of
from memory.ports.embedder import Embedder, Fingerprint
from memory.ports.record import Key, Record
from memory.ports.store import Store
from memory.ports.writes import Absent, Put

SETTINGS_SCOPE = "settings"


class Meaning:
    """The embedder and what it leaves in the stores; with none configured, nothing is found by meaning."""

    def __init__(self, placement: Placement, embedder: Embedder | None) -> None:
        self._placement = placement
        self._embedder = embedder

    @property
    def on(self) -> bool:
        return self._embedder is not None

    async def embedded(self, records: Sequence[Record]) -> list[Record]:
        """The records with their vectors; a text that has none is found by words alone."""
        if self._embedder is None or not records:
            return list(records)
        vectors = await self._embedder.embed([meaning_of(r) for r in records])
        return [replace(r, vector=v or None) for r, v in zip(records, vectors, strict=True)]

    async def of_texts(self, texts: Sequence[str]) -> list[bytes | None]:
        """The vectors of texts, None for those that have none."""
        if self._embedder is None or not texts:
            return [None] * len(texts)
        return [vector or None for vector in await self._embedder.embed(texts)]

    async def of_query(self, text: str) -> bytes | None:
        return (await self.of_texts([text]))[0] if text.strip() else None

    async def check(self) -> None:
        """Note the embedder in every store that takes vectors; raise `EmbedderMismatch` where another was noted before.

        A store that is away is checked when it arrives.
        """
        away = self._placement.topology.away
        for store in (leaf for home in self._placement.topology.homes for leaf in leaves_of(home)):
            if store.name not in away:
                await self.check_store(store)

    async def check_store(self, store: Store) -> None:
        """The same for one store."""
        if self._embedder is None or not store.capabilities.semantic or store is self._placement.topology.cache:
            return
        mine = await self._embedder.fingerprint()
        limit = store.capabilities.max_vector_dims
        if limit is not None and mine.dimensions > limit:
            raise ConfigError(f"store '{store.name}' takes vectors of at most {limit} dimensions; the embedder makes {mine}")
        noted = await self.fingerprint_in(store)
        if noted is None:
            await self._note(store, mine)
            noted = await self.fingerprint_in(store)
        if noted is not None and noted != mine:
            raise EmbedderMismatch(store.name, str(noted), str(mine))

    async def fingerprint_in(self, store: Store) -> Fingerprint | None:
        """The embedder noted in a store, None where none is."""
        with step("embedder.check"):
            row = (await store.get(SETTINGS, [self._key()]))[0]
        if not isinstance(row, Record):
            return None
        return Fingerprint(row.body["model"], row.body["dimensions"], row.body["metric"])

    async def _note(self, store: Store, mine: Fingerprint) -> None:
        now = self._placement.now()
        body = {"model": mine.model, "dimensions": mine.dimensions, "metric": mine.metric}
        record = Record(self._key(), SETTINGS_SCOPE, self._placement.next_version(), now, now, body=body, tier="mid")
        await self._placement.write_one("embedder.note", store, Put(SETTINGS, record, Absent()))

    @staticmethod
    def _key() -> Key:
        return Key(SYSTEM_TENANT, ids.derived_id(SYSTEM_TENANT, SETTINGS_SCOPE, "embedder"))
