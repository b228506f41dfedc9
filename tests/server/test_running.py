"""A real `memory serve`: its address, a graceful stop, slow clients, kills under load."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from memory.cli.main import app
from memory.facade.memory import Memory
from tests.server.load import Load, connected
from tests.server.serving import LOADED, Server, serving
from tests.server.support import ENTRIES
from tests.server.test_mcp_mount import LISTEN

pytestmark = pytest.mark.backend("sqlite")
BODY = {"scope": "user:ada", "content": "fact"}


def received(connection: socket.socket) -> bytes:
    """All that the server sends until it closes the connection."""
    found = b""
    while piece := connection.recv(65_536):
        found += piece
    return found


def listen(server: Server) -> socket.socket:
    """A client of MCP that waits for notifications, once the server has accepted it."""
    body = json.dumps(LISTEN).encode()
    connection = server.connect()
    connection.sendall(
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n"
        b"Mcp-Method: subscriptions/listen\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    )
    found = b""
    while b"subscriptions/acknowledged" not in found:
        piece = connection.recv(65_536)
        assert piece, found
        found += piece
    return connection


def test_a_server_says_where_it_listens_refuses_the_slow_and_stops_when_asked(tmp_path: Path) -> None:
    given = {"MEMORY__SERVER__HEADER_TIME": "2s", "MEMORY__SERVER__ROOT_PATH": "/memory"}
    with serving(tmp_path, "--access-log", **given) as server:
        with httpx.Client(base_url=server.url) as http:
            made = http.post(ENTRIES, json=BODY)
            got, head = (http.request(method, f"{ENTRIES}?limit=1") for method in ("GET", "HEAD"))
            assert (head.status_code, head.content) == (200, b"")
            assert head.headers["content-length"] == str(len(got.content))
            assert made.status_code == 201
            assert made.headers["location"] == f"/memory{ENTRIES}/{made.json()['id']}"
            assert "server" not in made.headers
            assert http.get("/openapi.json").json()["openapi"] == "3.1.0"
        stalled = [server.connect() for _ in range(24)]
        for one in stalled:
            one.sendall(b"GET /v1/memory/entries HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        slow = server.connect()
        slow.sendall(
            b"POST /v1/memory/entries HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b'Content-Length: 100\r\n\r\n{"scope"'
        )
        listener = listen(server)
        odd = server.connect()
        odd.sendall(b"this is no HTTP\r\n\r\n")
        with httpx.Client(base_url=server.url) as http:
            assert http.get(ENTRIES).status_code == 200
        for one in (*stalled, slow):
            answer = received(one)
            assert answer.startswith(b"HTTP/1.1 408 "), answer
            assert b"application/problem+json" in answer
            one.close()
        assert received(odd).startswith(b"HTTP/1.1 400 ")
        odd.close()
        assert server.end() == 0
        received(listener)
        listener.close()
    log = server.log.read_text()
    assert "graceful shutdown exceeded" not in log  # nobody waits for the listener
    assert "Traceback" not in log
    assert f" POST /memory{ENTRIES} 201 " in log
    assert f" HEAD /memory{ENTRIES} 200 " in log
    assert "limit" not in log


def test_models_without_an_advisor_are_refused_at_the_start(tmp_path: Path) -> None:
    refused = CliRunner().invoke(
        app,
        ["--config", f"sqlite:///{tmp_path}/memory.db", "serve", "--dev", "--port", "0"],
        env={"MEMORY__SERVER__MODELS": '["m"]'},
    )
    assert refused.exit_code != 0
    assert "server.models" in refused.stderr
    assert "advisor=" in refused.stderr


async def test_a_stop_lets_running_requests_end(tmp_path: Path) -> None:
    with serving(tmp_path, "--grace", "20s") as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            many = {"entries": [{**BODY, "content": f"fact {n}"} for n in range(400)]}
            running = asyncio.create_task(http.post(f"{ENTRIES}/batch", json=many))
            while (await http.get("/health/live")).status_code != 200:
                pass
            stopped = asyncio.create_task(asyncio.to_thread(server.end))
            answer: httpx.Response | None = None
            with suppress(httpx.TransportError):  # it had not begun
                answer = await running
            assert await stopped == 0
        if answer is not None:
            assert answer.status_code == 201
            async with Memory(f"sqlite:///{tmp_path}/memory.db") as memory:
                assert len(await memory.retrieve("user:ada", limit=1000)) == 400


async def write_until_stored(
    http: httpx.AsyncClient, url: list[str], number: int, attempts: list[int]
) -> str:
    """Write one entry, again with its key until an answer comes; its id."""
    key = {"Idempotency-Key": f"write-{number}"}
    while True:
        attempts[number] += 1
        try:
            given = {**BODY, "content": f"fact {number}"}
            answer = await http.post(url[0] + ENTRIES, json=given, headers=key)
        except httpx.TransportError:
            await asyncio.sleep(0.05)
            continue
        if answer.status_code == 201:
            return str(answer.json()["id"])
        assert answer.status_code in (409, 429, 503), answer.text
        await asyncio.sleep(0.05)


async def write_under_kills(folder: Path, writes: int, kills: int) -> tuple[list[str], list[int]]:
    """Write from many clients while the server is killed and started again."""
    server, done = Server(folder), asyncio.Semaphore(0)
    url, attempts, places = [server.url], [0] * writes, asyncio.Semaphore(20)
    http = httpx.AsyncClient(timeout=30)

    async def write(number: int) -> str:
        async with places:
            try:
                return await write_until_stored(http, url, number, attempts)
            finally:
                done.release()

    writing = [asyncio.create_task(write(number)) for number in range(writes)]
    try:
        for _ in range(kills):
            for _ in range(writes // (kills + 1)):
                await done.acquire()
            await asyncio.to_thread(server.end, signal.SIGKILL)
            server = await asyncio.to_thread(Server, folder)
            url[0] = server.url
        return await asyncio.gather(*writing), attempts
    finally:
        await asyncio.to_thread(server.end)
        await http.aclose()


@pytest.mark.parametrize(("writes", "kills"), [(40, 1), pytest.param(200, 5, marks=pytest.mark.nightly)])
async def test_no_write_is_lost_or_doubled_by_kills_under_load(
    tmp_path: Path, writes: int, kills: int
) -> None:
    ids, attempts = await write_under_kills(tmp_path, writes, kills)
    assert sum(attempts) >= writes
    async with Memory(f"sqlite:///{tmp_path}/memory.db") as memory:
        stored: dict[str, Any] = {one.id: one.content async for one in memory.entries.iterate()}
    assert {stored[one] for one in ids} == {f"fact {number}" for number in range(writes)}
    assert len(stored) == writes


@pytest.mark.nightly
async def test_stalled_and_slow_clients_keep_nobody_from_an_answer(tmp_path: Path) -> None:
    head = b"POST /v1/memory/entries HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    body = b'{"scope": "user:slow", "content": "slow"}'
    with serving(tmp_path, MEMORY__SERVER__HEADER_TIME="1h", **LOADED) as server:
        stalled, slow = [[server.connect() for _ in range(24)] for _ in range(2)]
        for one in stalled:
            one.sendall(head)
        for one in slow:
            one.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body))
        async with connected() as http:
            load = Load(http, [server.url], None, repeats=False)
            running = asyncio.create_task(load.run())
            for at in range(len(body)):
                for one in slow:
                    one.sendall(body[at : at + 1])
                await asyncio.wait_for(load.reaches(10), 300)
            load.end()
            await asyncio.wait_for(running, 300)
            await load.check(whole=True)
        assert (load.breaks, load.refused) == (0, {})
        for one in slow:
            assert one.recv(65_536).startswith(b"HTTP/1.1 201 ")
        for one in (*stalled, *slow):
            one.close()
        assert server.end() == 0


@pytest.mark.nightly
async def test_clients_that_leave_in_mid_write_leave_whole_entries_or_none(tmp_path: Path) -> None:
    head = b"POST /v1/memory/entries HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    with serving(tmp_path) as server:
        for number in range(100):
            body = b'{"scope": "user:ada", "content": "fact %d", "title": "whole"}' % number
            connection = server.connect()
            cut = len(body) if number % 2 else number % len(body)
            connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body[:cut])
            connection.close()
        async with httpx.AsyncClient(base_url=server.url) as http:
            for _ in range(100):
                answer = await http.get(ENTRIES, params={"limit": 1000})
                if answer.status_code != 429:  # the calls of those that left may still be ending
                    break
                await asyncio.sleep(0.1)
            assert answer.status_code == 200, answer.text
            found = answer.json()["entries"]
        assert server.end() == 0
    assert len(found) <= 50
    assert all(one["title"] == "whole" for one in found)
