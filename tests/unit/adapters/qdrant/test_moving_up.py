"""What was gathered in Edge is moved to a server point by point, as it is: one design
of the data serves both.
"""

from __future__ import annotations

from typing import Any

import pytest
import qdrant_edge
from qdrant_client import models

from memory.adapters.qdrant.store import QdrantStore
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import (
    ELSEWHERE,
    HERE,
    apply_all,
    delete,
    hit_ids,
    id_of,
    key_of,
    one,
    put,
    query_ids,
    record,
)
from memory.ports.query import Near, Order, Search, within
from memory.ports.record import pack_vector
from memory.ports.writes import AtVersion, RaiseGeneration

pytestmark = [pytest.mark.backend("qdrant_edge"), pytest.mark.backend("qdrant_local")]


def _points(edge: QdrantStore) -> list[models.PointStruct]:
    """Every point of the folder with its vectors, read by Edge itself."""
    engine: Any = edge.engine
    records, _ = engine.shard.scroll(
        qdrant_edge.ScrollRequest(limit=1000, with_payload=True, with_vector=True)
    )
    return [
        models.PointStruct(
            id=str(r.id), payload=r.payload, vector={n: _vector(v) for n, v in (r.vector or {}).items()}
        )
        for r in records
    ]


def _vector(vector: Any) -> Any:
    return (
        vector
        if isinstance(vector, list)
        else models.SparseVector(indices=vector.indices, values=vector.values)
    )


async def test_points_of_an_edge_folder_are_a_servers_points(edge: QdrantStore) -> None:
    wrote = [
        record(n, texts={"content": "lantern"}, vector=pack_vector([1.0, n]), generation=0) for n in range(5)
    ]
    await apply_all(edge, *[put(r) for r in wrote], delete(3, version=9), RaiseGeneration(ELSEWHERE, 4))
    before = await edge.get(SAMPLES, [key_of(n) for n in range(5)])
    server = QdrantStore("qdrant://:memory:")
    await server.open(DECLARED)
    client: Any = server.engine
    dense = models.DenseVectorNameConfig(dense=models.DenseVectorConfig(size=2, distance=models.Distance.DOT))
    await client.client.create_vector_name("memory", "dense_2", dense)
    await client.client.upsert("memory", _points(edge))

    assert await server.get(SAMPLES, [key_of(n) for n in range(5)]) == before
    assert await hit_ids(server, "lantern") == {id_of(n) for n in (0, 1, 2, 4)}
    assert [
        h.head.key
        for h in await server.search(Search(SAMPLES, within(HERE), Near(pack_vector([1.0, 4.0])), 1))
    ] == [key_of(4)]
    assert await query_ids(server, order=(Order("created_at", True),)) == [id_of(n) for n in (4, 2, 1, 0)]
    assert (await one(server, RaiseGeneration(ELSEWHERE, 0))).number == 4
    await apply_all(server, put(record(1, version=2), AtVersion(1)), delete(2, version=7))
    await server.close()
