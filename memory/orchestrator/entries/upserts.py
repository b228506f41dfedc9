"""Keyed writes of entries that may exist, alone or many at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from memory.domain import ids
from memory.domain.entry import Entry, EntryDraft, PartialDraft
from memory.domain.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    PartialWrite,
    QuotaExceeded,
    VersionConflict,
)
from memory.domain.versions import version_conflict
from memory.orchestrator.embeddings.embeddings import Embeddings
from memory.orchestrator.entries.entries import Entries
from memory.orchestrator.entries.writing import gone_error, refuse_gone
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.storage.deliveries import Consistency
from memory.orchestrator.storage.entry_records import (
    apply_draft,
    apply_given,
    entry_of,
    needs_vector,
    with_request,
)
from memory.orchestrator.storage.key_locks import KeyLocks, RetryDeadline
from memory.orchestrator.storage.placement import LocatedRecord, Placement
from memory.orchestrator.storage.requests import RequestMark
from memory.orchestrator.storage.versions import version_at
from memory.policies.visibility import is_current, is_expired
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.record import Key, PendingStep, Record
from memory.ports.store import Store

UpsertMode: TypeAlias = Literal["create", "replace", "update", "keep"]
"""How a keyed write treats an entry that exists."""


@dataclass(frozen=True, slots=True)
class UpsertCall:
    """A keyed write of an entry that may exist."""

    draft: EntryDraft
    mode: UpsertMode = "replace"
    expected: int | None = None
    """The version that must be stored; 0 for none."""
    revive: bool = True
    """Whether the key of a deleted entry may begin a new life."""
    consistency: Consistency | None = None
    steps: Sequence[PendingStep] = ()
    """Pending steps that a new entry gets in addition."""
    request: RequestMark | None = None
    """The mark of the request. A repeat finds the version that it made."""

    def key_of(self, tenant: str) -> Key:
        """Return the key of the entry's record."""
        return Key(tenant, ids.keyed_id(tenant, self.draft.scope.text, str(self.draft.identity)))

    @property
    def has_substance(self) -> bool:
        """Return whether the draft can be a new entry."""
        return not isinstance(self.draft, PartialDraft) or self.draft.has_substance

    def goes_with(self, other: UpsertCall) -> bool:
        """Return whether both calls can be made in one batch."""
        is_plain = not any(one.mode == "create" or one.steps for one in (self, other))
        return is_plain and self.consistency == other.consistency


Upserted: TypeAlias = tuple[Entry, bool]
"""An entry, and whether the call found it as it is."""


class Upserts:
    """Writes entries under keys that may have an entry."""

    def __init__(
        self, placement: Placement, *, entries: Entries, embeddings: Embeddings, key_locks: KeyLocks
    ) -> None:
        self._placement = placement
        self._entries = entries
        self._writer = entries.writer
        self._trust = entries.trust
        self._embeddings = embeddings
        self._key_locks = key_locks

    async def upsert(self, tenant: str, call: UpsertCall) -> Upserted:
        """Store the entry under the draft's key, if it exists or not.

        Only an active entry is found; an expired one counts as absent. With "replace"
        it takes all values of the draft, with "update" those that are given, and with
        "keep" it stays. With "create" nothing may exist. A change that changes nothing
        makes no version.

        Raises:
            Conflict: The entry is retired, so it cannot be changed. Or the key has a
                deleted entry, and `revive` is false. Or "keep" finds a hidden entry, or
                "update" one that a blocked source hides.
            InvalidInput: There is no entry, and the draft has neither text nor data.
            VersionConflict: Another version than the expected one is stored.
        """
        key = call.key_of(tenant)
        patience = RetryDeadline(self._placement, key.id)
        async with self._key_locks.take(ENTRIES, key, patience):
            while (outcome := await self._try_upsert(key, call)) is None:
                await patience.wait()
        if not outcome[1]:
            self._entries.on_written(tenant, [outcome[0]])
        return outcome

    async def upsert_many(
        self, tenant: str, calls: Sequence[UpsertCall]
    ) -> list[Upserted | Conflict | InvalidInput]:
        """Make keyed writes in order, batch by batch, by few calls of the stores.

        Writes that need a second look are made alone, as by `upsert`. If a store
        fails, the earlier batches are kept.

        Returns:
            The result of each call, or the error that `upsert` raises for it.

        Raises:
            QuotaExceeded: There is no room. `written` has what was stored before.
        """
        outcomes: list[Upserted | Conflict | InvalidInput] = []
        for batch in _batches(tenant, calls, self._placement.settings.batch):
            done: dict[Key, Upserted] = {}
            try:
                outcomes += await self._upsert_batch(tenant, batch, done)
            except QuotaExceeded as full:
                all_so_far = enumerate([*outcomes, *(done.get(key) for key in batch)])
                raise full.with_written(
                    {at: one[0] for at, one in all_so_far if isinstance(one, tuple)}
                ) from None
        return outcomes

    async def _upsert_batch(
        self, tenant: str, batch: Mapping[Key, UpsertCall], done: dict[Key, Upserted]
    ) -> list[Upserted | Conflict | InvalidInput]:
        """Make the calls of a batch. `done` gets each entry once it is stored."""
        refusals: dict[Key, Conflict | InvalidInput] = {}
        if len(batch) > 1:
            patience = {key: RetryDeadline(self._placement, key.id) for key in sorted(batch)}
            async with AsyncExitStack() as locks:
                for key, until in patience.items():  # in one order, so that no two calls deadlock
                    await locks.enter_async_context(self._key_locks.take(ENTRIES, key, until))
                try:
                    await self._try_together(tenant, batch, done)
                finally:
                    new = [entry for entry, is_found in done.values() if not is_found]
                    self._entries.on_written(tenant, new)
        for key, call in batch.items():
            if key not in done:
                try:
                    done[key] = await self.upsert(tenant, call)
                except (Conflict, InvalidInput) as refused:
                    refusals[key] = refused
        return [refusals.get(key) or done[key] for key in batch]

    async def _try_together(
        self, tenant: str, batch: Mapping[Key, UpsertCall], done: dict[Key, Upserted]
    ) -> None:
        """Make the writes that need no second look, and add them to `done`."""
        located = await self._placement.locate_many(ENTRIES, list(batch))
        now, homes = self._placement.now(), dict[Key, tuple[Record, Store]]()
        absent: list[Key] = []
        async for key, there in iterate_cooperatively(zip(batch, located, strict=True)):
            call, home = batch[key], there.home()
            if call.request is not None and call.request.repeats:
                continue
            if home is None:
                is_free = there.tombstone is None and there.corrupt is None
                absent += [key] if is_free and call.has_substance and not call.expected else []
            elif is_expired(home[0], now) or not is_current(home[0], now):
                continue
            elif call.expected in (None, home[0].version):
                homes[key] = home
        shown = await self._visible_keys(tenant, batch, [record for record, _ in homes.values()])
        changed: dict[Store, list[tuple[Record, Record]]] = {}
        async for key, (record, store) in iterate_cooperatively(homes.items()):
            call = batch[key]
            if key not in shown:
                continue
            new = record if call.mode == "keep" else await self._apply_call(record, call, now)
            if new is record:
                done[key] = entry_of(record), True
            else:
                changed.setdefault(store, []).append((record, with_request(new, call.request)))
        done |= await self._create_together(tenant, [batch[key] for key in absent])
        for store, pairs in changed.items():
            consistency = batch[pairs[0][0].key].consistency
            stored = await self._entries.replace_many(store, await self._embed(pairs), consistency)
            done |= {one.key: (entry_of(one), False) for one in stored if one is not None}

    async def _visible_keys(
        self, tenant: str, batch: Mapping[Key, UpsertCall], records: Sequence[Record]
    ) -> set[Key]:
        """Return the keys of the records that their calls may find."""
        by_mode: dict[str, list[Record]] = {}
        for record in records:
            by_mode.setdefault(batch[record.key].mode, []).append(record)
        kept = await self._trust.visible(tenant, by_mode.get("keep", []))
        updated = await self._trust.without_blocked(tenant, by_mode.get("update", []))
        return {record.key for record in (*kept, *updated, *by_mode.get("replace", []))}

    async def _embed(self, pairs: Sequence[tuple[Record, Record]]) -> list[tuple[Record, Record]]:
        """Add vectors to the new versions that need them."""
        needing = [new for old, new in pairs if needs_vector(old, new)]
        embedded = {new.key: new for new in await self._embeddings.embed_records(needing)} if needing else {}
        return [(old, embedded.get(new.key, new)) for old, new in pairs]

    async def _create_together(self, tenant: str, calls: Sequence[UpsertCall]) -> dict[Key, Upserted]:
        """Write new entries. Those whose key was taken meanwhile are left out."""
        if not calls:
            return {}
        drafts = [call.draft for call in calls]
        allowed = await self._trust.let_in(tenant, drafts, changing=True)
        replays: set[str] = set()
        try:
            written = dict(
                enumerate(
                    await self._writer.write_many(
                        tenant,
                        allowed,
                        revive=True,
                        consistency=calls[0].consistency,
                        let_in=True,
                        absent=True,
                        replays=replays,
                        requests=[call.request for call in calls],
                    )
                )
            )
        except PartialWrite as partial:
            written = partial.written
        return {
            calls[at].key_of(tenant): (entry, False)
            for at, entry in written.items()
            if entry.id not in replays
        }

    async def _try_upsert(self, key: Key, call: UpsertCall) -> Upserted | None:
        """Try once. Returns None if another writer was faster."""
        located = await self._placement.locate(ENTRIES, key)
        home, now = located.home(), self._placement.now()
        if (done := await self._find_upserted(located, call.request)) is not None:
            return entry_of(done), True
        if home is not None and is_expired(home[0], now):
            if call.expected:
                raise _mismatch(call.draft, call.expected, None)
            await self._writer.free_key(home[0])
            return None
        stored = None if home is None else home[0].version
        if call.expected is not None and call.expected != (stored or 0):
            raise _mismatch(call.draft, call.expected, stored, key.id)
        if home is None:
            return await self._create(key, call)
        record, store = home
        if not is_current(record, now):
            raise Conflict(
                f"the entry under key {call.draft.key!r} was retired: delete it first, or take another key",
                key.id,
            )
        if call.mode == "update" and not await self._trust.without_blocked(key.tenant, [record]):
            raise Conflict(
                f"the entry under key {call.draft.key!r} is hidden by a blocked source", record.key.id
            )
        if call.mode == "keep":
            await self._refuse_hidden(record, call.draft)
            return entry_of(record), True
        new = await self._apply_call(record, call, now)
        if new is record:
            return entry_of(record), True
        new = with_request(new, call.request)
        if needs_vector(record, new):
            new = (await self._embeddings.embed_records([new]))[0]
        try:
            replaced = await self._entries.replace_admitted(store, record, new, call.consistency)
        except NotFound:  # its scope was erased meanwhile
            return None
        return None if replaced is None else (entry_of(replaced), False)

    async def _find_upserted(self, there: LocatedRecord, request: RequestMark | None) -> Record | None:
        """Return the version that an earlier attempt of a keyed write made.

        Raises:
            Conflict: The version may not be shown, or its entry was deleted since.
        """
        record = there.record
        if record is not None and (done := await self._entries.made_version(record, request)) is not None:
            if not await self._writer.is_shown(record, done):
                raise gone_error(record.key.id)
            return done
        refuse_gone(request, there)
        return None

    async def _refuse_hidden(self, record: Record, draft: EntryDraft) -> None:
        if not await self._trust.visible(record.key.tenant, [record]):
            why = "hidden by a blocked source or the recall gate"
            raise Conflict(f"the entry under key {draft.key!r} is {why}", record.key.id)

    async def _create(self, key: Key, call: UpsertCall) -> Upserted | None:
        draft = call.draft
        if not call.has_substance:
            raise InvalidInput(
                "content",
                f"is missing, and no entry exists under key {draft.key!r}. Pass the content of the new entry",
            )
        replays: set[str] = set()
        [allowed] = await self._trust.let_in(key.tenant, [draft], changing=call.mode != "create")
        try:
            [entry] = await self._writer.write_many(
                key.tenant,
                [allowed],
                revive=call.revive,
                consistency=call.consistency,
                let_in=True,
                steps=call.steps,
                replays=replays,
                requests=[call.request],
            )
        except PartialWrite as refused:
            conflict = refused.conflicts[0]
            if conflict.deleted_at is not None:
                raise conflict from None
            return None
        return None if replays else (entry, False)

    async def _apply_call(self, record: Record, call: UpsertCall, now: datetime) -> Record:
        """Return the record with the values of the call, as the write gate lets it."""
        version = version_at(now, record.version)
        if isinstance(call.draft, PartialDraft):
            changes = {name: getattr(call.draft, name) for name in sorted(call.draft.given_fields)}
            if apply_given(record, changes, version=version) is record:
                return record
            if self._trust.asks_of(changes):
                changes = await self._trust.let_change(record.key.tenant, record, changes)
            return apply_given(record, changes, version=version)
        [allowed] = await self._trust.let_in(record.key.tenant, [call.draft], changing=True)
        return apply_draft(record, allowed, version=version)


def _batches(tenant: str, calls: Sequence[UpsertCall], most: int) -> Iterator[Mapping[Key, UpsertCall]]:
    """Yield calls that can be made together, in order. No key is twice in a batch."""
    batch: dict[Key, UpsertCall] = {}
    for call in calls:
        key = call.key_of(tenant)
        others = batch.values()
        if batch and (key in batch or len(batch) == most or not next(iter(others)).goes_with(call)):
            yield batch
            batch = {}
        batch[key] = call
    if batch:
        yield batch


def _mismatch(
    draft: EntryDraft, expected: int, stored: int | None, entry_id: str | None = None
) -> VersionConflict:
    return version_conflict(f"the entry under key {draft.key!r}", expected, stored, entry_id)
