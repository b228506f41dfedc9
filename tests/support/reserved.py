"""What must hold of the room that artifacts take, once nothing is owed any more."""

from __future__ import annotations

from memory.orchestrator.collections import ARTIFACTS, MANIFESTS, RESERVATIONS
from memory.orchestrator.engine import Engine
from memory.ports.collections import Collection
from memory.ports.query import Query, Tenant
from memory.ports.record import Record


async def assert_reserved(engine: Engine, tenant: str, *, settled: bool = True) -> None:
    """The balance is what its reservations come to. `settled`: those are of the live manifests alone, whose chunks are there, and no others."""
    balance = await engine.conversations.reservations._balance(tenant)
    reservations = [row for row in await _rows(engine, tenant, RESERVATIONS) if row.fields.get("upload") is not None]
    held = {str(row.fields["upload"]): int(str(row.fields["bytes"])) for row in reservations}
    counted = {upload: entry.counted for upload, entry in balance.under_way.items()}
    assert balance.total == sum((held | counted).values())
    if not settled:
        return
    manifests = await _rows(engine, tenant, MANIFESTS)
    assert balance.under_way == {}
    assert held == {str(row.fields["upload"]): row.fields["size"] for row in manifests}
    chunks = [str(row.fields["upload"]) for row in await _rows(engine, tenant, ARTIFACTS)]
    assert {upload: chunks.count(upload) for upload in chunks} == {
        str(row.fields["upload"]): row.body["chunks"] for row in manifests if row.body["chunks"]
    }


async def _rows(engine: Engine, tenant: str, collection: Collection) -> list[Record]:
    archive = engine.topology.archive
    pages = engine.placement.pages("test", archive, Query(collection, Tenant(tenant), limit=500))
    return [row async for page in pages for row in page.records if isinstance(row, Record)]
