"""Versions are moments: the number of a version is when it was stored, and what an
entry said before an edit is kept under it (decision D34).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from memory.domain import ids
from memory.domain.enrichment import NOTES
from memory.domain.time import micros
from memory.ports.record import Key, Record, Role


def version_at(now: datetime, stored: int = 0) -> int:
    """`max(stored + 1, now in microseconds)`: a record never loses to its own past,
    whatever the clock says.

    Who writes reads the clock once: `updated_at` is `moment(version)`, also where the
    version had to run ahead of the clock.
    """
    return max(stored + 1, micros(now))


def version_key(tenant: str, entry_id: str, version: int) -> Key:
    """The key of one kept version: derived from entry and version, in the slot of the
    entry's partition.
    """
    return Key(tenant, ids.beside(entry_id, "version", str(version)))


def kept_version(record: Record, replaced_by: int) -> Record:
    """The record that keeps `record` as it was until version `replaced_by`, without an
    advisor's notes: they may speak of entries that are deleted later.
    """
    fields = dict(record.fields) | {
        "entry_id": record.key.id,
        "stored_version": record.version,
        "replaced_version": replaced_by,
    }
    return replace(
        record,
        key=version_key(record.key.tenant, record.key.id, record.version),
        fields=fields,
        body={name: value for name, value in record.body.items() if name != NOTES},
        role=Role.HOME,
        tier="mid",
        owed=(),
    )
