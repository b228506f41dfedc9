"""Entries: the memories of agents, as callers read and write them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from memory.domain import validation
from memory.domain.artifact import Artifact
from memory.domain.conflicts import ConflictReport
from memory.domain.corrections import explain_guesses, explain_subscripts
from memory.domain.errors import InvalidInput
from memory.domain.provenance import check_name, check_origins
from memory.domain.results import ShortRepr
from memory.domain.scope import Scope

EntryPart: TypeAlias = Literal["content", "metadata", "data"]
"""A part of an entry that results may leave out; see `include` of `Memory.search`."""
ENTRY_PARTS: tuple[EntryPart, ...] = ("content", "metadata", "data")


class EntryType(StrEnum):
    """The subject of an entry. The default is `context`."""

    USER = "user"
    FEEDBACK = "feedback"
    PROJECT = "project"
    REFERENCE = "reference"
    LEARNING = "learning"
    CONTEXT = "context"


class Contributor(BaseModel):
    """The origin of one source of a compacted entry."""

    model_config = ConfigDict(frozen=True)

    entry_id: str
    agent_id: Any = None
    source: Any = None
    confidence: Any = None


@explain_subscripts
@explain_guesses
class Entry(BaseModel):
    """One memory, as it was read. It is a copy: changing it changes no store.

    A call with `include=` leaves out parts (`left_out`). Reading such a part raises
    `AttributeError`, so it is not taken for an empty one.

    `source`, `agent` and `run` say where its content comes from. `origins` lists what
    else went into it: its sources, and earlier writers (see `Provenance`). The entry is
    valid from `valid_from` until just before `valid_to`, and hidden after `expires_at`.
    `lifetime` is the time from a read to the expiry, if it was written with
    `refresh_on_read`.
    `key` is the name that its writer gave it; it is unique within the scope. `version`
    is an opaque text that changes with every edit. `metadata` is that of the caller; a
    promotion adds `created_in_session_id`. `data` is JSON of the caller that belongs to
    the content; None if there is none. Searches find the entry only if `searchable`.
    """

    model_config = ConfigDict(extra="forbid", ser_json_timedelta="float")

    id: str
    key: str | None = None
    tenant: str
    scope: Scope
    type: EntryType = EntryType.CONTEXT
    title: str | None = None
    content: str
    source: str | None = None
    tags: list[str] = Field(default_factory=list)
    metadata: dict[str, Any] = Field(default_factory=dict)
    data: Any = None
    searchable: bool = True
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None = None
    lifetime: timedelta | None = None
    valid_from: datetime
    valid_to: datetime | None = None
    promoted_from_id: str | None = None
    compacted_from_ids: list[str] | None = None
    contributors: list[Contributor] | None = None
    artifact_id: str | None = None
    conversation_id: str | None = None
    number_in_conversation: int | None = None
    speaker: str | None = None
    agent: str | None = None
    run: str | None = None
    origins: list[str] | None = None
    version: str
    tier: str
    _conflict_report: ConflictReport | None = PrivateAttr(default=None)
    _artifact: Artifact | None = PrivateAttr(default=None)

    @classmethod
    def as_stored(cls, values: dict[str, Any]) -> Entry:
        """Return an entry with these values, without checks.

        `values` has one value for each field, and belongs to the entry from now on. The
        result equals that of `model_construct`. That function looks up an alias and a
        default for each field, which would take most of the time of a page. All entries
        share one set of fields, which no entry changes.
        """
        made = cls.__new__(cls)
        object.__setattr__(made, "__dict__", values)
        object.__setattr__(made, "__pydantic_fields_set__", _FIELDS)
        object.__setattr__(made, "__pydantic_extra__", None)
        object.__setattr__(made, "__pydantic_private__", {"_conflict_report": None, "_artifact": None})
        return made

    @property
    def confidence(self) -> float | None:
        """How sure the writer was, from 0 to 1: `metadata["confidence"]`.

        None if that is not a number.
        """
        return confidence_of(self.metadata)

    @property
    def conflict_report(self) -> ConflictReport | None:
        """The conflicts that `write(detect_conflicts=True)` found.

        None for an entry that another call returned. The report is not stored.
        """
        return self._conflict_report

    def with_conflict_report(self, report: ConflictReport) -> Entry:
        """Return a copy of the entry that carries this report."""
        copy = self.model_copy()
        copy._conflict_report = report
        return copy

    @property
    def artifact(self) -> Artifact | None:
        """The description of the artifact that the entry points to, if `get` read it.

        None if the entry points to no artifact, or to a deleted one. It is also None
        for entries in lists, which only have the `artifact_id`.
        """
        return self._artifact

    def with_artifact(self, artifact: Artifact) -> Entry:
        """Return a copy of the entry that carries its artifact."""
        told = self.model_copy()
        told._artifact = artifact
        return told

    @property
    def left_out(self) -> tuple[EntryPart, ...]:
        """The parts that this entry lacks because `include=` left them out."""
        return tuple(part for part in ENTRY_PARTS if part not in self.__dict__)

    def __repr_args__(self) -> Any:
        """Return the fields that distinguish the entry, for one line."""
        values = self.__dict__
        said = {
            "id": self.id,
            "key": self.key,
            "scope": self.scope.text,
            "type": self.type.value,
            "title": self.title,
            "content": values.get("content"),
            "data": values.get("data"),
            "tags": self.tags,
        }
        return [
            (name, ShortRepr(value))
            for name, value in {**said, "tier": self.tier, "version": self.version}.items()
            if value not in (None, [])
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return every field as JSON, the scope in its canonical form.

        Parts that `include=` left out are missing. The artifact is included if it was
        read.
        """
        said = {**self.model_dump(mode="json"), "scope": self.scope.text}
        # pydantic's own `self._artifact` takes a third of the time of this function
        artifact = (self.__pydantic_private__ or {}).get("_artifact")
        return said if artifact is None else said | {"artifact": artifact.to_dict()}

    def is_active(self, now: datetime) -> bool:
        """Return whether `now` lies in the entry's window of validity."""
        return self.valid_from <= now and (self.valid_to is None or now < self.valid_to)


_FIELDS = set(Entry.model_fields)


def leave_out(entry: Entry, parts: Collection[str]) -> Entry:
    """Remove parts from an entry that nobody else holds yet, and return it."""
    if parts:
        for part in parts:
            entry.__dict__.pop(part, None)
        object.__setattr__(entry, "__pydantic_fields_set__", _FIELDS.difference(parts))
    return entry


WHERE_SAID = ("conversation_id", "number_in_conversation", "speaker")
"""The conversation of an entry, its position there, and its speaker.

A promotion keeps them too.
"""
CARRIED = ("artifact_id", *WHERE_SAID)
"""The fields for an entry's artifact, conversation, position and speaker.

Edits, exports and imports keep them.
"""


def _name(value: object, info: ValidationInfo) -> str | None:
    return None if value is None else validation.identifier(str(info.field_name), value)


def check_key(value: object, field: str = "key") -> str:
    """Validate the key of an entry: 1 to 512 bytes of any text but NUL."""
    checked = validation.text(field, value)
    if len(checked.encode()) > validation.MAX_ID_BYTES:
        raise InvalidInput(
            field,
            f"exceeds {validation.MAX_ID_BYTES} bytes. Pass a hash of it instead, such as"
            " hashlib.sha256(text.encode()).hexdigest()",
        )
    return validation.identifier(field, checked)


def _key(value: object) -> str | None:
    return None if value is None else check_key(value)


def _whole(value: object, info: ValidationInfo) -> int | None:
    if value is not None and (
        isinstance(value, bool)
        or not isinstance(value, int)
        or not -validation.INT64 <= value < validation.INT64
    ):
        raise InvalidInput(str(info.field_name), "must be a whole number of 64 bits")
    return value


def _moment(value: object, info: ValidationInfo) -> datetime | None:
    return None if value is None else validation.time(str(info.field_name), value)


def _tags(value: object) -> list[str]:
    return validation.tags([] if value is None else value)


def _metadata(value: object) -> dict[str, Any]:
    return validation.json_object("metadata", {} if value is None else value)


def _origins(value: object) -> tuple[str, ...]:
    return tuple(check_origins(() if value is None else value))


def _confidence(value: object) -> float | None:
    return None if value is None else check_confidence(value)


Name = Annotated[str | None, BeforeValidator(_name)]
MaybeMoment = Annotated[datetime | None, BeforeValidator(_moment)]
EntryKey = Annotated[str | None, BeforeValidator(_key)]
Whole = Annotated[int | None, BeforeValidator(_whole)]


class EntryDraft(validation.ValidatedModel):
    """An entry as the caller passes it. Everything is checked here, once.

    Raises:
        InvalidInput: a field is wrong. The error names it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    scope: Scope
    content: Annotated[str, BeforeValidator(check_content)] = ""
    type: Annotated[EntryType, BeforeValidator(check_type)] = EntryType.CONTEXT
    title: Annotated[str | None, BeforeValidator(check_title)] = None
    source: Annotated[str | None, BeforeValidator(check_source)] = None
    tags: Annotated[list[str], BeforeValidator(_tags)] = Field(default_factory=list)
    metadata: Annotated[dict[str, Any], BeforeValidator(_metadata)] = Field(default_factory=dict)
    data: Annotated[Any, BeforeValidator(check_data)] = None
    vector: Annotated[bytes | None, BeforeValidator(check_vector)] = Field(
        default=None, exclude=True, repr=False
    )
    """The caller's own vector, as packed float32 of length 1."""
    searchable: Annotated[bool, BeforeValidator(check_searchable)] = True
    confidence: Annotated[float | None, BeforeValidator(_confidence)] = Field(default=None, exclude=True)
    """Stored as `metadata["confidence"]`."""
    created_at: MaybeMoment = None
    expires_at: Annotated[datetime | timedelta | None, BeforeValidator(check_expiry)] = None
    lifetime: Annotated[timedelta | None, BeforeValidator(check_lifetime)] = None
    """How long each read keeps the entry. `refresh_on_read=True` sets it to the
    duration of `expires_at`.
    """
    conversation_id: Name = None
    number_in_conversation: Whole = None
    speaker: Name = None
    artifact_id: Name = None
    agent: Name = None
    run: Name = None
    origins: Annotated[tuple[str, ...], BeforeValidator(_origins)] = ()
    key: EntryKey = None

    @property
    def address(self) -> str | None:
        """The key by which callers find the entry; None if it has none."""
        return self.key

    @property
    def identity(self) -> str | None:
        """The text from which the entry's id derives; None for a new id."""
        return self.address or self.key

    @property
    def is_pinned_alone(self) -> bool:
        """Whether it names a session, but neither a position in it nor a speaker.

        With one of these, the conversation may have been held elsewhere.
        """
        return (
            self.conversation_id is not None and self.number_in_conversation is None and self.speaker is None
        )

    @model_validator(mode="before")
    @classmethod
    def _lifetime_as_given(cls, values: Any) -> Any:
        return with_lifetime(values) if isinstance(values, dict) else values

    @model_validator(mode="after")
    def _expires_if_reads_keep_it(self) -> EntryDraft:
        if self.lifetime is not None and self.expires_at is None:
            raise InvalidInput("lifetime", "needs expires_at, which each read moves. Pass both, or neither")
        return self

    @model_validator(mode="after")
    def _confidence_in_metadata(self) -> EntryDraft:
        if self.confidence is not None:
            _put_confidence(self.metadata, self.confidence)
        return self

    @model_validator(mode="after")
    def _counts_in_a_conversation(self) -> EntryDraft:
        if self.number_in_conversation is not None and self.conversation_id is None:
            raise InvalidInput(
                "number_in_conversation", "is a position in a conversation. Pass conversation_id= too"
            )
        return self

    @model_validator(mode="after")
    def _says_something(self) -> EntryDraft:
        if not self.has_substance:
            raise InvalidInput("content", "is empty. An entry needs a content, a title or data")
        return self

    @model_validator(mode="after")
    def _can_be_found_by_its_vector(self) -> EntryDraft:
        refuse_hidden_vector(vars(self))
        return self

    @property
    def has_substance(self) -> bool:
        """Whether it has a text or data, which a new entry needs."""
        return bool((self.title or "").strip() or self.content.strip() or self.data is not None)


class PartialDraft(EntryDraft):
    """The fields that `write(if_exists="update")` changes; it may have no text."""

    @model_validator(mode="after")
    def _says_something(self) -> PartialDraft:
        return self

    @property
    def given_fields(self) -> set[str]:
        """The fields that the caller gave, in addition to the scope and the key."""
        named = self.model_fields_set - {"scope", "key"}
        if not self.content:
            named.discard("content")
        return named - {"confidence"} | ({"metadata"} if "confidence" in named else set())


class MessageDraft(EntryDraft):
    """A message of a file, as an entry.

    Values in the file are also kept in the metadata. Other values follow from the
    message's position in the file, and may differ in another file. Its key only makes
    the import repeatable, so the entry has none.
    """

    @property
    def address(self) -> str | None:
        return None


class ImportedDraft(EntryDraft):
    """An entry of an export, with its window of validity and its provenance.

    Its references are already ids of the new store if their targets were exported too.
    """

    valid_from: MaybeMoment = None
    valid_to: MaybeMoment = None
    promoted_from_id: Name = None
    compacted_from_ids: tuple[str, ...] | None = None
    contributors: tuple[Contributor, ...] | None = None
    artifact_was: Name = Field(default=None, exclude=True)
    """The artifact of the entry in the exporting store.

    A repeated import is recognised by it, even if the artifact here has changed.
    """
    named: EntryKey = Field(default=None, exclude=True)
    """The key of the entry in the exporting store. Its `key` here is the id there."""
    written_as: Name = Field(default=None, exclude=True)
    """The digest of the write that made the entry in the exporting store."""
    sources: tuple[Any, ...] = Field(default=(), exclude=True)
    """All sources of the entry: the engine's derivation record.

    So an erasure of a source also reaches the entry here.
    """

    @property
    def address(self) -> str | None:
        return self.named

    @field_validator("compacted_from_ids", mode="before")
    @classmethod
    def _compacted_from(cls, value: object) -> tuple[str, ...] | None:
        ids = None if value is None else validation.sequence("compacted_from_ids", value)
        return None if ids is None else tuple(validation.identifier("compacted_from_ids", one) for one in ids)

    @model_validator(mode="after")
    def _says_something(self) -> ImportedDraft:
        # an update may have emptied the content, and every stored entry can be imported
        return self


Draft = TypeVar("Draft", bound=EntryDraft)


def with_changes(draft: Draft, changes: Mapping[str, Any]) -> Draft:
    """Return the draft with these values, checked.

    A vector of the caller is dropped with the text that it belongs to, and a lifetime
    with the expiry.
    """
    others = {} if not changes.keys() & {"title", "content"} else {"vector": None}
    others |= {"lifetime": None} if "expires_at" in changes else {}
    return type(draft)(**{**dict(draft), **others, **changes})


def confidence_of(metadata: Mapping[str, Any]) -> float | None:
    """Return the confidence in metadata; None if there is none."""
    value = metadata.get("confidence")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def check_confidence(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidInput("confidence", f"must be a number from 0 to 1, not {repr(value)[:40]}")
    return float(value)


def _put_confidence(metadata: dict[str, Any], confidence: float) -> None:
    if metadata.setdefault("confidence", confidence) != confidence:
        said = str(metadata["confidence"])[:40]
        raise InvalidInput(
            "confidence",
            f"is {confidence:g} as an argument and {said} in the metadata. Pass only one of them",
        )


def check_content(value: object) -> str:
    if isinstance(value, list | tuple | Mapping):
        raise InvalidInput(
            "content",
            f"must be text, not {type(value).__name__}. Pass messages to memory.session('s1').append(…), "
            "several texts to memory.write_many(…), and other values as data=",
        )
    return validation.text(
        "content",
        value,
        max_bytes=validation.MAX_CONTENT_BYTES,
        advice="Split it into several entries, or store it with memory.documents.put(…)",
    )


def check_type(value: object) -> EntryType:
    return validation.one_of("type", value, EntryType)


def check_title(value: object) -> str | None:
    return (
        None
        if value is None
        else validation.text("title", value, max_chars=validation.MAX_TITLE_CHARS, min_chars=1)
    )


def check_source(value: object) -> str | None:
    return None if value is None else validation.text("source", value, max_chars=validation.MAX_SOURCE_CHARS)


def check_data(value: object) -> Any:
    """Check and copy the data of an entry: an object or a list as JSON, or None."""
    if value is None:
        return None
    if not isinstance(value, list | tuple) and not validation.is_object(value):
        raise InvalidInput(
            "data",
            "must be a dict, a list, a dataclass or a pydantic model, not"
            f" {type(value).__name__}. Pass text as content=, and bytes to memory.documents.put(…)",
        )
    return validation.json_value(
        "data",
        value,
        max_bytes=validation.MAX_DATA_BYTES,
        advice="Store larger values with memory.documents.put(…)",
    )


def check_vector(value: object) -> bytes | None:
    """Check and pack the caller's own vector; None for that of the text."""
    return None if value is None else validation.vector("vector", value)


def check_searchable(value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput("searchable", f"must be True or False, not {type(value).__name__}")
    return value


def refuse_hidden_vector(given: Mapping[str, Any]) -> None:
    """Raise `InvalidInput` if a vector is given for an entry that no search finds."""
    if given.get("vector") is not None and not given.get("searchable", True):
        raise InvalidInput("vector", "is not used with searchable=False. Leave one of the two out")


def check_expiry(value: object) -> datetime | timedelta | None:
    """Check an expiry: a moment, or a duration from the write on."""
    return (
        None
        if value is None
        else validation.length(value)
        if isinstance(value, timedelta)
        else validation.time("expires_at", value)
    )


def check_lifetime(value: object) -> timedelta | None:
    """Check how long each read keeps an entry; None if reads do not keep it."""
    try:
        given = _DURATION.validate_python(value)
    except ValidationError:
        raise InvalidInput("lifetime", f"must be a timedelta, not {type(value).__name__}") from None
    return None if given is None else validation.length(given, "lifetime")


_DURATION: TypeAdapter[timedelta | None] = TypeAdapter(timedelta | None)


def with_lifetime(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of an entry with its `lifetime` in place of `refresh_on_read`.

    Reads do not keep an entry that gets an expiry without `refresh_on_read`.
    """
    fields = dict(given)
    if "refresh_on_read" in fields:
        refreshes, expires_at = fields.pop("refresh_on_read"), fields.get("expires_at")
        if not isinstance(refreshes, bool):
            raise InvalidInput("refresh_on_read", f"must be True or False, not {type(refreshes).__name__}")
        if refreshes and not isinstance(expires_at, timedelta):
            raise InvalidInput(
                "refresh_on_read",
                "needs a length of time that reads restart. Pass expires_at=timedelta(hours=1) too",
            )
        fields["lifetime"] = expires_at if refreshes else None
    elif "expires_at" in fields:
        fields.setdefault("lifetime", None)
    return fields


def expiry(given: datetime | timedelta | None, now: datetime) -> datetime | None:
    """Return the moment of a checked expiry for a write made now."""
    return now + given if isinstance(given, timedelta) else given


PATCHABLE: dict[str, Callable[[Any], Any]] = {
    "content": check_content,
    "type": check_type,
    "title": check_title,
    "source": check_source,
    "agent": lambda value: check_name("agent", value),
    "run": lambda value: check_name("run", value),
    "artifact_id": lambda value: check_name("artifact_id", value),
    "origins": check_origins,
    "tags": validation.tags,
    "metadata": lambda value: validation.json_object("metadata", value),
    "data": check_data,
    "vector": check_vector,
    "searchable": check_searchable,
    "confidence": check_confidence,
    "expires_at": check_expiry,
    "lifetime": check_lifetime,
}
"""The fields that `update` may change, with their checks.

All other fields are immutable.
"""


def check_patch(changes: dict[str, Any]) -> dict[str, Any]:
    """Validate the changes of an update. Empty content is allowed."""
    changes = with_lifetime(changes)
    for name in changes:
        if name not in PATCHABLE:
            taken = ["refresh_on_read" if one == "lifetime" else one for one in PATCHABLE]
            raise InvalidInput(name, f"cannot be changed; update takes {', '.join(taken)}")
    checked = {name: PATCHABLE[name](value) for name, value in changes.items()}
    refuse_hidden_vector(checked)
    if "confidence" in checked:
        _put_confidence(checked.setdefault("metadata", {}), checked.pop("confidence"))
    return checked
