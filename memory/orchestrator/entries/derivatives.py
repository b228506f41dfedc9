"""Entries derived from entries and messages.

They are found when their sources are erased, and checked against their sources when
they are stored.

A derived entry is stored first, with the pending step `confirm_sources`. Then its
sources are read again. An erasure deletes first, then searches for entries that name
the source. So one of both always sees the other, on every topology. If a process dies
in between, a sweep carries out the remaining step.

Others may see the entry before. Whoever edits it, links it or derives from it confirms
it first (`Entries.confirmed_record`), so that no acknowledged work is undone with it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from memory.domain.enrichment import NOTES
from memory.domain.errors import LegalHoldActive, NotFound, StoreUnavailable
from memory.domain.session import DeletedEntry
from memory.domain.versions import version_conflict
from memory.orchestrator.entries.entries import Entries
from memory.orchestrator.entries.relations import NOTE
from memory.orchestrator.erasure.erasure import DELETE, UNMAKE, Erasure, Unmakes
from memory.orchestrator.storage.collections import DERIVED_FROM, ENTRIES
from memory.orchestrator.storage.entry_records import DELETED_BY, REQUEST, apply_changes
from memory.orchestrator.storage.outbox import Item, Outbox, OutboxRecord, StepLifetime
from memory.orchestrator.storage.partial_answers import BROWSED
from memory.orchestrator.storage.past_versions import kept_versions, same_life
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.requests import UNDONE, RequestMark
from memory.orchestrator.storage.session_keys import scope_of
from memory.orchestrator.storage.sources import (
    CONFIRM_SOURCES,
    EntrySource,
    MessageSource,
    entry_reference,
    is_unconfirmed,
    note_reference,
    scope_reference,
    sources_of,
    still_says,
)
from memory.orchestrator.storage.versions import version_at
from memory.policies.enrichment import ERASED_NOTE
from memory.ports.query import Condition, Has, IsNull, Not, Or, Query, Tenant
from memory.ports.record import JsonValue, Key, Partition, PendingStep, Record
from memory.ports.store import Store

log = logging.getLogger(__name__)

CONFIRM_NOTES = "confirm_notes"
"""The pending step of an entry after an advisor's note was stored, until the entries
that the advisor saw have been checked to exist.
"""

LOOKED_FOR = 100
"""References to sources that one query looks for."""

Stand = Callable[[str, MessageSource], Awaitable[bool]]
"""Returns whether the messages of a source exist, and none of them was erased."""


@dataclass(slots=True, eq=False)
class _Check:
    """A derived entry that is being stored by this process."""

    sources: Sequence[Record]
    """Its sources as they were read."""
    gone: str | None = None
    """The source that was deleted or edited since. The derived entry was deleted then.
    """


def source_filter(*references: str) -> Condition:
    """Return the condition for entries that name one of these as a source."""
    return Or(tuple(Has(DERIVED_FROM, reference) for reference in references))


async def find_derived(placement: Placement, tenant: str, asked: Condition) -> AsyncIterator[Record]:
    """Yield a tenant's entries that match, retired ones too, in every store."""
    for store in placement.topology.homes:
        query = Query(ENTRIES, Tenant(tenant), asked, limit=placement.settings.page, roles=BROWSED)
        async for page in placement.pages("derived.find", store, query):
            for row in page.records:
                if isinstance(row, Record):
                    yield row


class Derivatives:
    """Finds and deletes entries whose sources are gone."""

    def __init__(
        self,
        placement: Placement,
        *,
        entries: Entries,
        outbox: Outbox,
        erasure: Erasure,
        messages_stand: Stand,
    ) -> None:
        self._placement = placement
        self._entries = entries
        self._outbox = outbox
        self._erasure = erasure
        self._checks: dict[Key, list[_Check]] = {}
        self._kept: dict[Key, list[str] | None] = {}
        """For each entry that this process is deleting: the derived entries that stay.
        None until they are known.
        """
        self._messages_stand = messages_stand
        outbox.register_for_records(CONFIRM_SOURCES, self._confirm, StepLifetime.DELETED)
        outbox.register(CONFIRM_NOTES, self._confirm_notes, StepLifetime.DELETED)
        outbox.register(UNMAKE, self._unmake)
        outbox.register_find_idle(UNMAKE, self._without_derived)
        entries.sources_exist = self._sources_exist
        erasure.delete_derived = self._gone_with
        erasure.held_derived = self.held_derived

    # -- stored ------------------------------------------------------------------------

    async def confirm(self, store: Store, stored: Record, sources: Sequence[Record] = ()) -> None:
        """Read the sources of a derived entry again.

        The entry was stored just now, or before with the step still pending.

        Raises:
            NotFound: A source was deleted or edited since. The entry is deleted then.
            StoreUnavailable: The sources cannot be read now. A sweep will check them,
                and the call can be repeated.
        """
        if not is_unconfirmed(stored):
            return
        check = _Check(sources)
        checks = self._checks.setdefault(stored.key, [])
        checks.append(check)
        try:
            left = await self._outbox.finish(OutboxRecord(ENTRIES, store, stored), only=CONFIRM_SOURCES)
        finally:
            checks.remove(check)
            if not checks:
                self._checks.pop(stored.key, None)
        if check.gone is not None:
            raise NotFound(check.gone)
        if any(owed.step == CONFIRM_SOURCES for owed in left):
            raise StoreUnavailable(
                store.name,
                f"has entry {stored.key.id}, but its sources could not be read again; repeat the call",
            )

    async def _confirm(self, entry: Record, store: Store, owed: PendingStep) -> bool:
        """Undo an unconfirmed entry if one of its sources is gone or was edited.

        It is judged again at the version that is deleted: another call may have
        confirmed it, or edited it and so confirmed it, or made it again.
        """
        checks = self._checks.get(entry.key, [])
        read = {(one.key, one.version): one for check in checks for one in check.sources}
        gone = await self._stale_source(entry, read)

        async def is_stale(there: Record) -> bool:
            nonlocal gone
            if not same_life(there, entry):
                return False
            gone = await self._stale_source(there, read) if is_unconfirmed(there) else None
            return gone is not None

        if gone is not None:
            await self._erasure.delete(
                ENTRIES,
                entry.key,
                held="left",
                unmake="all",
                drops=frozenset({DELETE}),
                note={UNDONE: True},
                only_if=is_stale,
            )
        for check in checks:
            check.gone = gone
        return True

    async def _sources_exist(self, entry: Record) -> bool:
        """Return whether no direct source of an entry was deleted."""
        return await self._stale_source(entry, {}, or_edited=False) is None

    async def _stale_source(
        self, entry: Record, read: Mapping[tuple[Key, int], Record], *, or_edited: bool = True
    ) -> str | None:
        """Return the first direct source that is gone, or was edited since it was read.

        None if there is none. `read` has versions of sources that need not be read.
        """
        tenant, direct = entry.key.tenant, [source for source in sources_of(entry) if source.direct]
        keys = {Key(tenant, source.entry_id): source for source in direct if isinstance(source, EntrySource)}
        located = await self._placement.locate_many(ENTRIES, list(keys)) if keys else []
        for (key, source), there in zip(keys.items(), located, strict=True):
            now = there.record
            if now is None:
                return source.entry_id
            if or_edited and now.version != source.version:
                then = read.get((key, source.version)) or await self._as_read(now, source)
                if then is None or not still_says(now, then):
                    return source.entry_id
        for said in direct:
            if isinstance(said, MessageSource) and not await self._messages_stand(tenant, said):
                return said.session_id
        return None

    async def _as_read(self, now: Record, source: EntrySource) -> Record | None:
        """Return the kept version of a source that another process read."""
        kept = await kept_versions(self._placement, now, since=source.version)
        return next((one for one in kept if one.version == source.version), None)

    # -- erased ------------------------------------------------------------------------

    async def delete(
        self, key: Key, expected: int | None = None, request: RequestMark | None = None
    ) -> DeletedEntry:
        """Delete an entry with the entries that were derived from it automatically.

        The result names the derived entries that stay. Only one call for a key may run
        at a time. A repeat of a request that has deleted the entry deletes nothing.

        Raises:
            VersionConflict: Another version than the expected one is stored, or none.
        """
        if request is not None and request.repeats and await self.was_deleted_by(key, request):
            return DeletedEntry(1, is_complete=False)
        self._kept[key] = None
        note: dict[str, JsonValue] | None = None if request is None else {REQUEST: request.text}
        try:
            is_deleted = await self._erasure.delete(ENTRIES, key, at=expected, unmake="automatic", note=note)
        finally:
            kept = self._kept.pop(key)
        if request is not None and not is_deleted and await self.was_deleted_by(key, request):
            return DeletedEntry(1, is_complete=False)
        if expected is not None and not is_deleted:
            record = (await self._placement.locate(ENTRIES, key)).record
            if record is None:
                raise version_conflict(f"entry {key.id}", expected, None)
            raise version_conflict(f"entry {key.id}", expected, record.version, key.id)
        return DeletedEntry(
            is_deleted, sorted(set(kept or ())), is_complete=kept is not None or not is_deleted
        )

    async def delete_at(self, at: Mapping[Key, int], store: Store) -> dict[Key, DeletedEntry | Exception]:
        """Delete entries whose home is in this store, each only at the given version.

        Each is deleted as by `delete`. Only one call for a key may run at a time.

        Returns:
            For each key the result, or why the entry stays: its legal hold, or an error
            of the store.
        """
        self._kept |= dict.fromkeys(at)
        try:
            came = await self._erasure.delete_at(ENTRIES, at, store, set(), unmake="automatic")
        finally:
            kept = {key: self._kept.pop(key) for key in at}
        done: dict[Key, DeletedEntry | Exception] = {}
        for key, one in came.items():
            if isinstance(one, Exception):
                done[key] = one
                continue
            stays = kept[key]
            done[key] = DeletedEntry(one, sorted(set(stays or ())), is_complete=stays is not None or not one)
        return done

    async def was_deleted_by(self, key: Key, request: RequestMark) -> bool:
        """Return whether an earlier call of the request has deleted the entry.

        A later life under the id names the deletion before it.
        """
        there = await self._placement.locate(ENTRIES, key)
        noted = None if there.tombstone is None else there.tombstone.note.get(REQUEST)
        if there.record is not None:
            noted = there.record.body.get(DELETED_BY)
        return noted == request.text

    async def _without_derived(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return the items if no entry and no note names their owners, else none."""
        for tenant in {one.owner.key.tenant for one, _ in items}:
            references = [
                reference
                for one, _ in items
                for reference in (entry_reference(one.owner.key.id), note_reference(one.owner.key.id))
                if one.owner.key.tenant == tenant
            ]
            for start in range(0, len(references), LOOKED_FOR):
                some = source_filter(*references[start : start + LOOKED_FOR])
                async for _ in find_derived(self._placement, tenant, some):
                    return ()
        self._kept |= {one.owner.key: [] for one, _ in items if one.owner.key in self._kept}
        return items

    async def _unmake(self, pending: OutboxRecord, owed: PendingStep) -> bool:
        """Delete the entries derived from a deleted entry: all, or the automatic ones.

        Notes that mention the entry are cleared.
        """
        key, mode, deleted_at = pending.owner.key, owed.data["mode"], pending.owner.version
        if isinstance(pending.owner, Record):
            return True

        def sources_in(record: Record) -> list[EntrySource]:
            return [
                one
                for one in sources_of(record)
                if isinstance(one, EntrySource) and one.entry_id == key.id and not one.moved
            ]

        async def goes(record: Record) -> bool:
            named = sources_in(record)
            if any(one.version > deleted_at for one in named):  # perhaps made of its next life
                there = await self._placement.locate(ENTRIES, key)
                named = named if there.record is None else []
            return bool(named) and (mode == "all" or all(one.automatic for one in named))

        kept: list[str] = []
        async for record in find_derived(
            self._placement, key.tenant, source_filter(entry_reference(key.id), note_reference(key.id))
        ):
            if await goes(record):
                kept += [] if await self._goes(record.key, mode, goes) else [record.key.id]
                continue
            kept += [record.key.id] if sources_in(record) else []
            if NOTES in record.body:
                await self._entries.rewrite_at_once(record.key, partial(self._without_note, key.id))
        if key in self._kept:
            self._kept[key] = kept
        return True

    async def _goes(self, key: Key, mode: Unmakes, goes: Callable[[Record], Awaitable[bool]]) -> bool:
        """Delete a derived entry. Returns false if a legal hold keeps it."""
        try:
            await self._erasure.delete(ENTRIES, key, unmake=mode, only_if=goes)
        except LegalHoldActive as error:
            log.info("%s stays: %s", key.id, error)
            return False
        return True

    async def _confirm_notes(self, pending: OutboxRecord, owed: PendingStep) -> bool:
        """Drop an advisor's note if an entry that the advisor saw is deleted."""
        key, shown = pending.owner.key, owed.data["shown"]
        there = await self._placement.locate_many(ENTRIES, [Key(key.tenant, one) for one in shown])
        for entry_id, at in zip(shown, there, strict=True):
            if at.record is None and isinstance(pending.owner, Record):
                await self._entries.rewrite_at_once(
                    key, partial(self._without_note, entry_id), settles=frozenset({CONFIRM_NOTES})
                )
        return True

    async def _without_note(self, entry_id: str, record: Record) -> Record | None:
        """Return the entry without an advisor's text about a deleted entry."""
        notes: Any = record.body.get(NOTES) or {}
        told = notes.get("auto_supersede")
        if told is None or entry_id not in told["candidates"] or told["note"] in (None, ERASED_NOTE):
            return None
        version = version_at(self._placement.now(), record.version)
        left = {**told, "note": ERASED_NOTE}
        new = apply_changes(record, {}, version=version)
        steps = tuple(
            replace(owed, data=_without_said(owed.data)) for owed in record.owed if "said" in owed.data
        )
        return replace(
            new,
            updated_at=record.updated_at,
            body={**new.body, NOTES: {**notes, "auto_supersede": left}},
            owed=steps,
        )

    async def held_derived(self, tenant: str, concerns: Callable[[str], bool]) -> dict[str, LegalHoldActive]:
        """Return the held entries that were derived from erased data of some scopes.

        They hold its text. The result has the id of each, with its holds.

        Args:
            concerns: Returns whether a scope, or the scope of a conversation, is one of
                those that were erased.
        """
        if not await self._erasure.holds.all(tenant):
            return {}
        found: dict[Key, Record] = {}
        async for record in find_derived(self._placement, tenant, Not(IsNull(DERIVED_FROM))):
            if record.key not in found and await self._is_left(record, concerns):
                found[record.key] = record
        held = await self._erasure.holds.over(list(found.values()))
        return {key.id: error for key, error in held.items()}

    async def _is_left(self, record: Record, concerns: Callable[[str], bool]) -> bool:
        """Return whether a source of an entry, in one of these scopes, is gone."""
        tenant = record.key.tenant
        for source in sources_of(record):
            if isinstance(source, MessageSource):
                if concerns(scope_of(source.session_id)) and not await self._messages_stand(tenant, source):
                    return True
            elif not source.moved and concerns(source.scope):
                there = await self._placement.locate(ENTRIES, Key(tenant, source.entry_id))
                if there.record is None:
                    return True
        return False

    async def _gone_with(
        self, partition: Partition, generation: int, before: int | None, prefix: str | None
    ) -> None:
        """Delete the entries derived from the entries of an erased scope.

        With `before`, only those of older entries. Entries in scopes that begin with
        `prefix` stay.
        """

        async def is_gone(record: Record) -> bool:
            named = [
                Key(partition.tenant, one.entry_id)
                for one in sources_of(record)
                if isinstance(one, EntrySource)
                and one.scope == partition.scope
                and one.generation < generation
                and (before is None or one.version < before)
                and not one.moved
            ]
            located = await self._placement.locate_many(ENTRIES, named) if named else []
            return any(there.record is None for there in located)

        async for record in find_derived(
            self._placement,
            partition.tenant,
            source_filter(scope_reference(partition.tenant, partition.scope)),
        ):
            if prefix is not None and record.scope.startswith(prefix):
                continue
            if await is_gone(record):
                await self._erasure.delete(ENTRIES, record.key, held="left", unmake="all", only_if=is_gone)


def _without_said(data: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    said: Any = data["said"]
    return {**data, "said": {**said, NOTE: ERASED_NOTE}}
