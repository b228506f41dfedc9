"""Records in the order of a field that each has, over a tenant's many partitions, as
sessions are listed.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from memory.ports.collections import Collection, Field, FieldType
from memory.ports.contract.support import T0, apply_all, id_of, put, record
from memory.ports.query import Eq, Ge, IsNull, Or, Order, Query, Tenant, encode_cursor
from memory.ports.record import Partition, Role
from memory.ports.store import Store

NOTES = Collection(
    "notes",
    (
        Field("talk", FieldType.TEXT),
        Field("user", FieldType.TEXT, indexed=True),
        Field("place", FieldType.INTEGER, indexed=True, required=True),
    ),
    indexes=(("talk", "place"),),
    orders=("updated_at",),
)
LISTED = Query(NOTES, Tenant("acme"), order=(Order("place", descending=True),), limit=20)
_BROWSED = frozenset({Role.HOME, Role.ARRIVING})
CHANGED = Query(
    NOTES,
    Tenant("acme"),
    Or((IsNull("expires_at"), Ge("expires_at", T0))),
    (Order("updated_at", True),),
    20,
    roles=_BROWSED,
)
"""What changed last, as entries are browsed."""
LESS_CHANGED = replace(
    CHANGED, cursor=encode_cursor((T0 + timedelta(seconds=20),), id_of(20, Partition("acme", "s20")))
)
OF_A_USER = Query(NOTES, Tenant("acme"), Eq("user", "u1"), (Order("place", descending=True),), 20)
OF_A_TALK = Query(NOTES, Tenant("acme"), Eq("talk", "t1"), (Order("place", descending=True),), 20)


async def fill(store: Store, count: int) -> None:
    """So many records, each in a partition of its own, and the last of them first in
    order.
    """
    for start in range(0, count, 500):
        some = [(n, Partition("acme", f"s{n}")) for n in range(start, min(count, start + 500))]
        await apply_all(
            store,
            *[
                put(
                    record(n, at, fields={"talk": f"t{n % 3}", "user": f"u{n % 97}", "place": n}),
                    collection=NOTES,
                )
                for n, at in some
            ],
        )
