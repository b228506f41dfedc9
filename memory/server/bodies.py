"""The bodies of requests: unknown fields are refused, and the right one named."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from memory.domain.corrections import meant_name
from memory.domain.entry import ENTRY_PARTS, EntryType
from memory.domain.model_errors import UNKNOWN_FIELD
from memory.domain.relation_labels import LABELS

_TENANTS = ("tenant", "tenant_id")
_GUESSES = {
    "from": "source_id", "from_id": "source_id", "source": "source_id",
    "to": "target_id", "to_id": "target_id", "target": "target_id",
    "label": "relation", "relation_type": "relation", "type": "relation",
    "conversation": "conversation_id", "conversation_id": "session_id", "id": "session_id",
    "at": "when", "valid_to": "when", "end": "when",
    "tags": "tag", "supersedes": "supersedes_ids", "valid_from": "created_at",
    "age_decay": "decay", "half_life": "decay_half_life_days",
    "role": "messages", "content": "messages", "scope": "to",
    "before": "before_updated_at", "updated_before": "before_updated_at",
}  # fmt: skip
"""Names that clients guess here, beside those of `memory.domain.guesses`."""


class RequestBody(BaseModel):
    """A JSON body. Its fields are named as the arguments of the library.

    `sent_fields` has the fields that the client sent. The library checks the
    values and says what is wrong with them; the limits here only describe them.
    """

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, values: Any) -> Any:
        for name in values if isinstance(values, dict) else ():
            if name not in cls.model_fields:
                found = unknown_name("field", name, cls.model_fields)
                raise PydanticCustomError(UNKNOWN_FIELD, "{message}", found)
        return values

    def sent_fields(self, *, without: Collection[str] = ()) -> dict[str, Any]:
        """Return the fields that the client sent."""
        return {name: getattr(self, name) for name in self.model_fields_set if name not in without}


def unknown_name(kind: str, name: str, known: Collection[str]) -> dict[str, Any]:
    """Return the field and the message of a field or parameter that does not exist."""
    shown, names = name[:80], ", ".join(sorted(known)) or "none"
    if shown in _TENANTS:
        hint = ". The key of the request has its tenant; leave this out"
    else:
        told = _GUESSES.get(shown)
        right = told if told in known else meant_name(shown, known)
        hint = f"; did you mean '{right}'?" if right else ""
    return {"field": shown, "message": f"there is no such {kind}{hint} (known: {names})"}


def field_of(**schema: Any) -> Any:
    """Return a field with limits that clients read, and that the library checks."""
    return Field(json_schema_extra=schema)


When: TypeAlias = Annotated[
    str | int | float,
    Field(
        description="A moment: ISO 8601 text with a zone, or seconds since 1970.",
        examples=["2026-01-31T09:30:00Z", 1_769_851_800],
    ),
]
ExpiresIn: TypeAlias = Annotated[
    float | str | None, Field(description="Seconds, or text such as 2h, in place of expires_at.")
]
Tags: TypeAlias = Annotated[list[Annotated[str, field_of(minLength=1, maxLength=64)]], field_of(maxItems=32)]
Title: TypeAlias = Annotated[str, field_of(minLength=1, maxLength=200)]
Content: TypeAlias = Annotated[str, field_of(maxLength=65_536)]
EntryKind: TypeAlias = Annotated[str, field_of(enum=[str(one) for one in EntryType])]
RelationKind: TypeAlias = Annotated[str, field_of(enum=list(LABELS))]
IfExists: TypeAlias = Annotated[str, field_of(enum=["error", "update", "replace", "keep"])]
Share: TypeAlias = Annotated[float, field_of(minimum=0, maximum=1)]
PartName: TypeAlias = Annotated[str, field_of(enum=list(ENTRY_PARTS))]
PARTS_TEXT = "The parts that entries have: content, metadata, data. By default, all."
Reference: TypeAlias = str | int
"""A UUID, or the number for people: 42, "42" or "#42"."""


class EntryFields(RequestBody):
    """The fields of an entry that a write may set."""

    type: EntryKind = "context"
    title: Title | None = None
    source: Annotated[str, field_of(maxLength=200)] | None = None
    tags: Tags | None = None
    metadata: dict[str, Any] | None = None
    data: dict[str, Any] | list[Any] | None = None
    vector: list[float] | None = Field(default=None, description="Your own embedding.")
    searchable: bool = True
    confidence: Share | None = None
    expires_at: When | None = None
    expires_in: ExpiresIn = None
    refresh_on_read: bool = Field(default=False, description="Each read restarts the time of expires_in.")
    artifact_id: Reference | None = Field(default=None, description="A file; 0 or null for none.")
    agent: str | None = None
    run: str | None = None
    origins: list[str] | None = None


class NewEntry(EntryFields):
    """A new entry."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"scope": "user:ada", "type": "user", "title": "Tea", "content": "Ada prefers tea."}]
        }
    )

    content: Content = ""
    scope: str | None = Field(
        default=None, description="Whom it belongs to, as user:ada. By default, the key's scope."
    )
    created_at: When | None = None
    conversation_id: str | int | None = Field(default=None, description="A session; 0 or null for none.")
    number_in_conversation: int | None = None
    speaker: str | None = None
    key: str | None = Field(default=None, description="Names the entry within its scope.")
    if_exists: IfExists = "error"
    revive: bool = False
    supersedes_ids: Annotated[list[Reference], field_of(maxItems=32)] | None = None
    detect_conflicts: bool = False
    auto_tag: bool | None = None
    auto_supersede: bool | None = None


class EntryChanges(EntryFields):
    """Changes of an entry. Fields that are left out stay."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"title": "Tea, green"}]})

    content: Content = ""


class EntryBatch(RequestBody):
    """Several new entries, stored in order."""

    entries: Annotated[list[NewEntry], field_of(maxItems=1000)]


class Ending(RequestBody):
    """When the validity of an entry ends; now by default."""

    when: When | None = None


class NewRelation(RequestBody):
    """A link from an entry to another."""

    source_id: Reference
    target_id: Reference
    relation: RelationKind


class Note(RequestBody):
    """A text to append to a scratchpad."""

    text: Annotated[str, field_of(minLength=1)]


class EntryDeletion(RequestBody):
    """Which entries to delete."""

    filter: dict[str, Any] = Field(examples=[{"metadata.kind": "draft"}])
    scope: str | None = None
    include_retired: bool = False


class SearchQuestion(RequestBody):
    """A search of entries, with filters, boosts and vectors as in the library."""

    query: str
    scope: str | list[str] | None = None
    limit: Annotated[int, field_of(minimum=1, maximum=1000)] | None = None
    mode: Annotated[str, field_of(enum=["hybrid", "lexical", "semantic"])] = "hybrid"
    filter: dict[str, Any] | None = None
    boost: dict[str, Any] | None = None
    min_relevance: Share | None = None
    as_of: When | None = None
    known_at: When | None = None
    intent: bool = True
    age_decay: bool = False
    half_life: float | None = Field(default=None, description="In days.")
    decay_floor: Share | None = None
    vector: list[float] | None = None
    include: list[PartName] | None = Field(default=None, description=PARTS_TEXT)
    explain: bool = False
    expand: str | None = Field(default=None, description="The name of a configured model.")
    rerank: str | None = Field(default=None, description="The name of a configured model.")
