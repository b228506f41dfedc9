"""Scratchpads: `/v1/memory/scratchpads/{agent}`, and the shared one."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from memory.server.bodies import Note
from memory.server.callers import Reader, Writer
from memory.server.rendering import Cleared, ScratchpadSize, ScratchpadView, json_response
from memory.server.requests import IdempotencyKey, request_id_of

router = APIRouter(prefix="/v1/memory", tags=["scratchpads"])


@router.get("/scratchpad", response_model=ScratchpadView, name="get_shared_scratchpad")
@router.get("/scratchpads/{agent}", response_model=ScratchpadView)
async def get_scratchpad(caller: Reader, agent: str | None = None) -> Response:
    """Return the whole text of a scratchpad. One that was never written is empty."""
    return json_response((await caller.memory.scratchpads.read(agent)).to_dict())


@router.post("/scratchpad", response_model=ScratchpadSize, name="append_to_shared_scratchpad")
@router.post("/scratchpads/{agent}", response_model=ScratchpadSize)
async def append_to_scratchpad(
    caller: Writer, body: Note, agent: str | None = None, idempotency_key: IdempotencyKey = None
) -> Response:
    """Append a text to a scratchpad, under a header with the moment."""
    size = await caller.memory.scratchpads.append(
        body.text, agent, request_id=request_id_of(caller, idempotency_key)
    )
    return json_response({"size": size})


@router.delete("/scratchpad", response_model=Cleared, name="clear_shared_scratchpad")
@router.delete("/scratchpads/{agent}", response_model=Cleared)
async def clear_scratchpad(
    caller: Writer, agent: str | None = None, idempotency_key: IdempotencyKey = None
) -> Response:
    """Delete the text of a scratchpad."""
    cleared = await caller.memory.scratchpads.clear(agent, request_id=request_id_of(caller, idempotency_key))
    return json_response({"cleared": cleared})
