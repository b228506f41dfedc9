"""Routes that make entries of entries, and move and explain them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from memory.domain.entry import Entry
from memory.domain.errors import VersionConflict
from memory.server.callers import Caller
from memory.server.facade_calls import Values
from memory.server.operations import Operation, add_operations
from memory.server.rendering import EntryView
from memory.server.routing import ApiRoute

router = APIRouter(tags=["promotion"], route_class=ApiRoute)
_ENTRY = "/v1/memory/entries/{entry_id:text}"


def _prepare_compact(caller: Caller, values: Values) -> None:
    """Make the function that `compact` calls from the text and what it was made of."""
    content, versions = values.pop("content"), values.pop("versions", None) or {}

    def summarise(entries: list[Entry]) -> str:
        for entry in entries:
            if versions.get(entry.id, entry.version) != entry.version:
                raise VersionConflict(f"entry {entry.id}", versions[entry.id], entry.version, entry.id)
        return str(content)

    values["callback"] = summarise


_CONTENT: Values = {
    "content": Annotated[str, Field(description="The text of the new entry.")],
    "versions": (
        Annotated[
            dict[str, str] | None,
            Field(description="Versions of the entries that the text was made of: 409 if one has another."),
        ],
        None,
    ),
}

OPERATIONS = (
    Operation("POST", f"{_ENTRY}/promote", "memory.promote", status=201, etag="version", model=EntryView,
              example={"to": "user:ada", "tags": ["lasting"]}),
    Operation("POST", "/v1/memory/compact", "memory.compact", status=201, etag="version", model=EntryView,
              fields=_CONTENT, omits=("callback",), prepare=_prepare_compact,
              example={"entry_ids": ["0196f9d2-7e5c-8a41-9c1e-5b7d3f20a6e8"], "content": "Ada drinks tea."}),
    Operation("GET", f"{_ENTRY}/why", "admin.why", "reader"),
)  # fmt: skip

add_operations(router, OPERATIONS)
