"""Administration over HTTP: holds, blocked sources, erasure, plans and stores."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from memory.orchestrator.maintenance.sweeps import Maintenance
from tests.server.api import Api
from tests.server.support import Client

A = "/v1/admin"
ADMIN_CALLS: list[tuple[str, str, Any]] = [
    ("GET", f"{A}/stats", None),
    ("GET", f"{A}/plan", None),
    ("POST", f"{A}/sweep", {}),
    ("GET", f"{A}/entries/0196f9d2-7e5c-8a41-9c1e-5b7d3f20a6e8/copies", None),
    ("GET", f"{A}/route?scope=user:ada", None),
    ("GET", f"{A}/legal-holds", None),
    ("POST", f"{A}/legal-holds", {"name": "n", "reason": "r", "user": "ada"}),
    ("DELETE", f"{A}/legal-holds/n", None),
    ("GET", f"{A}/blocked-sources", None),
    ("POST", f"{A}/blocked-sources", {"source": "s", "reason": "r"}),
    ("DELETE", f"{A}/blocked-sources?source=s", None),
    ("POST", f"{A}/revert-source", {"source": "s"}),
    ("POST", f"{A}/erase", {"scope": "user:ada", "dry_run": True}),
    ("POST", f"{A}/erase-user", {"user": "ada", "dry_run": True}),
    ("GET", f"{A}/export", None),
    ("POST", f"{A}/import", None),
]
OPERATOR_CALLS: list[tuple[str, str, Any]] = [
    ("GET", f"{A}/stores", None),
    ("GET", f"{A}/stores/rolled-back", None),
    ("DELETE", f"{A}/stores/old", None),
    ("POST", f"{A}/stores/audit", {}),
    ("POST", f"{A}/stores/compare", {}),
    ("POST", f"{A}/stores/flush", None),
    ("POST", f"{A}/stores/vacuum", None),
]


@pytest.fixture
def admin(api: Api) -> Client:
    return api.client("admin")


async def test_each_role_has_its_calls(api: Api, admin: Client) -> None:
    for role in ("reader", "writer"):
        for method, path, body in (*ADMIN_CALLS, *OPERATOR_CALLS):
            refused = await api.client(role).call(method, path, 403, json=body)
            assert refused["code"] == "forbidden"
    for method, path, body in ADMIN_CALLS:
        assert (await admin.answer(method, path, json=body)).status_code in (200, 201), path
    for method, path, body in OPERATOR_CALLS:
        await admin.call(method, path, 403, json=body)
        assert (await api.client("operator").answer(method, path, json=body)).status_code == 200, path


async def test_an_admin_of_some_scopes_has_no_calls_of_the_tenant(api: Api) -> None:
    some = api.client("admin", "acme", "user:ada")
    for method, path, body in ADMIN_CALLS:
        if not path.endswith("/erase"):
            await some.call(method, path, 403, json=body)
    await some.call("POST", f"{A}/erase", json={"scope": "user:ada"})
    await some.call("POST", f"{A}/erase", 403, json={"scope": "user:bob"})
    for method, path, body in OPERATOR_CALLS:
        await api.client("operator", "acme", "user:ada").call(method, path, 403, json=body)


async def test_a_legal_hold_keeps_what_it_names(api: Api, admin: Client) -> None:
    entry = await api.memory.write("Ada likes tea", scope="user:ada")
    held = await admin.call(
        "POST", f"{A}/legal-holds", 201, json={"name": "case 17/a", "reason": "a lawsuit", "user": "ada"}
    )
    assert (held["name"], held["reason"]) == ("case 17/a", "a lawsuit")
    assert (await admin.call("POST", f"{A}/erase", 409, json={"scope": "user:ada"}))[
        "code"
    ] == "legal_hold_active"
    assert await api.memory.get(entry.id)
    assert (await admin.call("GET", f"{A}/legal-holds"))["holds"] == [held]
    assert (await api.client("admin", "globex").call("GET", f"{A}/legal-holds"))["holds"] == []
    two = {"name": "x", "reason": "r", "user": "ada", "tenant": True}
    await admin.call("POST", f"{A}/legal-holds", 400, json=two)
    assert (await admin.call("DELETE", f"{A}/legal-holds/case%2017%2Fa"))["removed"] == [held]
    assert (await admin.call("POST", f"{A}/erase", json={"scope": "user:ada"}))["entries"] == 1


async def test_a_source_is_blocked_reverted_and_unblocked(api: Api, admin: Client) -> None:
    entry = await api.memory.write("spam", scope="user:ada", source="web:example.com")
    body = {"source": "web:example.com", "reason": "hacked", "blocked_by": "ada"}
    headers = {"Idempotency-Key": "b"}
    made = [
        await admin.call("POST", f"{A}/blocked-sources", 201, json=body, headers=headers) for _ in range(2)
    ]
    assert made[0] == made[1]
    assert await api.memory.get(entry.id) is None
    assert (await admin.call("GET", f"{A}/blocked-sources")) == made[0]
    plan = await admin.call("POST", f"{A}/revert-source", json={"source": "web:example.com", "dry_run": True})
    assert plan["dry_run"] is True
    await admin.call("DELETE", f"{A}/blocked-sources?source=web:example.com")
    assert await api.memory.get(entry.id)
    await admin.call("POST", f"{A}/revert-source", json={"source": "web:example.com"})
    assert await api.memory.get(entry.id) is None
    await admin.call("POST", f"{A}/blocked-sources", 400, json={"reason": "no source"})
    await admin.call("DELETE", f"{A}/blocked-sources", 400)


async def test_erasures_count_first_and_stay_in_the_tenant(api: Api, admin: Client) -> None:
    for tenant in ("acme", "globex"):
        memory = api.memory.for_tenant(tenant)
        await memory.write("tea", scope="user:ada")
        await memory.session("trip", user="ada").append({"role": "user", "content": "hi"})
    counted = await admin.call("POST", f"{A}/erase-user", json={"user": "ada", "dry_run": True})
    assert (counted["sessions"], counted["entries"]) == (1, 1)
    assert await admin.call("POST", f"{A}/erase-user", json={"user": "ada"}) == counted
    assert (await admin.call("POST", f"{A}/erase-user", json={"user": "ada"}))["entries"] == 0
    assert len(await api.memory.for_tenant("globex").browse()) == 1
    await admin.call("POST", f"{A}/erase-user", 400, json={"user": "user:ada"})
    await admin.call("POST", f"{A}/erase", 400, json={"scope": "user:ada", "dryrun": True})


async def test_a_plan_shows_an_admin_its_own_tenant(api: Api, admin: Client) -> None:
    for tenant in ("acme", "globex"):
        await api.memory.for_tenant(tenant).write(
            "old", scope="user:ada", expires_at=timedelta(milliseconds=1)
        )
    seen = {one["tenant"] for one in (await admin.call("GET", f"{A}/plan"))["planned"]}
    everyone = (await api.client("operator").call("GET", f"{A}/plan"))["planned"]
    assert seen <= {"acme"}
    assert {one["tenant"] for one in everyone} - seen <= {"globex"}
    assert (await admin.call("POST", f"{A}/sweep", json={}))["report"] is None
    assert (await api.client("operator").call("POST", f"{A}/sweep", json={"budget": "5s"}))["report"][
        "ran"
    ] is True
    await admin.call("POST", f"{A}/sweep", 400, json={"budget": -1})


async def test_numbers_of_an_admin_count_its_own_tenant(
    api: Api, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other tenants' pending steps and damaged records would tell what they do."""

    async def count_seven(*_: Any) -> int:
        return 7

    monkeypatch.setattr(Maintenance, "count_pending_in", count_seven)
    assert (await admin.call("GET", f"{A}/stats"))["pending_steps"] == 0
    assert (await api.client("operator").call("GET", f"{A}/stats"))["pending_steps"] >= 7


async def test_an_entry_is_located_and_moved(api: Api, admin: Client) -> None:
    entry = await api.memory.write("tea", scope="user:ada")
    [number] = (await api.memory.short_ids.of([entry.id])).values()
    copies = (await admin.call("GET", f"{A}/entries/{number}/copies"))["copies"]
    assert copies
    moved = await admin.call("POST", f"{A}/move", json={"entry_ids": [entry.id], "to": "long"})
    assert [one["entry_id"] for one in moved["moved"]] == [entry.id]
    await admin.call("POST", f"{A}/move", 400, json={"entry_ids": [entry.id], "to": "attic"})
    assert (await admin.call("GET", f"{A}/route?scope=user:ada&collection=entries"))["scope"] == "user:ada"
    assert (await admin.call("GET", f"{A}/stats"))["by_type"] == {"context": 1}
    assert (await api.client("admin", "globex").call("GET", f"{A}/stats"))["by_type"] == {}
