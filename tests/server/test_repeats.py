"""Repeats under an `Idempotency-Key`: the first outcome, and 422 for another body."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from tests.server.api import Api
from tests.server.support import ENTRIES, RELATIONS, Client

pytestmark = pytest.mark.backend("in_memory")
SESSION, ADMIN = "/v1/sessions/trip", "/v1/admin"
FILE = "/v1/memory/artifacts?session_id=trip&path=a.txt"
ADA = {"scope": "user:ada"}
LINK = {"source_id": "{tea}", "target_id": "{cup}"}
SUMMARY = {"summary": "They spoke.", "last_id": "m2", "keep_last": 1}
HELLO = [{"role": "user", "content": "hello"}]

BODIES: tuple[tuple[str, str, Any, Any], ...] = (
    ("POST", ENTRIES, {**ADA, "content": "one"}, {**ADA, "content": "two"}),
    ("POST", f"{ENTRIES}/batch", {"entries": [{**ADA, "content": "one"}]},
     {"entries": [{**ADA, "content": "two"}]}),
    ("POST", f"{ENTRIES}/delete", {"filter": {"metadata.a": 1}}, {"filter": {"metadata.a": 2}}),
    ("PATCH", f"{ENTRIES}/{{tea}}", {"title": "one"}, {"title": "two"}),
    ("POST", RELATIONS, {**LINK, "relation": "supports"}, {**LINK, "relation": "contradicts"}),
    ("POST", f"{ENTRIES}/{{draft}}/promote", {"to": "user:bob"}, {"to": "user:eve"}),
    ("POST", "/v1/memory/compact", {"entry_ids": ["{tea}"], "content": "one"},
     {"entry_ids": ["{tea}"], "content": "two"}),
    ("POST", f"{ENTRIES}/{{cup}}/invalidate", {}, {"when": "2030-01-01T00:00:00Z"}),
    ("POST", "/v1/memory/scratchpads/planner", {"text": "one"}, {"text": "two"}),
    ("POST", "/v1/memory/scratchpad", {"text": "one"}, {"text": "two"}),
    ("POST", "/v1/sessions", {"session_id": "new", "title": "one"}, {"session_id": "new", "title": "two"}),
    ("PATCH", SESSION, {"title": "one"}, {"title": "two"}),
    ("POST", f"{SESSION}/messages", {"messages": HELLO}, {"messages": HELLO, "user": "ada"}),
    ("PATCH", f"{SESSION}/messages/m1", {"content": "one"}, {"content": "two"}),
    ("POST", f"{SESSION}/checkpoints", {"name": "one"}, {"name": "two"}),
    ("POST", f"{SESSION}/roll-back", {"checkpoint": "{checkpoint}"},
     {"checkpoint": "{checkpoint}", "user": "ada"}),
    ("POST", f"{SESSION}/messages/m2/exclude", {"reason": "one"}, {"reason": "two"}),
    ("POST", f"{SESSION}/messages/m2/restore", {}, {"user": "ada"}),
    ("POST", f"{SESSION}/compactions", SUMMARY, {**SUMMARY, "summary": "They said nothing."}),
    ("POST", f"{SESSION}/compact-if-needed", {"by": "messages", "settings": {"most": 90}},
     {"by": "messages", "settings": {"most": 91}}),
    ("PUT", f"{SESSION}/window", {"messages": HELLO}, {"messages": [*HELLO, *HELLO]}),
    ("POST", f"{SESSION}/repair-tool-calls", {}, {"user": "ada"}),
    ("POST", f"{SESSION}/pop", {"n": 1}, {"n": 2}),
    ("POST", f"{SESSION}/clear", {}, {"user": "ada"}),
    ("PUT", f"{SESSION}/tasks", {"tasks": [{"id": "t", "title": "one"}]},
     {"tasks": [{"id": "t", "title": "two"}]}),
    ("PUT", f"{SESSION}/tasks/t1", {"title": "one"}, {"title": "two"}),
    ("PUT", f"{SESSION}/runs/r1", {"child_id": "one"}, {"child_id": "two"}),
    ("POST", f"{SESSION}/fork", {"new_session_id": "one"}, {"new_session_id": "two"}),
    ("PUT", "/v1/documents/item?scope=user:ada&key=k", {"value": 1}, {"value": 2}),
    ("POST", "/v1/documents/put", {"puts": [{"scope": "user:ada", "key": "p", "value": 1}]},
     {"puts": [{"scope": "user:ada", "key": "p", "value": 2}]}),
    ("POST", "/v1/documents/apply",
     {"changes": [{"op": "put", "scope": "user:ada", "key": "p", "value": 1}]},
     {"changes": [{"op": "delete", "scope": "user:ada", "key": "p"}]}),
    ("POST", "/v1/documents/delete", {"scope": "user:ada", "prefix": "p"},
     {"scope": "user:ada", "prefix": "q"}),
    ("POST", "/v1/commands", {**ADA, "text": "/mem entries"}, {**ADA, "text": "/mem scratchpad"}),
    ("POST", f"{ADMIN}/legal-holds", {"name": "case", "user": "zoe", "reason": "one"},
     {"name": "case", "user": "zoe", "reason": "two"}),
    ("POST", f"{ADMIN}/blocked-sources", {"source": "web:a", "reason": "one"},
     {"source": "web:a", "reason": "two"}),
    ("POST", f"{ADMIN}/revert-source", {"source": "web:a"}, {"source": "web:b"}),
    ("POST", f"{SESSION}/archive", {}, {"user": "ada"}),
    ("POST", f"{SESSION}/resume", {}, {"user": "ada"}),
    ("POST", f"{SESSION}/end", {}, {"user": "ada"}),
)  # fmt: skip
"""Requests in order, each with its body and with another body."""
NO_FIRST_ANSWER = {("POST", "/v1/admin/keys")}
"""A repeat would show the text of a key again: it is refused, see `test_keys`."""


def filled(value: Any, ids: dict[str, Any]) -> Any:
    """The value with ids in place of their names."""
    text = json.dumps(value)
    for name, one in ids.items():
        text = text.replace(f'"{{{name}}}"', json.dumps(one)).replace(f"{{{name}}}", str(one))
    return json.loads(text)


@pytest.fixture
def client(api: Api) -> Client:
    """An operator of the application that all tests share."""
    return api.client("operator")


@pytest.fixture
async def ids(client: Client) -> dict[str, Any]:
    """The ids of what the requests are about."""
    tea, cup = [(await client.write(text))["id"] for text in ("tea", "cup")]
    draft = (await client.write("draft", scope="session:trip"))["id"]
    said = [{"role": "user", "content": text} for text in ("one", "two", "three")]
    body = {"messages": said, "ids": ["m1", "m2", "m3"], "user": "ada", "system": "Be kind."}
    await client.call("POST", f"{SESSION}/messages", 201, json=body)
    checkpoint = await client.call("POST", f"{SESSION}/checkpoints", 201)
    return {"tea": tea, "cup": cup, "draft": draft, "checkpoint": checkpoint}


async def test_an_idempotency_key_makes_a_write_repeatable(client: Client) -> None:
    key = {"Idempotency-Key": "order-7"}
    first = await client.call("POST", ENTRIES, 201, json={**ADA, "content": "once"}, headers=key)
    again = await client.call("POST", ENTRIES, 201, json={**ADA, "content": "once"}, headers=key)
    assert again == first
    other = await client.call("POST", ENTRIES, 422, json={**ADA, "content": "twice"}, headers=key)
    assert other["code"] == "request_id_reused"
    assert len((await client.call("GET", ENTRIES))["entries"]) == 1
    one = f"{ENTRIES}/{first['id']}"
    for _ in range(2):
        await client.call("POST", f"{one}/invalidate", headers={"Idempotency-Key": "end"})
    for wrong in ("", "x" * 129):
        assert await client.refused(
            "POST", ENTRIES, json={**ADA, "content": "x"}, headers={"Idempotency-Key": wrong}
        )


async def test_a_repeat_beside_the_first_is_refused_and_stores_nothing_twice(client: Client) -> None:
    async def write() -> int:
        headers = {"Idempotency-Key": "same"}
        return (
            await client.answer("POST", ENTRIES, json={**ADA, "content": "once"}, headers=headers)
        ).status_code

    statuses = await asyncio.gather(*(write() for _ in range(8)))
    assert set(statuses) <= {201, 409}
    assert statuses.count(201) >= 1
    assert len((await client.call("GET", ENTRIES))["entries"]) == 1


async def test_a_repeat_gets_the_first_answer_and_another_body_is_refused(
    client: Client, ids: dict[str, Any]
) -> None:
    for at, (method, path, body, other) in enumerate(BODIES):
        named, key = filled(path, ids), {"Idempotency-Key": f"request-{at}"}
        first, again, wrong = [
            await client.answer(method, named, json=filled(one, ids), headers=key)
            for one in (body, body, other)
        ]
        assert first.status_code in (200, 201), (method, path, first.text)
        assert (again.status_code, again.json()) == (first.status_code, first.json()), (method, path)
        assert (wrong.status_code, wrong.json()["code"]) == (422, "request_id_reused"), (method, path)


async def test_every_request_that_can_be_repeated_is_tried(client: Client) -> None:
    tried = {(method, path.partition("?")[0]) for method, path, _, _ in BODIES}
    for path, methods in (await client.call("GET", "/openapi.json"))["paths"].items():
        pattern = re.compile(re.sub(r"{.*?}", "[^/]+", path))
        for method, described in methods.items():
            keys = [one for one in described.get("parameters", ()) if one["name"] == "Idempotency-Key"]
            if not keys or not keys[0]["description"].startswith("Your id") or "requestBody" not in described:
                continue
            if "application/json" in described["requestBody"]["content"]:
                assert (method.upper(), path) in NO_FIRST_ANSWER or any(
                    verb == method.upper() and pattern.fullmatch(one) for verb, one in tried
                ), (method, path)


async def test_a_repeat_may_have_its_fields_in_another_order(client: Client) -> None:
    sent = [
        b'{"content": "one", "title": "A", "scope": "user:ada"}',
        b'{"scope":"user:ada","title":"A","content":"one"}',
    ]
    headers = {"Content-Type": "application/json", "Idempotency-Key": "k"}
    first, again = [await client.call("POST", ENTRIES, 201, content=one, headers=headers) for one in sent]
    assert first == again


@pytest.mark.parametrize("size", [10, 3_000_000])
async def test_a_file_is_stored_once_and_another_one_refused(
    client: Client, ids: dict[str, Any], size: int
) -> None:
    headers = {"Content-Type": "application/octet-stream", "Idempotency-Key": "k"}
    content = [b"a" * size, b"a" * size, b"a" * (size - 1) + b"b", b"a" * (size - 1)]
    answers = [await client.answer("PUT", FILE, content=one, headers=headers) for one in content]
    assert [one.status_code for one in answers] == [201, 201, 422, 422]
    assert answers[0].json() == answers[1].json()
    found = await client.answer("GET", f"/v1/memory/artifacts/{answers[0].json()['id']}/raw")
    assert found.content == content[0]


async def test_a_repeat_by_a_number_finds_what_was_deleted_since(
    api: Api, client: Client, ids: dict[str, Any]
) -> None:
    headers = {"Content-Type": "application/octet-stream"}
    file = await client.call("PUT", FILE, 201, content=b"x", headers=headers)
    numbers = await api.memory.short_ids.of([ids["tea"], ids["cup"]])
    of_file = (await api.memory.short_ids.of([file["id"]], kind="artifact"))[file["id"]]
    tea, cup = numbers[ids["tea"]], numbers[ids["cup"]]
    link = {"source_id": tea, "target_id": cup, "relation": "supports"}
    requests: list[tuple[str, str, Any]] = [
        ("POST", RELATIONS, link),
        ("POST", ENTRIES, {**ADA, "content": "new", "artifact_id": of_file}),
        ("POST", f"{ENTRIES}/{cup}/invalidate", {}),
        ("DELETE", f"{ENTRIES}/%23{tea}", None),
        ("DELETE", f"/v1/memory/artifacts/{of_file}", None),
    ]
    first, again = [
        [
            await client.answer(method, path, headers={"Idempotency-Key": f"n{at}"}, **given_of(body))
            for at, (method, path, body) in enumerate(requests)
        ]
        for _ in range(2)
    ]
    assert [one.status_code for one in first] == [201, 201, 200, 200, 200]
    for one, other in zip(first[1:], again[1:], strict=True):
        assert (one.status_code, one.json()["id"]) == (other.status_code, other.json()["id"])
    assert again[0].status_code == 404  # the link went with its end, and is not made again
    await client.call("DELETE", f"{ENTRIES}/{tea}", 404)
    await client.call("DELETE", f"{ENTRIES}/{tea}", 404, headers={"Idempotency-Key": "new"})
    await client.call("DELETE", f"{ENTRIES}/{cup}", 422, headers={"Idempotency-Key": "n3"})


def given_of(body: Any) -> dict[str, Any]:
    return {} if body is None else {"json": body}
