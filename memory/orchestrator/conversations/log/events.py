"""What stands at one place of a conversation's log, and its record."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from hashlib import blake2b
from typing import Any

from memory.domain import ids
from memory.domain.message import Message, Role
from memory.orchestrator.conversations.blobs import large_texts as large
from memory.orchestrator.conversations.blobs.large_texts import Artifacts, truncate_large_texts, uploads_of
from memory.orchestrator.storage.collections import SAID_BY
from memory.orchestrator.storage.entry_records import copy_json
from memory.orchestrator.storage.places import NOWHERE, Places
from memory.policies.passage_splitting import parts_of
from memory.policies.text_features import marks_of
from memory.ports.record import FieldValue, JsonValue, Key, PendingStep, Record

FIRST_PLACE = 2
"""Of an event. Place 1 is the system message's, which stands in the session's own
record.
"""
ERASED, BEHIND_ERASED = "erased:", "erased;"
"""How the hash begins that stands for the id of an erased message, and what comes
behind all of these.
"""
INDEXED_CHARACTERS = large.BEGINNING
"""How much of a message it is found by."""


class EventType(StrEnum):
    MESSAGE = "message"
    COMPACTION = "compaction"  # the event is the summary's message, and what B38 records
    EXCLUDE = "exclude"
    RESTORE = "restore"
    CLEAR = "clear"
    ROLL_BACK = "roll_back"
    REPLACE = "replace"
    EDITED = "edited"  # a message says something else since: who remembers what it said reads it again
    CHECKPOINT = "checkpoint"
    CLOSED = "closed"
    RESUMED = "resumed"
    ERASED = "erased"


LEAVES = "leaves"
"""In an event's data: the places of the messages that leave the window by it."""
SPOKEN = frozenset({EventType.MESSAGE, EventType.COMPACTION})
"""Events that are messages."""
OF_ONE = frozenset({EventType.EXCLUDE, EventType.RESTORE, EventType.ERASED})
"""Events that change of one message, told by its place, whether it is in the window."""
LEAVING = OF_ONE | {EventType.CLEAR, EventType.ROLL_BACK, EventType.REPLACE, EventType.COMPACTION}
"""Events that change which messages are in the window."""
ARTIFACTS_SAID = "artifacts"
"""In the body of a record: the large texts of its message, of which it has the
beginnings.
"""
REDACTED = "redacted"
"""Of an event's data: true where the message was erased."""
ENTERS = "enters"
"""In the data of `edited`: true where the message, in the window only so far, enters
the history under this event's number.
"""
ERASED_ID = "erased_id"
"""Of an erased message's data: a hash of the id that it was given, so that no import
brings it back. See `erased_id`.
"""
NUMBER = "number"
"""In a message's data: its number, where it entered the history after it was stored."""


@dataclass(frozen=True, slots=True)
class LogTotals:
    """What is true after an event. Its writer had to know the event before, so this is
    exact.

    `number` counts the messages of the history, the system message among them (B25);
    `version` the changes of the window; `base` is the newest place whose event carries
    the whole window; `tokens` what all messages took when they were said; messages up to
    `exited_until` do not leave again: a session end handled them (see `window_exits.py`).
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

    def to_json(self) -> list[JsonValue]:
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
        ]

    @classmethod
    def from_json(cls, said: list[Any]) -> LogTotals:
        return cls(*said)


@dataclass(frozen=True, slots=True)
class Draft:
    """An event that has no place yet."""

    type: EventType
    message: Message | None = None
    data: Mapping[str, JsonValue] = field(default_factory=dict)
    tokens: int | None = None
    owed: tuple[PendingStep, ...] = ()
    nonce: str = ""
    """Tells a writer its own event from another's at the same place, when the answer to
    its put was lost.
    """
    artifacts: Artifacts = ()
    """The large texts of the message, as they are stored beside it."""
    is_whole: bool = True
    """Whether the message has its large texts; else, as its record does, their
    beginnings. See `Log.whole`.
    """
    belongs_to_erasure: bool = False
    """Whether an erasure needs it, so that a full store has to take it too. It is not
    stored.
    """
    said_by: tuple[str, ...] = ()
    """The users whose handles wrote the message, who first did first; of a summary,
    those of the messages that it stands for. None are named where that is the session's
    user alone, or nobody is known.
    """

    @property
    def is_in_history(self) -> bool:
        """Whether it counts as a message of the history, or is in the window only
        (B24).
        """
        return self.type in SPOKEN and bool(self.data.get("in_history", True))

    @property
    def counts(self) -> bool:
        """Whether the history has one message more by it."""
        return bool(self.data.get(ENTERS)) or (self.is_in_history and NUMBER not in self.data)


@dataclass(frozen=True, slots=True)
class Event:
    """An event at its place. `window`, where it carries it, is the whole window after
    it, and `pinned` what of it is kept whatever the budget.

    Its message is under the id that it was given, or that of its record. It is shared:
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
    """Into how many it was cut for finding it by meaning, at most, before it was
    changed.
    """
    owed: tuple[PendingStep, ...] = ()

    @property
    def type(self) -> EventType:
        return self.draft.type

    @property
    def message(self) -> Message | None:
        """The message as callers get it, a copy."""
        if not self.draft.is_whole:
            raise RuntimeError("the large texts of this message were not read")
        return None if self.draft.message is None else copy_of(self.draft.message)

    @property
    def given_id(self) -> str | None:
        """The id that its message was given; None where it has that of its record."""
        said = self.draft.message
        return None if said is None or said.id == self.key.id else said.id

    def as_given(self) -> Draft:
        """What it was made of, without a nonce."""
        said = self.draft.message
        return replace(
            self.draft,
            nonce="",
            artifacts=(),
            message=None if said is None else said.model_copy(update={"id": self.given_id}),
        )

    @property
    def number(self) -> int | None:
        """Its number in the history, from 1; None for what is not in it."""
        given: Any = self.draft.data.get(NUMBER, self.after.number)
        return given if self.draft.is_in_history else None

    def writers(self, owner: str | None) -> tuple[str, ...]:
        """The users who wrote the message, in a session of this owner; none where
        nobody is known.
        """
        return self.draft.said_by or (() if owner is None else (owner,))

    @property
    def is_redacted(self) -> bool:
        """Whether the message was erased: its place, its number and its role are left,
        under the id of its record.
        """
        return bool(self.draft.data.get(REDACTED))

    def as_redacted(
        self, owed: tuple[PendingStep, ...], session_id: str, *, version: int, now: datetime
    ) -> Event:
        """The event without what was said and who said it. It owes this, what is to be
        done about what was made of it among it.
        """
        assert self.draft.message is not None  # noqa: S101 - only messages are erased
        told = {"in_history", NUMBER, "left", LEAVES, "before", "after", "reason"}
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
        """The event with another message; its place, its number and all that comes
        after stay (B23, B26).
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

    def with_number(self, number: int, *, version: int, now: datetime) -> Event:
        """The event in the history, under this number; it was in the window only."""
        data = {name: value for name, value in self.draft.data.items() if name != "in_history"}
        return replace(
            self, draft=replace(self.draft, data={**data, NUMBER: number}), version=version, updated_at=now
        )

    def with_texts(self, message: Message) -> Event:
        """The event with the message that has its large texts."""
        return replace(self, draft=replace(self.draft, message=message, is_whole=True))

    def with_pending_steps(self, more: Iterable[PendingStep]) -> Event:
        """The event, owing this too."""
        return replace(self, owed=tuple({owed.id: owed for owed in (*self.owed, *more)}.values()))


def copy_of(message: Message) -> Message:
    """A copy that shares nothing that can be changed."""
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
    """About how many characters it takes."""
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
    """The text that it is found by: how it begins; of a tool's result none."""
    return "" if message.role is Role.TOOL else message.text[:INDEXED_CHARACTERS]


def erased_id(session_id: str, message_id: str) -> str:
    """What stands in place of the id of a message that was erased."""
    return ERASED + blake2b(f"{session_id}\x00{message_id}".encode(), digest_size=16).hexdigest()


def _nothing(message: Message, message_id: str) -> Message:
    return Message(id=message_id, role=message.role, is_summary=message.is_summary)


def place_key(tenant: str, incarnation: str, place: int) -> Key:
    """The key of a place. A session that was created again has another incarnation, and
    shares no key with its former life.
    """
    return Key(tenant, ids.beside(incarnation, "place", str(place)))


def record_of(event: Event, *, of_session: Mapping[str, FieldValue], scope: str, generation: int) -> Record:
    """The event's record; `of_session` are the fields by which it names its session and
    whose that is.
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
    """The large texts of the message of a record."""
    return large.from_json(record.body.get(ARTIFACTS_SAID) or ())


def with_artifacts(record: Record, artifacts: Artifacts) -> Record:
    """The record with its large texts stored elsewhere."""
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
