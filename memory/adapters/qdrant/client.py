"""Engine for a Qdrant server or the client's local mode, through the REST interface.

Other clients write at the same time. A server acknowledges a conditional write even if
its condition failed. So every write stores its own token in the payload, and its
condition is the token of the state on which it was decided. The server compares and
writes in one step. Then the point is read. The write was applied if its token is there,
or among the tokens that later writers found there (`lineage`). Otherwise it is decided
again.

Reads use one replica, and writes use strong ordering: one leader of a shard decides all
of them. Majority reads failed while one of two replicas was down, and missed records
during updates.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, TypeVar

from qdrant_client import AsyncQdrantClient
from qdrant_client.http.exceptions import UnexpectedResponse

from memory.adapters.qdrant.client_conditions import ClientConditions, whole_if_possible
from memory.adapters.qdrant.client_errors import UnconfirmedWrite, is_servers_answer, translate_client
from memory.adapters.qdrant.client_opening import dimensions_of, make_ready
from memory.adapters.qdrant.codec import REALS, Payload
from memory.adapters.qdrant.config import ServerConfig
from memory.adapters.qdrant.engine import (
    MOST_VALUES,
    WORDS,
    Conditions,
    FoundPoint,
    FullPoint,
    Index,
    PointChange,
    PointQuery,
    QdrantCondition,
    Sparse,
    Vectors,
    dense_name,
)
from memory.adapters.qdrant.errors import PartialBatch
from memory.adapters.qdrant.local_wire import LocalWire
from memory.adapters.qdrant.rounding import bound_beyond
from memory.adapters.qdrant.wire import ServerWire, Wire, ask, encode_body
from memory.domain.errors import NotOpen
from memory.ports.collections import FieldType

T = TypeVar("T")

LINEAGE = 64
"""Earlier tokens that a point keeps.

This many writers may write between a write and its read.
"""
_DECIDED = {"wait": "true", "ordering": "strong"}


class ClientEngine:
    """One collection of a server. An injected client is never closed."""

    conditions: Conditions = ClientConditions()
    alone = False
    turn: AbstractAsyncContextManager[None] = nullcontext()

    def __init__(self, name: str, config: ServerConfig, client: AsyncQdrantClient | None = None) -> None:
        self._name, self._config, self.thresholds = name, config, config.thresholds
        self._injected = client is not None
        self.client = client
        self._wire: Wire | None = None
        self._dimensions: set[int] = set()
        self._shards: dict[str, Any] = {} if config.shard_key is None else {"shard_key": config.shard_key}
        self._queries_at_once = MOST_VALUES
        self.exact_statistics = True
        self.epoch = ""

    # -- life --------------------------------------------------------------------------

    async def open(self, indexes: Sequence[Index], look: Callable[[], Awaitable[None]]) -> None:
        config = self._config
        if self.client is None:
            self.client = AsyncQdrantClient(
                **({"location": ":memory:"} if config.host is None else _address(config)),
                timeout=config.timeout,
                check_compatibility=False,
            )
        local = config.host is None
        self._wire = (
            LocalWire(self.client, config.collection) if local else ServerWire(self.client, config.collection)
        )
        try:
            found = await make_ready(self._name, config, self._wire, self._ask, indexes, look)
        except BaseException:
            await self.close()
            raise
        self._dimensions = found.dimensions
        self.exact_statistics = found.exact_statistics
        self._queries_at_once = found.queries_at_once or MOST_VALUES
        self.conditions = ClientConditions(found.values_in_one, found.conditions_in_one)
        if local:
            self.epoch = self.epoch or secrets.token_hex(8)

    async def close(self) -> None:
        """Close the connection. The local mode's data stays in the client."""
        self._wire = None
        if self._injected or self._config.host is None:
            return
        client, self.client = self.client, None
        if client is not None:
            await client.close()

    async def version(self) -> str:
        version = await self._open_wire.version()
        await self._look()
        return (
            f"Qdrant {version}" if self._config.host is not None else f"local mode of qdrant-client {version}"
        )

    @property
    def _open_wire(self) -> Wire:
        if self._wire is None:
            raise NotOpen(f"store '{self._name}'")
        return self._wire

    async def _ask(self, method: str, path: str, body: Any, read: Callable[[Any], T], **parameters: str) -> T:
        """Send a request about the collection, and return `read` of its answer.

        `body` is JSON text or a value to encode.
        """
        sent = body if isinstance(body, bytes) else encode_body(body) if body is not None else b""
        return await ask(self._open_wire, self._config.timeout, (method, path, sent), parameters, read)

    async def _look(self) -> None:
        """Learn which vectors the collection has."""
        self._dimensions = await self._ask("GET", "", None, dimensions_of)

    # -- reading -----------------------------------------------------------------------

    async def retrieve(self, points: Sequence[str], keys: Sequence[str] | None = None) -> dict[str, Payload]:
        found: dict[str, Payload] = {}
        for some in _chunks(points, self.thresholds.retrieved_at_once):
            body = {
                "ids": list(some),
                "with_payload": _payload_selector(keys),
                "with_vector": False,
                **self._shards,
            }
            found |= await self._ask("POST", "/points", body, _payloads)
        return found

    async def scroll(
        self, where: QdrantCondition, limit: int, after: Any = None, keys: Sequence[str] | None = None
    ) -> tuple[list[FoundPoint], Any]:
        records, following = await self._scroll(
            limit, {"filter": where, "with_payload": _payload_selector(keys)}, after
        )
        return [FoundPoint(r.get("payload") or {}, r["id"]) for r in records], following

    async def whole(self, limit: int, after: Any = None) -> tuple[list[FullPoint], Any]:
        records, following = await self._scroll(limit, {"with_payload": True, "with_vector": True}, after)
        return [
            FullPoint(str(r["id"]), r.get("payload") or {}, _parse_vectors(r.get("vector"))) for r in records
        ], following

    async def _scroll(
        self, limit: int, asked: dict[str, Any], after: Any
    ) -> tuple[list[dict[str, Any]], Any]:
        body = {**asked, "limit": limit, **self._shards, **({} if after is None else {"offset": after})}
        return await self._ask(
            "POST", "/points/scroll", body, lambda a: (list(a["points"]), a.get("next_page_offset"))
        )

    async def scroll_ordered(
        self, where: QdrantCondition, path: str, descending: bool, start: float | None, limit: int
    ) -> list[FoundPoint]:
        order: dict[str, Any] = {"key": path, "direction": "desc" if descending else "asc"}
        if start is not None:
            real = path.startswith(f"{REALS}.")  # the server may round it to a neighbour
            edge = bound_beyond(start, FieldType.REAL, descending) if real else start
            order["start_from"] = whole_if_possible(edge)
        body = {"filter": where, "limit": limit, "order_by": order, "with_payload": True, **self._shards}
        return await self._ask(
            "POST",
            "/points/scroll",
            body,
            lambda a: [FoundPoint(r.get("payload") or {}, r["order_value"]) for r in a["points"]],
        )

    async def count(self, where: QdrantCondition) -> int:
        body = {"filter": where, "exact": True, **self._shards}
        return await self._ask("POST", "/points/count", body, lambda a: int(a["count"]))

    async def tally(self, path: str, where: QdrantCondition) -> dict[int, int]:
        body = {"key": path, "filter": where, "limit": MOST_VALUES, "exact": True, **self._shards}
        return await self._ask(
            "POST", "/facet", body, lambda a: {int(hit["value"]): int(hit["count"]) for hit in a["hits"]}
        )

    async def values(self, path: str, where: QdrantCondition) -> list[str]:
        body = {"key": path, "filter": where, "limit": MOST_VALUES, "exact": True, **self._shards}
        return await self._ask("POST", "/facet", body, lambda a: [hit["value"] for hit in a["hits"]])

    async def ask(self, questions: Sequence[PointQuery]) -> list[list[FoundPoint]]:
        if {len(q.near) for q in questions if q.near is not None} - self._dimensions:
            await self._look()
        known = [q for q in questions if q.near is None or len(q.near) in self._dimensions]
        answers: list[list[FoundPoint]] = []
        for some in _chunks(known, self._queries_at_once):
            body = {"searches": [self._search(q) for q in some]}
            answers += await self._ask(
                "POST",
                "/points/query/batch",
                body,
                lambda a: [[_parse_point(p) for p in one["points"]] for one in a],
            )
        told = iter(answers)
        return [next(told) if q.near is None or len(q.near) in self._dimensions else [] for q in questions]

    def _search(self, question: PointQuery) -> dict[str, Any]:
        asked: dict[str, Any] = {
            "filter": question.where,
            "limit": question.limit,
            "with_payload": _payload_selector(question.keys),
            **self._shards,
        }
        if question.with_words:
            asked["with_vector"] = [WORDS]
        if question.near is not None:
            asked |= {"query": question.near, "using": dense_name(len(question.near))}
            if self._config.exact:
                asked["params"] = {"exact": True}
        elif question.words is not None:
            words = {"indices": question.words.indices, "values": question.words.values}
            asked |= {"query": words, "using": WORDS, "params": {"idf": {"corpus": question.corpus}}}
        return asked

    # -- writing -----------------------------------------------------------------------

    async def commit(
        self, changes: Sequence[PointChange], afterwards: dict[str, Payload | None] | None = None
    ) -> set[str]:
        await self._make_vectors(changes)
        lost: set[str] = set()
        kept = False
        for some in self._portions(changes):
            try:
                await self._ask("POST", "/points/batch", some.body, _must_be_completed, **_DECIDED)
            except Exception as exc:
                if kept or (is_servers_answer(exc) and await self._any_made(some)):
                    raise PartialBatch(
                        "Qdrant stopped in the middle of a call, and a part of it was kept; try again"
                    ) from exc
                raise
            made = await self._applied_points(some, {} if afterwards is None else afterwards)
            kept = kept or bool(made)
            lost |= some.tokens.keys() - made
        return lost

    async def _applied_points(self, portion: _RequestBatch, beside: dict[str, Payload | None]) -> set[str]:
        """Return the points whose changes were applied.

        The same request reads the points of `beside`.
        """
        standing = await self.retrieve(
            [*portion.tokens, *beside], ("token", "lineage", *(("number",) if beside else ()))
        )
        beside.update({point: standing.get(point) for point in beside})
        return {
            c.point for c in portion.changes if _was_made(c, portion.tokens[c.point], standing.get(c.point))
        }

    async def _any_made(self, portion: _RequestBatch) -> bool:
        """Whether anything of a refused portion was applied.

        A server stops at its first error and keeps earlier changes.
        """
        standing = await self.retrieve(list(portion.tokens), ("token", "lineage"))
        return any(
            c.point not in standing
            if c.payload is None
            else _was_made(c, portion.tokens[c.point], standing.get(c.point))
            for c in portion.changes
        )

    async def _make_vectors(self, changes: Sequence[PointChange]) -> None:
        missing = {
            len(c.vectors.dense) for c in changes if c.vectors is not None and c.vectors.dense is not None
        } - self._dimensions
        if not missing:
            return
        await self._look()
        for dimensions in missing - self._dimensions:
            config = {"dense": {"size": dimensions, "distance": "Dot"}}
            try:
                await self._ask("PUT", f"/vectors/{dense_name(dimensions)}", config, bool, wait="true")
            except UnexpectedResponse:
                await self._look()
                if dimensions not in self._dimensions:  # otherwise another client has just created it
                    raise
            self._dimensions.add(dimensions)

    def _portions(self, changes: Sequence[PointChange]) -> Iterator[_RequestBatch]:
        """Group the changes into requests of limited size, by their encoded size."""
        most, most_bytes = self.thresholds.changed_at_once, self.thresholds.changed_bytes_at_once
        portion = _RequestBatch()
        for change in changes:
            token = secrets.token_urlsafe(9)
            operation = encode_body(self._operation(change, token))
            if portion.changes and (
                len(portion.changes) == most or portion.size + len(operation) > most_bytes
            ):
                yield portion
                portion = _RequestBatch()
            portion.add(change, token, operation)
        if portion.changes:
            yield portion

    def _operation(self, change: PointChange, token: str) -> dict[str, Any]:
        """Encode the change as an operation, conditional on its decision's state."""
        if change.payload is None:
            return {"delete": {"filter": self._still(change), **self._shards}}
        payload = {**change.payload, "token": token, "lineage": _lineage(change.before)}
        if change.vectors is None:
            return {"overwrite_payload": {"payload": payload, "filter": self._still(change), **self._shards}}
        point = {"id": change.point, "vector": _vectors_to_json(change.vectors), "payload": payload}
        upsert: dict[str, Any] = {"points": [point], "update_mode": "insert_only", **self._shards}
        if change.before is not None:
            upsert |= {"update_mode": "update_only", "update_filter": self._still(change)}
        return {"upsert": upsert}

    def _still(self, change: PointChange) -> QdrantCondition:
        """Return the condition that the point has not changed since the decision."""
        token = (change.before or {}).get("token")
        same = self.conditions.missing("token") if token is None else self.conditions.equals("token", token)
        return self.conditions.every([self.conditions.points([change.point]), same])

    def translate(self, error: Exception) -> Exception | None:
        return translate_client(self._name, error)


class _RequestBatch:
    """Changes of one request, with their tokens and encoded operations."""

    def __init__(self) -> None:
        self.changes: list[PointChange] = []
        self.tokens: dict[str, str] = {}
        self.size = 0
        self._operations: list[bytes] = []

    def add(self, change: PointChange, token: str, operation: bytes) -> None:
        self.changes.append(change)
        self.tokens[change.point] = token
        self._operations.append(operation)
        self.size += len(operation) + 1

    @property
    def body(self) -> bytes:
        return b'{"operations":[' + b",".join(self._operations) + b"]}"


def _must_be_completed(results: Any) -> None:
    if any(result["status"] != "completed" for result in results):
        raise UnconfirmedWrite("the server accepted the write but did not confirm it in time; it may be kept")


def _address(config: ServerConfig) -> dict[str, Any]:
    return {
        "host": config.host,
        "port": config.port,
        "https": config.https,
        "prefix": config.prefix or None,
        "api_key": config.api_key,
    }


def _payload_selector(keys: Sequence[str] | None) -> bool | list[str]:
    return True if keys is None else list(keys) or False


def _chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _payloads(records: Any) -> dict[str, Payload]:
    return {str(r["id"]): r.get("payload") or {} for r in records}


def _parse_point(point: dict[str, Any]) -> FoundPoint:
    """Parse a point with its score, or with its id if nothing was ranked."""
    vector = point.get("vector")
    words = _parse_vectors(vector).get(WORDS) if vector else None
    return FoundPoint(
        point.get("payload") or {}, point["score"], words if isinstance(words, Sparse) else None
    )


def _vectors_to_json(vectors: Vectors) -> dict[str, Any]:
    named: dict[str, Any] = {}
    if vectors.words is not None:
        named[WORDS] = {"indices": vectors.words.indices, "values": vectors.words.values}
    if vectors.dense is not None:
        named[dense_name(len(vectors.dense))] = vectors.dense
    return named


def _parse_vectors(vectors: Any) -> dict[str, Sparse | list[float]]:
    named = vectors if isinstance(vectors, dict) else {}
    return {
        n: Sparse(list(v["indices"]), list(v["values"])) if isinstance(v, dict) else list(v)
        for n, v in named.items()
    }


def _lineage(before: Payload | None) -> list[str]:
    if before is None or before.get("token") is None:
        return []
    return [*before.get("lineage", ()), before["token"]][-LINEAGE:]


def _was_made(change: PointChange, token: str, standing: Payload | None) -> bool:
    """Whether the change was applied, judged by the stored payload."""
    if standing is None:
        return (
            change.payload is None
        )  # otherwise applied and removed, or never applied: decide again either way
    tokens = [*standing.get("lineage", ()), standing.get("token")]
    if change.payload is None:
        return (change.before or {}).get(
            "token"
        ) not in tokens  # otherwise it is unchanged, or others have overwritten it
    if token in tokens:
        return True
    if len(tokens) > LINEAGE and (change.before or {}).get("token") not in tokens:
        raise UnconfirmedWrite(
            "so many others wrote there at once that it is unknown whether this write was applied"
        )
    return False
