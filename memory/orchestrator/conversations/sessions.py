"""The records of sessions: create, find, list, end and delete them.

Messages are in the session's log.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias, cast

from memory.domain import ids
from memory.domain.entry import expiry
from memory.domain.errors import Conflict, MemoryTiersError, NotFound, SessionOwnerMismatch
from memory.domain.json_values import is_same_json
from memory.domain.message import Message, Role
from memory.domain.scope import Scope
from memory.domain.session import SessionInfo, SessionPage
from memory.domain.time import micros
from memory.domain.versions import version_text
from memory.orchestrator.conversations.blobs.reservations import Reservations
from memory.orchestrator.conversations.blobs.uploads import Uploads
from memory.orchestrator.conversations.log.folding import State
from memory.orchestrator.conversations.log.forks import COPIED_FROM, CopiedMessages
from memory.orchestrator.conversations.log.incarnation import SessionIncarnation
from memory.orchestrator.conversations.log.log import Log
from memory.orchestrator.conversations.log.passages import Passages
from memory.orchestrator.conversations.log.previews import preview_of
from memory.orchestrator.conversations.log.seen import REMEMBERED_FOR
from memory.orchestrator.conversations.log.window_copies import WindowCopies
from memory.orchestrator.erasure.erasure import Erased, Erasure, count_of
from memory.orchestrator.storage.collections import ENTRIES, FORKED_FROM, MESSAGES, SESSIONS
from memory.orchestrator.storage.entry_records import copy_json
from memory.orchestrator.storage.key_locks import RetryDeadline
from memory.orchestrator.storage.outbox import Outbox, OutboxRecord
from memory.orchestrator.storage.placement import Placement, raise_if_corrupt, raise_if_rejected
from memory.orchestrator.storage.places import NOWHERE, Places
from memory.orchestrator.storage.requests import (
    CREATED_OVER,
    RequestMark,
    deleted_since,
    was_made_by,
    with_made_by,
)
from memory.orchestrator.storage.session_keys import scope_of, session_key
from memory.orchestrator.storage.versions import version_at
from memory.ports.query import Condition, Eq, Ge, Has, Le, Lt, Not, Order, Query, Tenant, all_of
from memory.ports.record import Corrupt, FieldValue, JsonValue, Key, Partition, PendingStep, Record, Tombstone
from memory.ports.store import Store
from memory.ports.writes import Absent, AtVersion, Put

log = logging.getLogger(__name__)

Compute: TypeAlias = Callable[[Record], Awaitable[Mapping[str, JsonValue]]]
"""Computes changes of a session's record from the record as stored now."""

FOLLOWS_WITHIN = timedelta(seconds=5)
"""How far a session's record, which lists show, may stay behind its log."""
MOST_BEHIND = 10_000
"""The most sessions for which this process remembers a pending record update."""

FOLLOW = "follow"
LOGS = 64
"""The number of sessions whose logs and records are cached."""
SHARED = "shared"
"""In the body of a session that several users, agents or namespaces may open."""
OWNER = {"user": "subject", "agent": "agent", "namespace": "namespace"}
"""The owner of a session: the callers' names, and the fields of its record."""
ATTRIBUTES = "attributes"
"""In the body of a session's record: the version of the attributes that callers set."""
MADE_FROM = "made_from"
"""In the body of a fork: the start of the oldest session among its sources."""
CONFIRM_FORK = "confirm_fork"
"""The pending step of a fork until its copied messages were checked for erasures.

The check looks at the session that it forked off from.
"""
END = "end"
"""The pending step of the event that ends a session.

It moves the session's entries as the rules say (see `session_ends.py`).
"""
DELETE_DERIVED = "unlearn"
"""The pending step of an erased session: delete its derived entries.

See `window_exits.py`.
"""


@dataclass(frozen=True, slots=True)
class ForkSource:
    """The source of a fork: a life of a session, and the places of messages there.

    The places are in the order of the fork's messages.
    """

    session_id: str
    incarnation: str
    places: tuple[int, ...]
    said_by: tuple[tuple[str, ...], ...] = ()
    """The authors of each message."""
    copied: tuple[CopiedMessages, ...] = ()
    """The origins of its messages, as the fork's record states them."""
    state: Mapping[str, JsonValue] = field(default_factory=dict)
    """The state of the session at that moment."""

    def pending_step(self) -> PendingStep:
        return PendingStep(
            CONFIRM_FORK,
            CONFIRM_FORK,
            {"session": self.session_id, "incarnation": self.incarnation, "places": list(self.places)},
        )


@dataclass(frozen=True, slots=True)
class SessionDraft:
    """A session as a caller passes it, after its checks."""

    id: str | None = None
    system: Message | None = None
    user: str | None = None
    agent: str | None = None
    namespace: str | None = None
    title: str | None = None
    tags: Sequence[str] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    expires_at: datetime | timedelta | None = None
    shared: bool = False
    """Whether callers may name other users, agents and namespaces."""
    made_from: int | None = None
    """Of a fork: the moment from which its copied messages date."""
    forked_from: ForkSource | None = None
    writer: str | None = None
    """The user who writes through the handle, if it is not the session's user."""


def requested_id(tenant: str, mark: str) -> str:
    """Return the id of a new session that the request with this mark creates."""
    return ids.derived_id(tenant, "session", "request", mark)


class SessionRecords:
    """The repository of session records."""

    owed_follow = (PendingStep(FOLLOW, FOLLOW),)
    """The pending step of an event that lists must reflect: see `follow`."""

    def __init__(
        self,
        placement: Placement,
        *,
        outbox: Outbox,
        erasure: Erasure,
        passages: Passages,
        reservations: Reservations,
    ) -> None:
        self._placement = placement
        self._outbox = outbox
        self._erasure = erasure
        self.passages = passages
        self.copies = WindowCopies(placement)
        self._logs: dict[tuple[str, str], Log] = {}
        self._told: dict[Key, tuple[Record, datetime]] = {}
        """Records as last read or written here, and when."""
        self._behind: dict[Key, tuple[Record, State, datetime]] = {}
        outbox.register_for_records(FOLLOW, self._follow_noted)
        self.uploads = Uploads(placement, outbox, reservations)

    async def refuse_change(self, life: SessionIncarnation) -> None:
        """Raise `LegalHoldActive` if the session is under legal hold.

        Its messages may not be overwritten then.
        """
        await self._erasure.holds.refuse_change(life.partition, life.user)

    # -- one session -------------------------------------------------------------------

    async def create(
        self, tenant: str, draft: SessionDraft, request: RequestMark | None = None
    ) -> tuple[Record, Log]:
        """Create a session under this id, or under a new one.

        A new id derives from the request, if there is one. A repeat of the request
        returns the session that it created.

        Raises `Conflict` if the id is taken, or the request's session was deleted.
        Without an id in the draft, the id is new, so the request made that session.
        """
        session_id = draft.id or (
            self._placement.new_id(tenant, "session")
            if request is None
            else requested_id(tenant, request.text)
        )
        now = self._placement.now()
        record, stands = self._record(tenant, session_id, draft, now), 0
        if request is not None:
            record = with_made_by(record, request)
        patience = RetryDeadline(self._placement, session_id)
        while True:
            version = version_at(now, stands)
            put = Put(SESSIONS, replace(record, version=version), AtVersion(stands) if stands else Absent())
            outcome = await self._placement.write_one("session.create", self._placement.topology.archive, put)
            if outcome.applied:
                record = replace(record, version=version, generation=outcome.generation)
                self._remember(record)
                log = self.log(record)
                log.mark_empty()
                return record, log
            raise_if_rejected(self._placement.topology.archive, outcome)
            if isinstance(outcome.stored, Record) and self.is_over(outcome.stored):
                await self.erase_expired(outcome.stored)
                continue
            if isinstance(outcome.stored, Record | Corrupt):
                if (
                    isinstance(outcome.stored, Record)
                    and outcome.stored.body.get("incarnation") == record.body["incarnation"]
                ):
                    return outcome.stored, self.log(outcome.stored)  # this put, whose answer was lost
                if (
                    request is not None
                    and isinstance(outcome.stored, Record)
                    and was_made_by(outcome.stored, request)
                ):
                    return outcome.stored, self.log(outcome.stored)
                raise Conflict(f"Session already exists: {session_id}. Open it instead", session_id)
            if isinstance(outcome.stored, Tombstone):
                if request is not None and (
                    draft.id is None or request.may_have_made(outcome.stored.version)
                ):
                    raise deleted_since(f"session {session_id!r}")
                record = replace(record, body={**record.body, CREATED_OVER: outcome.stored.version})
                await self._outbox.finish(
                    OutboxRecord(SESSIONS, self._placement.topology.archive, outcome.stored)
                )
            stands = outcome.version or 0
            await patience.wait()

    def _record(self, tenant: str, session_id: str, draft: SessionDraft, now: datetime) -> Record:
        scope = scope_of(session_id)
        fields: dict[str, FieldValue] = {
            "session_id": session_id,
            "status": "active",
            "subject": draft.user,
            "agent": draft.agent,
            "namespace": draft.namespace,
            "tags": tuple(draft.tags),
            "touched_at": now,
            "hidden_from": expiry(draft.expires_at, now),
        }
        said: dict[str, Any] = {
            "system": None
            if draft.system is None
            else draft.system.model_dump(mode="json", exclude_defaults=True),
            "title": draft.title,
            "metadata": dict(draft.metadata),
            SHARED: draft.shared,
            MADE_FROM: draft.made_from,
        }
        if draft.forked_from is not None and draft.forked_from.copied:
            fields[FORKED_FROM] = tuple(dict.fromkeys(one.session_id for one in draft.forked_from.copied))
            said[COPIED_FROM] = [one.to_json() for one in draft.forked_from.copied]
        body: dict[str, JsonValue] = {
            "incarnation": ids.new_id(tenant, scope, version_at(now), self._placement.random_bits)
        }
        body |= {name: value for name, value in said.items() if value}
        owed = () if draft.forked_from is None else (draft.forked_from.pending_step(),)
        return Record(
            session_key(tenant, session_id),
            scope,
            version_at(now),
            now,
            now,
            fields=fields,
            body=body,
            tier="mid",
            owed=owed,
        )

    async def record(self, tenant: str, session_id: str) -> Record:
        """Return the session's own record. Raises `NotFound` if there is none."""
        stored = await self.find_record(tenant, session_id)
        if stored is None:
            self._told.pop(session_key(tenant, session_id), None)
            raise NotFound(session_id, "session")
        self._remember(stored)  # an expired one too: handles refuse to write then
        if self.is_over(stored):
            raise NotFound(session_id, "session")
        return stored

    async def find_record(self, tenant: str, session_id: str) -> Record | None:
        """Return the session's own record, even if expired; None if there is none."""
        stored = await self._placement.read_one(
            "session.read", self._placement.topology.archive, SESSIONS, session_key(tenant, session_id)
        )
        if isinstance(stored, Corrupt):
            await self._placement.locate(SESSIONS, stored.key)  # raises the error
        return stored if isinstance(stored, Record) else None

    async def is_deleted(self, tenant: str, session_id: str) -> bool:
        """Return whether the store remembers that this session was deleted."""
        stored = await self._placement.read_one(
            "session.read", self._placement.topology.archive, SESSIONS, session_key(tenant, session_id)
        )
        return isinstance(stored, Tombstone)

    async def lives(self, tenant: str, session_ids: Collection[str]) -> dict[str, str]:
        """Return the incarnation of each existing session of these, in one call."""
        of, archive = {session_key(tenant, one): one for one in session_ids}, self._placement.topology.archive
        rows = await self._placement.read("session.read", archive, SESSIONS, list(of)) if of else []
        raise_if_corrupt(archive, *rows)
        return {
            of[row.key]: str(row.body["incarnation"])
            for row in rows
            if isinstance(row, Record) and not self.is_over(row)
        }

    async def owners(self, tenant: str, session_ids: Collection[str]) -> dict[str, str | None]:
        """Return the user of each existing session of these, in one call.

        Records that cannot be read are left out.
        """
        of, archive = {session_key(tenant, one): one for one in session_ids}, self._placement.topology.archive
        rows = await self._placement.read("session.read", archive, SESSIONS, list(of)) if of else []
        found: dict[str, Any] = {
            of[row.key]: row.fields.get("subject")
            for row in rows
            if isinstance(row, Record) and not self.is_over(row)
        }
        return found

    def _remember(self, record: Record) -> None:
        self._told.pop(record.key, None)
        self._told[record.key] = record, self._placement.now()
        if len(self._told) > LOGS:
            del self._told[next(iter(self._told))]

    def cached_record(self, tenant: str, session_id: str) -> Record | None:
        """Return the session's record as last read or written here.

        It is as fresh as a cached log. None if it is older, or was not read.
        """
        told = self._told.get(session_key(tenant, session_id))
        if (
            told is None
            or not timedelta(0) <= self._placement.now() - told[1] < REMEMBERED_FOR
            or self.is_over(told[0])
        ):
            return None
        return told[0]

    def is_over(self, record: Record) -> bool:
        """Return whether the session has expired.

        It is hidden strictly after that moment, and a sweep deletes it.
        """
        until: Any = record.fields.get("hidden_from")
        return until is not None and until < self._placement.now()

    def known_expiry(self, record: Record) -> datetime | None:
        """Return when the session has expired, by this or the last record read here.

        None if it has not, as far as they say. Another handle of this process may have
        changed when the session expires.
        """
        told = self._told.get(session_key(record.key.tenant, str(record.fields["session_id"])))
        for one in (*([] if told is None else [told[0]]), record):
            if self.is_over(one):
                until: Any = one.fields["hidden_from"]
                return cast("datetime", until)
        return None

    def log(self, record: Record) -> Log:
        """Return the log of this record's session.

        All callers of this process share it while it is in the cache.
        """
        life = life_of(record)
        log = self._logs.pop((life.tenant, life.session_id), None)
        if log is None or (log.life.incarnation, log.life.generation) != (life.incarnation, life.generation):
            log = Log(self._placement, self.uploads, self.passages, life, self._reload_life, self.copies)
        log.messages = max(log.messages, int(record.body.get("messages", 0)))
        self._logs[life.tenant, life.session_id] = log
        if len(self._logs) > LOGS:
            del self._logs[next(iter(self._logs))]
        return log

    async def _reload_life(self, life: SessionIncarnation) -> SessionIncarnation:
        now = life_of(await self.record(life.tenant, life.session_id))
        if now.incarnation != life.incarnation:
            raise NotFound(life.session_id, "session")  # deleted, and created again since
        return now

    async def follow(
        self,
        record: Record,
        state: State,
        touched_at: datetime,
        told: Mapping[str, FieldValue] | None = None,
        *,
        compute: Compute | None = None,
        fence: bool = False,
        **changes: JsonValue,
    ) -> Record:
        """Update the session's own record from its log.

        Also changes values that are not in the log: `title`, `metadata` and `system` by
        `changes`, and the fields `tags` and `hidden_from` by `told`.

        Args:
            compute: Makes changes from the record. It is called again for each attempt,
                so that values from an older version never overwrite a concurrent
                change.
            fence: Write a new version even if nothing changes. Every concurrent writer
                that read the record earlier then conflicts, and computes its changes
                again.
        """
        patience, given = RetryDeadline(self._placement, str(record.fields["session_id"])), changes
        while True:
            changes = given if compute is None else {**given, **await compute(record)}
            now = self._placement.now()
            known_of_more = _place(record) > state.place
            facts: dict[str, JsonValue] = {
                "messages": state.after.number,
                "compactions": state.after.compactions,
                "place": state.place,
            }
            facts, status = ({}, record.fields["status"]) if known_of_more else (facts, state.after.status)
            body = {
                name: value
                for name, value in {**record.body, **facts, **changes}.items()
                if value is not None
            }
            before: Any = record.fields["touched_at"]
            fields = {
                **record.fields,
                "status": status,
                "touched_at": max(before, touched_at),
                **(told or {}),
            }
            if body == dict(record.body) and fields == dict(record.fields) and not fence:
                return record
            new = replace(
                record, version=version_at(now, record.version), updated_at=now, fields=fields, body=body
            )
            store = self._placement.topology.archive
            put = Put(
                SESSIONS, new, AtVersion(record.version), erases=fence or "preview" in changes
            )  # the preview may have been erased
            outcome = await self._placement.write_one("session.follow", store, put)
            if outcome.applied:
                self._remember(new)
                return new
            raise_if_rejected(store, outcome)
            there = outcome.stored
            if not isinstance(there, Record) or there.body.get("incarnation") != record.body["incarnation"]:
                raise NotFound(str(record.fields["session_id"]), "session")
            record = there
            if not changes and not told and compute is None and not fence and _place(record) >= state.place:
                return record  # another call has updated it further
            await patience.wait()

    async def tell(
        self, record: Record, state: State, touched_at: datetime, *, fence: bool = False
    ) -> Record:
        """Update the session's own record from its log, with its preview.

        The preview is read again for each attempt. An erasure passes `fence`, so that
        no concurrent call can store a preview that it read before the erasure.
        """

        async def preview(there: Record) -> Mapping[str, JsonValue]:
            return await preview_of(there, state, self.log(there))

        return await self.follow(record, state, touched_at, compute=preview, fence=fence)

    async def settle_fork(self, fork: Record) -> None:
        """Remove `CONFIRM_FORK` from a fork, by a new version.

        A writer that read the record earlier conflicts, and so cannot restore the step.
        """
        store = self._placement.topology.archive
        while fork.owed:
            new = replace(fork, version=self._placement.next_version(fork.version), owed=())
            put = Put(SESSIONS, new, AtVersion(fork.version), settles=frozenset({CONFIRM_FORK}))
            outcome = await self._placement.write_one("fork.settle", store, put)
            if outcome.applied:
                self._remember(new)
                return
            raise_if_rejected(store, outcome)
            if (
                not isinstance(outcome.stored, Record)
                or outcome.stored.body["incarnation"] != fork.body["incarnation"]
            ):
                return
            fork = outcome.stored

    def is_behind(self, record: Record, state: State, touched_at: datetime) -> None:
        """Note that the session's record is behind its log.

        It is updated before this process answers a list, and when the process ends. If
        more than `MOST_BEHIND` sessions wait, the oldest notes are dropped. Their
        records stay behind until the next write, as after a crash of the process.
        """
        self._behind.pop(record.key, None)
        self._behind[record.key] = (record, state, touched_at)
        if len(self._behind) > MOST_BEHIND:
            self._behind.pop(next(iter(self._behind)))

    async def catch_up(self, only: Key | None = None) -> None:
        """Update the records of sessions that were written to here, or of one of them.

        If a store fails, this raises, and the remaining records wait for the next call.
        """
        if only is None:
            behind, self._behind = self._behind, {}
        else:
            behind = {only: self._behind.pop(only)} if only in self._behind else {}
        while behind:
            key, seen = behind.popitem()
            try:
                with suppress(NotFound):  # deleted meanwhile
                    await self.tell(*seen)
            except BaseException:
                self._behind = {key: seen, **behind, **self._behind}
                raise

    async def finish(self, event: Record) -> None:
        """Carry out the pending steps of an event."""
        await self._outbox.finish(OutboxRecord(MESSAGES, self._placement.topology.archive, event))

    async def _follow_noted(self, event: Record, store: Store, owed: PendingStep) -> bool:
        """Update the session's record after a crash."""
        with suppress(NotFound):  # deleted meanwhile
            record = await self.record(event.key.tenant, str(event.fields["conversation_id"]))
            await self.follow(record, (await self.log(record).load()).state, event.created_at)
        return True

    async def delete(
        self,
        tenant: str,
        session_id: str,
        asked: SessionDraft | None = None,
        request: RequestMark | None = None,
    ) -> bool:
        """Erase a session with its messages and the entries derived from them.

        The entries of the session's scope are erased too. A repeat of the request
        spares what was stored after the request began. Returns false if there was
        nothing to erase, or a concurrent call deleted the session.

        Raises `SessionOwnerMismatch` if the session belongs to another owner than
        `asked` names, even if it has expired.
        """
        if asked is not None and (stored := await self.find_record(tenant, session_id)) is not None:
            refuse_other_owner(stored, asked)
        if request is not None and request.repeats:
            return await self._erase_again(tenant, session_id, micros(request.begun_at))
        there, said, entries = await self.erase(tenant, session_id)
        return count_of(said, SESSIONS) > 0 if there else count_of(entries, ENTRIES) > 0

    async def _erase_again(self, tenant: str, session_id: str, before: int) -> bool:
        """Complete an erasure that began at this version, and spare what came since."""
        archive = self._placement.topology.archive
        stored = await self._placement.read_one(
            "session.read", archive, SESSIONS, session_key(tenant, session_id)
        )
        of_scope = await self._erasure.erase(Partition(tenant, Scope.session(session_id).text), before=before)
        await self.erase_before(tenant, session_id, before)
        is_deleted = isinstance(stored, Tombstone) and stored.version > before
        return (
            is_deleted
            or (isinstance(stored, Record) and micros(stored.created_at) < before)
            or (isinstance(stored, Record) and int(str(stored.body.get(CREATED_OVER, 0))) > before)
            or count_of(of_scope, ENTRIES) > 0
        )

    async def erase(self, tenant: str, session_id: str) -> tuple[bool, Erased, Erased]:
        """Erase a session like `delete`.

        Returns whether it existed, then the result for the conversation, then the
        result for the session's scope.
        """
        record = None
        with suppress(NotFound):
            record = await self.record(tenant, session_id)
        life = {
            "tenant": tenant,
            "session_id": session_id,
            "incarnation": None if record is None else record.body["incarnation"],
        }
        of_scope = await self._erasure.erase(Partition(tenant, Scope.session(session_id).text))
        said = await self._erasure.erase(
            Partition(tenant, scope_of(session_id)), (PendingStep(DELETE_DERIVED, DELETE_DERIVED, life),)
        )
        self._told.pop(session_key(tenant, session_id), None)
        self._logs.pop((tenant, session_id), None)
        return record is not None, said, of_scope

    async def erase_before(self, tenant: str, session_id: str, before: int) -> Erased:
        """Erase a conversation older than this version, with its newer messages.

        If the session was created since, it stays, and only the remains of its earlier
        lives are erased. Returns what was erased.
        """
        partition, key = Partition(tenant, scope_of(session_id)), session_key(tenant, session_id)
        stored = await self._placement.read_one(
            "session.read", self._placement.topology.archive, SESSIONS, key
        )
        life: dict[str, JsonValue] = {"tenant": tenant, "session_id": session_id, "incarnation": None}
        if isinstance(stored, Record) and is_of_before(stored, before):
            pending = PendingStep(
                DELETE_DERIVED, DELETE_DERIVED, {**life, "incarnation": stored.body["incarnation"]}
            )
            said = await self._erasure.erase(partition, (pending,), older_than=(stored.generation or 0) + 1)
        else:
            said = await self._erasure.erase(
                partition, (PendingStep(DELETE_DERIVED, DELETE_DERIVED, life),), before=before
            )
        self._told.pop(key, None)
        self._logs.pop((tenant, session_id), None)
        return said

    async def expire(self, tenant: str, session_id: str) -> None:
        """Erase a session now as if it had expired: what was learnt from it stays."""
        with suppress(NotFound):
            await self.erase_expired(await self.record(tenant, session_id))
        self._told.pop(session_key(tenant, session_id), None)
        self._logs.pop((tenant, session_id), None)

    async def erase_expired(self, record: Record, *, never_shown: bool = False) -> None:
        """Erase an expired session with everything derived from it.

        A session that was created under its id since stays. Entries of its scope have
        an expiry of their own. With `never_shown`, a legal hold on its user does not
        apply.
        """
        session_id, incarnation = record.fields["session_id"], record.body["incarnation"]
        life: dict[str, JsonValue] = {
            "tenant": record.key.tenant,
            "session_id": str(session_id),
            "incarnation": incarnation,
        }
        life["expired"] = True  # derived copies stay: an expiry is no erasure
        await self._erasure.erase(
            record.partition,
            (PendingStep(DELETE_DERIVED, DELETE_DERIVED, life),),
            older_than=(record.generation or 0) + 1,
            holdable=not never_shown,
        )

    async def find_current(self, tenant: str, session_id: str) -> Record | None:
        """Return the session's own record, with all that this process wrote to its log.

        None if there is no session.
        """
        await self._try_to_catch_up(session_key(tenant, session_id))
        try:
            return await self.record(tenant, session_id)
        except NotFound:
            return None

    async def _try_to_catch_up(self, only: Key | None = None) -> None:
        try:
            await self.catch_up(only)
        except MemoryTiersError as error:
            log.info("an earlier state of sessions is shown: %s", error)

    # -- many --------------------------------------------------------------------------

    async def list(
        self,
        tenant: str,
        *,
        asked: Mapping[str, FieldValue],
        tags: Sequence[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        order: str = "updated",
        descending: bool = True,
        limit: int,
        cursor: str | None = None,
        within: Condition | None = None,
        expired: bool = False,
    ) -> SessionPage:
        """Return a page of the sessions with these fields.

        `since` and `until` limit when they were last used or created, both included.
        `within` is any other condition. With `expired`, sessions that have expired and
        are still stored are listed too.
        """
        conditions: list[Condition] = [Eq(name, value) for name, value in asked.items()]
        conditions += [] if within is None else [within]
        conditions += [Has("tags", tag) for tag in tags]
        conditions += [] if expired else [Not(Lt("hidden_from", self._placement.now()))]
        moment = "touched_at" if order == "updated" else "created_at"
        conditions += [] if since is None else [Ge(moment, since)]
        conditions += [] if until is None else [Le(moment, until)]
        await self._try_to_catch_up()
        by = Order(moment, descending=descending)
        query = Query(SESSIONS, Tenant(tenant), all_of(*conditions), (by,), limit, cursor=cursor)
        page = await self._placement.page("session.list", self._placement.topology.archive, query)
        return SessionPage([info_of(r) for r in page.records if isinstance(r, Record)], page.cursor)


def info_of(record: Record, state: State | None = None, gaps: Places = NOWHERE) -> SessionInfo:
    """Return the public view of a session's record, and of its log if that was read."""
    body: Mapping[str, Any] = record.body
    fields: Mapping[str, Any] = record.fields
    has_system = "system" in body
    return SessionInfo(
        id=fields["session_id"],
        status=fields["status"] if state is None else state.after.status,
        user=fields.get("subject"),
        agent=fields.get("agent"),
        namespace=fields.get("namespace"),
        title=body.get("title"),
        preview=str(body["preview"][1]) if "preview" in body else None,
        tags=list(fields.get("tags") or ()),
        metadata=copy_json(body.get("metadata") or {}),
        created_at=record.created_at,
        updated_at=fields["touched_at"] if state is None else max(fields["touched_at"], state.created_at),
        message_count=body.get("messages", int(has_system)) if state is None else state.after.number,
        compaction_count=body.get("compactions", 0) if state is None else state.after.compactions,
        attributes_version=version_text(attributes_version(record)),
        version=None if state is None else state.after.version,
        last_compaction_id=None if state is None else state.after.last_compaction,
        expires_at=fields.get("hidden_from"),
        accessed_at=datetime.fromisoformat(body["accessed_at"]) if "accessed_at" in body else None,
        gaps=list(gaps.ranges),
    )


def attributes_version(record: Record) -> int:
    """Return the version of the attributes that a caller set, such as the title."""
    return int(record.body.get(ATTRIBUTES, micros(record.created_at)))


def _place(record: Record) -> int:
    """Return the place of the log up to which a session's record is current."""
    body: Mapping[str, Any] = record.body
    return int(body.get("place", 0))


def draft_like(record: Record, **metadata: Any) -> SessionDraft:
    """Return a draft that begins like this session, with additional metadata."""
    info, system, began = info_of(record), system_of(record), _earliest_moment(record)
    more = {**info.metadata, **metadata}
    return SessionDraft(
        None,
        system,
        info.user,
        info.agent,
        info.namespace,
        info.title,
        info.tags,
        more,
        shared=bool(record.body.get(SHARED)),
        made_from=began,
    )


def refuse_other_owner(record: Record, draft: SessionDraft) -> None:
    """Raise `SessionOwnerMismatch` if the draft names another owner.

    The owner is the user, the agent and the namespace.
    """
    given = {"user": draft.user, "agent": draft.agent, "namespace": draft.namespace}
    stored = {name: record.fields.get(field) for name, field in OWNER.items()}
    for name, value in given.items():
        if value is not None and value != stored[name] and not record.body.get(SHARED):
            raise SessionOwnerMismatch(str(draft.id), name, value)


def refuse_others(record: Record, draft: SessionDraft) -> None:
    """Raise `SessionOwnerMismatch` if the draft differs from the stored session.

    This covers the owner, the system message and all other fields of the draft.
    """
    refuse_other_owner(record, draft)
    system = system_of(record)
    if draft.system is not None and (system is None or system.content != draft.system.content):
        raise SessionOwnerMismatch(str(draft.id), "system", draft.system.text)
    for name in _differing_fields(record, draft):
        raise SessionOwnerMismatch(str(draft.id), name, None)


def _differing_fields(record: Record, draft: SessionDraft) -> Iterator[str]:
    """Yield the other fields in which the draft differs from the stored session."""
    body: Mapping[str, Any] = record.body
    if draft.title is not None and draft.title != body.get("title"):
        yield "title"
    if draft.tags and set(draft.tags) != set(copy_json(record.fields.get("tags") or ())):
        yield "tags"
    if draft.metadata and not is_same_json(draft.metadata, body.get("metadata")):
        yield "metadata"
    if draft.expires_at is not None and expiry(draft.expires_at, record.created_at) != record.fields.get(
        "hidden_from"
    ):
        yield "expires_at"
    if draft.shared and not body.get(SHARED):
        yield "shared"


def other_owner(there: Record, here: Record) -> str | None:
    """Return the first field in which two sessions of one id have different owners.

    None if there is none, or if the existing session is shared.
    """
    if there.body.get(SHARED):
        return None
    return next(
        (
            name
            for name, field in OWNER.items()
            if there.fields.get(field) not in (None, here.fields.get(field))
        ),
        None,
    )


def _earliest_moment(record: Record) -> int:
    """Return the earliest moment at which a message of the session may exist.

    For a fork this includes the sessions that its messages come from.
    """
    body: Mapping[str, Any] = record.body
    return min(micros(record.created_at), int(body.get(MADE_FROM, micros(record.created_at))))


def is_of_before(record: Record, version: int) -> bool:
    """Return whether a session, or one that it copied from, precedes this version."""
    return _earliest_moment(record) < version


def life_of(record: Record) -> SessionIncarnation:
    return SessionIncarnation(
        record.key.tenant,
        str(record.fields["session_id"]),
        record.scope,
        str(record.body["incarnation"]),
        record.generation or 0,
        "system" in record.body,
        record.created_at,
        {name: record.fields.get(name) for name in ("subject", "agent", "namespace")},
    )


def system_of(record: Record) -> Message | None:
    """Return the session's system message, with the id "system"."""
    said = record.body.get("system")
    return (
        None
        if said is None
        else Message.model_validate(copy_json(said)).model_copy(update={"id": "system", "role": Role.SYSTEM})
    )
