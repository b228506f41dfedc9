"""Rows that could not be read: an unchanged copy of each, for people to look at."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from memory.adapters.sql.codec import id_bytes
from memory.adapters.sql.sqlite.codec import id_text
from memory.adapters.sql.sqlite.session import Session
from memory.domain.time import micros
from memory.ports.clock import system_clock
from memory.ports.query import Everywhere, Tenant, Where
from memory.ports.record import Key

_KEEP = (
    "INSERT OR REPLACE INTO memory_quarantine (collection, tenant, id, partition_no, problem, found_at,"
    " content) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_DROP = "DELETE FROM memory_quarantine WHERE collection = ? AND tenant = ? AND id = ?"
_PROBLEM = "SELECT problem FROM memory_quarantine WHERE collection = ? AND tenant = ? AND id = ?"
_KEYS = "SELECT tenant, id, partition_no FROM memory_quarantine WHERE collection = ? ORDER BY tenant, id"


def keep(
    session: Session,
    collection: str,
    key: Key,
    partition: int | None,
    problem: str,
    columns: Mapping[str, Any],
) -> None:
    """Keep a copy of the row under the key."""
    content = json.dumps({name: _plain(value) for name, value in columns.items()})
    session.run(
        _KEEP, (collection, key.tenant, id_bytes(key.id), partition, problem, micros(system_clock()), content)
    )


def drop(session: Session, collection: str, key: Key) -> None:
    session.run(_DROP, (collection, key.tenant, id_bytes(key.id)))


def problem(session: Session, collection: str, key: Key) -> str:
    """Return why the row was moved here."""
    row = session.row(_PROBLEM, (collection, key.tenant, id_bytes(key.id)))
    return str(row[0]) if row else "moved into the quarantine earlier"


def keys(session: Session, collection: str, where: Where, partitions: Sequence[int]) -> list[Key]:
    """Return the keys of the rows from there.

    `partitions` are the numbers of the requested ones.
    """
    rows = session.rows(_KEYS, (collection,))
    if isinstance(where, Tenant):
        rows = [row for row in rows if row[0] == where.tenant]
    elif not isinstance(where, Everywhere):
        asked = frozenset(partitions)
        rows = [row for row in rows if row[2] in asked]
    return [Key(tenant, id_text(record_id)) for tenant, record_id, _ in rows]


def _plain(value: Any) -> Any:
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value
