"""Entries: written, read, updated, retired.

Drafts and patches arrive validated. Only this package and the ones below it use stores.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from memory.domain import ids
from memory.domain.entry import Entry, EntryDraft
from memory.domain.errors import InvalidInput, NotFound, PartialWrite
from memory.domain.scope import ScopeKind
from memory.domain.time import micros
from memory.domain.versions import version_conflict
from memory.orchestrator.embeddings.embeddings import Embeddings
from memory.orchestrator.entries.admission import Admission, NewEntry
from memory.orchestrator.entries.writing import EntryWriter
from memory.orchestrator.erasure.erasure import Erasure
from memory.orchestrator.storage.cache import Cache
from memory.orchestrator.storage.collections import ENTRIES, ENTRY_VERSIONS
from memory.orchestrator.storage.deliveries import Consistency, Deliveries
from memory.orchestrator.storage.entry_records import (
    REQUEST,
    apply_changes,
    entry_of,
    has_values,
    needs_vector,
    with_request,
)
from memory.orchestrator.storage.generations import Generations
from memory.orchestrator.storage.id_reuse import IdReuse
from memory.orchestrator.storage.key_locks import KeyLocks, RetryDeadline
from memory.orchestrator.storage.outbox import (
    KEPT_VERSION,
    Outbox,
    OutboxRecord,
    StepLifetime,
    keep_version_step,
    no_room,
    write_steps,
)
from memory.orchestrator.storage.past_versions import kept_versions, life_of
from memory.orchestrator.storage.placement import Placement, raise_if_rejected
from memory.orchestrator.storage.requests import RequestMark
from memory.orchestrator.storage.sources import CONFIRM_SOURCES, is_unconfirmed
from memory.orchestrator.storage.versions import kept_version, version_at
from memory.orchestrator.trust.trust import Trust
from memory.policies.visibility import is_active, is_current, is_expired, was_stored, window_end
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.record import Key, PendingStep, Record
from memory.ports.store import Store
from memory.ports.writes import Absent, AtVersion, Outcome, Put, Status

Change = Callable[[Record, datetime], dict[str, Any]]
"""Returns the changes of a record that is changed now."""


class Entries:
    """The repository of entries."""

    def __init__(
        self,
        placement: Placement,
        *,
        embeddings: Embeddings,
        outbox: Outbox,
        cache: Cache,
        erasure: Erasure,
        generations: Generations,
        deliveries: Deliveries,
        id_reuse: IdReuse,
        key_locks: KeyLocks,
        quotas: Admission,
        trust: Trust,
        on_written: Callable[[str, Sequence[Entry]], object],
    ) -> None:
        self._placement = placement
        self._embeddings = embeddings
        self._outbox = outbox
        self._cache = cache
        self._erasure = erasure
        self._generations = generations
        self._deliveries = deliveries
        self.trust = trust
        self.writer = EntryWriter(
            placement,
            embeddings=embeddings,
            deliveries=deliveries,
            id_reuse=id_reuse,
            quotas=quotas,
            trust=trust,
            erasure=erasure,
        )
        self.quotas = quotas
        self._key_locks = key_locks
        self.on_written = on_written
        """Called with a tenant, and its entries that were written or changed."""
        self.sources_exist: Callable[[Record], Awaitable[bool]] | None = None
        """Returns whether no source of a derived entry was deleted."""

    # -- writing -----------------------------------------------------------------------

    async def write(
        self,
        tenant: str,
        draft: EntryDraft,
        *,
        revive: bool = False,
        consistency: Consistency | None = None,
        steps: Sequence[PendingStep] = (),
        replays: set[str] | None = None,
        request: RequestMark | None = None,
    ) -> Entry:
        """Store one entry. With a key or a request, a repeat stores it exactly once."""
        try:
            return (
                await self.write_many(
                    tenant,
                    [draft],
                    revive=revive,
                    consistency=consistency,
                    steps=steps,
                    replays=replays,
                    requests=[request],
                )
            )[0]
        except PartialWrite as none_written:
            raise none_written.conflicts[0] from None

    async def write_many(
        self,
        tenant: str,
        drafts: Sequence[EntryDraft],
        *,
        revive: bool = False,
        consistency: Consistency | None = None,
        steps: Sequence[PendingStep] = (),
        replays: set[str] | None = None,
        requests: Sequence[RequestMark | None] | None = None,
    ) -> list[Entry]:
        """Store entries in order. See `EntryWriter.write_many`."""
        written = await self.writer.write_many(
            tenant,
            drafts,
            revive=revive,
            consistency=consistency,
            steps=steps,
            replays=replays,
            requests=requests,
        )
        self.on_written(tenant, written)
        return written

    # -- reading -----------------------------------------------------------------------

    async def get(
        self,
        tenant: str,
        entry_id: str,
        *,
        as_of: datetime | None = None,
        known_at: datetime | None = None,
        kind: ScopeKind | None = None,
    ) -> Entry | None:
        """Return the entry, or None if it is not visible.

        An entry is not visible if it is unknown, of another tenant, expired, or outside
        its validity window at `as_of` (default now). Where the kind of its scope is
        known, stores in which such entries never are do not get a call.
        """
        if not ids.is_id(entry_id):
            return None
        key = Key(tenant, entry_id)
        record = (
            await self._read(key, self._first_store(kind))
            if known_at is None
            else (await self._placement.locate(ENTRIES, key)).record
        )
        seen = None if record is None else await self._visible_at(record, as_of, known_at)
        shown = [] if seen is None else await self.trust.visible(tenant, [seen])
        return entry_of(shown[0]) if shown else None

    async def get_many(
        self,
        tenant: str,
        entry_ids: Iterable[str],
        *,
        as_of: datetime | None = None,
        known_at: datetime | None = None,
        retired: bool = False,
        kind: ScopeKind | None = None,
    ) -> dict[str, Entry]:
        """Return the entries that `get` would return, by id.

        With `retired`, entries outside their window are included, in their current
        state. `kind` is the kind of their scope, if they share one; see `get`.
        """
        keys = [Key(tenant, entry_id) for entry_id in dict.fromkeys(entry_ids) if ids.is_id(entry_id)]
        located = await self._placement.locate_many(ENTRIES, keys, born_in=self._first_store(kind))
        records = [at.record for at in located if at.record is not None]
        seen = [
            one
            async for record in iterate_cooperatively(records)
            if (one := await self._visible_at(record, as_of, known_at, retired)) is not None
        ]
        shown = [
            entry_of(record) async for record in iterate_cooperatively(await self.trust.visible(tenant, seen))
        ]
        return {entry.id: entry for entry in shown}

    async def _visible_at(
        self, record: Record, as_of: datetime | None, known_at: datetime | None, retired: bool = False
    ) -> Record | None:
        """Return the entry as it was at these moments, if it is visible."""
        now = self._placement.now()
        if is_expired(record, now):
            return None
        if known_at is not None:
            known = await self._as_known(record, known_at, now)
            if known is None or is_expired(known, known_at):
                return None
            record = known
        at = as_of or known_at
        return (
            record
            if retired or (is_current(record, now) if at is None else is_active(record, at, now))
            else None
        )

    def _first_store(self, kind: ScopeKind | None) -> Store | None:
        """Return the store in which entries of this kind of scope are created."""
        if kind is None:
            return None
        return self._placement.topology.home(self._placement.kinds.of(ENTRIES).route(kind).tier)

    async def _read(self, key: Key, born_in: Store | None = None) -> Record | None:
        """Read an entry, from the cache if there is one."""
        seen = await self._cache.look(ENTRIES, key)
        if seen.record is not None:
            return seen.record
        record = (await self._placement.locate(ENTRIES, key, born_in=born_in)).record
        if record is not None:
            await self._cache.fill(ENTRIES, record, seen)
        return record

    async def _as_known(self, record: Record, known_at: datetime, now: datetime) -> Record | None:
        """Return the version that was stored at that moment."""
        moment = micros(known_at)
        if record.version <= moment:
            return record
        versions = [*await kept_versions(self._placement, record), record]
        of_that_moment = next((v for v in versions if v.version == moment), None)
        return of_that_moment or next((v for v in reversed(versions) if was_stored(v, known_at, now)), None)

    async def history(self, tenant: str, entry_id: str) -> list[Entry]:
        """Return every version of a live or retired entry, oldest first.

        The current version is last.
        """
        record = await self.live_record(tenant, entry_id, active=False)
        return [entry_of(r) for r in (*await kept_versions(self._placement, record), record)]

    async def live_record(
        self, tenant: str, entry_id: str, *, active: bool = True, expected: int | None = None
    ) -> Record:
        """Return the home record of an unexpired entry.

        With `active`, the entry must also be in its validity window.

        Raises:
            NotFound: There is no such entry.
            VersionConflict: It has another version than the expected one.
        """
        located = (
            await self._placement.locate(ENTRIES, Key(tenant, entry_id)) if ids.is_id(entry_id) else None
        )
        now = self._placement.now()
        if located is None or located.record is None or is_expired(located.record, now):
            raise NotFound(entry_id)
        check_expected_version(located.record, expected)
        if active and not is_current(located.record, now):
            raise NotFound(entry_id)
        return located.record

    async def confirmed_record(self, tenant: str, entry_id: str, *, active: bool = True) -> Record:
        """Return an entry as `live_record` does, for a call that builds on it.

        A derived entry whose sources are not confirmed yet is confirmed first, so that
        it is not undone later together with what the call makes. It is confirmed by a
        new version, which an undo that has begun respects. Edits of its sources do not
        matter.

        Raises:
            NotFound: There is no such entry, or a source of it was deleted.
        """
        record = await self.live_record(tenant, entry_id, active=active)
        while settles := await self.confirmation(record):
            await self.rewrite_at_once(record.key, self._as_confirmed, settles=settles)
            record = await self.live_record(tenant, entry_id, active=active)
        return record

    async def _as_confirmed(self, record: Record) -> Record | None:
        if not is_unconfirmed(record):
            return None
        new = apply_changes(record, {}, version=version_at(self._placement.now(), record.version))
        return replace(new, updated_at=record.updated_at)

    async def confirmation(self, record: Record) -> frozenset[str]:
        """Return the pending steps that end if a caller's change confirms the entry.

        Raises:
            NotFound: A source of the entry was deleted. It will be undone.
        """
        if not is_unconfirmed(record) or self.sources_exist is None:
            return frozenset()
        if not await self.sources_exist(record):
            raise NotFound(record.key.id)
        return frozenset({CONFIRM_SOURCES})

    # -- changing ----------------------------------------------------------------------

    async def update(
        self,
        tenant: str,
        entry_id: str,
        changes: dict[str, Any],
        consistency: Consistency | None = None,
        *,
        expected: int | None = None,
        request: RequestMark | None = None,
    ) -> Entry:
        """Apply the validated patch. The version before it is kept.

        If the entry has all these values already, it is returned unchanged. A repeat of
        a request returns the version that it made.

        Raises:
            NotFound: There is no active entry, or a blocked source hides it.
            VersionConflict: Another version than the expected one is stored.
        """

        if (
            request is not None
            and request.repeats
            and (done := await self._find_made(tenant, entry_id, request))
        ):
            return entry_of(done)
        if not changes:
            record = await self.live_record(tenant, entry_id, expected=expected)
            await self._refuse_unseen(record)
            return entry_of(record)
        if self.trust.asks_of(changes):
            record = await self.live_record(tenant, entry_id, expected=expected)
            await self._refuse_unseen(record)
            changes = await self.trust.let_change(tenant, record, changes)

        def become(record: Record, now: datetime) -> dict[str, Any]:
            return changes

        changed = await self._change(
            tenant, entry_id, become, consistency, request, shows=True, expected=expected
        )
        entry = entry_of(changed)
        self.on_written(tenant, [entry])
        return entry

    async def invalidate(
        self,
        tenant: str,
        entry_id: str,
        when: datetime | None,
        consistency: Consistency | None = None,
        *,
        expected: int | None = None,
        request: RequestMark | None = None,
        origins: Sequence[str] = (),
    ) -> bool:
        """End the entry's validity window. `origins` are those of the caller.

        Returns:
            False if the entry is not active, or its window has an end already.

        Raises:
            VersionConflict: Another version than the expected one is stored.
        """

        def ends(record: Record, now: datetime) -> dict[str, Any]:
            if record.fields.get("valid_to") is not None:
                raise NotFound(entry_id)
            start: Any = record.fields["valid_from"]
            if when is not None and when <= start:
                raise InvalidInput(
                    "when", "must be later than valid_from. Otherwise the entry is valid at no moment"
                )
            end = when or window_end(start, now, now)
            return {"valid_to": end, **({"origins": list(origins)} if origins else {})}

        try:
            await self._change(tenant, entry_id, ends, consistency, request, expected=expected)
        except NotFound:
            return False
        return True

    async def rewrite(
        self,
        key: Key,
        rewritten: Callable[[Record], Awaitable[Record | None]],
        *,
        settles: frozenset[str] = frozenset(),
    ) -> bool:
        """Replace an entry, also a retired one, by the result of `rewritten`.

        The result may have pending steps of its own. `settles` names the steps that end
        with the write of the result.

        Returns:
            False if `rewritten` returns None, or there is no such entry.
        """
        patience = RetryDeadline(self._placement, key.id)
        async with self._key_locks.take(ENTRIES, key, patience):
            return await self.rewrite_at_once(key, rewritten, settles=settles)

    async def rewrite_at_once(
        self,
        key: Key,
        rewritten: Callable[[Record], Awaitable[Record | None]],
        *,
        settles: frozenset[str] = frozenset(),
    ) -> bool:
        """Rewrite without waiting for other changes of the entry in this process.

        Use it in pending steps: the change to wait for may be carrying out the step.
        """
        patience = RetryDeadline(self._placement, key.id)
        while True:
            home = (await self._placement.locate(ENTRIES, key)).home()
            new = None if home is None else await rewritten(home[0])
            if home is None or new is None:
                return False
            if needs_vector(home[0], new):
                new = (await self._embeddings.embed_records([new]))[0]
            if await self._replace(home[1], home[0], new, None, settles) is not None:
                return True
            await patience.wait()

    async def _refuse_unseen(self, record: Record) -> None:
        """Raise `NotFound` for an entry that a blocked source hides."""
        if not await self.trust.without_blocked(record.key.tenant, [record]):
            raise NotFound(record.key.id)

    async def retire(
        self,
        tenant: str,
        entry_id: str,
        at: datetime,
        version: int | None = None,
        *,
        origins: Sequence[str] = (),
    ) -> bool:
        """End the entry's validity at a moment, which may be in the past.

        If the validity starts later than that moment, it ends at its start; see
        `window_end`. An end later than that moment is brought forward.

        Args:
            version: Only retire this version.
            origins: The origins of the superseding entry.

        Returns:
            False if the entry is not active, or has another version.
        """

        def ends(record: Record, now: datetime) -> dict[str, Any]:
            change = retired_at(record, at, origins, now=now)
            if version not in (None, record.version) or change["valid_to"] == record.fields.get("valid_to"):
                raise NotFound(entry_id)
            return change

        try:
            await self._change(tenant, entry_id, ends)
        except NotFound:
            return False
        return True

    async def _change(
        self,
        tenant: str,
        entry_id: str,
        change: Change,
        consistency: Consistency | None = None,
        request: RequestMark | None = None,
        *,
        shows: bool = False,
        expected: int | None = None,
    ) -> Record:
        """Change an entry, and retry if another writer changed it meanwhile.

        If the request has changed it before, return the version that it made. With
        `shows`, the caller sees the entry, so a hidden one is not found.

        Raises:
            TooMuchContention: Other writers were faster until the deadline.
        """
        if not ids.is_id(entry_id):
            raise NotFound(entry_id)
        key, patience = Key(tenant, entry_id), RetryDeadline(self._placement, entry_id)
        async with self._key_locks.take(ENTRIES, key, patience):
            while (stored := await self._attempt(key, change, consistency, request, shows, expected)) is None:
                await patience.wait()
            return stored

    async def _attempt(
        self,
        key: Key,
        change: Change,
        consistency: Consistency | None,
        request: RequestMark | None,
        shows: bool,
        expected: int | None,
    ) -> Record | None:
        """Try a change once. Returns None if another writer was faster."""
        home = (await self._placement.locate(ENTRIES, key)).home()
        now = self._placement.now()
        if home is not None and (done := await self.made_version(home[0], request)) is not None:
            return done
        if home is None or is_expired(home[0], now):
            raise NotFound(key.id)
        record, store = home
        if shows:
            await self._refuse_unseen(record)
        check_expected_version(record, expected)
        if not is_current(record, now):
            raise NotFound(key.id)
        changes, settles = change(record, now), await self.confirmation(record)
        version = version_at(now, record.version)
        if has_values(record, changes, version=version) and not settles:
            return record
        new = apply_changes(record, changes, version=version)
        new = with_request(new, request)
        if changes.keys() & {"content", "title", "searchable"} or new.vector != record.vector:
            new = (await self._embeddings.embed_records([new]))[0]
        return await self.replace_admitted(store, record, new, consistency, settles)

    async def _find_made(self, tenant: str, entry_id: str, request: RequestMark) -> Record | None:
        """Return the version of an entry that an earlier call of the request made.

        Raises:
            NotFound: The version may not be shown.
        """
        if not ids.is_id(entry_id):
            return None
        record = (await self._placement.locate(ENTRIES, Key(tenant, entry_id))).record
        made = None if record is None else await self.made_version(record, request)
        if record is not None and made is not None and not await self.writer.is_shown(record, made):
            raise NotFound(entry_id)
        return made

    async def made_version(self, record: Record, request: RequestMark | None) -> Record | None:
        """Return the version of the record that an earlier call of the request made.

        Kept versions are only read if the record was changed since the request began.
        """
        if request is None or record.version < request.since:
            return None
        if record.body.get(REQUEST) == request.text:
            return record
        if record.previous is None:
            return None
        kept = await kept_versions(self._placement, record, since=request.since)
        made = next((one for one in kept if one.body.get(REQUEST) == request.text), None)
        return None if made is None else replace(made, tier=record.tier)

    async def versions_of(self, tenant: str, wanted: Sequence[tuple[str, int]]) -> list[Entry | None]:
        """Return the given versions of entries; None for those that may not be shown.

        If a version is not kept any more, its entry is returned as it is now. The
        versions of a deleted entry are gone, even if its id is in use again.
        """
        located = await self._placement.locate_many(ENTRIES, [Key(tenant, one) for one, _ in wanted])
        found: dict[tuple[str, int], Record] = {}
        for (entry_id, version), there in zip(wanted, located, strict=True):
            record = there.record
            if record is None or is_expired(record, self._placement.now()) or version < life_of(record):
                continue
            if record.version != version:
                kept = await kept_versions(self._placement, record)
                made = next((one for one in kept if one.version == version), record)
                record = replace(made, tier=record.tier)
            found[entry_id, version] = record
        shown = await self.trust.visible(tenant, list(found.values()))
        readable = {id(record) for record in shown}
        rows = [found.get(one) for one in wanted]
        return [None if row is None or id(row) not in readable else entry_of(row) for row in rows]

    async def replace_admitted(
        self,
        store: Store,
        old: Record,
        new: Record,
        consistency: Consistency | None,
        settles: frozenset[str] = frozenset(),
    ) -> Record | None:
        """Write a caller's new version, if the quotas have room for a larger one.

        `settles` names steps that end with the write.
        """
        more = NewEntry.growth(old, new) if self.quotas.quotas else []
        async with self.quotas.admit(new.key.tenant, more) as stay:
            stay.add(new.key)
            return await self._replace(store, old, new, consistency, settles)

    async def replace_many(
        self, store: Store, changed: Sequence[tuple[Record, Record]], consistency: Consistency | None
    ) -> list[Record | None]:
        """Write new versions of entries of a store together: pairs of old and new.

        Returns:
            Each new version, or None if it was not written: another writer was faster,
            or it must be written alone.
        """
        archive = self._placement.topology.archive
        more = (
            [one for old, new in changed for one in NewEntry.growth(old, new)] if self.quotas.quotas else []
        )
        async with self.quotas.admit(changed[0][0].key.tenant, more) as stay:
            stay |= {new.key for _, new in changed}
            keys = [old.key for old, _ in changed]
            await self._cache.invalidate(ENTRIES, *keys)
            prepared = [self.prepare_replacement(store, old, new) for old, new in changed]
            writes = [[] if no_room(new, archive) is not None else puts for new, puts in prepared]
            flat = [put for puts in writes for put in puts]
            together = any(len(puts) > 1 for puts in writes)
            outcomes = (
                await self._placement.write("update.home", store, *flat, together=together) if flat else []
            )
            applied = {put.key for put, one in zip(flat, outcomes, strict=True) if one.applied}
            if together and len(applied) < len(flat):
                applied = set()
            stored = [new if new.key in applied else None for new, _ in prepared]
            await self._cache.invalidate(ENTRIES, *keys)
            owing = [OutboxRecord(ENTRIES, store, new) for new in stored if new is not None]
            await self._deliveries.deliver(owing, consistency)
        return stored

    async def _replace(
        self,
        store: Store,
        old: Record,
        new: Record,
        consistency: Consistency | None,
        settles: frozenset[str] = frozenset(),
    ) -> Record | None:
        """Write the new version and keep the old one.

        Returns None if another writer was faster.
        """
        await self._cache.invalidate(ENTRIES, old.key)
        new, writes = self.prepare_replacement(store, old, new, settles)
        if (full := no_room(new, self._placement.topology.archive)) is not None:
            if any(
                owed.step == KEPT_VERSION
                for owed in await self._outbox.finish(OutboxRecord(ENTRIES, store, old))
            ):
                raise full
            return None
        outcomes = await self.write_replacements("update.home", store, writes)
        raise_if_rejected(store, *outcomes)
        if any(
            outcome.status is Status.REJECTED for outcome in outcomes
        ) and await self.delete_if_scope_erased(store, old):
            raise NotFound(old.key.id)
        if not all(o.applied for o in outcomes):
            return None
        await self._cache.invalidate(ENTRIES, old.key)
        await self._deliveries.deliver([OutboxRecord(ENTRIES, store, new)], consistency)
        return new

    def prepare_replacement(
        self, store: Store, old: Record, new: Record, settles: frozenset[str] = frozenset()
    ) -> tuple[Record, list[Put]]:
        """Return the new version with its pending steps, and the puts that store it.

        Two puts are one atomic batch, in which the second keeps the old version.
        `settles` names steps that end with the write.
        """
        replaced = kept_version(old, new.version)
        beside = store is self._placement.topology.archive and store.capabilities.atomic
        keep = () if beside else (keep_version_step(replaced, ENTRY_VERSIONS),)
        carried = [
            owed
            for owed in self._outbox.remaining_steps(old, past=StepLifetime.EDITED)
            if owed.step not in settles
        ]
        owed = (*carried, *write_steps(self._placement, ENTRIES, new, store), *keep, *new.owed)
        new = replace(new, owed=tuple({one.id: one for one in owed}.values()))  # passages may be pending
        writes = [
            Put(
                ENTRIES,
                new,
                AtVersion(old.version, tier=old.tier),
                settles=self._outbox.completed_steps(StepLifetime.EDITED) | settles,
            )
        ]
        if beside:
            writes.append(Put(ENTRY_VERSIONS, replaced, Absent()))
        return new, writes

    async def write_replacements(self, name: str, store: Store, writes: Sequence[Put]) -> list[Outcome]:
        """Write new versions and the old ones that are kept, all or none of them.

        A store of files may have restored an entry to its previous version, which it
        had kept already. That version is kept again then, as replaced by the new one.
        """
        outcomes = await self._placement.write(name, store, *writes, together=len(writes) > 1)
        again: list[Put] = []
        for put, outcome in zip(writes, outcomes, strict=True):
            if put.collection is ENTRY_VERSIONS and outcome.status is Status.CONFLICT:
                again.append(replace(put, when=AtVersion(put.record.version)))
            elif outcome.status is Status.SKIPPED:
                again.append(put)
        if len(again) < len(writes):
            return outcomes
        return await self._placement.write(name, store, *again, together=True)

    async def delete_if_scope_erased(self, store: Store, old: Record) -> bool:
        """Delete the entry if an erasure of its scope is under way, or included it.

        Call it after `store` has refused a write to the entry. Once it returns True,
        the entry is deleted, so the caller may raise `NotFound`.

        Returns:
            False if the write was refused for another reason. The entry then stays.
        """
        if await self._generations.lives_on(old, store):
            return False
        await self._erasure.delete(ENTRIES, old.key, at=old.version, held="deleted")
        return True


def check_expected_version(record: Record, expected: int | None) -> None:
    """Raise `VersionConflict` unless the record has the expected version, if any."""
    if expected not in (None, record.version):
        raise version_conflict(f"entry {record.key.id}", expected, record.version, record.key.id)


def retired_at(record: Record, at: datetime, origins: Sequence[str] = (), *, now: datetime) -> dict[str, Any]:
    """Return the change that retires a superseded entry.

    The change records the origins of the superseding entry. An earlier end of the
    validity window stays.
    """
    start: Any = record.fields["valid_from"]
    before: Any = record.fields.get("valid_to")
    end = window_end(start, at, now)
    return {"valid_to": end if before is None else min(before, end), "origins": list(origins)}
