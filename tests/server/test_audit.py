"""The audit log: what it records, when, and what it never has."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memory import InvalidInput, Memory, StoreError, StoreUnavailable
from memory.facade.resources.documents import Documents
from memory.server.identity import RESERVED_TENANT, AuditLog, AuditRecord
from memory.server.identity.audit import target
from memory.server.identity.key_text import new_key_id, new_key_text
from tests.server.callers import KeyServer, key_server

AUDIT, ENTRIES = "/v1/admin/audit", "/v1/memory/entries"
SECRET = "zanzibar-4711"  # noqa: S105 - a text to look for


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[KeyServer]:
    async with (
        Memory(f"sqlite:///{tmp_path / 'memory.db'}", embedder="none") as memory,
        key_server(memory) as server,
    ):
        yield server


async def stored(server: KeyServer) -> list[dict[str, Any]]:
    """The records that another process would find now, oldest first."""
    log = AuditLog(server.memory, keep=timedelta(days=1))
    return [one.to_dict() for one in reversed((await log.list(limit=1000)).records)]


async def settled(server: KeyServer) -> list[dict[str, Any]]:
    await server.audit.flush()
    return await stored(server)


async def test_writes_denials_and_administration_are_recorded(server: KeyServer) -> None:
    writer, reader = await server.key("acme", "writer"), await server.key("acme", "reader")
    body = {"scope": "user:ada", "content": SECRET}
    made = await server.call(writer, "POST", ENTRIES, json=body, headers={"X-Request-Id": "r-1"})
    assert made.headers["X-Request-Id"] == "r-1"
    entry_id = made.json()["id"]
    await server.call(reader, "GET", f"{ENTRIES}/{entry_id}")
    await server.call(reader, "GET", ENTRIES, params={"query": SECRET, "scope": "user:ada"})
    await server.call(reader, "DELETE", f"{ENTRIES}/{entry_id}")
    await server.call(None, "GET", ENTRIES)
    await server.call(writer, "DELETE", f"{ENTRIES}/{entry_id}")
    found = [(one["action"], one["outcome"]) for one in await settled(server)]
    assert sorted(found) == sorted(
        [
            (f"POST {ENTRIES}", 201),
            (f"DELETE {ENTRIES}/{{entry_id}}", 403),
            ("authenticate", 401),
            (f"DELETE {ENTRIES}/{{entry_id}}", 200),
        ]
    )
    records = await stored(server)
    write = next(one for one in records if one["outcome"] == 201)
    assert write["request_id"] == "r-1"
    assert write["tenant"] == "acme"
    assert len(write["key_id"]) == 10
    deletion = next(one for one in records if one["outcome"] == 200)
    assert deletion["targets"] == [entry_id]


async def test_no_record_has_content_scopes_or_keys(server: KeyServer) -> None:
    writer = await server.key("acme", "writer")
    scope = "user:ada@example.com"
    for given in (
        {"json": {"scope": scope, "content": SECRET, "title": SECRET, "tags": [SECRET]}},
        {"json": {"scope": scope, "content": SECRET, "nonsense": SECRET}},
        {"json": {"scope": SECRET, "content": SECRET}},
        {"content": SECRET.encode(), "headers": {"Content-Type": "application/json"}},
    ):
        await server.call(writer, "POST", ENTRIES, **given)
    await server.call(writer, "DELETE", ENTRIES, params={"scope": scope, "tag": SECRET})
    await server.call(writer, "POST", f"/v1/{SECRET}/x", json={})
    await server.call(writer, "DELETE", f"{ENTRIES}/{SECRET}")
    await server.call(f"{writer[:-1]}!", "POST", ENTRIES, json={})
    await settled(server)
    lines = [line async for line in server.memory.for_tenant(RESERVED_TENANT).admin.export("path:audit/**")]
    text = json.dumps(lines)
    assert len(await stored(server)) >= 7
    for hidden in (SECRET, scope, "ada@", writer, writer.rpartition("_")[2]):
        assert hidden not in text


async def test_deletions_and_administration_are_stored_before_the_answer(server: KeyServer) -> None:
    admin, operator = await server.key("acme", "admin"), await server.key("ops", "operator")
    made = await server.call(admin, "POST", ENTRIES, json={"scope": "user:ada", "content": "tea"})
    session = "/v1/sessions/trip"
    await server.call(admin, "POST", "/v1/sessions", json={"session_id": "trip"})
    place = await server.call(admin, "POST", f"{session}/checkpoints", json={})
    change = {"op": "delete", "scope": "user:ada", "key": "k"}
    before = {one["request_id"] for one in await settled(server)}

    async def kept() -> list[dict[str, Any]]:
        return [one for one in await stored(server) if one["request_id"] not in before]

    calls: list[tuple[str, str, str, dict[str, Any]]] = [
        (admin, "DELETE", f"{ENTRIES}/{made.json()['id']}", {}),
        (admin, "POST", "/v1/admin/keys", {"json": {"role": "reader"}}),
        (admin, "PUT", f"{session}/window", {"json": {"messages": []}}),
        (admin, "PUT", f"{session}/tasks", {"json": {"tasks": []}}),
        (admin, "POST", f"{session}/roll-back", {"json": {"checkpoint": place.json()}}),
        (admin, "POST", "/v1/documents/apply", {"json": {"changes": [change]}}),
        (operator, "DELETE", "/v1/admin/tenants/acme", {}),
    ]
    for number, (key, method, path, given) in enumerate(calls, start=1):
        answer = await server.call(key, method, path, **given)
        assert answer.status_code < 300, answer.text
        assert len(await kept()) == number
    assert (await kept())[-1]["targets"] == ["tenant:acme"]
    methods = ["DELETE", "POST", "PUT", "PUT", "POST", "POST", "DELETE"]
    assert [one["action"].split()[0] for one in await kept()] == methods


async def test_other_records_are_stored_within_a_second(server: KeyServer) -> None:
    writer = await server.key("acme", "writer")
    await server.call(writer, "POST", ENTRIES, json={"scope": "user:ada", "content": "tea"})
    begun = time.monotonic()
    while not await stored(server):
        assert time.monotonic() - begun < 30
        await asyncio.sleep(0.05)


async def test_a_record_that_cannot_be_stored_is_no_success(server: KeyServer, monkeypatch: Any) -> None:
    admin = await server.key("acme", "admin")

    async def fail(record: AuditRecord) -> None:
        raise StoreUnavailable("mid", "it is away")

    monkeypatch.setattr(server.audit, "store", fail)
    given = {"json": {"role": "reader"}, "headers": {"X-Request-Id": "r-1"}}
    answer = await server.call(admin, "POST", "/v1/admin/keys", **given)
    assert (answer.status_code, answer.json()["code"]) == (503, "audit_unavailable")
    assert answer.headers.get_list("x-request-id") == ["r-1"]
    assert answer.headers["content-type"] == "application/problem+json"
    assert [one["action"] for one in await settled(server)] == ["POST /v1/admin/keys"]


async def test_reads_are_recorded_if_a_setting_says_so(server: KeyServer) -> None:
    async with key_server(server.memory, audit={"reads": True}) as other:
        reader = await other.key("acme", "reader")
        await other.call(reader, "GET", ENTRIES, params={"scope": "user:ada"})
        [one] = await settled(other)
    assert (one["action"], one["outcome"]) == (f"GET {ENTRIES}", 200)
    assert one["targets"][0].startswith("scope#")


async def test_requests_without_a_key_do_not_fill_the_log(server: KeyServer) -> None:
    await asyncio.gather(*(server.call("mt_x", "GET", ENTRIES) for _ in range(50)))
    assert sum(one["count"] for one in await settled(server)) == 50
    for _ in range(1_000):
        server.audit.note(AuditRecord(datetime.now(UTC), "", "", "authenticate", 401, "r"))
    counts = [one["count"] for one in await settled(server)]
    assert counts[-1] == 1_000


async def test_admins_see_their_tenant_and_operators_all(server: KeyServer) -> None:
    admin, operator = await server.key("acme", "admin"), await server.key("ops", "operator")
    other = await server.key("other", "writer")
    for key in (admin, operator, other):
        await server.call(key, "POST", ENTRIES, json={"scope": "user:ada", "content": "tea"})
    await server.audit.flush()

    async def listed(caller: str, **params: Any) -> list[dict[str, Any]]:
        answer = await server.call(caller, "GET", AUDIT, params=params)
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["records"]
        return found

    assert {one["tenant"] for one in await listed(admin)} == {"acme"}
    assert {one["tenant"] for one in await listed(operator)} == {"acme", "ops", "other"}
    assert {one["tenant"] for one in await listed(operator, tenant="other")} == {"other"}
    assert (await server.call(admin, "GET", AUDIT, params={"tenant": "other"})).status_code == 404
    assert (await server.call(other, "GET", AUDIT)).status_code == 403
    assert (await server.call(admin, "GET", AUDIT, params={"since": "soon"})).status_code == 400
    key_id = (await listed(admin))[0]["key_id"]
    assert await listed(admin, key=key_id)
    assert await listed(admin, key="nobody") == []


async def test_pages_lose_and_repeat_nothing(server: KeyServer) -> None:
    log, start = server.audit, datetime(2030, 1, 1, tzinfo=UTC)
    for number in range(25):
        at = start + timedelta(seconds=number)
        log.note(AuditRecord(at, "acme", f"k{number % 3}", "POST /x", 200, f"r{number}"))
        if number % 4 == 3:
            await log.flush()
    await log.flush()
    for limit in (1, 3, 7, 25, 40):
        found, cursor = list[str](), None
        while True:
            page = await log.list(tenant="acme", limit=limit, cursor=cursor)
            found += [one.request_id for one in page.records]
            assert len(page.records) <= limit
            cursor = page.cursor
            if cursor is None:
                break
        assert found == [f"r{number}" for number in reversed(range(25))]
    since = await log.list(tenant="acme", since=start + timedelta(seconds=20), key_id="k2")
    assert [one.request_id for one in since.records] == ["r23", "r20"]
    for bad in ("x", "/", "a/b", "1/9999999"):
        with pytest.raises(InvalidInput):
            await log.list(tenant="acme", cursor=bad)


async def test_an_erased_tenant_leaves_its_records(server: KeyServer) -> None:
    writer, operator = await server.key("acme", "writer"), await server.key("ops", "operator")
    await server.call(writer, "POST", ENTRIES, json={"scope": "user:ada", "content": "tea"})
    await server.audit.flush()
    assert (await server.call(operator, "DELETE", "/v1/admin/tenants/acme")).status_code == 200
    assert {one["tenant"] for one in await stored(server)} == {"acme", "ops"}
    for reserved in (RESERVED_TENANT, "~memory"):
        answer = await server.call(operator, "DELETE", f"/v1/admin/tenants/{reserved}")
        assert answer.status_code == 404
    assert len(await stored(server)) >= 2


async def test_records_end_after_their_time(server: KeyServer) -> None:
    await server.audit.store(AuditRecord(datetime.now(UTC), "acme", "k", "POST /x", 200, "r"))
    page = await server.memory.for_tenant(RESERVED_TENANT).documents.list("path:audit/**")
    expires = page.documents[0].expires_at
    assert expires is not None
    assert timedelta(days=29) < expires - datetime.now(UTC) < timedelta(days=31)


def test_a_target_may_be_any_text_of_a_client() -> None:
    """Arguments of MCP tools are recorded before anything has checked them."""
    assert target("scope", "user:\ud800", "acme").startswith("scope#")


async def test_names_are_hashed_also_if_they_look_like_ids(server: KeyServer) -> None:
    admin, writer = await server.key("acme", "admin"), await server.key("acme", "writer")
    phone, person = "4915551234567", "0196f9d2-7e5c-8a41-9c1e-5b7d3f20a6e8"
    message = {"messages": [{"role": "user", "content": "hello"}]}
    for name in (phone, person):
        calls: list[tuple[str, str, dict[str, Any]]] = [
            ("POST", f"/v1/sessions/{name}/messages", {"json": {**message, "user": name}}),
            ("PUT", "/v1/documents/item", {"params": {"scope": "user:x", "key": name}, "json": {"value": 1}}),
            ("DELETE", "/v1/documents/item", {"params": {"scope": f"user:{name}", "key": name}}),
            ("GET", "/v1/admin/export", {"params": {"scope": f"user:{name}"}}),
            ("POST", "/v1/admin/erase-user", {"json": {"user": name}}),
            ("POST", "/v1/admin/blocked-sources", {"json": {"source": name, "reason": "test"}}),
        ]
        for method, path, given in calls:
            await server.call(admin, method, path, **given)
    await server.call(admin, "DELETE", f"/v1/admin/keys/{writer}")
    await server.call(admin, "POST", f"/v1/admin/keys/{writer}/rotate")
    text = json.dumps(await settled(server))
    for hidden in (phone, person, writer, writer.rpartition("_")[2]):
        assert hidden not in text


async def test_a_record_names_what_a_body_names(server: KeyServer) -> None:
    admin = await server.key("acme", "admin")
    entry = (await server.call(admin, "POST", ENTRIES, json={"scope": "user:ada", "content": "tea"})).json()
    made = (await server.call(admin, "POST", "/v1/admin/keys", json={"role": "reader"})).json()
    call = {"name": "retire_memory", "arguments": {"id": entry["id"]}}
    await server.call(
        admin,
        "POST",
        "/mcp",
        json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call},
        headers={"Accept": "application/json, text/event-stream"},
    )
    await server.call(admin, "POST", "/v1/admin/erase-user", json={"user": "ada"})
    await server.call(admin, "POST", "/v1/documents/delete", json={"scope": "user:ada", "prefix": "a"})
    await server.call(admin, "DELETE", "/v1/documents/item", params={"scope": "user:ada", "key": "a"})
    change = {"op": "delete", "scope": "user:ada", "key": "a"}
    await server.call(admin, "POST", "/v1/documents/apply", json={"changes": [change]})
    put = {"scope": "user:ada", "key": "a", "value": 1}
    await server.call(admin, "POST", "/v1/documents/put", json={"puts": [put]})
    body = {"filter": {"types": ["user"]}, "scope": "user:ada"}
    await server.call(admin, "POST", f"{ENTRIES}/delete", json=body)
    found = {one["action"]: one["targets"] for one in await settled(server)}
    assert found["POST /v1/admin/keys"] == [f"key:{made['id']}"]
    assert found["POST /mcp:retire_memory"] == [entry["id"]]
    assert found["POST /v1/admin/erase-user"] == [target("user", "ada", "acme")]
    assert found[f"POST {ENTRIES}/delete"] == [target("scope", "user:ada", "acme")]
    assert found["POST /v1/documents/delete"] == [target("scope", "user:ada", "acme")]
    document = [target("scope", "user:ada", "acme"), target("key", "a", "acme")]
    assert found["DELETE /v1/documents/item"] == document
    assert found["POST /v1/documents/apply"] == document
    assert found["POST /v1/documents/put"] == document


async def test_pages_of_the_log_have_a_limit_and_any_beginning(server: KeyServer) -> None:
    admin = await server.key("acme", "admin")
    await server.call(admin, "POST", "/v1/admin/keys", json={"role": "reader"})
    for limit in (-1, 0, 1001):
        answer = await server.call(admin, "GET", AUDIT, params={"limit": limit})
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "limit")
    for since in ("0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z"):
        answer = await server.call(admin, "GET", AUDIT, params={"since": since})
        assert len(answer.json()["records"]) == 1, answer.text


async def test_records_that_waited_for_their_store_are_found_once(
    server: KeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document of an hour would hide its later records from `since`."""
    begun = datetime(2026, 1, 1, tzinfo=UTC)
    noted = [
        AuditRecord(begun + timedelta(minutes=number), tenant, "k", "POST /x", 201, f"{tenant}{number}")
        for number in range(10)
        for tenant in ("acme", "other")
    ]
    put, left = Documents.put, [3]

    async def fail_once(*args: Any, **given: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise StoreUnavailable("mid", "it is away")
        return await put(*args, **given)

    monkeypatch.setattr(Documents, "put", fail_once)
    for one in noted:
        server.audit.note(one)
    with pytest.raises(StoreUnavailable):
        await server.audit.flush()
    await server.audit.flush()
    every = (await server.audit.list(limit=1000)).records
    assert sorted(one.request_id for one in every) == sorted(one.request_id for one in noted)
    late = await server.audit.list(tenant="acme", since=begun + timedelta(minutes=5))
    assert [one.request_id for one in late.records] == [f"acme{number}" for number in range(9, 4, -1)]


async def test_a_record_that_can_never_be_stored_holds_up_no_other(
    server: KeyServer, caplog: pytest.LogCaptureFixture
) -> None:
    now, unstorable = datetime.now(UTC), "GET /\ud800"
    for action in ("POST /a", unstorable, "POST /b"):
        server.audit.note(AuditRecord(now, "acme", "k1", action, 201, "r-1"))
    assert sorted(one["action"] for one in await settled(server)) == ["POST /a", "POST /b"]
    assert (server.audit.waiting, server.audit.unstored) == (0, 1)
    (told,) = [one.getMessage() for one in caplog.records if "cannot store" in one.getMessage()]
    assert "r-1" in told
    assert "k1" in told
    assert told.isascii()
    metrics = await server.call(await server.key("ops", "operator"), "GET", "/metrics")
    assert 'memory_audit_records{state="unstored"} 1.0' in metrics.text.splitlines()


async def test_a_server_whose_keys_are_away_is_not_ready(
    server: KeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await server.key()
    assert (await server.call(key, "GET", "/health/ready")).json() == {"status": "ok", "away": []}

    async def fail(*args: Any, **given: Any) -> Any:
        raise StoreError("mid", "it is broken")

    monkeypatch.setattr(Documents, "get", fail)
    monkeypatch.setattr("memory.server.identity.key_store.FRESH_FOR", -1)
    for credential in (key, new_key_text(new_key_id()).text):
        answer = await server.call(credential, "GET", "/health/ready")
        assert (answer.status_code, answer.json()) == (503, {"status": "away", "away": []})
        assert answer.headers["retry-after"] == "1"
    assert (await server.call(None, "GET", "/health/ready")).status_code == 200
