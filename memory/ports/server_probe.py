"""Detects the kind of server at a port, for error messages about a wrong server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from memory.domain.errors import ConfigError
from memory.ports.concurrency import each_at_once

T = TypeVar("T")

_PATIENCE = 1.5
"""Seconds after which the right server would have answered."""
_A_WORD = 0.5
"""Seconds that a server gets for its first bytes."""
_ASKED = (b"", b"PING\r\n", b"\x00\x00\x00\x08\x04\xd2\x16\x2f", b"GET / HTTP/1.0\r\n\r\n")
"""The first messages that make each kind of server answer.

They are nothing, a Redis command, PostgreSQL's request for encryption, and a browser's
request.
"""
_KNOWN = {
    "Redis": "redis://",
    "PostgreSQL": "postgresql://",
    "MySQL or MariaDB": "mysql://",
    "MongoDB": "mongodb://",
}


async def expect_server(
    kind: str,
    store: str,
    host: str,
    port: int,
    opening: Awaitable[T],
    refused: Callable[[BaseException], bool],
    let_go: Callable[[T], object] = lambda _: None,
) -> T:
    """Return the result of opening a store, or name the wrong server in an error.

    The server is probed if the opening fails or takes long, so the error comes soon.

    Args:
        refused: Returns whether a server of the right kind answered with this error.
        let_go: Releases a result that arrived when the caller was cancelled.
    """
    work = asyncio.ensure_future(opening)
    try:
        await asyncio.wait((work,), timeout=_PATIENCE)
        if work.done() and ((error := work.exception()) is None or refused(error)):
            return work.result()
        answers = await what_answers(host, port)
        if answers and answers != kind:
            scheme = f"begin the URL with {_KNOWN[answers]}" if answers in _KNOWN else "look at the URL"
            raise ConfigError(
                f"store '{store}': at {host}:{port} {answers} answers, not {kind}; name another port, or"
                f" {scheme}"
            )
        return await work
    except BaseException:
        if work.done() and not work.cancelled() and work.exception() is None:
            let_go(work.result())
        raise
    finally:
        if not work.done():
            work.cancel()
            await asyncio.wait((work,))
        elif not work.cancelled():
            work.exception()


async def what_answers(host: str, port: int) -> str:
    """Return the kind of server; empty if nothing answers or the kind is unknown.

    The probe sends no name and no password.
    """
    if host.startswith("/"):
        return ""
    first, ping, encrypted, web = await each_at_once(
        _try_probe(host, port, asked) for asked in _ASKED
    )  # at once: a frozen server costs one wait
    if len(first) > 5 and first[4:5] in (b"\x0a", b"\xff") and first[3:4] == b"\x00":
        return "MySQL or MariaDB"
    if ping.startswith((b"+PONG", b"-NOAUTH", b"-DENIED", b"-ERR", b"-LOADING")):
        return "Redis"
    if encrypted in (b"S", b"N"):
        return "PostgreSQL"
    if b"MongoDB" in web:
        return "MongoDB"
    if web.startswith(b"HTTP/"):
        return "a web server"
    return ""


async def _try_probe(host: str, port: int, asked: bytes) -> bytes:
    """Probe, and return nothing if the server does not answer."""
    with contextlib.suppress(OSError, TimeoutError):
        return await _probe(host, port, asked)
    return b""


async def _probe(host: str, port: int, asked: bytes) -> bytes:
    """Return the server's first bytes; empty if none arrive in time."""
    async with asyncio.timeout(2 * _A_WORD):
        reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(asked)
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_A_WORD):
                return await reader.read(512)
        return b""
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
