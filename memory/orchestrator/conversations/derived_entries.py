"""Entries derived from messages that left the window of a session (`window_exits.py`).

The id of each is computed from the session's incarnation, the place of the event, the
answer and a number. An entry has the pending step `confirm` until its session and its
messages are known to exist. If the session was deleted or a message erased meanwhile,
the step deletes the entry.

The erasure of a session has the pending step `unlearn`. It finds the session's entries
by the session that they name, and deletes them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from memory.domain import ids
from memory.domain.entry import EntryDraft
from memory.domain.errors import NotFound
from memory.domain.scope import Scope
from memory.domain.session import HistoryItem
from memory.orchestrator.conversations.log.events import Event, EventType, event_of
from memory.orchestrator.conversations.log.log import Log
from memory.orchestrator.conversations.sessions import DELETE_DERIVED, SessionRecords
from memory.orchestrator.conversations.window.history import History, item_of
from memory.orchestrator.embeddings.embeddings import Embeddings
from memory.orchestrator.entries.admission import Admission, NewEntry
from memory.orchestrator.entries.derivatives import find_derived, source_filter
from memory.orchestrator.erasure.erasure import Erasure
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.storage.entry_records import record_of
from memory.orchestrator.storage.outbox import Outbox, OutboxRecord, StepLifetime, write_steps
from memory.orchestrator.storage.placement import Placement, raise_if_rejected
from memory.orchestrator.storage.places import Places
from memory.orchestrator.storage.session_keys import scope_of
from memory.orchestrator.storage.sources import MessageSource, scope_reference, sources_of, with_sources
from memory.orchestrator.storage.versions import version_at
from memory.ports.query import Eq, Or
from memory.ports.record import Key, PendingStep, Record
from memory.ports.store import Store
from memory.ports.writes import Absent, Put

CONFIRM = "confirm"
MADE, ANSWER, OF = "made", "answer", "of"
"""Keys in a pending step: the drafts of an answer, its name, and its places.

The places are those of the messages that the callback received, and of the summary.
"""
EACH = "each"
"""A key in a pending step of an event through which other users' messages leave.

For each entry it has the places of its messages (`of`), and their `user`.
"""
SAID_IN = "said_in"
"""A key in the body of an entry: the incarnation and places of its messages.

It also has their `user`, if that is not the session's.
"""


class DerivedEntries:
    """Makes derived entries, and deletes them with their messages."""

    def __init__(
        self,
        placement: Placement,
        *,
        sessions: SessionRecords,
        embeddings: Embeddings,
        outbox: Outbox,
        erasure: Erasure,
        quotas: Admission,
    ) -> None:
        self._placement = placement
        self._sessions = sessions
        self._embeddings = embeddings
        self._outbox = outbox
        self._erasure = erasure
        self._quotas = quotas
        self._founded: set[Key] = set()
        """Entries whose messages were just confirmed to exist."""
        outbox.register_for_records(CONFIRM, self._confirm, StepLifetime.DELETED)
        outbox.register(DELETE_DERIVED, self._delete_derived)

    async def store(self, owner: Record, session: Record, answer: Mapping[str, Any]) -> list[str]:
        """Store the entries of an answer that do not exist yet; return their ids.

        An entry that was deleted since is not made again. The messages are checked once
        all entries are stored, so that a later erasure of a message finds the entries.
        Raises `QuotaExceeded` if there is no room for all of them; then none is stored.
        """
        fresh = await self._fresh(owner, session, answer)
        async with self._quotas.admit(
            owner.key.tenant, [NewEntry.of(record, derived=True) for record in fresh]
        ) as stay:
            made = await self._put(fresh)
            stay.update(one.owner.key for one in made)
        keys = [
            record.key
            for record in await self._founded_of(
                session, [one.owner for one in made if isinstance(one.owner, Record)]
            )
        ]
        self._founded.update(keys)
        try:
            await self._outbox.finish_all(made)
        finally:
            self._founded.difference_update(keys)
        return [key.id for key in keys]

    async def plan_entries(self, owner: Record, session: Record, answer: Mapping[str, Any]) -> list[Record]:
        """Return the entries that `store` would make now, with room for their vectors.

        Nothing is written, and quotas are not checked.
        """
        founded = await self._founded_of(session, await self._fresh(owner, session, answer))
        return await self._embeddings.with_room(founded) if founded else []

    async def _founded_of(self, session: Record, made: Sequence[Record]) -> list[Record]:
        """Return the entries of which no message was erased."""
        log = self._sessions.log(session)
        of: list[Any] = [record.body[SAID_IN] for record in made]
        said = [
            (places, await self._is_said(log, Places.from_json(places)))
            for places in _each_once(one["places"] for one in of)
        ]
        return [record for record, one in zip(made, of, strict=True) if (one["places"], True) in said]

    async def _fresh(self, owner: Record, session: Record, answer: Mapping[str, Any]) -> list[Record]:
        records = [self._record(owner, session, number, answer) for number in range(len(answer[MADE]))]
        located = await self._placement.locate_many(ENTRIES, [record.key for record in records])
        return [
            record
            for record, there in zip(records, located, strict=True)
            if not (there.record or there.tombstone or there.corrupt)
        ]

    async def _put(self, fresh: Sequence[Record]) -> list[OutboxRecord]:
        made: list[OutboxRecord] = []
        for record in await self._embeddings.embed_records(fresh):
            store = self._placement.topology.home(record.tier)
            born = replace(record, owed=(*write_steps(self._placement, ENTRIES, record, store), *record.owed))
            outcome = await self._placement.write_one("onward.home", store, Put(ENTRIES, born, Absent()))
            raise_if_rejected(store, outcome)
            if outcome.applied:
                made.append(OutboxRecord(ENTRIES, store, replace(born, generation=outcome.generation)))
        return made

    def _record(self, owner: Record, session: Record, number: int, answer: Mapping[str, Any]) -> Record:
        draft, now, incarnation = (
            _draft(answer[MADE][number]),
            self._placement.now(),
            str(session.body["incarnation"]),
        )
        name = ("onward", incarnation, str(event_of(owner).place), answer[ANSWER], str(number))
        key = Key(owner.key.tenant, ids.derived_id(owner.key.tenant, draft.scope.text, *name))
        tier = self._placement.kinds.of(ENTRIES).route(draft.scope.kind).tier
        record = record_of(
            draft,
            key=key,
            version=version_at(now),
            now=now,
            tier=tier,
            sequence=self._placement.next_sequence(),
        )
        each = answer[EACH][number] if EACH in answer else {"of": answer[OF]}
        by = {name: each[name] for name in ("user",) if name in each}
        record = with_sources(
            record,
            [MessageSource(str(session.fields["session_id"]), incarnation, Places.from_json(each["of"]))],
        )
        return replace(
            record,
            fields={**record.fields, "conversation_id": session.fields["session_id"]},
            body={**record.body, SAID_IN: {"incarnation": incarnation, "places": each["of"], **by}},
            owed=(PendingStep(CONFIRM, CONFIRM),),
        )

    async def _confirm(self, entry: Record, store: Store, owed: PendingStep) -> bool:
        """Delete an entry whose session or message was erased while it was made."""
        if await self._is_unfounded(entry):
            await self._erasure.delete(ENTRIES, entry.key, held="left", only_if=self._is_unfounded)
        return True

    async def _is_unfounded(self, entry: Record) -> bool:
        return SAID_IN in entry.body and not (await self._id_reuse(entry) and await self._is_founded(entry))

    async def _is_founded(self, entry: Record) -> bool:
        if entry.key in self._founded:
            return True
        session = await self._sessions.record(entry.key.tenant, str(entry.fields["conversation_id"]))
        return await self._is_said(
            self._sessions.log(session), Places.from_json(entry.body[SAID_IN]["places"])
        )

    @staticmethod
    async def _is_said(log: Log, places: Places) -> bool:
        """Return whether none of the messages at these places was erased."""
        return not any(event.is_redacted for event in (await log.at(places)).values())

    async def _id_reuse(self, entry: Record) -> bool:
        try:
            session = await self._sessions.record(entry.key.tenant, str(entry.fields["conversation_id"]))
        except NotFound:
            return False
        return bool(session.body["incarnation"] == entry.body[SAID_IN]["incarnation"])

    async def _delete_derived(self, pending: OutboxRecord, owed: PendingStep) -> bool:
        """Delete the entries derived from an erased life of a session.

        Entries of every other life that is over are deleted too.
        """
        tenant, session_id = owed.data["tenant"], owed.data["session_id"]
        living = await self._current_incarnation(tenant, session_id)
        if living is not None and living == owed.data["incarnation"]:
            return False  # its erasure comes first
        direct = bool(owed.data.get("expired"))
        is_past = partial(self._is_of_past_incarnations, session_id, living, direct)
        async for entry in self.entries_of_past_incarnations(tenant, session_id, living, direct=direct):
            await self._erasure.delete(
                ENTRIES, entry.key, held="left", unmake=None if direct else "all", only_if=is_past
            )
        return True

    async def entries_of_past_incarnations(
        self, tenant: str, session_id: str, living: object = None, *, direct: bool = True
    ) -> AsyncIterator[Record]:
        """Yield the entries derived from past lives of this session.

        With `direct`, their copies are left out.
        """
        async for entry in self._made_of(tenant, session_id):
            if await self._is_of_past_incarnations(session_id, living, direct, entry):
                yield entry

    async def _is_of_past_incarnations(
        self, session_id: str, living: object, direct: bool, entry: Record
    ) -> bool:
        lives = {source.incarnation for source in _messages_in(entry, session_id, direct=direct)}
        return bool(
            lives - {living} and lives - {await self._current_incarnation(entry.key.tenant, session_id)}
        )

    async def forget(self, log: Log, event: Event) -> None:
        """Delete the entries derived from this erased message.

        Everything that was derived from these entries is deleted too.
        """
        tenant, session_id, incarnation = log.life.tenant, log.life.session_id, log.life.incarnation

        async def is_made_of_it(entry: Record) -> bool:
            return any(
                source.incarnation == incarnation and source.has(event.place, event.number or 0)
                for source in _messages_in(entry, session_id, direct=False)
            )

        async for entry in self._made_of(tenant, session_id):
            if await is_made_of_it(entry):
                await self._erasure.delete(
                    ENTRIES, entry.key, held="left", unmake="all", only_if=is_made_of_it
                )

    async def stands(self, tenant: str, source: MessageSource) -> bool:
        """Return whether the messages of a source exist, and none was erased."""
        try:
            session = await self._sessions.record(tenant, source.session_id)
        except NotFound:
            return False
        log = self._sessions.log(session)
        if session.body["incarnation"] != source.incarnation or not await self._is_said(log, source.places):
            return False
        first, last = source.numbers
        return first > last or not await log.any_erased(first, last)

    async def _current_incarnation(self, tenant: str, session_id: str) -> object:
        """Return the incarnation of the session that exists now, or None."""
        try:
            return (await self._sessions.record(tenant, session_id)).body["incarnation"]
        except NotFound:
            return None

    def _made_of(self, tenant: str, session_id: str) -> AsyncIterator[Record]:
        named = Or(
            (Eq("conversation_id", session_id), source_filter(scope_reference(tenant, scope_of(session_id))))
        )
        return find_derived(self._placement, tenant, named)

    async def messages_of(self, entry: Record) -> list[HistoryItem]:
        """Return the messages that an entry was derived from and that still exist."""
        if SAID_IN not in entry.body or not await self._id_reuse(entry):
            return []
        session = await self._sessions.record(entry.key.tenant, str(entry.fields["conversation_id"]))
        log = self._sessions.log(session)
        there = await log.at(Places.from_json(entry.body[SAID_IN]["places"]))
        events = await log.whole([e for _, e in sorted(there.items()) if e.type is EventType.MESSAGE])
        return [
            item_of(e, gone)
            for e, gone in zip(events, await History(self._placement, log).window_exits(events), strict=True)
        ]


def _messages_in(entry: Record, session_id: str, *, direct: bool) -> list[MessageSource]:
    """Return the messages of a session that an entry was derived from.

    This covers entries that were stored before entries named their sources.
    """
    named = [
        one
        for one in sources_of(entry)
        if isinstance(one, MessageSource) and one.session_id == session_id and (one.direct or not direct)
    ]
    said_in: Any = entry.body.get(SAID_IN)
    if said_in is None or named or entry.fields.get("conversation_id") != session_id:
        return [one for one in named if not direct or said_in is not None]
    return [MessageSource(session_id, said_in["incarnation"], Places.from_json(said_in["places"]))]


def _each_once(places: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for one in places:
        if one not in found:
            found.append(one)
    return found


def _draft(said: Mapping[str, Any]) -> EntryDraft:
    return EntryDraft(**{**said, "scope": Scope.parse(said["scope"])})
