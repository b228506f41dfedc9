"""The sessions: created, told apart, listed, ended, deleted. What stands in one is its
log's affair.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from memory.domain import ids
from memory.domain.entry import expiry
from memory.domain.errors import Conflict, CorruptRecord, MemoryTiersError, NotFound, SessionOwnerMismatch
from memory.domain.message import Message, Role
from memory.domain.scope import Scope
from memory.domain.session import SessionInfo, SessionPage
from memory.domain.time import micros
from memory.orchestrator.conversations.blobs.reservations import Reservations
from memory.orchestrator.conversations.blobs.uploads import Uploads
from memory.orchestrator.conversations.log.folding import State
from memory.orchestrator.conversations.log.forks import COPIED_FROM, CopiedMessages
from memory.orchestrator.conversations.log.incarnation import SessionIncarnation
from memory.orchestrator.conversations.log.log import Log
from memory.orchestrator.conversations.log.passages import Passages
from memory.orchestrator.conversations.log.previews import preview_of
from memory.orchestrator.conversations.log.seen import REMEMBERED_FOR
from memory.orchestrator.erasure.erasure import Erased, Erasure, entries_of
from memory.orchestrator.storage.collections import FORKED_FROM, MESSAGES, SESSIONS
from memory.orchestrator.storage.entry_records import copy_json
from memory.orchestrator.storage.key_locks import RetryDeadline
from memory.orchestrator.storage.outbox import Outbox, OutboxRecord
from memory.orchestrator.storage.placement import Placement, rejection_error
from memory.orchestrator.storage.places import NOWHERE, Places
from memory.orchestrator.storage.session_keys import scope_of, session_key
from memory.orchestrator.storage.steps import step
from memory.orchestrator.storage.versions import version_at
from memory.ports.query import Condition, Eq, Ge, Has, Le, Lt, Not, Order, Query, Tenant, all_of
from memory.ports.record import Corrupt, FieldValue, JsonValue, Key, Partition, PendingStep, Record, Tombstone
from memory.ports.writes import Absent, AtVersion, Put

log = logging.getLogger(__name__)

Compute: TypeAlias = Callable[[Record], Awaitable[Mapping[str, JsonValue]]]
"""Makes changes of a session's own record from the record as it is stored now."""

FOLLOWS_WITHIN = timedelta(seconds=5)
"""How far a session's own record may stay behind its log: what lists say of a session
that is being written to.
"""
MOST_BEHIND = 10_000
"""Sessions that this process remembers to have written to since it told of them."""

FOLLOW = "follow"
LOGS = 64
"""Of how many sessions it is remembered what was read."""
SHARED = "shared"
"""In the body of a session that several users, agents or namespaces open."""
OWNER = {"user": "subject", "agent": "agent", "namespace": "namespace"}
"""Whose a session is, by the names that callers use: the fields of its record."""
MADE_FROM = "made_from"
"""In the body of a session that forked off from another: when the oldest session began
from which it has what was said.
"""
CONFIRM_FORK = "confirm_fork"
"""What a fork owes until the messages that it copied were seen to stand still in the
session that it forked off from.
"""
END = "end"
"""What the event owes that ends a session: its entries go where the rules say (see
`session_ends.py`).
"""
DELETE_DERIVED = "unlearn"
"""What the erasure of a session owes: the end of what was made of it (see `window_exits.py`)."""


@dataclass(frozen=True, slots=True)
class ForkSource:
    """What a fork copies: a life of a session, and the places of the messages there, in
    the order in which the fork has them.
    """

    session_id: str
    incarnation: str
    places: tuple[int, ...]
    said_by: tuple[tuple[str, ...], ...] = ()
    """Of each of them, who wrote it."""
    copied: tuple[CopiedMessages, ...] = ()
    """What the fork says of where its messages come from."""

    def pending_step(self) -> PendingStep:
        return PendingStep(
            CONFIRM_FORK,
            CONFIRM_FORK,
            {"session": self.session_id, "incarnation": self.incarnation, "places": list(self.places)},
        )


@dataclass(frozen=True, slots=True)
class SessionDraft:
    """A session as handed in, checked."""

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
    """Whether callers may name other users, agents and namespaces than the session's."""
    made_from: int | None = None
    """Of a fork: since when there was what it begins with."""
    forked_from: ForkSource | None = None
    writer: str | None = None
    """The user who writes through the handle, where that is not the session's."""


class SessionRecords:
    """The repository of sessions: each one's own record."""

    owed_follow = (PendingStep(FOLLOW, FOLLOW),)
    """What an event owes that lists must know of: see `follow`."""

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
        self._logs: dict[tuple[str, str], Log] = {}
        self._told: dict[Key, tuple[Record, datetime]] = {}
        """Records as they were last read or written here, and when."""
        self._behind: dict[Key, tuple[Record, State, datetime]] = {}
        outbox.register(FOLLOW, self._follow_noted)
        self.uploads = Uploads(placement, outbox, reservations)

    async def refuse_change(self, life: SessionIncarnation) -> None:
        """Raise `LegalHoldActive` where the session is under legal hold: what it says may not be
        overwritten.
        """
        await self._erasure.holds.refuse_change(life.partition, life.user)

    # -- one session -------------------------------------------------------------------

    async def create(self, tenant: str, draft: SessionDraft) -> tuple[Record, Log]:
        """A new session under this id, or under one of its own. Raises `Conflict` where
        there is one (B12).
        """
        session_id = draft.id or self._placement.new_id(tenant, "session")
        now = self._placement.now()
        record, stands = self._record(tenant, session_id, draft, now), 0
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
            if (error := rejection_error(self._placement.topology.archive, outcome)) is not None:
                raise error
            if isinstance(outcome.stored, Record) and self.is_over(outcome.stored):
                await self.erase_expired(outcome.stored)
                continue
            if isinstance(outcome.stored, Record | Corrupt):
                if (
                    isinstance(outcome.stored, Record)
                    and outcome.stored.body.get("incarnation") == record.body["incarnation"]
                ):
                    return outcome.stored, self.log(outcome.stored)  # this very put, whose answer was lost
                raise Conflict(f"Session already exists: {session_id}", session_id)
            if isinstance(outcome.stored, Tombstone):
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
        """The session's own record. Raises `NotFound` where there is no such session
        (B19).
        """
        stored = await self.find_record(tenant, session_id)
        if stored is None or self.is_over(stored):
            self._told.pop(session_key(tenant, session_id), None)
            raise NotFound(session_id, "session")
        self._remember(stored)
        return stored

    async def find_record(self, tenant: str, session_id: str) -> Record | None:
        """The session's own record, also of one that has expired and is hidden; None
        where there is none.
        """
        with step("session.read"):
            (stored,) = await self._placement.topology.archive.get(
                SESSIONS, [session_key(tenant, session_id)]
            )
        if isinstance(stored, Corrupt):
            await self._placement.locate(SESSIONS, stored.key)  # raises what says so
        return stored if isinstance(stored, Record) else None

    async def is_deleted(self, tenant: str, session_id: str) -> bool:
        """Whether there was such a session and it was deleted, as far as the store
        remembers.
        """
        with step("session.read"):
            (stored,) = await self._placement.topology.archive.get(
                SESSIONS, [session_key(tenant, session_id)]
            )
        return isinstance(stored, Tombstone)

    async def lives(self, tenant: str, session_ids: Collection[str]) -> dict[str, str]:
        """The incarnation of each of these sessions that is there, read in one call."""
        of, archive = {session_key(tenant, one): one for one in session_ids}, self._placement.topology.archive
        with step("session.read"):
            rows = await archive.get(SESSIONS, list(of)) if of else []
        for row in rows:
            if isinstance(row, Corrupt):
                raise CorruptRecord(archive.name, row.key.id, row.problem)
        return {
            of[row.key]: str(row.body["incarnation"])
            for row in rows
            if isinstance(row, Record) and not self.is_over(row)
        }

    def _remember(self, record: Record) -> None:
        self._told.pop(record.key, None)
        self._told[record.key] = record, self._placement.now()
        if len(self._told) > LOGS:
            del self._told[next(iter(self._told))]

    def cached_record(self, tenant: str, session_id: str) -> Record | None:
        """The session's own record as it was last read or written here, no longer ago
        than what is remembered of its log; None where it was not.
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
        """Whether the session has expired: it is hidden strictly after that moment, and
        gone with a sweep.
        """
        until: Any = record.fields.get("hidden_from")
        return until is not None and until < self._placement.now()

    def log(self, record: Record) -> Log:
        """The log of the session whose record this is: the same for all who have it
        here, as long as it is among those that were last asked for.
        """
        life = life_of(record)
        log = self._logs.pop((life.tenant, life.session_id), None)
        if log is None or (log.life.incarnation, log.life.generation) != (life.incarnation, life.generation):
            log = Log(self._placement, self.uploads, self.passages, life, self._reload_life)
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
        """Let the session's own record say what its log has come to, and change what of
        it is no log's affair (`title`, `metadata`, `system`); `told` are fields
        (`tags`, `hidden_from`).

        `compute` makes changes from the record. It is called again for each attempt, so
        that a concurrent change of the record is never overwritten by values that were
        made from an older version. `fence` writes a new version even where nothing
        changes: every concurrent writer that read the record before then conflicts and
        computes its changes again.
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
            )  # how it began may have been erased
            outcome = await self._placement.write_one("session.follow", store, put)
            if outcome.applied:
                self._remember(new)
                return new
            if (error := rejection_error(store, outcome)) is not None:
                raise error
            there = outcome.stored
            if not isinstance(there, Record) or there.body.get("incarnation") != record.body["incarnation"]:
                raise NotFound(str(record.fields["session_id"]), "session")
            record = there
            if not changes and not told and compute is None and not fence and _place(record) >= state.place:
                return record  # another told it of more
            await patience.wait()

    async def tell(
        self, record: Record, state: State, touched_at: datetime, *, fence: bool = False
    ) -> Record:
        """Let the session's own record say what its log has come to, and how it begins.

        The preview is read again for each attempt. An erasure passes `fence`, so that
        no concurrent call can store a preview that it read before the erasure.
        """

        async def preview(there: Record) -> Mapping[str, JsonValue]:
            return await preview_of(there, state, self.log(there))

        return await self.follow(record, state, touched_at, compute=preview, fence=fence)

    async def settle_fork(self, fork: Record) -> None:
        """Take `CONFIRM_FORK` away from a fork, by a new version: whoever read the
        record before conflicts and does not bring the step back.
        """
        store = self._placement.topology.archive
        while fork.owed:
            new = replace(fork, version=self._placement.next_version(fork.version), owed=())
            put = Put(SESSIONS, new, AtVersion(fork.version), settles=frozenset({CONFIRM_FORK}))
            outcome = await self._placement.write_one("fork.settle", store, put)
            if outcome.applied:
                self._remember(new)
                return
            if (error := rejection_error(store, outcome)) is not None:
                raise error
            if (
                not isinstance(outcome.stored, Record)
                or outcome.stored.body["incarnation"] != fork.body["incarnation"]
            ):
                return
            fork = outcome.stored

    def is_behind(self, record: Record, state: State, touched_at: datetime) -> None:
        """The session's record is behind its log, which it is to follow before anybody
        here asks for a list, and when this process ends.

        Of more sessions than are remembered in between, those that wait longest stay
        behind until something is said in them, as where a process dies.
        """
        self._behind.pop(record.key, None)
        self._behind[record.key] = (record, state, touched_at)
        if len(self._behind) > MOST_BEHIND:
            self._behind.pop(next(iter(self._behind)))

    async def catch_up(self) -> None:
        """Let the records of the sessions that were written to here say what their logs
        have come to. Those that a store kept from it wait.
        """
        behind, self._behind = self._behind, {}
        while behind:
            key, seen = behind.popitem()
            try:
                with suppress(NotFound):  # deleted meanwhile
                    await self.tell(*seen)
            except BaseException:
                self._behind = {key: seen, **behind, **self._behind}
                raise

    async def finish(self, event: Record) -> None:
        """Do what an event owes."""
        await self._outbox.finish(OutboxRecord(MESSAGES, self._placement.topology.archive, event))

    async def _follow_noted(self, pending: OutboxRecord, owed: PendingStep) -> bool:
        """What a crash left undone: the session's record says what its log has come to."""
        if not isinstance(pending.owner, Record):
            return True
        try:
            record = await self.record(pending.owner.key.tenant, str(pending.owner.fields["conversation_id"]))
            await self.follow(record, (await self.log(record).load()).state, pending.owner.created_at)
        except NotFound:
            return True  # deleted meanwhile
        return True

    async def delete(self, tenant: str, session_id: str, asked: SessionDraft | None = None) -> bool:
        """Erase a session with everything said in it, the entries of its scope, and
        those made of what was said; false where there was none.

        Raises `SessionOwnerMismatch` where it belongs to another owner than `asked`
        names, also where it has expired.
        """
        if asked is not None and (stored := await self.find_record(tenant, session_id)) is not None:
            refuse_other_owner(stored, asked)
        there, _, entries = await self.erase(tenant, session_id)
        return there or entries_of(entries) > 0

    async def erase(self, tenant: str, session_id: str) -> tuple[bool, Erased, Erased]:
        """The same; whether there was a session, what was erased of the conversation,
        and what of the session's scope.
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
        """Erase a conversation that is older than this version, with what was said in
        it since; what was erased. Of one whose session was created since, what its
        earlier lives left goes, and it stands.
        """
        partition, key = Partition(tenant, scope_of(session_id)), session_key(tenant, session_id)
        with step("session.read"):
            (stored,) = await self._placement.topology.archive.get(SESSIONS, [key])
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

    async def erase_expired(self, record: Record, *, never_shown: bool = False) -> None:
        """Erase a session that has expired, with what was made of it, and not one that
        was created of its id since. Entries of its scope have an expiry of their own.
        One that was `never_shown` to anybody goes also where its user is under legal
        hold.
        """
        session_id, incarnation = record.fields["session_id"], record.body["incarnation"]
        life: dict[str, JsonValue] = {
            "tenant": record.key.tenant,
            "session_id": str(session_id),
            "incarnation": incarnation,
        }
        life["expired"] = True  # copies of what was made of it stay: an expiry is no erasure
        await self._erasure.erase(
            record.partition,
            (PendingStep(DELETE_DERIVED, DELETE_DERIVED, life),),
            older_than=(record.generation or 0) + 1,
            holdable=not never_shown,
        )

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
    ) -> SessionPage:
        """A page of sessions with these fields, last used or created between the two
        moments, both included (B15, B16).
        """
        conditions: list[Condition] = [Eq(name, value) for name, value in asked.items()]
        conditions += [Has("tags", tag) for tag in tags]
        conditions.append(Not(Lt("hidden_from", self._placement.now())))
        moment = "touched_at" if order == "updated" else "created_at"
        conditions += [] if since is None else [Ge(moment, since)]
        conditions += [] if until is None else [Le(moment, until)]
        try:
            await self.catch_up()
        except MemoryTiersError as error:
            log.info("the list shows an earlier state of some sessions: %s", error)
        by = Order(moment, descending=descending)
        query = Query(SESSIONS, Tenant(tenant), all_of(*conditions), (by,), limit, cursor=cursor)
        page = await self._placement.page("session.list", self._placement.topology.archive, query)
        return SessionPage([info_of(r) for r in page.records if isinstance(r, Record)], page.cursor)


def info_of(record: Record, state: State | None = None, gaps: Places = NOWHERE) -> SessionInfo:
    """What a session's record says of it, and its log where it was read."""
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
        version=None if state is None else state.after.version,
        last_compaction_id=None if state is None else state.after.last_compaction,
        expires_at=fields.get("hidden_from"),
        accessed_at=datetime.fromisoformat(body["accessed_at"]) if "accessed_at" in body else None,
        gaps=list(gaps.ranges),
    )


def _place(record: Record) -> int:
    """Up to which place of its log a session's record tells."""
    body: Mapping[str, Any] = record.body
    return int(body.get("place", 0))


def draft_like(record: Record, **metadata: Any) -> SessionDraft:
    """A session that begins as this one does, its metadata added to."""
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
    """Raise `SessionOwnerMismatch` where the caller names another user, agent or
    namespace than the stored session has.
    """
    given = {"user": draft.user, "agent": draft.agent, "namespace": draft.namespace}
    stored = {name: record.fields.get(field) for name, field in OWNER.items()}
    for name, value in given.items():
        if value is not None and value != stored[name] and not record.body.get(SHARED):
            raise SessionOwnerMismatch(str(draft.id), name, value)


def refuse_others(record: Record, draft: SessionDraft) -> None:
    """Raise `SessionOwnerMismatch` where the caller names another owner, or says
    otherwise of the session, than is stored.
    """
    refuse_other_owner(record, draft)
    system = system_of(record)
    if draft.system is not None and (system is None or system.content != draft.system.content):
        raise SessionOwnerMismatch(str(draft.id), "system", draft.system.text)
    for name in _differing_fields(record, draft):
        raise SessionOwnerMismatch(str(draft.id), name, None)


def _differing_fields(record: Record, draft: SessionDraft) -> Iterator[str]:
    """What else the draft says of a new session, and the stored session does not."""
    body: Mapping[str, Any] = record.body
    if draft.title is not None and draft.title != body.get("title"):
        yield "title"
    if draft.tags and set(draft.tags) != set(copy_json(record.fields.get("tags") or ())):
        yield "tags"
    if draft.metadata and draft.metadata != copy_json(body.get("metadata") or {}):
        yield "metadata"
    if draft.expires_at is not None and expiry(draft.expires_at, record.created_at) != record.fields.get(
        "hidden_from"
    ):
        yield "expires_at"
    if draft.shared and not body.get(SHARED):
        yield "shared"


def other_owner(there: Record, here: Record) -> str | None:
    """The first field in which the session that is there belongs to another than one of
    its id; None where it does not, or is shared.
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
    """The moment that is older than nothing which was said in the session, or in those
    from which it has it.
    """
    body: Mapping[str, Any] = record.body
    return min(micros(record.created_at), int(body.get(MADE_FROM, micros(record.created_at))))


def is_of_before(record: Record, version: int) -> bool:
    """Whether a session was created before this version, or has what was said in one
    that was.
    """
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
    """The session's system message, under the id that every session's has (B14)."""
    said = record.body.get("system")
    return (
        None
        if said is None
        else Message.model_validate(copy_json(said)).model_copy(update={"id": "system", "role": Role.SYSTEM})
    )
