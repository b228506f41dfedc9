"""What a Qdrant server says on the wire, where no server can be had.

`StandIn` answers HTTP requests from the memory of `qdrant-client`, and keeps what that
leaves out: the collection's settings, shard keys, payload indexes, strict mode. It
keeps every request, and a test may let it fail.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, unquote

import httpx
from qdrant_client import AsyncQdrantClient

from memory.adapters.qdrant.local_wire import LocalWire
from memory.adapters.qdrant.store import QdrantStore

_RANGES = {"integer", "float"}


@dataclass(frozen=True)
class Request:
    """One request: `path` is what follows the collection's name."""

    method: str
    path: str
    parameters: dict[str, list[str]]
    sent: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.sent) if self.sent else {}


Failing = Callable[[Request], httpx.Response | Exception | None]


def failure(status: int, said: str, **headers: str) -> httpx.Response:
    """A refusal, as the server words it."""
    return httpx.Response(status, json={"status": {"error": said}, "time": 0.0}, headers=headers)


class StandIn:
    """A server with one collection. Without `params` the collection is not there yet."""

    def __init__(self, params: dict[str, Any] | None = None, strict: dict[str, Any] | None = None) -> None:
        self.params = params
        self.strict = strict
        self.shard_keys: list[str] = []
        self.indexes: dict[str, Any] = {}
        self.requests: list[Request] = []
        self.failing: Failing = lambda _request: None
        self.stops_at: int | None = None
        """The number of the operation of a batch at which the server finds its disk
        full.
        """
        self.full = failure(
            500,
            "Service internal error: No space left on device: WAL buffer size exceeds available disk space",
        )
        self.version = "1.20.0"
        self._local = LocalWire(AsyncQdrantClient(location=":memory:"), "memory")
        self._made = False

    # -- for tests ---------------------------------------------------------------------

    def client(self) -> AsyncQdrantClient:
        return AsyncQdrantClient(
            host="stand.in", check_compatibility=False, transport=httpx.MockTransport(self)
        )

    def store(self, url: str = "qdrant://stand.in", **options: Any) -> QdrantStore:
        return QdrantStore(url, client=self.client(), **options)

    def asked(self, path: str) -> list[Any]:
        """The bodies of the requests to this path."""
        return [request.body for request in self.requests if request.path == path]

    def operations(self) -> list[dict[str, Any]]:
        """The writes of the last batch."""
        operations: list[dict[str, Any]] = self.asked("/points/batch")[-1]["operations"]
        return operations

    # -- answering ---------------------------------------------------------------------

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        path = unquote(request.url.path)
        about = path.removeprefix("/collections/memory") if path.startswith("/collections/") else path
        asked = Request(request.method, about, parse_qs(request.url.query.decode()), request.content)
        self.requests.append(asked)
        failed = self.failing(asked)
        if isinstance(failed, Exception):
            raise failed
        if failed is not None:
            return failed
        if path == "/":
            return httpx.Response(200, json={"title": "qdrant", "version": self.version})
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", UserWarning
            )  # the client's memory knows no vector index that `exact` could leave out
            answer = await self._answer(asked)
        return answer if isinstance(answer, httpx.Response) else _done(answer)

    async def _answer(self, asked: Request) -> Any:
        match asked.method, asked.path:
            case "GET", "/exists":
                return {"exists": self.params is not None}
            case "PUT", "":
                if self.params is not None:
                    return failure(409, "Wrong input: Collection `memory` already exists!")
                self.params = asked.body
                return True
            case _ if self.params is None:
                return failure(404, "Not found: Collection `memory` doesn't exist!")
            case "GET", "/shards":
                return {"shard_keys": [{"key": key} for key in self.shard_keys]}
            case "PUT", "/shards":
                self.shard_keys.append(asked.body["shard_key"])
                return True
            case "PUT", "/index":
                self.indexes[asked.body["field_name"]] = asked.body["field_schema"]
                return {"operation_id": 0, "status": "completed"}
        return await self._of_the_points(asked)

    async def _of_the_points(self, asked: Request) -> Any:
        if not self._made:
            await self._local.send(
                "PUT", "", json.dumps({"sparse_vectors": {"words": {"modifier": "idf"}}}).encode(), {}
            )
            self._made = True
        if (unindexed := self._unindexed(asked)) is not None:
            return failure(400, f'Bad request: Index required but not found for "{unindexed}"')
        if (problem := self._too_large(asked.body)) is not None:
            return failure(400, f"Bad request: {problem}")
        if asked.method == "GET":
            return await self._told()
        if asked.path == "/points/batch" and self.stops_at is not None:
            first = json.dumps({"operations": asked.body["operations"][: self.stops_at]}).encode()
            await self._local.send(asked.method, asked.path, first, {})
            return self.full
        return (await self._local.send(asked.method, asked.path, asked.sent, {}))["result"]

    async def _told(self) -> dict[str, Any]:
        info: dict[str, Any] = (await self._local.send("GET", "", b"", {}))["result"]
        params = {**(self.params or {}), "vectors": info["config"]["params"]["vectors"]}
        return {
            "config": {"params": params, "strict_mode_config": self.strict},
            "payload_schema": dict(self.indexes),
        }

    def _too_large(self, asked: Any) -> str | None:
        """Which limit of strict mode a filter in the request is over."""
        limits = self.strict if self.strict and self.strict.get("enabled") else {}
        for conditions in _filters_of(asked):
            if len(conditions) > (limits.get("filter_max_conditions") or len(conditions)):
                return f"Filter condition limit: {len(conditions)}"
            largest = max(
                (len(c.get("has_id") or c.get("match", {}).get("any") or ()) for c in conditions), default=0
            )
            if largest > (limits.get("condition_max_size") or largest):
                return f"Condition size limit: {largest}"
        return None

    def _unindexed(self, asked: Request) -> str | None:
        """What the request filters, orders or counts by without an index of the kind it
        takes.
        """
        if not self.strict or not self.strict.get("enabled"):
            return None
        for path, kinds in _filtered(asked.body):
            schema = self.indexes.get(path)
            kind = schema["type"] if isinstance(schema, dict) else schema
            if kind is None or (kinds and kind not in kinds):
                return path
        return None


def _done(result: Any) -> httpx.Response:
    return httpx.Response(200, json={"time": 0.0, "status": "ok", "result": result})


_CLAUSES = ("must", "should", "must_not")


def _filters_of(asked: Any) -> Iterator[list[dict[str, Any]]]:
    """The conditions of each filter in a request, nested ones counted with the filter
    that they are in.
    """
    if isinstance(asked, list):
        for part in asked:
            yield from _filters_of(part)
    elif isinstance(asked, dict):
        if any(clause in asked for clause in _CLAUSES):
            yield list(_leaves(asked))
        else:
            for part in asked.values():
                yield from _filters_of(part)


def _leaves(condition: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if not any(clause in condition for clause in _CLAUSES):
        yield condition
    for clause in _CLAUSES:
        for inner in condition.get(clause) or ():
            yield from _leaves(inner)


def _filtered(asked: Any) -> Iterator[tuple[str, set[str]]]:
    """The paths by which a request filters, orders and counts, and the kinds of index
    that serve; any for none.
    """
    if isinstance(asked, list):
        for part in asked:
            yield from _filtered(part)
    elif isinstance(asked, dict):
        if "match" in asked:
            values = asked["match"].get("any") or [asked["match"].get("value")]
            yield asked["key"], {"integer"} if isinstance(values[0], int) else {"keyword"}
        elif "range" in asked:
            yield asked["key"], _RANGES
        elif "is_empty" in asked:
            yield asked["is_empty"]["key"], set()
        elif "direction" in asked:
            yield asked["key"], _RANGES
        elif "key" in asked and "exact" in asked:
            yield asked["key"], set()
        for name, part in asked.items():
            if name not in ("payload", "vector", "points", "query"):
                yield from _filtered(part)
