"""Sessions over HTTP: their attributes, messages, windows, tasks and runs."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.server.api import Api, open_api
from tests.server.support import Client

S = "/v1/sessions/trip"
CALL: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Lisbon"}'}}
    ],
}
RESULT: dict[str, Any] = {"role": "tool", "tool_call_id": "c1", "content": "sunny"}


async def create(client: Client, session_id: str = "trip", **attributes: Any) -> Any:
    return await client.call("POST", "/v1/sessions", 201, json={"session_id": session_id, **attributes})


async def append(client: Client, *texts: str, session: str = S, **more: Any) -> list[Any]:
    """Append messages of the user, and return them."""
    body = {"messages": [{"role": "user", "content": text} for text in texts], **more}
    stored: list[Any] = (await client.call("POST", f"{session}/messages", 201, json=body))["messages"]
    return stored


async def window(client: Client, session: str = S) -> list[str]:
    """The texts of the window, without the system message."""
    shown = await client.call("GET", f"{session}/window")
    return [one["content"] for one in shown["messages"] if one["role"] != "system"]


# -- the session itself ----------------------------------------------------------------


async def test_a_session_is_created_changed_and_deleted(api: Api, ada: Client) -> None:
    made = await create(ada, user="ada", system="Be kind.", tags=["b", "a"], metadata={"n": 1})
    assert made["id"] == "trip"
    assert (made["user"], made["tags"], made["metadata"]) == ("ada", ["b", "a"], {"n": 1})
    seen = await ada.answer("GET", S)
    assert seen.headers["etag"] == f'"{made["attributes_version"]}"'
    assert (await ada.answer("GET", S, headers={"If-None-Match": seen.headers["etag"]})).status_code == 304

    changed = await ada.call("PATCH", S, json={"title": "Lisbon"}, headers={"If-Match": seen.headers["etag"]})
    assert (changed["title"], changed["tags"]) == ("Lisbon", ["b", "a"])
    stale = await ada.call(
        "PATCH", S, 412, json={"title": "Porto"}, headers={"If-Match": seen.headers["etag"]}
    )
    assert stale["current_version"] == changed["attributes_version"]
    assert (await ada.call("PATCH", S, json={"title": None}))["title"] is None

    assert (await ada.call("POST", "/v1/sessions", 409, json={"session_id": "trip"}))["existing_id"] == "trip"
    assert await ada.call("DELETE", S) == {"deleted": True}
    await ada.call("DELETE", S, 404)
    await ada.call("GET", S, 404)


async def test_a_session_expires_after_a_length_of_time(ada: Client) -> None:
    made = await create(ada, expires_in="2h")
    began, expires = [datetime.fromisoformat(made[name]) for name in ("created_at", "expires_at")]
    assert timedelta(hours=1) < expires - began < timedelta(hours=3)
    later = await ada.call("PATCH", S, json={"expires_in": 86_400})
    assert datetime.fromisoformat(later["expires_at"]) - expires > timedelta(hours=20)
    assert (await ada.call("PATCH", S, json={"expires_in": None}))["expires_at"] is None
    await append(ada, "hi", session="/v1/sessions/other", expires_in=60)
    assert (await ada.call("GET", "/v1/sessions/other"))["expires_at"] is not None

    for given, field in (({"expires_in": "soon"}, "expires_in"), ({"expires_in": 0}, "expires_in"),
                         ({"expires_in": "2h", "expires_at": "2200-01-01T00:00:00Z"}, "expires_in"),
                         ({"expires_at": 60}, "expires_at")):  # fmt: skip
        refused = await ada.call("PATCH", S, 400, json=given)
        assert [one["field"] for one in refused["errors"]] == [field]
    assert "send expires_in" in refused["detail"]


async def test_a_session_without_an_id_gets_one_and_a_repeat_gets_the_same(ada: Client) -> None:
    headers = {"Idempotency-Key": "first"}
    made = [
        await ada.call("POST", "/v1/sessions", 201, json={"user": "ada"}, headers=headers) for _ in range(3)
    ]
    assert len({one["id"] for one in made}) == 1
    assert len((await ada.call("GET", "/v1/sessions"))["sessions"]) == 1
    await ada.call("POST", "/v1/sessions", 422, json={"user": "bob"}, headers=headers)


@pytest.mark.parametrize("named", ["ada/trip", "50%", "a b", "ä?&#", "..x", "%2F", "a%25b"])
async def test_a_session_may_have_any_id(ada: Client, named: str) -> None:
    from urllib.parse import quote

    await create(ada, named)
    path = f"/v1/sessions/{quote(named, safe='')}"
    [message] = await append(ada, "hello", session=path)
    assert (await ada.call("GET", path))["id"] == named
    assert (await ada.call("GET", f"{path}/messages/{message['id']}"))["message"]["content"] == "hello"


async def test_sessions_are_listed_by_page_with_a_link(ada: Client) -> None:
    for number in range(5):
        await create(ada, f"s{number}", user="ada" if number % 2 else "bob", tags=[f"t{number}"])
    pages, path = [], "/v1/sessions?limit=2&by=created&order=oldest"
    while path:
        response = await ada.answer("GET", path)
        pages.append([one["id"] for one in response.json()["sessions"]])
        path = response.links["next"]["url"] if "next" in response.links else ""
    assert pages == [["s0", "s1"], ["s2", "s3"], ["s4"]]
    found = await ada.call("GET", "/v1/sessions?user=bob&tags=t2")
    assert [one["id"] for one in found["sessions"]] == ["s2"]


async def test_a_cursor_belongs_to_its_key(api: Api, ada: Client) -> None:
    for number in range(3):
        await create(ada, f"s{number}")
    cursor = (await ada.call("GET", "/v1/sessions?limit=1"))["cursor"]
    await ada.call("GET", f"/v1/sessions?limit=1&cursor={cursor}")
    refused = await api.client("admin").call("GET", f"/v1/sessions?limit=1&cursor={cursor}", 400)
    assert refused["errors"][0]["field"] == "cursor"
    await ada.call("GET", "/v1/sessions?limit=1&cursor=nonsense", 400)


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("POST", "/v1/sessions", {"sesion_id": "x"}, "sesion_id"),
        ("POST", "/v1/sessions", {"session_id": 3}, "session_id"),
        ("POST", "/v1/sessions", {"tags": "red"}, "tags"),
        ("POST", "/v1/sessions", ["trip"], "body"),
        ("GET", "/v1/sessions?limit=0", None, "limit"),
        ("GET", "/v1/sessions?limit=1001", None, "limit"),
        ("GET", "/v1/sessions?limit=two", None, "limit"),
        ("GET", "/v1/sessions?statuss=active", None, "statuss"),
        ("GET", "/v1/sessions?status=open", None, "status"),
        ("GET", "/v1/sessions?since=yesterday", None, "since"),
        ("GET", f"{S}?verbose=1", None, "verbose"),
        ("PATCH", S, {"name": "x"}, "name"),
        ("POST", f"{S}/messages", {}, "messages"),
        ("POST", f"{S}/messages", {"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ("POST", f"{S}/messages", {"messages": [{"role": "user"}], "in_history": "yes"}, "in_history"),
        ("GET", f"{S}/context?budget=-1", None, "budget"),
        ("GET", f"{S}/context?format=opnai", None, "format"),
        ("POST", f"{S}/pop", {"n": 0}, "n"),
        ("POST", f"{S}/search", {"query": "x", "mode": "magic"}, "mode"),
        ("POST", f"{S}/compact-if-needed", {"by": "tokens"}, "settings.max_tokens"),
        ("POST", f"{S}/compact-if-needed", {"by": "turns", "settings": {"moust": 1}}, "settings.moust"),
        ("PUT", f"{S}/tasks", {"tasks": [{"title": "no id"}]}, "tasks[0]"),
        ("PUT", f"{S}/runs/r", {"child_id": "c", "status": "flying"}, "status"),
    ],
)
async def test_bad_input_is_refused_by_field_and_nothing_is_stored(
    ada: Client, method: str, path: str, body: Any, field: str
) -> None:
    await create(ada)
    document = await ada.call(method, path, 400, json=body)
    assert field in [one["field"] for one in document["errors"]]
    assert (await ada.call("GET", S))["message_count"] == 0
    assert len((await ada.call("GET", "/v1/sessions"))["sessions"]) == 1


async def test_a_problem_names_what_was_not_found(ada: Client) -> None:
    await create(ada)
    for method, path, named in (
        ("GET", "/v1/sessions/none", {"session_id": "none"}),
        ("GET", "/v1/sessions/none/window", {"session_id": "none"}),
        ("GET", f"{S}/tasks/none", {"task_id": "none"}),
        ("GET", f"{S}/messages/none", {"message_id": "none"}),
        ("GET", "/v1/documents/item?scope=user:ada&key=none", {"key": "none"}),
    ):
        problem = await ada.call(method, path, 404)
        assert {name: problem[name] for name in named} == named, path
        assert "entry_id" not in problem, path


async def test_a_reader_reads_and_changes_nothing(api: Api, ada: Client) -> None:
    await create(ada)
    await append(ada, "hello")
    reader = api.client("reader")
    for path in ("", "/messages", "/context", "/window", "/state", "/tasks", "/runs", "/compactions"):
        await reader.call("GET", f"{S}{path}")
    await reader.call("POST", f"{S}/context", json={})
    await reader.call("POST", f"{S}/search", json={"query": "hello"})
    refused: list[tuple[str, str, Any]] = [
        ("POST", "/v1/sessions", {}),
        ("PATCH", S, {"title": "x"}),
        ("DELETE", S, None),
        ("POST", f"{S}/messages", {"messages": []}),
        ("POST", f"{S}/clear", None),
        ("PUT", f"{S}/tasks/t", {}),
        ("DELETE", f"{S}/runs/r", None),
    ]
    for method, path, body in refused:
        assert (await reader.call(method, path, 403, json=body))["code"] == "forbidden"
    assert await window(ada) == ["hello"]


async def test_another_tenant_finds_nothing(api: Api, ada: Client) -> None:
    await create(ada)
    await append(ada, "hello")
    other = api.client("operator", "globex")
    for method, path in (("GET", S), ("GET", f"{S}/messages"), ("DELETE", S), ("POST", f"{S}/pop")):
        there = await other.call(method, path, 404)
        absent = await other.call(method, path.replace("trip", "none"), 404)
        without = {"detail": "", "error": "", "session_id": ""}
        assert there | without == absent | without
    assert (await other.call("GET", "/v1/sessions"))["sessions"] == []
    assert (await other.call("POST", "/v1/messages/search", json={"query": "hello"}))["hits"] == []


async def test_a_key_of_some_scopes_has_the_sessions_of_its_users(api: Api, ada: Client) -> None:
    await create(ada, "hers", user="ada")
    await create(ada, "his", user="bob")
    only_ada = api.client("writer", "acme", "user:ada")
    assert [one["id"] for one in (await only_ada.call("GET", "/v1/sessions"))["sessions"]] == ["hers"]
    await only_ada.call("GET", "/v1/sessions/his", 404)
    await only_ada.call("POST", "/v1/sessions/his/pop", 404)
    made = await only_ada.call("POST", "/v1/sessions", 201, json={"user": "ada"})
    assert made["user"] == "ada"
    await only_ada.call("POST", "/v1/sessions", 403, json={"user": "bob"})


# -- messages --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "originals"),
    [
        ("openai", [{"role": "user", "content": "Weather?"}, CALL, RESULT]),
        (
            "anthropic",
            [
                {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "x"}}],
                },
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "sunny"}],
                },
            ],
        ),
    ],
)
async def test_messages_of_a_framework_come_back_as_they_were_appended(
    ada: Client, format: str, originals: list[Any]
) -> None:
    body = {"messages": originals, "format": format, "user": "ada"}
    await ada.call("POST", f"{S}/messages", 201, json=body)
    for path in ("context", "window", "messages"):
        shown = await ada.call("GET", f"{S}/{path}?format={format}")
        assert shown["messages"] == originals, path
        assert shown["without_equivalent"] == []
    asked = {"budget": 1000, "format": format, "tools": [{"name": "weather"}]}
    assert (await ada.call("POST", f"{S}/context", json=asked))["messages"] == originals
    assert (await ada.call("GET", f"{S}/messages?format=original"))["messages"]
    assert (await ada.call("POST", f"{S}/pop", json={"n": 1}))["messages"] == originals[-1:]


async def test_a_message_is_read_changed_erased_and_streamed_by_its_id(ada: Client) -> None:
    await create(ada)
    stored = await append(ada, "one", "two", ids=["m1", None])
    assert stored[0]["id"] == "m1"
    await append(ada, "one, and more", ids=["m1"])  # a longer piece of a stream
    assert await window(ada) == ["one, and more", "two"]
    item = await ada.call("GET", f"{S}/messages/m1")
    assert (item["number"], item["message"]["content"]) == (1, "one, and more")
    changed = await ada.call("PATCH", f"{S}/messages/m1", json={"content": "1", "metadata": {"a": 1}})
    assert (changed["content"], changed["metadata"]) == ("1", {"a": 1})
    assert await ada.call("DELETE", f"{S}/messages/m1") == {"erased": True}
    await ada.call("DELETE", f"{S}/messages/m1", 404)
    await ada.call("GET", f"{S}/messages/m1", 404)
    assert await window(ada) == ["two"]


async def test_a_repeated_append_stores_nothing_twice(ada: Client) -> None:
    await create(ada)
    headers = {"Idempotency-Key": "turn-1"}
    first = await append(ada, "hello")
    body = {"messages": [{"role": "user", "content": "again"}]}
    made = [await ada.call("POST", f"{S}/messages", 201, json=body, headers=headers) for _ in range(3)]
    assert made[0] == made[1] == made[2]
    assert await window(ada) == ["hello", "again"]
    other = {"messages": [{"role": "user", "content": "other"}]}
    await ada.call("POST", f"{S}/messages", 422, json=other, headers=headers)
    assert first[0]["id"] != made[0]["messages"][0]["id"]


async def test_an_append_creates_the_session_unless_told_otherwise(ada: Client) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}]}
    await ada.call("POST", f"{S}/messages", 404, json={**body, "create": False})
    await ada.call("POST", f"{S}/messages", 201, json={**body, "user": "ada", "system": "Be kind."})
    assert (await ada.call("GET", S))["user"] == "ada"
    wrong = await ada.call("POST", f"{S}/messages", 409, json={**body, "user": "bob"})
    assert wrong["code"] == "session_owner_mismatch"
    assert await window(ada) == ["hi"]
    await ada.call("GET", "/v1/sessions/none/context", 404)
    assert len((await ada.call("GET", "/v1/sessions"))["sessions"]) == 1


async def test_the_state_of_a_session_changes_with_messages(ada: Client) -> None:
    await create(ada)
    assert await ada.call("GET", f"{S}/state") == {"state": {}, "version": None}
    await append(ada, "hello", state={"step": 1}, state_version="ABSENT")
    seen = await ada.answer("GET", f"{S}/state")
    version = seen.json()["version"]
    assert (seen.json()["state"], seen.headers["etag"]) == ({"step": 1}, f'"{version}"')
    await append(ada, "more", state={"step": 2}, state_version=version)
    body = {"messages": [], "state": {"step": 3}, "state_version": version}
    assert (await ada.call("POST", f"{S}/messages", 409, json=body))["code"] == "version_conflict"
    assert (await ada.call("GET", f"{S}/state"))["state"] == {"step": 2}


async def test_messages_are_found_in_one_session_and_in_all(ada: Client) -> None:
    await append(ada, "We hike in Madeira", "The hotel is blue", user="ada")
    await append(ada, "Madeira wine", session="/v1/sessions/wine", user="bob")
    here = await ada.call("POST", f"{S}/search", json={"query": "Madeira"})
    assert [hit["item"]["message"]["content"] for hit in here["hits"]] == ["We hike in Madeira"]
    everywhere = await ada.call("POST", "/v1/messages/search", json={"query": "Madeira"})
    assert {hit["session_id"] for hit in everywhere["hits"]} == {"trip", "wine"}
    bobs = await ada.call("POST", "/v1/messages/search", json={"query": "Madeira", "user": "bob", "limit": 5})
    assert {hit["session_id"] for hit in bobs["hits"]} == {"wine"}


# -- the window ------------------------------------------------------------------------


async def test_a_window_is_replaced_whatever_other_requests_have_read(api: Api, ada: Client) -> None:
    """Requests have a parent task in common, and count as strangers all the same."""
    await create(ada)
    await append(ada, "a", "b")
    await api.memory.session("trip").context()  # so this task knows what its children read
    await asyncio.gather(*(window(ada) for _ in range(3)))
    await append(ada, "c")
    await asyncio.gather(window(ada), window(ada))
    new = {"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "z"}]}
    await asyncio.create_task(ada.call("PUT", f"{S}/window", json=new))
    assert await window(ada) == ["a", "z"]


async def test_a_window_is_replaced_as_it_was_read(ada: Client) -> None:
    await create(ada)
    await append(ada, "a", "b")
    read = await ada.answer("GET", f"{S}/window")
    tag = read.headers["ETag"]
    assert tag == f'"{read.json()["window_version"]}"'
    assert (await ada.answer("GET", f"{S}/window", headers={"If-None-Match": tag})).status_code == 304
    assert "ETag" not in (await ada.answer("GET", f"{S}/window?last=1")).headers
    new = {"messages": [*read.json()["messages"][1:], {"role": "user", "content": "c"}]}
    await append(ada, "late")
    problem = await ada.call("PUT", f"{S}/window", 412, json=new, headers={"If-Match": tag})
    assert problem["code"] == "version_conflict"
    assert await window(ada) == ["a", "b", "late"]
    assert problem["current_version"] == (await ada.call("GET", f"{S}/window"))["window_version"]
    tag = f'"{problem["current_version"]}"'
    await ada.call("PUT", f"{S}/window", json=new, headers={"If-Match": tag})
    assert await window(ada) == ["b", "c"]
    await ada.call("PUT", f"{S}/window", 412, json=new, headers={"If-Match": tag})
    await ada.call("PUT", f"{S}/window", 400, json=new, headers={"If-Match": "W/weak"})


async def test_messages_leave_the_window_and_come_back(ada: Client) -> None:
    await create(ada, system="Be kind.")
    names = [one["id"] for one in await append(ada, "a", "b", "c", "d")]
    message = f"{S}/messages/{names[1]}"
    assert await ada.call("POST", f"{message}/exclude", json={"reason": "noise"}) == {"excluded": True}
    assert await window(ada) == ["a", "c", "d"]
    assert (await ada.call("GET", message))["excluded"] == "noise"
    assert await ada.call("POST", f"{message}/restore") == {"restored": True}
    assert await ada.call("POST", f"{message}/restore") == {"restored": False}
    assert await ada.call("POST", f"{S}/pop", json={"n": 2}) == {
        "messages": [{"role": "user", "content": "c"}, {"role": "user", "content": "d"}]
    }
    place = await ada.call("POST", f"{S}/checkpoints", 201, json={"name": "before"})
    await append(ada, "e")
    rolled = await ada.call("POST", f"{S}/roll-back", json={"checkpoint": place})
    assert (rolled, await window(ada)) == ({"removed": 1}, ["a", "b"])
    await ada.call("POST", f"{S}/roll-back", 400, json={"checkpoint": {**place, "more": 1}})
    replaced = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "z"}]
    await ada.call("PUT", f"{S}/window", json={"messages": replaced})
    assert await window(ada) == ["a", "z"]
    assert await ada.call("POST", f"{S}/clear") == {"removed": 2}
    assert await window(ada) == []
    assert (await ada.call("GET", S))["message_count"] == 7
    page = await ada.call("GET", f"{S}/messages?limit=3&order=newest&roles=user&roles=assistant")
    assert [item["message"]["content"] for item in page["items"]] == ["z", "e", "d"]
    assert page["cursor"]


async def test_an_interrupted_call_is_repaired(ada: Client) -> None:
    await ada.call("POST", f"{S}/messages", 201, json={"messages": [CALL]})
    assert (await ada.call("GET", f"{S}/window"))["interrupted"] == ["c1"]
    made = (await ada.call("POST", f"{S}/repair-tool-calls"))["messages"]
    assert [one["tool_call_id"] for one in made] == ["c1"]
    assert (await ada.call("GET", f"{S}/window"))["interrupted"] == []


async def test_a_summary_replaces_only_the_messages_that_it_covers(ada: Client) -> None:
    await create(ada)
    names = [one["id"] for one in await append(ada, "a", "b", "c", "d")]
    body = {"summary": "a, then b", "last_id": names[1], "keep_last": 1}
    refused = await ada.call("POST", f"{S}/compactions", 409, json=body)
    assert refused["existing_id"] == names[2]
    assert await window(ada) == ["a", "b", "c", "d"]
    made = await ada.call("POST", f"{S}/compactions", 201, json={**body, "keep_last": 2})
    assert made["archived_ids"] == names[:2]
    shown = await ada.call("GET", f"{S}/context?layered=true")
    assert [one["content"] for one in shown["messages"]] == ["a, then b", "c", "d"]
    assert [one["id"] for one in (await ada.call("GET", f"{S}/compactions"))["compactions"]] == [made["id"]]
    archived = await ada.call("GET", f"{S}/messages?archived_by={made['id']}")
    assert [item["message"]["id"] for item in archived["items"]] == names[:2]
    await ada.call("POST", f"{S}/compactions", 400, json={**body, "summary": " ", "last_id": names[2]})


@pytest.mark.parametrize(
    ("by", "settings"),
    [
        ("messages", {"most": 4, "keep_last": 2}),
        ("turns", {"most": 2, "keep_last": 1}),
        ("tokens", {"max_tokens": 60}),
        ("list", {"max_tokens": 40, "keep_recent": 1, "deduplicate": False, "min_importance": 0}),
    ],
)
async def test_a_policy_compacts_a_long_window(ada: Client, by: str, settings: Any) -> None:
    await create(ada)
    body = {"by": by, "settings": settings}
    assert await ada.call("POST", f"{S}/compact-if-needed", json=body) == {"compaction": None}
    turns = [
        {"role": role, "content": f"the {role} talks about topic {number}"}
        for number in range(9)
        for role in ("user", "assistant")
    ]
    await ada.call("POST", f"{S}/messages", 201, json={"messages": turns})
    made = (await ada.call("POST", f"{S}/compact-if-needed", json=body))["compaction"]
    assert made["messages_after"] < made["messages_before"]
    assert len(await window(ada)) < 18


async def test_a_session_ends_forks_and_resumes(ada: Client) -> None:
    await create(ada, title="One")
    names = [one["id"] for one in await append(ada, "a", "b")]
    fork = await ada.call("POST", f"{S}/fork", 201, json={"at": names[0], "new_session_id": "other"})
    assert (fork["id"], fork["title"]) == ("other", "One")
    assert fork["metadata"]["forked_from"]["session_id"] == "trip"
    assert await window(ada, "/v1/sessions/other") == ["a"]
    headers = {"Idempotency-Key": "fork"}
    forks = [await ada.call("POST", f"{S}/fork", 201, json={}, headers=headers) for _ in range(2)]
    assert forks[0]["id"] == forks[1]["id"]
    assert (await ada.call("POST", f"{S}/end"))["waiting"] == []
    assert (await ada.call("GET", S))["status"] == "ended"
    await ada.call("POST", f"{S}/messages", 409, json={"messages": [{"role": "user", "content": "x"}]})
    assert await ada.call("POST", f"{S}/resume") == {"resumed": True}
    assert await ada.call("POST", f"{S}/archive") == {"archived": True}
    assert await ada.call("POST", f"{S}/archive") == {"archived": False}


# -- tasks, runs and delegation --------------------------------------------------------


async def test_tasks_and_runs_of_a_session(ada: Client) -> None:
    await create(ada)
    task = await ada.call("PUT", f"{S}/tasks/t%2F1", json={"title": "Book", "status": "in_progress"})
    assert (task["id"], task["session_id"]) == ("t/1", "trip")
    assert (await ada.call("GET", f"{S}/tasks/t%2F1")) == task
    assert [one["id"] for one in (await ada.call("GET", f"{S}/tasks?status=in_progress"))["tasks"]] == ["t/1"]
    new = [{"id": "t2", "title": "Pack"}, {"id": "t3", "title": "Go", "parent_id": "t2"}]
    assert [one["id"] for one in (await ada.call("PUT", f"{S}/tasks", json={"tasks": new}))["tasks"]] == [
        "t2",
        "t3",
    ]
    await ada.call("GET", f"{S}/tasks/t%2F1", 404)
    assert await ada.call("DELETE", f"{S}/tasks/t2") == {"deleted": True}
    await ada.call("DELETE", f"{S}/tasks/t2", 404)

    run = await ada.call("PUT", f"{S}/runs/r1", json={"child_id": "trip/search", "status": "running"})
    assert run["mode"] == "foreground"
    assert (await ada.call("GET", f"{S}/runs/r1")) == run
    for path in (f"{S}/runs", "/v1/runs?session_id=trip", "/v1/runs?child_id=trip/search"):
        assert [one["id"] for one in (await ada.call("GET", path))["runs"]] == ["r1"]
    assert await ada.call("DELETE", f"{S}/runs/r1") == {"deleted": True}
    await ada.call("GET", f"{S}/runs/r1", 404)


@pytest.mark.behaviour("D126", "D127")
async def test_the_entries_of_a_conversation_are_listed_for_a_delegate(api: Api, ada: Client) -> None:
    await create(ada)
    assert await ada.call("GET", f"{S}/delegation") == {"entries": [], "text": ""}
    for number in range(17):
        await api.memory.write(
            f"body {number}", scope="user:ada", title=f"T{number}", conversation_id="trip", tags=["x"]
        )
    await api.memory.write("elsewhere", scope="user:ada", title="Unscoped")
    found = (await ada.call("GET", f"{S}/delegation"))["entries"]
    assert [one["title"] for one in found] == [f"T{number}" for number in range(16, 1, -1)]
    assert all(one["number"] for one in found)
    assert found[0]["tags"] == ["x"]
    assert "content" not in found[0]


# -- many clients ----------------------------------------------------------------------


async def test_fifty_clients_append_to_one_session(tmp_path: Path) -> None:
    """Nothing is lost or doubled, and the messages of each client stay in order."""
    async with open_api(f"sqlite:///{tmp_path / 'memory.db'}") as api:
        await create(api.client(), "shared", shared=True)

        async def work(number: int) -> None:
            client = api.client()
            for at in range(3):
                body = {"messages": [{"role": "user", "content": f"{number} {at}"}], "user": f"u{number}"}
                headers = {"Idempotency-Key": f"{number}-{at}"}
                for _ in range(2):  # as a client that missed the first response
                    await client.call("POST", "/v1/sessions/shared/messages", 201, json=body, headers=headers)

        await asyncio.gather(*(work(number) for number in range(50)))
        page = await api.client().call("GET", "/v1/sessions/shared/messages?limit=1000")
    said = [tuple(map(int, item["message"]["content"].split())) for item in page["items"]]
    assert len(said) == len(set(said)) == 150
    for number in range(50):
        assert [at for one, at in said if one == number] == list(range(3))
