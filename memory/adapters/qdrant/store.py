"""The Qdrant store: the port's calls on a Qdrant engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, TypeGuard

from memory.adapters.qdrant import audit, matching, partitions
from memory.adapters.qdrant.batch import Points, points_changed
from memory.adapters.qdrant.candidates import candidates
from memory.adapters.qdrant.codec import (
    ANCESTORS,
    LENGTH,
    QUARANTINED,
    Payload,
    payload_of,
    stored_in,
    to_quarantine,
)
from memory.adapters.qdrant.config import CLAIMS, EdgeConfig, ServerConfig, claims_of, parse
from memory.adapters.qdrant.engine import Engine, Index, PointChange, Vectors
from memory.adapters.qdrant.filters import is_indexed, path_of
from memory.adapters.qdrant.keys import FORMAT_POINT, is_ancestor, record_point
from memory.adapters.qdrant.pages import Pager
from memory.adapters.qdrant.rounding import bound_beyond
from memory.adapters.qdrant.search import search
from memory.adapters.qdrant.thresholds import THRESHOLDS, Thresholds
from memory.adapters.qdrant.turns import KeyLocks
from memory.domain.errors import ConfigError, MemoryTiersError, Unsupported
from memory.domain.time import micros
from memory.ports.base import BaseStore
from memory.ports.batch import carry_out
from memory.ports.candidates import CandidateColumns, Candidates
from memory.ports.capabilities import Capabilities
from memory.ports.collections import Collection, FieldType
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.quarantine import sound, try_quarantine
from memory.ports.query import Count, Everywhere, Hit, Page, Query, Search, Tenant, Under, Where
from memory.ports.record import Corrupt, JsonValue, Key, Partition, Record, Role, Stored
from memory.ports.rows import row_of
from memory.ports.store import Audit, Health
from memory.ports.writes import Outcome, Write

PATIENCE = 30.0
"""Seconds for which a call retries if others keep changing its data."""
_SYSTEM_INDEXES = (
    Index("partition", "tenant"),
    Index(ANCESTORS, "keyword"),
    *[Index(path, "keyword") for path in ("tenant", "scope", "collection", "kind", "role", "tier")],
    *[
        Index(path, "integer")
        for path in (
            "rank",
            "created_at",
            "updated_at",
            "expires_at",
            "discard_at",
            "owing",
            LENGTH,
            QUARANTINED,
        )
    ],
)
_KINDS = {
    FieldType.TEXT: "keyword",
    FieldType.TAGS: "keyword",
    FieldType.BYTES: "keyword",
    FieldType.INTEGER: "integer",
    FieldType.TIME: "integer",
    FieldType.REAL: "float",
    FieldType.BOOLEAN: "integer",
}


class QdrantStore(BaseStore):
    """Stores records in Qdrant Edge, on a Qdrant server, or in the client's memory.

    A folder of Qdrant Edge is open in one process at a time. The client's memory is for
    tests. Words are ranked by BM25F with the queried partitions' own statistics, except
    for a fixed average length (`words`). Conditions are decided in one step; a server
    uses conditional writes that are read back (`client`). `count` estimates bytes from
    a sample. The claims are the best case: Edge and the local mode are not shared, and
    the local mode is not durable.
    """

    answers_under: ClassVar[bool] = True
    claims: ClassVar[Capabilities] = CLAIMS
    notes_format: ClassVar[bool] = True
    """Whether the store keeps the note of the format."""

    def __init__(
        self,
        url: str,
        name: str = "qdrant",
        *,
        client: Any = None,
        thresholds: Thresholds = THRESHOLDS,
        **options: JsonValue,
    ) -> None:
        """Create a store for a URL.

        Args:
            client: An `AsyncQdrantClient` to use for a server. It is never closed.
        """
        super().__init__(name)
        config = replace(parse(name, url, options), thresholds=thresholds)
        self._capabilities = claims_of(config)
        self.engine: Engine = _engine(name, config, client)
        self._turns = KeyLocks()
        self._path = config.path.absolute() if isinstance(config, EdgeConfig) else None

    @property
    def epoch(self) -> str:
        return self.engine.epoch

    @property
    def path(self) -> Path | None:
        return self._path

    # -- life --------------------------------------------------------------------------

    async def _open(self, collections: Sequence[Collection]) -> None:
        several = {c.name: {name for index in c.indexes for name in index} for c in collections}
        declared = [
            Index(
                path_of(c, f.name), _KINDS[f.type], optional=not (is_indexed(f) or f.name in several[c.name])
            )
            for c in collections
            for f in c.fields
        ]
        await self.engine.open(tuple(dict.fromkeys((*_SYSTEM_INDEXES, *declared))), self._look)
        if not self.engine.exact_statistics:
            self._capabilities = replace(self._capabilities, tenant_statistics=False)

    def _is_in_groups(self, where: Where) -> TypeGuard[Under]:
        """Subtrees of other scopes than paths have no keyword."""
        return isinstance(where, Under) and (
            super()._is_in_groups(where) or not all(map(is_ancestor, where.prefixes))
        )

    async def _look(self) -> None:
        self._take_format(await self._read_format())

    async def _read_format(self) -> str | None:
        return (await self.engine.retrieve([FORMAT_POINT])).get(FORMAT_POINT, {}).get("note")

    async def _swap_format(self, before: str | None, after: str) -> bool:
        async with self.engine.turn:
            found = (await self.engine.retrieve([FORMAT_POINT])).get(FORMAT_POINT)
            if (found or {}).get("note") != before:
                return False
            noted = PointChange(FORMAT_POINT, found, {"kind": "format", "note": after}, Vectors())
            return not await self.engine.commit([noted])

    async def _close(self) -> None:
        await self.engine.close()

    async def _check(self) -> Health:
        version = await self.engine.version()
        in_quarantine = await self.engine.count(
            self.engine.conditions.every([self.engine.conditions.equals(QUARANTINED, 1)])
        )
        return Health(ok=True, version=version, epoch=self.epoch, quarantined=in_quarantine)

    async def optimise(self) -> None:
        """Index a large folder of Qdrant Edge in another process.

        Calls wait until it is done. Servers do this themselves.
        """
        self._must_be_open()
        from memory.adapters.qdrant.edge import EdgeEngine

        if not isinstance(self.engine, EdgeEngine):
            raise Unsupported("optimise", store=self.name)
        await self._work(self.engine.optimise())

    # -- work --------------------------------------------------------------------------

    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        return await sound(
            lambda: self._fetch_stored(collection, keys),
            lambda damaged: self._quarantine(collection, damaged),
        )

    async def _fetch_stored(
        self, collection: Collection, keys: Sequence[Key]
    ) -> tuple[list[Stored | None], list[Key]]:
        points = [record_point(collection.name, key) for key in keys]
        standing = await self.engine.retrieve(list(dict.fromkeys(points)))
        answers = [
            _decode_stored(collection, key, standing.get(point))
            async for key, point in iterate_cooperatively(zip(keys, points, strict=True))
        ]
        damaged = [
            (key, point)
            for key, point, answer in zip(keys, points, answers, strict=True)
            if isinstance(answer, Corrupt)
        ]
        return answers, [key for key, point in damaged if to_quarantine(standing[point])]

    async def _quarantine(self, collection: Collection, damaged: Sequence[Key]) -> bool:
        """Mark damaged payloads of these keys; return whether any was marked."""
        changes: list[PointChange] = []

        async def mark(keys: Sequence[Key]) -> None:
            async with self.engine.turn:
                standing = await self.engine.retrieve(
                    [record_point(collection.name, key) for key in dict.fromkeys(keys)]
                )
                changes.extend(
                    [
                        PointChange(p, found, {**found, QUARANTINED: 1})
                        for p, found in standing.items()
                        if to_quarantine(found)
                    ]
                )
                await self.engine.commit(changes)

        return await try_quarantine(self.name, mark, damaged, self._ours) and bool(changes)

    def _ours(self, error: Exception) -> Exception | None:
        return error if isinstance(error, MemoryTiersError) else self._translate(error)

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        async with AsyncExitStack() as turns:
            for point in [] if self.engine.alone else sorted(points_changed(writes)):
                await turns.enter_async_context(self._turns.at(point))
            return await carry_out(
                self.name, Points(self.name, self.engine), writes, together=together, patience=PATIENCE
            )

    async def _query(self, query: Query) -> Page:
        return await sound(
            lambda: self._page(query), lambda damaged: self._quarantine(query.collection, damaged)
        )

    async def _page(self, query: Query) -> tuple[Page, list[Key]]:
        pager = Pager(self.engine, query)
        return await pager.page(), pager.to_quarantine

    def counted_bytes(self, collection: Collection, record: Record) -> int:
        return int(payload_of(collection, row_of(collection, record))["bytes"])

    async def _count(self, query: Query) -> Count:
        return await matching.count(self.engine, query)

    async def _search(self, wanted: Search) -> list[Hit]:
        return await search(self.engine, wanted)

    async def _candidates(self, asked: Candidates) -> CandidateColumns:
        return await candidates(self.engine, asked)

    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        return await matching.delete_matching(self.engine, query, version, discard_at, carry)

    # -- upkeep ------------------------------------------------------------------------

    async def _may_be_due(self, now: datetime, expired: Mapping[Collection, datetime]) -> bool:
        """Query all collections at once: they all are in one Qdrant collection."""
        make = self.engine.conditions
        before = {
            "discard_at": now,
            **({"expires_at": latest} if (latest := max(expired.values(), default=None)) is not None else {}),
        }
        over = [
            make.between(path, lte=bound_beyond(micros(moment), FieldType.TIME, True))
            for path, moment in before.items()
        ]
        may_be = make.some([make.equals("owing", 1), make.equals("role", Role.ARRIVING.value), *over])
        found, _ = await self.engine.scroll(may_be, 1, keys=("owing",))
        return bool(found)

    async def _audit(self, repair: bool) -> Audit:
        return await audit.audit(self.engine, self._collections, repair)

    async def _vacuum(self) -> int:
        """Rewrite a folder of Edge, which never removes deleted text from its files.

        A server frees space by itself.
        """
        from memory.adapters.qdrant.edge import EdgeEngine

        return await self.engine.rewrite() if isinstance(self.engine, EdgeEngine) else 0

    async def _partitions(
        self, where: Tenant | Everywhere, prefix: str, after: Partition | None, limit: int
    ) -> list[tuple[Partition, int]]:
        return await partitions.list_partitions(self.engine, where, prefix, after, limit)

    async def _idle_partitions(self, limit: int) -> list[tuple[Partition, int]]:
        return await partitions.idle(self.engine, limit)

    async def _forget_partitions(self, idle: Sequence[tuple[Partition, int]]) -> int:
        async with self.engine.turn:
            return await partitions.forget(self.engine, idle)

    def _translate(self, error: Exception) -> Exception | None:
        return self.engine.translate(error)


def _decode_stored(collection: Collection, key: Key, payload: Payload | None) -> Stored | None:
    if payload is None:
        return None
    stored = stored_in(collection, payload)
    if isinstance(stored, Corrupt):
        return Corrupt(key, stored.problem)
    return stored if stored.key == key else Corrupt(key, "another record is in its place")


def _engine(name: str, config: EdgeConfig | ServerConfig, client: Any) -> Engine:
    try:
        if isinstance(config, EdgeConfig):
            from memory.adapters.qdrant.edge import EdgeEngine

            return EdgeEngine(name, config)
        from memory.adapters.qdrant.client import ClientEngine

        return ClientEngine(name, config, client)
    except ImportError as exc:
        extra = "qdrant-edge" if isinstance(config, EdgeConfig) else "qdrant"
        raise ConfigError(
            f"store '{name}': its adapter needs '{exc.name}'; run pip install 'memory-tiers[{extra}]'"
        ) from exc
