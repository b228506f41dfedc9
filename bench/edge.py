"""A search by vector in Qdrant Edge, through the adapter and by Edge alone, on the same
points.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.measure import Figure, side_by_side
from bench.texts import sentences
from memory.adapters.qdrant.store import QdrantStore
from memory.domain.ids import new_id
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.storage.kinds import KINDS
from memory.ports.query import Eq, Near, Search, within
from memory.ports.record import FieldValue, Key, Partition, Record, pack_vector
from memory.ports.writes import Newer, Put

POINTS, SCOPES, DIMENSIONS = 10_000, 50, 256
AT_ONCE = 500
SEARCHES = 200
LIMIT = 10
START = datetime(2024, 1, 1, tzinfo=UTC)
HEADER_ONLY = "Edge, search by vector and filter, as retrieval asks for it (headers)"
WHOLE = "Edge, the same with whole records, each checked"


def _unit(chance: random.Random) -> list[float]:
    numbers = [chance.gauss(0, 1) for _ in range(DIMENSIONS)]
    length = sum(n * n for n in numbers) ** 0.5
    return [n / length for n in numbers]


def _record(n: int, content: str, chance: random.Random) -> Record:
    scope, at = f"user:{n % SCOPES}", START + timedelta(seconds=n)
    key = Key("acme", new_id("acme", scope, n * 1_000_000, chance.getrandbits))
    fields: dict[str, FieldValue] = {"type": "fact", "tags": ("a", "b"), "source": "talk"}
    texts = {"content": content, "title": content[:20]}
    return Record(
        key, scope, n + 1, at, at, None, fields, {"content": content}, texts, pack_vector(_unit(chance))
    )


async def searches(folder: Path, rounds: int) -> list[Figure]:
    if find_spec("qdrant_edge") is None:
        return [
            Figure(name, None, "ms", ratio_target=1.5, note="qdrant-edge-py is not installed")
            for name in (HEADER_ONLY, WHOLE)
        ]
    chance = random.Random(11)  # noqa: S311
    store = QdrantStore(f"qdrant+edge:///{folder / 'edge'}")
    await store.open(KINDS.collections)
    contents = sentences(POINTS, seed=11)
    for start in range(0, POINTS, AT_ONCE):
        await store.apply(
            [Put(ENTRIES, _record(n, contents[n], chance), Newer()) for n in range(start, start + AT_ONCE)]
        )
    asked = [_unit(chance) for _ in range(SEARCHES * rounds)]
    packed = [pack_vector(vector) for vector in asked]
    here, part = within(Partition("acme", "user:7")), Eq("type", "fact")
    engine: Any = store.engine

    async def headers(n: int) -> None:
        await store.search(Search(ENTRIES, here, Near(packed[n]), LIMIT, part))

    async def whole(n: int) -> None:
        hits = await store.search(Search(ENTRIES, here, Near(packed[n]), LIMIT, part))
        await store.get(ENTRIES, [hit.head.key for hit in hits])

    async def raw(n: int) -> None:
        _raw(engine._shard, asked[n])

    headers_s, whole_s, raw_s = await side_by_side(len(asked), headers, whole, raw)
    await store.close()
    return [
        Figure(HEADER_ONLY, headers_s * 1000, "ms", raw=raw_s * 1000, ratio_target=1.5),
        Figure(WHOLE, whole_s * 1000, "ms", raw=raw_s * 1000, ratio_target=1.5),
    ]


def _raw(shard: Any, vector: list[float]) -> list[tuple[Any, float, Any]]:
    """The same search with nothing but Edge: ids, scores and payloads."""
    import qdrant_edge as edge

    conditions = {"partition": "entries/4/acme/user:7", "role": "home", "entries.type": "fact"}
    must: list[Any] = [
        edge.FieldCondition(path, match=edge.MatchValue(value)) for path, value in conditions.items()
    ]
    query = edge.Query.Nearest(vector, using=f"dense_{DIMENSIONS}")
    found = shard.query(
        edge.QueryRequest(limit=LIMIT, query=query, filter=edge.Filter(must=must), with_payload=True)
    )
    return [(point.id, point.score, point.payload) for point in found]
