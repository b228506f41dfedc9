"""Large bodies that are refused unread: every client gets the answer, and none hangs."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from memory.facade.memory import Memory
from memory.server.connections import PatientProtocol
from tests.server.callers import key_server
from tests.server.support import ENTRIES

pytestmark = pytest.mark.backend("sqlite")
SIZE = 20_000_000
Sender = Callable[[str, str, dict[str, str], Path], int]
HEAD = "POST /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


class Listening(NamedTuple):
    """Where an application listens, and the connections that it has."""

    url: str
    connections: Collection[object]


@asynccontextmanager
async def listening(app: FastAPI, protocol: type[PatientProtocol]) -> AsyncIterator[Listening]:
    """The application under uvicorn, in this process."""
    config = uvicorn.Config(app, port=0, http=protocol, log_config=None, lifespan="off", ws="none")
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    host, port = server.servers[0].sockets[0].getsockname()
    try:
        yield Listening(f"http://{host}:{port}", server.server_state.connections)
    finally:
        await server.shutdown()


def with_httpx(method: str, url: str, headers: dict[str, str], file: Path) -> int:
    with httpx.Client(trust_env=False) as http:
        return http.request(method, url, headers=headers, content=file.read_bytes()).status_code


def with_httpx_in_pieces(method: str, url: str, headers: dict[str, str], file: Path) -> int:
    def pieces() -> Iterator[bytes]:
        with file.open("rb") as opened:
            while piece := opened.read(65_536):
                yield piece

    with httpx.Client(trust_env=False) as http:
        return http.request(method, url, headers=headers, content=pieces()).status_code


def with_urllib(method: str, url: str, headers: dict[str, str], file: Path) -> int:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        asked = urllib.request.Request(url, file.read_bytes(), headers, method=method)  # noqa: S310
        return int(opener.open(asked).status)
    except urllib.error.HTTPError as error:
        return error.code


def with_socket(method: str, url: str, headers: dict[str, str], file: Path) -> int:
    """Send all of it before any of the answer is read."""
    address, _, path = url.removeprefix("http://").partition("/")
    lines = [f"{method} /{path} HTTP/1.1", f"Host: {address}", f"Content-Length: {file.stat().st_size}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    with connected(address) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + file.read_bytes())
        return int(connection.makefile("rb").readline().split()[1])


def with_curl(*options: str) -> Sender:
    def send(method: str, url: str, headers: dict[str, str], file: Path) -> int:
        words = ["curl", "-s", "--noproxy", "*", "-X", method, "-o", "/dev/null", "-w", "%{http_code}"]
        for name, value in headers.items():
            words += ["-H", f"{name}: {value}"]
        done = subprocess.run(
            [*words, *options, "--data-binary", f"@{file}", url], capture_output=True, check=True
        )
        return int(done.stdout)

    return send


def connected(address: str) -> socket.socket:
    host, _, port = address.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=60)


CLIENTS: list[Sender] = [with_httpx, with_httpx_in_pieces, with_urllib, with_socket]
if shutil.which("curl"):
    CLIENTS += [with_curl("-H", header) for header in ("Expect:", "Expect: 100-continue")]
    CLIENTS += [with_curl("-H", "Transfer-Encoding: chunked")]


async def test_every_client_gets_the_answer_to_a_body_that_is_not_read(
    memory: Memory, tmp_path: Path
) -> None:
    (file := tmp_path / "body").write_bytes(b"x" * SIZE)
    async with key_server(memory) as server, listening(server.app, PatientProtocol) as at:
        bearer = {"Authorization": f"Bearer {await server.key('default', 'writer')}"}
        json, octets = {"Content-Type": "application/json"}, {"Content-Type": "application/octet-stream"}
        for status, method, path, headers in (
            (401, "POST", ENTRIES, json),
            (404, "POST", "/v1/nowhere", {**json, **bearer}),
            (405, "PUT", ENTRIES, {**json, **bearer}),
            (413, "POST", ENTRIES, {**json, **bearer}),
            (415, "POST", ENTRIES, {"Content-Type": "text/plain", **bearer}),
            (404, "PUT", "/v1/memory/artifacts?session_id=none&path=a", {**octets, **bearer}),
        ):
            for send in CLIENTS if status in (401, 413) else [with_socket]:
                got = await asyncio.to_thread(send, method, at.url + path, headers, file)
                assert got == status, (method, path, send)


async def test_a_client_that_waits_for_100_gets_the_refusal_instead(memory: Memory) -> None:
    async with key_server(memory) as server, listening(server.app, PatientProtocol) as at:
        with connected(at.url) as connection:
            connection.sendall(f"{HEAD}Expect: 100-continue\r\nContent-Length: {SIZE}\r\n\r\n".encode())
            answer = await asyncio.to_thread(connection.makefile("rb").read)
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"connection: close" in answer


class Limited(PatientProtocol):
    """A protocol with no limit but those that a test sets."""

    idle_linger, longest_linger, most_discarded = 3600.0, 3600.0, 1 << 40


@pytest.mark.parametrize(
    "limit", [{"idle_linger": 0.2}, {"longest_linger": 0.2}, {"most_discarded": 1 << 20}]
)
async def test_a_refused_client_that_does_not_leave_is_cut_off(
    memory: Memory, limit: dict[str, float]
) -> None:
    def send_until_the_end(connection: socket.socket) -> None:
        with suppress(ConnectionError):
            while True:
                connection.sendall(b"x" * 65_536)

    protocol = type("_Protocol", (Limited,), limit)
    async with key_server(memory) as server, listening(server.app, protocol) as at:
        with connected(at.url) as connection:
            connection.sendall(f"{HEAD}Content-Length: {1 << 50}\r\n\r\n".encode())
            if "idle_linger" not in limit:
                await asyncio.to_thread(send_until_the_end, connection)
            while at.connections:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0.01)


async def test_a_stop_waits_for_no_client_that_was_refused(memory: Memory) -> None:
    async with key_server(memory) as server:
        async with listening(server.app, Limited) as at:
            connection = connected(at.url)
            connection.sendall(f"{HEAD}Content-Length: {SIZE}\r\n\r\n".encode())
            answer = await asyncio.to_thread(connection.makefile("rb").readline)
        connection.close()
    assert answer.startswith(b"HTTP/1.1 401 ")


async def test_a_damaged_body_ends_a_request_that_reads_it(memory: Memory) -> None:
    """The route is told that its client is gone, and does not wait for the rest."""
    async with key_server(memory) as server, listening(server.app, Limited) as at:
        key = await server.key("default", "writer")
        with connected(at.url) as connection:
            head = f"{HEAD}Authorization: Bearer {key}\r\n".replace("/nowhere", ENTRIES)
            connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n1\r\n{{\r\n".encode())
            await asyncio.sleep(0.1)
            connection.sendall(b"no chunk\r\n")
            answer = await asyncio.to_thread(connection.makefile("rb").read)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1
