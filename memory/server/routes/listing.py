"""Lists and searches of entries: `GET /v1/memory/entries`, `POST /v1/memory/search`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from memory.domain.results import as_json
from memory.domain.scope import Scope, Subtree
from memory.server.bodies import SearchQuestion
from memory.server.callers import Caller, Reader
from memory.server.problems import bad_request
from memory.server.rendering import EntryList, entry_json, hit_json, json_response
from memory.server.requests import (
    Cursor,
    Limit,
    inner_cursor,
    listed,
    named_here,
    next_link,
    outer_cursor,
    switch,
)

router = APIRouter(prefix="/v1/memory", tags=["entries"])
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

Listed = Annotated[list[str] | None, Query()]
Switch = Annotated[str | None, Query(description="on or off.")]


@router.get("/entries", response_model=EntryList)
async def list_entries(
    request: Request,
    caller: Reader,
    q: Annotated[str | None, Query(description="The question. Without one, entries are listed.")] = None,
    scope: Annotated[list[str] | None, Query(description="By default, all scopes of the key.")] = None,
    type: Annotated[  # noqa: A002 - the parameter's name
        list[str] | None, Query(description="A filter of lists; in searches, a preference.")
    ] = None,
    types: Annotated[list[str] | None, Query(description="The same as type.")] = None,
    tag: Annotated[
        list[str] | None, Query(description="A filter of lists; in searches, a preference.")
    ] = None,
    conversation_id: Annotated[
        str | None, Query(description="Entries of this session, and those of none.")
    ] = None,
    graduated: Annotated[
        str | None, Query(description="on: prefer entries of conversation_id, and show others.")
    ] = None,
    since: Annotated[str | None, Query(description="Created at or after this moment.")] = None,
    before_updated_at: Annotated[str | None, Query(description="Changed before this moment.")] = None,
    as_of: Annotated[str | None, Query(description="Show what was true at this moment.")] = None,
    known_at: Annotated[str | None, Query(description="Show what was stored at this moment.")] = None,
    include_retired: Switch = None,
    mode: Annotated[str | None, Query(description="hybrid, lexical or semantic.")] = None,
    intent: Switch = None,
    decay: Annotated[str | None, Query(description="on, off, or days: older entries count less.")] = None,
    decay_half_life_days: Annotated[float | None, Query(description="With decay=on.")] = None,
    decay_floor: Annotated[float | None, Query(description="Between 0 and 1.")] = None,
    min_relevance: Annotated[float | None, Query(description="From 0 to 1.")] = None,
    expand: Annotated[str | None, Query(description="Search other wordings of this model too.")] = None,
    rerank: Annotated[str | None, Query(description="Let this model order the best.")] = None,
    rerank_stages: Annotated[int | None, Query(description="1, or 2 for a closer look at the best.")] = None,
    explain: Switch = None,
    short_id: Annotated[str | None, Query(description="on: show the numbers for people.")] = None,
    limit: Limit = None,
    cursor: Cursor = None,
) -> Response:
    """List entries by their last change, or search them.

    Without `q`, `type` and `tag` are filters, and pages have cursors. With `q`, they
    are preferences, and the best entries come first.
    """
    kinds, tags = listed([*(type or ()), *(types or ())]), tag or None
    ages, half_life = _decay(decay, decay_half_life_days, decay_floor)
    preferred = switch("graduated", graduated, default=False)
    numbered = switch("short_id", short_id, default=False)
    most = LIMIT if limit is None else limit
    if q is None or not q.strip():
        needed = {"expand": expand, "rerank": rerank, "min_relevance": min_relevance, "mode": mode}
        for name, value in needed.items():
            if value is not None:
                raise bad_request(name, "needs a question. Send q too, or leave it out")
        with named_here(**OF_LIBRARY):
            page = await caller.memory.browse(
                list(scope) if scope else None,
                types=kinds,
                tags=tags,
                conversation=conversation_id,
                updated_before=before_updated_at,
                include_retired=switch("include_retired", include_retired, default=False),
                since=since,
                as_of=as_of,
                known_at=known_at,
                limit=most,
                cursor=inner_cursor(caller, cursor),
            )
        after = outer_cursor(caller, page.cursor)
        numbers = await caller.memory.short_ids.of([one.id for one in page]) if numbered and page else None
        shown: dict[str, Any] = {
            "entries": [entry_json(one, numbers) for one in page],
            "cursor": after,
            "degraded": list(page.degraded),
        }
        if page.withheld:
            shown["withheld"] = page.withheld
        return json_response(shown, headers=next_link(request, after))
    for name, value in (("cursor", cursor), ("include_retired", include_retired)):
        if value is not None:
            raise bad_request(name, "belongs to a list, and a search has one page. Leave it or q out")
    filters: dict[str, Any] = {"since": since} if since is not None else {}
    if before_updated_at is not None:
        filters["updated_at"] = {"$lt": before_updated_at}
    if conversation_id is not None and not preferred:
        filters["$or"] = [{"conversation_id": conversation_id}, {"conversation_id": {"$exists": False}}]
    asked = {
        "boost": {
            "types": kinds,
            "tags": tags,
            "conversation_id": conversation_id if preferred else None,
        },
        "filter": filters or None,
        "mode": mode or "hybrid",
        "min_relevance": min_relevance,
        "as_of": as_of,
        "known_at": known_at,
        "intent": switch("intent", intent, default=True),
        "age_decay": ages,
        "half_life": half_life,
        "decay_floor": decay_floor,
        "explain": switch("explain", explain, default=False),
        "limit": most,
    }
    if rerank_stages not in (None, 1, 2):
        raise bad_request("rerank_stages", f"must be 1 or 2, not {rerank_stages}")
    if rerank_stages is not None and rerank is None:
        raise bad_request("rerank_stages", "needs rerank. Name a model, or leave it out")
    return await _search(request, caller, q, scope, asked, expand, rerank, rerank_stages or 1, numbered)


@router.post("/search", response_model=EntryList)
async def search_entries(request: Request, caller: Reader, body: SearchQuestion) -> Response:
    """Search entries with all options of the library; nothing is stored."""
    asked = {"age_decay": False, "limit": LIMIT} | body.given(without=("query", "scope", "expand", "rerank"))
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
        request.app.state.advice.spend(caller.key_id)
    within, notes = (list(scopes), ()) if scopes else await _all_scopes(caller)
    shown: dict[str, Any] = {"entries": [], "cursor": None, "degraded": list(notes)}
    if not within:
        return json_response(shown)
    reranks: bool | Literal["two-stage"] = "two-stage" if rerank and stages == 2 else rerank is not None
    with named_here(**(OF_LIBRARY if request.method == "GET" else {})):
        found = await caller.memory.search(
            query, scope=within, expand=expand is not None, rerank=reranks, **asked
        )
    numbers = await caller.memory.short_ids.of([hit.id for hit in found]) if numbered and found else None
    shown["entries"] = [hit_json(hit, explain=bool(asked.get("explain"))) for hit in found]
    if numbers is not None:
        shown["entries"] = [{**one, "short_id": numbers.get(one["id"])} for one in shown["entries"]]
    shown["degraded"] += found.degraded
    for name, block in (("expansion", found.expansion), ("rerank", found.rerank)):
        if block is not None:
            shown[name] = as_json(block)
    shown |= {"withheld": found.withheld} if found.withheld else {}
    shown |= {"left_out": as_json(found.left_out)} if found.left_out else {}
    return json_response(shown)


async def _all_scopes(caller: Caller) -> tuple[list[Scope | Subtree | str], tuple[str, ...]]:
    """Return the scopes that a caller may search, because a search names them."""
    if caller.scopes is not None:
        return list(caller.scopes), ()
    page = await caller.memory.scopes.list(limit=MOST_SCOPES)
    notes = (
        (f"only {MOST_SCOPES:,} scopes were searched, and there are more. Name a scope",)
        if page.cursor
        else ()
    )
    return [one.scope for one in page.scopes], notes


def _decay(decay: str | None, half_life: float | None, floor: float | None) -> tuple[bool, float | None]:
    """Return whether age counts, and the half-life in days."""
    ages = False
    if decay is not None and (days := _number(decay)) is not None and decay.strip() not in ("0", "1"):
        if half_life is not None:
            raise bad_request("decay", "gives the days already. Leave decay_half_life_days out")
        ages, half_life = True, days
    else:
        ages = switch("decay", decay, default=False)
    for name, value in (("decay_half_life_days", half_life), ("decay_floor", floor)):
        if value is not None and not ages:
            raise bad_request(name, "needs decay=on. Send both, or leave it out")
    return ages, half_life


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
