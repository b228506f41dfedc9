"""Conditions of requests: `If-Match` and `If-None-Match`, as in RFC 9110."""

from __future__ import annotations

import re
from typing import Any

import pytest

from memory.domain.versions import version_text
from tests.server.api import Api
from tests.server.support import ENTRIES, Client

pytestmark = pytest.mark.backend("in_memory")
ADA = {"scope": "user:ada"}
DOCUMENT, SESSION, OTHER = "/v1/documents/item?scope=user:ada&key=k", "/v1/sessions/trip", version_text(7)


@pytest.fixture
def client(api: Api) -> Client:
    """An operator of the application that all tests share."""
    return api.client("operator")


async def test_versions_are_etags_and_preconditions(client: Client) -> None:
    answer = await client.answer("POST", ENTRIES, json={**ADA, "content": "one", "key": "tea"})
    one, tag = answer.headers["location"], answer.headers["etag"]
    same = await client.answer("GET", one, headers={"If-None-Match": f'"x", {tag}'})
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    changed = await client.answer("PATCH", one, json={"title": "T"}, headers={"If-Match": tag})
    assert changed.status_code == 200
    for method, body in (("PATCH", {"title": "U"}), ("DELETE", None)):
        given = {} if body is None else {"json": body}
        lost = await client.call(method, one, 412, headers={"If-Match": tag}, **given)
        assert lost["code"] == "version_conflict"
    await client.refused("PATCH", one, json={"title": "U"}, headers={"If-Match": "x"})
    new = {**ADA, "content": "two", "key": "tea"}
    await client.call("POST", ENTRIES, 412, json=new, headers={"If-None-Match": "*"})
    await client.call("DELETE", one, headers={"If-Match": changed.headers["etag"]})
    fresh = {**ADA, "content": "two", "key": "coffee"}
    await client.call("POST", ENTRIES, 201, json=fresh, headers={"If-None-Match": "*"})


async def test_no_call_ignores_a_condition(client: Client) -> None:
    """A call that cannot check a condition refuses it: it would change what the client excluded."""
    for path, methods in (await client.call("GET", "/openapi.json"))["paths"].items():
        for method, described in methods.items():
            checked = {one["name"] for one in described.get("parameters", ()) if one["in"] == "header"}
            if method == "get":
                continue
            for header in {"If-Match", "If-None-Match"} - checked:
                named = re.sub(r"{.*?}", "x", path)
                field, message = await client.refused(method.upper(), named, headers={header: '"1"'})
                assert (field, message[:17]) == (header, "cannot be checked"), (method, path)


async def test_a_wrong_condition_is_named_as_it_was_sent(client: Client) -> None:
    one = (await client.answer("POST", ENTRIES, json={**ADA, "content": "one"})).headers["location"]
    for header, method, path, given in (
        ("If-Match", "PATCH", one, {"title": "T"}),
        ("If-Match", "PATCH", "/v1/sessions/trip", {"title": "T"}),
        ("If-Match", "POST", ENTRIES, {**ADA, "content": "x"}),
        ("If-None-Match", "POST", ENTRIES, {**ADA, "content": "x"}),
    ):
        for value in ("*",) if method == "POST" else ("abc", '"abc', '"a" "b"', '*, "a"', "W/*", ","):
            refused = await client.refused(method, path, json=given, headers={header: value})
            assert refused[0] == header, (method, path, value)


Request = tuple[str, str, Any, str]
"""A change of a new record: method, path and body, and the path of the record."""


async def new_requests(client: Client) -> list[Request]:
    """One request for each call that checks an `If-Match`, each about a record of its own."""
    entries = [(await client.write(f"fact {number}"))["id"] for number in range(3)]
    keyed = (await client.write("keyed", key="k", if_exists="replace"))["id"]
    await client.call("PUT", DOCUMENT, json={"value": 1})
    await client.call("PUT", f"{DOCUMENT}2", json={"value": 1})
    replaced = {"content": "new", "scope": "user:ada", "key": "k", "if_exists": "replace"}
    await client.answer("DELETE", SESSION)
    body = {"messages": [{"role": "user", "content": "hello"}], "user": "ada"}
    await client.call("POST", f"{SESSION}/messages", 201, json=body)
    window = {"messages": [{"role": "user", "content": "bye"}]}
    first, second, third = (f"{ENTRIES}/{one}" for one in entries)
    return [
        ("PATCH", first, {"title": "T"}, first),
        ("DELETE", second, None, second),
        ("POST", f"{third}/invalidate", None, third),
        ("POST", ENTRIES, replaced, f"{ENTRIES}/{keyed}"),
        ("PATCH", SESSION, {"title": "T"}, SESSION),
        ("PUT", f"{SESSION}/window", window, f"{SESSION}/window"),
        ("PUT", DOCUMENT, {"value": 2}, DOCUMENT),
        ("DELETE", f"{DOCUMENT}2", None, f"{DOCUMENT}2"),
    ]


CONDITIONS = (
    ("{tag}", 200),
    ("*", 200),
    (f'"{OTHER}", {{tag}}', 200),
    (f'W/"x,y", {{tag}} , ,"{OTHER}"', 200),
    ("W/{tag}", 412),
    (f'"{OTHER}"', 412),
    (f'W/{{tag}}, "{OTHER}"', 412),
    (f'"{OTHER}", "{version_text(8)}"', 412),
    ('"no-version"', 412),
    ("{tag}, x", 400),
)


async def test_every_call_with_a_condition_compares_it_alike(client: Client) -> None:
    for header, expected in CONDITIONS:
        for method, path, body, record in await new_requests(client):
            tag = (await client.answer("GET", record)).headers["etag"]
            given = {} if body is None else {"json": body}
            answer = await client.answer(method, path, headers={"If-Match": header.format(tag=tag)}, **given)
            status = 200 if answer.status_code == 201 else answer.status_code
            assert status == expected, (header, method, path, answer.text)
            if status != 200:
                assert (await client.answer("GET", record)).headers["etag"] == tag, (header, method, path)


async def test_a_star_creates_nothing(client: Client) -> None:
    body = {"content": "x", "scope": "user:ada", "key": "none", "if_exists": "replace"}
    new = f"{DOCUMENT}3"
    for method, path, given, status in (
        ("POST", ENTRIES, body, 412),
        ("PUT", new, {"value": 1}, 412),
        ("DELETE", new, None, 404),
        ("PATCH", "/v1/sessions/none", {"title": "T"}, 404),
        ("PUT", "/v1/sessions/none/window", {"messages": []}, 404),
    ):
        options: dict[str, Any] = {} if given is None else {"json": given}
        await client.call(method, path, status, headers={"If-Match": "*"}, **options)
    assert await client.titles() == []
    await client.call("GET", new, 404)


async def test_a_repeatable_request_has_one_etag(client: Client) -> None:
    """A repeat must find the version that the first request found, also if it changed."""
    for method, path, body, record in await new_requests(client):
        tag = (await client.answer("GET", record)).headers["etag"]
        given, key = {} if body is None else {"json": body}, {"Idempotency-Key": f"{method} {path}"}
        several = {"If-Match": f'"{OTHER}", {tag}', **key}
        assert (await client.refused(method, path, headers=several, **given))[0] == "If-Match"
        for _ in range(2):
            answer = await client.answer(method, path, headers={"If-Match": tag, **key}, **given)
            assert answer.status_code in (200, 201), (method, path, answer.text)
