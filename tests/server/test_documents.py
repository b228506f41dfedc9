"""Documents and scopes over HTTP."""

from __future__ import annotations

import asyncio
import base64
import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import pytest

from memory import DocumentInfo, QuotaExceeded
from memory.ports.contract.cells import cells
from memory.server.problems import problem_response
from tests.server.api import Api
from tests.server.support import Client


def item(key: str = "settings", scope: str = "user:ada", path: str = "item") -> str:
    return f"/v1/documents/{path}?{urlencode({'scope': scope, 'key': key})}"


async def put(client: Client, key: str, value: Any, scope: str = "user:ada", **more: Any) -> Any:
    return await client.call("PUT", item(key, scope), json={"value": value, **more})


@pytest.mark.parametrize("key", ["settings", "..", ".", "a/b", "%2F", "ä ?&#", "x" * 512])
async def test_a_document_is_stored_under_any_key(ada: Client, key: str) -> None:
    value = {"theme": "dark", "n": [1, 2.5, None, True]}
    made = await put(ada, key, value, metadata={"by": "ada"}, expires_in="2h")
    read = await ada.answer("GET", item(key))
    assert read.headers["etag"] == f'"{made["version"]}"'
    shown = read.json()
    assert (shown["value"], shown["metadata"], shown["form"]) == (value, {"by": "ada"}, "json")
    assert shown["expires_at"] is not None
    assert (
        await ada.answer("GET", item(key), headers={"If-None-Match": read.headers["etag"]})
    ).status_code == 304
    assert await ada.call("DELETE", item(key)) == {"deleted": True}
    await ada.call("GET", item(key), 404)
    await ada.call("DELETE", item(key), 404)


async def test_a_document_is_replaced_only_in_the_version_that_was_read(ada: Client) -> None:
    absent = {"If-None-Match": "*"}
    first = await ada.call("PUT", item(), json={"value": 1}, headers=absent)
    await ada.call("PUT", item(), 412, json={"value": 2}, headers=absent)
    await ada.call("PUT", item(), 409, json={"value": 2, "if_exists": "error"})
    second = await ada.call("PUT", item(), json={"value": 2}, headers={"If-Match": f'"{first["version"]}"'})
    stale = {"If-Match": f'"{first["version"]}"'}
    assert (await ada.call("PUT", item(), 412, json={"value": 3}, headers=stale))[
        "current_version"
    ] == second["version"]
    await ada.call("DELETE", item(), 412, headers=stale)
    await ada.call("DELETE", item(), 400, headers={"If-Match": "no etag"})
    assert (await ada.call("GET", item()))["value"] == 2
    await ada.call("DELETE", item(), headers={"If-Match": f'"{second["version"]}"'})


async def test_bytes_come_back_as_base64_and_raw(ada: Client) -> None:
    data = bytes(range(256))
    body = {"value_base64": base64.b64encode(data).decode()}
    made = await ada.call("PUT", item(), json=body)
    assert (made["form"], made["size"]) == ("bytes", 256)
    assert base64.b64decode((await ada.call("GET", item()))["value"]) == data
    raw = await ada.answer("GET", item(path="raw"))
    assert raw.content == data
    assert raw.headers["content-type"] == "application/octet-stream"
    assert raw.headers["content-disposition"] == "attachment"
    assert raw.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in raw.headers["content-security-policy"]
    await put(ada, "page", "<script>alert(1)</script>")
    page = await ada.answer("GET", item("page", path="raw"))
    assert page.json() == "<script>alert(1)</script>"
    assert page.headers["content-disposition"] == "attachment"
    await ada.call("GET", item("none", path="raw"), 404)


@cells("method, path, body, field", [
        ("PUT", item(), {}, "value"),
        ("PUT", item(), {"value": 1, "value_base64": "AA=="}, "value"),
        ("PUT", item(), {"value_base64": "?"}, "value_base64"),
        ("PUT", item(), {"value": 1, "expires": "2h"}, "expires"),
        ("PUT", item(), {"value": 1, "expires_in": "soon"}, "expires_in"),
        ("PUT", item(), {"value": 1, "refresh_on_read": True}, "refresh_on_read"),
        ("PUT", item(scope="wizard:ada"), {"value": 1}, "scope"),
        ("PUT", "/v1/documents/item?scope=user:ada", {"value": 1}, "key"),
        ("GET", "/v1/documents/item?key=a", None, "scope"),
        ("GET", "/v1/documents", None, "scope"),
        ("GET", "/v1/documents?scope=user:ada&filter=x", None, "filter"),
        ("GET", "/v1/documents?scope=user:ada&prefx=x", None, "prefx"),
        ("POST", "/v1/documents/get", {"scope": "user:ada"}, "keys"),
        ("POST", "/v1/documents/delete", {"scope": "user:ada", "filter": {}}, "filter"),
        ("POST", "/v1/documents/apply", {"changes": [{"op": "put", "scope": "user:ada", "key": "a"}]},
         "changes[0].value"),
        ("POST", "/v1/documents/apply",
         {"changes": [{"op": "delete", "scope": "user:ada", "key": "a", "value": 1}]}, "changes[0].value"),
        ("POST", "/v1/documents/put", {"puts": [None]}, "puts[0]"),
        ("POST", "/v1/documents/put", [], "body"),
    ], shared=True)  # fmt: skip
async def test_bad_input_is_refused_by_field(
    ada: Client, method: str, path: str, body: Any, field: str
) -> None:
    document = await ada.call(method, path, 400, json=body)
    assert field in [one["field"] for one in document["errors"]]
    assert (await ada.call("GET", "/v1/documents?scope=user:ada"))["documents"] == []


async def test_documents_are_listed_found_and_deleted(ada: Client) -> None:
    for number in range(5):
        await put(ada, f"step:{number}", {"n": number})
    await put(ada, "step:1", {"n": 1}, scope="user:bob")
    keys, path = [], "/v1/documents?scope=user:ada&prefix=step:&limit=2&values=true&reverse=true"
    while path:
        response = await ada.answer("GET", path)
        keys.append([one["key"] for one in response.json()["documents"]])
        path = response.links["next"]["url"] if "next" in response.links else ""
    assert keys == [["step:4", "step:3"], ["step:2", "step:1"], ["step:0"]]
    wanted = urlencode({"scope": "user:ada", "filter": '{"value.n": {"$gt": 2}}'})
    assert [one["key"] for one in (await ada.call("GET", f"/v1/documents?{wanted}"))["documents"]] == [
        "step:3",
        "step:4",
    ]
    body = {"scope": "user:ada", "keys": ["step:4", "none", "step:0"]}
    found = (await ada.call("POST", "/v1/documents/get", json=body))["documents"]
    assert [one and one["value"] for one in found] == [{"n": 4}, None, {"n": 0}]
    some = {"scope": "user:ada", "filter": {"value.n": {"$gt": 2}}}
    assert await ada.call("POST", "/v1/documents/delete", json=some) == {"deleted": 2}
    assert await ada.call("POST", "/v1/documents/delete", json={"scope": "user:ada"}) == {"deleted": 3}


async def test_documents_of_one_key_are_found_below_a_path(ada: Client) -> None:
    for thread in ("a", "b", "b/c"):
        await put(ada, "state", {"of": thread}, scope=f"path:threads/{thread}/")
    path = item("state", "path:threads/**", "find") + "&values=true"
    found = (await ada.call("GET", path))["documents"]
    assert sorted(one["value"]["of"] for one in found) == ["a", "b", "b/c"]


async def test_several_documents_are_put_and_those_that_are_there_are_named(ada: Client) -> None:
    puts: list[dict[str, Any]] = [
        {"scope": "user:ada", "key": f"step:{n}", "value": {"n": n}} for n in range(3)
    ]
    headers = {"Idempotency-Key": "steps"}
    made = [
        await ada.call("POST", "/v1/documents/put", json={"puts": puts}, headers=headers) for _ in range(2)
    ]
    assert made[0] == made[1]
    assert [one["key"] for one in made[0]["documents"]] == ["step:0", "step:1", "step:2"]
    kept = [{**puts[0], "value": "other", "if_exists": "keep"}]
    assert (await ada.call("POST", "/v1/documents/put", json={"puts": kept}))["documents"] == made[0][
        "documents"
    ][:1]
    new = {"scope": "user:bob", "key": "step:9", "value_base64": "AAE="}
    refused = await ada.call(
        "POST", "/v1/documents/put", 409, json={"puts": [{**puts[1], "if_exists": "error"}, new]}
    )
    assert refused["code"] == "partial_write"
    assert refused["written"] == {"1": "step:9"}
    assert list(refused["conflicts"]) == ["0"]
    assert (await ada.call("GET", item("step:9", "user:bob")))["form"] == "bytes"
    latest = await ada.call("GET", "/v1/documents?scope=user:ada&order=updated&reverse=true&limit=1")
    assert [one["key"] for one in latest["documents"]] == ["step:2"]
    wrong = await ada.call(
        "POST", "/v1/documents/put", 400, json={"puts": [puts[0], {**puts[1], "op": "put"}]}
    )
    assert [one["field"] for one in wrong["errors"]] == ["puts[1].op"]


def test_a_full_quota_names_what_was_stored_before() -> None:
    now = datetime.now(UTC)
    stored = DocumentInfo("user:ada", "step:0", "v1", "json", 1, now, now, None, None)
    full = QuotaExceeded("state", "scope 'user:ada'", "document_bytes", 9, 8, 7)
    assert "written" not in json.loads(bytes(problem_response(full).body))
    problem = json.loads(bytes(problem_response(full.with_written({3: stored})).body))
    assert problem["written"] == {"3": "step:0"}
    assert "1 of this call are stored" in problem["detail"]


async def test_changes_are_made_together_and_a_repeat_makes_them_once(ada: Client) -> None:
    seen = await put(ada, "latest", "step:1")
    await put(ada, "step:1", {"n": 1})
    changes = [
        {"op": "put", "scope": "user:ada", "key": "step:2", "value": {"n": 2}, "expected_version": "ABSENT"},
        {
            "op": "put",
            "scope": "user:ada",
            "key": "latest",
            "value": "step:2",
            "expected_version": seen["version"],
        },
        {"op": "delete", "scope": "user:ada", "key": "step:1"},
    ]
    headers = {"Idempotency-Key": "move"}
    made = [
        await ada.call("POST", "/v1/documents/apply", json={"changes": changes}, headers=headers)
        for _ in range(3)
    ]
    assert made[0] == made[1] == made[2]
    assert made[0]["documents"][2] is None
    await ada.call("POST", "/v1/documents/apply", 409, json={"changes": changes})
    assert (await ada.call("GET", item("latest")))["value"] == "step:2"
    several = {"changes": [{**one, "scope": f"user:{n}"} for n, one in enumerate(changes[2:] * 2)]}
    await ada.call("POST", "/v1/documents/apply", 400, json=several)
    await ada.call("POST", "/v1/documents/apply", json={**several, "atomic": False})


async def test_a_counter_of_fifty_clients_counts_all(api: Api, ada: Client) -> None:
    await put(ada, "counter", 0)

    async def add() -> None:
        client = api.client()
        while True:
            seen = await client.answer("GET", item("counter"))
            response = await client.answer(
                "PUT",
                item("counter"),
                json={"value": seen.json()["value"] + 1},
                headers={"If-Match": seen.headers["etag"]},
            )
            if response.status_code == 200:
                return
            assert response.status_code == 412, response.text

    await asyncio.gather(*(add() for _ in range(50)))
    assert (await ada.call("GET", item("counter")))["value"] == 50


async def test_roles_tenants_and_scopes_are_kept_apart(api: Api, ada: Client) -> None:
    await put(ada, "settings", 1)
    await put(ada, "settings", 2, scope="user:bob")
    reader = api.client("reader")
    assert (await reader.call("GET", item()))["value"] == 1
    await reader.call("PUT", item(), 403, json={"value": 3})
    await reader.call("DELETE", item(), 403)
    await reader.call("POST", "/v1/documents/apply", 403, json={"changes": []})
    other = api.client("operator", "globex")
    await other.call("GET", item(), 404)
    assert (await other.call("GET", "/v1/scopes"))["scopes"] == []
    only_ada = api.client("writer", "acme", "user:ada")
    assert (await only_ada.call("GET", item()))["value"] == 1
    known = await only_ada.call("GET", item(scope="user:bob"), 403)
    unknown = await only_ada.call("GET", item(scope="user:eve"), 403)
    assert known["detail"].replace("bob", "eve") == unknown["detail"]
    listed = (await only_ada.call("GET", "/v1/scopes"))["scopes"]
    assert [one["scope"] for one in listed] == ["user:ada"]


async def test_scopes_are_listed_by_page(ada: Client) -> None:
    for name in ("user:ada", "path:teams/red/a/", "path:teams/red/b/", "path:teams/blue/"):
        await put(ada, "k", 1, scope=name)
    pages, path = [], "/v1/scopes?limit=3"
    while path:
        response = await ada.answer("GET", path)
        pages.append([one["scope"] for one in response.json()["scopes"]])
        path = response.links["next"]["url"] if "next" in response.links else ""
    assert pages == [["path:teams/blue/", "path:teams/red/a/", "path:teams/red/b/"], ["user:ada"]]
    grouped = await ada.call("GET", "/v1/scopes?prefix=path:teams/&max_depth=2")
    assert [(one["scope"], one["documents"]) for one in grouped["scopes"]] == [
        ("path:teams/blue/", 1),
        ("path:teams/red/", 2),
    ]
    await ada.call("GET", "/v1/scopes?kind=wizard", 400)
