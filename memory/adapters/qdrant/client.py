"""A Qdrant server, or the client's local mode, through `AsyncQdrantClient`.

Others write at the same time, and a server says of a conditional write only that it was carried out, not whether its condition held. So
every write leaves a token of its own in the payload, is conditional on the token of the state it was decided on (the server compares and
writes in one step), and is read back: it was made where its token stands, or stands among those that later writers found there
(`lineage`). Who was not first decides again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, TypeVar

from qdrant_client import AsyncQdrantClient, models
from qdrant_client.http.exceptions import UnexpectedResponse

from memory.adapters.qdrant.client_conditions import ClientConditions
from memory.adapters.qdrant.client_errors import Unconfirmed, translate_client
from memory.adapters.qdrant.codec import Payload
from memory.adapters.qdrant.config import ServerConfig
from memory.adapters.qdrant.engine import MOST_VALUES, WORDS, Change, Condition, Conditions, Found, Index, Sparse, Vectors, Whole, dense_name
from memory.adapters.qdrant.thresholds import Thresholds
from memory.domain.errors import ConfigError

T = TypeVar("T")

LINEAGE = 64
"""So many earlier tokens stay with a point: as many writers may come between a write and its reading back."""
_SCHEMAS: dict[str, Any] = {
    "keyword": models.PayloadSchemaType.KEYWORD,
    "tenant": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True),
    "integer": models.PayloadSchemaType.INTEGER,
    "float": models.PayloadSchemaType.FLOAT,
}
_CONFLICT = 409
LEAST_SERVER = (1, 19)
"""Conditional upserts came with 1.16, their modes with 1.17, new vectors for old collections with 1.18, rarity by tenant with 1.19. Older servers
do not refuse what they do not know: they leave it out, and would overwrite what a condition protects."""


class ClientEngine:
    """One collection of a server. An injected client is used as it is and not closed."""

    conditions: Conditions = ClientConditions()
    alone = False
    turn: AbstractAsyncContextManager[None] = nullcontext()

    def __init__(self, name: str, config: ServerConfig, client: AsyncQdrantClient | None = None) -> None:
        self._name, self._config, self.thresholds = name, config, config.thresholds
        self._injected = client
        self._client: Any = client
        self._dimensions: set[int] = set()
        self._reading: dict[str, Any] = {}
        self.epoch = ""

    # -- life ---------------------------------------------------------------------------------------------------------

    async def open(self, indexes: Sequence[Index]) -> None:
        config = self._config
        if self._client is None:
            self._client = AsyncQdrantClient(
                **({"location": ":memory:"} if config.host is None else _address(config)), timeout=config.timeout, check_compatibility=False
            )
        try:
            await self._make_ready(indexes)
        except BaseException:
            await self.close()
            raise

    async def _make_ready(self, indexes: Sequence[Index]) -> None:
        config = self._config
        if config.host is not None:
            _check_version(self._name, (await self._ask(self._client.info())).version)
        if not await self._ask(self._client.collection_exists(config.collection)):
            await self._create()
        info = await self._look()
        if config.host is None:
            self.epoch = self.epoch or secrets.token_hex(8)
            return  # the local mode has no payload indexes
        if (info.config.params.replication_factor or 1) > 1:
            self._reading["consistency"] = models.ReadConsistencyType.MAJORITY
        if config.shard_key is not None:
            self._reading["shard_key_selector"] = config.shard_key
        for index in indexes:
            if index.path not in info.payload_schema:
                await self._ask(self._client.create_payload_index(config.collection, index.path, _SCHEMAS[index.kind], wait=True))

    async def _create(self) -> None:
        config = self._config
        given = {
            "shard_number": config.shard_number,
            "replication_factor": config.replication_factor,
            "write_consistency_factor": config.write_consistency_factor,
            "sharding_method": None if config.shard_key is None else models.ShardingMethod.CUSTOM,
        }
        words = {WORDS: models.SparseVectorParams(modifier=models.Modifier.IDF)}
        try:
            made = self._client.create_collection(
                config.collection, vectors_config={}, sparse_vectors_config=words, **{k: v for k, v in given.items() if v is not None}
            )
            await self._ask(made)
            if config.shard_key is not None:
                await self._ask(self._client.create_shard_key(config.collection, config.shard_key))
        except UnexpectedResponse as exc:
            if exc.status_code != _CONFLICT:  # else another client made it just now
                raise

    async def _look(self) -> Any:
        """What the server says of the collection; learns which vectors it has."""
        info = await self._ask(self._client.get_collection(self._config.collection))
        named = info.config.params.vectors or {}
        self._dimensions = {int(name.removeprefix("dense_")) for name in named if name.startswith("dense_")}
        return info

    async def close(self) -> None:
        if self._injected is not None or self._config.host is None:  # what the local mode holds is in the client, and is found again
            return
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def version(self) -> str:
        info = await self._ask(self._client.info())
        await self._look()
        return f"Qdrant {info.version}" if self._config.host is not None else f"local mode of qdrant-client {info.version}"

    async def _ask(self, call: Awaitable[T]) -> T:
        """Every call ends in time, also where a server answers a byte at a time."""
        async with asyncio.timeout(self._config.timeout + 1):
            return await call

    # -- reading ------------------------------------------------------------------------------------------------------

    async def retrieve(self, points: Sequence[str], keys: Sequence[str] | None = None) -> dict[str, Payload]:
        found: dict[str, Payload] = {}
        for some in _chunks(points, self.thresholds.retrieved_at_once):
            records = await self._ask(
                self._client.retrieve(self._config.collection, list(some), with_payload=_wanted(keys), with_vectors=False, **self._reading)
            )
            found.update({str(r.id): r.payload or {} for r in records})
        return found

    async def scroll(self, where: Condition, limit: int, after: Any = None, keys: Sequence[str] | None = None) -> tuple[list[Found], Any]:
        records, following = await self._ask(
            self._client.scroll(self._config.collection, where, limit, offset=after, with_payload=_wanted(keys), with_vectors=False, **self._reading)
        )
        return [Found(r.payload or {}, r.id) for r in records], following

    async def whole(self, limit: int, after: Any = None) -> tuple[list[Whole], Any]:
        records, following = await self._ask(
            self._client.scroll(self._config.collection, None, limit, offset=after, with_payload=True, with_vectors=True, **self._reading)
        )
        return [Whole(str(r.id), r.payload or {}, _told(r.vector)) for r in records], following

    async def ordered(self, where: Condition, path: str, descending: bool, start: float | None, limit: int) -> list[Found]:
        order = models.OrderBy(key=path, direction=models.Direction.DESC if descending else models.Direction.ASC, start_from=start)
        records, _ = await self._ask(
            self._client.scroll(self._config.collection, where, limit, order_by=order, with_payload=True, with_vectors=False, **self._reading)
        )
        return [Found(r.payload or {}, r.order_value) for r in records]

    async def count(self, where: Condition) -> int:
        selector = {k: v for k, v in self._reading.items() if k != "consistency"}
        counted = await self._ask(self._client.count(self._config.collection, where, exact=True, **selector))
        return int(counted.count)

    async def tally(self, path: str, where: Condition) -> dict[int, int]:
        answer = await self._ask(
            self._client.facet(self._config.collection, path, facet_filter=where, limit=MOST_VALUES, exact=True, **self._reading)
        )
        return {int(hit.value): hit.count for hit in answer.hits}

    async def holding(self, indices: Sequence[int], where: Condition, most: int) -> list[int]:
        words = [models.SparseVector(indices=[index], values=[1.0]) for index in indices]
        asked = [models.QueryRequest(query=w, using=WORDS, filter=where, limit=most, shard_key=self._config.shard_key) for w in words]
        selector = {k: v for k, v in self._reading.items() if k != "shard_key_selector"}
        answers = await self._ask(self._client.query_batch_points(self._config.collection, asked, **selector))
        return [len(answer.points) for answer in answers]

    async def near(self, vector: list[float], where: Condition, limit: int, keys: Sequence[str] | None) -> list[Found]:
        if len(vector) not in self._dimensions:
            await self._look()
            if len(vector) not in self._dimensions:
                return []
        params = models.SearchParams(exact=True) if self._config.exact else None
        return await self._query(vector, dense_name(len(vector)), where, params, limit, keys)

    async def by_words(self, words: Sparse, where: Condition, corpus: Condition, limit: int, keys: Sequence[str] | None) -> list[Found]:
        params = models.SearchParams(idf=models.IdfCorpusParams(corpus=corpus))
        return await self._query(models.SparseVector(indices=words.indices, values=words.values), WORDS, where, params, limit, keys)

    async def _query(self, query: Any, using: str, where: Condition, params: Any, limit: int, keys: Sequence[str] | None) -> list[Found]:
        answer = await self._ask(
            self._client.query_points(
                self._config.collection,
                query=query,
                using=using,
                query_filter=where,
                search_params=params,
                limit=limit,
                with_payload=_wanted(keys),
                **self._reading,
            )
        )
        return [Found(p.payload or {}, p.score) for p in answer.points]

    # -- writing ------------------------------------------------------------------------------------------------------

    async def commit(self, changes: Sequence[Change]) -> set[str]:
        await self._make_vectors(changes)
        lost: set[str] = set()
        for some in _portions(changes, self.thresholds):
            tokens = {c.point: secrets.token_urlsafe(9) for c in some}
            operations = [self._operation(c, tokens[c.point]) for c in some]
            results = await self._ask(
                self._client.batch_update_points(self._config.collection, operations, wait=True, ordering=models.WriteOrdering.STRONG)
            )
            if any(result.status != models.UpdateStatus.COMPLETED for result in results):
                raise Unconfirmed("the server accepted the write and did not say in time that it was made")
            standing = await self.retrieve([c.point for c in some], ("token", "lineage"))
            lost |= {c.point for c in some if not _made(c, tokens[c.point], standing.get(c.point))}
        return lost

    async def _make_vectors(self, changes: Sequence[Change]) -> None:
        missing = {len(c.vectors.dense) for c in changes if c.vectors is not None and c.vectors.dense is not None} - self._dimensions
        if not missing:
            return
        await self._look()
        for dimensions in missing - self._dimensions:
            config = models.DenseVectorNameConfig(dense=models.DenseVectorConfig(size=dimensions, distance=models.Distance.DOT))
            try:
                await self._ask(self._client.create_vector_name(self._config.collection, dense_name(dimensions), config, wait=True))
            except UnexpectedResponse:
                await self._look()
                if dimensions not in self._dimensions:  # else another client made it just now
                    raise
            self._dimensions.add(dimensions)

    def _operation(self, change: Change, token: str) -> Any:
        """The change as one operation, conditional on the state it was decided on."""
        key = self._config.shard_key
        if change.payload is None:
            return models.DeleteOperation(delete=models.FilterSelector(filter=self._still(change), shard_key=key))
        payload = {**change.payload, "token": token, "lineage": _lineage(change.before)}
        if change.vectors is None:
            return models.OverwritePayloadOperation(overwrite_payload=models.SetPayload(payload=payload, filter=self._still(change), shard_key=key))
        point = models.PointStruct(id=change.point, vector=_named(change.vectors), payload=payload)
        if change.before is None:
            return models.UpsertOperation(upsert=models.PointsList(points=[point], update_mode=models.UpdateMode.INSERT_ONLY, shard_key=key))
        return models.UpsertOperation(
            upsert=models.PointsList(points=[point], update_filter=self._still(change), update_mode=models.UpdateMode.UPDATE_ONLY, shard_key=key)
        )

    def _still(self, change: Change) -> models.Filter:
        """The point is as it was when the change was decided."""
        token = (change.before or {}).get("token")
        same = self.conditions.missing("token") if token is None else self.conditions.equals("token", token)
        return models.Filter(must=[models.HasIdCondition(has_id=[change.point]), same])

    def translate(self, error: Exception) -> Exception | None:
        return translate_client(self._name, error)


def _check_version(store: str, version: str) -> None:
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < LEAST_SERVER:
        raise ConfigError(f"store '{store}': this server is Qdrant {version}; at least {'.'.join(map(str, LEAST_SERVER))} is needed")


def _address(config: ServerConfig) -> dict[str, Any]:
    return {"host": config.host, "port": config.port, "https": config.https, "prefix": config.prefix or None, "api_key": config.api_key}


def _wanted(keys: Sequence[str] | None) -> bool | list[str]:
    return True if keys is None else list(keys)


def _chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[i : i + size] for i in range(0, len(items), size))


def _portions(changes: Sequence[Change], thresholds: Thresholds) -> Iterator[list[Change]]:
    """The changes in requests that are not too large."""
    most, most_bytes = thresholds.changed_at_once, thresholds.changed_bytes_at_once
    portion: list[Change] = []
    size = 0
    for change in changes:
        more = 2000 + 2 * int((change.payload or {}).get("bytes", 0)) + 10 * len((change.vectors or Vectors()).dense or ())
        if portion and (len(portion) == most or size + more > most_bytes):
            yield portion
            portion, size = [], 0
        portion.append(change)
        size += more
    if portion:
        yield portion


def _named(vectors: Vectors) -> dict[str, Any]:
    named: dict[str, Any] = {}
    if vectors.words is not None:
        named[WORDS] = models.SparseVector(indices=vectors.words.indices, values=vectors.words.values)
    if vectors.dense is not None:
        named[dense_name(len(vectors.dense))] = vectors.dense
    return named


def _told(vectors: Any) -> dict[str, Sparse | list[float]]:
    named = vectors if isinstance(vectors, dict) else {}
    return {n: Sparse(list(v.indices), list(v.values)) if isinstance(v, models.SparseVector) else list(v) for n, v in named.items()}


def _lineage(before: Payload | None) -> list[str]:
    if before is None or before.get("token") is None:
        return []
    return [*before.get("lineage", ()), before["token"]][-LINEAGE:]


def _made(change: Change, token: str, standing: Payload | None) -> bool:
    """Whether the change was made, by what stands there now."""
    if standing is None:
        return change.payload is None  # else it was made and taken away, or never made: to be decided again either way
    tokens = [*standing.get("lineage", ()), standing.get("token")]
    if change.payload is None:
        return (change.before or {}).get("token") not in tokens  # else it still stands, or others wrote over it
    if token in tokens:
        return True
    if len(tokens) > LINEAGE and (change.before or {}).get("token") not in tokens:
        raise Unconfirmed("so many others wrote there at once that whether this write was made cannot be told")
    return False
