"""Results of the library as JSON: the models of the API, and how they are made.

The models describe the API. Routes render results as the library's own `to_dict` does,
and tests compare both.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_json
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from memory.domain.enrichment import WriteReport
from memory.domain.entry import ENTRY_PARTS, Entry
from memory.domain.relation_labels import Label
from memory.domain.results import as_json

Moment = str
"""A moment as ISO 8601 text in UTC."""


class ArtifactView(BaseModel):
    """A file of a session, without its bytes."""

    id: str
    session_id: str
    path: str
    media_type: str
    size: int
    sha256: str
    created_at: Moment
    updated_at: Moment
    written_by: str | None = Field(description="The caller that stored it, such as key:3kTMd9Xq.")


class ArtifactList(BaseModel):
    """A page of the files of a session, oldest first."""

    artifacts: list[ArtifactView]
    cursor: str | None


class Contribution(BaseModel):
    """The origin of one source of a compacted entry."""

    entry_id: str
    agent_id: Any = None
    source: Any = None
    confidence: Any = None


def _without_parts(schema: dict[str, Any]) -> None:
    """Say that a result may lack the parts of an entry."""
    schema["required"] = [name for name in schema["required"] if name not in ENTRY_PARTS]


class EntryView(BaseModel):
    """One entry. Its `version` is also its ETag.

    With `include`, it lacks those of `content`, `metadata` and `data` that are not
    named.
    """

    model_config = ConfigDict(json_schema_extra=_without_parts)

    id: str
    key: str | None
    tenant: str
    scope: str = Field(examples=["user:ada"])
    type: Literal["user", "feedback", "project", "reference", "learning", "context"]
    title: str | None
    content: str
    source: str | None
    tags: list[str]
    metadata: dict[str, Any]
    data: Any
    searchable: bool
    created_at: Moment
    updated_at: Moment
    expires_at: Moment | None
    lifetime: float | None = Field(description="Seconds from a read to the expiry.")
    valid_from: Moment
    valid_to: Moment | None
    promoted_from_id: str | None
    compacted_from_ids: list[str] | None
    contributors: list[Contribution] | None
    artifact_id: str | None
    conversation_id: str | None
    number_in_conversation: int | None
    speaker: str | None
    agent: str | None
    run: str | None
    origins: list[str] | None
    version: str
    tier: str
    artifact: ArtifactView | None = Field(default=None, description="The file, of a single entry.")
    short_id: int | None = Field(default=None, description="The number for people, if asked for.")


class Hit(EntryView):
    """An entry of a list; found by a search, it also has a score and a relevance."""

    score: float | None = Field(default=None, description="The sort key of this search alone.")
    relevance: float | None = Field(default=None, description="How well it answers, from 0 to 1.")
    explanation: dict[str, Any] | None = None


class ExpansionBlock(BaseModel):
    """Other wordings that were searched too."""

    model: str | None
    applied: bool
    queries: list[str]
    note: str | None


class RerankBlock(BaseModel):
    """The order that an advisor gave."""

    model: str | None
    applied: bool
    note: str | None
    fine_model: str | None
    fine_applied: bool
    stages: int


class EntryList(BaseModel):
    """Entries in order, and what is missing (`degraded`)."""

    entries: list[Hit]
    cursor: str | None = Field(description="Asks for the next page; null at the end.")
    degraded: list[str]
    expansion: ExpansionBlock | None = None
    rerank: RerankBlock | None = None
    withheld: int | None = None
    left_out: dict[str, Any] | None = None


class VersionList(BaseModel):
    """The versions of an entry, oldest first."""

    versions: list[EntryView]


class ManualBlock(BaseModel):
    """Entries that `supersedes_ids` named."""

    requested: list[str]
    invalidated: list[str]


class SupersedeBlock(BaseModel):
    """Entries that an advisor compared with the new one."""

    model: str | None
    applied: bool
    candidates: list[str]
    invalidated: list[str]
    note: str | None


class TagBlock(BaseModel):
    """Tags of an advisor."""

    model: str | None
    applied: bool
    added: list[str]
    note: str | None


class WrittenEntry(EntryView):
    """An entry as stored, and what else the write did."""

    supersedes_manual: ManualBlock | None = None
    supersede: SupersedeBlock | None = None
    auto_tag: TagBlock | None = None
    conflict_report: dict[str, Any] | None = None


class EnrichmentView(BaseModel):
    """The enrichment of an entry, null where it was not asked for."""

    auto_tag: TagBlock | None
    supersede: SupersedeBlock | None
    costs: list[dict[str, Any]]
    pending: bool


class Deleted(BaseModel):
    """A deleted record. `kept` names entries that were made of it and stay."""

    deleted: Literal[True]
    id: str
    kept: list[str] = []


class DeletedMany(BaseModel):
    """How many entries were deleted."""

    deleted: int
    held: list[str]
    kept: list[str]
    is_complete: bool


class Invalidated(BaseModel):
    """The entry whose validity was ended."""

    invalidated: Literal[True]
    id: str


class RelationView(BaseModel):
    """A link from its source to its target."""

    id: str
    source_id: str
    target_id: str
    relation: Label
    created_at: Moment
    made_by: str | None
    note: str | None
    written_by: str | None


class RelationList(BaseModel):
    """A page of relations, newest first."""

    relations: list[RelationView]
    cursor: str | None = Field(description="Asks for the next page; null at the end.")


class GraphView(BaseModel):
    """Entries, and all relations between them."""

    entries: list[EntryView]
    relations: list[RelationView]
    retired: list[str] = Field(description="Ids of entries that a shown one superseded.")
    notices: list[str]


class NodeView(BaseModel):
    """An entry near another one."""

    entry: EntryView
    depth: int


class ExpansionView(BaseModel):
    """The entries around an entry, nearest first."""

    nodes: list[NodeView]
    relations: list[RelationView]
    notices: list[str]
    retired: list[str]


class DensityView(BaseModel):
    """How closely an entry is linked."""

    outgoing: int
    incoming: int
    relations: list[str]
    one_step: int
    two_steps: int
    verdict: Literal["isolated", "sparse", "dense"]
    notices: list[str]


class ScratchpadView(BaseModel):
    """The text of a scratchpad; empty if it was never written."""

    agent: str | None
    exists: bool
    content: str
    size: int
    updated_at: Moment | None
    damaged: int = Field(description="How many appends cannot be read.")
    written_by: list[str] = Field(description="The callers that appended to it.")


class ScratchpadSize(BaseModel):
    """The size of a scratchpad in bytes after an append."""

    size: int


class Cleared(BaseModel):
    """Whether there was a text to clear."""

    cleared: bool


def json_response(content: Any, status: int = 200, *, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response of values that are JSON, or fields of an entry."""
    text = to_json(content, inf_nan_mode="null", timedelta_mode="float")  # faster than `json.dumps`
    return Response(text, status, headers=headers, media_type="application/json")


def entry_json(entry: Entry, short_ids: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Return an entry as the API shows it, for `json_response`.

    It becomes the same text as `entry.to_dict()`, in half the time.
    """
    shown = {**entry.__dict__, "scope": entry.scope.text}
    if entry.artifact_id is not None and (artifact := entry.artifact) is not None:
        shown["artifact"] = artifact.to_dict()
    if short_ids is not None:
        shown["short_id"] = short_ids.get(entry.id)
    return shown


def hit_json(hit: Any, *, explain: bool) -> dict[str, Any]:
    """Return a search hit: the entry, and how well it answers."""
    shown = {**entry_json(hit.entry), "score": hit.score, "relevance": hit.relevance}
    return {**shown, "explanation": as_json(hit.explanation)} if explain else shown


def report_json(report: WriteReport) -> dict[str, Any]:
    """Return a written entry with the blocks of what else the write did."""
    blocks = {
        "supersedes_manual": report.supersedes_manual,
        "supersede": report.supersede,
        "auto_tag": report.auto_tag,
        "conflict_report": report.entry.conflict_report,
    }
    return report.entry.to_dict() | {name: as_json(one) for name, one in blocks.items() if one is not None}


def relation_json(relation: Any) -> dict[str, Any]:
    """Return a relation; its label is called `relation`."""
    shown: dict[str, Any] = as_json(relation)
    shown["relation"] = shown.pop("label")
    return shown


class ClosingResponse(StreamingResponse):
    """A stream that closes its source at once, even if the client goes away.

    Other requests run between its pieces.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not scope.get("is_head"):
            await super().__call__(scope, receive, send)
            return
        await cast("AsyncGenerator[bytes, None]", self.body_iterator).aclose()  # nothing is read
        head = Response(status_code=self.status_code)
        head.raw_headers = self.raw_headers
        await head(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        async def send_in_turn(message: Message) -> None:
            await send(message)
            await asyncio.sleep(0)  # a fast client, or one that left, would hold the event loop

        async with aclosing(cast("AsyncGenerator[bytes, None]", self.body_iterator)):
            await super().stream_response(send_in_turn)
