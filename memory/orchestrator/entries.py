"""Entries: written, read, updated, retired. Drafts and patches arrive checked; stores are touched only here and below."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from memory.domain import ids
from memory.domain.entry import Entry, EntryDraft
from memory.domain.errors import Conflict, InvalidInput, NotFound, StoreUnavailable
from memory.domain.time import micros
from memory.orchestrator.cache import Cache
from memory.orchestrator.entry_records import changed, entry_of, record_of, request_digest
from memory.orchestrator.erasure import DIGEST, Erasure
from memory.orchestrator.meaning import Meaning
from memory.orchestrator.owed import KEEP, Debt, OwedWork, carried_over
from memory.orchestrator.placement import Located, Placement, refused
from memory.orchestrator.steps import step
from memory.orchestrator.tiering import owed_replicas
from memory.orchestrator.versions import kept_version
from memory.policies.routing import route
from memory.ports import codec
from memory.ports.collections import ENTRIES, ENTRY_VERSIONS
from memory.ports.query import Eq, Order, Query, within
from memory.ports.record import Key, Owed, Record
from memory.ports.store import Store
from memory.ports.writes import Absent, AtVersion, Outcome, Put, Status

CLOCK_SKEW = timedelta(minutes=5)
"""How far a caller's clock may be ahead of ours before its `created_at` is refused as lying in the future."""

Change = Callable[[Record], dict[str, Any]]


@dataclass(slots=True)
class Birth:
    """A draft on its way to becoming an entry."""

    draft: EntryDraft
    record: Record
    store: Store
    entry: Entry | None = field(default=None)


class Entries:
    """The repository of entries."""

    def __init__(self, placement: Placement, *, meaning: Meaning, owed: OwedWork, cache: Cache, erasure: Erasure) -> None:
        self._placement = placement
        self._meaning = meaning
        self._owed = owed
        self._cache = cache
        self._erasure = erasure

    # -- writing ------------------------------------------------------------------------------------------------------

    async def write(self, tenant: str, draft: EntryDraft) -> Entry:
        """Store one entry; under a key, exactly once (decision A5)."""
        return (await self.write_many(tenant, [draft]))[0]

    async def write_many(self, tenant: str, drafts: Sequence[EntryDraft]) -> list[Entry]:
        """Store entries in order, batch by batch. When a batch fails, the earlier ones are kept; keyed drafts can be written again."""
        written: list[Entry] = []
        latest = self._placement.now() + CLOCK_SKEW
        if any(draft.created_at is not None and draft.created_at > latest for draft in drafts):
            raise InvalidInput("created_at", "lies in the future")
        for start in range(0, len(drafts), self._placement.settings.batch):
            written += await self._write_batch(tenant, drafts[start : start + self._placement.settings.batch])
        return written

    async def _write_batch(self, tenant: str, drafts: Sequence[EntryDraft]) -> list[Entry]:
        births = [self._birth(tenant, draft) for draft in drafts]
        records = await self._meaning.embedded([b.record for b in births])
        for birth, record in zip(births, records, strict=True):
            birth.record = record
        await self._repeat_known(births)
        for store in dict.fromkeys(b.store for b in births):
            await self._put_births(store, [b for b in births if b.store is store and b.entry is None])
        return [b.entry for b in births if b.entry is not None]

    def _birth(self, tenant: str, draft: EntryDraft) -> Birth:
        now, scope = self._placement.now(), draft.scope.text
        routed = route(ENTRIES.name, draft.scope.kind)
        store = self._placement.topology.home(routed.tier)
        record_id = ids.keyed_id(tenant, scope, draft.key) if draft.key else self._placement.new_id(tenant, scope)
        digest = request_digest(draft) if draft.key else None
        version = self._placement.next_version()
        record = record_of(draft, key=Key(tenant, record_id), version=version, now=now, tier=routed.tier, digest=digest)
        return Birth(draft, replace(record, owed=owed_replicas(self._placement, ENTRIES, store, routed.tier)), store)

    async def _repeat_known(self, births: Sequence[Birth]) -> None:
        """Under a key, what stands in a later tier counts as present too: look there first."""
        keyed = [b for b in births if b.draft.key and self._placement.topology.later(b.store)]
        if keyed:
            located = await self._placement.locate_many(ENTRIES, [b.record.key for b in keyed])
            for birth, there in zip(keyed, located, strict=True):
                if there.corrupt is not None:
                    raise there.corrupt
                if there.record is not None or there.tombstone is not None:
                    birth.entry = await self._repeated(birth, there)

    async def _put_births(self, store: Store, births: Sequence[Birth]) -> None:
        if not births:
            return
        outcomes = await self._placement.write("write.home", store, *(Put(ENTRIES, b.record, Absent()) for b in births))
        fresh: list[Debt] = []
        for birth, outcome in zip(births, outcomes, strict=True):
            stored = await self._born(birth, outcome)
            if stored is not None:
                birth.entry = entry_of(stored)
                if stored.owed:
                    fresh.append(Debt(ENTRIES, store, stored))
        await self._owed.replicate_many(fresh)

    async def _born(self, birth: Birth, outcome: Outcome) -> Record | None:
        """The stored record, or None when the draft turned out to be a repeat (`birth.entry` is then the first outcome)."""
        if (error := refused(birth.store, outcome)) is not None:
            raise error
        if outcome.applied:
            return replace(birth.record, generation=outcome.generation)
        if birth.draft.key is None:
            raise Conflict(f"a fresh id was taken already, which should not happen: {birth.record.key.id}")
        birth.entry = await self._repeated(birth, await self._placement.locate(ENTRIES, birth.record.key))
        return None

    async def _repeated(self, birth: Birth, there: Located) -> Entry:
        """The first outcome of a keyed write (decision A5): the entry as first stored, also when it was edited or deleted since."""
        digest = birth.record.fields[DIGEST]
        if there.record is not None:
            if there.record.fields.get(DIGEST) != digest:
                raise Conflict(f"key {birth.draft.key!r} was used in this scope for another entry", there.record.key.id)
            return entry_of(replace(await self._first_version(there.record), tier=birth.record.tier))
        if there.tombstone is None:
            raise StoreUnavailable(birth.store.name, f"the entry under key {birth.draft.key!r} is moving; try again")
        note = there.tombstone.note
        if note.get(DIGEST) != digest:
            raise Conflict(f"key {birth.draft.key!r} was used in this scope for another entry, since deleted", birth.record.key.id)
        born = datetime.fromisoformat(note["created_at"]) if "created_at" in note else birth.record.created_at
        first = replace(birth.record, created_at=born, updated_at=born, version=note.get("version", there.tombstone.version))
        return entry_of(replace(first, fields={**first.fields, "valid_from": born}))

    async def _first_version(self, record: Record) -> Record:
        if record.previous is None:
            return record
        return next(iter(await self._versions(record)), record)

    # -- reading ------------------------------------------------------------------------------------------------------

    async def get(self, tenant: str, entry_id: str, *, as_of: datetime | None = None, known_at: datetime | None = None) -> Entry | None:
        """The entry, or None where none is visible: unknown, foreign, expired, or outside its window at `as_of` (default now)."""
        if not ids.is_id(entry_id):
            return None
        record = await self._read(Key(tenant, entry_id))
        now = self._placement.now()
        if record is None or is_expired(record, now):
            return None
        if known_at is not None:
            record = await self._as_known(record, known_at)
            if record is not None and is_expired(record, known_at):
                return None
        at = as_of or known_at
        visible = record is not None and (is_current(record, now) if at is None else is_active(record, at))
        return entry_of(record) if record is not None and visible else None

    async def _read(self, key: Key) -> Record | None:
        """By way of the cache, where there is one."""
        seen = await self._cache.look(ENTRIES, key)
        if seen.record is not None:
            return seen.record
        record = (await self._placement.locate(ENTRIES, key)).record
        if record is not None:
            await self._cache.fill(ENTRIES, record, seen)
        return record

    async def _as_known(self, record: Record, known_at: datetime) -> Record | None:
        """The version that was stored at that moment (decision D34)."""
        moment = micros(known_at)
        if record.version <= moment:
            return record
        return next((v for v in reversed(await self._versions(record)) if v.version <= moment), None)

    async def history(self, tenant: str, entry_id: str) -> list[Entry]:
        """Every version of a live entry, retired or not: oldest first, the current one last."""
        record = await self.live_record(tenant, entry_id, active=False)
        return [entry_of(r) for r in (*await self._versions(record), record)]

    async def _versions(self, record: Record) -> list[Record]:
        """The kept versions, oldest first, with those on their way to being kept."""
        query = Query(ENTRY_VERSIONS, within(record.partition), filter=Eq("entry_id", record.key.id), order=(Order("stored_version"),))
        with step("version.read"):
            page = await self._placement.topology.archive.query(query)
        kept = {row.version: row for row in page.records if isinstance(row, Record) and row.version < record.version}
        for owed in record.owed:
            if owed.kind == KEEP:
                on_its_way = codec.record_from_json(ENTRY_VERSIONS, owed.data["record"])
                kept.setdefault(on_its_way.version, on_its_way)
        return [kept[version] for version in sorted(kept)]

    async def live_record(self, tenant: str, entry_id: str, *, active: bool = True) -> Record:
        """The home record of an unexpired entry, active unless told otherwise; raises `NotFound`."""
        located = await self._placement.locate(ENTRIES, Key(tenant, entry_id)) if ids.is_id(entry_id) else None
        now = self._placement.now()
        if located is None or located.record is None or is_expired(located.record, now):
            raise NotFound(entry_id)
        if active and not is_current(located.record, now):
            raise NotFound(entry_id)
        return located.record

    # -- changing -----------------------------------------------------------------------------------------------------

    async def update(self, tenant: str, entry_id: str, changes: dict[str, Any]) -> Entry:
        """Change what the checked patch names; the version before it is kept. Without changes, the entry as it is (D16)."""
        if not changes:
            return entry_of(await self.live_record(tenant, entry_id, active=True))
        return entry_of(await self._change(tenant, entry_id, lambda record: changes))

    async def invalidate(self, tenant: str, entry_id: str, when: datetime | None) -> bool:
        """End the entry's validity window; false where nothing is active or the window has an end already (D24-D26)."""

        def ends(record: Record) -> dict[str, Any]:
            if record.fields.get("valid_to") is not None:
                raise NotFound(entry_id)
            start: Any = record.fields["valid_from"]
            if when is not None and when <= start:
                raise InvalidInput("when", "does not lie after valid_from: the entry could not be reached at any moment")  # decision D33
            return {"valid_to": when or max(start, self._placement.now())}

        try:
            await self._change(tenant, entry_id, ends)
        except NotFound:
            return False
        return True

    async def _change(self, tenant: str, entry_id: str, change: Change) -> Record:
        """Read, change, and write on condition that nobody else did meanwhile; else again."""
        for _ in range(self._placement.settings.attempts):
            located = await self._placement.locate(ENTRIES, Key(tenant, entry_id)) if ids.is_id(entry_id) else None
            home = None if located is None else located.home()
            now = self._placement.now()
            if home is None or is_expired(home[0], now) or not is_current(home[0], now):
                raise NotFound(entry_id)
            record, store = home
            changes = change(record)
            new = changed(record, changes, version=self._placement.next_version(record.version), now=now)
            if changes.keys() & {"content", "title"}:
                new = (await self._meaning.embedded([new]))[0]
            stored = await self._replace(store, record, new)
            if stored is not None:
                return stored
        raise StoreUnavailable(self._placement.topology.archive.name, f"entry {entry_id} keeps changing; try again")

    async def _replace(self, store: Store, old: Record, new: Record) -> Record | None:
        """Write the new version with the old one kept; None when somebody else was faster."""
        await self._cache.invalidate(ENTRIES, old.key)
        kept = kept_version(old, new.version)
        replicas = owed_replicas(self._placement, ENTRIES, store, old.tier)
        beside = store is self._placement.topology.archive and store.capabilities.atomic
        keep = () if beside else (Owed(KEEP, {"record": codec.to_json(kept)}),)
        new = replace(new, owed=(*carried_over(old), *replicas, *keep))
        writes = [Put(ENTRIES, new, AtVersion(old.version, tier=old.tier))]
        if beside:
            writes.append(Put(ENTRY_VERSIONS, kept, Absent()))
        outcomes = await self._placement.write("update.home", store, *writes, together=beside)
        for outcome in outcomes:
            if (error := refused(store, outcome)) is not None:
                raise error
        if outcomes[0].status is Status.REJECTED:  # its scope is being erased: help, so that what is said here is true
            await self._erasure.delete(ENTRIES, old.key, at=old.version)
            raise NotFound(old.key.id)
        if not all(o.applied for o in outcomes):
            return None
        await self._cache.invalidate(ENTRIES, old.key)
        await self._owed.try_finish(Debt(ENTRIES, store, new))
        return new


def is_expired(record: Record, now: datetime) -> bool:
    """Strictly past its expiry: at that very moment it is still visible (A34)."""
    return record.expires_at is not None and record.expires_at < now


def is_active(record: Record, at: datetime) -> bool:
    """Whether the validity window contains the moment (D20)."""
    start, end = record.fields["valid_from"], record.fields.get("valid_to")
    return start <= at and (end is None or at < end)  # type: ignore[operator]


def is_current(record: Record, now: datetime) -> bool:
    """Whether the window contains now, for reads that name no moment.

    No window begins in the future (writing refuses it), so only the end counts: a reader whose clock is a little behind
    the writer's sees what was acknowledged.
    """
    end = record.fields.get("valid_to")
    return end is None or now < end  # type: ignore[operator]
