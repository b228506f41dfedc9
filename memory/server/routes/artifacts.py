"""Files of sessions: `/v1/memory/artifacts`."""

from __future__ import annotations

import re
from typing import Annotated, Final
from urllib.parse import quote

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response

from memory.domain.artifact import ANY_MEDIA_TYPE, Artifact
from memory.server.callers import Caller, Reader, Writer
from memory.server.paths import prefix_of
from memory.server.problems import Problem
from memory.server.rendering import (
    ArtifactList,
    ArtifactView,
    ClosingResponse,
    Deleted,
    json_response,
)
from memory.server.requests import (
    Cursor,
    IdempotencyKey,
    IfNoneMatch,
    Limit,
    etag_of,
    full_id,
    inner_cursor,
    is_unchanged,
    next_link,
    not_found,
    outer_cursor,
    request_id_of,
    stream_of,
)
from memory.server.routing import ApiRoute

router = APIRouter(prefix="/v1/memory/artifacts", tags=["artifacts"], route_class=ApiRoute)
INERT: Final = {
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers by which a browser stores a file, and never runs it."""
_RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
BYTES = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}


@router.get("", response_model=ArtifactList)
async def list_artifacts(
    request: Request,
    caller: Reader,
    session_id: Annotated[str, Query(description="The session of the files.")],
    limit: Limit = None,
    cursor: Cursor = None,
) -> Response:
    """List the files of a session, oldest first."""
    page = await caller.memory.artifacts.list(session_id, limit=limit, cursor=inner_cursor(caller, cursor))
    after = outer_cursor(caller, page.cursor)
    shown = {"artifacts": [one.to_dict() for one in page.artifacts], "cursor": after}
    return json_response(shown, headers=next_link(request, after))


@router.put(
    "",
    status_code=201,
    response_model=ArtifactView,
    openapi_extra={"requestBody": {"required": True, **BYTES}},
)
async def put_artifact(
    request: Request,
    caller: Writer,
    session_id: Annotated[str, Query(description="The session of the file.")],
    path: Annotated[str, Query(description="A relative path, such as out/report.md.")],
    media_type: Annotated[
        str | None, Query(description="What the file is; the Content-Type by default.")
    ] = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Store a file of a session under a path, in place of the one stored there.

    The body is the file, of any size, as application/octet-stream or its own type.
    """
    body = stream_of(request)
    if media_type is None:
        sent_as = request.headers.get("content-type", "").partition(";")[0].strip()
        media_type = sent_as or ANY_MEDIA_TYPE
    stored = await caller.memory.artifacts.put(
        session_id,
        path,
        body,
        media_type=media_type,
        request_id=request_id_of(caller, idempotency_key),
    )
    async for _ in body:  # a repeat reads nothing, and its client would meet a closed connection
        pass
    headers = {
        "Location": f"{prefix_of(request.scope)}{router.prefix}/{stored.id}",
        "ETag": etag_of(stored.sha256),
    }
    return json_response(stored.to_dict(), 201, headers=headers)


@router.get("/{artifact_id}", response_model=ArtifactView)
async def get_artifact(artifact_id: str, caller: Reader) -> Response:
    """Return the description of a file."""
    found = await _find(caller, artifact_id)
    return json_response(found.to_dict(), headers={"ETag": etag_of(found.sha256)})


@router.get(
    "/{artifact_id}/raw",
    response_class=Response,
    responses={
        200: {"description": "The file", **BYTES},
        206: {"description": "A part of the file", **BYTES},
        304: {"description": "Not modified"},
    },
)
async def read_artifact(
    artifact_id: str,
    caller: Reader,
    range: Annotated[  # noqa: A002 - the header's name
        str | None, Header(alias="Range", description="One range of bytes, as bytes=0-99.")
    ] = None,
    if_range: Annotated[
        str | None, Header(alias="If-Range", description="The ETag of the parts before.")
    ] = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Return the bytes of a file, or a range of them, as an attachment."""
    found = await _find(caller, artifact_id)
    tag, name = etag_of(found.sha256), quote(found.path.rpartition("/")[2], safe="")
    headers = {
        **INERT,
        "Accept-Ranges": "bytes",
        "ETag": tag,
        "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
    }
    if is_unchanged(if_none_match, found.sha256):
        return Response(status_code=304, headers=headers)
    part = _range_of(range, found.size) if if_range in (None, tag) else None
    begin, end = (0, found.size) if part is None else part
    headers["Content-Length"] = str(end - begin)
    if part is not None:
        headers["Content-Range"] = f"bytes {begin}-{end - 1}/{found.size}"
    return ClosingResponse(
        caller.memory.artifacts.stream(found.id, start=begin, end=end, sha256=found.sha256),
        200 if part is None else 206,
        headers={**headers, "Content-Type": found.media_type},
    )


@router.delete("/{artifact_id}", response_model=Deleted)
async def delete_artifact(
    artifact_id: str, caller: Writer, idempotency_key: IdempotencyKey = None
) -> Response:
    """Delete a file. Entries that point to it stay."""
    request_id = request_id_of(caller, idempotency_key)
    wanted = await full_id(caller, artifact_id, "artifact", request_id=request_id)
    if not await caller.memory.artifacts.delete(wanted, request_id=request_id):
        raise not_found("artifact", artifact_id)
    return json_response({"deleted": True, "id": wanted})


async def _find(caller: Caller, text: str) -> Artifact:
    found = await caller.memory.artifacts.get(await full_id(caller, text, "artifact"))
    if found is None:
        raise not_found("artifact", text)
    return found


def _range_of(header: str | None, size: int) -> tuple[int, int] | None:
    """Return the first and the last place of a range; None for the whole file.

    Raises:
        Problem: 416 for a range outside of the file.
    """
    if header is None or (found := _RANGE.fullmatch(header.strip())) is None or found[0] == "bytes=-":
        return None
    if not found[1]:
        begin, end = max(size - int(found[2]), 0), size
    else:
        begin, end = int(found[1]), min(int(found[2]) + 1 if found[2] else size, size)
        if found[2] and int(found[2]) < begin:
            return None
    if begin >= end:
        raise Problem(
            416,
            "range_not_satisfiable",
            f"the file has {size:,} bytes, and none of them is in this range",
            headers={"Content-Range": f"bytes */{size}"},
        )
    return begin, end
