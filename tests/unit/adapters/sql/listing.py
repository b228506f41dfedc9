"""Records in the order of a field that each has, over a tenant's many partitions, as sessions are listed."""

from __future__ import annotations

from memory.ports.collections import Collection, Field, FieldType
from memory.ports.contract.support import done, put, record
from memory.ports.query import Eq, Order, Query, Tenant
from memory.ports.record import Partition
from memory.ports.store import Store

NOTES = Collection(
    "notes",
    (Field("talk", FieldType.TEXT), Field("user", FieldType.TEXT, indexed=True), Field("place", FieldType.INTEGER, indexed=True, required=True)),
    indexes=(("talk", "place"),),
)
LISTED = Query(NOTES, Tenant("acme"), order=(Order("place", descending=True),), limit=20)
OF_A_USER = Query(NOTES, Tenant("acme"), Eq("user", "u1"), (Order("place", descending=True),), 20)
OF_A_TALK = Query(NOTES, Tenant("acme"), Eq("talk", "t1"), (Order("place", descending=True),), 20)


async def fill(store: Store, count: int) -> None:
    """So many records, each in a partition of its own, and the last of them first in order."""
    for start in range(0, count, 500):
        some = [(n, Partition("acme", f"s{n}")) for n in range(start, min(count, start + 500))]
        await done(store, *[put(record(n, at, fields={"talk": f"t{n % 3}", "user": f"u{n % 97}", "place": n}), collection=NOTES) for n, at in some])
