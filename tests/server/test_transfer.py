"""Exports and imports over HTTP, as streams."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn

from memory import Memory
from tests.server.api import Api, open_api
from tests.server.support import Client

EXPORT, IMPORT = "/v1/admin/export", "/v1/admin/import"
LINES = {"Content-Type": "application/jsonl"}


async def fill(memory: Memory) -> None:
    first = await memory.write("Ada likes tea", scope="user:ada", tags=["drink"])
    await memory.update(first.id, content="Ada likes green tea")
    second = await memory.write("Bob likes coffee", scope="user:bob")
    await memory.relations.relate(second.id, "supports", first.id)
    await memory.session("trip", user="ada").append({"role": "user", "content": "hello"})
    await memory.artifacts.put("trip", "a.bin", bytes(300_000))
    await memory.documents.put("user:ada", "settings", {"theme": "dark"})
    await memory.documents.put("user:ada", "bytes", b"\x00\xff")
    await memory.scratchpads.append("a note")


async def lines_of(client: Client, query: str = "") -> list[Any]:
    response = await client.answer("GET", f"{EXPORT}{query}")
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/jsonl"
    return [json.loads(line) for line in response.text.splitlines()]


async def test_an_export_of_one_tenant_is_imported_into_another(api: Api) -> None:
    await fill(api.memory)
    acme, other = api.client("admin"), api.client("admin", "globex")
    exported = await acme.answer("GET", EXPORT)
    assert [json.loads(line) for line in exported.text.splitlines()] == [
        line async for line in api.memory.admin.export()
    ]
    report = await other.call("POST", f"{IMPORT}?name=acme.jsonl", content=exported.content, headers=LINES)
    assert (report["file"], report["imported"], report["sessions"]) == ("acme.jsonl", 2, 1)
    assert report["artifacts"] == 1
    memory = api.memory.for_tenant("globex")
    assert {one.content for one in await memory.browse()} == {"Ada likes green tea", "Bob likes coffee"}
    assert await memory.artifacts.read(("trip", "a.bin")) == bytes(300_000)
    found = await memory.documents.get("user:ada", "bytes")
    assert found is not None
    assert found.value == b"\x00\xff"
    again = await other.call("POST", IMPORT, content=exported.content, headers=LINES)
    assert (again["imported"], again["already_there"]) == (0, 2)


async def test_a_part_is_exported_by_scope_and_filter(api: Api) -> None:
    await fill(api.memory)
    admin = api.client("admin")
    kinds = {line["format"] for line in await lines_of(admin, "?scope=user:bob")}
    assert kinds == {"memory-entry/3"}
    tagged = await lines_of(admin, '?filter={"tags": ["drink"]}')
    assert [line["content"] for line in tagged if line["format"] == "memory-entry/3"] == [
        "Ada likes green tea"
    ]
    assert await lines_of(api.client("admin", "globex")) == []
    for query, field in (
        ("?scope=wizard:x", "scope"),
        ("?filter=x", "filter"),
        ("?scop=user:ada", "scop"),
    ):
        refused = await admin.call("GET", f"{EXPORT}{query}", 400)
        assert [one["field"] for one in refused["errors"]] == [field]


async def test_a_bad_line_imports_nothing(api: Api) -> None:
    admin = api.client("admin")
    body = b'{"role": "user", "content": "hello"}\nno json\n'
    refused = await admin.call("POST", f"{IMPORT}?scope=user:ada", 400, content=body, headers=LINES)
    assert "2" in refused["detail"]
    assert await api.memory.browse() == []
    report = await admin.call("POST", f"{IMPORT}?scope=user:ada&skip_bad=true", content=body, headers=LINES)
    assert (report["imported"], report["skipped_lines"]) == (1, [2])
    await admin.call("POST", f"{IMPORT}?same_ids=true&revive=true", 400, content=b"", headers=LINES)
    await admin.call("POST", f"{IMPORT}?skipbad=true", 400, content=b"", headers=LINES)


async def test_an_import_is_a_stream_of_any_length(api: Api) -> None:
    """It is larger than the limit of other bodies, and arrives in pieces."""

    async def body() -> AsyncIterator[bytes]:
        for number in range(300):
            line = json.dumps({"role": "user", "content": f"{number} " + "x" * 40_000}) + "\n"
            for at in range(0, len(line), 30_000):
                yield line[at : at + 30_000].encode()

    report = await api.client("admin").call("POST", f"{IMPORT}?scope=user:ada", content=body(), headers=LINES)
    assert report["imported"] == 300


class _Server(uvicorn.Server):
    """A server that says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listens.set()


async def test_a_client_that_goes_away_ends_its_export(tmp_path: Path) -> None:
    """The generator of the export is closed, and the memory closes at once."""
    async with open_api(f"sqlite:///{tmp_path / 'memory.db'}") as api:
        await api.memory.session("trip").append({"role": "user", "content": "hello"})
        await api.memory.artifacts.put("trip", "large.bin", os.urandom(16 * 2**20))
        server = _Server(uvicorn.Config(api.app, port=0, lifespan="off", log_config=None))
        serving = asyncio.create_task(server.serve())
        await server.listens.wait()
        port = server.servers[0].sockets[0].getsockname()[1]
        before = asyncio.all_tasks()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            f"GET {EXPORT} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer admin acme\r\n\r\n".encode()
        )
        assert (await reader.read(1000)).startswith(b"HTTP/1.1 200")
        exporting = asyncio.all_tasks() - before
        writer.transport.abort()
        assert exporting
        assert not (await asyncio.wait(exporting, timeout=60))[1]
        server.should_exit = True
        with suppress(asyncio.CancelledError):
            await serving


async def test_a_client_that_leaves_an_export_is_sent_nothing_more(api: Api) -> None:
    """A server takes what it sends to such a client at once, and so does a fast client."""
    for number in range(40):
        await api.memory.documents.put("user:ada", f"doc/{number}", {"text": "x" * 100_000})
    request = [{"type": "http.request", "body": b"", "more_body": False}]
    sent, left = list[Any](), asyncio.Event()

    async def receive() -> Any:
        if request:
            return request.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        if message.get("body"):
            left.set()

    headers = [(b"host", b"localhost"), (b"authorization", b"Bearer admin acme")]
    scope = {"type": "http", "method": "GET", "path": EXPORT, "query_string": b"", "headers": headers}
    await asyncio.wait_for(api.app(scope, receive, send), 60)
    assert 2 <= len(sent) < 6
