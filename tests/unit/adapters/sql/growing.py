"""Tables with records that are given more fields, and an order more: what every dialect's tests ask of them."""

from __future__ import annotations

from dataclasses import replace

from memory.ports.collections import Field, FieldType
from memory.ports.contract.collections import DECLARED, MORE_SAMPLES, SAMPLES
from memory.ports.contract.support import HERE, asked, delete, done, id_of, put, record
from memory.ports.query import Eq, IsNull, Query, Search, Words, within
from memory.ports.record import Role
from memory.ports.store import Store

GROWN = replace(
    SAMPLES,
    fields=(Field("colour", FieldType.TEXT, indexed=True), *SAMPLES.fields, Field("weight", FieldType.REAL)),
    indexes=(*SAMPLES.indexes, ("colour", "weight")),
)
IN_ORDER = replace(MORE_SAMPLES, orders=("updated_at",))
WIDE = (GROWN, IN_ORDER, *[c for c in DECLARED if c.name not in (GROWN.name, IN_ORDER.name)])
FILLED = 600


async def fill(store: Store) -> list[tuple[str, float]]:
    """Records of several kinds, some of them edited and deleted; what a search finds of them, with its scores."""
    fields = {"type": "fact", "tags": ("a", "b"), "confidence": 0.5}
    roles = [Role.HOME] * 9 + [Role.REPLICA]
    writes = [
        put(record(n, fields=fields, texts={"title": f"number{n}", "content": "lantern " * (n % 7)}, role=roles[n % 10])) for n in range(FILLED)
    ]
    await done(store, *writes, *[put(record(n, version=2, fields=fields, texts={"title": "edited"})) for n in range(0, 50, 5)], delete(7))
    return await scores(store)


async def scores(store: Store) -> list[tuple[str, float]]:
    hits = await store.search(Search(SAMPLES, within(HERE), Words("lantern edited"), 1_000))
    return [(hit.head.key.id, round(hit.score, 9)) for hit in hits]


async def judge(store: Store, before: list[tuple[str, float]]) -> None:
    """A store opened with `WIDE` on what `fill` wrote: nothing is lost, what is derived is right, new fields are filtered by."""
    assert await scores(store) == before, "words and statistics are as they were"
    assert (await store.count(Query(GROWN, within(HERE), IsNull("colour"), roles=frozenset(Role)))).records == FILLED - 1
    await done(store, put(record(1_000, fields={"colour": "red", "weight": 0.1, "type": "fact"}, texts={"content": "lantern"}), collection=GROWN))
    assert await asked(store, part=Eq("colour", "red"), collection=GROWN) == [id_of(1_000)]
    assert await asked(store, part=Eq("weight", 0.1), collection=GROWN) == [id_of(1_000)]
    assert len(await asked(store, part=Eq("type", "fact"), collection=GROWN, limit=1_000)) > 500
    assert len(await scores(store)) == len(before) + 1
    assert (await store.audit()).problems == ()
    assert (await store.check()).ok
