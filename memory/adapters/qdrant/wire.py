"""Requests to a Qdrant server as JSON, over the connection of an `AsyncQdrantClient`.

Bodies are encoded and parsed here, not by the client's models. Those took most of a
search's processor time, and they turn integers into floats.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

from qdrant_client import AsyncQdrantClient
from qdrant_client.common.client_exceptions import QdrantException, ResourceExhaustedResponse

from memory.adapters.qdrant.client_errors import ServerBusy, UnreadableResponse

T = TypeVar("T")

_JSON = {"Content-Type": "application/json"}
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def encode_body(body: Any) -> bytes:
    """Encode a body. Raises `UnicodeEncodeError` for an unpaired surrogate."""
    return _encode(body).encode()


class Wire(Protocol):
    """Sends requests to a server, or answers them from the client's memory."""

    async def version(self) -> str: ...

    async def send(self, method: str, path: str, body: bytes, parameters: dict[str, str]) -> dict[str, Any]:
        """Return the whole answer to a request about the collection.

        `path` follows the collection's name.
        """
        ...

    async def close(self) -> None: ...


class ServerWire:
    """Sends requests to a server."""

    def __init__(self, client: AsyncQdrantClient, collection: str) -> None:
        self._client = client
        self._collection = collection

    async def version(self) -> str:
        answer = await self._request("GET", "/", b"", {})
        if not isinstance(answer.get("version"), str):
            raise UnreadableResponse("no version")
        return str(answer["version"])

    async def send(self, method: str, path: str, body: bytes, parameters: dict[str, str]) -> dict[str, Any]:
        name = quote(self._collection, safe="").replace("{", "{{").replace("}", "}}")
        return await self._request(method, f"/collections/{name}{path}", body, parameters)

    async def _request(
        self, method: str, url: str, body: bytes, parameters: dict[str, str]
    ) -> dict[str, Any]:
        api: Any = self._client.http.client
        try:
            answer: dict[str, Any] = await api.request(
                type_=dict,
                method=method,
                url=url,
                headers=_JSON if body else None,
                params=parameters,
                content=body or None,
            )
        except ResourceExhaustedResponse as exc:
            raise ServerBusy(float(exc.retry_after_s)) from exc
        except QdrantException as exc:
            raise ServerBusy(_seconds_until(str(exc))) from exc
        except ValueError as exc:  # invalid JSON, or not an object
            raise UnreadableResponse(type(exc).__name__) from exc
        return answer

    async def close(self) -> None:
        await self._client.close()


def _seconds_until(said: str) -> float | None:
    """Return the wait of a `Retry-After` header with a date.

    The client's error repeats the date.
    """
    try:
        until = parsedate_to_datetime(said.partition(": ")[2])
    except (ValueError, TypeError):
        return None
    moment = until if until.tzinfo is not None else until.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


async def ask(
    wire: Wire,
    seconds: float,
    request: tuple[str, str, bytes],
    parameters: dict[str, str],
    read: Callable[[Any], T],
) -> T:
    """Send a request and return `read` of its result.

    The request ends in time, even if the server sends single bytes. If the server asks
    for a wait (`Retry-After`) that ends in time, the request is repeated after it.
    """
    late = time.monotonic() + seconds
    while True:
        try:
            async with asyncio.timeout(seconds + 1):
                answer = await wire.send(*request, parameters)
        except ServerBusy as busy:
            if busy.wait is None or time.monotonic() + busy.wait > late:
                raise
            await asyncio.sleep(max(busy.wait, 0.05))
            continue
        try:
            return read(answer["result"])
        except (LookupError, TypeError, ValueError, AttributeError) as exc:
            raise UnreadableResponse(type(exc).__name__) from exc
