"""Translates the client's errors, most specific first.

No message contains parts of a request, which includes the API key.
"""

from __future__ import annotations

import json

import httpx
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse

from memory.adapters.qdrant.errors import PartialBatch
from memory.domain.errors import InvalidInput, StoreError, StoreFull, StoreTimeout, StoreUnavailable
from memory.ports.network_errors import explain_unreachable

_REFUSED = (401, 403)
_TIMEOUTS = (408, 504)
_BUSY = (429, 502, 503)
_FULL = 507
_INTERNAL = 500
_FULL_TEXTS = ("no space left on device", "os error 28", "out of disk", "disk quota exceeded")
_LATE_TEXTS = ("timed out", "timeout", "deadline")
_AWAY_TEXTS = (
    *(
        "active replica",
        "replica set",
        "consistency of this update is not guaranteed",
        "failed to apply operation",
    ),
    *("leader is not established", "failed to propose operation", "temporarily unavailable"),
    *(
        "transport error",
        "connection refused",
        "connection reset",
        "unable to connect",
        "read operations failed",
    ),
)
"""Texts of errors about unreachable replicas, leaders and peers.

Such a node may come back.
"""


class UnconfirmedWrite(Exception):
    """It is unknown whether a write was applied."""


class ServerBusy(Exception):
    """The server refuses work for now.

    `wait` is the number of seconds to wait, None if unknown.
    """

    def __init__(self, wait: float | None) -> None:
        super().__init__(wait)
        self.wait = wait


class UnreadableResponse(Exception):
    """The answer violates the server's interface, such as a page of a proxy."""


def is_servers_answer(error: Exception) -> bool:
    """Whether the server answered and refused the request or a part of it."""
    return isinstance(error, UnexpectedResponse | ServerBusy)


def translate_client(store: str, error: Exception) -> Exception | None:
    match error:
        case UnicodeEncodeError():
            return InvalidInput("text", "contains an unpaired surrogate, which is not a character; remove it")
        case UnconfirmedWrite():
            return StoreTimeout(store, str(error))
        case PartialBatch():
            return StoreUnavailable(store, str(error))
        case ServerBusy():
            told = "" if error.wait is None else f"; it asks to wait for {error.wait:.0f} s"
            return StoreUnavailable(store, f"Qdrant refuses work for now (status 429){told}; try again")
        case UnreadableResponse() | json.JSONDecodeError():
            named = str(error) if isinstance(error, UnreadableResponse) else type(error).__name__
            return StoreError(store, f"the answer cannot be read ({named}); is this a Qdrant server?")
        case UnexpectedResponse():
            return _response(store, error)
        case ResponseHandlingException():
            source = error.source
            return translate_client(store, source) or StoreError(
                store, f"the answer cannot be read: {type(source).__name__}"
            )
        case QdrantException():
            return StoreUnavailable(store, "Qdrant refuses work for now; try again")
        case TimeoutError() | httpx.TimeoutException():
            return StoreTimeout(store, "Qdrant did not answer in time; try again, or raise 'timeout'")
        case httpx.TransportError():
            return _unreachable(store, error)
        case (
            httpx.HTTPError()
            | httpx.InvalidURL()
            | httpx.StreamError()
            | httpx.CookieConflict()
            | ApiException()
        ):
            return StoreError(store, f"the request to Qdrant failed ({type(error).__name__})")
        case _:
            return None


def _unreachable(store: str, error: httpx.TransportError) -> StoreError:
    if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
        ended = f"the connection ended without an answer in HTTP ({type(error).__name__})"
        return StoreUnavailable(
            store, f"{ended}: if Qdrant is up, this port is not its HTTP port (6333 by default)"
        )
    return StoreUnavailable(
        store, f"Qdrant cannot be reached: {explain_unreachable(error)}; check the URL and the server"
    )


def _response(store: str, error: UnexpectedResponse) -> StoreError:
    status, said = error.status_code or 0, _server_message(error)
    if status in _REFUSED:
        return StoreError(store, "Qdrant refuses the key: correct the option api_key")
    if status in _TIMEOUTS:
        return StoreTimeout(store, "Qdrant did not answer in time; try again, or raise 'timeout'")
    if status in _BUSY:
        return StoreUnavailable(store, f"Qdrant refuses work for now (status {status}); try again")
    text = said.lower()
    if status == _FULL or (status >= _INTERNAL and _mentions(text, _FULL_TEXTS)):
        return StoreFull(store, f"Qdrant has no room left ({said})")
    if status >= _INTERNAL and _mentions(text, _LATE_TEXTS):
        return StoreTimeout(store, f"Qdrant did not finish in time ({said})")
    if status >= _INTERNAL and _mentions(text, _AWAY_TEXTS):
        return StoreUnavailable(
            store,
            f"a node of Qdrant is down ({said}); if it stays down, remove its replicas and replicate again",
        )
    return StoreError(store, f"Qdrant answered with status {status}: {said}")


def _mentions(text: str, signs: tuple[str, ...]) -> bool:
    return any(sign in text for sign in signs)


def _server_message(error: UnexpectedResponse) -> str:
    """Return the server's description of the error, shortened."""
    try:
        said = json.loads(error.content)["status"]["error"]
    except (ValueError, KeyError, TypeError):
        said = error.reason_phrase
    return " ".join(str(said).split())[:300]
