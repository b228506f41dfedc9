"""Versions are moments: the number of a version is the time when it was stored.

The text of an entry before an edit is kept under its version (decision 024).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from memory.domain import ids
from memory.domain.enrichment import NOTES
from memory.domain.time import micros
from memory.ports.record import Key, Record, Role

CLOCK_SKEW = timedelta(minutes=5)
"""How far the clocks of two processes may differ."""


def version_at(now: datetime, stored: int = 0) -> int:
    """Return the larger of `stored + 1` and the time `now` in microseconds.

    A record never loses to its own past, even if the clock is wrong.

    A writer reads the clock once. `updated_at` is `moment(version)`, even if the
    version had to run ahead of the clock.
    """
    return max(stored + 1, micros(now))


def version_key(tenant: str, entry_id: str, version: int) -> Key:
    """Return the key of one kept version.

    It derives from entry and version, in the slot of the entry's partition.
    """
    return Key(tenant, ids.beside(entry_id, "version", str(version)))


def kept_version(record: Record, replaced_by: int) -> Record:
    """Return the record that keeps `record` as it was until version `replaced_by`.

    Advisors' notes are left out, because they may mention entries that are deleted
    later.
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
