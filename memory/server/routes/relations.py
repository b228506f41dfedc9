"""Relations and the graph: `/v1/memory/relations`, `/v1/memory/graph`."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from memory.domain.results import as_json
from memory.server.bodies import NewRelation, Reference
from memory.server.callers import Caller, Reader, Writer
from memory.server.problems import Problem, bad_request
from memory.server.rendering import (
    Deleted,
    DensityView,
    ExpansionView,
    GraphView,
    RelationList,
    RelationView,
    entry_json,
    json_response,
    relation_json,
)
from memory.server.requests import (
    AsOf,
    Cursor,
    IdempotencyKey,
    KnownAt,
    Limit,
    full_id,
    inner_cursor,
    named_here,
    next_link,
    not_found,
    outer_cursor,
    request_id_of,
    split_list,
    switch,
)
from memory.server.routing import ApiRoute

router = APIRouter(prefix="/v1/memory", tags=["relations"], route_class=ApiRoute)
UNKNOWN_END = "both entries must exist, be active and belong to this tenant"
Scopes = Annotated[list[str] | None, Query(description="By default, all scopes of the key.")]


@router.get("/relations", response_model=RelationList)
async def list_relations(
    request: Request,
    caller: Reader,
    source_id: Annotated[str | None, Query(description="The entry that they lead from.")] = None,
    target_id: Annotated[str | None, Query(description="The entry that they lead to.")] = None,
    relation: Annotated[str | None, Query(description="Their kind, such as supersedes.")] = None,
    active: Annotated[str | None, Query(description="on: only between two valid entries.")] = None,
    as_of: AsOf = None,
    known_at: KnownAt = None,
    limit: Limit = None,
    cursor: Cursor = None,
) -> Response:
    """List relations, newest first; 200 by default."""
    ends = {}
    for name, text in (("source_id", source_id), ("target_id", target_id)):
        if text is not None:
            ends[name] = text
            with suppress(Problem):  # no relation leads to what nothing has as its id
                ends[name] = await full_id(caller, text)
    with named_here(**{"relation filter": "relation"}):
        found = await caller.memory.relations.find(
            **ends,
            label=relation,
            active=switch("active", active, default=False),
            as_of=as_of,
            known_at=known_at,
            limit=limit,
            cursor=inner_cursor(caller, cursor),
        )
    after = outer_cursor(caller, found.cursor)
    shown = {"relations": [relation_json(one) for one in found], "cursor": after}
    return json_response(shown, headers=next_link(request, after))


@router.post("/relations", status_code=201, response_model=RelationView)
async def create_relation(
    caller: Writer, body: NewRelation, idempotency_key: IdempotencyKey = None
) -> Response:
    """Link two active entries. If the link exists, the answer is 409 with its id."""
    request_id = request_id_of(caller, idempotency_key)
    source, target = [await _end_of(caller, one, request_id) for one in (body.source_id, body.target_id)]
    made = await caller.memory.relations.relate(source, body.relation, target, request_id=request_id)
    return json_response(relation_json(made), 201)


@router.delete("/relations/{relation_id}", response_model=Deleted)
async def delete_relation(
    relation_id: str, caller: Writer, idempotency_key: IdempotencyKey = None
) -> Response:
    """Delete a relation. A second deletion finds none."""
    gone = await caller.memory.relations.unrelate(
        relation_id, request_id=request_id_of(caller, idempotency_key)
    )
    if not gone:
        raise not_found("relation", relation_id)
    return json_response({"deleted": True, "id": relation_id})


@router.get("/graph", response_model=GraphView, tags=["graph"])
async def get_graph(
    caller: Reader,
    scope: Scopes = None,
    type: Annotated[list[str] | None, Query(description="Only entries of these types.")] = None,  # noqa: A002
    as_of: AsOf = None,
    known_at: KnownAt = None,
    limit: Limit = None,
) -> Response:
    """Return the newest entries, and all relations between them."""
    with named_here(types="type"):
        found = await caller.memory.relations.graph(
            list(scope) if scope else None,
            types=split_list(type),
            as_of=as_of,
            known_at=known_at,
            limit=limit,
        )
    return json_response(
        {
            "entries": [entry_json(one) for one in found.entries],
            "relations": [relation_json(one) for one in found.relations],
            "retired": sorted(found.retired),
            "notices": list(found.notices),
        }
    )


@router.get("/entries/{entry_id}/expand", response_model=ExpansionView, tags=["graph"])
async def expand_entry(
    entry_id: str,
    caller: Reader,
    depth: Annotated[int, Query(description="One step or two.")] = 1,
    scope: Scopes = None,
    superseded: Annotated[str | None, Query(description="on: show retired ends too.")] = None,
) -> Response:
    """Return the entries linked to an entry, at most 50."""
    found = await caller.memory.relations.expand(
        await full_id(caller, entry_id),
        depth=depth,
        scope=list(scope) if scope else None,
        superseded=switch("superseded", superseded, default=False),
    )
    return json_response(
        {
            "nodes": [{"entry": entry_json(one.entry), "depth": one.depth} for one in found.nodes],
            "relations": [relation_json(one) for one in found.relations],
            "notices": list(found.notices),
            "retired": sorted(found.retired),
        }
    )


@router.get("/entries/{entry_id}/density", response_model=DensityView, tags=["graph"])
async def get_density(entry_id: str, caller: Reader, scope: Scopes = None) -> Response:
    """Return how closely an entry is linked."""
    found = await caller.memory.relations.density(
        await full_id(caller, entry_id), scope=list(scope) if scope else None
    )
    shown = as_json(found)
    shown["relations"] = shown.pop("labels")
    return json_response(shown)


async def _end_of(caller: Caller, reference: Reference, request_id: str | None) -> str:
    """Return the full id of an end; an unknown one is refused as the library does."""
    try:
        return await full_id(caller, str(reference), request_id=request_id)
    except Problem:
        raise bad_request("relation", UNKNOWN_END) from None
