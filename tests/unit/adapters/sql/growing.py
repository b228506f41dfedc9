"""Tables with records that are given more fields, and an order more: what every
dialect's tests ask of them.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from memory.adapters.sql.columns import checksum_column
from memory.adapters.sql.declared import declaration
from memory.domain.errors import ConfigError
from memory.orchestrator.storage.collections import MESSAGES
from memory.ports.collections import Field, FieldType
from memory.ports.contract.collections import DECLARED, MORE_SAMPLES, SAMPLES
from memory.ports.contract.support import HERE, apply_all, delete, fetch_record, id_of, put, query_ids, record
from memory.ports.query import And, Eq, IsNull, Not, Or, Order, Query, Search, Words, within
from memory.ports.record import Role
from memory.ports.store import Store
from memory.ports.writes import Absent
from tests.support.processes import finished, started

GROWN = replace(
    SAMPLES,
    fields=(Field("colour", FieldType.TEXT, indexed=True), *SAMPLES.fields, Field("weight", FieldType.REAL)),
    indexes=(*SAMPLES.indexes, ("colour", "weight")),
)
IN_ORDER = replace(MORE_SAMPLES, orders=("updated_at",))
WIDE = (GROWN, IN_ORDER, *[c for c in DECLARED if c.name not in (GROWN.name, IN_ORDER.name)])
FILLED = 600
_OPEN = """
import asyncio, sys
from importlib import import_module
from tests.unit.adapters.sql.growing import WIDE
from memory.ports.contract.collections import DECLARED
async def main(module, kind, url, *wide):
    store = getattr(import_module(module), kind)(url)
    await store.open(WIDE if wide else DECLARED)
    print((await store.check()).ok)
    await store.close()
asyncio.run(main(*sys.argv[1:]))
"""


async def fill(store: Store) -> list[tuple[str, float]]:
    """Records of several kinds, some of them edited and deleted; what a search finds of
    them, with its scores.
    """
    fields = {"type": "fact", "tags": ("a", "b"), "confidence": 0.5}
    roles = [Role.HOME] * 9 + [Role.REPLICA]
    writes = [
        put(
            record(
                n,
                fields=fields,
                texts={"title": f"number{n}", "content": "lantern " * (n % 7)},
                role=roles[n % 10],
            )
        )
        for n in range(FILLED)
    ]
    await apply_all(
        store,
        *writes,
        *[put(record(n, version=2, fields=fields, texts={"title": "edited"})) for n in range(0, 50, 5)],
        delete(7),
    )
    return await scores(store)


async def scores(store: Store) -> list[tuple[str, float]]:
    hits = await store.search(Search(SAMPLES, within(HERE), Words("lantern edited"), 1_000))
    return [(hit.head.key.id, round(hit.score, 9)) for hit in hits]


async def judge(store: Store, before: list[tuple[str, float]]) -> None:
    """A store opened with `WIDE` on what `fill` wrote: nothing is lost, what is derived
    is right, new fields are filtered by.
    """
    assert await scores(store) == before, "words and statistics are as they were"
    assert (
        await store.count(Query(GROWN, within(HERE), IsNull("colour"), roles=frozenset(Role)))
    ).records == FILLED - 1
    await apply_all(
        store,
        put(
            record(
                1_000, fields={"colour": "red", "weight": 0.1, "type": "fact"}, texts={"content": "lantern"}
            ),
            collection=GROWN,
        ),
    )
    assert await query_ids(store, part=Eq("colour", "red"), collection=GROWN) == [id_of(1_000)]
    assert await query_ids(store, part=Eq("weight", 0.1), collection=GROWN) == [id_of(1_000)]
    assert len(await query_ids(store, part=Eq("type", "fact"), collection=GROWN, limit=1_000)) > 500
    assert len(await scores(store)) == len(before) + 1
    assert (await store.audit()).problems == ()
    assert (await store.check()).ok


async def judge_read_only(store: Store, before: list[tuple[str, float]]) -> None:
    """A store opened with `WIDE` on what `fill` wrote, which may not add the fields:
    they are absent in every record.
    """
    assert getattr(store, "reads_only", False)
    assert await scores(store) == before
    assert (await store.get(GROWN, [record(1).key]))[0] is not None
    everybody = frozenset(Role)
    assert (
        await store.count(Query(GROWN, within(HERE), IsNull("colour"), roles=everybody))
    ).records == FILLED - 1
    assert await query_ids(store, part=Eq("colour", "red"), collection=GROWN) == []
    red = Or((Eq("type", "fact"), Eq("colour", "red")))
    assert (
        len(await query_ids(store, part=And((red, Not(Eq("weight", 0.1)))), collection=GROWN, limit=1_000))
        > 500
    )
    for order in (Order("colour"), Order("weight", descending=True)):
        query = Query(GROWN, within(HERE), order=(order,), limit=100)
        first = await store.query(query)
        second = await store.query(replace(query, cursor=first.cursor))
        assert len({row.key for row in (*first.records, *second.records)}) == 200
        heads = (await store.query(replace(query, select=frozenset({"colour", "type"})))).heads
        assert {head.fields.get("colour") for head in heads} == {None}
    found = await store.search(
        Search(
            GROWN, within(HERE), Words("lantern"), 5, filter=IsNull("colour"), select=frozenset({"colour"})
        )
    )
    assert len(found) == 5
    with pytest.raises(ConfigError, match=r"open to read only: its tables lack fields of this release"):
        await store.apply([put(record(1_000), collection=GROWN)])


def open_in_processes(kind: type[Store], url: str, count: int, *wide: str) -> list[str]:
    """What so many processes say that open the store at once."""
    return finished([started(_OPEN, kind.__module__, kind.__name__, url, *wide) for _ in range(count)])


async def processes_at_once_add_fields_once(store: Store, late: Store, url: str) -> None:
    """`late` is another store on the same URL, not open yet."""
    before = await fill(store)
    assert open_in_processes(type(late), url, 4, "wide") == ["True\n"] * 4
    await late.open(WIDE)
    await judge(late, before)
    assert (await fetch_record(store, 1_000)).fields["type"] == "fact", (
        "the one that was open all the time goes on"
    )
    await late.close()


async def an_open_store_goes_on_with_every_kind_of_call(store: Store, late: Store) -> None:
    """`late` is another store on the same tables, not open yet, which lets them grow."""
    await fill(store)
    await late.open(WIDE)
    await apply_all(
        late,
        put(record(3, version=3, fields={"colour": "red"}, texts={"content": "lantern"}), collection=GROWN),
    )
    await apply_all(store, put(record(2_000), Absent()))
    await apply_all(store, put(record(3, version=4, fields={"type": "other"})), put(record(2_001)))
    assert (await fetch_record(late, 3, collection=GROWN)).fields == {"type": "other"}, (
        "and leaves no field of the version before"
    )
    assert (await store.audit()).problems == () == (await late.audit()).problems
    await late.close()


def rewound(table: str, registry: str) -> list[str]:
    """The statements that leave the table of messages as a release had it that did not
    note who wrote them.
    """
    earlier = replace(MESSAGES, fields=MESSAGES.fields[:-1])
    return [
        f"ALTER TABLE {table} DROP COLUMN {MESSAGES.fields[-1].name}",
        f"ALTER TABLE {table} RENAME COLUMN {checksum_column(MESSAGES)} TO {checksum_column(earlier)}",
        f"UPDATE {registry} SET declaration = '{declaration(earlier)}' WHERE name = 'messages'",  # noqa: S608
    ]
