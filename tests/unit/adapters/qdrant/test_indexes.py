"""Which payload indexes there are: what is asked in every search must not be looked up
in the payloads of all candidates.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from memory.adapters.qdrant.edge import EdgeEngine
from memory.adapters.qdrant.store import QdrantStore
from memory.ports.candidates import Candidates, Neighbourhood
from memory.ports.collections import Field, FieldType
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.support import HERE, T0, apply_all, id_of, put, query_ids, record
from memory.ports.query import Ge, Gt, IsNull, Or, Order, within

pytestmark = pytest.mark.backend("qdrant_edge")


def _indexed(store: QdrantStore) -> set[str]:
    assert isinstance(store.engine, EdgeEngine)
    return set(store.engine.open_shard.info().payload_schema)


async def test_every_moment_has_an_index_also_one_that_is_declared_later(folder: Path) -> None:
    """The ends of validity and of a record: "empty or later" is asked of both in every
    search.
    """
    store = QdrantStore(f"qdrant+edge:///{folder}")
    await store.open((SAMPLES,))
    moments = {f"samples.{f.name}" for f in SAMPLES.fields if f.type is FieldType.TIME} | {
        "expires_at",
        "discard_at",
        "created_at",
        "updated_at",
    }
    assert {"samples.valid_from"} <= moments <= _indexed(store)
    ends = {1: T0, 2: T0 + timedelta(days=1)}
    await apply_all(
        store, *[put(record(n, fields={"valid_from": ends[n]} if n in ends else {})) for n in range(4)]
    )
    assert await query_ids(store, part=Or((IsNull("valid_from"), Gt("valid_from", T0)))) == [
        id_of(n) for n in (0, 2, 3)
    ]
    assert await query_ids(store, part=Or((IsNull("valid_from"), Ge("valid_from", T0)))) == [
        id_of(n) for n in range(4)
    ]
    assert await query_ids(store, order=(Order("valid_from", descending=True),)) == [
        id_of(n) for n in (2, 1, 3, 0)
    ]
    await store.close()
    later = replace(
        SAMPLES,
        fields=(
            *SAMPLES.fields,
            Field("due", FieldType.TIME),
            Field("place", FieldType.INTEGER, indexed=True),
        ),
    )
    await store.open((later,))
    assert {"samples.due", "samples.place"} <= _indexed(store)
    await apply_all(store, put(record(9, fields={"due": T0}), collection=later))
    assert await query_ids(store, part=Or((IsNull("due"), Gt("due", T0))), collection=later) == [
        id_of(n) for n in range(4)
    ]
    await store.close()


async def test_every_field_of_an_index_over_several_has_one(folder: Path) -> None:
    """What stands beside a candidate is asked by its group and its numbers together;
    folders made before get theirs when they are opened.
    """
    store = QdrantStore(f"qdrant+edge:///{folder}")
    earlier = replace(SAMPLES, fields=(*SAMPLES.fields, Field("place", FieldType.INTEGER)))
    await store.open((earlier,))
    assert not {"samples.source", "samples.place"} & _indexed(store)
    await apply_all(
        store, *[put(record(n, fields={"source": "chat", "place": n}), collection=earlier) for n in range(4)]
    )
    await store.close()
    later = replace(earlier, indexes=(("source", "place"),))
    await store.open((later,))
    assert {"samples.source", "samples.place"} <= _indexed(store)
    beside = Candidates(later, within(HERE), among=(id_of(0),), around=Neighbourhood("source", "place", 2))
    assert set((await store.candidates(beside)).ids) == {id_of(n) for n in range(3)}
    await store.close()
