"""A tenant that was made a minute ago, in a table in which others have been for long:
the servers have not counted what it has.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from memory.ports.candidates import Candidates, Neighbourhood
from memory.ports.collections import Collection
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.support import T0, apply_all, put, record
from memory.ports.query import And, Condition, Eq, Ge, Gt, IsNull, Or, Order, Query, within
from memory.ports.record import Partition
from memory.ports.store import Store
from memory.ports.writes import Absent, Put

OLD, NEW = Partition("long-there", "user:ann"), Partition("new", "user:bob")
PAIRS: Collection = replace(SAMPLES, indexes=(("source", "confidence"), ("source", "number")))
VISIBLE: Condition = And(
    (Or((IsNull("expires_at"), Ge("expires_at", T0))), Or((IsNull("valid_to"), Gt("valid_to", T0))))
)
QUESTIONS: dict[str, tuple[Query, str]] = {
    "newest": (Query(PAIRS, within(NEW), VISIBLE, (Order("created_at", True),), 21), "created_at"),
    "by a field": (Query(PAIRS, within(NEW), And((VISIBLE, Eq("type", "kind7")))), "field_type"),
    "by two fields": (
        Query(PAIRS, within(NEW), And((Eq("source", "talk7"), Eq("confidence", 0.5)))),
        "several_0",
    ),
}
"""What is asked of the tenant, and the index that is to serve it."""
CANDIDATES = Candidates(PAIRS, within(NEW), filter=VISIBLE, around=Neighbourhood("source", "number", 2))


def entries(at: Partition, count: int) -> Iterable[Put]:
    for n in range(count):
        fields = {
            "type": f"kind{n % 500}",
            "source": f"talk{n % 200}",
            "confidence": (n % 40) / 40,
            "number": n // 200,
        }
        texts = {"content": f"rare{n % 500} shared words number{n}"}
        yield put(record(n, at, fields=fields, texts=texts), Absent(), PAIRS)


async def fill(store: Store, at: Partition, count: int) -> None:
    writes = list(entries(at, count))
    for start in range(0, count, 500):
        await apply_all(store, *writes[start : start + 500])
