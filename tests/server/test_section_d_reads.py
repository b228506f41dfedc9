"""Section D over HTTP: relations, lists, searches, the graph, files and scratchpads."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import httpx
import pytest

from memory.domain.artifact import Artifact
from memory.facade.memory import Memory
from memory.facade.resources.artifacts import Artifacts
from tests.acceptance.support import DAY, Clock
from tests.server.api import TENANT, Api
from tests.server.support import ENTRIES, RELATIONS, Client

pytestmark = pytest.mark.backend("sqlite")
BYTES = {"Content-Type": "application/octet-stream"}


async def link(client: Client, source: Any, relation: str, target: Any, status: int = 201) -> Any:
    given = {"source_id": source["id"], "target_id": target["id"], "relation": relation}
    return await client.call("POST", RELATIONS, status, json=given)


@pytest.mark.behaviour("D36", "D37", "D38", "D39", "D40", "D41", "D42", "D46")
async def test_a_relation_is_one_directed_link_of_two_active_entries(client: Client, memory: Memory) -> None:
    one, two, old = [await client.write(f"fact {n}") for n in range(3)]
    made = await link(client, one, "refines", two)
    again = await link(client, one, "refines", two, 409)
    assert (again["existing_id"], "relation already exists" in again["error"]) == (made["id"], True)
    for relation in ("relates_to", "contradicts", "supersedes", "supports"):
        await link(client, one, relation, two)
    await link(client, two, "refines", one)
    await link(client, one, "likes", two, 400)
    assert "self-loops not allowed" in (await link(client, one, "refines", one, 400))["error"]
    assert (await client.refused("GET", RELATIONS, params={"relation": "likes"}))[0] == "relation"
    await client.call("POST", f"{ENTRIES}/{old['id']}/invalidate")
    theirs = await memory.for_tenant("other").write("theirs", scope="user:ada")
    ends = (old["id"], theirs.id, "#999", "nothing")
    refusals = set()
    for end in ends:
        for source, target in ((one["id"], end), (end, one["id"])):
            given = {"source_id": source, "target_id": target, "relation": "supports"}
            refusals.add(await client.refused("POST", RELATIONS, json=given))
    assert len(refusals) == 1


@pytest.mark.behaviour("D43", "D45")
async def test_relations_are_listed_newest_first_and_filtered(client: Client) -> None:
    one, two, three = [await client.write(f"fact {n}") for n in range(3)]
    made = [
        await link(client, one, "refines", two),
        await link(client, one, "supports", three),
        await link(client, three, "refines", two),
    ]
    for query, expected in (
        ({}, (2, 1, 0)),
        ({"source_id": one["id"]}, (1, 0)),
        ({"target_id": two["id"], "relation": "refines"}, (2, 0)),
        ({"limit": "1"}, (2,)),
        ({"source_id": "#999"}, ()),
    ):
        found = (await client.call("GET", RELATIONS, params=query))["relations"]
        assert found == [made[n] for n in expected], query
    await client.call("POST", f"{ENTRIES}/{three['id']}/invalidate")
    assert (await client.call("GET", RELATIONS, params={"active": "on"}))["relations"] == [made[0]]
    for wrong in ("0", "1001", "-1", "many"):
        assert (await client.refused("GET", RELATIONS, params={"limit": wrong}))[0] == "limit"


@pytest.mark.behaviour("D47", "D48", "D50", "D51", "D52", "D53", "D54")
async def test_a_list_filters_hard_and_loses_no_row_between_pages(
    client: Client, memory: Memory, clock: Clock
) -> None:
    await memory.sessions.create("s1", user="ada")
    await memory.sessions.create("s2", user="ada")
    clock.stand_still_at(clock())
    for n in range(10):
        await client.write(f"tied {n}", title=f"Tied {n}", tags=["tied"])
    clock.advance()
    clock.tick = timedelta(microseconds=1)
    cut = clock().isoformat()
    for title, given in (
        ("a_b", {"tags": ["a_b"], "type": "user"}),
        ("axb", {"tags": ["axb"], "type": "project"}),
        ("A_B", {"tags": ["A_B"], "conversation_id": "s1"}),
        ("other", {"tags": ["aab-long"], "conversation_id": "s2"}),
    ):
        await client.write(title, title=title, **given)
    assert await client.titles(since=cut) == ["other", "A_B", "axb", "a_b"]
    assert len(await client.titles(before_updated_at=cut)) == 10
    assert await client.titles(tag="a_b") == ["a_b"]
    assert await client.titles(tag="a") == [] == await client.titles(tag="%")
    assert (
        await client.titles(type="user,project")
        == ["axb", "a_b"]
        == await client.titles(type=["user", "project"])
    )
    assert await client.titles(types="user", q="  ") == ["a_b"]
    assert "'x'" in (await client.refused("GET", ENTRIES, params={"type": "x"}))[1]
    assert await client.titles(conversation_id="s1", since=cut) == ["A_B", "axb", "a_b"]
    seen: list[str] = []
    path: str | None = f"{ENTRIES}?tag=tied&limit=3"
    while path is not None:
        answer = await client.answer("GET", path)
        seen += [one["title"] for one in answer.json()["entries"]]
        links = httpx.Response(200, headers={"Link": answer.headers.get("Link", "")}).links
        path = links["next"]["url"] if "next" in links else None
        assert (path is None) == (answer.json()["cursor"] is None)
    assert sorted(seen) == [f"Tied {n}" for n in range(10)]


@pytest.mark.behaviour("D49")
async def test_limits_are_fifty_by_default_and_at_most_a_thousand(client: Client, memory: Memory) -> None:
    await memory.write_many([{"content": f"fact {n}", "scope": "user:ada"} for n in range(60)])
    for query in ({}, {"q": "fact"}):
        assert len(await client.titles(**query)) == 50
        assert len(await client.titles(**query, limit=60)) == 60
        for wrong in ("0", "-1", "1001", "1.5", ""):
            assert (await client.refused("GET", ENTRIES, params={**query, "limit": wrong}))[0] == "limit"


@pytest.mark.behaviour("D55", "D56", "D58", "D60", "D61", "D62", "D63", "D64", "D67")
async def test_a_question_is_plain_text_and_finds_by_words(client: Client) -> None:
    async def found(q: str) -> list[str]:
        return await client.titles(q=q, mode="lexical")

    cafe = await client.write("we deployed it", title="Café")
    await client.write("the café is closed", title="Closed")
    assert await found("cafe") == ["Café", "Closed"]
    assert await found("caf") == []
    assert await found("deploying") == ["Café"]
    await client.write("alpha beta", title="Near")
    await client.write("alpha " + "filler " * 40 + "beta", title="Far")
    await client.write("alpha alone", title="One")
    assert await found("alpha beta") == ["Near", "Far", "One"]
    for odd in ('"alpha', "AND", "alpha*", "NEAR(alpha, beta)", "title:alpha", "-alpha", "'; DROP--", "%"):
        await found(odd)
    await client.call("PATCH", f"{ENTRIES}/{cafe['id']}", json={"title": "Bistro"})
    assert await found("bistro") == ["Bistro"]
    await client.call("DELETE", f"{ENTRIES}/{cafe['id']}")
    assert await found("bistro") == []


@pytest.mark.behaviour("D57", "D59")
async def test_words_of_one_stem_find_each_other_and_any_word_of_a_long_question_finds(
    client: Client,
) -> None:
    async def found(q: str) -> list[str]:
        return await client.titles(q=q, mode="lexical")

    for word in ("deploy", "deployment", "connect", "prefer", "fly"):
        await client.write(f"about {word} today", title=word)
    for asked, title in (
        ("deploys", "deploy"),
        ("deployed", "deploy"),
        ("deploying", "deploy"),
        ("deployments", "deployment"),
        ("connection", "connect"),
        ("preference", "prefer"),
    ):
        assert await found(asked) == [title], asked
    assert await found("flies") == []
    assert await found("connect boat harbour castle tower bridge market") == ["connect"]


@pytest.mark.behaviour("D72", "D73")
@pytest.mark.parametrize(
    ("kind", "questions"),
    [
        ("user", ["tea preference", "tea, which she likes", "tea she hated", "does she like tea or enjoys?"]),
        ("reference", ["what's the tea", "where's tea", "how much tea", "the port of tea"]),
        ("learning", ["how does tea work", "why does tea work", "explain: tea"]),
        ("project", ["tea until noon", "the latest tea", "tea yesterday?", "tea today!"]),
    ],
)
async def test_a_cue_of_a_question_prefers_its_type_also_beside_punctuation(
    client: Client, kind: str, questions: list[str]
) -> None:
    for one in ("context", kind):
        await client.write("tea in the morning", title=one, type=one)

    async def scores(**query: str) -> dict[str, float]:
        found = (await client.call("GET", ENTRIES, params=query))["entries"]
        return {one["type"]: one["score"] for one in found}

    for question in questions:
        here, plain = await scores(q=question), await scores(q=question, intent="off")
        assert here["context"] == plain["context"], question
        assert here[kind] > plain[kind], question


@pytest.mark.behaviour("D65", "D66", "D68", "D69", "D70", "D71", "D74")
async def test_a_search_prefers_types_and_tags_and_filters_by_time_and_session(
    client: Client, memory: Memory, clock: Clock
) -> None:
    await memory.sessions.create("s1", user="ada")
    await memory.sessions.create("s2", user="ada")
    await client.write("tea in the morning", title="A", type="project", conversation_id="s1")
    await client.write("tea in the morning", title="B", type="user", tags=["home"], conversation_id="s2")
    cut = clock.advance().isoformat()
    clock.advance()
    await client.write("tea in the morning", title="C", type="context")
    assert sorted(await client.titles(q="tea", type="user")) == ["A", "B", "C"]
    assert (await client.titles(q="tea", type="user"))[0] == "B"
    assert (await client.titles(q="tea", type="project"))[0] == "A"
    assert (await client.titles(q="tea", tag="home"))[0] == "B"
    assert await client.titles(q="tea", since=cut) == ["C"]
    assert sorted(await client.titles(q="tea", before_updated_at=cut)) == ["A", "B"]
    assert sorted(await client.titles(q="tea", as_of=cut)) == ["A", "B"]
    assert sorted(await client.titles(q="tea", conversation_id="s1")) == ["A", "C"]
    assert (await client.titles(q="tea I prefer"))[0] == "B"
    assert await client.titles(q="tea I prefer", intent="off", type="project") == await client.titles(
        q="tea I prefer", type="project"
    )
    ours = await client.call("GET", ENTRIES, params={"q": "tea"})
    await memory.for_tenant("other").write("tea " * 50, scope="user:ada")
    again = await client.call("GET", ENTRIES, params={"q": "tea"})
    assert [one["score"] for one in again["entries"]] == [one["score"] for one in ours["entries"]]
    assert await client.titles(q="tea", limit=1) == [(await client.titles(q="tea"))[0]]


@pytest.mark.behaviour("D48", "D49")
async def test_an_empty_memory_refuses_a_bad_search_too(client: Client) -> None:
    assert await client.titles(q="tea") == []
    for name, wrong in (
        ("type", "note"),
        ("limit", "0"),
        ("min_relevance", "7"),
        ("mode", "fast"),
        ("as_of", "soon"),
        ("since", "-1"),
        ("q", "\0"),
    ):
        asked = {"q": "tea", name: wrong}
        assert (await client.refused("GET", ENTRIES, params=asked))[0] == name
    for wrong_body in ({"limit": 0}, {"filter": {"colour": "red"}}, {"boost": {"types": ["note"]}}):
        await client.refused("POST", "/v1/memory/search", json={"query": "tea", **wrong_body})


@pytest.mark.behaviour("D75", "D76", "D77", "D78")
async def test_age_counts_only_where_it_is_asked_for(client: Client, clock: Clock) -> None:
    await client.write("tea in the morning", title="Old")
    clock.advance(400 * DAY)
    await client.write("tea in the morning", title="New")

    async def scores(**query: Any) -> dict[str, float]:
        found = await client.call("GET", ENTRIES, params={"q": "tea", **query})
        return {one["title"]: one["score"] for one in found["entries"]}

    plain = await scores()
    assert await scores(decay="off") == plain
    for on in ("true", "1", "on", "yes", "90"):
        aged = await scores(decay=on)
        assert aged["Old"] < plain["Old"], on
        assert aged["New"] == plain["New"], on
    steep = await scores(decay="on", decay_half_life_days="1000")
    assert steep["Old"] > aged["Old"]
    assert (await scores(decay="on", decay_floor="0.1"))["Old"] < aged["Old"]
    assert await client.titles(decay="on") == ["New", "Old"]
    for wrong in (
        {"decay": "maybe"},
        {"decay": "-5"},
        {"decay": "nan"},
        {"decay_half_life_days": "0", "decay": "on"},
        {"decay_floor": "1", "decay": "on"},
        {"decay_floor": "0.5"},
    ):
        assert (await client.refused("GET", ENTRIES, params={"q": "tea", **wrong}))[0] in wrong


@pytest.mark.behaviour("D79", "D80", "D81", "D82", "D83", "D84", "D85")
async def test_a_graduated_search_prefers_the_session_and_reaches_everything(
    client: Client, memory: Memory
) -> None:
    for name in ("s1", "s2"):
        await memory.sessions.create(name, user="ada")
    drafts = [{"content": f"we talked a bit about tea, remark {n}", "title": f"Weak {n}"} for n in range(70)]
    await memory.write_many([{**one, "scope": "user:ada", "conversation_id": "s1"} for one in drafts])
    await client.write("Ada drinks oolong tea from Taiwan", title="Strong", conversation_id="s2")
    await client.write("a note about tea", title="Twin s1", conversation_id="s1")
    await client.write("a note about tea", title="Twin s2", conversation_id="s2")
    query = {"q": "oolong tea from Taiwan", "graduated": "true", "conversation_id": "s1"}
    assert "Strong" in (await client.titles(**query))[:10]
    near = await client.titles(q="a note about tea", graduated="on", conversation_id="s1")
    assert near.index("Twin s1") < near.index("Twin s2")
    assert len(await client.titles(**query, limit=73)) == 73
    plain = await client.titles(q="oolong tea", graduated="on")
    assert plain == await client.titles(q="oolong tea")
    assert len(set(plain)) == len(plain)


@pytest.mark.behaviour("D117", "D118", "D129")
async def test_the_graph_around_an_entry_is_consistent(client: Client) -> None:
    hub, near, far, alone = [await client.write(f"fact {n}", title=f"F{n}", type="user") for n in range(4)]
    await link(client, hub, "refines", near)
    await link(client, near, "supports", far)
    for depth, titles in ((1, ["F0", "F1"]), (2, ["F0", "F1", "F2"]), (9, ["F0", "F1", "F2"])):
        found = await client.call("GET", f"{ENTRIES}/{hub['id']}/expand", params={"depth": depth})
        assert [node["entry"]["title"] for node in found["nodes"]] == titles
        assert len(found["relations"]) == len(titles) - 1
    density = await client.call("GET", f"{ENTRIES}/{near['id']}/density")
    assert (density["outgoing"], density["incoming"], density["verdict"]) == (1, 1, "sparse")
    assert (await client.call("GET", f"{ENTRIES}/{alone['id']}/density"))["verdict"] == "isolated"
    other = await client.write("a project", title="P", type="project")
    await link(client, hub, "relates_to", other)
    graph = await client.call("GET", "/v1/memory/graph", params={"type": "user"})
    shown = {one["id"] for one in graph["entries"]}
    assert len(shown) == 4
    assert all({one["source_id"], one["target_id"]} <= shown for one in graph["relations"])
    assert len((await client.call("GET", "/v1/memory/graph"))["relations"]) == 3
    await client.refused("GET", "/v1/memory/graph", params={"type": "x"})


@pytest.mark.behaviour("D130", "D131", "D132")
async def test_a_scratchpad_is_appended_to_read_and_cleared(client: Client) -> None:
    pad = "/v1/memory/scratchpads/planner"
    empty = await client.call("GET", pad)
    assert (empty["exists"], empty["content"]) == (False, "")
    await client.call("POST", pad, json={"text": "first"})
    size = (await client.call("POST", pad, json={"text": "second"}))["size"]
    read = await client.call("GET", pad)
    assert read["size"] == size == len(read["content"].encode())
    assert read["content"].index("first") < read["content"].index("second")
    assert not (await client.call("GET", "/v1/memory/scratchpad"))["exists"]
    assert await client.titles() == []
    big = "x" * (4 * 2**20 - size - 60)
    await client.call("POST", pad, json={"text": big})
    full = await client.call("GET", pad)
    answers = await asyncio.gather(*(client.answer("POST", pad, json={"text": "y" * 200}) for _ in range(3)))
    assert {one.status_code for one in answers} == {409}
    assert (await client.call("GET", pad)) == full
    assert await client.call("DELETE", pad) == {"cleared": True}
    assert (await client.call("GET", pad))["content"] == ""
    for name in ("a.b", "..", "a%5Cb", "x" * 65, "a b", "..%2F..%2Fetc"):
        answer = await client.answer("GET", f"/v1/memory/scratchpads/{name}")
        assert answer.status_code in (400, 404), name


@pytest.mark.behaviour("D6", "D18", "D19")
async def test_a_file_is_served_in_ranges_and_never_runs(client: Client, memory: Memory) -> None:
    await memory.sessions.create("s1", user="ada")
    where = {"session_id": "s1", "path": "out/page é.html", "media_type": "text/html"}
    text = b"<script>alert(1)</script>" * 10
    made = await client.call("PUT", "/v1/memory/artifacts", 201, params=where, content=text, headers=BYTES)
    raw = f"/v1/memory/artifacts/{made['id']}/raw"
    whole = await client.answer("GET", raw)
    assert (whole.status_code, whole.content) == (200, text)
    headers = whole.headers
    assert headers["content-type"] == "text/html"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"].startswith("sandbox")
    assert headers["content-disposition"] == "attachment; filename*=UTF-8''page%20%C3%A9.html"
    for asked, begin, end in (("0-9", 0, 10), ("240-", 240, 250), ("-5", 245, 250), ("3-999", 3, 250)):
        part = await client.answer("GET", raw, headers={"Range": f"bytes={asked}"})
        assert (part.status_code, part.content) == (206, text[begin:end]), asked
        assert part.headers["content-range"] == f"bytes {begin}-{end - 1}/250"
    for asked in ("250-", "-0"):
        gone = await client.answer("GET", raw, headers={"Range": f"bytes={asked}"})
        assert (gone.status_code, gone.headers["content-range"]) == (416, "bytes */250")
    stale = await client.answer("GET", raw, headers={"Range": "bytes=0-1", "If-Range": '"other"'})
    assert stale.status_code == 200
    same = await client.answer("GET", raw, headers={"If-None-Match": headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")
    listed = await client.call("GET", "/v1/memory/artifacts", params={"session_id": "s1"})
    assert listed == {"artifacts": [made], "cursor": None}
    again = await client.call("PUT", "/v1/memory/artifacts", 201, params=where, content=b"", headers=BYTES)
    assert (again["id"], again["size"]) == (made["id"], 0)
    assert (await client.answer("GET", raw)).content == b""
    await client.call("DELETE", f"/v1/memory/artifacts/{made['id']}")
    await client.call("GET", raw, 404)
    await client.refused(
        "PUT", "/v1/memory/artifacts", params={**where, "path": "../x"}, content=b"x", headers=BYTES
    )


async def test_a_file_that_is_replaced_in_a_request_is_not_sent_as_the_one_before(
    api: Api, ada: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, find = api.memory.for_tenant(TENANT), Artifacts.get
    await memory.sessions.create("s1")
    made = await memory.artifacts.put("s1", "a", b"before")

    async def find_and_replace(artifacts: Artifacts, named: str) -> Artifact | None:
        found = await find(artifacts, named)
        await memory.artifacts.put("s1", "a", b"a longer file")
        return found

    monkeypatch.setattr(Artifacts, "get", find_and_replace)
    answer = await ada.http.get(f"/v1/memory/artifacts/{made.id}/raw")
    assert not answer.content
