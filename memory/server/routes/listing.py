"""Lists and searches of entries: `GET /v1/memory/entries`, `POST /v1/memory/search`."""

from __future__ import annotations

import math
from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from memory.domain.error_table import notes_without_details
from memory.domain.results import as_json
from memory.domain.scope import Scope, Subtree
from memory.facade.resources.scopes import list_reachable
from memory.server.bodies import PARTS_TEXT, SearchQuestion
from memory.server.callers import Caller, Reader
from memory.server.problems import bad_request
from memory.server.rendering import EntryList, entry_json, hit_json, json_response
from memory.server.requests import (
    described_query,
    inner_cursor,
    named_here,
    next_link,
    outer_cursor,
    parts_of,
    read_query,
    split_list,
    switch,
)
from memory.server.routing import ApiRoute

router = APIRouter(prefix="/v1/memory", tags=["entries"], route_class=ApiRoute)
LIMIT = 50
MOST_SCOPES = 1000
OF_LIBRARY = {
    "query": "q",
    "types": "type",
    "tags": "tag",
    "boost__types": "type",
    "boost__tags": "tag",
    "boost__conversation_id": "conversation_id",
    "conversation": "conversation_id",
    "updated_before": "before_updated_at",
    "filter__since": "since",
    "filter__updated_at": "before_updated_at",
    "half_life": "decay_half_life_days",
}
"""The parameters here, by the arguments of the library."""
DECAYS = "on, off or a number of days"
NO_SCOPE = Scope.user("~")
"""The scope of a search of an empty tenant: its arguments are checked there too."""


class ListQuery(BaseModel):
    """The parameters of a list or a search."""

    q: str | None = Field(None, description="The question. Without one, entries are listed.")
    scope: list[str] | None = Field(None, description="By default, all scopes of the key.")
    type: list[str] | None = Field(None, description="A filter of lists; in searches, a preference.")
    types: list[str] | None = Field(None, description="The same as type.")
    tag: list[str] | None = Field(None, description="A filter of lists; in searches, a preference.")
    conversation_id: str | None = Field(None, description="Entries of this session, and those of none.")
    graduated: str | None = Field(None, description="on: prefer entries of conversation_id, and show others.")
    since: str | None = Field(None, description="Created at or after this moment.")
    before_updated_at: str | None = Field(None, description="Changed before this moment.")
    as_of: str | None = Field(None, description="Show what was true at this moment.")
    known_at: str | None = Field(None, description="Show what was stored at this moment.")
    include_retired: str | None = Field(None, description="on: list entries that ended too.")
    mode: str | None = Field(None, description="hybrid, lexical or semantic.")
    intent: str | None = Field(None, description="off: leave out what the question seems to ask for.")
    decay: str | None = Field(None, description="on, off, or days: older entries count less.")
    decay_half_life_days: float | None = Field(None, description="With decay=on.")
    decay_floor: float | None = Field(None, description="Between 0 and 1; with decay=on.")
    min_relevance: float | None = Field(None, description="From 0 to 1.")
    expand: str | None = Field(None, description="Search other wordings of this model too.")
    rerank: str | None = Field(None, description="Let this model order the best.")
    rerank_stages: int | None = Field(None, description="1, or 2 for a closer look at the best.")
    include: list[str] | None = Field(None, description=PARTS_TEXT)
    explain: str | None = Field(None, description="on: say why each entry is there.")
    short_id: str | None = Field(None, description="on: show the numbers for people.")
    limit: int | None = Field(
        None,
        description="At most this many results: 1 to 1,000.",
        json_schema_extra={"minimum": 1, "maximum": 1000},
    )
    cursor: str | None = Field(None, description="Continue after an earlier page, with its cursor.")


@router.get("/entries", response_model=EntryList, openapi_extra=described_query(ListQuery))
async def list_entries(request: Request, caller: Reader) -> Response:
    """List entries by their last change, or search them.

    Without `q`, `type` and `tag` are filters, and pages have cursors. With `q`, they
    are preferences, and the best entries come first.
    """
    given = read_query(request, ListQuery)
    if given.q is None or not given.q.strip():
        return await _list(request, caller, given)
    for name in ("cursor", "include_retired"):
        if getattr(given, name) is not None:
            raise bad_request(name, "belongs to a list, and a search has one page. Leave it or q out")
    if given.rerank_stages not in (None, 1, 2):
        raise bad_request("rerank_stages", f"must be 1 or 2, not {given.rerank_stages}")
    if given.rerank_stages is not None and given.rerank is None:
        raise bad_request("rerank_stages", "needs rerank. Name a model, or leave it out")
    ages, half_life = _decay(given)
    preferred, session = switch("graduated", given.graduated, default=False), given.conversation_id
    filters: dict[str, Any] = {} if given.since is None else {"since": given.since}
    if given.before_updated_at is not None:
        filters["updated_at"] = {"$lt": given.before_updated_at}
    if session is not None and not preferred:
        filters["$or"] = [{"conversation_id": session}, {"conversation_id": {"$exists": False}}]
    asked = {
        "boost": {
            "types": _kinds(given),
            "tags": given.tag or None,
            "conversation_id": session if preferred else None,
        },
        "filter": filters or None,
        "mode": given.mode or "hybrid",
        "min_relevance": given.min_relevance,
        "as_of": given.as_of,
        "known_at": given.known_at,
        "intent": switch("intent", given.intent, default=True),
        "age_decay": ages,
        "half_life": half_life,
        "decay_floor": given.decay_floor,
        "explain": switch("explain", given.explain, default=False),
        "include": parts_of(given.include),
        "limit": LIMIT if given.limit is None else given.limit,
    }
    numbered = switch("short_id", given.short_id, default=False)
    stages = given.rerank_stages or 1
    return await _search(
        request, caller, given.q, given.scope, asked, given.expand, given.rerank, stages, numbered
    )


async def _list(request: Request, caller: Caller, given: ListQuery) -> Response:
    """Answer a list: the newest change first."""
    for name in ("expand", "rerank", "rerank_stages", "min_relevance", "mode"):
        if getattr(given, name) is not None:
            raise bad_request(name, "needs a question. Send q too, or leave it out")
    _decay(given)
    for name in ("graduated", "intent", "explain"):
        switch(name, getattr(given, name), default=False)
    with named_here(**OF_LIBRARY):
        page = await caller.memory.browse(
            list(given.scope) if given.scope else None,
            types=_kinds(given),
            tags=given.tag or None,
            conversation=given.conversation_id,
            updated_before=given.before_updated_at,
            include_retired=switch("include_retired", given.include_retired, default=False),
            since=given.since,
            as_of=given.as_of,
            known_at=given.known_at,
            limit=LIMIT if given.limit is None else given.limit,
            cursor=inner_cursor(caller, given.cursor),
            include=parts_of(given.include),
        )
    numbers = None
    if switch("short_id", given.short_id, default=False) and page:
        numbers = await caller.memory.short_ids.of([one.id for one in page])
    after = outer_cursor(caller, page.cursor)
    shown: dict[str, Any] = {
        "entries": [entry_json(one, numbers) for one in page],
        "cursor": after,
        "degraded": notes_without_details(page.degraded),
    }
    if page.withheld:
        shown["withheld"] = page.withheld
    return json_response(shown, headers=next_link(request, after))


def _kinds(given: ListQuery) -> list[str] | None:
    return split_list([*(given.type or ()), *(given.types or ())])


@router.post("/search", response_model=EntryList)
async def search_entries(request: Request, caller: Reader, body: SearchQuestion) -> Response:
    """Search entries, with filters, boosts and vectors as in the library.

    It finds no messages: `POST /v1/messages/search` does. Nothing is stored.
    """
    asked = {"age_decay": False, "limit": LIMIT} | body.sent_fields(
        without=("query", "scope", "expand", "rerank")
    )
    scopes = [body.scope] if isinstance(body.scope, str) else body.scope
    return await _search(request, caller, body.query, scopes, asked, body.expand, body.rerank, 1, False)


async def _search(
    request: Request,
    caller: Caller,
    query: str,
    scopes: list[str] | None,
    asked: dict[str, Any],
    expand: str | None,
    rerank: str | None,
    stages: int,
    numbered: bool,
) -> Response:
    for name, model in (("expand", expand), ("rerank", rerank)):
        known = request.app.state.settings.models
        if model is not None and model not in known:
            names = ", ".join(known) or "none"
            raise bad_request(name, f"there is no model {model[:80]!r} (configured: {names})")
    if expand is not None or rerank is not None:
        request.app.state.advice.spend(caller.limits_key)
    within, notes = (list(scopes), ()) if scopes else await _all_scopes(caller)
    shown: dict[str, Any] = {"entries": [], "cursor": None, "degraded": notes_without_details(notes)}
    reranks: bool | Literal["two-stage"] = "two-stage" if rerank and stages == 2 else rerank is not None
    with named_here(**(OF_LIBRARY if request.method == "GET" else {})):
        found = await caller.memory.search(
            query, scope=within, expand=expand is not None, rerank=reranks, **asked
        )
    numbers = await caller.memory.short_ids.of([hit.id for hit in found]) if numbered and found else None
    shown["entries"] = [hit_json(hit, explain=bool(asked.get("explain"))) for hit in found]
    if numbers is not None:
        shown["entries"] = [{**one, "short_id": numbers.get(one["id"])} for one in shown["entries"]]
    shown["degraded"] = list(dict.fromkeys(shown["degraded"] + notes_without_details(found.degraded)))
    for name, block, model in (("expansion", found.expansion, expand), ("rerank", found.rerank, rerank)):
        if block is not None:
            shown[name] = as_json(block)
            for part in {"model", "fine_model"} & shown[name].keys():
                shown[name][part] = shown[name][part] and model
    shown |= {"withheld": found.withheld} if found.withheld else {}
    shown |= {"left_out": as_json(found.left_out)} if found.left_out else {}
    return json_response(shown)


async def _all_scopes(caller: Caller) -> tuple[list[Scope | Subtree | str], tuple[str, ...]]:
    """Return the scopes that a caller may search, because a search names them.

    If a store is away, its scopes are left out, and a note says so.
    """
    if caller.scopes is not None:
        return list(caller.scopes), ()
    page, notes = await list_reachable(caller.memory, limit=MOST_SCOPES)
    if page.cursor:
        notes += (f"only {MOST_SCOPES:,} scopes were searched, and there are more. Name a scope",)
    return [one.scope for one in page.scopes] or [NO_SCOPE], notes


def _decay(given: ListQuery) -> tuple[bool, float | None]:
    """Return whether age counts, and the half-life in days."""
    decay, half_life, ages = given.decay, given.decay_half_life_days, False
    if decay is not None and (days := _number(decay)) is not None and decay.strip() not in ("0", "1"):
        if half_life is not None:
            raise bad_request("decay", "gives the days already. Leave decay_half_life_days out")
        if not 0 < days < math.inf:
            raise bad_request("decay", f"must be {DECAYS}, not {decay[:40]!r}")
        ages, half_life = True, days
    else:
        ages = switch("decay", decay, default=False, expected=DECAYS)
    for name, value in (("decay_half_life_days", half_life), ("decay_floor", given.decay_floor)):
        if value is not None and not ages:
            raise bad_request(name, "needs decay=on. Send both, or leave it out")
    return ages, half_life


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
