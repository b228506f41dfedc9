"""Routes of exports and imports, as streams of JSON Lines."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Annotated, Any, Final, cast

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from memory.domain.import_reports import ImportReport
from memory.domain.results import as_json
from memory.facade.transfer.importer import IN_MEMORY
from memory.server.callers import Admin
from memory.server.problems import bad_request
from memory.server.rendering import ClosingResponse, json_response
from memory.server.requests import UnstoredKey, stream_of
from memory.server.routing import ApiRoute

router = APIRouter(tags=["transfer"], route_class=ApiRoute)

JSON_LINES: Final = "application/jsonl"
PIECE: Final = 64 * 1024
"""Bytes of lines that are sent together."""
_BINARY: Final = {"schema": {"type": "string", "format": "binary"}}


@router.get(
    "/v1/admin/export",
    response_class=Response,
    responses={200: {"content": {JSON_LINES: _BINARY}}},
    operation_id="admin_export_get",
)
async def export(
    caller: Admin,
    scope: Annotated[
        str | None, Query(description="A scope or a subtree; the whole tenant by default.")
    ] = None,
    filter: Annotated[  # noqa: A002 - the name in the library
        str | None, Query(description="Only entries that pass this filter, as a text of JSON.")
    ] = None,
) -> Response:
    """Export the data of the tenant, or of a scope, as JSON Lines.

    The lines are those that `POST /v1/admin/import` reads. If the export fails in the
    middle, the connection is closed before the end of the response.
    """
    passing = None if filter is None else _parse(filter)
    lines = cast("AsyncGenerator[Mapping[str, Any], None]", caller.memory.admin.export(scope, filter=passing))
    first = await anext(lines, None)  # errors of the arguments get a status
    body = _pieces(first, lines)
    headers = {
        "Content-Disposition": 'attachment; filename="export.jsonl"',
    }
    return ClosingResponse(body, headers=headers, media_type=JSON_LINES)


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise bad_request("filter", 'must be a JSON object, such as {"types": ["user"]}') from None


async def _pieces(
    first: Mapping[str, Any] | None, lines: AsyncGenerator[Mapping[str, Any], None]
) -> AsyncIterator[bytes]:
    """Yield lines as bytes, several small ones together."""
    async with aclosing(lines):
        if first is None:
            return
        piece = bytearray(_line(first))
        async for line in lines:
            if len(piece) >= PIECE:
                yield bytes(piece)
                piece.clear()
            piece += _line(line)
        yield bytes(piece)


def _line(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


@router.post(
    "/v1/admin/import",
    response_model=ImportReport,
    operation_id="admin_import_post",
    openapi_extra={"requestBody": {"required": True, "content": {JSON_LINES: _BINARY}}},
)
async def import_(
    request: Request,
    caller: Admin,
    name: Annotated[str, Query(description="The name of the file in reports and keys.")] = "import",
    scope: Annotated[
        str | None, Query(description="The scope into which all entries and messages are imported.")
    ] = None,
    messages_to: Annotated[
        str | None, Query(description="The scope into which messages are imported without `scope`.")
    ] = None,
    same_ids: Annotated[bool, Query(description="Entries keep their ids, versions and moments.")] = False,
    revive: Annotated[bool, Query(description="Write entries again that were deleted here.")] = False,
    skip_bad: Annotated[bool, Query(description="Leave out bad lines.")] = False,
    idempotency_key: UnstoredKey = None,
) -> Response:
    """Import the lines of an export, or a conversation.

    The body is JSON Lines. All lines are checked before the first is written. An import
    that was cut off can be repeated: nothing is written twice, with or without an
    `Idempotency-Key`.
    """
    with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as file:
        async for piece in stream_of(request):
            await asyncio.to_thread(file.write, piece)
        file.seek(0)
        report = await caller.memory.admin.import_(
            file,
            name=name,
            scope=scope,
            messages_to=messages_to,
            same_ids=same_ids,
            revive=revive,
            skip_bad=skip_bad,
        )
    return json_response(as_json(report))
