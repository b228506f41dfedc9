"""The versions that were stored at a moment.

They are the kept versions and those whose delivery to the archive is pending. The past
does not outlive an erasure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from memory.domain.errors import StoreError
from memory.domain.time import micros
from memory.orchestrator.storage.collections import ENTRIES, ENTRY_VERSIONS
from memory.orchestrator.storage.outbox import pending_versions
from memory.orchestrator.storage.placement import LocatedRecord, Placement
from memory.policies.visibility import is_expired, was_stored
from memory.ports import codec
from memory.ports.query import Eq, Ge, Gt, Head, Query, Where, all_of, within
from memory.ports.record import Key, Record, Role
from memory.ports.store import Store

LIFE = "life"
"""In the body of a record that was created over a tombstone: its first version. It
separates the record from kept versions of an earlier life.
"""

MADE_OF = "made_of"
"""In the body of a promoted or compacted record: a version that is not newer than the
oldest text of the originals (see `oldest_in`).
"""

BORN_IN = "born_in"
"""The tier of birth, if it is not the usual one. With it, a repeated keyed write gets
the same answer as the first.
"""


def entry_id(record: Record | Head) -> str:
    """Return the id of the entry of a record or kept version."""
    return str(record.fields.get("entry_id") or record.key.id)


def is_kept(record: Record) -> bool:
    """Return whether this is a kept version of an entry, not the entry itself."""
    return record.fields.get("entry_id") is not None


def life_of(record: Record) -> int:
    """Return the version of the record's birth; 0 if it is the first under its id."""
    return int(str(record.body.get(LIFE, 0)))


def same_life(record: Record, other: Record) -> bool:
    """Return whether both are versions of one life of their entry.

    After a deletion, the same id may be used again.
    """
    return record.body.get(LIFE) == other.body.get(LIFE)


async def kept_versions(placement: Placement, record: Record, *, since: int = 0) -> list[Record]:
    """Return the earlier versions of the record in this life, oldest first.

    They include the versions whose delivery to the archive is pending. With `since`,
    older versions are left out.
    """
    of_entry = Eq("entry_id", record.key.id)
    query = Query(
        ENTRY_VERSIONS,
        within(record.partition),
        filter=all_of(of_entry, Ge("version", since)) if since else of_entry,
        limit=placement.settings.page,
    )
    pages = placement.pages("version.read", placement.topology.archive, query)
    rows = [row async for page in pages for row in page.records if isinstance(row, Record)] + list(
        _owed_by([record])
    )
    kept = {
        row.version: row for row in reversed(rows) if row.version < record.version and same_life(row, record)
    }
    return [kept[version] for version in sorted(kept)]


def oldest_in(sources: Iterable[Record]) -> int:
    """Return the oldest version that shows since when the sources had their texts.

    Kept versions are not read.
    """
    return min(int(str(source.body.get(MADE_OF, source.previous or source.version))) for source in sources)


async def is_older(placement: Placement, record: Record, version: int) -> bool:
    """Return whether an entry, or a source of it, was born before this version.

    Later changes do not matter. If its first versions are not kept, `created_at`
    decides.
    """
    if int(str(record.body.get(MADE_OF, version))) < version:
        return True
    first = record
    if record.version >= version and record.previous is not None and record.previous >= version:
        first = next(iter(await kept_versions(placement, record)), record)
    if first.previous is None or min(first.previous, first.version) < version:
        return min(first.previous or first.version, first.version) < version
    return micros(record.created_at) < version


async def on_their_way(placement: Placement, store: Store, where: Where, known_at: datetime) -> list[Record]:
    """Return the versions current at a moment whose delivery to the archive is pending.

    An edit has replaced them since.
    """
    edited_since = all_of(Eq("owing", True), Gt("version", micros(known_at)))
    query = Query(
        ENTRIES,
        where,
        edited_since,
        limit=placement.settings.page,
        roles=frozenset({Role.HOME, Role.ARRIVING}),
    )
    rows = [
        row
        async for page in placement.pages("version.owed", store, query)
        for row in page.records
        if isinstance(row, Record)
    ]
    now = placement.now()
    return [v for v in _owed_by(rows) if was_stored(v, known_at, now)]


async def still_living(
    placement: Placement, tenant: str, rows: Sequence[Record]
) -> tuple[list[Record], list[StoreError]]:
    """Return the past versions whose entry still exists and is not expired.

    The entry must be in the same life. A row that is itself an entry counts as
    existing. The second result holds the errors of entries that could not be found.
    """
    now = placement.now()
    located, errors = await locate_each(
        placement, list(dict.fromkeys(Key(tenant, entry_id(row)) for row in rows if is_kept(row)))
    )
    there = {at.key.id: at.record for at in located if at.record is not None}
    homes = [there.get(entry_id(row)) if is_kept(row) else row for row in rows]
    living = [
        row
        for row, home in zip(rows, homes, strict=True)
        if home is not None and not is_expired(home, now) and same_life(row, home)
    ]
    return living, errors


async def locate_each(
    placement: Placement, keys: Sequence[Key]
) -> tuple[list[LocatedRecord], list[StoreError]]:
    """Return the records' locations, and the errors of those not found.

    A store that fails hides only the records that it may hold.
    """
    found = await placement.locate_many(ENTRIES, keys, partial=True)
    return [at for at in found if at.unknown is None], [at.unknown for at in found if at.unknown is not None]


def _owed_by(records: Iterable[Record]) -> Iterable[Record]:
    return (
        codec.record_from_json(ENTRY_VERSIONS, version)
        for record in records
        for version in pending_versions(record)
    )
