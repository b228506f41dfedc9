"""Scratchpads: `/v1/memory/scratchpads/{agent}`, and the shared one."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from memory.server.bodies import Note
from memory.server.callers import Caller, Reader, Writer
from memory.server.rendering import Cleared, ScratchpadSize, ScratchpadView, json_response
from memory.server.requests import IdempotencyKey, request_id_of
from memory.server.routing import ApiRoute

router = APIRouter(prefix="/v1/memory", tags=["scratchpads"], route_class=ApiRoute)


@router.get("/scratchpads/{agent}", response_model=ScratchpadView)
async def get_scratchpad(caller: Reader, agent: str) -> Response:
    """Return the whole text of a scratchpad. One that was never written is empty."""
    return await _read(caller, agent)


@router.get("/scratchpad", response_model=ScratchpadView)
async def get_shared_scratchpad(caller: Reader) -> Response:
    """Return the whole text of the scratchpad that all agents share."""
    return await _read(caller, None)


@router.post("/scratchpads/{agent}", response_model=ScratchpadSize)
async def append_to_scratchpad(
    caller: Writer, agent: str, body: Note, idempotency_key: IdempotencyKey = None
) -> Response:
    """Append a text to a scratchpad, under a header with the moment."""
    return await _append(caller, agent, body, idempotency_key)


@router.post("/scratchpad", response_model=ScratchpadSize)
async def append_to_shared_scratchpad(
    caller: Writer, body: Note, idempotency_key: IdempotencyKey = None
) -> Response:
    """Append a text to the scratchpad that all agents share."""
    return await _append(caller, None, body, idempotency_key)


@router.delete("/scratchpads/{agent}", response_model=Cleared)
async def clear_scratchpad(caller: Writer, agent: str, idempotency_key: IdempotencyKey = None) -> Response:
    """Delete the text of a scratchpad."""
    return await _clear(caller, agent, idempotency_key)


@router.delete("/scratchpad", response_model=Cleared)
async def clear_shared_scratchpad(caller: Writer, idempotency_key: IdempotencyKey = None) -> Response:
    """Delete the text of the scratchpad that all agents share."""
    return await _clear(caller, None, idempotency_key)


async def _read(caller: Caller, agent: str | None) -> Response:
    return json_response((await caller.memory.scratchpads.read(agent)).to_dict())


async def _append(caller: Caller, agent: str | None, body: Note, key: str | None) -> Response:
    request = request_id_of(caller, key)
    size = await caller.memory.scratchpads.append(body.text, agent, request_id=request)
    return json_response({"size": size})


async def _clear(caller: Caller, agent: str | None, key: str | None) -> Response:
    cleared = await caller.memory.scratchpads.clear(agent, request_id=request_id_of(caller, key))
    return json_response({"cleared": cleared})
