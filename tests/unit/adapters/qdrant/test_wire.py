"""What goes over the wire to a server: that every write is conditional on the state it was decided on, and where it goes.

The answers are made up: this proves what is asked, not what a server does with it (`test_server.py`, and the contract on `qdrant_server`).
"""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
import pytest_asyncio
from qdrant_client import AsyncQdrantClient

from memory.adapters.qdrant.keys import record_point
from memory.adapters.qdrant.store import QdrantStore
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import HERE, done, key_of, live, put, record, searched
from memory.ports.query import Near, Search, within
from memory.ports.record import Role, pack_vector
from memory.ports.writes import Absent, Annotate, AtVersion, Purge

pytestmark = pytest.mark.backend("qdrant_local")
POINT = record_point("samples", key_of(1))


class MadeUpServer:
    """Says yes to everything and remembers the last point it was given."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.point: dict[str, Any] | None = None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        body = json.loads(request.content) if request.content else {}
        self.asked.append((f"{request.method} {path}?{request.url.query.decode()}", body))
        if path == "/":
            return httpx.Response(200, json={"title": "qdrant", "version": "1.20.0"})
        return httpx.Response(200, json={"time": 0.0, "status": "ok", "result": self._result(request.method, path, body)})

    def _result(self, method: str, path: str, body: dict[str, Any]) -> Any:
        if path.endswith("/exists"):
            return {"exists": False}
        if path.endswith("/points/batch"):
            for operation in body["operations"]:
                if "upsert" in operation:
                    self.point = operation["upsert"]["points"][0]
                elif "overwrite_payload" in operation and self.point:
                    self.point["payload"] = operation["overwrite_payload"]["payload"]
                elif "delete" in operation:
                    self.point = None
            return [{"operation_id": 1, "status": "completed"} for _ in body["operations"]]
        if path.endswith("/points/query"):
            return {"points": [{"id": POINT, "version": 1, "score": 0.5, "payload": (self.point or {})["payload"]}]}
        if path.endswith("/points"):
            return [{"id": POINT, "payload": self.point["payload"]}] if self.point else []
        if method == "GET":
            return _INFO
        return {"operation_id": 1, "status": "completed"} if "/index" in path or "/vectors/" in path else True

    def operations(self) -> list[dict[str, Any]]:
        """The writes of the last batch."""
        bodies = [body for asked, body in self.asked if "/points/batch" in asked]
        operations: list[dict[str, Any]] = bodies[-1]["operations"]
        return operations

    def last(self, ending: str) -> dict[str, Any]:
        return next(body for asked, body in reversed(self.asked) if ending in asked)


_INFO: dict[str, Any] = {
    "status": "green",
    "optimizer_status": "ok",
    "segments_count": 1,
    "config": {
        "params": {"vectors": {}, "replication_factor": 2},
        "hnsw_config": {"m": 16, "ef_construct": 100, "full_scan_threshold": 1},
        "optimizer_config": {"deleted_threshold": 0.2, "vacuum_min_vector_number": 1, "default_segment_number": 0, "flush_interval_sec": 5},
    },
    "payload_schema": {},
}


@pytest.fixture
def server() -> MadeUpServer:
    return MadeUpServer()


@pytest_asyncio.fixture
async def store(server: MadeUpServer) -> Any:
    client = AsyncQdrantClient(host="made.up", check_compatibility=False, transport=httpx.MockTransport(server))
    opened = QdrantStore("qdrant://made.up?shard_key=eu&replication_factor=2&write_consistency_factor=2&exact=true", client=client)
    await opened.open(DECLARED)
    yield opened
    await opened.close()
    await client.close()


async def test_the_collection_is_made_as_configured_with_a_tenants_index(server: MadeUpServer, store: QdrantStore) -> None:
    made = server.last("PUT /collections/memory?")
    assert (made["replication_factor"], made["write_consistency_factor"], made["sharding_method"]) == (2, 2, "custom")
    assert made["sparse_vectors"] == {"words": {"modifier": "idf"}}
    assert server.last("/shards")["shard_key"] == "eu"
    indexes = {body["field_name"]: body["field_schema"] for asked, body in server.asked if "/index" in asked}
    assert indexes["partition"] == {"type": "keyword", "is_tenant": True}
    assert (indexes["rank"], indexes["samples.tags"]) == ("integer", "keyword")


async def test_a_new_record_is_inserted_only_where_nothing_is(server: MadeUpServer, store: QdrantStore) -> None:
    await done(store, put(record(vector=pack_vector([0.6, 0.8]), body={"big": 2**63 - 1}), Absent()))
    (operation,) = server.operations()
    assert (operation["upsert"]["update_mode"], operation["upsert"]["shard_key"]) == ("insert_only", "eu")
    assert server.last("/vectors/dense_2") == {"dense": {"size": 2, "distance": "Dot"}}
    batch = next(asked for asked, _ in server.asked if "/points/batch" in asked)
    assert "wait=true" in batch
    assert "ordering=strong" in batch
    assert (await live(store)).vector == pack_vector([0.6, 0.8])
    assert dict((await live(store)).body) == {"big": 2**63 - 1}


async def test_whatever_changes_a_record_is_conditional_on_its_token(server: MadeUpServer, store: QdrantStore) -> None:
    await done(store, put(record(role=Role.CACHED)))
    assert server.point is not None
    still = {"must": [{"has_id": [POINT]}, {"key": "token", "match": {"value": server.point["payload"]["token"]}}]}
    await done(store, put(record(version=2, role=Role.CACHED), AtVersion(1)))
    upsert = server.operations()[0]["upsert"]
    assert (upsert["update_mode"], upsert["update_filter"]) == ("update_only", still)

    still["must"][1]["match"]["value"] = server.point["payload"]["token"]  # type: ignore[index]
    await done(store, Annotate(SAMPLES, key_of(1), 2, tier="x"))
    overwrite = server.operations()[0]["overwrite_payload"]
    assert (overwrite["filter"], overwrite["shard_key"]) == (still, "eu")

    still["must"][1]["match"]["value"] = server.point["payload"]["token"]  # type: ignore[index]
    await done(store, Purge(SAMPLES, key_of(1), 2))
    assert server.operations()[0]["delete"] == {"filter": still, "shard_key": "eu"}


async def test_searches_ask_for_the_partitions_own_statistics_and_reads_for_a_majority(server: MadeUpServer, store: QdrantStore) -> None:
    await done(store, put(record(texts={"content": "lantern"}, vector=pack_vector([1.0]))))
    assert len(await searched(store, "lantern", limit=5)) == 1
    asked = server.last("/points/query")
    assert asked["params"]["idf"]["corpus"] == asked["filter"]
    assert asked["filter"]["must"][0] == {"key": "partition", "match": {"value": "samples/4/acme/user:ann"}}
    assert asked["shard_key"] == "eu"
    assert len(await store.search(Search(SAMPLES, within(HERE), Near(pack_vector([2.0])), 5))) in (0, 1)
    reads = [asked for asked, _ in server.asked if asked.startswith("POST") and ("/points?" in asked or "/query?" in asked)]
    assert reads
    assert all("consistency=majority" in asked for asked in reads)
