"""Results of the library as JSON: the models of the API, and how they are made."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse, Response


def json_response(content: Any, status: int = 200, *, headers: dict[str, str] | None = None) -> Response:
    """Return a JSON response of values that are JSON already."""
    return JSONResponse(content, status, headers=headers)
