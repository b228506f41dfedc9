"""Records of a session beside its log, each under a name that the caller gives.

They are in the session's partition. The last save of a name wins.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from memory.domain import ids
from memory.domain.json_values import is_same_json
from memory.domain.provenance import replaced_metadata, signed_metadata, writers_in
from memory.orchestrator.conversations.log.log import Log
from memory.orchestrator.erasure.legal_holds import LegalHoldRecords
from memory.orchestrator.storage.collections import SAID_BY
from memory.orchestrator.storage.key_locks import RetryDeadline
from memory.orchestrator.storage.outbox import Outbox, OutboxRecord
from memory.orchestrator.storage.placement import Placement, raise_if_rejected
from memory.orchestrator.storage.requests import (
    RequestMark,
    deleted_since,
    is_later,
    was_made_by,
    with_marks,
)
from memory.ports.collections import Collection
from memory.ports.query import Condition, Order, Page, Query, Where, all_of
from memory.ports.record import Corrupt, FieldValue, JsonValue, Key, PendingStep, Record, Stored, Tombstone
from memory.ports.writes import Absent, AtVersion, Delete, Newer, Put, Status


class NamedRecords:
    """The records of one collection that sessions keep beside their logs."""

    def __init__(
        self, placement: Placement, outbox: Outbox, holds: LegalHoldRecords, collection: Collection
    ) -> None:
        self._placement = placement
        self._outbox = outbox
        self._holds = holds
        self._collection = collection

    @staticmethod
    def key(tenant: str, scope: str, name: str) -> Key:
        return Key(tenant, ids.keyed_id(tenant, scope, name))

    async def get(self, log: Log, name: str) -> Record | None:
        """Return the record of this name, or None.

        Raises `CorruptRecord` if it cannot be read.
        """
        stored = await self._fetch_readable(self.key(log.life.tenant, log.life.scope, name))
        return stored if isinstance(stored, Record) else None

    async def _fetch_readable(self, key: Key) -> Stored | None:
        stored = await self.fetch_stored(key)
        if isinstance(stored, Corrupt):
            await self._placement.locate(self._collection, key)  # raises the error
        return stored

    async def fetch_stored(self, key: Key) -> Stored | None:
        """Return the stored value of a key."""
        return await self._placement.read_one(
            f"{self._collection.name}.read", self._placement.topology.archive, self._collection, key
        )

    async def save(
        self,
        log: Log,
        name: str,
        fields: Mapping[str, FieldValue],
        body: Mapping[str, JsonValue],
        first: Callable[[Key], Awaitable[None]] | None = None,
        *,
        user: str | None = None,
        keeps: Sequence[str] = (),
        request: RequestMark | None = None,
    ) -> Record:
        """Save the record of this name; its `created_at` stays.

        A repeat of the request returns the record as it is now.

        Args:
            first: Awaited before a record is put where none exists.
            user: The user who saves it, to be stored as an author.
            keeps: Keys of the body that must not be overwritten under a legal hold.

        Raises:
            NotFound: the session was deleted.
            LegalHoldActive: the session is under legal hold, and a value of `keeps`
                would be overwritten.
        """
        saved = await self.change(
            log, name, lambda _: (fields, body), first, user=user, keeps=keeps, request=request
        )
        assert saved is not None  # noqa: S101 - only a change can say no
        return saved

    async def change(
        self,
        log: Log,
        name: str,
        said: Callable[[Record | None], tuple[Mapping[str, FieldValue], Mapping[str, JsonValue]] | None],
        first: Callable[[Key], Awaitable[None]] | None = None,
        *,
        user: str | None = None,
        keeps: Sequence[str] = (),
        request: RequestMark | None = None,
    ) -> Record | None:
        """Save what `said` makes of the stored record; lose no concurrent change.

        If `said` returns None, nothing is saved, and the result is None.
        """
        store, patience = self._placement.topology.archive, RetryDeadline(self._placement, name)
        key = self.key(log.life.tenant, log.life.scope, name)
        while True:
            there = await self._fetch_readable(key)
            if (done := self._find_made(there, name, request)) is not None:
                return done
            if (says := said(there if isinstance(there, Record) else None)) is None:
                return None
            body = dict(says[1])
            if isinstance(there, Record):
                before: Any = there.body.get("metadata") or {}
                given: Any = body.get("metadata") or {}
                body["metadata"] = replaced_metadata(given, before)
            if isinstance(there, Record) and any(loses(there.body.get(one), body.get(one)) for one in keeps):
                await self._holds.refuse_change(log.life.partition, log.life.user)
            if isinstance(there, Tombstone) and there.owed:
                await self._outbox.finish(OutboxRecord(self._collection, store, there))
            if first is not None and not isinstance(there, Record):
                await first(key)
            named: Any = there.fields.get(SAID_BY) if isinstance(there, Record) else None
            writers = (
                log.life.writers_after(tuple(named or ()), user)
                if isinstance(there, Record)
                else log.life.writers_of(user)
            )
            now = self._placement.now()
            stands = there.version if isinstance(there, Record | Tombstone) else 0
            record = Record(
                key,
                log.life.scope,
                log.life.version_at(now, stands),
                there.created_at if isinstance(there, Record) else now,
                now,
                fields={**says[0], **({SAID_BY: writers} if writers else {})},
                body={name: value for name, value in body.items() if value not in (None, {})},
                generation=log.life.generation,
                tier="mid",
            )
            record = with_marks(record, there, request)
            when = AtVersion(stands) if stands else Absent()
            outcome = await self._placement.write_one(
                f"{self._collection.name}.save", store, Put(self._collection, record, when)
            )
            if outcome.applied:
                return replace(record, generation=outcome.generation)
            raise_if_rejected(store, outcome)
            if outcome.status is Status.REJECTED:
                await log.renew()
            await patience.wait()

    def _find_made(self, there: Stored | None, name: str, request: RequestMark | None) -> Record | None:
        """Return the record if the request has saved it before.

        Raises `DeletedSince` if it may have been deleted since.
        """
        if request is None:
            return None
        if isinstance(there, Tombstone) and request.may_have_made(there.version):
            raise deleted_since(f"{self._collection.name[:-1]} {name!r}")
        return there if isinstance(there, Record) and was_made_by(there, request) else None

    async def delete(
        self,
        log: Log,
        name: str,
        owed: Callable[[Key], Awaitable[tuple[PendingStep, ...]]] | None = None,
        request: RequestMark | None = None,
    ) -> bool:
        """Delete the record of this name; false if there is none.

        `owed` returns the pending steps of the deletion. A repeat of the request leaves
        a record that was created since the request began. Raises `LegalHoldActive` if
        the session is under legal hold.
        """
        store, patience = self._placement.topology.archive, RetryDeadline(self._placement, name)
        key = self.key(log.life.tenant, log.life.scope, name)
        stands = 0
        while True:
            there = await self.fetch_stored(key)
            if there is None:
                return False
            if isinstance(there, Tombstone):
                return request is not None and request.may_have_made(there.version)
            if isinstance(there, Record) and is_later(there.created_at, request):
                return True
            await self._holds.refuse_partition(log.life.partition)
            steps = () if owed is None else await owed(key)
            deletion = Delete(
                self._collection,
                key,
                version=self._placement.next_version(there.version if isinstance(there, Record) else stands),
                when=AtVersion(there.version) if isinstance(there, Record) else Newer(),
                owed=steps,
                discard_at=None if steps else self._placement.tombstone_until(),
            )
            outcome = await self._placement.write_one(f"{self._collection.name}.delete", store, deletion)
            if outcome.applied:
                if steps:
                    await self._outbox.finish(
                        OutboxRecord(self._collection, store, Tombstone(key, deletion.version, steps))
                    )
                return True
            raise_if_rejected(store, outcome)
            stands = outcome.version or stands
            await patience.wait()

    async def page(
        self, where: Where, asked: Sequence[Condition], *, descending: bool, limit: int, cursor: str | None
    ) -> Page:
        """Return a page of records, ordered by creation."""
        query = Query(
            self._collection,
            where,
            all_of(*asked),
            (Order("created_at", descending=descending),),
            limit,
            cursor=cursor,
        )
        return await self._placement.page(
            f"{self._collection.name}.list", self._placement.topology.archive, query
        )


def loses(stored: Any, given: Any) -> bool:
    """Return whether a save would overwrite a stored value.

    The writers in metadata are no such value: a save that names one adds it.
    """
    if isinstance(stored, Mapping) and writers_in(given or {}):
        stored, given = signed_metadata(stored, ()), signed_metadata(given, ())
    return bool(stored) and not is_same_json(stored, given)
