"""One event at a place of a session's log, and its record."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import blake2b
from typing import Any

from memory.domain import ids
from memory.domain.message import Message, Role
from memory.domain.time import micros, moment
from memory.orchestrator.conversations.blobs import large_texts as large
from memory.orchestrator.conversations.blobs.large_texts import Artifacts, truncate_large_texts, uploads_of
from memory.orchestrator.storage.collections import SAID_BY
from memory.orchestrator.storage.entry_records import copy_json
from memory.orchestrator.storage.places import NOWHERE, Places
from memory.orchestrator.storage.requests import MADE_BY, MOST_MARKS, RequestMark
from memory.policies.passage_splitting import parts_of
from memory.policies.text_features import marks_of
from memory.ports.record import FieldValue, JsonValue, Key, PendingStep, Record

FIRST_PLACE = 2
"""The first place of an event.

Place 1 belongs to the system message, which is in the session's own record.
"""
ERASED, BEHIND_ERASED = "erased:", "erased;"
"""The prefix of the hash that replaces an erased message's id, and its successor.

All such hashes sort between the two.
"""
INDEXED_CHARACTERS = large.BEGINNING
"""The number of characters of a message that a search covers."""


class EventType(StrEnum):
    MESSAGE = "message"
    COMPACTION = "compaction"  # the event is the summary's message, with data of the compaction
    EXCLUDE = "exclude"
    RESTORE = "restore"
    CLEAR = "clear"
    ROLL_BACK = "roll_back"
    REPLACE = "replace"
    EDITED = "edited"  # a message was changed: caches read it again
    CHECKPOINT = "checkpoint"
    CLOSED = "closed"
    RESUMED = "resumed"
    ERASED = "erased"
    STATE = "state"  # the session's state changed, without a message


EDITS = "edits"
"""In the data of `replace`: true if the writer edits messages after this event.

It changes the version of the window, so one of several writers of a version edits.
"""
LEAVES = "leaves"
"""In an event's data: the places of the messages that leave the window through it."""
SPOKEN = frozenset({EventType.MESSAGE, EventType.COMPACTION})
"""Types of events that are messages."""
OF_ONE = frozenset({EventType.EXCLUDE, EventType.RESTORE, EventType.ERASED})
"""Types of events that move one message into or out of the window.

The message is given by its place.
"""
LEAVING = OF_ONE | {EventType.CLEAR, EventType.ROLL_BACK, EventType.REPLACE, EventType.COMPACTION}
"""Types of events that change which messages are in the window."""
ARTIFACTS_SAID = "artifacts"
"""In the body of a record: the large texts of its message.

The record's message has only their beginnings.
"""
REDACTED = "redacted"
"""In an event's data: true if the message was erased."""
ENTERS = "enters"
"""In the data of `edited`: true if the message enters the history by this event.

It was only in the window before, and gets this event's number.
"""
ERASED_ID = "erased_id"
"""In an erased message's data: a hash of its given id, so that no import restores it.

See `erased_id`.
"""
STATE = "state"
"""In an event's data: the whole state of the session after the event."""
NUMBER = "number"
"""In a message's data: its number, if it entered the history after it was stored."""


@dataclass(frozen=True, slots=True)
class LogTotals:
    """The totals after an event.

    They are exact, because the writer had to know the event before.

    - `number` counts the messages of the history, including the system message.
    - `version` counts the changes of the window.
    - `base` is the newest place whose event carries the whole window.
    - `tokens` is the total of all messages when they were written.
    - Messages up to `exited_until` do not exit again: a session end handled them (see
      `window_exits.py`).
    - `state_place` is the newest place whose event carries the session's state, or 0.
      `state_version` is the version of that state.
    """

    number: int
    version: int
    turn: int = 0
    compactions: int = 0
    last_compaction: str | None = None
    status: str = "active"
    base: int = FIRST_PLACE - 1
    tokens: int = 0
    exited_until: int = 0
    state_place: int = 0
    state_version: int = 0

    def to_json(self) -> list[JsonValue]:
        state = (self.state_place, self.state_version) if self.state_place else ()
        return [
            self.number,
            self.version,
            self.turn,
            self.compactions,
            self.last_compaction,
            self.status,
            self.base,
            self.tokens,
            self.exited_until,
            *state,
        ]

    @classmethod
    def from_json(cls, said: list[Any]) -> LogTotals:
        return cls(*said)


@dataclass(frozen=True, slots=True)
class Draft:
    """An event without a place."""

    type: EventType
    message: Message | None = None
    data: Mapping[str, JsonValue] = field(default_factory=dict)
    tokens: int | None = None
    owed: tuple[PendingStep, ...] = ()
    nonce: str = ""
    """Identifies a writer's own event if the answer to its put was lost."""
    artifacts: Artifacts = ()
    """The large texts of the message, as they are stored beside it."""
    is_whole: bool = True
    """Whether the message has its large texts; otherwise it has their beginnings.

    See `Log.whole`.
    """
    belongs_to_erasure: bool = False
    """Whether an erasure needs the event, so that even a full store accepts it.

    It is not stored.
    """
    said_by: tuple[str, ...] = ()
    """The users whose handles wrote the message, in the order of their first writes.

    For a summary, these are the authors of the messages that it replaces. Empty if the
    only author is the session's user, or if nobody is known.
    """

    @property
    def is_in_history(self) -> bool:
        """Whether it counts as a message of the history.

        Otherwise it is only in the window, or no message.
        """
        return self.type in SPOKEN and bool(self.data.get("in_history", True))

    @property
    def counts(self) -> bool:
        """Whether this event adds a message to the history."""
        return bool(self.data.get(ENTERS)) or (self.is_in_history and NUMBER not in self.data)


@dataclass(frozen=True, slots=True)
class Event:
    """An event at its place.

    `window`, if present, is the whole window after the event. `pinned` has the places
    of the window that are kept regardless of the budget.

    Its message has the id that the caller gave, or that of its record. It is shared:
    callers get a copy (`message`).
    """

    key: Key
    place: int
    draft: Draft
    after: LogTotals
    created_at: datetime
    updated_at: datetime
    version: int
    window: Places | None = None
    pinned: Places = NOWHERE
    edits: int = 0
    """How often its message was changed."""
    parts: int = 0
    """The largest number of its passages before a change."""
    owed: tuple[PendingStep, ...] = ()

    @property
    def type(self) -> EventType:
        return self.draft.type

    @property
    def message(self) -> Message | None:
        """A copy of the message, for callers."""
        if not self.draft.is_whole:
            raise RuntimeError("the large texts of this message were not read")
        return None if self.draft.message is None else copy_of(self.draft.message)

    @property
    def given_id(self) -> str | None:
        """The id that the caller gave to its message; None if it has its record's."""
        said = self.draft.message
        return None if said is None or said.id == self.key.id else said.id

    def as_given(self) -> Draft:
        """Return the draft that the event was made of, without a nonce."""
        said = self.draft.message
        return replace(
            self.draft,
            nonce="",
            artifacts=(),
            message=None if said is None else said.model_copy(update={"id": self.given_id}),
        )

    @property
    def number(self) -> int | None:
        """Its number in the history, from 1; None if it is not in the history."""
        given: Any = self.draft.data.get(NUMBER, self.after.number)
        return given if self.draft.is_in_history else None

    def writers(self, owner: str | None) -> tuple[str, ...]:
        """Return the users who wrote the message, in a session of this owner.

        Empty if nobody is known.
        """
        return self.draft.said_by or (() if owner is None else (owner,))

    @property
    def is_redacted(self) -> bool:
        """Whether the message was erased.

        Its place, number and role stay, under the id of its record.
        """
        return bool(self.draft.data.get(REDACTED))

    def as_redacted(
        self, owed: tuple[PendingStep, ...], session_id: str, *, version: int, now: datetime
    ) -> Event:
        """Return the event without its content and authors.

        `owed` replaces its pending steps. It includes the erasure of derived data.
        """
        assert self.draft.message is not None  # noqa: S101 - only messages are erased
        told = {"in_history", NUMBER, STATE, "left", LEAVES, "before", "after", "reason"}
        data: dict[str, JsonValue] = {name: value for name, value in self.draft.data.items() if name in told}
        nothing = _nothing(self.draft.message, self.key.id)
        data |= {} if self.given_id is None else {ERASED_ID: erased_id(session_id, self.given_id)}
        draft = replace(
            self.draft,
            message=nothing,
            data={**data, REDACTED: True},
            tokens=None,
            artifacts=(),
            is_whole=True,
            said_by=(),
        )
        return replace(self, draft=draft, version=version, updated_at=now, owed=owed)

    def with_message(
        self,
        message: Message,
        tokens: int | None,
        *,
        artifacts: Artifacts = (),
        owed: tuple[PendingStep, ...] = (),
        said_by: tuple[str, ...] | None = None,
        version: int,
        now: datetime,
    ) -> Event:
        """Return the event with another message.

        Its place, its number and the totals after it stay the same.
        """
        before = self.draft.message
        parts = len(parts_of(found_by(before))) if before is not None and before.is_final else 0
        writers = self.draft.said_by if said_by is None else said_by
        draft = replace(
            self.draft, message=message, tokens=tokens, artifacts=artifacts, is_whole=True, said_by=writers
        )
        owing = (*self.owed, *owed)
        return replace(
            self,
            draft=draft,
            version=version,
            updated_at=now,
            edits=self.edits + 1,
            parts=max(self.parts, parts),
            owed=owing,
        )

    def was_made_by(self, request: RequestMark) -> bool:
        """Return whether the request has changed the message."""
        marks: Any = self.draft.data.get(MADE_BY, ())
        return request.text in marks

    def with_made_by(self, request: RequestMark) -> Event:
        """Return the event with the mark of a request that changes its message."""
        marks: Any = self.draft.data.get(MADE_BY, ())
        data = {**self.draft.data, MADE_BY: [*marks, request.text][-MOST_MARKS:]}
        return replace(self, draft=replace(self.draft, data=data))

    def with_number(self, number: int, *, version: int, now: datetime) -> Event:
        """Return the event in the history, under this number.

        The message was only in the window before.
        """
        data = {name: value for name, value in self.draft.data.items() if name != "in_history"}
        return replace(
            self, draft=replace(self.draft, data={**data, NUMBER: number}), version=version, updated_at=now
        )

    def with_texts(self, message: Message) -> Event:
        """Return the event with the message that includes its large texts."""
        return replace(self, draft=replace(self.draft, message=message, is_whole=True))

    def with_pending_steps(self, more: Iterable[PendingStep]) -> Event:
        """Return the event with these additional pending steps."""
        return replace(self, owed=tuple({owed.id: owed for owed in (*self.owed, *more)}.values()))


def copy_of(message: Message) -> Message:
    """Return a copy that shares no mutable value."""
    lists: dict[str, Any] = {
        "tool_calls": [*message.tool_calls],
        "metadata": copy_json(message.metadata),
        "extra": copy_json(message.extra),
    }
    if not isinstance(message.content, str):
        lists["content"] = copy_json(message.content)
    if message.usage is not None:
        lists["usage"] = copy_json(message.usage)
    return message.model_copy(update=lists)


def size_of(message: Message) -> int:
    """Return the approximate size of a message in characters."""
    text, parts = (message.content, []) if isinstance(message.content, str) else ("", list(message.content))
    parts += [part for part in (message.metadata, message.extra, message.usage) if part]
    return sum(
        map(
            len,
            (
                text,
                message.reasoning or "",
                json.dumps(parts) if parts else "",
                *(call.arguments for call in message.tool_calls),
            ),
        )
    )


def found_by(message: Message) -> str:
    """Return the searchable beginning of a message; empty for a tool's result."""
    return "" if message.role is Role.TOOL else message.text[:INDEXED_CHARACTERS]


def erased_id(session_id: str, message_id: str) -> str:
    """Return the hash that replaces the id of an erased message."""
    return ERASED + blake2b(f"{session_id}\x00{message_id}".encode(), digest_size=16).hexdigest()


def _nothing(message: Message, message_id: str) -> Message:
    return Message(id=message_id, role=message.role, is_summary=message.is_summary)


def place_key(tenant: str, incarnation: str, place: int) -> Key:
    """Return the key of a place.

    A session that was created again has another incarnation, and shares no key with its
    former life.
    """
    return Key(tenant, ids.beside(incarnation, "place", str(place)))


def record_of(event: Event, *, of_session: Mapping[str, FieldValue], scope: str, generation: int) -> Record:
    """Return the event's record.

    `of_session` has the fields for its session, and for that session's owner.
    """
    draft, message = event.draft, event.draft.message
    if not draft.is_whole:
        raise RuntimeError("the large texts of this message were not read")
    fields: dict[str, FieldValue] = {
        **of_session,
        "place": event.place,
        "number_in_conversation": event.number,
        "event": event.type.value,
    }
    if draft.said_by:
        fields[SAID_BY] = draft.said_by
    body: dict[str, JsonValue] = {"after": event.after.to_json(), "nonce": draft.nonce}
    if draft.data:
        body["data"] = dict(draft.data)
    if event.edits:
        body["edits"] = event.edits
    if event.parts:
        body["parts"] = event.parts
    if event.window is not None:
        body["window"] = event.window.to_json()
        if event.pinned.ranges:
            body["pinned"] = event.pinned.to_json()
    texts: dict[str, str] = {}
    if message is not None:
        erased: Any = draft.data.get(ERASED_ID)
        fields |= {
            "message_id": event.given_id or erased,
            "message_role": message.role.value,
            "speaker": message.name,
            "tokens": draft.tokens,
            "at": None if message.at is None else message.at.astimezone(UTC),
        }
        said = message.model_dump(
            mode="json", exclude_defaults=True, exclude=None if event.given_id else {"id"}
        )
        body["message"] = truncate_large_texts(said, draft.artifacts)
        if text := found_by(message):
            texts["content"] = text
            fields["marks"] = marks_of(text)
    record = Record(
        key=event.key,
        scope=scope,
        version=event.version,
        created_at=event.created_at,
        updated_at=event.updated_at,
        fields=fields,
        body=body,
        texts=texts,
        generation=generation,
        tier="mid",
        owed=event.owed,
    )
    return with_artifacts(record, draft.artifacts) if draft.artifacts else record


def artifacts_of(record: Record) -> Artifacts:
    """Return the large texts of a record's message."""
    return large.from_json(record.body.get(ARTIFACTS_SAID) or ())


def with_artifacts(record: Record, artifacts: Artifacts) -> Record:
    """Return the record with references to its large texts."""
    fields, body = (
        {**record.fields, "uploads": uploads_of(artifacts)},
        {**record.body, ARTIFACTS_SAID: large.to_json(artifacts)},
    )
    return replace(record, fields=fields, body=body)


def event_of(record: Record) -> Event:
    body: Mapping[str, Any] = record.body
    said: Any = body.get("message")
    tokens: Any = record.fields.get("tokens")
    artifacts = artifacts_of(record)
    place: Any = record.fields["place"]
    writers: Any = record.fields.get(SAID_BY)
    draft = Draft(
        EventType(str(record.fields["event"])),
        None if said is None else Message.model_validate({"id": record.key.id, **copy_json(said)}),
        dict(body.get("data") or {}),
        tokens,
        nonce=str(body["nonce"]),
        artifacts=artifacts,
        is_whole=not artifacts,
        said_by=tuple(writers or ()),
    )
    return Event(
        record.key,
        place,
        draft,
        LogTotals.from_json(body["after"]),
        record.created_at,
        record.updated_at,
        record.version,
        Places.from_json(body["window"]) if "window" in body else None,
        Places.from_json(body.get("pinned") or ()),
        body.get("edits", 0),
        body.get("parts", 0),
        record.owed,
    )


def row_of(event: Event) -> list[JsonValue]:
    """Return the event as JSON without its message, for a copy beside its record."""
    draft = event.draft
    return [
        event.place,
        event.key.id,
        draft.type.value,
        dict(draft.data),
        draft.tokens,
        draft.nonce,
        draft.said_by,
        event.after.to_json(),
        micros(event.created_at),
        micros(event.updated_at),
        event.version,
        None if event.window is None else event.window.to_json(),
        event.pinned.to_json(),
        event.edits,
        event.parts,
        [[owed.id, owed.step, dict(owed.data)] for owed in event.owed],
    ]


def event_of_row(tenant: str, row: list[Any], message: Message) -> Event:
    """Return the event of the result of `row_of`, with its message.

    Raises:
        ValueError, TypeError: The row has another form.
    """
    place, key, kind, data, tokens, nonce, said_by, after, created, updated, version, *rest = row
    window, pinned, edits, parts, owed = rest
    created_at = moment(created)
    return Event(
        Key(tenant, key),
        place,
        Draft(EventType(kind), message, data, tokens, nonce=nonce, said_by=tuple(said_by)),
        LogTotals.from_json(after),
        created_at,
        created_at if updated == created else moment(updated),
        version,
        None if window is None else Places.from_json(window),
        Places.from_json(pinned) if pinned else NOWHERE,
        edits,
        parts,
        tuple([PendingStep(*step) for step in owed]) if owed else (),
    )
