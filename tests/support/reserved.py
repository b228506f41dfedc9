"""What must hold of the room that artifacts take, at every moment and once nothing is owed any more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from memory.orchestrator.collections import ARTIFACTS, MANIFESTS, RESERVATIONS
from memory.orchestrator.engine import Engine
from memory.ports.collections import Collection
from memory.ports.query import Query, Tenant
from memory.ports.record import Record


def total_of(reservations: Sequence[Record]) -> int:
    """What a tenant's balance says, of all rows of its reservations."""
    return next((int(row.body["total"]) for row in reservations if "total" in row.body), 0)


def miscounted(reservations: Sequence[Record]) -> list[str]:
    """The balance is what its reservations come to."""
    counted = {upload: int(entry[0]) for upload, entry in _under_way(reservations).items()}
    taken, total = sum((_held(reservations) | counted).values()), total_of(reservations)
    return [] if taken == total else [f"the balance says {total} bytes, and there are {taken}"]


def unsettled(reservations: Sequence[Record], manifests: Sequence[Record], chunks: Sequence[Record]) -> list[str]:
    """Reservations are of the live manifests alone, whose chunks are there, and no others."""
    held, named = _held(reservations), {str(row.fields["upload"]): row for row in manifests}
    there, wanted = Counter(str(row.fields["upload"]) for row in chunks), {upload: row.body["chunks"] for upload, row in named.items()}
    broken = [f"uploads are said to be under way: {under_way}"] if (under_way := _under_way(reservations)) else []
    if held != (sizes := {upload: row.fields["size"] for upload, row in named.items()}):
        broken.append(f"room is reserved for {held}, and manifests name {sizes}")
    if there != {upload: count for upload, count in wanted.items() if count}:
        broken.append(f"chunks of {dict(there)} are there, and manifests name {wanted}")
    return broken


def _held(reservations: Sequence[Record]) -> dict[str, int]:
    return {str(row.fields["upload"]): int(str(row.fields["bytes"])) for row in reservations if row.fields.get("upload") is not None}


def _under_way(reservations: Sequence[Record]) -> dict[str, Any]:
    balances: list[Any] = [row.body for row in reservations if "total" in row.body]
    return balances[0]["under_way"] if balances else {}


async def assert_reserved(engine: Engine, tenant: str, *, settled: bool = True) -> None:
    """Both hold of what stands in the store; the second only where all is `settled`."""
    reservations = await _rows(engine, tenant, RESERVATIONS)
    assert not miscounted(reservations)
    if settled:
        assert not unsettled(reservations, await _rows(engine, tenant, MANIFESTS), await _rows(engine, tenant, ARTIFACTS))


async def _rows(engine: Engine, tenant: str, collection: Collection) -> list[Record]:
    archive = engine.topology.archive
    pages = engine.placement.pages("test", archive, Query(collection, Tenant(tenant), limit=500))
    return [row async for page in pages for row in page.records if isinstance(row, Record)]
