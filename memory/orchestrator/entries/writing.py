"""Writes drafts as new entries, batch by batch; a keyed draft exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from memory.domain import ids
from memory.domain.entry import Entry, EntryDraft, ImportedDraft
from memory.domain.errors import Conflict, InvalidInput, LegalHoldActive, PartialWrite, StoreUnavailable
from memory.domain.time import moment
from memory.orchestrator.embeddings.embeddings import Embeddings
from memory.orchestrator.entries.admission import Admission, NewEntry
from memory.orchestrator.erasure.erasure import EXPIRED, Erasure
from memory.orchestrator.storage.collections import DIGEST, ENTRIES, SEQUENCE
from memory.orchestrator.storage.deliveries import Consistency, Deliveries
from memory.orchestrator.storage.entry_records import (
    KEY,
    REQUEST,
    WRITTEN_AS,
    apply_draft,
    as_read_since,
    entry_of,
    record_of,
    request_digest,
    with_request,
)
from memory.orchestrator.storage.id_reuse import IdReuse
from memory.orchestrator.storage.key_locks import RetryDeadline
from memory.orchestrator.storage.outbox import OutboxRecord, write_steps
from memory.orchestrator.storage.past_versions import BORN_IN, kept_versions
from memory.orchestrator.storage.placement import LocatedRecord, Placement, rejection_error
from memory.orchestrator.storage.requests import CREATED_OVER, MADE_BY, UNDONE, RequestMark
from memory.orchestrator.storage.sources import CONFIRMS, tracked_source, with_sources
from memory.orchestrator.storage.versions import CLOCK_SKEW, version_at
from memory.orchestrator.trust.trust import Trust
from memory.policies.visibility import is_expired
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.record import Key, PendingStep, Record, Stored
from memory.ports.store import Store
from memory.ports.writes import Absent, Outcome, Put


@dataclass(slots=True)
class PendingEntry:
    """A draft that is being written; it ends with an entry or a conflict."""

    draft: EntryDraft
    record: Record
    store: Store
    steps: tuple[PendingStep, ...] = ()
    """Its pending steps in addition to those of every entry."""
    entry: Entry | None = None
    conflict: Conflict | None = None
    replayed: bool = False
    """Whether an earlier write has stored the entry."""
    request: RequestMark | None = None
    """The request that writes it."""

    def owe(self, step: PendingStep) -> None:
        """Add a pending step to the entry."""
        self.steps, self.record = (*self.steps, step), replace(self.record, owed=(*self.record.owed, step))

    @property
    def is_repeatable(self) -> bool:
        """Whether the entry's id derives from a key or a request."""
        return self.draft.key is not None or self.request is not None

    @property
    def name(self) -> str:
        """The key or the request, for messages."""
        if self.draft.key is None and self.request is not None:
            return f"request_id {self.request.name!r}"
        return f"key {self.draft.identity!r}"

    @property
    def has_outcome(self) -> bool:
        return self.entry is not None or self.conflict is not None


def latest_moment(placement: Placement) -> datetime:
    """Return the latest moment that is not in the future, by any machine's clock."""
    return placement.now() + CLOCK_SKEW


def check_not_later(draft: EntryDraft, latest: datetime) -> None:
    """Raise `InvalidInput` if the draft is created or becomes valid after `latest`."""
    for field in ("created_at", "valid_from"):
        said = getattr(draft, field, None)
        if said is not None and said > latest:
            minutes = CLOCK_SKEW // timedelta(minutes=1)
            raise InvalidInput(
                field, f"lies in the future; a clock may be at most {minutes} minutes ahead of this machine's"
            )


class EntryWriter:
    """Writes drafts as entries, batch by batch."""

    def __init__(
        self,
        placement: Placement,
        *,
        embeddings: Embeddings,
        deliveries: Deliveries,
        id_reuse: IdReuse,
        quotas: Admission,
        trust: Trust,
        erasure: Erasure,
    ) -> None:
        self._placement = placement
        self._trust = trust
        self._erasure = erasure
        self._embeddings = embeddings
        self._deliveries = deliveries
        self._id_reuse = id_reuse
        self._quotas = quotas

    async def write_many(
        self,
        tenant: str,
        drafts: Sequence[EntryDraft],
        *,
        revive: bool = False,
        consistency: Consistency | None = None,
        let_in: bool = False,
        absent: bool = False,
        steps: Sequence[PendingStep] = (),
        replays: set[str] | None = None,
        requests: Sequence[RequestMark | None] | None = None,
    ) -> list[Entry]:
        """Store entries in order, batch by batch.

        If a store fails, the earlier batches are kept. Keyed drafts can be written
        again.

        Args:
            revive: Let a key whose entry was deleted begin a new life.
            consistency: When the write returns; by default as in the settings.
            let_in: The drafts have passed the trust checks already.
            absent: Every store was asked just now, and has nothing under their keys.
            steps: Pending steps that each new entry gets in addition.
            replays: The ids of entries that an earlier write stored are added to it.
            requests: The mark of each draft's request, so that it can be written again.

        Raises:
            PartialWrite: Some keyed drafts were in conflict; all others are stored.
            QuotaExceeded: There is no room; nothing is stored.
            RejectedByGate: A draft was refused; nothing is stored.
        """
        self.refuse_future(drafts)
        if not let_in:
            drafts = await self._trust.let_in(tenant, drafts)
        pending: list[PendingEntry] = []
        asked = list(zip(drafts, requests or [None] * len(drafts), strict=True))
        new_entries = [self._new_entry(tenant, *one) for one in asked] if self._quotas.quotas else []
        async with self._quotas.admit(tenant, new_entries) as stay:
            for start in range(0, len(drafts), self._placement.settings.batch):
                some = asked[start : start + self._placement.settings.batch]
                pending += await self._write_batch(tenant, some, revive, consistency, steps, absent)
            stay |= {one.record.key for one in pending}
        if replays is not None:
            replays |= {one.record.key.id for one in pending if one.replayed}
        written = {position: one.entry for position, one in enumerate(pending) if one.entry is not None}
        conflicts = {
            position: one.conflict for position, one in enumerate(pending) if one.conflict is not None
        }
        if conflicts:
            raise PartialWrite(written, conflicts)
        return list(written.values())

    async def conflicts(self, tenant: str, drafts: Sequence[EntryDraft]) -> dict[int, Conflict]:
        """Return the conflicts of keyed drafts with stored entries, by position.

        A write gate may change a draft. So the result is empty if there is one.
        """
        if self._trust.gates.write is not None:
            return {}
        pending = [self.pending(tenant, draft) async for draft in iterate_cooperatively(drafts)]
        located = await self._placement.locate_many(ENTRIES, [one.record.key for one in pending])
        found = [
            None if there.record is None else _conflict(one, there.record)
            for one, there in zip(pending, located, strict=True)
        ]
        return {position: conflict for position, conflict in enumerate(found) if conflict is not None}

    def refuse_future(self, drafts: Sequence[EntryDraft]) -> None:
        """Refuse drafts that are created, or become valid, in the future."""
        latest = latest_moment(self._placement)
        for draft in drafts:
            if not isinstance(draft, ImportedDraft):  # an import keeps the moments of its file
                check_not_later(draft, latest)

    async def _write_batch(
        self,
        tenant: str,
        asked: Sequence[tuple[EntryDraft, RequestMark | None]],
        revive: bool,
        consistency: Consistency | None,
        steps: Sequence[PendingStep],
        absent: bool,
    ) -> list[PendingEntry]:
        pending = [
            self.pending(tenant, draft, request=request)
            async for draft, request in iterate_cooperatively(asked)
        ]
        await self.embed(pending)
        for one in pending if steps else ():
            for each in steps:
                one.owe(each)
        if not absent:
            await self._look_for_repeats(pending, revive)
        for store in dict.fromkeys(one.store for one in pending):
            await self.put(
                store,
                [one for one in pending if one.store is store and not one.has_outcome],
                revive,
                consistency,
            )
        return pending

    async def embed(self, pending: Sequence[PendingEntry]) -> None:
        """Add the vectors, and the pending steps of new records."""
        records = await self._embeddings.embed_records([one.record for one in pending])
        for one, record in zip(pending, records, strict=True):
            one.record = replace(
                record, owed=(*one.steps, *write_steps(self._placement, ENTRIES, record, one.store))
            )

    def _new_entry(self, tenant: str, draft: EntryDraft, request: RequestMark | None) -> NewEntry:
        one = self.pending(tenant, draft, request=request)
        return NewEntry.of(one.record, derived=one.is_repeatable)

    def pending(
        self,
        tenant: str,
        draft: EntryDraft,
        supersedes: Sequence[str] = (),
        asked: EntryDraft | None = None,
        request: RequestMark | None = None,
    ) -> PendingEntry:
        """Return a draft as a pending entry.

        Under a key, the request (`asked`) and the superseded entries identify the
        write.
        """
        now, scope = self._placement.now(), draft.scope.text
        routed = self._placement.kinds.of(ENTRIES).route(draft.scope.kind)
        store = self._placement.topology.home(routed.tier)
        if draft.identity:
            record_id = ids.keyed_id(tenant, scope, draft.identity)
        elif request is not None:
            record_id = ids.derived_id(tenant, scope, "request", request.text)
        else:
            record_id = self._placement.new_id(tenant, scope)
        digest = request_digest(asked or draft, supersedes) if draft.key or request is not None else None
        key, sequence = Key(tenant, record_id), self._placement.next_sequence()
        record = record_of(
            draft,
            key=key,
            version=version_at(now),
            now=now,
            tier=routed.tier,
            sequence=sequence,
            digest=digest,
        )
        record = with_request(record, request)
        if isinstance(draft, ImportedDraft):
            return PendingEntry(draft, with_sources(record, draft.sources), store, request=request)
        learnt = tracked_source(self._placement, tenant)
        if learnt is not None:
            return PendingEntry(draft, with_sources(record, [learnt]), store, CONFIRMS, request=request)
        return PendingEntry(draft, record, store, request=request)

    async def _look_for_repeats(self, pending: Sequence[PendingEntry], revive: bool) -> None:
        """Look for keyed entries in later tiers first: they count as present too."""
        for store in dict.fromkeys(
            one.store for one in pending if one.is_repeatable and self._placement.topology.later(one.store)
        ):
            keyed = [one for one in pending if one.is_repeatable and one.store is store]
            await self._meet_all(keyed, store, revive)

    async def _meet_all(
        self, keyed: Sequence[PendingEntry], store: Store, revive: bool, *, taken: bool = False
    ) -> None:
        """Look for the entries under the keys of these drafts, and resolve those found.

        With `taken`, the store has something under each key.
        """
        if not keyed:
            return
        located = await self._placement.locate_many(ENTRIES, [one.record.key for one in keyed], born_in=store)
        async for one, there in iterate_cooperatively(zip(keyed, located, strict=True)):
            if there.corrupt is not None:
                raise there.corrupt
            if taken or there.record is not None or there.tombstone is not None:
                await self.meet(one, there, revive)

    async def put(
        self, store: Store, pending: Sequence[PendingEntry], revive: bool, consistency: Consistency | None
    ) -> None:
        """Put new entries. A keyed draft whose key is taken is resolved by `meet`."""
        if not pending:
            return
        outcomes = await self._placement.write(
            "write.home", store, *(Put(ENTRIES, one.record, Absent()) for one in pending)
        )
        fresh = [
            self.mark_stored(one, store, outcome)
            async for one, outcome in iterate_cooperatively(zip(pending, outcomes, strict=True))
            if outcome.applied
        ]
        await self._deliveries.deliver(fresh, consistency)
        taken: list[PendingEntry] = []
        async for one, outcome in iterate_cooperatively(zip(pending, outcomes, strict=True)):
            if (error := rejection_error(store, outcome)) is not None:
                raise error
            if outcome.applied:
                continue
            if one.is_repeatable:
                taken.append(one)
            elif is_own(one.record, outcome.stored, outcome.version):
                one.entry = entry_of(one.record)
            else:
                raise Conflict(f"a fresh id was taken already, which should not happen: {one.record.key.id}")
        await self._meet_all(taken, store, revive, taken=True)

    def mark_stored(self, one: PendingEntry, store: Store, outcome: Outcome) -> OutboxRecord:
        """Note that the entry is stored, and return its outbox record."""
        one.record = replace(one.record, generation=outcome.generation)
        one.entry = entry_of(one.record)
        return OutboxRecord(ENTRIES, store, one.record)

    async def meet(self, one: PendingEntry, there: LocatedRecord, revive: bool) -> None:
        """Resolve a keyed draft whose key has an entry, or had one.

        An expired entry counts as absent: it is deleted, and the draft is written. One
        under legal hold is a conflict. So is an entry that an earlier attempt of the
        request may have written, and that was deleted since.
        """
        try:
            refuse_gone(one.request, there)
            there = await self.delete_expired(one, there)
            is_free = one.draft.key is not None and (revive or was_expired(there))
            if there.record is None and there.tombstone is not None and is_free:
                await self._revive(one, there)
            else:
                one.entry = await self._replay_write(one, there)
        except Conflict as conflict:
            one.conflict = conflict

    async def delete_expired(self, one: PendingEntry, there: LocatedRecord) -> LocatedRecord:
        """Delete the entry under the key of a caller's draft if it has expired.

        Imports leave it, so that a repeated import finds it. So does a repeat of the
        request that wrote it.

        Returns:
            What is under the key now.

        Raises:
            Conflict: The expired entry is under legal hold.
        """
        draft, record = one.draft, there.record
        if draft.address is None or isinstance(draft, ImportedDraft) or record is None:
            return there
        if not is_expired(record, self._placement.now()):
            return there
        if one.request is not None and record.body.get(REQUEST) == one.request.text:
            return there
        await self.free_key(record)
        return await self._placement.locate(ENTRIES, record.key)

    async def free_key(self, expired: Record) -> None:
        """Delete an expired entry, whose key counts as free.

        Raises:
            Conflict: The entry is under legal hold.
        """
        try:
            await self._erasure.delete(ENTRIES, expired.key, at=expired.version)
        except LegalHoldActive as held:
            problem = f"key {expired.body.get(KEY)!r} has an expired entry {held}"
            raise Conflict(problem, expired.key.id) from None

    async def _replay_write(self, one: PendingEntry, there: LocatedRecord) -> Entry:
        """Return the first result of a keyed write: the entry as first stored.

        Later edits do not matter.
        """
        if there.record is not None:
            if (conflict := _conflict(one, there.record)) is not None:
                raise conflict
            if one.request is not None and one.request.repeats:
                first = await self._first_version(there.record)
                if not await self.is_shown(there.record, first):
                    raise gone_error(there.record.key.id)
            one.replayed = not is_same_write(one.record, there.record)
            return entry_of(
                replace(
                    await self._first_version(there.record),
                    tier=there.record.body.get(BORN_IN, one.record.tier),
                )
            )
        if there.tombstone is None:
            raise StoreUnavailable(one.store.name, f"the entry under {one.name} is moving; try again")
        deleted_at = moment(there.tombstone.version)
        raise Conflict(_was_deleted(one, deleted_at), one.record.key.id, deleted_at=deleted_at)

    async def is_shown(self, record: Record, made: Record) -> bool:
        """Return whether a repeat may return a version of the record."""
        tenant, is_over = record.key.tenant, is_expired(record, self._placement.now())
        return not is_over and bool(await self._trust.visible(tenant, [made]))

    async def _first_version(self, record: Record) -> Record:
        if record.previous is None:
            return record
        return next(iter(await kept_versions(self._placement, record)), record)

    async def _revive(self, one: PendingEntry, there: LocatedRecord) -> None:
        """Begin a new life over the tombstone.

        If another writer did so first, this write is a repeat of that one.
        """
        patience = RetryDeadline(self._placement, one.record.key.id)
        while there.record is None:
            born = await self._id_reuse.prepare(one.record, one.store, there)
            if born is not None:
                record = replace(
                    born.record,
                    owed=(*write_steps(self._placement, ENTRIES, born.record, born.store), *one.steps),
                )
                outcome = await self._placement.write_one(
                    "write.revive", born.store, Put(ENTRIES, record, born.when)
                )
                if (error := rejection_error(born.store, outcome)) is not None:
                    raise error
                if outcome.applied:
                    one.record = record
                    await self._deliveries.deliver([self.mark_stored(one, born.store, outcome)], "replicated")
                    return
            await patience.wait()
            there = await self._placement.locate(ENTRIES, one.record.key, born_in=one.store)
        one.entry = await self._replay_write(one, there)


def _conflict(one: PendingEntry, stands: Record) -> Conflict | None:
    """Return the conflict of a keyed draft with the stored entry.

    None if the draft is a repeat of it.
    """
    if one.record.fields[DIGEST] in (stands.fields.get(DIGEST), stands.body.get(WRITTEN_AS)):
        return None
    if one.draft.key is None:
        return None  # its id derives from all that the request asks for
    if (
        isinstance(one.draft, ImportedDraft)
        and one.draft.named is not None
        and apply_draft(stands, as_read_since(one.draft, stands), version=stands.version + 1) is stands
    ):
        return None  # the entry itself, from which the file was exported
    problem = f"{one.name} was used in this scope for another entry"
    if not isinstance(one.draft, ImportedDraft):
        problem += ". To change that entry, pass if_exists='update' or 'replace'"
    return Conflict(problem, stands.key.id)


def gone_error(entry_id: str) -> Conflict:
    """Return the conflict of a repeated request whose entry may not be returned."""
    return Conflict(
        f"entry {entry_id}, which this request has written, was deleted, has expired or is hidden. Use a new"
        " request_id to write another entry"
    )


def refuse_gone(request: RequestMark | None, there: LocatedRecord) -> None:
    """Raise `Conflict` if a repeat would store again what was deleted since.

    Of an expired entry, the tombstone says which request had written it.
    """
    tombstone, record = there.tombstone, there.record
    if request is None or (tombstone is None and record is None):
        return
    if record is not None:
        gone = int(str(record.body.get(CREATED_OVER, 0)))
        is_own = record.body.get(REQUEST) == request.text
        if not is_own and request.may_have_made(gone):
            raise gone_error(record.key.id)
    elif tombstone is not None and request.may_have_made(tombstone.version):
        if UNDONE in tombstone.note:
            return
        if EXPIRED not in tombstone.note or tombstone.note.get(MADE_BY) == request.text:
            raise gone_error(tombstone.key.id)


def _was_deleted(one: PendingEntry, when: datetime) -> str:
    advice = (
        "write with a new request_id to store another entry"
        if one.draft.key is None
        else "write with revive=True to begin a new life under the key"
    )
    return f"the entry under {one.name} was deleted at {when.isoformat(timespec='seconds')}; {advice}"


def was_expired(there: LocatedRecord) -> bool:
    """Return whether the key is free because its entry had expired when it went."""
    return there.tombstone is not None and there.tombstone.note.get(EXPIRED) is True


def is_same_write(record: Record, stands: Record) -> bool:
    """Return whether the stored record is this write, sent before and arrived late."""
    return (stands.created_at, stands.fields.get(SEQUENCE), stands.version) == (
        record.created_at,
        record.fields.get(SEQUENCE),
        record.version,
    )


def is_own(record: Record, stands: Stored | None, version: int | None) -> bool:
    """Return whether the row under a fresh id comes from this same write.

    The write was sent before, given up, and arrived late. The row may have been changed
    since.
    """
    if isinstance(stands, Record):
        same = stands.version > record.version or (dict(stands.texts), dict(stands.body)) == (
            dict(record.texts),
            dict(record.body),
        )
        return (
            same
            and stands.version >= record.version
            and (stands.scope, stands.created_at) == (record.scope, record.created_at)
        )
    return (version or 0) >= record.version
