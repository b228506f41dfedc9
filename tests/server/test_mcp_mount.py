"""MCP over HTTP: the official client, keys of tenants and scopes, hostile requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from starlette.types import Message

from memory import Forbidden, Memory, Scope
from tests.server.callers import BASE, KeyServer, key_server
from tests.server.serving import serving
from tests.server.support import client_of

MODES = ["2026-07-28", "legacy"]
ACCEPT = {"Accept": "application/json, text/event-stream"}


LISTEN = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "subscriptions/listen",
    "params": {
        "notifications": {"toolsListChanged": True},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    },
}


@pytest.fixture
async def memory() -> AsyncIterator[Memory]:
    async with Memory("memory://") as opened:
        yield opened


@asynccontextmanager
async def client(server: KeyServer, key: str, mode: Any = "auto") -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {key}"}
    transport = httpx2.ASGITransport(server.app)
    async with (
        httpx2.AsyncClient(transport=transport, base_url=BASE, headers=headers) as http,
        Client(streamable_http_client(f"{BASE}/mcp", http_client=http), mode=mode) as opened,
    ):
        yield opened


async def add(client: Client, content: str) -> Any:
    result = await client.call_tool("add_memory", {"content": content})
    assert not result.is_error, result.content
    return result.structured_content["entry"]["id"]


async def contents(client: Client) -> list[str]:
    result = await client.call_tool("list_memories", {})
    return [one["content"] for one in result.structured_content["entries"]]


async def id_of(server: KeyServer, key: str) -> str:
    """The id of a key."""
    found = await server.keys.verify(key)
    assert found is not None
    return found.id


def call_of(tool: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


@pytest.mark.parametrize("mode", MODES)
async def test_the_official_client_writes_with_the_provenance_of_its_key(memory: Memory, mode: str) -> None:
    async with key_server(memory) as server:
        key = await server.key("acme", "writer", "user:ada")
        async with client(server, key, mode) as ada:
            listed = await ada.list_tools()
            if mode != "legacy":
                assert (listed.ttl_ms, listed.cache_scope) == (0, "private")
            entry_id = await add(ada, "Ada likes tea")
            assert await contents(ada) == ["Ada likes tea"]
            read = await ada.read_resource(f"memory://entries/{entry_id}")
            assert "Ada likes tea" in read.contents[0].text  # type: ignore[union-attr]
        (entry,) = await memory.for_tenant("acme").browse()
        assert (entry.scope, entry.origins) == (Scope.user("ada"), [f"source:mcp:{await id_of(server, key)}"])


async def test_keys_of_two_tenants_and_two_scopes_never_see_each_other(memory: Memory) -> None:
    async with key_server(memory) as server:
        keys = [
            await server.key("acme", "writer", "user:ada"),
            await server.key("acme", "writer", "user:bo"),
            await server.key("other", "writer", "user:ada"),
        ]
        ids = []
        for number, key in enumerate(keys):
            async with client(server, key) as caller:
                ids.append(await add(caller, f"secret {number}"))
        for number, key in enumerate(keys):
            async with client(server, key) as caller:
                assert await contents(caller) == [f"secret {number}"]
                found = await caller.call_tool("search_memory", {"query": "secret"})
                assert [one["content"] for one in found.structured_content["entries"]] == [f"secret {number}"]
                missing = await caller.call_tool("get_memory", {"id": ids[number][:-4] + "0000"})
                for foreign in {*ids} - {ids[number]}:
                    result = await caller.call_tool("get_memory", {"id": foreign})
                    assert result.is_error
                    assert _without(result, foreign) == _without(missing, ids[number][:-4] + "0000")
                    changed = await caller.call_tool("update_memory", {"id": foreign, "content": "mine"})
                    assert changed.is_error
                    with pytest.raises(Exception, match="not found"):
                        await caller.read_resource(f"memory://entries/{foreign}")


def _without(result: Any, entry_id: str) -> str:
    return str(result.content[0].text.replace(entry_id, "ID"))


async def test_a_key_of_a_reader_reads_and_changes_nothing(memory: Memory) -> None:
    await memory.for_tenant("acme").write("Ada likes tea", scope="user:ada")
    async with key_server(memory) as server:
        key = await server.key("acme", "reader", "user:ada")
        async with client(server, key) as reader:
            assert await contents(reader) == ["Ada likes tea"]
            listed = [tool.annotations for tool in (await reader.list_tools()).tools]
            assert all(one is not None and one.read_only_hint for one in listed)
            refused = await reader.call_tool("add_memory", {"content": "x"})
            assert refused.is_error
            assert refused.content[0].text.startswith("unknown_tool: ")  # type: ignore[union-attr]
    assert len(await memory.for_tenant("acme").browse()) == 1


async def test_a_key_of_all_scopes_works_in_the_default_scope(memory: Memory) -> None:
    await memory.for_tenant("acme").write("of Bo", scope="user:bo")
    async with key_server(memory) as server, client(server, await server.key("acme", "operator")) as caller:
        await add(caller, "mine")
        assert await contents(caller) == ["mine"]
    assert {one.scope.text for one in await memory.for_tenant("acme").browse()} == {"user:bo", "user:default"}


async def test_a_key_of_a_subtree_writes_at_its_root(memory: Memory) -> None:
    async with key_server(memory) as server:
        key = await server.key("acme", "writer", "path:teams/red/**")
        async with client(server, key) as caller:
            await add(caller, "of the team")
            assert await contents(caller) == ["of the team"]
    (entry,) = await memory.for_tenant("acme").browse()
    assert entry.scope == Scope.path("teams", "red")


async def test_the_reference_profile_over_http(memory: Memory) -> None:
    async with key_server(memory, mcp_profile="reference") as server:
        ada, bo = [await server.key("acme", "writer", scope) for scope in ("user:ada", "user:bo")]
        entity = {"name": "Ada", "entityType": "person", "observations": ["likes tea"]}
        async with client(server, ada) as caller, client(server, bo) as other:
            await caller.call_tool("create_entities", {"entities": [entity]})
            assert (await caller.call_tool("read_graph", {})).structured_content == {
                "entities": [entity],
                "relations": [],
            }
            assert (await other.call_tool("open_nodes", {"names": ["Ada"]})).structured_content == {
                "entities": [],
                "relations": [],
            }


async def test_requests_without_a_valid_key_are_refused(memory: Memory) -> None:
    async with key_server(memory) as server:
        key = await server.key()
        for wrong in (None, "mt_x", key[:-1]):
            answer = await server.call(wrong, "POST", "/mcp", json=call_of("list_memories"), headers=ACCEPT)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


FOREIGN: list[tuple[dict[str, str], int]] = [
    ({"Origin": "http://evil.example"}, 403),
    ({"Origin": "null"}, 403),
    ({"Host": "evil.example"}, 421),
    ({"Host": "evil.example", "Origin": "http://evil.example"}, 421),
    ({"Host": "127.0.0.1.evil.example:80"}, 421),
    ({"Content-Type": "text/plain"}, 415),
    ({"Origin": BASE}, 200),
    ({"Host": "localhost:8080"}, 200),
]


async def test_pages_of_other_origins_reach_nothing(memory: Memory) -> None:
    async with key_server(memory) as server:
        key, body = await server.key(), json.dumps(call_of("add_memory", content="x")).encode()
        for more, status in FOREIGN:
            headers = {"Content-Type": "application/json", **ACCEPT, **more}
            answer = await server.call(key, "POST", "/mcp", content=body, headers=headers)
            assert answer.status_code == status, (more, answer.text)
    accepted = [status for _, status in FOREIGN if status == 200]
    assert len(await memory.for_tenant("acme").browse()) == len(accepted)


BODIES = [b"", b"x", b"[]", b"{}", b"null", b'"\xff"', b"[" * 100_000, b'{"method": []}']


async def test_malformed_bodies_are_errors_of_the_client(memory: Memory) -> None:
    async with key_server(memory) as server:
        key = await server.key()
        for body in BODIES:
            for version in ({}, {"MCP-Protocol-Version": "2026-07-28"}, {"MCP-Protocol-Version": "x"}):
                headers = {"Content-Type": "application/json", **ACCEPT, **version}
                answer = await server.call(key, "POST", "/mcp", content=body, headers=headers)
                assert 400 <= answer.status_code < 500, (body, answer.text)
                assert "Traceback" not in answer.text
        for method in ("GET", "DELETE", "PUT"):
            assert (await server.call(key, method, "/mcp", headers=ACCEPT)).status_code == 405


async def test_too_large_a_body_is_refused(memory: Memory) -> None:
    async with key_server(memory, body_bytes=2048) as server:
        body = call_of("add_memory", content="x" * 3000)
        answer = await server.call(await server.key(), "POST", "/mcp", json=body, headers=ACCEPT)
        assert answer.status_code == 413


async def test_the_audit_log_names_the_tool_and_no_content(memory: Memory) -> None:
    async with key_server(memory) as server:
        key, operator = await server.key(), await server.key("acme", "operator")
        for body in (
            call_of("add_memory", content="secret"),
            call_of("list_memories"),
            call_of("secret tool"),
        ):
            await server.call(key, "POST", "/mcp", json=body, headers=ACCEPT)
        await server.audit.flush()
        listed = await server.call(operator, "GET", "/v1/admin/audit")
        (record,) = [one for one in listed.json()["records"] if "/mcp" in one["action"]]
        assert record["action"] == "POST /mcp:add_memory"
        assert "secret" not in listed.text


async def test_the_audit_log_tells_refused_calls_from_changes_and_names_the_records(memory: Memory) -> None:
    async with key_server(memory) as server:
        ada, bob = [await server.key("acme", "writer", f"user:{one}") for one in ("ada", "bob")]
        reader, operator = [await server.key("acme", role) for role in ("reader", "operator")]
        async with client(server, ada) as opened:
            made, other = await add(opened, "tea"), await add(opened, "coffee")
        for key, arguments in (
            (reader, {"id": made}),
            (bob, {"id": made}),
            (ada, {"id": "user:ada marmalade"}),
            (ada, {"id": made, "version": 1}),
            (ada, {"id": ["odd"]}),
            (ada, {"id": made}),
        ):
            body = call_of("retire_memory", **arguments)
            await server.call(key, "POST", "/mcp", json=body, headers=ACCEPT)
        link = {"source_id": other, "relation": "refines", "target_id": made}
        await server.call(ada, "POST", "/mcp", json=call_of("link_memories", **link), headers=ACCEPT)
        await server.audit.flush()
        listed = await server.call(operator, "GET", "/v1/admin/audit")
        records = [one for one in listed.json()["records"] if "/mcp:" in one["action"]]
        retired = [one for one in records if one["action"].endswith("retire_memory")]
        assert [one["outcome"] for one in reversed(retired)] == [403, 404, 400, 400, 400, 200]
        assert [one["targets"] for one in retired if one["outcome"] in (403, 200)] == [[made]] * 2
        assert [one["targets"] for one in records if "link" in one["action"]] == [[other, made]]
        assert "marmalade" not in listed.text


async def test_the_audit_log_names_resources_that_are_read_and_refused(memory: Memory) -> None:
    async with key_server(memory, audit={"reads": True}) as server:
        ada, bob = [await server.key("acme", "writer", f"user:{one}") for one in ("ada", "bob")]
        operator = await server.key("acme", "operator")
        async with client(server, ada) as opened:
            made = await add(opened, "tea")
        uris = [f"memory://entries/{made}", "memory://sessions/marmalade"]
        for key, uri in [(ada, uris[0]), (bob, uris[0]), (bob, uris[1])]:
            body = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": uri}}
            await server.call(key, "POST", "/mcp", json=body, headers=ACCEPT)
        await server.audit.flush()
        listed = await server.call(operator, "GET", "/v1/admin/audit")
        records = [one for one in reversed(listed.json()["records"]) if "resources" in one["action"]]
        assert [one["action"] for one in records] == ["POST /mcp:resources/read"] * 3
        assert [one["outcome"] for one in records] == [200, 404, 404]
        assert [one["targets"] for one in records[:2]] == [[made]] * 2
        assert records[2]["targets"][0].startswith("session#")
        assert "marmalade" not in listed.text


async def test_a_blocked_key_changes_nothing_over_http_and_mcp(memory: Memory) -> None:
    async with key_server(memory) as server:
        key, admin = await server.key("acme", "writer", "user:ada"), await server.key("acme", "admin")
        async with client(server, key) as opened:
            made = await add(opened, "tea")
            body = {"source": f"key:{await id_of(server, key)}", "reason": "stolen"}
            blocked = await server.call(admin, "POST", "/v1/admin/blocked-sources", json=body)
            assert blocked.status_code in (200, 201), blocked.text
            assert "source:mcp:" in blocked.text
            said = [{"role": "user", "content": "x"}]
            for tool, arguments in (
                ("add_memory", {"content": "milk"}),
                ("append_messages", {"messages": said}),
                ("retire_memory", {"id": made}),
            ):
                result = await opened.call_tool(tool, arguments)
                assert result.meta is not None
                assert result.meta["memory-tiers/error"]["code"] == "rejected_by_gate", (tool, result.content)
            assert await contents(opened) == []
        entry = {"scope": "user:ada", "content": "milk"}
        for method, path, json in (
            ("POST", "/v1/memory/entries", entry),
            ("POST", "/v1/sessions", {"user": "ada"}),
            ("DELETE", f"/v1/memory/entries/{made}", None),
        ):
            answer = await server.call(key, method, path, json=json)
            assert (answer.status_code, answer.json()["code"]) == (403, "rejected_by_gate"), answer.text
        assert (await memory.for_tenant("acme").sessions.list()).sessions == []


async def test_a_revoked_key_ends_an_open_stream(memory: Memory) -> None:
    async with key_server(memory) as server:
        key, opened, sent = await server.key(), asyncio.Event(), list[Message]()
        body = [{"type": "http.request", "body": json.dumps(LISTEN).encode()}]

        async def receive() -> Message:
            if not body:
                await asyncio.Event().wait()  # the client stays
            return body.pop()

        async def send(message: Message) -> None:
            sent.append(message)
            if b"subscriptions/acknowledged" in message.get("body", b""):
                opened.set()

        headers = {
            "Authorization": f"Bearer {key}",
            "Content-Type": "application/json",
            "Content-Length": str(len(body[0]["body"])),
            "Host": "127.0.0.1",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "subscriptions/listen",
            **ACCEPT,
        }
        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "method": "POST", "path": "/mcp", "query_string": b"", "headers": raw}
        listening = asyncio.ensure_future(server.app(scope, receive, send))
        await asyncio.wait_for(opened.wait(), 30)
        await server.keys.revoke(await id_of(server, key))
        await asyncio.wait_for(listening, 30)
        assert sent[0]["status"] == 200
        again = await server.call(key, "POST", "/mcp", json=call_of("list_memories"), headers=ACCEPT)
        assert again.status_code == 401


async def test_for_development_no_key_is_needed(memory: Memory) -> None:
    async with client_of(memory) as http:
        answer = await http.http.post(
            "/mcp", json=call_of("add_memory", content="Ada likes tea"), headers=ACCEPT
        )
        assert answer.status_code == 200, answer.text
    (entry,) = await memory.browse()
    assert (entry.scope, entry.origins) == (Scope.user("ada"), ["source:mcp:dev"])


async def test_a_view_changes_the_channel_of_its_origin_and_not_the_actor(memory: Memory) -> None:
    view = memory.restrict(origin="key:one")
    await view.restrict(origin="mcp:one").write("x", scope="user:ada")
    for other in ("mcp:two", "key:two", "mcp:key:one"):
        with pytest.raises(Forbidden, match="origin"):
            view.restrict(origin=other)
    with pytest.raises(Forbidden, match="origin"):
        view.restrict(origin="mcp:one").restrict(origin="key:one")


async def add_under_kills(url: str, texts: list[str]) -> list[str]:
    """Add observations until the server dies, and return what it acknowledged."""
    stored: list[str] = []
    with contextlib.suppress(Exception):
        async with Client(f"{url}/mcp", mode="2026-07-28") as caller:
            for text in texts:
                contents = {"entityName": "Ada", "contents": [text]}
                result = await caller.call_tool("add_observations", {"observations": [contents]})
                stored += [] if result.is_error else [text]
    return stored


@pytest.mark.nightly
@pytest.mark.backend("sqlite")
async def test_a_killed_server_keeps_every_observation_that_it_acknowledged(tmp_path: Path) -> None:
    entity = {"name": "Ada", "entityType": "person", "observations": []}
    stored: list[str] = []
    for turn in range(3):
        with serving(tmp_path, MEMORY__SERVER__MCP_PROFILE="reference") as server:
            async with Client(f"{server.url}/mcp", mode="legacy") as caller:
                await caller.call_tool("create_entities", {"entities": [entity]})
            clients = [
                asyncio.create_task(
                    add_under_kills(server.url, [f"{turn}.{one}.{text}" for text in range(1000)])
                )
                for one in range(4)
            ]
            await asyncio.sleep(2)
            server.end(signal.SIGKILL)
            for found in await asyncio.wait_for(asyncio.gather(*clients), 60):
                stored += found
    with serving(tmp_path, MEMORY__SERVER__MCP_PROFILE="reference") as server:
        async with Client(f"{server.url}/mcp") as caller:
            graph = (await caller.call_tool("read_graph", {})).structured_content
    (ada,) = graph["entities"]
    assert stored
    assert set(stored) <= set(ada["observations"])
    assert len(set(ada["observations"])) == len(ada["observations"])
