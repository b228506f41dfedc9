"""Compares derived data with the records, and rebuilds it.

For each point with a valid checksum, these must hold:

- The point is that of its key. `partition`, `ancestors`, `rank`, `owing`, `bytes`,
  `counted`, `length` and `untagged` of its payload equal newly computed ones.
- The engine's real numbers (`reals`) exist for exactly the real fields. They may differ
  from the fields only by rounding (`rounding`).
- `words` are the words of its texts, each once, with their weights. Only live records
  have words.
- There is one dense vector, that of the record and with its dimensions, if the record
  has a vector.

The engine counts the rarity of words at each query. Generations and counters are not
derived from anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

from memory.adapters.qdrant.batch import change_to
from memory.adapters.qdrant.codec import REALS, Payload, held_in
from memory.adapters.qdrant.engine import WORDS, Engine, FullPoint, PointChange, Sparse, Vectors, dense_name
from memory.adapters.qdrant.keys import record_point
from memory.adapters.qdrant.rounding import stands_for
from memory.ports import lexical
from memory.ports.collections import Collection
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.rows import RECORD, Row
from memory.ports.store import Audit

_NOT_COMPARED = (REALS, "checksum", "token", "lineage")
_CLOSE = 1e-5
"""Tolerance, because vectors are stored as 32-bit floats."""


async def audit(engine: Engine, collections: Mapping[str, Collection], repair: bool) -> Audit:
    """Check every point.

    With `repair`, a wrong point is written again from its record, unless it has
    changed.
    """
    problems: list[str] = []
    checked, after = 0, None
    while True:
        async with engine.turn:
            found, after = await engine.whole(engine.thresholds.audited_at_once, after)
            changes = []
            async for point in iterate_cooperatively(found):
                collection = collections.get(str(point.payload.get("collection")))
                if collection is None:
                    continue
                row = held_in(collection, point.payload).row
                if row is None:
                    continue  # reported and repaired elsewhere: nothing can be derived from it
                checked += 1
                if point.point != record_point(collection.name, row.key):
                    problems.append(
                        f"{collection.name} {row.key.id}: is at another point than its own"
                    )  # reported, not changed: it may be the only copy
                    continue
                change = change_to(
                    collection, point.point, point.payload, row._replace(words=_words(collection, row))
                )
                wrong = [f"{collection.name} {row.key.id}: {problem}" for problem in _problems(point, change)]
                problems += wrong
                if wrong:
                    changes.append(change)
            if repair and changes:
                await engine.commit(changes)
        if after is None:
            return Audit(checked, tuple(problems))
        await asyncio.sleep(0)


def _words(collection: Collection, row: Row) -> bytes | None:
    return lexical.index(collection, row.texts) if row.type == RECORD and collection.texts else None


def _problems(point: FullPoint, wanted: PointChange) -> Iterator[str]:
    expected, payload = wanted.payload or {}, point.payload
    names = {*expected, *payload}.difference(_NOT_COMPARED)
    if differing := sorted(name for name in names if expected.get(name) != payload.get(name)):
        yield f"its {', '.join(differing)} in the payload differ from those of the record"
    if not _same_reals(expected, payload):
        yield "the engine's real numbers differ from its fields"
    vectors = wanted.vectors or Vectors()
    if not _same_words(vectors.words, point.vectors.get(WORDS)):
        yield "its words are not those of its texts"
    if not _same_dense(
        vectors.dense, {name: vector for name, vector in point.vectors.items() if name != WORDS}
    ):
        yield "its vector is not the record's"


def _same_reals(expected: Payload, payload: Payload) -> bool:
    wanted, there = expected.get(REALS) or {}, payload.get(REALS) or {}
    return (
        isinstance(there, dict)
        and wanted.keys() == there.keys()
        and all(stands_for(there[name], number) for name, number in wanted.items())
    )


def _same_words(wanted: Sparse | None, there: Any) -> bool:
    mine = {} if wanted is None else dict(zip(wanted.indices, wanted.values, strict=True))
    theirs = dict(zip(there.indices, there.values, strict=True)) if isinstance(there, Sparse) else {}
    once = not isinstance(there, Sparse) or len(theirs) == len(there.indices)
    return (
        once
        and mine.keys() == theirs.keys()
        and all(abs(theirs[index] - value) <= _CLOSE * value for index, value in mine.items())
    )


def _same_dense(wanted: list[float] | None, there: Mapping[str, Any]) -> bool:
    if wanted is None:
        return not there
    vector = there.get(dense_name(len(wanted)))
    return (
        len(there) == 1
        and isinstance(vector, list)
        and len(vector) == len(wanted)
        and all(abs(a - b) <= _CLOSE for a, b in zip(vector, wanted, strict=True))
    )
