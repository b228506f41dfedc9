"""Candidates where the engine has less to go by than what is written now gives it."""

from __future__ import annotations

from typing import Any

from memory.adapters.qdrant.engine import PointChange
from memory.adapters.qdrant.keys import record_point
from memory.adapters.qdrant.store import QdrantStore
from memory.ports.candidates import Candidates, Statistics
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.support import HERE, apply_all, key_of, put, record
from memory.ports.query import within

ASKED = Candidates(SAMPLES, within(HERE), "lantern", counted=("lantern", "harbour"))
FOUND = Statistics(6, 7, {"lantern": 5, "harbour": 2})


async def _as_earlier_releases_wrote(store: QdrantStore, n: int) -> None:
    """Without the number of words."""
    point = record_point("samples", key_of(n))
    before = (await store.engine.retrieve([point]))[point]
    earlier: dict[str, Any] = {
        name: value for name, value in before.items() if name not in ("length", "token", "lineage")
    }
    assert await store.engine.commit([PointChange(point, before, earlier)]) == set()


async def test_statistics_are_right_also_of_what_has_no_number_of_words_until_an_audit_gives_it_one(
    either: QdrantStore,
) -> None:
    said = ["lantern", "lantern", "lantern", "lantern harbour", "harbour lantern", ""]
    await apply_all(
        either, *[put(record(n, texts={"content": text} if text else {})) for n, text in enumerate(said)]
    )
    assert (await either.candidates(ASKED)).statistics == FOUND
    for n in (0, 3, 5):
        await _as_earlier_releases_wrote(either, n)
    assert (await either.candidates(ASKED)).statistics == FOUND
    assert len((await either.audit(repair=True)).problems) == 3
    assert (await either.audit()).problems == ()
    assert (await either.candidates(ASKED)).statistics == FOUND
