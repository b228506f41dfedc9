"""Support for pgvector: a column beside the exact bytes, and the binary format.

Vectors are stored at norm 1, so that no very long or very short vector leaves the range
of single precision. The bytes column keeps them as given.

The column has no fixed length and no index. A search compares every vector of the
requested partitions exactly, under any filter. Rows that a process without the
extension wrote get their embedding at the next open.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from memory.adapters.sql.postgresql.connection import Connection

MOST_DIMENSIONS = 16_000

INSTALLED = """SELECT n.nspname, e.extversion FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace WHERE e.extname = 'vector'"""
AVAILABLE = "SELECT 1 FROM pg_available_extensions WHERE name = 'vector'"
CREATE = "CREATE EXTENSION IF NOT EXISTS vector"


def add_column(schema: str, table: str, index: str, namespace: str) -> tuple[str, ...]:
    """Return statements that add the column, and an index of the rows that lack it."""
    waiting = f"vector IS NOT NULL AND embedding IS NULL AND octet_length(vector) <= {4 * MOST_DIMENSIONS}"
    return (
        f'ALTER TABLE "{schema}"."{table}" ADD COLUMN IF NOT EXISTS embedding "{namespace}".vector',
        f'CREATE INDEX IF NOT EXISTS "{index}" ON "{schema}"."{table}" (id) WHERE {waiting}',
    )


def encode_vector(packed: bytes) -> bytes:
    """Return packed little-endian numbers, at norm 1, in pgvector's binary format."""
    values = np.frombuffer(packed, dtype="<f4").astype(np.float64)
    unit = values / np.sqrt((values * values).sum())
    numbers: bytes = unit.astype(">f4").tobytes()
    return struct.pack(">HH", len(unit), 0) + numbers


def decode_vector(sent: bytes) -> bytes:
    packed: bytes = np.frombuffer(sent, dtype=">f4", offset=4).astype("<f4").tobytes()
    return packed


async def speak(connection: Connection, namespace: str) -> None:
    """Register the type on a connection."""
    await connection.set_type_codec(
        "vector", schema=namespace, encoder=encode_vector, decoder=decode_vector, format="binary"
    )


async def embed_the_rest(
    connection: Connection, schema: str, table: str, namespace: str, at_once: int
) -> None:
    """Add the embedding to rows that have only a vector, in the order of keys.

    Rows with a damaged vector stay without one.
    """
    waiting = f"vector IS NOT NULL AND embedding IS NULL AND octet_length(vector) <= {4 * MOST_DIMENSIONS}"
    find = f'SELECT id, tenant, vector FROM "{schema}"."{table}" WHERE {waiting} {{0}}ORDER BY id, tenant LIMIT {at_once}'  # noqa: S608
    change = (
        f'UPDATE "{schema}"."{table}" AS t SET embedding = r.embedding '  # noqa: S608
        f'FROM unnest($1::uuid[], $2::text[], $3::bytea[], $4::"{namespace}".vector[]) AS r(id, tenant,'
        " vector, embedding) "
        "WHERE t.tenant = r.tenant AND t.id = r.id AND t.vector = r.vector"
    )
    after: Sequence[str] = ()
    while rows := await connection.fetch(
        find.format("AND (id, tenant) > ($1, $2) " if after else ""), *after
    ):
        after = rows[-1][:2]
        if usable := [row for row in rows if _has_direction(row[2])]:
            ids, tenants, vectors = zip(*usable, strict=True)
            await connection.execute(change, ids, tenants, vectors, vectors)


def _has_direction(packed: bytes) -> bool:
    if not packed or len(packed) % 4:
        return False
    values = np.frombuffer(packed, dtype="<f4")
    return bool(np.isfinite(values).all() and values.any())
