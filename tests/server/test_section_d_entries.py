"""Section D over HTTP: entries, their limits and their times."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import pytest

from memory.facade.memory import Memory
from tests.acceptance.support import START, Clock
from tests.server.support import ENTRIES, RELATIONS, Client, client_of

pytestmark = pytest.mark.backend("sqlite")
UNKNOWN = "01a22a6f-f64e-85ed-b913-7ce7350d7e0a"

REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"type": "gossip"}, "type"),
    ({"title": ""}, "title"),
    ({"title": "x" * 201}, "title"),
    ({"content": "x" * 65_537}, "content"),
    ({"source": "x" * 201}, "source"),
    ({"tags": "home"}, "tags"),
    ({"tags": [f"t{n}" for n in range(33)]}, "tags"),
    ({"tags": ["home", 3]}, "tags[1]"),
    ({"tags": ["x" * 65]}, "tags"),
    ({"tags": [""]}, "tags"),
    ({"artifact_id": -1}, "artifact_id"),
    ({"artifact_id": UNKNOWN}, "artifact_id"),
    ({"artifact_id": 4711}, "artifact_id"),
    ({"conversation_id": "nowhere"}, "conversation_id"),
    ({"conversation_id": 7}, "conversation_id"),
    ({"created_at": -5}, "created_at"),
    ({"created_at": "yesterday"}, "created_at"),
    ({"supersedes_ids": [UNKNOWN]}, "supersedes_ids"),
    ({"supersedes_ids": ["#9999"]}, "supersedes_ids"),
    ({"titel": "x"}, "titel"),
    ({"scope": "ada"}, "scope"),
    ({"metadata": {"n": 10**400}}, "metadata.n"),
    ({"if_exists": "maybe", "key": "k"}, "if_exists"),
)


@pytest.mark.behaviour("D1", "D2", "D3", "D4", "D5", "D6", "D7", "D11")
async def test_bad_fields_are_refused_by_name_before_anything_is_written(client: Client) -> None:
    for given, field in REFUSED:
        named, message = await client.refused("POST", ENTRIES, json={"content": "x", **given})
        assert named.startswith(field), (given, named, message)
        assert message
    assert (await client.call("GET", ENTRIES))["entries"] == []
    for guess, right in (
        ("titel", "title"),
        ("user_id", "scope"),
        ("text", "content"),
        ("ttl", "expires_at"),
        ("supersedes", "supersedes_ids"),
    ):
        unit, message = await client.refused("POST", ENTRIES, json={guess: "x"})
        assert (unit, f"did you mean '{right}'" in message) == (guess, True), message
    for guess, right in (("query", "q"), ("tags", "tag"), ("top_k", "limit"), ("offset", "cursor")):
        unit, message = await client.refused("GET", ENTRIES, params={guess: "5"})
        assert (unit, f"did you mean '{right}'" in message) == (guess, True), message
    assert "has its tenant" in (await client.refused("POST", ENTRIES, json={"tenant": "x"}))[1]


@pytest.mark.behaviour("D1", "D2", "D3", "D4", "D5", "D10", "D12")
async def test_what_lies_on_the_limits_is_taken_and_visible_at_once(client: Client) -> None:
    made = await client.write(
        "x" * 65_536,
        title="t" * 200,
        source="s" * 200,
        tags=[f"{n:064}" for n in range(32)],
        type="learning",
    )
    assert made["created_at"] == made["updated_at"] == made["valid_from"]
    assert made["valid_to"] is None
    read = await client.call("GET", f"{ENTRIES}/{made['id']}")
    assert read == made
    assert (await client.write("no tags"))["tags"] == []
    for kind in ("user", "feedback", "project", "reference", "learning", "context"):
        assert (await client.write("one", type=kind))["type"] == kind
    assert len((await client.call("GET", ENTRIES))["entries"]) == 8


@pytest.mark.behaviour("D8")
async def test_content_may_be_empty_where_a_title_carries_the_entry(client: Client) -> None:
    assert (await client.write("", title="Only a title"))["content"] == ""
    assert await client.refused("POST", ENTRIES, json={"content": ""})


@pytest.mark.behaviour("D9")
async def test_created_at_is_taken_in_seconds_milliseconds_and_as_text(client: Client) -> None:
    for given in (1_700_000_000, 1_700_000_000_000, "2023-11-14T22:13:20Z"):
        made = await client.write("then", created_at=given)
        assert made["created_at"] == made["updated_at"] == made["valid_from"] == "2023-11-14T22:13:20Z"


async def test_a_file_is_what_its_parameter_or_its_content_type_says(client: Client, memory: Memory) -> None:
    await memory.sessions.create("s1", user="ada")
    for given, sent_as, stored in (
        ({}, "image/png", "image/png"),
        ({}, "text/markdown; charset=utf-8", "text/markdown"),
        ({}, "application/octet-stream", "application/octet-stream"),
        ({"media_type": "text/html"}, "application/octet-stream", "text/html"),
    ):
        file = await client.call(
            "PUT",
            "/v1/memory/artifacts",
            201,
            params={"session_id": "s1", "path": "file", **given},
            content=b"x",
            headers={"Content-Type": sent_as},
        )
        assert file["media_type"] == stored


@pytest.mark.behaviour("D6", "D7", "D15", "D18", "D19")
async def test_an_entry_points_to_a_file_and_to_a_session(client: Client, memory: Memory) -> None:
    await memory.sessions.create("s1", user="ada")
    file = await client.call(
        "PUT",
        "/v1/memory/artifacts",
        201,
        params={"session_id": "s1", "path": "out/report.md", "media_type": "text/markdown"},
        content=b"# Findings",
        headers={"Content-Type": "application/octet-stream"},
    )
    made = await client.write("see the report", artifact_id=file["id"], conversation_id="s1")
    one = f"{ENTRIES}/{made['id']}"
    assert (await client.call("GET", one))["artifact"] == file
    [listed] = (await client.call("GET", ENTRIES))["entries"]
    assert (listed["artifact_id"], "artifact" in listed) == (file["id"], False)
    number = (await memory.short_ids.of([file["id"]], kind="artifact"))[file["id"]]
    assert (await client.call("PATCH", one, json={"artifact_id": None}))["artifact_id"] is None
    assert (await client.call("PATCH", one, json={"artifact_id": f"#{number}"}))["artifact_id"] == file["id"]
    assert (await client.call("PATCH", one, json={"title": "Report"}))["artifact_id"] == file["id"]
    await client.refused("PATCH", one, json={"artifact_id": UNKNOWN})
    await client.call("DELETE", f"/v1/memory/artifacts/{file['id']}")
    read = await client.call("GET", one)
    assert (read["content"], read["artifact_id"], read.get("artifact")) == ("see the report", None, None)
    assert (await client.write("none", artifact_id=0, conversation_id=0))["conversation_id"] is None


@pytest.mark.behaviour("D13", "D26")
async def test_ids_of_another_tenant_look_like_ids_of_nothing(client: Client, memory: Memory) -> None:
    theirs = await memory.for_tenant("other").write("secret", scope="user:ada")
    ours = await client.write("ours")
    for method, path, body in (
        ("GET", "", None),
        ("PATCH", "", {"title": "x"}),
        ("DELETE", "", None),
        ("POST", "/invalidate", {}),
        ("GET", "/history", None),
        ("GET", "/expand", None),
        ("GET", "/density", None),
        ("GET", "/enrichment", None),
    ):
        answers = []
        for wanted in (theirs.id, UNKNOWN):
            given = {} if body is None else {"json": body}
            problem = await client.call(method, f"{ENTRIES}/{wanted}{path}", 404, **given)
            answers.append(str(problem).replace(wanted, "ID"))
        assert answers[0] == answers[1], method
    link = {"source_id": ours["id"], "relation": "refines"}
    foreign = await client.refused("POST", RELATIONS, json={**link, "target_id": theirs.id})
    assert foreign == await client.refused("POST", RELATIONS, json={**link, "target_id": UNKNOWN})


@pytest.mark.behaviour("D14", "D16", "D17")
async def test_a_patch_changes_what_it_names_and_nothing_else(client: Client, clock: Clock) -> None:
    made = await client.write("Ada likes tea", title="Tea", tags=["drink"], source="chat", type="user")
    one = f"{ENTRIES}/{made['id']}"
    clock.advance()
    changed = await client.call("PATCH", one, json={"title": "Tea, green"})
    differing = {name for name in made if made[name] != changed[name]}
    assert differing == {"title", "updated_at", "version"}
    assert await client.call("PATCH", one, json={}) == changed
    for name in ("valid_from", "valid_to", "created_at", "scope", "id"):
        assert (await client.refused("PATCH", one, json={name: START.isoformat()}))[0] == name
    rest = {"content": "no", "source": "x", "tags": [], "type": "project"}
    assert rest.items() <= (await client.call("PATCH", one, json=rest)).items()
    await client.call("POST", f"{one}/invalidate")
    for body in ({"title": "late"}, {}):
        await client.call("PATCH", one, 404, json=body)


@pytest.mark.behaviour("D20", "D21", "D22", "D23", "D24", "D25", "D27", "D28", "D32", "D33")
async def test_validity_ends_once_and_the_past_stays_readable(client: Client, clock: Clock) -> None:
    made = await client.write("Ada lives in Rome", title="Home")
    one, begun = f"{ENTRIES}/{made['id']}", made["valid_from"]
    end = clock.advance().isoformat()
    await client.refused("POST", f"{one}/invalidate", json={"when": -1})
    await client.refused("POST", f"{one}/invalidate", json={"when": "2000-01-01T00:00:00Z"})
    clock.advance()
    assert await client.call("POST", f"{one}/invalidate", json={"when": end}) == {
        "invalidated": True,
        "id": made["id"],
    }
    for absent in (made["id"], str(uuid.uuid4()), "999", "nothing"):
        again = await client.call("POST", f"{ENTRIES}/{absent}/invalidate", 404)
        assert again["error"] == "entry not found or already invalidated"
    await client.call("GET", one, 404)
    assert await client.titles() == [] == await client.titles(q="Rome")
    assert await client.titles(as_of=end) == [] == await client.titles(q="Rome", as_of=end)
    assert await client.titles(as_of=begun) == ["Home"] == await client.titles(q="Rome", as_of=begun)
    assert (await client.call("GET", one, params={"as_of": begun}))["valid_to"] is not None
    assert await client.titles(include_retired="on") == ["Home"]
    future = await client.write("Ada moves next year", title="Move")
    later = (START.replace(year=START.year + 1)).isoformat()
    await client.call("POST", f"{ENTRIES}/{future['id']}/invalidate", json={"when": later})
    now = clock().isoformat()
    assert await client.titles() == ["Move"] == await client.titles(as_of=now)


@pytest.mark.behaviour("D29", "D30", "D44")
async def test_a_deletion_takes_relations_along_and_a_second_one_finds_nothing(client: Client) -> None:
    first, second, third = [await client.write(f"fact {n}", title=f"Fact {n}") for n in range(3)]
    for target in (second, third):
        link = {"source_id": first["id"], "target_id": target["id"], "relation": "supports"}
        await client.call("POST", RELATIONS, 201, json=link)
    await client.call("POST", f"{ENTRIES}/{third['id']}/invalidate")
    assert len((await client.call("GET", RELATIONS))["relations"]) == 2
    gone = await client.call("DELETE", f"{ENTRIES}/{second['id']}")
    assert gone == {"deleted": True, "id": second["id"], "kept": []}
    await client.call("DELETE", f"{ENTRIES}/{second['id']}", 404)
    [left] = (await client.call("GET", RELATIONS))["relations"]
    assert left["target_id"] == third["id"]
    assert "Fact 1" not in await client.titles(q="fact")
    await client.call("DELETE", f"{RELATIONS}/{left['id']}")
    await client.call("DELETE", f"{RELATIONS}/{left['id']}", 404)


@pytest.mark.behaviour("D31")
async def test_an_end_of_validity_keeps_the_ends_that_others_link_to(client: Client) -> None:
    old, *others = [await client.write(f"fact {n}") for n in range(9)]

    async def link(other: dict[str, Any]) -> int:
        given = {"source_id": other["id"], "target_id": old["id"], "relation": "supports"}
        return (await client.answer("POST", RELATIONS, json=given)).status_code

    statuses, _ = await asyncio.gather(
        asyncio.gather(*map(link, others)), client.call("POST", f"{ENTRIES}/{old['id']}/invalidate")
    )
    assert set(statuses) <= {201, 400}
    found = (await client.call("GET", RELATIONS, params={"target_id": old["id"]}))["relations"]
    assert len(found) == statuses.count(201)


@pytest.mark.behaviour("D34")
async def test_an_edit_keeps_the_version_before(client: Client, clock: Clock) -> None:
    made = await client.write("Ada likes tea", title="Tea")
    one = f"{ENTRIES}/{made['id']}"
    before = clock().isoformat()
    clock.advance()
    await client.call("PATCH", one, json={"content": "Ada likes coffee"})
    assert (await client.call("GET", one, params={"known_at": before}))["content"] == "Ada likes tea"
    assert (await client.call("GET", one, params={"as_of": before}))["content"] == "Ada likes coffee"
    versions = (await client.call("GET", f"{one}/history"))["versions"]
    assert [version["content"] for version in versions] == ["Ada likes tea", "Ada likes coffee"]


@pytest.mark.behaviour("D35")
async def test_erasing_a_tenant_erases_its_entries_and_no_others(client: Client, memory: Memory) -> None:
    await client.write("ours")
    other = memory.for_tenant("other")
    await other.write("theirs", scope="user:ada")
    erased = await client.call("DELETE", "/v1/admin/tenants/other")
    assert erased["records"]["entries"]
    assert len((await client.call("GET", ENTRIES))["entries"]) == 1
    assert await other.browse() == []
    await client.call("DELETE", "/v1/admin/tenants/default")
    assert (await client.call("GET", ENTRIES))["entries"] == []


@pytest.mark.behaviour("D95", "D104", "D114")
async def test_ids_are_uuids_or_numbers_and_of_the_wrong_kind_unknown(client: Client, memory: Memory) -> None:
    made = await client.write("Ada likes tea", title="Tea")
    shown = await client.call("GET", f"{ENTRIES}/{made['id']}", params={"short_id": "on"})
    for text in (made["id"], str(shown["short_id"]), f"%23{shown['short_id']}"):
        assert (await client.call("GET", f"{ENTRIES}/{text}"))["title"] == "Tea"
    [listed] = (await client.call("GET", ENTRIES, params={"short_id": "on"}))["entries"]
    assert listed["short_id"] == shown["short_id"]
    await client.call("GET", f"/v1/memory/artifacts/{shown['short_id']}", 404)
    for text in ("abc", "999", "%23", "1" * 30, "user:ada"):
        await client.call("GET", f"{ENTRIES}/{text}", 404)


@pytest.mark.behaviour("D133")
async def test_another_server_over_the_same_file_has_the_data(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    async with Memory(url) as memory, client_of(memory) as client:
        made = await client.write("stays", title="Stays")
    for _ in range(2):
        async with Memory(url) as memory, client_of(memory) as client:
            assert await client.call("GET", f"{ENTRIES}/{made['id']}") == made
