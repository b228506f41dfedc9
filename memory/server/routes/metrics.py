"""The metrics of this server process, for operators."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from memory.server.callers import Operator
from memory.server.routing import ApiRoute

router = APIRouter(tags=["health"], route_class=ApiRoute)
_TEXT: Final[dict[str, Any]] = {
    "description": "Metrics in the text format of Prometheus.",
    "content": {"text/plain": {"schema": {"type": "string"}}},
}


@router.get("/metrics", response_class=Response, responses={200: _TEXT})
async def show_metrics(request: Request, caller: Operator) -> Response:
    """Return the metrics of this process, in the text format of Prometheus."""
    state = request.app.state
    text = state.metrics.render(await state.readiness.stores(), state.audit)
    return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})
