"""Routes that read entries by ids, by age, and by short ids."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from memory.domain.entry import Entry
from memory.domain.error_table import notes_without_details
from memory.server.callers import Caller
from memory.server.facade_calls import Values
from memory.server.operations import Operation, add_operations
from memory.server.rendering import EntryView, entry_json
from memory.server.routing import ApiRoute

router = APIRouter(tags=["entries"], route_class=ApiRoute)


class FoundEntries(BaseModel):
    """Entries in the order of the ids or keys; null for each that is not visible."""

    entries: list[EntryView | None]


class RetrievedEntries(BaseModel):
    """A page of entries by age."""

    entries: list[EntryView]
    cursor: str | None = Field(description="Asks for the next page; null at the end.")
    degraded: list[str]


def _show_found(caller: Caller, found: list[Entry | None], asked: Values) -> Values:
    return {"entries": [None if one is None else entry_json(one) for one in found]}


def _show_page(caller: Caller, page: Any, asked: Values) -> Values:
    entries = [entry_json(one) for one in page]
    return {"entries": entries, "cursor": page.cursor, "degraded": notes_without_details(page.degraded)}


OPERATIONS = (
    Operation("POST", "/v1/memory/entries/get", "memory.get_many", "reader", show=_show_found,
              model=FoundEntries, example={"scope": "user:ada", "keys": ["drink", "home"]}),
    Operation("POST", "/v1/memory/retrieve", "memory.retrieve", "reader", show=_show_page,
              model=RetrievedEntries,
              example={"scope": "user:ada", "filter": {"metadata.price": {"$gt": 3}}, "order": "oldest"}),
    Operation("POST", "/v1/memory/short-ids/resolve", "short_ids.resolve_many", "reader", result="items",
              example={"texts": ["42", "#43"]}),
)  # fmt: skip

add_operations(router, OPERATIONS)
