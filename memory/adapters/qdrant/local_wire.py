"""The client's local mode behind a server's requests, for tests and trials.

Each body is parsed from JSON into the client's models, which reject unknown fields.
"""

from __future__ import annotations

import json
from typing import Any

from qdrant_client import AsyncQdrantClient, models

_OPERATIONS: dict[str, Any] = {
    "upsert": models.UpsertOperation,
    "overwrite_payload": models.OverwritePayloadOperation,
    "delete": models.DeleteOperation,
}
_DONE = {"operation_id": 0, "status": "completed"}


class LocalWire:
    """Answers requests from the memory of a client. The data stays in the client."""

    def __init__(self, client: AsyncQdrantClient, collection: str) -> None:
        self._client = client
        self._collection = collection

    async def version(self) -> str:
        return (await self._client.info()).version

    async def close(self) -> None:
        """Keep the client open: closing it would delete its data."""

    async def send(self, method: str, path: str, body: bytes, parameters: dict[str, str]) -> dict[str, Any]:
        asked = json.loads(body) if body else {}
        return {"result": await self._answer(method, path, asked)}

    async def _answer(self, method: str, path: str, asked: dict[str, Any]) -> Any:
        client, name = self._client, self._collection
        match method, path:
            case "GET", "/exists":
                return {"exists": await client.collection_exists(name)}
            case "GET", "":
                return (await client.get_collection(name)).model_dump(mode="json")
            case "PUT", "":
                words = {
                    n: models.SparseVectorParams.model_validate(p) for n, p in asked["sparse_vectors"].items()
                }
                return await client.create_collection(name, vectors_config={}, sparse_vectors_config=words)
            case "PUT", _ if path.startswith("/vectors/"):
                config = models.DenseVectorNameConfig.model_validate(asked)
                await client.create_vector_name(name, path.removeprefix("/vectors/"), config)
                return _DONE
            case "POST", "/points":
                request = models.PointRequest.model_validate(asked)
                found = await client.retrieve(
                    name, request.ids, request.with_payload or False, request.with_vector or False
                )
                return [_point_to_json(record) for record in found]
            case "POST", "/points/scroll":
                return await self._scroll(models.ScrollRequest.model_validate(asked))
            case "POST", "/points/count":
                count = models.CountRequest.model_validate(asked)
                return (await client.count(name, count.filter, exact=True)).model_dump()
            case "POST", "/facet":
                facet = models.FacetRequest.model_validate(asked)
                answer = await client.facet(name, facet.key, facet.filter, facet.limit or 10, exact=True)
                return answer.model_dump()
            case "POST", "/points/query/batch":
                batch = models.QueryRequestBatch.model_validate(asked)
                answers = await client.query_batch_points(name, batch.searches)
                return [{"points": [_point_to_json(point) for point in a.points]} for a in answers]
            case "POST", "/points/batch":
                operations = [_OPERATIONS[next(iter(o))].model_validate(o) for o in asked["operations"]]
                await client.batch_update_points(name, operations)
                return [_DONE for _ in operations]
        raise NotImplementedError(f"{method} {path}")

    async def _scroll(self, asked: models.ScrollRequest) -> Any:
        records, following = await self._client.scroll(
            self._collection,
            asked.filter,
            asked.limit or 10,
            asked.order_by,
            asked.offset,
            with_payload=asked.with_payload if asked.with_payload is not None else True,
            with_vectors=asked.with_vector or False,
        )
        return {"points": [_point_to_json(record) for record in records], "next_page_offset": following}


def _point_to_json(point: models.Record | models.ScoredPoint) -> dict[str, Any]:
    """Convert a point to the server's JSON."""
    told: dict[str, Any] = {"id": point.id, "payload": point.payload}
    if isinstance(point.vector, dict):
        told["vector"] = {
            name: v.model_dump() if isinstance(v, models.SparseVector) else v
            for name, v in point.vector.items()
        }
    if point.order_value is not None:
        told["order_value"] = point.order_value
    if isinstance(point, models.ScoredPoint):
        told["score"] = point.score
    return told
