"""The client's errors as ours, most specific first. Nothing of a request, where the key stands, gets into a message."""

from __future__ import annotations

import json

import httpx
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from memory.domain.errors import InvalidInput, StoreError, StoreFull, StoreTimeout, StoreUnavailable

_REFUSED = (401, 403)
_TIMEOUTS = (408, 504)
_BUSY = (429, 502, 503)
_FULL = 507


class Unconfirmed(Exception):
    """A write of which cannot be told whether it was made."""


def translate_client(store: str, error: Exception) -> Exception | None:
    match error:
        case UnicodeEncodeError():
            return InvalidInput("text", "holds half of a surrogate pair, which is no character")
        case Unconfirmed():
            return StoreTimeout(store, str(error))
        case UnexpectedResponse():
            return _response(store, error)
        case ResponseHandlingException():
            return translate_client(store, error.source) or StoreError(store, f"the answer cannot be read: {type(error.source).__name__}")
        case TimeoutError() | httpx.TimeoutException():
            return StoreTimeout(store, "Qdrant did not answer in time")
        case httpx.TransportError():
            return StoreUnavailable(store, f"Qdrant cannot be reached ({type(error).__name__})")
        case httpx.HTTPError():
            return StoreError(store, f"Qdrant cannot be asked ({type(error).__name__})")
        case _:
            return None


def _response(store: str, error: UnexpectedResponse) -> StoreError:
    status, said = error.status_code, _said(error)
    if status in _REFUSED:
        return StoreError(store, "Qdrant refuses the key: set the option api_key")
    if status in _TIMEOUTS:
        return StoreTimeout(store, "Qdrant did not answer in time")
    if status in _BUSY:
        return StoreUnavailable(store, f"Qdrant refuses work for now (status {status})")
    if status == _FULL or "no space left" in said.lower() or "disk" in said.lower():
        return StoreFull(store, f"Qdrant has no room left ({said})")
    return StoreError(store, f"Qdrant answered with status {status}: {said}")


def _said(error: UnexpectedResponse) -> str:
    """What the server says is wrong, in short."""
    try:
        said = json.loads(error.content)["status"]["error"]
    except (ValueError, KeyError, TypeError):
        said = error.reason_phrase
    return " ".join(str(said).split())[:200]
