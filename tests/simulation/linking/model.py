"""What the graph must answer, from the rows that stand in the stores."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from memory.orchestrator.storage.collections import ENTRIES, ENTRY_VERSIONS, RELATIONS
from memory.ports.record import Record, Role
from tests.simulation.faults import Server
from tests.support.linked import Link, Model, Stood

BEGAN = datetime(1970, 1, 1, tzinfo=UTC)


def model_of(servers: Sequence[Server], now: datetime) -> Model:
    """The entries and links of a tenant, when nothing is under way."""
    model = Model(now)
    rows = [
        (kind, row) for kind in (ENTRIES, ENTRY_VERSIONS, RELATIONS) for row in _standing(servers, kind.name)
    ]
    for kind, row in rows:
        if kind is ENTRIES and row.role is Role.HOME:
            model.scopes[row.key.id] = row.scope
            model.entries.setdefault(row.key.id, []).append(_stood(row, row.version, None))
    for kind, row in rows:
        if kind is ENTRY_VERSIONS and str(row.fields["entry_id"]) in model.entries:
            model.entries[str(row.fields["entry_id"])].insert(
                0, _stood(row, row.fields["stored_version"], row.fields["replaced_version"])
            )
        if kind is RELATIONS and row.role is Role.HOME:
            model.links.append(
                Link(
                    row.key.id,
                    str(row.fields["source_id"]),
                    str(row.fields["target_id"]),
                    str(row.fields["relation"]),
                    row.created_at,
                )
            )
    return model


def _standing(servers: Sequence[Server], name: str) -> list[Record]:
    found = {
        row.key: row
        for server in servers
        for row in server.store.state.everything(name)
        if isinstance(row, Record) and row.role is Role.HOME
    }
    return list(found.values())


def _stood(row: Record, since: Any, until: Any) -> Stood:
    begins: Any = row.fields["valid_from"]
    ends: Any = row.fields.get("valid_to")
    return Stood(_moment(since), None if until is None else _moment(until), begins, ends)


def _moment(version: Any) -> datetime:
    return BEGAN + timedelta(microseconds=int(version))
