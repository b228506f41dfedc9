"""A server that is dead, frozen, too slow, too old, or refuses: each is a failure of
its kind, in time, and never shows the key.
"""

from __future__ import annotations

import asyncio
import json
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx
import pytest
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from memory.adapters.qdrant.client_errors import UnconfirmedWrite, translate_client
from memory.adapters.qdrant.store import QdrantStore
from memory.domain.errors import (
    ConfigError,
    InvalidInput,
    StoreError,
    StoreFull,
    StoreTimeout,
    StoreUnavailable,
)
from memory.ports.contract.cells import cells
from memory.ports.contract.collections import DECLARED

pytestmark = pytest.mark.backend("qdrant_local")
KEY = "kept-to-ourselves"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def _server(serve: Serve) -> AsyncIterator[int]:
    """A server of our own on a free port."""
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await serve(reader, writer)
        except (asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.read(-1)
    await asyncio.sleep(60)


async def _trickling(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    for _ in range(600):
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.1)


def _answering(status: int, body: object) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        said = json.dumps(body).encode()
        writer.write(
            b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            % (status, len(said))
            + said
        )
        await writer.drain()

    return serve


def _store(port: int, patience: int) -> QdrantStore:
    return QdrantStore(f"qdrant://127.0.0.1:{port}?timeout={patience}", name="far", api_key=KEY)


async def _failure(port: int, patience: int = 60) -> Exception:
    """What opening raises; its text never has the key in it."""
    begun = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # qdrant-client warns of a key without TLS, rightly
        with pytest.raises((StoreError, ConfigError)) as caught:
            await _store(port, patience).open(DECLARED)
    assert time.monotonic() - begun < 30
    assert KEY not in str(caught.value) + repr(caught.value)
    return caught.value


@pytest.mark.parametrize("serve", [_silent, _trickling], ids=["silent", "a byte at a time"])
async def test_a_server_that_does_not_answer_is_a_timeout(serve: Serve) -> None:
    async with _server(serve) as port:
        assert isinstance(await _failure(port, patience=1), StoreTimeout)


async def test_a_server_that_is_not_there_is_unavailable_and_may_be_there_later() -> None:
    async with _server(_silent) as port:
        pass
    failure = await _failure(port)
    assert type(failure) is StoreUnavailable
    assert failure.retryable


@pytest.mark.parametrize("version", ["1.15.5", "1.18.9"])
async def test_a_server_too_old_to_keep_conditions_is_refused(version: str) -> None:
    async with _server(_answering(200, {"title": "qdrant", "version": version})) as port:
        failure = await _failure(port)
    assert isinstance(failure, ConfigError)
    assert version in str(failure)
    assert "1.19" in str(failure)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, StoreError),
        (403, StoreError),
        (429, StoreUnavailable),
        (503, StoreUnavailable),
        (504, StoreTimeout),
        (500, StoreError),
    ],
)
async def test_refusals_are_told_apart(status: int, kind: type[StoreError]) -> None:
    async with _server(_answering(status, {"status": {"error": "no"}})) as port:
        assert type(await _failure(port)) is kind


async def test_an_answer_that_is_no_answer_is_an_error() -> None:
    async with _server(_answering(200, ["what"])) as port:
        assert type(await _failure(port)) is StoreError


def _response(status: int, said: str) -> UnexpectedResponse:
    return UnexpectedResponse(
        status, "reason", json.dumps({"status": {"error": said}}).encode(), httpx.Headers({"api-key": KEY})
    )


@cells(
    "error, kind",
    [
        (_response(500, "No space left on device"), StoreFull),
        (_response(507, "full"), StoreFull),
        (_response(400, "bad"), StoreError),
        (ResponseHandlingException(httpx.ReadTimeout("late")), StoreTimeout),
        (ResponseHandlingException(httpx.ConnectError("gone")), StoreUnavailable),
        (ResponseHandlingException(httpx.RemoteProtocolError("cut")), StoreUnavailable),
        (ResponseHandlingException(ValueError("what")), StoreError),
        (TimeoutError(), StoreTimeout),
        (UnconfirmedWrite("cannot be told"), StoreTimeout),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "x"), InvalidInput),
    ],
    ids=lambda case: repr(case[0])[:60],
    shared=True,
)
def test_every_error_of_the_driver_is_one_of_ours(error: Exception, kind: type[Exception]) -> None:
    ours = translate_client("far", error)
    assert type(ours) is kind
    assert KEY not in str(ours)


def test_what_is_not_the_drivers_stays_what_it_is() -> None:
    assert translate_client("far", KeyError("x")) is None
