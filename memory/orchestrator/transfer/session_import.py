"""Import of sessions: each one's record, its log event by event, its tasks and runs.

History, window and counts are restored exactly. The chunks of a message's large texts
come before the message, and are stored again.

A session keeps its id. The keys of its events derive from its incarnation, which
belongs to tenant and session. In another tenant the session gets an incarnation that
derives from the old one. References to events by key are changed accordingly.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Any

from memory.domain import ids, validation
from memory.domain.entry import check_title
from memory.domain.errors import Conflict, InvalidInput, QuotaExceeded, StoreUnavailable
from memory.domain.session import STATUSES
from memory.domain.task import RUN_MODES, RUN_STATUSES, TASK_STATUSES
from memory.orchestrator.conversations.blobs.large_texts import (
    Chunk,
    chunks_of,
    digest_of,
    restore_large_texts,
    uploads_of,
)
from memory.orchestrator.conversations.blobs.uploads import StaleGeneration, Uploads
from memory.orchestrator.conversations.log.events import (
    FIRST_PLACE,
    STATE,
    EventType,
    artifacts_of,
    event_of,
    place_key,
    with_artifacts,
)
from memory.orchestrator.conversations.log.folding import back_by, late_by, left_by
from memory.orchestrator.conversations.log.forks import carried_elsewhere, check_copied
from memory.orchestrator.conversations.log.passages import Passages
from memory.orchestrator.conversations.log.session_state import MAX_STATE_BYTES
from memory.orchestrator.conversations.sessions import MADE_FROM, life_of, system_of
from memory.orchestrator.conversations.tasks.named_records import NamedRecords
from memory.orchestrator.conversations.tasks.tasks import Tasks
from memory.orchestrator.storage.collections import ARTIFACTS, MESSAGES, RUNS, SESSIONS, TASKS
from memory.orchestrator.storage.kinds import Kind
from memory.orchestrator.storage.placement import Placement, rejection_error
from memory.orchestrator.storage.requests import MADE_BY
from memory.orchestrator.storage.session_keys import scope_of, session_key, session_of
from memory.orchestrator.transfer.records import DELETED, TAKEN, THERE, WRITTEN, Fate, RestoreResult
from memory.ports.record import JsonValue, Key, Record, Stored, Tombstone
from memory.ports.writes import Absent, Outcome, Put, Status

NAMED = {TASKS: "task_id", RUNS: "run_id"}
"""The records that a session keeps beside its log, and the field with their name."""


def check_carried(kind: Kind, record: Record) -> None:
    """Raise `InvalidInput` if an exported record does not fit a session or a log."""
    fields: Mapping[str, Any] = record.fields
    _check_fields(kind, record)
    if kind.collection in NAMED:
        _check_named(kind, record)
        return
    named = "session_id" if kind.collection is SESSIONS else "conversation_id"
    if record.scope != scope_of(validation.identifier(named, fields[named])):
        raise InvalidInput("scope", f"got {record.scope!r}, which is not the scope of its session")
    if kind.collection is ARTIFACTS:
        if not isinstance(fields["data"], bytes) or digest_of(fields["data"]) != fields["digest"]:
            raise InvalidInput("data", "does not match its digest")
        fields["data"].decode()
        validation.identifier("upload", fields["upload"])
        return
    if kind.collection is MESSAGES:
        event = event_of(record)
        left_by(event.draft).with_all(back_by(event.draft)).with_all(late_by(event.draft))
        if (
            event.draft.message is not None and event.draft.artifacts
        ):  # checks the positions of its large texts
            restore_large_texts(
                event.draft.message,
                event.draft.artifacts,
                dict.fromkeys(chunks_of(event.draft.artifacts), ""),
            )
        if STATE in event.draft.data:
            validation.json_object(STATE, event.draft.data[STATE], max_bytes=MAX_STATE_BYTES)
        if event.place < FIRST_PLACE:
            raise InvalidInput("place", f"must be a whole number of at least {FIRST_PLACE}")
        return
    validation.one_of("status", fields["status"], STATUSES)
    if not ids.is_id(record.body["incarnation"]) or fields["touched_at"] is None:
        raise InvalidInput("body", "is not in the form that an export writes")
    if type(record.body.get(MADE_FROM, 0)) is not int:
        raise InvalidInput(MADE_FROM, "must be a whole number of microseconds")
    check_copied(record.body)
    check_title(record.body.get("title"))
    validation.json_object("metadata", record.body.get("metadata", {}))
    system_of(record)


def _check_fields(kind: Kind, record: Record) -> None:
    """Raise `InvalidInput` if a record has a field that its collection lacks."""
    for name in record.fields:
        if kind.collection.field(name) is None:
            raise InvalidInput(
                "fields", f"{name!r} is not a field of a record of kind '{kind.collection.name}'"
            )


def _check_named(kind: Kind, record: Record) -> None:
    """Raise `InvalidInput` if an exported task or run is not as a caller saves one."""
    fields, body = dict[str, Any](record.fields), dict[str, Any](record.body)
    validation.identifier("session_id", session_id := session_of(record.scope))
    if record.scope != scope_of(session_id):
        raise InvalidInput("scope", f"got {record.scope!r}, which is not the scope of a session")
    validation.identifier(NAMED[kind.collection], fields[NAMED[kind.collection]])
    validation.json_object("metadata", body.get("metadata", {}))
    if kind.collection is TASKS:
        validation.one_of("status", fields["status"], TASK_STATUSES)
        for field, value in (("title", body.get("title", "")), ("result", body.get("result", ""))):
            validation.text(field, value)
        if fields.get("parent_id") is not None:
            validation.identifier("parent_id", fields["parent_id"])
        return
    validation.one_of("status", fields["status"], RUN_STATUSES)
    validation.one_of("mode", fields["mode"], RUN_MODES)
    validation.identifier("child_id", fields["child_id"])
    validation.whole("message_count", fields["message_count"])


def incarnation_here(tenant: str, scope: str, was: str) -> str:
    """Return the incarnation that a session gets in the tenant of the import."""
    if not ids.is_id(was) or ids.digest_of(was) == ids.partition_digest(tenant, scope):
        return was
    return ids.derived_id(tenant, scope, "import", was)


class SessionMapping:
    """Translates the keys and incarnations of a file's sessions to a tenant."""

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant
        self._was: dict[str, str] = {}
        self._compactions: dict[str, str] = {}

    def note(self, session: Record) -> None:
        """Note a session before its events are passed to `here`."""
        self._was[session.scope] = str(session.body["incarnation"])

    def here(self, record: Record) -> Record:
        """Return the record with its keys in this tenant.

        An event that fits no place of its session keeps its key, and is refused later.
        """
        if (name := _name_of(record)) is not None:
            return replace(record, key=NamedRecords.key(self._tenant, record.scope, name))
        was = self._was.get(record.scope, "")
        now = incarnation_here(self._tenant, record.scope, was)
        if "session_id" in record.fields:
            body = carried_elsewhere(
                record.body, lambda session_id, was: incarnation_here(self._tenant, scope_of(session_id), was)
            )
            return replace(
                record,
                key=session_key(self._tenant, str(record.fields["session_id"])),
                body={**body, "incarnation": now},
            )
        event, here = event_of(record), Key(self._tenant, record.key.id)
        if was == now or record.key.id != place_key(self._tenant, was, event.place).id:
            return replace(record, key=here)
        here, body = place_key(self._tenant, now, event.place), dict(record.body)
        if event.type is EventType.COMPACTION:
            self._compactions[record.key.id] = here.id
            names = {
                place_key(self._tenant, was, place).id: place_key(self._tenant, now, place).id
                for place in left_by(event.draft)
            }
            data: dict[str, JsonValue] = dict(event.draft.data)
            body["data"] = data | {"archived": [names.get(name, name) for name in data.get("archived", ())]}
        last = event.after.last_compaction
        body["after"] = replace(
            event.after, last_compaction=self._compactions.get(last, last) if last is not None else None
        ).to_json()
        return replace(record, key=here, body=body)


class SessionRestorer:
    """Restores sessions and their events."""

    def __init__(self, placement: Placement, uploads: Uploads, passages: Passages, tasks: Tasks) -> None:
        self._placement = placement
        self._uploads = uploads
        self._passages = passages
        self._tasks = tasks

    async def restore_session(self, record: Record) -> RestoreResult:
        """Store a session's own record if there is none.

        A record of the same incarnation counts as stored, even with later messages.
        """
        archive = self._placement.topology.archive
        outcome = await self._placement.write_one(
            "session.restore", archive, Put(SESSIONS, _new_record(record, None), Absent())
        )
        if outcome.applied or (error := rejection_error(archive, outcome)) is not None:
            return WRITTEN if outcome.applied else RestoreResult(Fate.REFUSED, str(error))
        there = outcome.stored
        if isinstance(there, Record):
            same = there.body["incarnation"] == record.body["incarnation"]
            return (
                THERE if same else RestoreResult(Fate.REFUSED, "id: another session already has this id here")
            )
        return DELETED if isinstance(there, Tombstone) or outcome.status is Status.REJECTED else TAKEN

    async def restore_named(self, kind: Kind, record: Record, *, claims: bool = True) -> RestoreResult:
        """Store a task or a run of a session, if the session has none of this name.

        One that was deleted here since an earlier import stays deleted. Without
        `claims`, other sessions may have a task of this id too.
        """
        archive, collection = self._placement.topology.archive, kind.collection
        owner = session_key(record.key.tenant, session_of(record.scope))
        session = await self._placement.read_one("session.read", archive, SESSIONS, owner)
        if not isinstance(session, Record):
            return DELETED
        there = await self._placement.read_one(f"{collection.name}.read", archive, collection, record.key)
        if there is not None:
            return _named_fate(record, there)
        if claims and collection is TASKS:
            try:
                await self._tasks.claim(life_of(session), str(record.fields["task_id"]), record.key)
            except Conflict as taken:
                return RestoreResult(Fate.REFUSED, f"id: {taken}")
        body = {name: value for name, value in record.body.items() if name != MADE_BY}
        fresh = _new_record(replace(record, body=body), session.generation)
        outcome = await self._placement.write_one(
            f"{collection.name}.save", archive, Put(collection, fresh, Absent())
        )
        if outcome.applied:
            return WRITTEN
        if (error := rejection_error(archive, outcome)) is not None:
            return RestoreResult(Fate.REFUSED, str(error))
        return DELETED if outcome.status is Status.REJECTED else _named_fate(record, outcome.stored)

    async def restore_events(
        self, records: Sequence[Record], chunks: MutableMapping[tuple[str, Chunk], str]
    ) -> list[RestoreResult]:
        """Store events in order, each if its place is empty.

        Events of a deleted session are not restored. Raises `QuotaExceeded` at the
        first message whose large texts have no room. The messages before it are stored.

        Args:
            chunks: The large texts by the scope of their session. The texts that are
                used are removed from it.
        """
        archive = self._placement.topology.archive
        named = [session_key(record.key.tenant, str(record.fields["conversation_id"])) for record in records]
        keys = list(dict.fromkeys(named))
        sessions = await self._placement.read_by_key("session.read", archive, SESSIONS, keys)
        fates: list[RestoreResult] = []
        puts: list[tuple[int, Put]] = []
        refusal: QuotaExceeded | None = None
        for at, (record, key) in enumerate(zip(records, named, strict=True)):
            fates.append(_fate(record, session := sessions[key]))
            texts = {
                chunk: text
                for chunk in chunks_of(artifacts_of(record))
                if (text := chunks.pop((record.scope, chunk), None)) is not None
            }
            if isinstance(session, Record) and fates[at] is WRITTEN:
                try:
                    here = await self._with_texts(record, session, texts) if artifacts_of(record) else record
                except QuotaExceeded as refused_now:
                    refusal = refused_now
                    break
                if isinstance(here, RestoreResult):
                    fates[at] = here
                else:
                    born = _new_record(here, session.generation)
                    owed = (*born.owed, *self._passages.owed_by(event_of(record).draft))
                    puts.append((at, Put(MESSAGES, replace(born, owed=owed), Absent())))
        outcomes = (
            await self._placement.write("log.restore", archive, *[put for _, put in puts]) if puts else []
        )
        for (at, put), outcome in zip(puts, outcomes, strict=True):
            if outcome.applied:
                self._passages.note(event_of(put.record))
            error = rejection_error(archive, outcome)
            fates[at] = (
                _put_fate(put.record, outcome) if error is None else RestoreResult(Fate.REFUSED, str(error))
            )
            if (artifacts := artifacts_of(put.record)) and isinstance(session := sessions[named[at]], Record):
                if not outcome.applied:
                    await self._uploads.give_up(life_of(session), artifacts)
                elif not await self._uploads.hold(life_of(session), uploads_of(artifacts)):
                    raise StoreUnavailable(
                        archive.name,
                        "took so long that a sweep removed the large texts of a message. Erase the message,"
                        " and import again",
                    )
        if refusal is not None:
            raise refusal
        return fates

    async def _with_texts(
        self, record: Record, session: Record, texts: Mapping[Chunk, str]
    ) -> Record | RestoreResult:
        """Store the large texts of a record, and return the record with them.

        Returns a result instead if its place is in use, or if the texts cannot be
        stored.
        """
        archive, event = self._placement.topology.archive, event_of(record)
        there = await self._placement.read_one("log.read", archive, MESSAGES, record.key)
        if there is not None:
            return _existing_fate(record, there)
        lacking = [chunk for chunk in chunks_of(event.draft.artifacts) if chunk not in texts]
        if lacking or event.draft.message is None:
            return RestoreResult(
                Fate.REFUSED, f"artifacts: {len(lacking)} of their chunks do not come before it in this file"
            )
        try:
            message = restore_large_texts(event.draft.message, event.draft.artifacts, texts)
            (artifacts,) = await self._uploads.lay(life_of(session), [(message, ())])
        except StaleGeneration:
            return DELETED
        return with_artifacts(record, artifacts)


def _fate(record: Record, session: object) -> RestoreResult:
    """Return the result for an event by its session; written if its place is empty."""
    if not isinstance(session, Record):
        return DELETED
    place: Any = record.fields["place"]
    is_its = record.key == place_key(record.key.tenant, str(session.body["incarnation"]), place)
    return (
        WRITTEN if is_its else RestoreResult(Fate.REFUSED, "id: is not a position of the session stored here")
    )


def _put_fate(record: Record, outcome: Outcome) -> RestoreResult:
    if outcome.applied:
        return WRITTEN
    return DELETED if outcome.status is Status.REJECTED else _existing_fate(record, outcome.stored)


def _existing_fate(record: Record, there: Stored | None) -> RestoreResult:
    """Return the result for an event whose place is in use."""
    if isinstance(there, Record):
        return THERE if there.body.get("nonce") == record.body["nonce"] else TAKEN
    return DELETED if isinstance(there, Tombstone) else TAKEN


def _name_of(record: Record) -> str | None:
    """Return the name of a task or a run in its session; None for other records."""
    return next((str(record.fields[name]) for name in NAMED.values() if name in record.fields), None)


def _named_fate(record: Record, there: Stored | None) -> RestoreResult:
    """Return the result for a task or a run whose name is in use in its session.

    It counts as there if it was created at the same moment, even if it changed since.
    """
    if isinstance(there, Record):
        return THERE if there.created_at == record.created_at else TAKEN
    return DELETED if isinstance(there, Tombstone) else TAKEN


def _new_record(record: Record, generation: int | None) -> Record:
    return Record(
        record.key,
        record.scope,
        record.version,
        record.created_at,
        record.updated_at,
        fields=record.fields,
        body=record.body,
        texts=record.texts,
        generation=generation,
        tier="mid",
        owed=record.owed,
    )
