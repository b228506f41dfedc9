"""Routes in a configuration: several stores in one tier, and why a record goes where it
goes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memory import Memory, MemoryConfig
from memory.domain.errors import ConfigError
from memory.facade.config.settings import load
from memory.ports.contract.cells import cells


def settings(**route: Any) -> dict[str, Any]:
    return {
        "embedder": "none",
        "tiers": dict.fromkeys(("short", "mid", "long"), "memory://"),
        "routes": [{"tiers": ["mid"], "store": "memory://eu", **route}],
    }


def config(folder: Path) -> MemoryConfig:
    (folder / "memory.toml").write_text(
        """
        embedder = "none"
        [stores.main]
        url = "sqlite:///main.db"
        [stores.eu]
        url = "sqlite:///eu.db"
        [[routes]]
        tiers = ["short", "mid", "long"]
        tenants = ["acme"]
        store = "eu"
        """
    )
    return load(folder / "memory.toml", environ={}, folder=folder)


@pytest.mark.backend("sqlite")
async def test_two_tenants_of_one_memory_live_in_two_databases(tmp_path: Path) -> None:
    both = config(tmp_path)
    for tenant in ("acme", "other"):
        async with Memory(both, tenant=tenant) as memory:
            entry = await memory.write(f"the lantern of {tenant}", scope="user:ada")
            await memory.update(entry.id, content=f"the lantern of {tenant}, mended")
            assert {copy.store for copy in await memory.admin.where(entry.id)} == {
                "eu" if tenant == "acme" else "main"
            }
            assert [hit.entry.id for hit in await memory.search("lantern", scope="user:ada")] == [entry.id]
            assert [store.store for store in await memory.admin.check()] == ["eu", "main"]
            assert memory.admin.route("user:ada").store == ("eu" if tenant == "acme" else "main")
    for name, there in (("eu", "acme"), ("main", "other")):
        async with Memory(f"sqlite:///{tmp_path}/{name}.db", tenant=there, embedder=None) as memory:
            assert [e.content async for e in memory.entries.iterate()] == [f"the lantern of {there}, mended"]
        async with Memory(
            f"sqlite:///{tmp_path}/{name}.db", tenant="other" if there == "acme" else "acme"
        ) as memory:
            assert [e async for e in memory.entries.iterate()] == []


async def test_a_route_is_explained_sentence_by_sentence() -> None:
    async with Memory("memory://") as memory:
        report = memory.admin.route("session:s1")
    assert (report.tier, report.replicas) == ("short", {})
    assert any(sentence.startswith("rule 'facts-last' may move it") for sentence in report.because)


@cells(
    "route, problem",
    [
        ({}, "a route needs tenants, scope_kinds or collections"),
        ({"tenants": ["a"], "tiers": []}, "routes.1.tiers"),
        ({"tenants": ["a"], "tiers": ["middle"]}, "routes.1.tiers"),
        ({"tenants": ["a"], "store": "nowhere"}, "routes.1.store: names no store 'nowhere'"),
        ({"scope_kinds": ["planet"]}, "routes.1.scope_kinds"),
        ({"collections": ["entry"]}, "there is no collection 'entry'; did you mean 'entries'"),
        ({"tenant": ["a"]}, "there is no setting 'tenant'"),
    ],
    shared=True,
)
def test_a_route_that_cannot_be_is_refused_by_name(route: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        MemoryConfig(**settings(**route))
    assert problem in str(refused.value)


def test_a_loss_is_accepted_only_of_a_store_in_use() -> None:
    assert MemoryConfig(tiers={"short": "memory://"}, accept_loss=["memory"]).accept_loss == ("memory",)
    with pytest.raises(ConfigError, match="accept_loss: names no store in use 'redis'"):
        MemoryConfig(accept_loss=["redis"])


def test_routes_are_shown_with_the_settings_and_hide_secrets() -> None:
    shown = MemoryConfig(**settings(tenants=["acme"], store="redis://me:secret@host/0")).leaves()
    assert shown["routes.1"].startswith("mid: tenants acme -> redis://")
    assert "secret" not in str(shown)
