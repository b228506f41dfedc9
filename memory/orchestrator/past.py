"""What was stored at a moment: kept versions that are still on their way, and the rule that the past does not outlive an erasure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from memory.domain.time import micros
from memory.orchestrator.entries import is_expired
from memory.orchestrator.owed import KEEP
from memory.orchestrator.placement import Placement
from memory.orchestrator.steps import step
from memory.ports import codec
from memory.ports.collections import ENTRIES, ENTRY_VERSIONS
from memory.ports.query import Eq, Gt, Query, Where, all_of
from memory.ports.record import Key, Record, Role
from memory.ports.store import Store


def entry_id(record: Record) -> str:
    """The entry a record or kept version is about."""
    return str(record.fields.get("entry_id") or record.key.id)


async def on_their_way(store: Store, where: Where, known_at: datetime) -> list[Record]:
    """The versions current at that moment that an edit replaced and its record still owes to the archive."""
    moment = micros(known_at)
    edited_since = all_of(Eq("owing", True), Gt("version", moment))
    with step("version.owed"):
        page = await store.query(Query(ENTRIES, where, edited_since, roles=frozenset({Role.HOME, Role.ARRIVING})))
    owed = [o for row in page.records if isinstance(row, Record) for o in row.owed if o.kind == KEEP]
    versions = [codec.record_from_json(ENTRY_VERSIONS, o.data["record"]) for o in owed]
    return [v for v in versions if v.version <= moment < v.fields["replaced_version"]]  # type: ignore[operator]


async def still_living(placement: Placement, tenant: str, rows: Sequence[Record]) -> list[Record]:
    """Of past versions, those whose entry is still there and not expired."""
    now = placement.now()
    located = await placement.locate_many(ENTRIES, [Key(tenant, entry_id(row)) for row in rows])
    there = {at.key.id for at in located if at.record is not None and not is_expired(at.record, now)}
    return [row for row in rows if entry_id(row) in there]
