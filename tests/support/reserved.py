"""What must hold of the room that artifacts and large texts of messages take, at every
moment and once nothing is owed any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from typing import Any

from memory.orchestrator.conversations.blobs.large_texts import Chunk, chunks_of
from memory.orchestrator.conversations.blobs.uploads import COUNTED
from memory.orchestrator.conversations.log.events import artifacts_of
from memory.orchestrator.engine import Engine
from memory.orchestrator.storage.collections import ARTIFACTS, MANIFESTS, MESSAGES, RESERVATIONS
from memory.ports.collections import Collection
from memory.ports.query import Query, Tenant
from memory.ports.record import Record


def total_of(reservations: Sequence[Record]) -> int:
    """What a tenant's balance says, of all rows of its reservations."""
    return next((int(row.body["total"]) for row in reservations if "total" in row.body), 0)


def miscounted(reservations: Sequence[Record], *, damaged: bool = False) -> list[str]:
    """The balance is what its reservations come to. Where it was `damaged` it may be
    counted just now; and those that were about to be put then are counted before they
    are held.
    """
    if damaged and not any("total" in row.body for row in reservations):
        return []
    counted = {upload: int(entry[0]) for upload, entry in _under_way(reservations).items()}
    known = [
        row for row in reservations if not (damaged and row.owed and row.fields.get("upload") not in counted)
    ]
    taken, total = sum((_held(known) | counted).values()), total_of(reservations)
    return [] if taken == total else [f"the balance says {total} bytes, and there are {taken}"]


def unsettled(
    reservations: Sequence[Record],
    manifests: Sequence[Record],
    chunks: Sequence[Record],
    messages: Sequence[Record],
    torn: Container[str] = (),
) -> list[str]:
    """Reservations are of the live manifests and of the large texts that live messages
    name, whose chunks are there, and no others; `torn` are uploads that messages may
    name though they were given up.
    """
    held, named = _held(reservations), {str(row.fields["upload"]): row for row in manifests}
    wanted = {upload: row.body["chunks"] for upload, row in named.items()}
    broken = (
        [f"uploads are said to be under way: {under_way}"] if (under_way := _under_way(reservations)) else []
    )
    there, parts, takes = Counter[str](), set[Chunk](), Counter[str]()
    for row in chunks:
        upload, digest, data = str(row.fields["upload"]), row.fields.get("digest"), row.fields.get("data")
        if digest is None:
            there[upload] += 1
        else:
            parts.add(Chunk(upload, str(digest)))
            takes[upload] += len(data) if isinstance(data, bytes) and upload.endswith(COUNTED) else 0
    if held != (
        sizes := {upload: row.fields["size"] for upload, row in named.items()}
        | {upload: size for upload, size in takes.items() if size}
    ):
        broken.append(f"room is reserved for {held}, and manifests and messages name {sizes}")
    if there != {upload: count for upload, count in wanted.items() if count}:
        broken.append(f"chunks of {dict(there)} are there, and manifests name {wanted}")
    named_parts = {chunk for row in messages for chunk in chunks_of(artifacts_of(row))}
    if parts != (said := {chunk for chunk in named_parts if chunk in parts or chunk.upload not in torn}):
        broken.append(
            f"chunks {sorted(map(str, parts - said))} are no message's, and {sorted(map(str, said - parts))}"
            " are missing"
        )
    return broken


def _held(reservations: Sequence[Record]) -> dict[str, int]:
    return {
        str(row.fields["upload"]): int(str(row.fields["bytes"]))
        for row in reservations
        if row.fields.get("upload") is not None
    }


def _under_way(reservations: Sequence[Record]) -> dict[str, Any]:
    balances: list[Any] = [row.body for row in reservations if "total" in row.body]
    return balances[0]["under_way"] if balances else {}


async def assert_reserved(
    engine: Engine, tenant: str, *, settled: bool = True, damaged: bool = False
) -> None:
    """Both hold of what stands in the store; the second only where all is `settled`."""
    reservations = await _rows(engine, tenant, RESERVATIONS)
    assert not miscounted(reservations, damaged=damaged)
    if settled:
        manifests, chunks, messages = [
            await _rows(engine, tenant, of) for of in (MANIFESTS, ARTIFACTS, MESSAGES)
        ]
        assert not unsettled(reservations, manifests, chunks, messages)


async def _rows(engine: Engine, tenant: str, collection: Collection) -> list[Record]:
    archive = engine.topology.archive
    pages = engine.placement.pages("test", archive, Query(collection, Tenant(tenant), limit=500))
    return [row async for page in pages for row in page.records if isinstance(row, Record)]
