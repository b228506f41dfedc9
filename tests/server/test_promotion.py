"""Promotion and compaction of entries over HTTP."""

from __future__ import annotations

from tests.server.api import Api
from tests.server.support import Client


async def test_an_entry_is_promoted_once(api: Api, ada: Client) -> None:
    entry = await api.memory.write("Ada likes tea", scope="session:trip", tags=["drink"])
    path = f"/v1/memory/entries/{entry.id}/promote"
    body = {"to": "user:ada", "metadata": {"from": "trip"}}
    headers = {"Prefer": "wait=5"}
    made = [await ada.call("POST", path, 201, json=body, headers=headers) for _ in range(2)]
    assert made[0] == made[1]
    assert (made[0]["content"], made[0]["tags"]) == ("Ada likes tea", ["drink"])
    assert made[0]["promoted_from_id"] == entry.id
    await ada.call("POST", path, 409, json={**body, "metadata": {"from": "elsewhere"}})
    await ada.call("POST", path, 400, json={"to": "session:other"})
    await ada.call("POST", path, 400, json={"to": "user:ada", "content": 3})
    number = (await api.memory.short_ids.of([entry.id]))[entry.id]
    again = await ada.call("POST", f"/v1/memory/entries/%23{number}/promote", 201, json=body)
    assert again["id"] == made[0]["id"]
    await ada.call("POST", "/v1/memory/entries/4242/promote", 404, json=body)
    await api.client("reader").call("POST", path, 403, json=body)
    await api.client("writer", "globex").call("POST", path, 404, json=body)


async def test_entries_are_compacted_in_the_versions_that_were_read(api: Api, ada: Client) -> None:
    entries = [await api.memory.write(text, scope="user:ada") for text in ("Ada likes tea", "and coffee")]
    versions = {one.id: one.version for one in entries}
    edited = await api.memory.update(entries[1].id, content="and juice")
    body = {"entry_ids": list(versions), "content": "Ada likes tea and juice", "delete_sources": True}
    stale = await ada.call("POST", "/v1/memory/compact", 409, json={**body, "versions": versions})
    assert (stale["code"], stale["current_version"]) == ("version_conflict", edited.version)
    assert all(await api.memory.get_many(list(versions)))
    headers = {"Idempotency-Key": "c"}
    body["versions"] = {**versions, edited.id: edited.version}
    made = [await ada.call("POST", "/v1/memory/compact", 201, json=body, headers=headers) for _ in range(2)]
    assert made[0] == made[1]
    assert made[0]["content"] == "Ada likes tea and juice"
    assert await api.memory.get_many(list(versions)) == [None, None]
    await ada.call("POST", "/v1/memory/compact", 400, json={"entry_ids": [], "content": "x"})
    await ada.call("POST", "/v1/memory/compact", 400, json={"entry_ids": ["x"]})


async def test_it_is_explained_why_an_entry_stays(api: Api, ada: Client) -> None:
    entry = await api.memory.write("Ada likes tea", scope="user:ada")
    assert await api.client("reader").call("GET", f"/v1/memory/entries/{entry.id}/why")
    await ada.call("GET", "/v1/memory/entries/0196f9d2-7e5c-8a41-9c1e-5b7d3f20a6e8/why", 404)


async def test_entries_are_read_by_ids_keys_and_age(api: Api, ada: Client) -> None:
    made = [
        await api.memory.write(f"n {number}", scope="user:ada", key=f"k{number}", metadata={"n": number})
        for number in range(5)
    ]
    reader = api.client("reader")
    numbers = await api.memory.short_ids.of([made[3].id])
    ids = [f"#{numbers[made[3].id]}", "0196f9d2-7e5c-8a41-9c1e-5b7d3f20a6e8", made[0].id]
    found = (await reader.call("POST", "/v1/memory/entries/get", json={"entry_ids": ids}))["entries"]
    assert [one and one["content"] for one in found] == ["n 3", None, "n 0"]
    keyed = {"scope": "user:ada", "keys": ["k1", "none"]}
    assert [
        one and one["id"]
        for one in (await reader.call("POST", "/v1/memory/entries/get", json=keyed))["entries"]
    ] == [made[1].id, None]
    asked = {"scope": "user:ada", "order": "oldest", "limit": 2, "filter": {"metadata.n": {"$gte": 1}}}
    pages = [await reader.call("POST", "/v1/memory/retrieve", json=asked)]
    while pages[-1]["cursor"] is not None:
        pages.append(
            await reader.call("POST", "/v1/memory/retrieve", json=asked | {"cursor": pages[-1]["cursor"]})
        )
    shown = [[one["content"] for one in page["entries"]] for page in pages]
    assert [one for page in shown for one in page] == ["n 1", "n 2", "n 3", "n 4"]
    await reader.call("POST", "/v1/memory/retrieve", 400, json={"scope": "user:ada", "limit": 0})
    number = (await api.memory.short_ids.of([made[2].id]))[made[2].id]
    items = (
        await reader.call("POST", "/v1/memory/short-ids/resolve", json={"texts": [f"#{number}", "9999"]})
    )["items"]
    assert [one and one["id"] for one in items] == [made[2].id, None]
    foreign = await api.client("reader", "globex").call(
        "POST", "/v1/memory/entries/get", json={"entry_ids": ids}
    )
    assert foreign["entries"] == [None] * 3
