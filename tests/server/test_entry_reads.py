"""Entries over HTTP whose expiry reads move, and results without some parts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memory import Memory
from tests.acceptance.support import HOUR, Clock
from tests.server.support import ENTRIES, Client

pytestmark = pytest.mark.backend("sqlite")
TEA: dict[str, Any] = {"content": "green tea", "scope": "user:ada", "key": "drink", "data": {"price": 3}}
PARTS = {"content", "metadata", "data"}


async def test_every_read_names_the_parts_that_it_needs(client: Client) -> None:
    made = await client.call("POST", ENTRIES, 201, json=TEA)
    one = f"{ENTRIES}/{made['id']}"
    wanted: dict[str, Any] = {"include": ["content"]}
    for include in ("include=content", "include=content&include=content", "include=content,%20content"):
        found = [
            await client.call("GET", f"{one}?{include}"),
            *(await client.call("GET", f"{one}/history?{include}"))["versions"],
            *(await client.call("GET", f"{ENTRIES}?{include}"))["entries"],
            *(await client.call("GET", f"{ENTRIES}?q=tea&{include}"))["entries"],
        ]
        assert [PARTS & shown.keys() for shown in found] == [{"content"}] * 4, include
    found = [
        *(await client.call("POST", f"{ENTRIES}/get", json={"entry_ids": [made["id"]], **wanted}))["entries"],
        *(await client.call("POST", "/v1/memory/retrieve", json={"scope": "user:ada", **wanted}))["entries"],
        *(
            await client.call(
                "POST", "/v1/memory/search", json={"query": "tea", "filter": {"data.price": 3}, **wanted}
            )
        )["entries"],
    ]
    assert [PARTS & shown.keys() for shown in found] == [{"content"}] * 3
    assert PARTS & (await client.call("GET", f"{one}?include=")).keys() == set()
    assert (await client.call("GET", one)).keys() >= PARTS
    for path in (one, f"{one}/history", ENTRIES, f"{ENTRIES}?q=tea"):
        joined = "&" if "?" in path else "?"
        field, message = await client.refused("GET", f"{path}{joined}include=content,payload")
        assert (field, "did you mean 'metadata'" in message) == ("include", True)
        assert (await client.refused("GET", f"{path}{joined}include=title"))[0] == "include"
    assert (await client.refused("POST", "/v1/memory/search", json={"query": "tea", "include": "data"}))[
        0
    ] == "include"


async def test_entries_are_shown_as_the_library_shows_them(client: Client, memory: Memory) -> None:
    session = await memory.sessions.create("trip")
    file = await memory.artifacts.put("trip", "tea.txt", b"tea")
    full = await memory.write(
        "green tea",
        scope="path:teams/red/",
        type="learning",
        title="Tea",
        tags=["drink"],
        metadata={"at": datetime(2126, 1, 2, tzinfo=UTC), "n": [1.5, None, {"x": True}]},
        data=["a", 1],
        expires_at=timedelta(hours=2.5),
        refresh_on_read=True,
        origins=["source:web:tea"],
        artifact_id=file.id,
        conversation_id=session.id,
        number_in_conversation=3,
    )
    other = await memory.write("black tea", scope="path:teams/red/", source="web:b", confidence=0.5)
    merged = await memory.compact([full.id, other.id], lambda entries: "tea", data=None)
    for one in (full, merged):
        found = await memory.get(one.id)
        assert found is not None
        assert await client.call("GET", f"{ENTRIES}/{one.id}") == found.to_dict()
    pages = [await client.call("GET", f"{ENTRIES}?q={q}") for q in ("", "tea")]
    for shown in [*pages[0]["entries"], *pages[1]["entries"]]:
        entry = await memory.get(shown["id"])
        assert entry is not None
        told = {name: shown[name] for name in entry.to_dict().keys() - {"artifact", "expires_at"}}
        assert told == {name: value for name, value in entry.to_dict().items() if name in told}
    assert all(page["entries"] for page in pages)


async def test_reads_begin_the_time_of_an_entry_anew(client: Client, clock: Clock) -> None:
    kept = {"expires_in": "2h", "refresh_on_read": True}
    made = await client.call("POST", ENTRIES, 201, json={**TEA, **kept})
    one = f"{ENTRIES}/{made['id']}"
    assert made["lifetime"] == 7_200
    for path in (one, f"{ENTRIES}?q=tea", one):
        clock.advance(HOUR)
        await client.call("GET", path)
    shown = await client.call("GET", one)
    left = datetime.fromisoformat(shown["expires_at"]) - clock.moment
    assert timedelta(hours=1.9) < left <= 2 * HOUR
    assert shown["version"] == made["version"]
    changed = await client.call("PATCH", one, json={"expires_in": 60})
    assert changed["lifetime"] is None
    for given, field in (
        ({"refresh_on_read": True}, "refresh_on_read"),
        ({"refresh_on_read": True, "expires_at": "2127-01-01T00:00:00Z"}, "refresh_on_read"),
        ({"expires_in": "2h", "expires_at": "2127-01-01T00:00:00Z"}, "expires_in"),
        ({"expires_in": "soon"}, "expires_in"),
        ({"expires_in": -1}, "expires_in"),
        ({"lifetime": 60}, "lifetime"),
    ):
        for method, path in (("POST", ENTRIES), ("PATCH", one)):
            assert (await client.refused(method, path, json={"content": "x", **given}))[0] == field
