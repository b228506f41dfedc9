"""Entries: `/v1/memory/entries`."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from memory.server.callers import Reader
from memory.server.rendering import json_response
from memory.server.requests import IfNoneMatch, etag_of, full_id, is_unchanged, not_found

router = APIRouter(prefix="/v1/memory/entries", tags=["entries"])


@router.get("/{entry_id}")
async def get_entry(entry_id: str, caller: Reader, if_none_match: IfNoneMatch = None) -> Response:
    """Return one entry."""
    found = await caller.memory.get(await full_id(caller, entry_id))
    if found is None:
        raise not_found("entry", entry_id)
    headers = {"ETag": etag_of(found.version)}
    if is_unchanged(if_none_match, found.version):
        return Response(status_code=304, headers=headers)
    return json_response(found.to_dict(), headers=headers)
