"""Writes an entry that supersedes others.

The entry is stored, and the others are linked to it and retired, all at one moment.

If all of these records are in one atomic store, they are one batch. Otherwise the entry
is stored first, with the rest as a pending step: a link to each of the others, then its
retirement. Any process that finds the step carries it out. An entry that was retired or
deleted meanwhile needs neither.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from memory.domain import ids, validation
from memory.domain.entry import Entry, EntryDraft
from memory.domain.errors import Conflict, CorruptRecord, InvalidInput, NotFound
from memory.domain.provenance import all_in
from memory.domain.relation_labels import SUPERSEDES
from memory.domain.time import micros, moment
from memory.orchestrator.entries.admission import NewEntry
from memory.orchestrator.entries.entries import Entries, retired_at
from memory.orchestrator.entries.relations import Relations
from memory.orchestrator.entries.writing import PendingEntry, is_own, was_expired
from memory.orchestrator.storage.cache import Cache
from memory.orchestrator.storage.collections import ENTRIES, RELATIONS
from memory.orchestrator.storage.deliveries import Consistency, Deliveries
from memory.orchestrator.storage.entry_records import TAKEN_BACK, apply_changes, entry_of
from memory.orchestrator.storage.key_locks import RetryDeadline
from memory.orchestrator.storage.outbox import Outbox, OutboxRecord, StepLifetime
from memory.orchestrator.storage.placement import LocatedRecord, Placement, raise_if_rejected
from memory.orchestrator.storage.requests import RequestMark
from memory.orchestrator.storage.versions import version_at
from memory.policies.visibility import is_current, is_expired
from memory.ports.query import Where, covers
from memory.ports.record import Key, PendingStep, Record
from memory.ports.store import Store
from memory.ports.writes import Absent, Put, Status

log = logging.getLogger(__name__)

SUPERSEDE = "supersede"
"""The pending step of an entry: to link the entries that it supersedes to it, and to
retire them.
"""

MOST_SUPERSEDED = 32
"""The maximum number of entries that one entry supersedes."""


@dataclass(frozen=True, slots=True)
class SupersedeRequest:
    """The entries to supersede.

    `versions` has the versions that were shown when somebody decided. An entry that has
    another version now stays active.
    """

    ids: Sequence[str]
    within: Where | None = None
    """The place in which the entries must be; None for any place."""
    versions: Mapping[str, int] | None = None

    @classmethod
    def parse(cls, given: object, within: Where | None = None) -> SupersedeRequest:
        """Parse ids as a caller gives them, one or several, each once."""
        several = [given] if isinstance(given, str) else validation.sequence("supersedes", given)
        named = (validation.record_id("supersedes", one) for one in several)
        distinct = list(dict.fromkeys(named))
        if len(distinct) > MOST_SUPERSEDED:
            raise InvalidInput(
                "supersedes", f"must be at most {MOST_SUPERSEDED} entries, not {len(distinct)}"
            )
        return cls(distinct, within)


@dataclass(slots=True)
class _SupersedeCall:
    """One call under way."""

    one: PendingEntry
    superseded: SupersedeRequest
    revive: bool
    consistency: Consistency | None
    tried: bool = False
    """Whether it was checked before that the entries to supersede exist."""
    retired: list[str] = field(default_factory=list)

    @property
    def at(self) -> datetime:
        """The moment of all changes: when the entry becomes valid."""
        start: Any = self.one.record.fields["valid_from"]
        return start  # type: ignore[no-any-return]


class SupersedeWriter:
    """Writes entries that supersede others."""

    def __init__(
        self,
        placement: Placement,
        *,
        entries: Entries,
        relations: Relations,
        deliveries: Deliveries,
        outbox: Outbox,
        cache: Cache,
    ) -> None:
        self._placement = placement
        self._entries = entries
        self._relations = relations
        self._deliveries = deliveries
        self._cache = cache
        outbox.register(SUPERSEDE, self._supersede, StepLifetime.DELETED)

    async def write(
        self,
        tenant: str,
        draft: EntryDraft,
        superseded: SupersedeRequest,
        *,
        asked: EntryDraft | None = None,
        revive: bool = False,
        consistency: Consistency | None = None,
        steps: Sequence[PendingStep] = (),
        replays: set[str] | None = None,
        request: RequestMark | None = None,
    ) -> tuple[Entry, Sequence[str]]:
        """Store an entry that supersedes others; under a key, exactly once.

        All of them must exist and be active, or nothing is written. If one of them is
        retired during the call, an atomic store writes nothing. In other stores the
        entry is written, because the other one has given way already. The write gate
        checks the draft, unless the draft is `asked`, which has passed it.

        Args:
            asked: The request, if it differs from the draft.
            steps: Pending steps that the entry gets in addition.
            replays: The entry's id is added to it if an earlier write stored the entry.
            request: The mark of the request, so that it can be written again.

        Returns:
            The entry, and the ids of the superseded entries.

        Raises:
            Conflict: One of them was retired during the call, and nothing was written.
        """
        writer = self._entries.writer
        writer.refuse_future([draft])
        if draft is not asked:
            [draft] = await self._entries.trust.let_in(tenant, [draft], changing=bool(superseded.ids))
        named = superseded.ids if superseded.versions is None else ()
        one = writer.pending(tenant, draft, named, asked, request)
        write = _SupersedeCall(one, superseded, revive, consistency)
        async with self._entries.quotas.admit(
            tenant, [NewEntry.of(one.record, derived=one.is_repeatable)]
        ) as stay:
            stay.add(one.record.key)
            await writer.embed([one])
            for each in steps:
                one.owe(each)
            patience = RetryDeadline(self._placement, one.record.key.id)
            while (entry := one.entry) is None:
                await self._attempt(write)
                if one.conflict is not None:
                    raise one.conflict
                if one.entry is None:
                    await patience.wait()
        if replays is not None and one.replayed:
            replays.add(entry.id)
        self._entries.on_written(tenant, [entry])
        return entry, write.retired

    async def _attempt(self, write: _SupersedeCall) -> None:
        """Try once: read everything in one call, then write.

        The write is not complete if another writer was faster.
        """
        one, key = write.one, write.one.record.key
        looks = one.is_repeatable or write.tried  # this write itself may be stored under the fresh id
        others = [Key(key.tenant, entry_id) for entry_id in write.superseded.ids]
        asked = [*([key] if looks else []), *(other for other in others if ids.is_id(other.id))]
        shown = write.superseded.versions is not None  # then an unreadable entry stays active
        found = {at.key: at for at in await self._placement.locate_many(ENTRIES, asked, partial=shown)}
        for at in found.values():
            if (unread := at.corrupt or at.unknown) is not None and (at.key == key or not shown):
                raise unread
        own, located = (
            found.get(key, LocatedRecord(key)),
            [found.get(other, LocatedRecord(other)) for other in others],
        )
        own = await self._entries.writer.delete_expired(one, own)
        if (
            own.record is not None
            and not one.is_repeatable
            and is_own(one.record, own.record, own.record.version)
        ):
            one.entry = entry_of(own.record)
        elif own.record is not None or (
            own.tombstone is not None and not write.revive and not was_expired(own)
        ):
            await self._entries.writer.meet(one, own, write.revive)
        else:
            homes = [home for at in located if (home := self._giving_way(write, at)) is not None]
            write.retired, write.tried = [record.key.id for record, _ in homes], True
            await self._write_entry(write, own, homes)

    def _giving_way(self, write: _SupersedeCall, there: LocatedRecord) -> tuple[Record, Store] | None:
        """Return an entry to supersede with its store.

        None if it is not the version that was shown.
        """
        home, entry_id, within, shown = (
            there.home(),
            there.key.id,
            write.superseded.within,
            write.superseded.versions,
        )
        now = self._placement.now()
        active = home is not None and not is_expired(home[0], now) and is_current(home[0], now)
        if home is None or not active or (within is not None and not covers(within, home[0].partition)):
            if shown is not None:
                return None
            if write.tried:
                raise Conflict(
                    f"entry {entry_id}, which was to be superseded, was retired meanwhile: nothing was"
                    " written",
                    entry_id,
                )
            raise InvalidInput("supersedes", f"there is no active entry {entry_id[:64]}: nothing was written")
        start: Any = home[0].fields["valid_from"]
        never = write.one.draft.created_at is not None and write.at <= start
        if shown is not None:
            return None if never or shown.get(entry_id) != home[0].version else home
        if never:
            raise InvalidInput(
                "created_at",
                f"must be later than the valid_from of entry {entry_id}. Otherwise that entry was valid at no"
                " moment",
            )
        return home

    async def _write_entry(
        self, write: _SupersedeCall, own: LocatedRecord, homes: Sequence[tuple[Record, Store]]
    ) -> None:
        one, archive = write.one, self._placement.topology.archive
        at_once = archive.capabilities.atomic and all(
            store is archive for store in (one.store, *(store for _, store in homes))
        )
        if homes and at_once and own.tombstone is None:
            await self._write_at_once(write, archive, [record for record, _ in homes])
            return
        if homes:
            shown = write.superseded.versions is not None
            versions = {"versions": {record.key.id: record.version for record, _ in homes}} if shown else {}
            one.owe(
                PendingStep(SUPERSEDE, SUPERSEDE, {"ids": write.retired, "at": micros(write.at), **versions})
            )
        if own.tombstone is not None:
            await self._entries.writer.meet(one, own, write.revive)
        else:
            await self._entries.writer.put(one.store, [one], write.revive, write.consistency)

    async def _write_at_once(self, write: _SupersedeCall, store: Store, olds: Sequence[Record]) -> None:
        one, now = write.one, self._placement.now()
        puts = [Put(ENTRIES, one.record, Absent())]
        retired, origins = list[OutboxRecord](), all_in(one.record.fields)
        for old in olds:
            gone = apply_changes(
                old, retired_at(old, write.at, origins, now=now), version=version_at(now, old.version)
            )
            settles = frozenset[str]()
            with suppress(NotFound):  # then it is undone, as its source was deleted
                settles = await self._entries.confirmation(old)
            new, replacing = self._entries.prepare_replacement(store, old, gone, settles)
            puts += [
                *replacing,
                Put(
                    RELATIONS,
                    self._relations.link(one.record, SUPERSEDES, old.key.id, made=write.at),
                    Absent(),
                ),
            ]
            retired.append(OutboxRecord(ENTRIES, store, new))
        await self._cache.invalidate(ENTRIES, *[old.key for old in olds])
        outcomes = await self._entries.write_replacements("supersede.home", store, puts)
        raise_if_rejected(store, *outcomes)
        if any(outcome.status is Status.REJECTED for outcome in outcomes):
            for old in olds:
                await self._entries.delete_if_scope_erased(store, old)
        if all(outcome.applied for outcome in outcomes):
            await self._cache.invalidate(ENTRIES, *[old.key for old in olds])
            born = self._entries.writer.mark_stored(one, store, outcomes[0])
            await self._deliveries.deliver([born, *retired], write.consistency)

    async def _supersede(self, pending: OutboxRecord, owed: PendingStep) -> bool:
        """Carry out the step of an entry that was stored alone."""
        owner, key, data = pending.owner, pending.owner.key, owed.data
        if isinstance(owner, Record) and TAKEN_BACK in owner.body:
            return True
        versions, origins = (
            data.get("versions", {}),
            all_in(owner.fields) if isinstance(owner, Record) else [],
        )
        unreadable: CorruptRecord | None = None
        for entry_id in data["ids"]:
            version, at = versions.get(entry_id), moment(data["at"])
            try:
                there = await self._entries.live_record(key.tenant, entry_id)
            except NotFound:
                if version is not None and not await self._has_ended_at(key.tenant, entry_id, at):
                    await self._relations.unlink(key, SUPERSEDES, entry_id, at)
                continue
            except (
                CorruptRecord
            ) as error:  # it does not block the others; the step stays pending until it is erased
                unreadable = error
                continue
            if version not in (None, there.version):
                log.info(
                    "entry %s was edited since it was shown, and stays: %s does not supersede it",
                    entry_id,
                    key.id,
                )
                await self._relations.unlink(
                    key, SUPERSEDES, entry_id, at
                )  # an earlier attempt may have linked it already
                continue
            try:
                source = (
                    owner
                    if isinstance(owner, Record)
                    else await self._entries.live_record(key.tenant, key.id, active=False)
                )
                await self._relations.make(source, SUPERSEDES, entry_id, at, data.get("said"))
            except Conflict:
                log.debug("%s was linked to %s before", key.id, entry_id)
            except (InvalidInput, NotFound):  # one of them is gone
                log.debug("%s cannot be linked to %s", key.id, entry_id)
            retired = await self._entries.retire(key.tenant, entry_id, at, version, origins=origins)
            if not retired and version is not None and not await self._has_ended_at(key.tenant, entry_id, at):
                await self._relations.unlink(key, SUPERSEDES, entry_id, at)
        if unreadable is not None:
            raise unreadable
        return True

    async def _has_ended_at(self, tenant: str, entry_id: str, at: datetime) -> bool:
        """Return whether an entry ended at this moment.

        Then this step retired it, before or in another process just now. An entry that
        something else retired is not linked to this one, although an earlier attempt
        may have linked it.
        """
        try:
            there = await self._entries.live_record(tenant, entry_id, active=False)
        except NotFound:
            return False
        start: Any = there.fields["valid_from"]
        ended: bool = there.fields.get("valid_to") in (at, max(start, at))
        return ended
