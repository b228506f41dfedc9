"""What all requests share: conditions, repeats, pages, roles, limits and refusals."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from fastapi import FastAPI
from starlette.datastructures import Headers

from memory.domain.errors import ConfigError, StoreUnavailable
from memory.domain.scope import Scope
from memory.facade.config.server import ServerSettings
from memory.facade.config.settings import MemoryConfig
from memory.facade.memory import Memory
from memory.facade.resources.commands import MOST_BYTES_OF_ID
from memory.ports.contract.cells import cells
from memory.server.app import create_app
from memory.server.callers import Caller, DevAuthenticator, Role, Unauthenticated
from memory.server.identity.key_text import new_key_id, new_key_text
from memory.server.requests import request_id_of
from tests.acceptance.support import stores_of
from tests.server.support import BASE, ENTRIES, Client, client_of

pytestmark = pytest.mark.backend("sqlite")


class NamedCallers:
    """Takes the bearer of a request as the name of a caller that a test made."""

    def __init__(self, *callers: Caller) -> None:
        self._callers = {caller.key_id: caller for caller in callers}

    async def authenticate(self, headers: Headers) -> Caller:
        name = headers.get("authorization", "").removeprefix("Bearer ")
        if name not in self._callers:
            raise Unauthenticated
        return self._callers[name]


def caller(memory: Memory, key_id: str, role: Role, scope: str | None = None) -> Caller:
    scopes = None if scope is None else (Scope.parse(scope),)
    view = memory.restrict(scopes, role="reader" if role == "reader" else "writer")
    return Caller(memory.tenant, role, key_id, view, scopes)


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {name}"}


@pytest.fixture
async def keyed(memory: Memory) -> AsyncIterator[Client]:
    """A client of a server with one caller for each role, and one of a scope."""
    roles: tuple[Role, ...] = ("reader", "writer", "admin")
    named = [caller(memory, role, role) for role in roles]
    ada = caller(memory, "ada", "writer", "user:ada")
    operator = replace(named[0], role="operator", key_id="operator", memory=memory)
    async with client_of(memory, NamedCallers(*named, ada, operator)) as one:
        yield one


async def test_every_error_is_a_problem_document(client: Client) -> None:
    for method, path, status, code in (
        ("GET", "/nowhere", 404, "not_found"),
        ("PUT", ENTRIES, 405, "method_not_allowed"),
        ("GET", f"{ENTRIES}?limit=x", 400, "invalid_input"),
        ("GET", f"{ENTRIES}?limit=1&limit=2", 400, "invalid_input"),
        ("GET", f"{ENTRIES}/", 404, "not_found"),
    ):
        assert (await client.call(method, path, status))["code"] == code, path
    for body in (b"", b"[]", b"{", b"\xff", b'"x"', b"[" * 100_000):
        headers = {"Content-Type": "application/json"}
        field, _ = await client.refused("POST", ENTRIES, content=body, headers=headers)
        assert field == "body", body


async def test_a_path_that_does_not_exist_is_answered_with_the_nearest(client: Client) -> None:
    for path, meant in (
        (f"{ENTRIES}/", ENTRIES),
        ("/memory/entries", ENTRIES),
        ("/v1/entries", ENTRIES),
        ("/v1/sesions", "/v1/sessions"),
    ):
        assert f"did you mean '{meant}'?" in (await client.call("GET", path, 404))["detail"], path
    assert (await client.call("GET", "/", 404))["detail"].endswith("GET /openapi.json lists all paths")


_ONE = {"content": "x", "scope": "user:ada"}
WRONG: list[tuple[str, str, dict[str, Any], str, str]] = [
    ("POST", ENTRIES, {"content": 5}, "content", "must be text, not 5"),
    ("POST", ENTRIES, {"content": None}, "content", "must be text, not null"),
    ("POST", ENTRIES, {"tags": "a"}, "tags", 'must be a list, not "a"'),
    ("POST", ENTRIES, {"tags": ["a", 1]}, "tags[1]", "must be text, not 1"),
    ("POST", ENTRIES, {"metadata": []}, "metadata", "must be an object, not []"),
    ("POST", ENTRIES, {"expires_at": True}, "expires_at", "must be text or a number, not true"),
    ("POST", f"{ENTRIES}/batch", {"entries": [{}, {"tag": 1}]}, "entries[1].tag", "did you mean 'tags'?"),
    (
        "POST",
        f"{ENTRIES}/batch",
        {"entries": [{**_ONE}, {**_ONE, "title": "x" * 201}]},
        "entries[1].title",
        "200",
    ),
    (
        "POST",
        f"{ENTRIES}/batch",
        {"entries": [{**_ONE, "expires_in": "soon"}]},
        "entries[0].expires_in",
        "such as '30d'",
    ),
    ("POST", "/v1/memory/search", {"query": "x", "limit": "5"}, "limit", 'must be a whole number, not "5"'),
    ("POST", "/v1/memory/search", {"query": "x", "scope": {}}, "scope", "must be text or a list, not {}"),
    ("POST", "/v1/memory/search", {"limit": 5}, "query", "is missing"),
    ("POST", "/v1/sessions/s/messages", {"messages": {}}, "messages", "must be a list, not {}"),
    ("POST", "/v1/sessions/s/messages", {"messages": ["hi"]}, "messages[0]", 'must be an object, not "hi"'),
    ("POST", "/v1/admin/keys", {"role": "boss"}, "role", "must be 'reader', 'writer', 'admin' or 'operator'"),
]


@cells("method, path, body, field, problem", WRONG, ids=list(map(str, range(len(WRONG)))), shared=True)
async def test_a_wrong_value_is_answered_with_its_field_and_what_is_accepted(
    client: Client, method: str, path: str, body: dict[str, Any], field: str, problem: str
) -> None:
    named, message = await client.refused(method, path, json=body)
    assert (named, problem in message) == (field, True), message


async def test_a_wrong_parameter_is_answered_with_what_is_accepted(client: Client) -> None:
    for query, problem in (("limit=x", 'a whole number, not "x"'), ("min_relevance=x", 'a number, not "x"')):
        field, message = await client.refused("GET", f"{ENTRIES}?q=tea&{query}")
        assert (field, message) == (query.partition("=")[0], f"must be {problem}")
    field, message = await client.refused("POST", ENTRIES, json={}, headers={"Idempotency-Key": "k" * 200})
    assert (field, message) == ("Idempotency-Key", "must have at most 128 characters")


async def test_a_wrong_method_is_answered_with_those_of_the_path(client: Client) -> None:
    for path, methods in (await client.call("GET", "/openapi.json"))["paths"].items():
        named = re.sub(r"{.*?}", "x", path)
        answer = await client.answer("TRACE", named)
        assert answer.status_code == 405
        allowed = set(answer.headers["allow"].split(", "))
        assert {one.upper() for one in methods} <= allowed, path


@pytest.mark.parametrize(
    ("method", "path", "methods"),
    [
        ("PUT", f"{ENTRIES}/1", "GET, HEAD, PATCH, DELETE"),
        ("DELETE", ENTRIES, "GET, HEAD, POST"),
        ("PATCH", "/v1/memory/scratchpads/planner", "GET, HEAD, POST, DELETE"),
        ("DELETE", "/health/live", "GET, HEAD"),
    ],
)
async def test_a_wrong_method_is_answered_with_all_methods_of_the_path(
    client: Client, method: str, path: str, methods: str
) -> None:
    answer = await client.answer(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, methods)
    assert answer.json()["detail"] == f"this path has {methods}, and not {method}"


async def test_head_returns_the_headers_of_get(client: Client) -> None:
    entry = (await client.write("tea"))["id"]
    files, document = "/v1/memory/artifacts", "/v1/documents/item?scope=user:ada&key=k"
    await client.call("POST", "/v1/sessions", 201, json={"session_id": "trip"})
    sent: dict[str, Any] = {"content": b"0123456789", "headers": {"Content-Type": "application/octet-stream"}}
    file = (await client.call("PUT", f"{files}?session_id=trip&path=a.txt", 201, **sent))["id"]
    await client.call("PUT", document, json={"value": 1})
    for path in (
        *(
            ENTRIES,
            f"{ENTRIES}/{entry}",
            f"{ENTRIES}?limit=1",
            "/v1/sessions/trip",
            "/v1/sessions/trip/window",
        ),
        *(f"{files}?session_id=trip", f"{files}/{file}", f"{files}/{file}/raw", document, "/openapi.json"),
        *("/v1/documents/raw?scope=user:ada&key=k", "/health/live", "/health/ready", f"{ENTRIES}/{'0' * 32}"),
        *("/v1/nowhere", "/v1/memory/search", "/v1/admin/export"),
    ):
        got, head = [await client.http.request(method, path) for method in ("GET", "HEAD")]
        assert (head.status_code, head.content) == (got.status_code, b""), path
        if got.status_code != 405:  # its text names the method
            of_both = [{k: v for k, v in one.headers.items() if k != "x-request-id"} for one in (got, head)]
            assert of_both[0] == of_both[1], path
    part = {"Range": "bytes=2-4"}
    head = await client.http.head(f"{files}/{file}/raw", headers=part)
    assert (head.status_code, head.headers["content-range"]) == (206, "bytes 2-4/10")
    known = {"If-None-Match": (await client.http.head(f"{ENTRIES}/{entry}")).headers["etag"]}
    assert (await client.http.head(f"{ENTRIES}/{entry}", headers=known)).status_code == 304
    assert (await client.http.head("/mcp")).status_code == 405


async def test_a_wrong_scope_is_an_error_of_the_field_that_has_it(client: Client) -> None:
    for scope in (
        "user:",
        "wizard:x",
        "object:a",
        "object::x",
        "path:teams//x",
        "path:a",
        "user",
        "user:%00",
    ):
        assert (await client.refused("GET", f"{ENTRIES}?scope={scope}"))[0] == "scope", scope
        body = {"scope": scope.replace("%00", chr(0)), "content": "x"}
        assert (await client.refused("POST", ENTRIES, json=body))[0] == "scope", scope


async def test_a_fault_of_the_server_is_named_in_its_log_and_not_shown(
    client: Client, memory: Memory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_args: Any, **_kwargs: Any) -> None:
        raise ZeroDivisionError("the secret of ada")

    [store] = stores_of(memory)
    monkeypatch.setattr(store, "query", fail)
    with caplog.at_level(logging.ERROR):
        problem = await client.call("GET", ENTRIES, 500)
    assert problem["code"] == "internal"
    assert "secret" not in str(problem)
    assert problem["instance"] in caplog.text

    async def be_away(*_args: Any, **_kwargs: Any) -> None:
        raise StoreUnavailable(store.name, "connection to postgresql://ada:secret@host refused")

    monkeypatch.setattr(store, "query", be_away)
    answer = await client.answer("GET", ENTRIES)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "secret" not in answer.text


async def test_two_keys_have_idempotency_keys_of_their_own(keyed: Client) -> None:
    for name, text in (("writer", "one"), ("admin", "two")):
        headers = {**bearer(name), "Idempotency-Key": "same"}
        given = {"content": text, "scope": "user:ada"}
        await keyed.call("POST", ENTRIES, 201, json=given, headers=headers)


async def test_a_long_name_of_a_caller_leaves_room_for_the_key(memory: Memory) -> None:
    """The subject of a token has up to 128 characters, of up to four bytes each."""
    named = caller(memory, "jwt:" + "\U0001f600" * 128, "writer")
    other = caller(memory, "jwt:" + "\U0001f600" * 127 + "x", "writer")
    key = "k" * 128
    assert len(str(request_id_of(named, key)).encode()) <= MOST_BYTES_OF_ID
    plain = caller(memory, "jwt:" + "a" * 67, "writer")
    assert len(str(request_id_of(plain, key)).encode()) == MOST_BYTES_OF_ID
    assert request_id_of(named, key) != request_id_of(other, key)


async def test_the_same_subject_in_two_tenants_shares_no_limit(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, end = asyncio.Event(), asyncio.Event()
    callers = [caller(memory.for_tenant(name), "jwt:ada", "writer") for name in ("one", "two")]

    class ByTenant:
        async def authenticate(self, headers: Headers) -> Caller:
            return callers[headers["x-tenant"] == "two"]

    write = Memory.write

    async def wait(self: Memory, *args: Any, **given: Any) -> Any:
        if self.tenant == "one":
            begun.set()
            await end.wait()
        return await write(self, *args, **given)

    monkeypatch.setattr(Memory, "write", wait)
    async with client_of(memory, ByTenant(), concurrency=1) as client:

        def send(tenant: str) -> Any:
            headers = {"X-Tenant": tenant, "Idempotency-Key": "k"}
            body = {"scope": "user:ada", "content": "x"}
            return client.call("POST", ENTRIES, 201, headers=headers, json=body)

        first = asyncio.ensure_future(send("one"))
        await begun.wait()
        assert (await send("two"))["tenant"] == "two"
        end.set()
        assert (await first)["tenant"] == "one"


async def test_a_cursor_belongs_to_its_question_and_its_key(keyed: Client) -> None:
    for n in range(3):
        given = {"content": f"fact {n}", "scope": "user:ada"}
        await keyed.call("POST", ENTRIES, 201, json=given, headers=bearer("writer"))
    answer = await keyed.answer("GET", f"{ENTRIES}?limit=1", headers=bearer("writer"))
    cursor = answer.json()["cursor"]
    assert answer.headers["link"] == f'<{ENTRIES}?limit=1&cursor={cursor}>; rel="next"'
    following = f"{ENTRIES}?limit=2&cursor={cursor}"
    assert len((await keyed.call("GET", following, headers=bearer("writer")))["entries"]) == 2
    for name, path in (
        ("admin", following),
        ("writer", f"{following}&type=user"),
        ("writer", f"{ENTRIES}?cursor={cursor[:-2]}"),
        ("writer", f"{ENTRIES}?cursor=x"),
        ("writer", f"{following}&q=fact"),
    ):
        assert (await keyed.refused("GET", path, headers=bearer(name)))[0] == "cursor", path


async def test_each_route_needs_its_role(keyed: Client, memory: Memory) -> None:
    made = await memory.write("fact", scope="user:ada")
    ranks = ("reader", "writer", "admin", "operator")
    calls: tuple[tuple[str, str, Any, str], ...] = (
        ("GET", ENTRIES, None, "reader"),
        ("POST", ENTRIES, {"content": "x", "scope": "user:ada"}, "writer"),
        ("PATCH", f"{ENTRIES}/{made.id}", {"title": "x"}, "writer"),
        ("POST", "/v1/memory/scratchpad", {"text": "x"}, "writer"),
        ("DELETE", "/v1/admin/tenants/default", None, "admin"),
    )
    for method, path, body, needed in calls:
        for rank in ranks:
            given = {} if body is None else {"json": body}
            answer = await keyed.answer(method, path, headers=bearer(rank), **given)
            allowed = ranks.index(rank) >= ranks.index(needed)
            assert (answer.status_code == 403) != allowed, (method, path, rank, answer.text)
            if path.startswith("/v1/admin"):
                made = await memory.write("fact", scope="user:ada")
    await keyed.call("DELETE", "/v1/admin/tenants/other", 404, headers=bearer("admin"))
    await keyed.call("DELETE", "/v1/admin/tenants/other", headers=bearer("operator"))
    for headers in ({}, bearer("nobody"), {"Authorization": "Basic eDp5"}):
        answer = await keyed.answer("GET", ENTRIES, headers=headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert (await keyed.answer("GET", "/nowhere", headers=headers)).status_code == 401
    assert (await keyed.call("GET", "/health/live"))["status"] == "ok"
    assert (await keyed.call("GET", "/health/ready"))["status"] == "ok"


async def test_a_key_of_scopes_sees_its_scopes_only(keyed: Client, memory: Memory) -> None:
    mine = await memory.write("tea for ada", scope="user:ada", title="Mine")
    theirs = await memory.write("tea for bob", scope="user:bob", title="Theirs")
    number = (await memory.short_ids.of([mine.id]))[mine.id]
    headers = bearer("ada")
    for query in ({}, {"q": "tea"}):
        found = await keyed.call("GET", ENTRIES, params=query, headers=headers)
        assert [one["title"] for one in found["entries"]] == ["Mine"]
    gone = await keyed.call("GET", f"{ENTRIES}/{theirs.id}", 404, headers=headers)
    other = f"{mine.id[:-1]}{'1' if mine.id[-1] == '0' else '0'}"
    nothing = await keyed.call("GET", f"{ENTRIES}/{other}", 404, headers=headers)
    assert gone.keys() == nothing.keys()
    await keyed.call("GET", f"{ENTRIES}/{number}", 404, headers=headers)
    made = await keyed.call("POST", ENTRIES, 201, json={"content": "x"}, headers=headers)
    assert made["scope"] == "user:ada"
    given = {"content": "x", "scope": "user:bob"}
    await keyed.call("POST", ENTRIES, 403, json=given, headers=headers)
    await keyed.call("POST", ENTRIES, 400, json={"content": "x"}, headers=bearer("writer"))


async def test_too_many_requests_wait(memory: Memory) -> None:
    async with client_of(memory, rate=0.5, burst=3) as client:
        answers = [await client.answer("GET", ENTRIES) for _ in range(4)]
        assert [one.status_code for one in answers] == [200, 200, 200, 429]
        assert int(answers[-1].headers["retry-after"]) in (2, 3)


async def test_requests_at_once_are_limited_by_key(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    [store], go, begun = stores_of(memory), asyncio.Event(), asyncio.Semaphore(0)
    original = store.query

    async def wait(*args: Any, **kwargs: Any) -> Any:
        begun.release()
        await go.wait()
        return await original(*args, **kwargs)

    monkeypatch.setattr(store, "query", wait)
    async with client_of(memory, concurrency=2) as client:
        waiting = [asyncio.create_task(client.answer("GET", ENTRIES)) for _ in range(2)]
        for _ in waiting:
            await begun.acquire()
        third = await client.call("GET", ENTRIES, 429)
        assert third["code"] == "too_many_requests"
        go.set()
        assert [one.status_code for one in await asyncio.gather(*waiting)] == [200, 200]
        assert (await client.answer("GET", ENTRIES)).status_code == 200


async def test_bodies_are_limited_whole_or_in_pieces(memory: Memory) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"content": "'
        for _ in range(40):
            yield b"x" * 100
        yield b'"}'

    headers = {"Content-Type": "application/json"}
    async with client_of(memory, body_bytes=2048) as client:
        for body in (b'{"content": "' + b"x" * 4000 + b'"}', pieces()):
            answer = await client.answer("POST", ENTRIES, content=body, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
            assert answer.headers["connection"] == "close"
        await memory.sessions.create("s1", user="ada")
        file = await client.answer(
            "PUT",
            "/v1/memory/artifacts",
            params={"session_id": "s1", "path": "big"},
            content=pieces(),
            headers={"Content-Type": "application/octet-stream"},
        )
        assert file.status_code == 201
        assert await client.titles() == []


async def test_a_body_that_a_web_page_could_send_is_refused(client: Client) -> None:
    body = json.dumps({"content": "x"}).encode()
    for media_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        headers = {"Content-Type": media_type}
        await client.call("POST", ENTRIES, 415, content=body, headers=headers)
    await client.call("POST", ENTRIES, 415, content=body)
    assert await client.titles() == []


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "k"}])
async def test_a_body_that_repeats_a_key_is_refused(client: Client, headers: dict[str, str]) -> None:
    for text, key in (
        ('{"scope": "user:ada", "content": "tea", "content": "milk"}', "content"),
        ('{"scope": "user:ada", "content": "tea", "metadata": {"n": 1, "n": 2}}', "n"),
    ):
        sent = {"Content-Type": "application/json", **headers}
        refused = await client.refused("POST", ENTRIES, content=text, headers=sent)
        assert refused == (key, "occurs more than once in one object. Send it once")
    assert await client.titles() == []


async def test_texts_of_a_url_that_are_not_utf8_are_refused(client: Client) -> None:
    """Otherwise `caf%E8` and `caf%E9` would name one session."""
    message = {"role": "user", "content": "hello"}
    for method, path, part, body in (
        ("POST", "/v1/sessions/caf%E9/messages", "path", {"user": "ada", "messages": [message]}),
        ("GET", "/v1/sessions/caf%E8/messages", "path", None),
        ("GET", f"{ENTRIES}?scope=user:caf%E9", "query", None),
        ("PUT", "/v1/documents/item?scope=user:ada&key=caf%E9", "query", {"value": 1}),
        ("GET", "/openapi.json?x=%FF", "query", None),
    ):
        field, problem = await client.refused(method, path, json=body)
        assert (field, "UTF-8" in problem) == (part, True), path


async def test_a_body_is_sent_whole_and_without_a_content_coding(client: Client) -> None:
    await client.call("POST", "/v1/sessions", 201, json={"session_id": "trip"})
    file = "/v1/memory/artifacts?session_id=trip&path=a.txt"
    for method, path, kind in (
        ("PUT", file, "application/octet-stream"),
        ("POST", "/v1/admin/import", "application/jsonl"),
        ("POST", ENTRIES, "application/json"),
        ("POST", "/mcp", "application/json"),
    ):
        typed: dict[str, Any] = {"content": b"{}", "headers": {"Content-Type": kind}}
        for coding in ("gzip", "GZIP", "identity, br"):
            typed["headers"]["Content-Encoding"] = coding
            answer = await client.answer(method, path, **typed)
            assert (answer.status_code, answer.headers["Accept-Encoding"]) == (415, "identity"), path
        typed["headers"] = {"Content-Type": kind, "Content-Range": "bytes 0-1/4"}
        assert (await client.refused(method, path, **typed))[0] == "Content-Range", path
    assert (await client.call("GET", "/v1/memory/artifacts?session_id=trip"))["artifacts"] == []
    whole = {"Content-Type": "text/plain; charset=utf-8", "Content-Encoding": "identity"}
    await client.call("PUT", file, 415, content=b"text", headers=whole)  # any page could send it
    await client.call("PUT", file, 201, content=b"text", headers=whole | {"Content-Type": "text/markdown"})


async def test_a_development_server_answers_this_machine_only(memory: Memory) -> None:
    async with client_of(memory, local_only=True) as client:
        for headers in (
            {"Host": "attacker.example"},
            {"Host": "127.0.0.1.attacker.example"},
            {"Host": "[::1"},
            {"Origin": "https://attacker.example"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
        ):
            for path in (ENTRIES, "/health/live", "/openapi.json"):
                answer = await client.answer("GET", path, headers=headers)
                assert answer.status_code in (403, 421), headers
        for headers in (
            {"Host": "localhost:8080"},
            {"Host": "[::1]:8080"},
            {"Origin": BASE, "Sec-Fetch-Site": "same-origin"},
        ):
            answer = await client.answer("GET", ENTRIES, headers=headers)
            assert answer.status_code == 200, headers
            assert not [name for name in answer.headers if name.startswith("access-control")]
        preflight = {"Origin": "https://attacker.example", "Access-Control-Request-Method": "POST"}
        assert (await client.answer("OPTIONS", ENTRIES, headers=preflight)).status_code == 403


async def test_no_query_string_is_logged(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "memory"):
        await client.titles(q="a private question")
    lines = [record.getMessage() for record in caplog.records]
    assert any(ENTRIES in line for line in lines)
    assert not any("private" in line for line in lines)


async def test_a_log_line_shows_no_key_and_is_one_line(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    text = new_key_text(new_key_id()).text
    with caplog.at_level(logging.INFO, "memory"):
        await client.answer("DELETE", f"/v1/admin/keys/{text}")
        await client.answer("GET", "/v1/sessions/x%0Aforged%1B[31m")
    lines = [one.getMessage() for one in caplog.records if one.name == "memory.server.access"]
    assert len(lines) == 2
    assert not any(text in line or not line.replace("…", "").isprintable() for line in lines)


async def test_a_body_with_two_lengths_is_refused(client: Client) -> None:
    headers = {"Content-Length": "3", "Transfer-Encoding": "chunked", "Content-Type": "application/json"}
    answer = await client.answer("POST", ENTRIES, headers=headers, content=b'{"content": "x"}')
    assert answer.status_code == 400
    assert answer.headers["Connection"] == "close"


@pytest.mark.parametrize("session", ["日本", "a b", "a?b", "a/b", "100%", 'a"b>c', "x\r\nSet-Cookie: y=z"])
async def test_a_link_leads_to_the_next_page_of_any_session(client: Client, session: str) -> None:
    path = f"/v1/sessions/{quote(session, safe='')}/messages"
    messages = [{"role": "user", "content": text} for text in ("one", "two")]
    await client.call("POST", path, 201, json={"user": "ada", "messages": messages})
    first = await client.answer("GET", path, params={"limit": 1})
    link = first.headers["Link"].removeprefix("<").removesuffix('>; rel="next"')
    second = await client.call("GET", link)
    shown = [one["message"]["content"] for one in (*first.json()["items"], *second["items"])]
    assert sorted(shown) == ["one", "two"]


def test_a_prefix_is_a_path() -> None:
    assert MemoryConfig(server={"root_path": "/memory/"}).server.root_path == "/memory"
    for wrong in ("memory", "/a b", "/caf\xe9", "/a//b"):
        with pytest.raises(ConfigError, match=r"server\.root_path: must be a path"):
            MemoryConfig(server={"root_path": wrong})


async def test_an_application_under_a_prefix_works_as_at_the_root(memory: Memory) -> None:
    """The prefix is also the beginning of its own paths."""
    named = [caller(memory, role, role) for role in ("writer", "admin")]
    app = create_app(memory, ServerSettings(), NamedCallers(*named))
    outer = FastAPI()
    outer.mount("/v1", app)
    for transport in (httpx.ASGITransport(outer), httpx.ASGITransport(app, root_path="/v1")):
        async with httpx.AsyncClient(transport=transport, base_url=BASE, headers=bearer("writer")) as http:
            for path in ("/health/live", "/health/ready", "/openapi.json"):
                assert (await http.get(f"/v1{path}", headers=bearer("nobody"))).status_code == 200, path
            assert (await http.get("/v1/openapi.json")).json()["servers"] == [{"url": "/v1"}]
            await http.post("/v1/v1/sessions", json={"session_id": "a/b"})
            file: dict[str, Any] = {"content": b"x", "headers": {"Content-Type": "application/octet-stream"}}
            made = [
                await http.post(f"/v1{ENTRIES}", json={"scope": "user:ada", "content": "tea"}),
                await http.post(f"/v1{ENTRIES}", json={"scope": "user:ada", "content": "coffee"}),
                await http.put("/v1/v1/memory/artifacts?session_id=a%2Fb&path=a.txt", **file),
                await http.post("/v1/v1/admin/keys", json={"role": "reader"}, headers=bearer("admin")),
            ]
            for one in made[:3]:
                assert (await http.get(one.headers["Location"])).status_code == 200
            assert made[3].headers["Location"] == f"/v1/v1/admin/keys/{made[3].json()['id']}"
            first = await http.get(f"/v1{ENTRIES}", params={"scope": "user:ada", "limit": 1})
            second = await http.get(first.links["next"]["url"])
            assert first.json()["entries"] != second.json()["entries"] != []
            assert (await http.head("/v1/mcp")).status_code == 405
            assert "'/v1/v1/memory/entries'" in (await http.get("/v1/v1/memory/entrie")).json()["detail"]


def scope_of(method: str, path: str, **headers: str) -> dict[str, Any]:
    """A request as a server passes it to an application."""
    path, _, query = path.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(b"host", b"127.0.0.1")]
        + [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
    }


async def test_a_client_that_leaves_within_its_body_is_no_fault_of_the_server(
    memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    await memory.sessions.create("trip")
    app = create_app(memory, ServerSettings(), DevAuthenticator(memory))
    for method, path, media_type in (
        ("POST", "/v1/admin/import", "application/jsonl"),
        ("PUT", "/v1/memory/artifacts?session_id=trip&path=a.txt", "application/octet-stream"),
        ("POST", ENTRIES, "application/json"),
        ("POST", "/mcp", "application/json"),
    ):
        sent: list[Any] = []
        part = b'{"role": "user", "content": "hello"}\n'
        messages: list[Any] = [{"type": "http.request", "body": part, "more_body": True}]

        async def receive(messages: list[Any] = messages) -> Any:
            return messages.pop() if messages else {"type": "http.disconnect"}

        async def send(message: Any, sent: list[Any] = sent) -> None:
            sent.append(message)

        headers = {"content_length": "1000", "content_type": media_type}
        await asyncio.wait_for(app(scope_of(method, path, **headers), receive, send), 60)
        assert sent == [], path
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]
    counts = app.state.metrics.render({}, app.state.audit).decode()
    assert counts.count('status="499"} 1.0') == 4
    assert (await memory.artifacts.list("trip")).artifacts == []
    assert await memory.retrieve("user:ada") == []


async def test_a_client_that_leaves_cancels_its_call(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    [store], begun, ended = stores_of(memory), asyncio.Event(), asyncio.Event()

    async def hang(*_args: Any, **_kwargs: Any) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr(store, "query", hang)
    app = create_app(memory, ServerSettings(), DevAuthenticator(memory))
    sent: list[Any] = []
    messages: list[Any] = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Any:
        if messages:
            return messages.pop()
        await begun.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = scope_of("GET", ENTRIES)
    await asyncio.wait_for(app(scope, receive, send), 60)
    await asyncio.wait_for(ended.wait(), 60)
    assert sent == []
